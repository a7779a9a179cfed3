#!/usr/bin/env python3
"""idem(1) on a PostgreSQL and a MariaDB of the test's own, over TCP and with a password. Prints TAP.
IDEM_EXE and IDEM_SQL_SERVE are the programs.
"""
import os
import re
import subprocess
import sys
import tempfile
import traceback
import urllib.parse

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import sqlserver  # pylint: disable=wrong-import-position
from waiting import LIMIT, patient, until  # pylint: disable=wrong-import-position

IDEM = os.environ["IDEM_EXE"]
VARIABLES = {"postgres": "IDEM_POSTGRES_PASSWORD", "mysql": "IDEM_MYSQL_PASSWORD"}
tests = []


def test(function):
    tests.append(function)
    return function


def check(good, what):
    if not good:
        raise AssertionError(what)


class Database:
    def __init__(self, kind, server):
        self.kind, self.url, self.owner = kind, patient(server.url), patient(server.owner)
        self.password = urllib.parse.unquote(re.match(r"\w+://\w+:([^@]*)@", self.url).group(1))
        self.bare = re.sub(r":[^:@/]*@", "@", self.url, count=1)

    def idem(self, *words, store=None, status=0, **env):
        """Runs idem, checks its exit status, and returns its output."""
        clean = {k: v for k, v in os.environ.items() if not k.endswith("_PASSWORD")}
        run = subprocess.run([IDEM, *words, "--store", store or self.url] if store != "" else [IDEM, *words],
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT, check=False,
                             env=dict(clean, **env))
        check(run.returncode == status, f"idem {' '.join(words)}: {run.returncode}, not {status}: {run.stdout}")
        return run.stdout

    def once(self, key, script, **options):
        """Runs a script with idem run; --store must come before the script."""
        clean = {k: v for k, v in os.environ.items() if not k.endswith("_PASSWORD")}
        return subprocess.run([IDEM, "run", "--store", self.url, *options.get("flags", []), "--key", key, "--", "sh",
                               "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=LIMIT,
                              check=False, env=clean)


@test
def tables_are_asked_for_made_and_made_again(db):
    said = db.idem("stats", status=69)
    check("idem migrate" in said, said)
    for _ in range(2):
        check("version 1" in db.idem("migrate", store=db.owner), "the version is named")
    check("CREATE TABLE" in db.idem("migrate", "--print", store=db.kind + ":"), "they are printed")


@test
def a_command_runs_once_and_is_replayed(db):
    for flags, again in (([], "one\n"), (["--mode", "reject"], "")):
        key = "once" + str(len(flags))
        first, second = db.once(key, "echo one; exit 0", flags=flags), db.once(key, "echo one; exit 0", flags=flags)
        check((first.returncode, first.stdout) == (0, "one\n"), first)
        check(second.stdout == again, second)


@test
def operators_see_settle_and_forget(db):
    check(db.once("op", "exit 0").returncode == 0, "it runs")
    shown = db.idem("show", "op", "--prefix", "run:", "--scope", "none")
    check("done" in shown, shown)
    name = re.search(r"[0-9a-f]{64}", shown).group()
    check(name[:12] in db.idem("list"), "it is listed")
    check(re.search(r"done\D+[1-9]", db.idem("stats")), "it is counted")
    with subprocess.Popen([IDEM, "run", "--store", db.url, "--recover", "hold", "--lease", "5s", "--key", "gone",
                           "--", "sh", "-c", "echo $$; exec sleep 600"],  # sleep: it is killed
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as vanished:
        command = int(vanished.stdout.readline())
        until("it runs", lambda: "running" in db.idem("list"))
        vanished.kill()
    os.kill(command, 9)
    until("its lease is over", lambda: db.idem("list", "--state", "uncertain").strip())
    check("uncertain" in db.idem("list"), "it is uncertain")
    db.idem("settle", "gone", "--prefix", "run:", "--scope", "none", "--done")
    check("done" in db.idem("show", "gone", "--prefix", "run:", "--scope", "none"), "it is settled")
    db.idem("forget", "gone", "--prefix", "run:", "--scope", "none")
    db.idem("show", "gone", "--prefix", "run:", "--scope", "none", status=66)


@test
def a_password_is_hidden_and_may_come_from_the_environment(db):
    escaped = urllib.parse.quote(db.password, safe="")
    run = subprocess.Popen([IDEM, "run", "--store", db.url, "--key", "title", "--", "sh", "-c", "echo up; sleep 600"],  # sleep: it is killed
                           stdout=subprocess.PIPE, text=True)
    check(run.stdout.readline() == "up\n", "it runs")
    with open(f"/proc/{run.pid}/cmdline", "rb") as file:
        title = file.read().decode()
    run.terminate()
    run.wait(LIMIT)
    check(escaped not in title and "//xxx" in title, title)
    variable = VARIABLES[db.kind]
    check("done" in db.idem("stats", store=db.bare, **{variable: db.password}), "by the environment")
    for said in (db.idem("stats", store=db.bare, status=69, **{variable: "quite-wrong"}),
                 db.idem("stats", store=db.bare.replace("@", ":quite-wrong@", 1), status=69),
                 db.idem("migrate", store=db.bare.replace("@", ":quite-wrong@", 1), status=69)):
        check("quite-wrong" not in said and said.strip(), said)


@test
def the_gateway_hands_the_password_on(db):
    variable = VARIABLES[db.kind]
    said = db.idem("gateway", "--upstream", "http://127.0.0.1:9", "--scope", "none", "--probe", "tx", "--print-config",
                   store=db.bare, **{variable: db.password})
    check(f"env {variable};" in said and db.password not in said and "idem_probe tx;" in said, said)


def main():
    count = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        for kind in VARIABLES:
            with sqlserver.start(kind + "-tcp", f"{folder}/{kind}") as server:
                db = Database(kind, server)
                for body in (one for one in tests if not sys.argv[1:] or one.__name__ in [*sys.argv[1:], tests[0].__name__]):
                    count += 1
                    good = True
                    try:
                        body(db)
                    except Exception:  # pylint: disable=broad-except
                        good = False
                        for line in traceback.format_exc().splitlines():
                            print("# " + line[:1000])
                    failed += not good
                    print(f"{'ok' if good else 'not ok'} {count} - {kind}: {body.__name__}", flush=True)
    print(f"1..{count}")
    sys.exit(failed != 0)


main()
