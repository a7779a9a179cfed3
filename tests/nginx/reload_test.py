#!/usr/bin/env python3
"""Workers that come and go: reload, upgrade, kill -9; leases, and the probes of vanished runs."""
import collections
import os
import signal
import sys
import threading
import time

sys.dont_write_bytecode = True

from rig import *
from tap import *

KILLED = ["exited on signal 9"]
# A URI with variables of the request is probed only for a client, never in the background.
PROBED = "idem replay; idem_probe /_status/{0}?$request_id;"
IN_BACKGROUND = "idem replay; idem_probe /_status/{0};"
CONF = WATCH + "".join((
    guard("/replay", "idem replay;"),
    guard("/wait", "idem replay; idem_wait 1h;"),
    guard("/wait-briefly", "idem replay; idem_wait 1h; idem_lease 600ms;"),
    guard("/hold", "idem replay; idem_lease 300ms;"),
    # A run here ends with its lease, and the test has time to kill its worker before that.
    guard("/rerun", "idem replay; idem_fingerprint body; idem_recover rerun; idem_lease 2s; idem_attempts 2;"),
    guard("/rerun-sure", "idem replay; idem_fingerprint body; idem_recover rerun; idem_attempts 2;", prefix="rerun:"),
    guard("/lock", "idem lock; idem_lease 2s;"),
    guard("/brief", "idem replay; idem_lease 100ms;"),
    guard("/yes", PROBED.format("yes")),
    guard("/no", PROBED.format("no")),
    guard("/dunno", PROBED.format("dunno")),
    guard("/hidden", PROBED.format("hidden")),
    guard("/one", PROBED.format("one") + " idem_fingerprint none;"),
    guard("/cut", PROBED.format("cut") + " idem_result_max 10k;"),
    guard("/once", PROBED.format("once").replace("idem replay", "idem reject")),
    guard("/bare", "idem replay; idem_probe /_bare/status?$request_id;"),
    guard("/late", "idem replay; idem_fingerprint body; idem_run_max 300ms; idem_lease 300ms; idem_probe /_status/late?$request_id;"),
    guard("/late-again", "idem replay; idem_fingerprint body; idem_probe /_status/late?$request_id;", prefix="late:"),
    "location /_bare/ { internal; proxy_pass http://@BACKEND@; }\n",
    guard("/quiet", IN_BACKGROUND.format("quiet")),
    guard("/left", IN_BACKGROUND.format("left") + " idem_lease 400ms;"),
    guard("/astray", "idem replay; idem_probe /_nowhere;"),
    guard("/astray-page", "idem replay; idem_probe /_page;"),
    "location = /_page { internal; return 200 found; }\n",
    guard("/theirs", 'idem replay; idem_lease 400ms; idem_probe "/_status/$http_idempotency_key";'),
    guard("/unsafe", 'idem replay; idem_lease 400ms; idem_fingerprint none; idem_probe "/_status/$arg_u";'),
    guard("/twice", IN_BACKGROUND.format("twice")),
    guard("/named", 'idem replay; idem_probe "/_status/named?hash=$idem_key_hash&down=$idem_downstream_key&ref=$http_x_ref";'),
    "location /_status/ { internal; proxy_pass http://@BACKEND@; proxy_pass_request_body off;"
    " proxy_set_header Content-Length ''; }\n",
))


class Load(threading.Thread):
    """Sends requests with new keys, one after the other, each twice, until it is stopped."""

    def __init__(self, rig, path="/replay"):
        super().__init__(daemon=True)
        self.rig, self.path = rig, path
        self.keys, self.bad, self.on = [], [], True

    def run(self):
        while self.on:
            key = fresh()
            try:
                first, again = self.rig.post(self.path, key, do={"late": 0.01}), self.rig.post(self.path, key)
                if first.status != 200 or again.status != 200 or first.body != again.body:
                    self.bad.append((key, first, again))
            except OSError as error:
                self.bad.append((key, error))
            self.keys.append(key)

    def stop(self):
        self.on = False
        self.join()
        eq(self.bad[:3], [], f"the failures of {len(self.keys)}")
        counts = self.effects()
        eq({key: counts[key] for key in self.keys if counts[key] != 1}, {}, "keys whose effects are not one")

    def effects(self):
        return collections.Counter(s.key for s in self.rig.backend.requests() if s.effect)


def progress(loads, least=10):
    """Waits until each load has made progress."""
    before = [len(load.keys) for load in loads]
    until("there is load", lambda: all(len(load.keys) >= n + least for load, n in zip(loads, before)))


def vanish(rig, path, times=1):
    """Returns the key of a run whose worker is killed, `times` times; its client sees the connection end. If a worker
    was not scheduled for longer than the lease, its run ended before: then another key is tried."""
    def vanished(key):
        name = fresh("hang")
        under_way = rig.later(path, key, do={"hang": name})
        until("it runs, or its lease is over", lambda: rig.backend.arrivals[name] or under_way.done())
        if rig.backend.arrivals[name]:
            rig.kill_worker(int(rig.backend.requests(key=key, path=path)[-1].h("X-Worker")))
        rig.backend.go(name)
        return under_way.get().status is None

    def tried():
        key = fresh()
        for left in reversed(range(times)):
            if not vanished(key):
                return None
            if left:
                rig.until_lease_over(path[1:] + ":")
        return key
    return until("a run is killed with its worker", tried)


@test
def a_reload_under_load_loses_nothing(rig):
    loads = [Load(rig) for _ in range(4)]
    for load in loads:
        load.start()
    for _ in range(4):
        progress(loads)
        rig.reload()
    progress(loads)
    for load in loads:
        load.stop()


@test
def a_run_in_an_old_worker_is_renewed_and_finished(rig):
    key, name = fresh(), fresh("hang")
    under_way = rig.later("/hold", key, do={"hang": name})
    rig.backend.reached(name)
    old = rig.reload()
    rig.until_renewed("hold:", 4)
    # A worker that is not scheduled for longer than its lease gets the lease back at its next renewal.
    until_answer("it is held", lambda: rig.post("/hold", key), lambda a: a.type == "in-progress")
    rig.backend.go(name)
    first = status(under_way.get(), 200)
    replay_of(first, rig.post("/hold", key))
    eq(rig.backend.effects(key=key), 1)
    rig.are_gone(old)


@test
def duplicates_parked_in_an_old_worker_get_the_answer(rig):
    key, name = fresh(), fresh("hang")
    under_way = [rig.later("/wait", key, do={"hang": name}) for _ in range(8)]
    rig.until_parked(7)
    old = rig.reload()
    under_way += [rig.later("/wait", key) for _ in range(4)]
    rig.until_parked(11)
    rig.backend.go(name)
    eq({u.get().status for u in under_way}, {200})
    eq(len({u.get().body for u in under_way}), 1, "different answers")
    eq(rig.backend.effects(key=key), 1)
    rig.are_gone(old)


@test
def a_reload_keeps_what_was_stored(rig):
    key = fresh()
    first = status(rig.post("/replay", key), 200)
    rig.reload()
    replay_of(first, rig.post("/replay", key))


@test
def an_upgrade_of_the_binary_under_load_loses_nothing(rig):
    with Rig(guard("/replay", "idem replay;"), start=False) as other:
        other.start(adopted=True)
        key, name = fresh(), fresh("hang")
        under_way = other.later("/replay", key, do={"hang": name})
        other.backend.reached(name)
        loads = [Load(other) for _ in range(3)]
        for load in loads:
            load.start()
        old = other.process
        old.send_signal(signal.SIGUSR2)

        def new_master():
            try:
                with open(other.folder + "/nginx.pid", encoding="ascii") as file:
                    pid = int(file.read())
            except (OSError, ValueError):
                return None
            ready = [p for p in children(pid) if "worker process" in title(p)]
            return pid if pid != old.pid and len(ready) >= 2 else None
        new = until("a new master", new_master)
        try:
            progress(loads)
            old.send_signal(signal.SIGQUIT)
            progress(loads)
            other.backend.go(name)
            first = status(under_way.get(), 200)
            old.wait()
            progress(loads)
            for load in loads:
                load.stop()
            replay_of(first, other.post("/replay", key))
            eq(other.backend.effects(key=key), 1)
        finally:
            workers = children(new)
            os.kill(new, signal.SIGTERM)
            until("the new nginx ends", lambda: not alive(new) and not any(alive(p) for p in workers))


@test
def a_backend_of_ten_leases_is_waited_for(rig):
    key, name = fresh(), fresh("hang")
    under_way = rig.later("/brief", key, do={"hang": name})
    rig.backend.reached(name)

    rig.until_renewed("brief:", 30)  # the renewals come every third of a lease
    # A worker that is not scheduled for longer than its lease gets the lease back at its next renewal.
    until_answer("it is held", lambda: rig.post("/brief", key), lambda a: a.type == "in-progress")
    rig.backend.go(name)
    first = status(under_way.get(), 200)
    eq(first.all("Idem-Lost"), [])
    replay_of(first, rig.post("/brief", key))
    eq(rig.backend.effects(key=key), 1)


@test(expects=KILLED)
def what_a_killed_worker_ran_is_held(rig):
    key = vanish(rig, "/hold")
    answer = rig.post("/hold", key)
    check(answer.type in ("in-progress", "uncertain"), repr(answer))
    rig.until_lease_over("hold:")
    for _ in range(2):
        status(rig.post("/hold", key), 409, "uncertain")
    eq(rig.backend.effects(key=key), 1)


@test(expects=KILLED)
def what_a_killed_worker_ran_is_run_again_where_the_policy_says_so(rig):
    key = vanish(rig, "/rerun")
    rig.until_lease_over("rerun:")
    first, line = rig.logged("/rerun-sure", key)
    eq((status(first, 200).replayed, line["idem_attempt"]), (False, "2"))
    replay_of(first, rig.post("/rerun-sure", key))
    eq([s.h("Idem-Attempt") for s in rig.backend.requests(key=key)], ["1", "2"])
    # A crash counts as an attempt: after two the key is dead.
    key = vanish(rig, "/rerun", 2)
    rig.until_lease_over("rerun:")
    answer, line = rig.logged("/rerun", key)
    eq(line["idem_verdict"], "dead")
    check(answer.status >= 400, repr(answer))
    eq(rig.backend.effects(key=key), 2)


@test(expects=KILLED)
def a_lock_of_a_killed_worker_is_freed_by_its_lease(rig):
    key = vanish(rig, "/lock")
    until_200("the lease ends", lambda: rig.post("/lock", key))


@test(expects=KILLED)
def parked_duplicates_of_a_killed_run_do_not_hang(rig):
    key, name = fresh(), fresh("hang")
    first = rig.later("/wait-briefly", key, do={"hang": name})
    rig.backend.reached(name)
    killed = int(rig.backend.requests(key=key)[0].h("X-Worker"))
    parked = [rig.later("/wait-briefly", key) for _ in range(8)]
    until("they are parked, or were", lambda: rig.figures()["parked"] + sum(p.done() for p in parked) == 8)
    rig.kill_worker(killed)
    eq(first.get().status, None)
    for later in parked:
        answer = later.get()
        check(answer.status is None or answer.type == "uncertain", repr(answer))
    rig.backend.go(name)
    eq(rig.backend.effects(key=key), 1)


@test
def a_probe_that_finds_it_settles_it_with_that_answer(rig):
    rig.backend.script("/_status/yes", {"status": 201, "body": "found it", "headers": [["Location", "http://o/1"]]})
    key = fresh()
    status(rig.post("/yes", key, do={"fault": "close"}), 502)
    first = status(rig.post("/yes", key), 201)
    eq((first.body, first.h("Location")), (b"found it", "http://o/1"))
    again = status(rig.post("/yes", key), 201)
    check(again.replayed and again.body == b"found it", repr(again))
    probes = rig.backend.requests(path="/_status/yes")
    eq([(p.method, p.body) for p in probes], [("GET", b"")], "probes")
    eq(probes[0].key, key, "the key that the probe asks about")
    eq(rig.backend.effects(key=key), 1)


@test
def a_probe_that_finds_nothing_lets_it_run(rig):
    rig.backend.script("/_status/no", {"status": 404})
    key = fresh()
    status(rig.post("/no", key, do={"fault": "close"}), 502)
    first, line = rig.logged("/no", key)
    eq((status(first, 200).replayed, line["idem_verdict"]), (False, "run"))
    replay_of(first, rig.post("/no", key))
    eq([s.path for s in rig.backend.requests(key=key)], ["/no", "/_status/no", "/no"])


@test
def a_probe_that_took_too_long_lets_nothing_run(rig):
    """The prober no longer holds the key: another prober may have got the same response."""
    name = fresh("hang")
    rig.backend.script("/_status/late", {"status": 404, "hang": name})
    key = fresh()
    status(rig.post("/late-again", key, do={"fault": "close"}), 502)
    asked = rig.later("/late", key)
    rig.backend.reached(name)
    time.sleep(0.4)  # sleep: idem_run_max ends meanwhile; the next two lines wait for the effects
    rig.turn()
    rig.until_lease_over("late:")
    rig.backend.go(name)
    status(asked.get(), 409, "uncertain")
    eq([s.path for s in rig.backend.requests(key=key)], ["/late-again", "/_status/late"])
    rig.backend.script("/_status/late", {"status": 404})
    first = status(rig.post("/late-again", key), 200)
    replay_of(first, rig.post("/late-again", key))
    eq(rig.backend.effects(key=key), 2)


@test
def a_probe_that_does_not_know_leaves_it_uncertain(rig):
    for path, name, do in (("/dunno", "dunno", {"status": 500}), ("/dunno", "dunno", {"fault": "close"}),
                           ("/dunno", "dunno", {"status": 302}), ("/dunno", "dunno", {"status": 403})):
        rig.backend.script("/_status/" + name, do)
        key = fresh()
        status(rig.post(path, key, do={"fault": "close"}), 502)
        for _ in range(2):
            answer = status(rig.post(path, key), 409, "uncertain")
            told = answer.body.replace(answer.problem["key_hash"].encode(), b"")  # its digits may be any
            check(b"403" not in told and answer.h("Location") is None, repr(answer))
        eq(rig.backend.effects(key=key), 1)


@test
def a_probe_has_no_body_whatever_its_location_says(rig):
    rig.backend.script("/_bare/status", {"body": "found"})
    for size in (10, 100000):
        for chunked in (0, 5000):
            key, body = fresh(), pattern(size)
            status(rig.post("/bare", key, body=body, chunked=chunked, do={"fault": "close"}, type="text/plain"), 502)
            eq(status(rig.post("/bare", key, body=body, chunked=chunked, type="text/plain"), 200).body, b"found")
            probe, = rig.backend.requests(key=key, path="/_bare/status")
            eq((probe.method, probe.body, probe.h("Content-Length") or "0", probe.h("Transfer-Encoding")),
               ("GET", b"", "0", None))


@test
def a_probe_that_breaks_off_leaves_it_uncertain(rig):
    for do in ({"size": 1000, "truncate": 500}, {"size": 1000, "truncate": 0}, {"fault": "bighead"}):
        rig.backend.script("/_status/cut", do)
        key = fresh()
        status(rig.post("/cut", key, do={"fault": "close"}), 502)
        status(rig.post("/cut", key), 409, "uncertain")
        eq(rig.backend.effects(key=key), 1)


@test
def a_probe_whose_answer_is_not_kept_settles_it(rig):
    rig.backend.script("/_status/cut", {"size": 50000, "status": 201})
    rig.backend.script("/_status/once", {"status": 201})
    for path in ("/cut", "/once"):
        key = fresh()
        status(rig.post(path, key, do={"fault": "close"}), 502)
        for _ in range(2):
            eq(status(rig.post(path, key), 409, "duplicate").problem["first_status"], 201)
        eq(rig.backend.effects(key=key), 1)


@test
def a_probe_that_no_backend_answers_says_nothing(rig):
    for path in ("/astray", "/astray-page"):
        key = fresh()
        status(rig.post(path, key, do={"fault": "close"}), 502)
        for _ in range(2):  # a background sweep may be probing
            status(until_answer("the prober has ended", lambda path=path, key=key: rig.post(path, key),
                                lambda a: a.type != "in-progress"), 409, "uncertain")
        eq(rig.backend.effects(key=key), 1)


@test
def a_probe_that_needs_the_request_is_not_asked_in_the_background(rig):
    rig.backend.script("/_status/", {"body": "all there are"})
    key = fresh()
    rig.backend.script("/_status/" + key, {"body": "this one"})
    status(rig.post("/theirs", key, do={"fault": "close"}), 502)
    rig.backend.script("/_status/quiet", {"status": 500})
    status(rig.post("/quiet", fresh(), do={"fault": "close"}), 502)
    rig.reload()  # so that all sweeps begin at the same time
    before = len(rig.backend.requests(path="/_status/quiet"))
    until("the sweep has probed twice", lambda: len(rig.backend.requests(path="/_status/quiet")) >= before + 2)
    eq(rig.backend.requests(path="/_status/"), [], "probes that ask about nothing")
    answer = status(rig.post("/theirs", key), 200)
    eq((answer.body, rig.backend.effects(key=key)), (b"this one", 1))


@test
def a_probe_that_has_no_uri_leaves_it_uncertain(rig):
    rig.backend.script("/_status/x", {"status": 500})
    key = fresh()
    status(rig.post("/unsafe", key, do={"fault": "close"}), 502)
    for u in ("../../secret", "x", "../.."):
        status(rig.post("/unsafe?u=" + u, key), 409, "uncertain")
    eq(rig.backend.effects(key=key), 1)


@test
def what_ran_after_a_probe_is_probed_again(rig):
    key, plain = fresh(), rig.backend.directive

    def directive(seen):
        """A probe after the first run finds nothing, whether from a client or a sweep."""
        if seen.path != "/_status/twice":
            return plain(seen)
        return {"body": "found"} if rig.backend.effects(key=key) == 2 else {"status": 404}
    rig.backend.directive = directive
    try:
        status(rig.post("/twice", key, do={"fault": "close"}), 502)
        until_answer("no round is at it", lambda: rig.post("/twice", key, do={"fault": "close"}), lambda a: a.status == 502)
        eq(rig.backend.effects(key=key), 2, "it never happened, and ran")
        rig.reload()  # a sweep begins soon after
        until("a probe in the background", lambda: [s for s in rig.backend.requests(path="/_status/twice") if s.answer == b"found"])
        answer = until_200("settled", lambda: rig.post("/twice", key))
        eq((answer.body, rig.backend.effects(key=key)), (b"found", 2))
    finally:
        rig.backend.directive = plain


@test
def there_is_one_prober_at_a_time(rig):
    name = fresh("hang")
    rig.backend.script("/_status/one", {"body": "found", "hang": name})
    key = fresh()
    status(rig.post("/one", key, do={"fault": "close"}), 502)
    under_way = [rig.later("/one", key) for _ in range(12)]
    rig.backend.reached(name)
    until("the others are refused", lambda: sum(u.done() for u in under_way) == 11)
    rig.until_renewed("one:")
    eq(len(rig.backend.requests(path="/_status/one")), 1, "probes")
    status(rig.post("/one", key), 409, "in-progress")
    rig.backend.go(name)
    answers = [u.get() for u in under_way]
    eq(sorted({a.status for a in answers}), [200, 409])
    eq({a.body for a in answers if a.status == 200}, {b"found"})
    check(rig.post("/one", key).body == b"found", "settled")
    eq(len(rig.backend.requests(path="/_status/one")), 1, "probes")
    eq(rig.backend.effects(key=key), 1)


@test
def a_probe_knows_the_hash_and_the_request(rig):
    rig.backend.script("/_status/named", {"status": 200, "body": "ok"})
    key, ref = fresh(), fresh("ref")
    _, line = rig.logged("/named", key, ref=ref, do={"fault": "close"})
    status(rig.post("/named", key, ref=ref), 200)
    probe, = rig.backend.requests(path="/_status/named")
    down, = probe.all("Idem-Downstream-Key")
    check(len(down) == 64, down)
    eq(probe.target, f"/_status/named?hash={line['idem_key_hash']}&down={down}&ref={ref}")


@test
def a_client_that_leaves_the_prober_leaves_it_settled(rig):
    name = fresh("hang")
    rig.backend.script("/_status/hidden", {"body": "found", "hang": name})
    key = fresh()
    status(rig.post("/hidden", key, do={"fault": "close"}), 502)
    conn = Conn(rig.port).send(rig.bytes("/hidden", key))
    rig.backend.reached(name)
    conn.reset()
    rig.turn()
    rig.backend.go(name)
    answer = until_200("settled", lambda: rig.post("/hidden", key))
    eq(answer.body, b"found")
    eq(rig.backend.effects(key=key), 1)


@test(expects=KILLED)
def what_a_killed_worker_left_is_probed_in_the_background(rig):
    rig.backend.script("/_status/left", {"body": "found"})
    key = vanish(rig, "/left")
    until("a probe in the background", lambda: rig.backend.requests(path="/_status/left"))
    until("it is settled", lambda: all(r["state"] == "done" for r in rig.records("left:")))
    answer = status(rig.post("/left", key), 200)
    check(answer.replayed and answer.body == b"found", repr(answer))
    eq(rig.backend.effects(key=key), 1)


@test(expects=KILLED)
def workers_killed_under_load_lose_only_their_own(rig):
    loads = [Load(rig, "/hold") for _ in range(4)]
    for load in loads:
        load.start()
    for _ in range(4):
        progress(loads)
        rig.kill_worker(rig.worker_pids()[0])
    for load in loads:
        load.on = False
        load.join()
        check(len(load.bad) <= 4, f"{len(load.bad)} of {len(load.keys)} went wrong: {load.bad[:3]}")
        counts = load.effects()
        eq({key: counts[key] for key in load.keys if counts[key] > 1}, {}, "keys that ran twice")


if __name__ == "__main__":
    main(CONF)
