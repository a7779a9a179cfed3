"""A PostgreSQL or a MariaDB of a test's own, for tests in Python.

    with sqlserver.start("postgres", folder) as server: server.url, server.ask("SELECT 1")

sql-serve (tests/store/sql/serve.c), whose path is in IDEM_SQL_SERVE, starts the server, which ends with this process.
Further words are "durable" and settings of the server, "name=value".
Kinds: postgres, postgres-tcp, postgres-tls, postgres-pooled, mysql, mysql-tcp, mysql-tls.
"""
import ctypes
import os
import select
import signal
import subprocess

from waiting import patient

DEATHSIG = 1  # of prctl
SECONDS = 300  # only a failure takes that long


class SqlError(Exception):
    """The server's error."""


def follow_parent():
    ctypes.CDLL(None).prctl(DEATHSIG, signal.SIGTERM)


class Server:
    """`url` belongs to a user who may only change rows, `owner` to one who may make tables."""

    def __init__(self, kind, folder, *words):
        os.makedirs(folder, exist_ok=True)
        self.process = subprocess.Popen([os.environ["IDEM_SQL_SERVE"], kind, folder, *words],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        preexec_fn=follow_parent, bufsize=0)
        self.said = b""
        try:
            self.url, self.owner = self.line(), self.line()
        except BaseException:
            self.stop()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def line(self):
        while b"\n" not in self.said:
            if not select.select([self.process.stdout], [], [], SECONDS)[0]:
                raise AssertionError(f"the SQL server does not respond within {SECONDS} s")
            part = self.process.stdout.read(65536)
            if not part:
                raise AssertionError("the SQL server did not start: see above")
            self.said += part
        line, self.said = self.said.split(b"\n", 1)
        return line.decode()

    def tell(self, word):
        self.process.stdin.write(word.encode() + b"\n")
        kind, text = self.line().split(" ", 1)
        if kind != "ok":
            raise SqlError(text)
        return text

    def ask(self, sql):
        """Runs statements as the owner; returns the first column of the first row of the last result, as text."""
        return self.tell("sql " + " ".join(sql.split("\n")))

    def migrate(self, idem):
        """Makes Idem's tables with idem(1)."""
        subprocess.run([idem, "migrate", "--store", patient(self.owner)], check=True, timeout=SECONDS,
                       stdout=subprocess.DEVNULL)

    def kill(self):
        self.tell("kill")

    def start(self):
        """Starts a killed server again, with its data."""
        self.tell("restart")

    def pause(self):
        self.tell("pause")

    def go_on(self):
        self.tell("go-on")

    def stop(self):
        if self.process.poll() is None:
            self.process.stdin.close()
            try:
                self.process.wait(SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process.stdout.close()


def start(kind, folder, *words):
    return Server(kind, folder, *words)
