#!/usr/bin/env python3
"""A rolling upgrade, and its way back: the programs of the release before this one and these share a store.
What one has written the other reads, in every state; and both work under load, with kills, in an order that
the judge of histories accepts. Prints TAP.

    upgrade_test.py SOURCE BUILD STORE...     lmdb redis postgres mysql

IDEM_EXE, IDEM_HISTORY_CHECK and IDEM_SQL_SERVE are the programs; IDEM_SEED replays the random part.
"""
import contextlib
import datetime
import json
import os
import random
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE + "/..", HERE + "/../packages"]
import earlier  # pylint: disable=wrong-import-position
import plain  # pylint: disable=wrong-import-position
import redisserver  # pylint: disable=wrong-import-position
import shop as shops  # pylint: disable=wrong-import-position
import sqlserver  # pylint: disable=wrong-import-position
import storm  # pylint: disable=wrong-import-position
from plain import check, test  # pylint: disable=wrong-import-position
from waiting import LIMIT, until  # pylint: disable=wrong-import-position

SOURCE, BUILD = sys.argv[1:3]
STORES = [word for word in sys.argv[3:] if word in ("lmdb", "redis", "postgres", "mysql")]
ASKS = 300 if os.environ.get("IDEM_LONG") else 12  # by each of five threads, in one phase of the storm
SEED = os.environ.get("IDEM_SEED") or str(random.randrange(1 << 32))
HELD = 'i=0; while [ ! -e "$GO" ] && [ $i -lt 20000 ]; do i=$((i+1)); sleep .02; done; echo held'  # sleep: the step of a poll
sys.argv[1:] = sys.argv[3 + len(STORES):]  # names of tests


class Release:
    """The programs of one release, on a store that both share."""

    def __init__(self, name, exe, url, folder):
        self.name, self.exe, self.url, self.folder, self.started = name, exe, url, folder, []
        self.env = {**os.environ, "IDEM_STORE": url, "IDEM_AUDIT": folder + "/audit", "GO": folder + "/go"}

    def idem(self, *words, status=0):
        done = subprocess.run([self.exe, *words], env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=LIMIT, check=False)
        check(done.returncode == status, f"{self.name} idem {' '.join(words)}: {done.returncode}, not {status}: {done}")
        return done.stdout

    def once(self, key, script, *options, status=0):
        return self.idem("run", "--key", key, "--label", key, *options, "--", "sh", "-c", script, status=status)

    def start(self, key, script, *options):
        self.started.append(subprocess.Popen(
            [self.exe, "run", "--key", key, "--label", key, *options, "--", "sh", "-c", script], env=self.env,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True))
        return self.started[-1]

    def records(self):
        """Returns the records of `list` by label."""
        rows = [json.loads(line) for line in self.idem("list", "--json").splitlines()]
        return {row["label"]: row for row in rows}


class Pair:
    def __init__(self, store, url, old, folder, server):
        self.store, self.folder, self.serial, self.server = store, folder, 0, server
        self.old = Release("old", old, url, folder)
        self.new = Release("new", os.environ["IDEM_EXE"], url, folder)

    def both_ways(self):
        """Yields (writer, reader, a prefix for keys that were not used yet)."""
        for writer, reader in ((self.old, self.new), (self.new, self.old)):
            self.serial += 1
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.folder + "/go")
            yield writer, reader, f"{writer.name}-{self.serial}-"

    def go(self):
        with open(self.folder + "/go", "w", encoding="ascii"):
            pass

    def end(self):
        for process in self.old.started + self.new.started:
            if process.poll() is None:
                storm.kill_all(process)
            process.stdout.close()


@contextlib.contextmanager
def server_of(store, folder):
    """Yields the store's URL, and its server."""
    if store == "lmdb":
        yield "lmdb:" + folder + "/store", None
    elif store == "redis":
        with redisserver.start(folder + "/redis", "--unixsocketperm", "777") as server:
            yield server.url + "?timeout=60s&connect_timeout=60s", server
    else:
        with sqlserver.start(store + "-tcp", folder + "/sql") as server:
            yield server.url, server


@contextlib.contextmanager
def pair(store):
    old = earlier.build(SOURCE, BUILD + "/previous")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        with server_of(store, folder) as (url, server):
            if store not in ("lmdb", "redis"):
                server.migrate(old)  # the earlier release makes the tables, as on a real system
            both = Pair(store, url, old, folder, server)
            try:
                yield both
            finally:
                both.end()


@test
def what_is_done_or_failed_is_read_by_the_other(both):
    for writer, reader, k in both.both_ways():
        size = "head -c 100000 /dev/urandom"
        kept = writer.once(k + "done", size)
        check(reader.once(k + "done", size) == kept and len(kept) == 100000, "the result is another one")
        reader.idem("run", "--key", k + "done", "--", "true", status=65)
        writer.once(k + "once", "echo x", "--mode", "reject")
        check(reader.once(k + "once", "echo x", "--mode", "reject", "--duplicate-exit", "9", status=9) == b"", "it ran")
        kept = writer.once(k + "keep", "echo why; exit 7", "--on-failure", "keep", status=7)
        check(reader.once(k + "keep", "echo why; exit 7", "--on-failure", "keep", status=7) == kept == b"why\n", kept)
        retry = ("--on-failure", "retry", "--attempts", "3", "--backoff")
        writer.once(k + "later", "exit 1", *retry, "1h..1h", status=1)
        reader.once(k + "later", "exit 1", *retry, "1h..1h", status=75)
        for who, attempt in ((writer, 1), (reader, 2), (writer, 3)):
            said = who.once(k + "now", "echo $IDEM_ATTEMPT; exit 1", *retry, "1ms..1ms", status=1)
            check(said == b"%d\n" % attempt, said)
            time.sleep(0.01)  # sleep: longer than the back-off
        said = reader.once(k + "now", "echo $IDEM_ATTEMPT; exit 1", *retry, "1ms..1ms", status=1)
        check(said == b"3\n", "the record has failed for good")
        for who, attempt in ((writer, 1), (reader, 2), (writer, 3)):
            check(who.once(k + "lock", "echo $IDEM_ATTEMPT", "--mode", "lock") == b"%d\n" % attempt, "the lock")


@test
def who_runs_is_seen_and_wakes_the_other(both):
    for writer, reader, k in both.both_ways():
        run = writer.start(k + "run", HELD)
        until("it runs", lambda w=reader, k=k: w.records().get(k + "run", {}).get("state") == "running")
        reader.once(k + "run", HELD, status=75)
        waiter = reader.start(k + "run", HELD, "--wait", "1h")
        both.go()
        check(run.wait(LIMIT) == 0 and waiter.wait(LIMIT) == 0, "they end")
        check(waiter.stdout.read() == b"held\n", "the waiter's answer")


@test
def who_vanished_is_uncertain_or_run_again_by_the_other(both):
    lease = ("--lease", "20s")  # long enough to claim while it lasts; the leases of both ways are waited for at once
    ways = list(both.both_ways())
    for writer, reader, k in ways:
        for kind in ("hold", "rerun"):
            vanished = writer.start(k + kind, HELD, "--recover", kind, *lease)
            until("it runs", lambda w=reader, key=k + kind: w.records().get(key, {}).get("state") == "running")
            storm.kill_all(vanished)
        check(reader.once(k + "rerun", HELD, "--recover", "rerun", *lease, status=75) == b"", "it is held")
    both.go()
    for writer, reader, k in ways:
        ran = reader.start(k + "rerun", HELD, "--recover", "rerun", *lease, "--wait", "1h")
        check(ran.wait(LIMIT) == 0 and reader.records()[k + "rerun"]["attempt"] == 2, "it is run again")
        until("it is uncertain", lambda w=reader, k=k: w.records()[k + "hold"]["state"] == "uncertain")
        reader.once(k + "hold", HELD, "--recover", "hold", status=70)
        reader.idem("settle", "--done", k + "hold")
        check(writer.records()[k + "hold"]["state"] == "done", "it is settled")
        reader.idem("forget", k + "hold")
        check(k + "hold" not in writer.records(), "it is forgotten")


@test
def a_token_of_one_is_good_once_at_the_other(both):
    for writer, reader, _ in both.both_ways():
        token = writer.idem("token", "--scope", "ann", "--bind", "cart").decode().strip()
        words = ("run", "--scope", "ann", "--token", token, "--bind")
        reader.idem(*words, "another", "--", "echo", "bought", status=66)
        for who in (reader, writer):
            check(who.idem(*words, "cart", "--", "echo", "bought") == b"bought\n", "the token")
        check(reader.idem("stats").startswith(writer.idem("stats")[:10]), "the counts can be read")


def alike(one, other):
    """Compares two values. Times come from two clocks, the command's and the store's, which are read one after the
    other, so they may differ."""
    def time_of(value):
        return datetime.datetime.fromisoformat(value.replace("Z", "+00:00")).timestamp()
    with contextlib.suppress(AttributeError, ValueError):
        return abs(time_of(one) - time_of(other)) < 60
    return one == other


@test
def both_show_the_same_of_all_of_it(both):
    old, new = both.old.records(), both.new.records()
    check(len(old) > 10 and old.keys() == new.keys(), old.keys() ^ new.keys())
    for label, row in old.items():
        differs = {name: (value, new[label].get(name)) for name, value in row.items()
                   if not alike(value, new[label].get(name)) and not name.endswith("_ms")}
        check(not differs, (label, differs))
    check({row["state"] for row in old.values()} >= {"done", "failed"}, "the states")


@contextlib.contextmanager
def gateways(both):
    """Yields (a shop, the ports of two gateways in front of it)."""
    # As root, nginx's workers are www-data, and the embedded store must be theirs.
    store = "lmdb:" + both.folder + "/gateway" if both.store == "lmdb" else both.old.url
    with shops.opened() as shop, contextlib.ExitStack() as stack:
        ports = {}
        for release in (both.old, both.new):
            ports[release.name] = shops.free_port()
            gateway = subprocess.Popen(
                [release.exe, "gateway", "--listen", str(ports[release.name]), "--scope", "$http_x_user", "--upstream",
                 f"http://127.0.0.1:{shop.port}", "--workers", "1", "--store", store], env=release.env,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            stack.callback(gateway.stderr.close)
            stack.callback(gateway.wait, LIMIT)
            stack.callback(gateway.terminate)
            if not shops.listens(ports[release.name], gateway):
                said = gateway.stderr.read().decode() if gateway.poll() is not None else ""
                if gateway.poll() == 127:
                    raise plain.Skip("nginx or its module is not there")
                raise AssertionError(f"{release.name} does not listen: {said}")
        yield shop, ports


@test
def gateways_of_both_give_the_same_answer(both):
    with gateways(both) as (shop, ports):
        for first, second in (("old", "new"), ("new", "old")):
            answer = shops.post(ports[first], "by-" + first, b"tea")
            check(answer[0] == 201 and not answer[2], answer)
            for name in (second, first):
                check(shops.post(ports[name], "by-" + first, b"tea") == (201, answer[1], True), name)
            check(shops.post(ports[second], "by-" + first, b"milk")[0] == 422, "another body")
        check(shop.orders == [b"tea", b"tea"], shop.orders)


@test
def gateways_of_both_under_load_let_each_order_through_once(both):
    answers = {}

    def ask(names, key):
        def ended():  # while it runs, the others get a refusal
            status, body, _ = shops.post(ports[random.choice(names)], key, key.encode())
            if status != 409:
                answers.setdefault(key, set()).add((status, body))
            return status != 409
        until(f"{key} ends", ended)

    with gateways(both) as (shop, ports):
        for phase, names in enumerate((["old"], ["old", "new"], ["new"], ["old", "new"], ["old"])):
            keys = [f"load-{phase}-{i}" for i in range(40)] * 4 + list(answers)  # and all earlier keys
            random.shuffle(keys)

            def work(names=names, keys=keys):
                while True:
                    try:
                        key = keys.pop()
                    except IndexError:
                        return
                    ask(names, key)
            storm.together(8, work)
        check(len(answers) == 200 and all(len(said) == 1 for said in answers.values()), "answers differ")
        check(sorted(shop.orders) == sorted(key.encode() for key in answers), "orders")


@test
def consumers_of_both_handle_each_message_once(both):
    if both.store != "redis":
        raise plain.Skip("messages come by way of Redis")
    handled = both.folder + "/handled"

    def consume(release):
        return subprocess.Popen(
            [release.exe, "consume", both.server.url, "--queue", "orders", "--key", "#body.id", "--store", release.url, "--lease", "20s",
             "--exec", f"cat >>{handled}; sleep .01"],  # sleep: so that most consumers are ended in the middle
            env=release.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)

    def lines():
        with contextlib.suppress(FileNotFoundError), open(handled, encoding="ascii") as file:
            return [json.loads(line)["id"] for line in file]
        return []

    ids = []
    for which in ([both.old], [both.old, both.new], [both.new], [both.new, both.old], [both.old]):
        more = list(range(len(ids), len(ids) + 40))
        ids += more
        both.server.ask_all([("XADD", "orders", "*", "body", json.dumps({"id": i}) + "\n") for i in more * 2 + ids[:20]])
        consumers = [consume(release) for release in which]
        until("half of them are handled", lambda: len(lines()) >= len(ids) - 20)
        for consumer in consumers:  # in the middle of it: the next consumers continue
            consumer.terminate()
        check([consumer.wait(LIMIT) for consumer in consumers] == [0] * len(consumers), "how they end")
    last = consume(both.new)
    until("all are acknowledged", lambda: both.server.ask("XPENDING", "orders", "idem")[0] == 0
          and both.server.ask("XINFO", "GROUPS", "orders")[0][11] == 0)
    last.terminate()
    check(last.wait(LIMIT) == 0, "how it ends")
    check(sorted(lines()) == ids, "each once")


@test
def under_load_with_kills_the_history_is_in_order(both):
    print(f"# seed {SEED}", flush=True)
    load = storm.Storm({"old": both.old.exe, "new": both.new.exe}, both.old.url, os.environ["IDEM_HISTORY_CHECK"],
                       both.folder, SEED)
    for which in (["old"], ["old", "new"], ["new"], ["old", "new"], ["old"]):
        load.phase(which, ASKS)
    load.ask_all()
    status, said = load.judge()
    print("# " + said.strip().replace("\n", "\n# ")[-3000:] + f"\n# {dict(load.seen)}", flush=True)
    check(status == 0, "the history is not in order")
    check(not load.odd, load.odd[:5])
    for name in ("old", "new"):
        check(load.seen[name + " run"] and load.seen[name + " replay"], f"{name} did not take part")
    check(load.seen["killed"] and load.seen["again"], "no run was killed, or none took over")


plain.main(pair, STORES)
