#!/usr/bin/env python3
"""A service that does its work once, in its own transaction, with two statements: idem_once and idem_result.

    service.py KIND URL DIRECTORY PORT

Its prefix is its path. It uses its database through psql or mariadb, and writes a line to DIRECTORY/calls for each
request. X-Do chooses where it dies (before, after: the COMMIT), that its transaction stays open until DIRECTORY/go
exists
(open; DIRECTORY/opened exists meanwhile), or that it stores no result (bare). X-Row is a change of its row after that.
"""
import http.server
import json
import os
import re
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True

MARK = "this-was-all"


class Session:
    """A connection, through the engine's own client; if this process dies, the transaction is rolled back."""

    def __init__(self, kind, url):
        path, user, db = re.match(r"\w+:([^?]*)\?user=(\w+)&db=(\w+)", url).groups()
        if kind == "postgres":
            folder, port = re.match(r"(.*?)(?:/\.s\.PGSQL\.(\d+))?$", path).groups()
            command = ["psql", "-XqAt", "-F", "\t", "-h", folder, "-p", port or "5432", "-U", user, db]
        else:
            command = ["mariadb", "--no-defaults", "-S", path, "-u", user, "-BNnf", db]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, bufsize=1)

    def ask(self, sql):
        """Runs a statement; returns the fields of the last row."""
        self.process.stdin.write(f"{sql};\nSELECT '{MARK}';\n")
        row = []
        for line in self.process.stdout:
            line = line.rstrip("\n")
            if line == MARK:
                return row
            if "ERROR" in line:
                raise RuntimeError(line)
            row = line.split("\t")
        raise RuntimeError("the database's client has gone")

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def quoted(text):
    """Quotes a text; the tests send nothing that would have to be escaped."""
    if text is None:
        return "NULL"
    if not re.fullmatch(r"[\w@.:{}\" -]+", text):
        raise ValueError(text)
    return f"'{text}'"


class Service(http.server.BaseHTTPRequestHandler):
    kind = url = folder = ""
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):  # pylint: disable=arguments-differ
        pass

    def do_POST(self):  # pylint: disable=invalid-name
        self.rfile.read(int(self.headers["Content-Length"] or 0))
        names = (quoted(self.path[1:] + ":"), quoted(self.headers["Idem-Scope"]), quoted(self.headers["Idempotency-Key"]))
        with open(f"{self.folder}/calls", "a", encoding="ascii") as file:
            file.write(" ".join(names) + f" {self.headers['Idem-Attempt']}\n")
        session = Session(self.kind, self.url)
        try:
            self.once(session, ", ".join(names), self.headers["X-Do"] or "")
        finally:
            session.close()

    def once(self, session, names, do):
        call = "SELECT outcome, status, convert_from(result, 'UTF8') FROM" if self.kind == "postgres" else "CALL"
        session.ask("BEGIN")
        outcome, status, result = session.ask(f"{call} idem_once({names}, NULL)")
        if outcome == "duplicate":
            session.ask("ROLLBACK")
            self.answer(int(status), result, outcome)
            return
        status, result = 201, json.dumps({"ran": os.urandom(8).hex()})
        session.ask(f"INSERT INTO effect VALUES ({names.split(', ')[2]})")
        if do != "bare":
            cast = "::bytea" if self.kind == "postgres" else ""
            session.ask(("SELECT" if self.kind == "postgres" else "CALL")
                        + f" idem_result({names}, {status}, {quoted(result)}{cast})")
        if self.headers["X-Row"]:
            session.ask(f"UPDATE idem_tx SET {self.headers['X-Row']} WHERE status IS NULL")
        if do == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        if do == "open":
            with open(f"{self.folder}/opened", "w", encoding="ascii"):
                pass
        while do == "open" and not os.path.exists(f"{self.folder}/go"):
            time.sleep(0.02)  # sleep: the step of a poll
        session.ask("COMMIT")
        if do in ("after", "bare"):
            os.kill(os.getpid(), signal.SIGKILL)
        self.answer(status, result, outcome)

    def answer(self, status, result, outcome):
        body = result.encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Outcome", outcome)
        self.end_headers()
        self.wfile.write(body)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """The client may have disconnected."""


if __name__ == "__main__":
    Service.kind, Service.url, Service.folder = sys.argv[1:4]
    Server(("127.0.0.1", int(sys.argv[4])), Service).serve_forever()
