#!/usr/bin/env python3
"""idem_probe tx: the row of the service's own transaction shows the outcome of a run."""
import contextlib
import os
import subprocess
import sys

sys.dont_write_bytecode = True

from rig import *
from service import Session
from tap import *

PORT, = free_ports(1)
TO = f"proxy_pass http://127.0.0.1:{PORT};"
HERE = os.path.dirname(os.path.abspath(__file__))


def location(path, rules):
    return guard(path, rules, to=TO)


CONF = WATCH + "".join((
    location("/pay", "idem replay; idem_probe tx;"),
    location("/text", "idem replay; idem_probe tx 'type=text/plain; charset=utf-8';"),
    location("/brief", "idem replay; idem_probe tx; idem_result_max 10;"),
    location("/once", "idem reject; idem_probe tx;"),
    location("/mine", "idem replay; idem_probe tx; idem_scope $http_x_user;"),
    location("/slow", "idem replay; idem_probe tx; idem_fingerprint body; proxy_read_timeout 300ms;"),
    guard("/patient", "idem replay; idem_probe tx; idem_fingerprint body;", prefix="slow:",
          to=f"proxy_pass http://127.0.0.1:{PORT}/slow;"),
))


class Service:
    """service.py in a process of its own, which is restarted when it has died."""

    def __init__(self, rig):
        self.rig, self.process = rig, None

    def __enter__(self):
        self.up()
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        for name in ("go", "opened"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{self.rig.folder}/{name}")

    def up(self):
        if self.process is not None:
            self.process.wait(LIMIT)
        self.process = subprocess.Popen([sys.executable, HERE + "/service.py", STORE, self.rig.server.owner, self.rig.folder,
                                         str(PORT)], preexec_fn=follow_parent, stderr=subprocess.DEVNULL)
        until("the service listens", self.listens)

    @staticmethod
    def listens():
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", PORT)) == 0

    def dies(self, path, key, do, **options):
        """Sends a request at which the service dies."""
        headers = [("X-Do", do), *options.pop("headers", [])]
        status(self.rig.post(path, key, headers=headers, **options), 502)
        self.up()

    def calls(self, key):
        with open(f"{self.rig.folder}/calls", encoding="ascii") as file:
            return [line.split() for line in file if f"'{key}'" in line]


@contextlib.contextmanager
def service(rig):
    if not tables:
        rig.server.ask("CREATE TABLE effect (k varchar(100))")
        tables.append("effect")
    with Service(rig) as it:
        yield it


tables = []


def effects(rig, key):
    return int(rig.server.ask(f"SELECT count(*) FROM effect WHERE k = '{key}'"))


def settled(rig, path, key, **options):
    """Returns the response once no other prober is at work: a sweep in the background may be."""
    return until_answer("the prober has ended", lambda: rig.post(path, key, **options),
                        lambda a: a.type != "in-progress")


def stored(rig, key):
    """Returns the result in the row of the key's only transaction."""
    text = "convert_from(result, 'UTF8')" if STORE == "postgres" else "result"
    return rig.server.ask(f"SELECT {text} FROM idem_tx WHERE status = 201 ORDER BY created DESC LIMIT 1").encode()


@test
def what_was_committed_is_answered_by_its_row(rig):
    with service(rig) as it:
        for path, kind in (("/pay", "application/json"), ("/text", "text/plain; charset=utf-8")):
            key = fresh()
            it.dies(path, key, "after")
            first = status(settled(rig, path, key), 201)
            eq((first.body, first.h("Content-Type")), (stored(rig, key), kind))
            replay_of(first, rig.post(path, key))
            eq((len(it.calls(key)), effects(rig, key)), (1, 1), "calls and effects")


@test
def what_was_not_committed_runs_again_once(rig):
    with service(rig) as it:
        key = fresh()
        it.dies("/pay", key, "before")
        eq(effects(rig, key), 0)
        first = status(settled(rig, "/pay", key), 201)
        eq(first.h("X-Outcome"), "first")
        replay_of(first, rig.post("/pay", key))
        eq((len(it.calls(key)), effects(rig, key)), (2, 1), "calls and effects")


@test
def a_transaction_that_is_still_open_is_waited_for_by_the_service(rig):
    """There is no row yet, so the request runs: the service's own guard then waits for the first transaction."""
    with service(rig) as it:
        key = fresh()
        status(rig.post("/slow", key, headers=[("X-Do", "open")]), 504)
        until("its transaction is open", lambda: os.path.exists(f"{rig.folder}/opened"))  # it may exceed nginx's timeout
        later = Later(lambda: settled(rig, "/patient", key))
        until("the service gets a second request", lambda: len(it.calls(key)) == 2)
        check(later.thread.is_alive(), "it waits")
        rig.put("go", "")
        answer = status(later.get(), 201)
        eq((answer.h("X-Outcome"), answer.body), ("duplicate", stored(rig, key)))
        replay_of(answer, rig.post("/patient", key))
        eq(effects(rig, key), 1)


@test
def a_row_that_has_expired_is_not_there(rig):
    with service(rig) as it:
        key = fresh()
        it.dies("/pay", key, "bare", headers=[("X-Row", "status = 201, expires = created")])
        first = status(settled(rig, "/pay", key), 201)
        eq(first.h("X-Outcome"), "first")
        eq((len(it.calls(key)), effects(rig, key)), (2, 2), "calls and effects")


@test
def a_row_without_a_status_of_http_is_a_200(rig):
    blob = "'\\x6100ff'" if STORE == "postgres" else "x'6100ff'"
    with service(rig) as it:
        for change, want, body in ((None, 200, b""), (f"status = 7, result = {blob}", 200, b"a\0\xff"),
                                   (f"status = 204, result = {blob}", 204, b""),
                                   (f"status = 422, result = {blob}", 422, b"a\0\xff")):
            key = fresh()
            it.dies("/pay", key, "bare", headers=[("X-Row", change)] if change else [])
            first = status(settled(rig, "/pay", key), want)
            eq(first.body, body)
            check(replay_of(first, rig.post("/pay", key)).h("Content-Type") == ("application/json" if body else None),
                  "its type")
            rig.server.ask("DELETE FROM idem_tx WHERE status IS NULL")
            eq((len(it.calls(key)), effects(rig, key)), (1, 1), "calls and effects")


@test
def a_row_whose_result_is_not_kept_settles_it(rig):
    with service(rig) as it:
        for path in ("/brief", "/once"):
            key = fresh()
            it.dies(path, key, "after")
            for _ in range(2):
                eq(status(settled(rig, path, key), 409, "duplicate").problem["first_status"], 201)
            eq((len(it.calls(key)), effects(rig, key)), (1, 1), "calls and effects")


def uncertain_behind(rig, it, close, reopen):
    """Returns a key whose run committed and then died, and whose record is still uncertain after `close()`. If the
    background probe has settled the record before that, another key is tried."""
    def attempt():
        key = fresh()
        rig.server.ask("DELETE FROM idem_record")
        it.dies("/pay", key, "after")
        close()
        if rig.server.ask("SELECT count(*) FROM idem_record WHERE state = 2") == "1":
            return key
        reopen()
        return None
    return until("a record is still uncertain", attempt)


@test
def a_row_that_cannot_be_looked_for_leaves_it_uncertain(rig):
    def close():
        rig.server.ask("ALTER TABLE idem_tx RENAME TO idem_away")

    def reopen():
        rig.server.ask("ALTER TABLE idem_away RENAME TO idem_tx")

    with service(rig) as it:
        key = uncertain_behind(rig, it, close, reopen)
        try:
            for _ in range(2):
                status(settled(rig, "/pay", key), 409, "uncertain")
        finally:
            reopen()
        status(settled(rig, "/pay", key), 201)
        eq((len(it.calls(key)), effects(rig, key)), (1, 1), "calls and effects")


def waiting_for_the_table(root):
    """Returns how many sessions of the server wait for a lock of idem_tx."""
    return int(root.ask(
        "SELECT count(*) FROM pg_locks WHERE relation = 'idem_tx'::regclass AND NOT granted" if STORE == "postgres" else
        "SELECT count(*) FROM information_schema.processlist WHERE state LIKE 'Waiting for table%'")[0])


@test
def a_store_that_dies_while_it_is_asked_runs_nothing(rig):
    other = Session(STORE, rig.server.owner)
    root = Session(STORE, re.sub("user=[^&]*", "user=" + ("postgres" if STORE == "postgres" else "root"), rig.server.owner))

    def close():
        if STORE == "postgres":
            other.ask("BEGIN")
        other.ask("LOCK TABLE idem_tx IN ACCESS EXCLUSIVE MODE" if STORE == "postgres" else "LOCK TABLES idem_tx WRITE")

    def reopen():
        other.ask("COMMIT" if STORE == "postgres" else "UNLOCK TABLES")

    with service(rig) as it:
        try:
            key = uncertain_behind(rig, it, close, reopen)
            asked = [rig.later("/pay", key) for _ in range(3)]
            until("a probe waits", lambda: waiting_for_the_table(root) > 0)
            rig.server.kill()
        finally:
            for session in (other, root):
                session.process.kill()
                session.process.wait()
        rig.server.start()
        for answer in (later.get() for later in asked):
            check(answer.status == 201 or answer.type in ("in-progress", "uncertain", "store-unavailable"), repr(answer))
        until("it is settled", lambda: rig.post("/pay", key).status == 201)
        eq((len(it.calls(key)), effects(rig, key)), (1, 1), "calls and effects")


@test
def there_is_one_prober_at_a_time(rig):
    with service(rig) as it:
        for do, want in (("after", 1), ("before", 2)):
            key = fresh()
            it.dies("/pay", key, do)
            asked = [rig.later("/pay", key) for _ in range(16)]
            answers = [later.get() for later in asked]
            eq({a.type for a in answers if a.status != 201} - {"in-progress"}, set())
            eq(len({a.body for a in answers if a.status == 201}), 1, "different answers")
            eq((len(it.calls(key)), effects(rig, key)), (want, 1), "calls and effects")


@test
def the_service_is_told_by_what_its_row_is_named(rig):
    """The service gets the scope and the key of the record's name; a client's Idem-Scope header is ignored."""
    with service(rig) as it:
        key = fresh()
        it.dies("/mine", f'"{key}"', "after", user="ann", headers=[("Idem-Scope", "bob")])
        first = status(settled(rig, "/mine", key, user="bob"), 201)
        eq(first.h("X-Outcome"), "first")
        again = status(settled(rig, "/mine", f'"{key}"', user="ann"), 201)
        check(again.body != first.body and again.h("X-Outcome") is None, repr(again))
        eq([call[1] for call in it.calls(key)], ["'ann'", "'bob'"])
        eq(effects(rig, key), 2)
        status(rig.post("/mine", key, user="ann smith"), 201)
        check(re.fullmatch("'[0-9a-f]{64}'", it.calls(key)[2][1]), "a scope that no header can hold is sent as a hash")


@test
def what_no_client_asks_for_is_settled_in_the_background(rig):
    with service(rig) as it:
        key = fresh()
        rig.server.ask("DELETE FROM idem_record")
        it.dies("/pay", key, "after")
        until("settled", lambda: rig.server.ask("SELECT state FROM idem_record") == "3")
        answer = status(rig.post("/pay", key), 201)
        eq((answer.replayed, answer.body), (True, stored(rig, key)))
        eq((len(it.calls(key)), effects(rig, key)), (1, 1), "calls and effects")


if STORE not in ("postgres", "mysql"):
    print(f"1..0 # SKIP {STORE} has no transactions")
    sys.exit(0)
main(CONF)
