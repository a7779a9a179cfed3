#!/usr/bin/env python3
"""sqlserver.py: its servers start, respond, die, come back and end with their program."""
import os
import select
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
import sqlserver  # pylint: disable=wrong-import-position
import waiting  # pylint: disable=wrong-import-position

count = failed = 0


def row(good, name):
    global count, failed
    count += 1
    failed += not good
    print(f"{'ok' if good else 'not ok'} {count} - {name}", flush=True)


def error_of(function, *args):
    try:
        function(*args)
    except sqlserver.SqlError as error:
        return str(error)
    return ""


def one(kind, folder):
    with sqlserver.start(kind, folder) as server:
        row(server.url.startswith(kind + ":") and "idem_app" in server.url and "idem_owner" in server.owner,
            f"{kind}_says_where_it_is")
        server.ask("CREATE TABLE t (a int);\nINSERT INTO t VALUES (41)")
        server.ask("UPDATE t SET a = a + 1")
        row(server.ask("SELECT a FROM t") == "42", f"{kind}_answers")
        row("nothere" in error_of(server.ask, "SELECT a FROM nothere"), f"{kind}_says_what_is_wrong")
        server.kill()
        row(error_of(server.ask, "SELECT 1") != "", f"{kind}_dies")
        server.start()
        row(server.ask("SELECT a FROM t") == "42", f"{kind}_comes_back")
        server.pause()
        server.process.stdin.write(b"sql SELECT 1\n")
        row(not select.select([server.process.stdout], [], [], 0.5)[0], f"{kind}_pauses")
        pid = pid_of(kind, folder)
        server.process.kill()
        server.process.wait()
        waiting.until(f"the end of {kind}", lambda: not alive(pid))
        row(True, f"{kind}_goes_with_its_program")


def pid_of(kind, folder):
    name = "data/postmaster.pid" if kind == "postgres" else "pid"
    with open(os.path.join(folder, "farm", "server", name), encoding="ascii") as file:
        return int(file.readline())


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="latin-1") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def main():
    with tempfile.TemporaryDirectory(prefix="idem-sql-") as folder:
        for kind in ("postgres", "mysql"):
            one(kind, os.path.join(folder, kind))
    wrong = subprocess.run([os.environ["IDEM_SQL_SERVE"], "oracle", "/"], stderr=subprocess.DEVNULL, check=False)
    row(wrong.returncode == 64, "another_kind_is_refused")
    print(f"1..{count}")
    return failed != 0


sys.exit(main())
