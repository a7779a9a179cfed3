#!/usr/bin/env python3
"""A store that fails: before the claim, after the response, and when it comes back."""
import itertools
import os
import re
import shutil
import sys
import time

sys.dont_write_bytecode = True

from rig import *
from tap import *

PLAIN = "location /plain { proxy_pass http://@BACKEND@; }\n"
SAME = "idem_fingerprint body;"  # all requests under one prefix are the same
CONF = PLAIN + WATCH + "".join((
    guard("/closed", f"idem replay; idem_finish_timeout 1s; {SAME}"),
    guard("/open", "idem replay; idem_on_store_error open; idem_finish_timeout 1s;"),
    guard("/wait", "idem replay; idem_wait 1h; idem_lease 1h; idem_finish_timeout 1s;"),
    guard("/patient", f"idem replay; idem_finish_timeout 1h; {SAME}", prefix="closed:"),
    # The same store, with timeouts that never end.
    guard("/sure", f"idem replay; idem_store @SURE@; {SAME}", prefix="closed:"),
    guard("/sure-open", "idem replay; idem_on_store_error open; idem_store @SURE@;"),
))
FAST = "timeout=300ms&connect_timeout=300ms"  # for use while the server is down: a busy server may be slower
SERVERS = ("redis", "postgres", "mysql")
SURE = ("/sure", "/sure-open")


def is_down(rig):
    """Requests are refused, or pass if the policy is open; the rest of nginx works as usual."""
    key = fresh()
    answer, line = rig.logged("/closed", key)
    status(answer, 503, "store-unavailable")
    eq((answer.all("Retry-After"), answer.problem["retryable"]), (["1"], True))
    eq((line["idem_verdict"], rig.backend.requests(key=key)), ("store_error", []))
    key = fresh()
    for i in range(2):
        answer, line = rig.logged("/open", key)
        status(answer, 200)
        eq((answer.all("Idem-Guard"), line["idem_verdict"]), (["open"], "open"))
        eq(rig.backend.effects(key=key), i + 1)
    status(rig.post("/open"), 400, "key-missing")
    status(rig.post("/plain"), 200)
    status(rig.post("/closed", method="GET", body=b""), 200)


def is_up(rig):
    for path in SURE:
        key = fresh()
        first = status(rig.post(path, key), 200)
        eq(first.all("Idem-Guard"), [])
        replay_of(first, rig.post(path, key))
        eq(rig.backend.effects(key=key), 1)


def comes_up(rig):
    # Each worker has a connection of its own, for each of the URLs.
    rig.until_each("the store is used again", "/sure", lambda answer: answer.status == 200)
    is_up(rig)
    until_200("also where it is given little time", lambda: rig.post("/closed", fresh()))


def begun(rig, path, name=None, do=lambda name: {"hang": name}):
    """Returns (key, name of its hang, request) of a run that has reached the backend; the key is its id in the log. On
    a busy machine the store may exceed a short timeout, or the lease may end before the request is sent: then another
    run is begun."""
    name = name or fresh("hang")

    def tried_once():
        key, before = fresh(), rig.backend.arrivals[name]
        under_way = rig.later(path, key, do=do(name), rid=key)
        until("it runs, or is refused", lambda: rig.backend.arrivals[name] > before or under_way.done())
        return (key, name, under_way) if rig.backend.arrivals[name] > before else None
    return until("it runs", tried_once)


def tried(rig):
    """Returns the workers' count of failures in the store."""
    return rig.figures()["stores"][0]["events"]["store_error"]


def until_tried(rig, times):
    """Waits for this many more attempts, all in vain."""
    before = tried(rig)
    until(f"it is tried {times} times more", lambda: tried(rig) >= before + times)


def until_replayed(rig, key, path="/sure"):
    """Waits for a replay: the outcome is stored late, and nothing has run meanwhile."""
    def asked():
        answer = rig.post(path, key)
        check(answer.replayed or answer.status in (409, 503), f"the claim is not released: {answer!r}")
        return answer if answer.replayed else None
    return until("it is stored", asked, 0.02)


@test
def a_store_that_works_is_told_of_nowhere(rig):
    is_up(rig)


@test(stores=SERVERS)
def a_server_is_killed_and_comes_back(rig):
    with Rig(CONF, options=FAST, persist=True) as other:
        key = fresh()
        first = status(other.post("/sure", key), 200)
        other.server.kill()
        is_down(other)
        status(other.post("/closed", key), 503, "store-unavailable")
        other.server.start()
        comes_up(other)
        replay_of(first, other.post("/sure", key))
        check(other.quit(), "it goes")


@test(stores=SERVERS)
def a_server_that_is_down_costs_no_request_the_timeout(rig):
    """The limit is ten minutes here, which no test waits for."""
    with Rig(CONF, options="timeout=10m&connect_timeout=10m", persist=True) as other:
        is_up(other)
        other.server.kill()
        for _ in range(20):
            key = fresh()
            answer, line = other.logged("/sure", key)
            status(answer, 503, "store-unavailable")
            eq((line["idem_verdict"], other.backend.requests(key=key)), ("store_error", []))
        other.server.start()
        comes_up(other)


@test(stores=SERVERS)
def a_server_that_hangs_costs_the_timeout_once(rig):
    """The only worker has a request that waits for the ten minutes, over which nginx's clock jumps. After that the
    clock stands still."""
    with Rig(CONF, options="timeout=10m&connect_timeout=10m", persist=True, workers=1, clock=True) as other:
        for _ in range(20):
            status(other.post("/closed", fresh()), 200)
        other.server.pause()
        try:
            waits, ahead = other.later("/closed", fresh()), itertools.count(600001, 600001)
            def is_over():
                other.clock.set(ahead_ms=next(ahead))
                other.turn()
                return waits.done()
            until("its time is over", is_over)
            status(waits.get(), 503, "store-unavailable")
            for _ in range(40):
                status(other.post("/closed", fresh()), 503, "store-unavailable")
        finally:
            other.server.go_on()
        until_200("it is back", lambda: other.post("/closed", fresh()))


@test(stores=SERVERS)
def a_server_is_not_there_when_nginx_starts(rig):
    with Rig(CONF, options=FAST, start=False) as other:
        other.server.kill()
        other.start()
        is_down(other)
        other.server.start()
        comes_up(other)


@test(stores=SERVERS)
def a_server_that_says_nothing_is_given_up_in_time(rig):
    with Rig(CONF, options=FAST) as other:
        is_up(other)
        other.server.pause()
        try:
            is_down(other)
        finally:
            other.server.go_on()
        comes_up(other)


@test(stores=SERVERS)
def a_claim_that_was_given_up_does_not_block_the_key(rig):
    with Rig(CONF, options=FAST) as other:
        is_up(other)
        key = fresh()
        other.server.pause()
        status(other.post("/closed", key), 503, "store-unavailable")
        other.server.go_on()
        answer = until_200("the key is free", lambda: other.post("/sure", key))
        check(not answer.replayed, "it had not run")
        eq(other.backend.effects(key=key), 1)


@test(stores=SERVERS)
def an_answer_is_held_at_most_finish_timeout(rig):
    with Rig(CONF, options=FAST, persist=True) as other:
        key, name, under_way = begun(other, "/closed")
        _, _, patient = begun(other, "/patient", name)
        other.server.kill()
        other.backend.go(name)
        answer = status(under_way.get(), 200)
        check(not patient.done(), "where that is an hour, it is held on")
        eq(answer.body, other.backend.requests(key=key)[0].answer)
        other.server.start()
        replay_of(answer, until_replayed(other, key))
        eq(other.backend.effects(key=key), 1)
        status(patient.get(), 200)


@test(stores=SERVERS)
def an_answer_that_is_changed_on_its_way_out_is_stored_as_it_was(rig):
    """charset changes the bytes in place, and the store has not copied them yet."""
    recoded = guard("/recoded", "idem replay; idem_finish_timeout 1s; charset koi8-r; source_charset windows-1251;"
                    f" charset_types text/plain; {SAME}", prefix="closed:")
    with Rig(CONF + recoded, http="charset_map windows-1251 koi8-r { 61 62; }", options=FAST, persist=True) as other:
        key, name, under_way = begun(other, "/recoded", do=lambda name: {"hang": name, "type": "text/plain", "body": "a" * 999})
        other.server.kill()
        other.backend.go(name)
        eq(status(under_way.get(), 200).body, b"b" * 999)
        other.server.start()
        eq(until_replayed(other, key).body, b"a" * 999)
        eq(until_replayed(other, key, "/recoded").body, b"b" * 999)  # the other worker may find the store later


@test(stores=SERVERS)
def a_store_that_comes_back_in_time_is_waited_for(rig):
    with Rig(CONF, options=FAST, persist=True) as other:
        key, name, under_way = begun(other, "/patient")
        other.server.kill()
        other.backend.go(name)
        until("the backend has answered", lambda: other.backend.requests(key=key)[0].outcome)
        other.turn()  # the gateway now asks the store to store the outcome
        until_tried(other, 1)
        began = time.monotonic()
        until_tried(other, 2)
        check(not under_way.done(), "the answer is held")
        held = time.monotonic() - began
        other.server.start()
        first = status(under_way.get(), 200)
        took = float(other.log(key)["idem_time"])
        check(took > held - 0.05, f"the time is the store's: {took} of {held}")
        replay_of(first, until_replayed(other, key))
        eq(other.backend.effects(key=key), 1)


@test(stores=SERVERS)
def a_store_that_is_slow_is_no_client_that_is(rig):
    """send_timeout concerns the client: it does not run while the response is held for the store. The response fits
    into the sockets' buffers, so that the timeout does not run for the client either."""
    with Rig(guard("/a", "idem replay; send_timeout 100ms;")) as other:
        key, name = fresh(), fresh("hang")
        under_way = other.later("/a", key, do={"hang": name, "size": 30000})
        other.backend.reached(name)
        other.server.pause()
        other.backend.go(name)
        until("the backend has answered", lambda: other.backend.requests(key=key)[0].outcome)
        time.sleep(0.4)  # sleep: longer than send_timeout, which must not show
        check(not under_way.done(), "the answer is held")
        other.server.go_on()
        first = status(under_way.get(), 200)
        check(first.complete, "whole")
        replay_of(first, other.post("/a", key))


@test(stores=SERVERS)
def a_client_that_leaves_while_its_answer_is_stored_finds_it(rig):
    """The outcome is handed over, and no server takes it yet: the claim outlives the request."""
    for how, end in itertools.product(("killed", "paused"), ("close", "reset")):
        with Rig(CONF, persist=True, workers=1) as other:
            key, name, rid = fresh(), fresh("hang"), fresh("rid")
            conn = Conn(other.port).send(other.bytes("/sure", key, do={"hang": name, "size": 10000}, rid=rid))
            other.backend.reached(name)
            comes_back = store_goes(other, how)
            other.backend.go(name)
            until("the backend has answered", lambda: other.backend.requests(key=key)[0].outcome)
            other.turn()  # the gateway now asks the store to store the outcome
            if how == "killed":
                until_tried(other, 1)
            getattr(conn, end)()
            line = other.log(rid)  # the request has ended
            eq((line["status"], line["bytes"], line["idem_verdict"]), ("499", "0", "run"))
            comes_back()
            answer = until_replayed(other, key)
            eq(answer.body, other.backend.requests(key=key)[0].answer)
            eq(other.backend.effects(key=key), 1)


@test(stores=SERVERS)
def a_graceful_exit_waits_for_what_is_not_stored_yet(rig):
    with Rig(CONF, options=FAST, persist=True) as other:
        key, name, under_way = begun(other, "/closed")
        worker = int(other.backend.requests(key=key)[0].h("X-Worker"))
        other.server.kill()
        other.backend.go(name)
        first = status(under_way.get(), 200)
        other.process.send_signal(signal.SIGQUIT)
        until("the worker gets the signal", lambda: "shutting down" in title(worker) or not alive(worker))
        check(alive(worker), "it waits")
        other.server.start()
        other.process.wait(LIMIT)
        with Rig(CONF, store=other.sure, backend=other.backend) as third:
            replay_of(first, third.post("/closed", key))
            eq(other.backend.effects(key=key), 1)


@test(stores=SERVERS)
def parked_duplicates_survive_a_store_that_goes_and_comes(rig):
    with Rig(CONF, options=FAST, persist=True) as other:
        key, name, under_way = begun(other, "/wait")
        parked = [other.later("/wait", key) for _ in range(5)]
        until("they are parked, or refused", lambda: other.figures()["parked"] + sum(p.done() for p in parked) == 5)
        other.server.kill()
        status(other.post("/closed", fresh()), 503, "store-unavailable")
        other.server.start()
        until_200("it is there again", lambda: other.post("/sure", fresh()))
        other.backend.go(name)
        first = status(under_way.get(), 200)
        for later in parked:
            answer = later.get()
            if answer.status == 503:
                eq(answer.type, "store-unavailable")
            else:
                replay_of(first, answer)
        eq(other.backend.effects(key=key), 1)


@test(stores=SERVERS)
def a_run_outlives_a_store_that_is_away_while_it_is_renewed(rig):
    with Rig(WATCH + guard("/hold", "idem replay; idem_lease 300ms; idem_finish_timeout 1h;"), persist=True) as other:
        def renewals():
            return other.figures()["stores"][0]["times"]["finish"]["count"]
        key, name = fresh(), fresh("hang")
        under_way = other.later("/hold", key, do={"hang": name})
        other.backend.reached(name)
        other.server.kill()
        time.sleep(0.4)  # sleep: the lease ends meanwhile, in a store that cannot be reached
        other.server.start()
        before = renewals()
        until("it is renewed again", lambda: renewals() >= before + 2)
        other.backend.go(name)
        first = status(under_way.get(), 200)
        replay_of(first, until_replayed(other, key, "/hold"))
        eq(other.backend.effects(key=key), 1)


# Leases that cannot be renewed.

LEASE = 0.9
AGAIN = "idem_recover rerun; idem_backoff 200ms; idem_finish_timeout 1h;"
RERUN = AGAIN + f"idem_lease {LEASE * 1000:.0f}ms;"
SLOWLY = AGAIN + "idem_lease 4s;"  # renewed soon, and ends late
HELD = f"idem_lease {LEASE * 1000:.0f}ms; idem_finish_timeout 1h;"  # does not end during the test
LEASED = WATCH + "".join((
    guard("/rerun", "idem replay;" + SAME + RERUN),
    guard("/rerun-sure", "idem replay;" + SAME + AGAIN, prefix="rerun:"),
    guard("/rerun-slowly", "idem replay;" + AGAIN),
    guard("/lock", f"idem lock; idem_lease {LEASE * 1000:.0f}ms; idem_finish_timeout 1h;"),
    guard("/lock-sure", "idem lock; idem_finish_timeout 1h;", prefix="lock:"),
    guard("/hold", "idem replay;" + HELD + SAME),
    guard("/hold-sure", "idem replay;" + SAME, prefix="hold:"),
    guard("/hold-slowly", "idem replay; idem_lease 4s; idem_finish_timeout 1h;"),
    guard("/shadow", "idem replay; idem_enforce off;" + RERUN),
    guard("/small", "idem replay; idem_result_max 1k;" + RERUN),
    guard("/nowhere", "idem replay; error_page 504 = @second;" + SLOWLY, to="proxy_pass http://127.0.0.1:@HOLE@;"),
    guard("/nowhere-held", "idem replay; error_page 504 = @second;" + HELD, to="proxy_pass http://127.0.0.1:@HOLE@;"),
    "location @second { proxy_pass http://@BACKEND@; }\n",
    guard("/slowly", "idem replay; error_page 502 = @slowly;" + RERUN, to="proxy_pass http://@REFUSED@;"),
    guard("/slowly-sure", "idem replay; error_page 502 = @slowly;" + AGAIN, to="proxy_pass http://@REFUSED@;"),
    "location @slowly { limit_req zone=slowly burst=5; proxy_pass http://@BACKEND@; }\n",
))


def leased(hole=None):
    """A single worker: when one of its leases has ended, so have those that began earlier."""
    return Rig(LEASED.replace("@HOLE@", str(hole.port if hole else 1)), persist=True, workers=1, http="limit_req_zone $server_name zone=slowly:32k rate=4r/m;")


def store_goes(rig, how):
    """Makes the store fail in one of three ways; returns a function that brings it back."""
    if how == "moved":
        os.rename(rig.folder + "/store", rig.folder + "/moved")
        return lambda: os.rename(rig.folder + "/moved", rig.folder + "/store")
    if how == "paused":
        rig.server.pause()
        return rig.server.go_on
    rig.server.kill()
    return rig.server.start


def each_way(body, hole=None):
    """Calls body(rig, how) with an nginx of its own for each of the ways, all at once."""
    ways = ("killed", "paused") if STORE in SERVERS else ("moved",)

    def one(i):
        with leased(hole) as other:
            body(other, ways[i])
    together(len(ways), one)


def forget_all(rig):
    if STORE == "redis":
        rig.redis.ask("FLUSHALL")
    else:
        rig.server.ask("DELETE FROM idem_record")


def lost_leases(rig):
    """Returns the count from the store's own events."""
    if STORE == "redis":
        return int(rig.redis.ask("HGET", "idem:events", "lease_lost") or 0)
    return int(rig.server.ask("SELECT n FROM idem_event WHERE name = 'lease_lost'") or 0)


def is_cancelled(other, key, under_way, began):
    """While the store is still away."""
    answer = status(under_way.get(), 504)
    took = time.monotonic() - began
    check(LEASE * 0.6 < took, f"after {took:.1f} s")
    check(answer.complete, repr(answer))
    seen, = other.backend.requests(key=key)
    until("the backend's connection is closed", lambda: seen.left is not None)
    eq((other.log(key)["idem_verdict"], other.log(key)["status"]), ("cancelled", "504"))
    check(re.search(r"record [0-9a-f]{64}: its lease is over, and could not be renewed: cancelled", other.said()),
          other.said()[-2000:])
    return answer


class Witness:
    """A run that is cancelled when its lease ends: by then all leases that began earlier have ended."""

    def __init__(self, other):
        self.other = other
        _, self.name, self.under_way = begun(other, "/rerun")

    def is_cancelled(self):
        status(self.under_way.get(), 504)
        self.other.backend.go(self.name)


@test
def a_run_whose_lease_is_over_is_cancelled_under_rerun(rig):
    def body(other, how):
        runs = []
        for path in ("/rerun", "/lock"):
            runs.append((path, time.monotonic(), *begun(other, path)))
        back = store_goes(other, how)
        for _, began, key, _, under_way in runs:
            is_cancelled(other, key, under_way, began)
        back()
        for path, _, key, name, _ in runs:
            again = until_200("it runs again", lambda path=path, key=key: other.post(path + "-sure", key))
            check(not again.replayed, repr(again))
            eq([s.h("Idem-Attempt") for s in other.backend.requests(key=key)], ["1", "2"])
            other.backend.go(name)
    each_way(body)


@test
def a_lease_that_is_over_cancels_in_the_middle_of_an_answer(rig):
    def body(other, how):
        began = time.monotonic()
        key, name, under_way = begun(other, "/rerun", do=lambda name: {"size": 1000, "pause": [500, name]})
        back = store_goes(other, how)
        answer = is_cancelled(other, key, under_way, began)
        eq((answer.type, answer.problem["retryable"]), ("uncertain", True))
        back()
        other.backend.go(name)
    each_way(body)


@test(stores=SERVERS)
def a_cancelled_run_is_counted(rig):
    with leased() as other:
        _, name, under_way = begun(other, "/rerun")
        other.server.kill()
        status(under_way.get(), 504)
        other.server.start()
        lost = other.said().count("its lease is over, and could not be renewed")
        until("each lost lease is counted once", lambda: lost_leases(other) == lost > 0)
        other.backend.go(name)


@test
def what_was_never_sent_is_not_sent_after_its_lease(rig):
    hole = Blackhole()

    def body(other, how):
        def renewals():
            return other.figures()["stores"][0]["times"]["finish"]["count"]
        def renewed():
            """A run that is renewed and retried continues; a run that a slow machine has held up for a whole lease
            does not."""
            key, rid = fresh(), fresh("rid")
            under_way = other.later("/nowhere", key, rid=rid)
            until("it has begun, or is over", lambda: other.figures()["running"] or under_way.done())
            store_goes(other, how)()  # the store comes back at once: the connection is still being made
            before = renewals()
            until("it is renewed, or over", lambda: renewals() >= before + 2 or under_way.done())
            return None if under_way.done() else (key, rid, under_way)
        key, rid, under_way = until("it is renewed, and tried on", renewed)
        back = store_goes(other, how)
        status(under_way.get(), 504)
        eq((other.log(rid)["idem_verdict"], other.backend.requests(key=key)), ("cancelled", []))
        back()
    each_way(body, hole)
    hole.close()


@test
def what_is_delayed_before_a_second_backend_is_not_sent_after_its_lease(rig):
    """Between two backends there is no connection that could be closed."""
    def body(other, how):
        first, key, rid = fresh(), fresh(), fresh("rid")
        status(other.post("/slowly-sure", first), 200)
        eq(len(other.backend.requests(key=first)), 1)
        under_way = other.later("/slowly", key, rid=rid)
        until("it has begun, or is over", lambda: other.figures()["running"] or under_way.done())
        back = store_goes(other, how)
        answer = under_way.get()
        eq((answer.status >= 500, other.backend.requests(key=key)), (True, []))
        eq(other.log(rid)["idem_verdict"], "cancelled")
        back()
    each_way(body)


@test(stores=SERVERS)
def what_was_never_sent_is_not_sent_after_somebody_took_over(rig):
    hole = Blackhole()
    with leased(hole) as other:
        key, rid = fresh(), fresh("rid")
        under_way = other.later("/nowhere-held", key, rid=rid)
        until("it has begun", lambda: other.figures()["running"])
        forget_all(other)
        status(under_way.get(), 504)
        check("another owner has taken over: cancelled" in other.said(), other.said()[-2000:])
        eq(other.backend.requests(key=key), [])
    hole.close()


@test(stores=SERVERS)
def who_was_superseded_while_the_backend_worked_gets_its_answer(rig):
    with leased() as other:
        runs = []
        for path in ("/rerun-slowly", "/hold-slowly"):
            key, name, rid = fresh(), fresh("hang"), fresh("rid")
            runs.append((key, name, rid, other.later(path, key, do={"hang": name}, rid=rid)))
            other.backend.reached(name)
        forget_all(other)
        until("it is noticed", lambda: other.said().count("another owner has taken over") == 2)
        for *_, under_way in runs:
            check(not under_way.done() and "cancelled" not in other.said(), other.said()[-2000:])
        for key, name, rid, under_way in runs:
            other.backend.go(name)
            answer = status(under_way.get(), 200)
            seen, = other.backend.requests(key=key)
            eq((answer.all("Idem-Lost"), answer.body, seen.left), (["true"], seen.answer, None))
            eq(other.log(rid)["idem_verdict"], "lost")


@test
def an_answer_that_flows_is_not_cancelled(rig):
    """done was stored before the first byte went out, so there is no lease that could end."""
    def body(other, how):
        def flows():
            """A run whose lease ends before it is done is cancelled: then another is begun."""
            key, name, rid = fresh(), fresh("hang"), fresh("rid")
            under_way = other.later("/small", key, do={"size": 5000, "pause": [3000, name]}, rid=rid)
            until("it is done, or over", lambda: under_way.done() or "done" in [r["state"] for r in other.records("small:")])
            return None if under_way.done() else (key, name, rid, under_way)
        key, name, rid, under_way = until("it is done, and flows", flows)
        witness = Witness(other)
        back = store_goes(other, how)
        witness.is_cancelled()
        check(not under_way.done(), "it is still under way")
        other.backend.go(name)
        answer = status(under_way.get(), 200)
        seen, = other.backend.requests(key=key)
        check(answer.complete and answer.body == seen.answer and seen.left is None, repr(answer))
        eq(other.log(rid)["idem_verdict"], "run")
        back()
    each_way(body)


@test
def in_the_shadow_and_under_hold_a_run_goes_on_without_its_lease(rig):
    def body(other, how):
        runs = []
        for path in ("/shadow", "/hold"):
            key, name = fresh(), fresh("hang")
            runs.append((path, key, name, other.later(path, key, do={"hang": name})))
            other.backend.reached(name)
        witness = Witness(other)
        back = store_goes(other, how)
        witness.is_cancelled()
        for *_, under_way in runs:
            check(not under_way.done(), "it is still under way")
        back()
        for path, key, name, under_way in runs:
            other.backend.go(name)
            first = status(under_way.get(), 200)
            eq([s.left for s in other.backend.requests(key=key)], [None])
            if path == "/hold":
                replay_of(first, until_replayed(other, key, "/hold-sure"))
    each_way(body)


@test(stores="redis")
def redis_that_loses_its_scripts_is_given_them_again(rig):
    is_up(rig)
    rig.redis.ask("SCRIPT", "FLUSH")
    is_up(rig)


@test(stores="redis")
def redis_that_cuts_all_connections_is_met_again(rig):
    for _ in range(5):
        rig.redis.ask_all([("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"), ("CLIENT", "KILL", "TYPE", "pubsub")])
        key = fresh()
        first = status(rig.post("/sure", key), 200)
        replay_of(first, rig.post("/sure", key))
        eq(rig.backend.effects(key=key), 1)


@test(stores=SERVERS)
def an_end_is_tried_to_be_stored_long_after_its_client_was_answered(rig):
    with Rig(CONF.replace("idem_finish_timeout 1s;", "idem_finish_timeout 100ms;"), options=FAST, persist=True) as other:
        key, name, under_way = begun(other, "/closed")
        other.server.kill()
        other.backend.go(name)
        first = status(under_way.get(), 200)
        until_tried(other, 3)  # each attempt ends with its timeout, which is longer than the client waited
        other.server.start()
        replay_of(first, until_replayed(other, key))
        eq(other.backend.effects(key=key), 1)


@test
def a_store_that_cannot_be_opened_is_told_of_once_and_tried_again(rig):
    """A path that something else occupies; a password that a new worker cannot read."""
    redis = STORE == "redis"
    with Rig(guard("/closed", "idem replay;") + PLAIN, start=False, workers=1,
             **({"options": PATIENT + "&password_file=@TEMP@/secret"} if redis else {"store": "lmdb:@TEMP@/taken/store?sync=off"})) as other:
        obstacle = other.folder + ("/secret" if redis else "/taken")
        with open(obstacle, "wb") as file:
            file.write(b"open-sesame\n")
        if redis:
            other.redis.ask("CONFIG", "SET", "requirepass", "open-sesame")
        other.start()
        if redis:
            os.rename(obstacle, obstacle + "-away")
            first, = other.worker_pids()
            os.kill(first, signal.SIGTERM)
            until("another worker", lambda: set(other.worker_pids()) - {first})
        key = fresh()
        eq(status(other.post("/closed", key), 503, "store-unavailable").all("Retry-After"), ["1"])
        status(other.post("/plain"), 200)
        time.sleep(2.3)  # sleep: the gateway tries again each second, which must not show
        status(other.post("/closed", key), 503, "store-unavailable")
        eq(other.said().count("the store cannot be opened"), 1, "log lines")
        eq(other.backend.requests(key=key), [])
        if redis:
            os.rename(obstacle + "-away", obstacle)
        else:
            os.unlink(obstacle)
            os.mkdir(obstacle)
        first = until_200("it is opened", lambda: other.post("/closed", key))
        replay_of(first, other.post("/closed", key))
        eq(other.backend.effects(key=key), 1)
        check(other.quit(), "it goes")


@test(stores="lmdb", expects=[r"\[emerg\]", r"\[crit\]", r"\[alert\].*exited with"])
def a_folder_that_cannot_be_made_is_refused_or_503(rig):
    try:
        other = Rig(CONF, store="lmdb:/proc/no/such/folder?sync=off")
    except AssertionError as error:
        check("/proc/no/such/folder" in str(error), f"the reason is shown: {error}")
        return
    with other:
        is_down(other)


@test(stores="lmdb")
def what_runs_unguarded_without_a_store_is_told_apart_downstream(rig):
    rules = "idem replay; idem_on_store_error open;"
    with Rig(guard("/open", rules) + guard("/param", rules + "idem_key param=k;"),
             store="lmdb:/proc/no/such/folder?sync=off") as other:
        for path, key in (("/open", "one"), ("/open", "two"), ("/open", "one"), ("/param?k=%20", None),
                          ("/param?k=%21", None)):
            eq(status(other.post(path, key), 200).all("Idem-Guard"), ["open"])
        seen = other.backend.requests()
        names = [s.h("Idem-Downstream-Key") for s in seen]
        check(names[0] == names[2] and len(set(names)) == 4, f"one for each key: {names}")
        check(re.fullmatch("[0-9a-f]{64}", seen[3].key) and seen[4].key == "!", repr(seen))


@test
def what_runs_unguarded_is_bounded_too(rig):
    rules = "idem replay; idem_on_store_error open; idem_run_max {};"
    with Rig(guard("/open", rules.format("500ms") + "error_page 504 = @second;") + guard("/flows", rules.format("2s"))
             + guard("/behind", rules.format("2s"))
             + "location @second { proxy_pass http://@BACKEND@; }\n",
             store="redis:/nowhere/redis.sock" if STORE == "redis" else "lmdb:/proc/nowhere/store", workers=1) as other:
        key, name, under_way = begun(other, "/open")
        answer = status(under_way.get(), 504)
        eq((answer.all("Idem-Guard"), other.log(key)["idem_verdict"]), (["open"], "cancelled"))
        check(answer.complete, repr(answer))  # the backend still hangs
        seen, = other.backend.requests(key=key)
        until("the backend's connection is closed", lambda: seen.left is not None)
        check("idem_run_max, unguarded: cancelled" in other.said(), other.said()[-2000:])
        other.backend.go(name)
        def flows():
            """A response that does not begin in time is cut off: then another request is begun."""
            key, name, under_way = begun(other, "/flows", do=lambda name: {"size": 5000, "pause": [3000, name]})
            until("nginx has read what there is, or it is over",
                  lambda: under_way.done() or unread(other.backend.requests(key=key)[0].sock) == 0)
            return None if under_way.done() else (key, name, under_way)
        key, name, under_way = until("it flows", flows)  # a response that has begun is not cut off
        status(other.post("/behind", fresh(), do={"hang": name}), 504)  # it began later, and its timeout ends
        check(not under_way.done(), "it is still under way")
        other.backend.go(name)
        answer = status(under_way.get(), 200)
        seen, = other.backend.requests(key=key)
        eq((answer.complete, answer.body), (True, seen.answer))


def until_gone(rig):
    """Each worker checks the files by itself, every few milliseconds."""
    rig.until_each("all workers know", "/closed", lambda answer: answer.status == 503)


@test(stores="lmdb")
def a_folder_that_is_deleted_while_it_is_used_never_runs(rig):
    with Rig(CONF) as other:
        is_up(other)
        shutil.rmtree(other.folder + "/store")
        until_gone(other)
        is_down(other)


@test(stores="lmdb")
def an_answer_whose_store_has_gone_is_held_at_most_finish_timeout(rig):
    with Rig(CONF) as other:
        key, name = fresh(), fresh("hang")
        under_way = other.later("/closed", key, do={"hang": name})
        patient = other.later("/patient", fresh(), do={"hang": name})
        other.backend.reached(name, 2)
        os.rename(other.folder + "/store", other.folder + "/moved")
        until_gone(other)
        other.backend.go(name)
        status(under_way.get(), 200)
        check(not patient.done(), "where that is an hour, it is held on")
        answer = other.post("/closed", key)
        check(answer.status in (409, 503), repr(answer))
        eq(other.backend.effects(key=key), 1)


@test(stores="lmdb")
def a_store_that_is_full_refuses_new_keys_and_replays_old_ones(rig):
    with Rig(CONF, options="size=2M") as other:
        first_key = fresh()
        first = status(other.post("/patient", first_key, do={"size": 1000}), 200)
        for _ in range(200):
            key = fresh()
            answer = other.post("/closed", key, do={"size": 100000})
            if answer.status == 503:
                eq(answer.type, "store-unavailable")
                eq(other.backend.requests(key=key), [])
                break
            status(answer, 200)
            eq(len(answer.body), 100000)
        else:
            raise AssertionError("it never was full")
        replay_of(first, other.post("/closed", first_key))


@test(stores="lmdb")
def a_result_that_finds_no_room_is_left_out_and_its_first_response_says_so(rig):
    """The request is done, and never runs again; but a retry gets only that verdict, not the result, so the first
    response announces that."""
    with Rig(guard("/big", "idem replay; idem_result_max 16M;") + guard("/kept", "idem_preset payment; idem_result_max 16M;")
             + WATCH, options="size=2M", workers=1) as other:
        small = fresh()
        first = status(other.post("/big", small), 200)
        eq(first.all("Idem-Kept"), [])
        replay_of(first, other.post("/big", small))
        for path, code, kind in (("/big", 201, "duplicate"), ("/kept", 500, "failed")):
            key = fresh()
            answer = status(other.post(path, key, do={"size": 3 << 20, "status": code}), code)
            eq((answer.all("Idem-Kept"), len(answer.body), answer.complete), (["no"], 3 << 20, True))
            again = status(other.post(path, key), 409, kind)
            eq((again.problem["first_status" if kind == "duplicate" else "last_status"], again.all("Idem-Kept")), (code, []))
            eq(other.backend.effects(key=key), 1)
        check("no room for the result" in other.said(), other.said()[-600:])
        until("it is counted", lambda: other.figures()["stores"][0]["events"]["result_dropped"] == 2)
        eq([row["counts"]["results_not_kept"] for row in other.figures()["rows"]], [1, 1])
        check(b"idem_results_dropped_total" in other.post("/rig-status?format=prometheus", method="GET", body=b"").body, "for alerts")
        until("idem stats has it", lambda: json.loads(other.idem("stats", "--json"))["events"]["result_dropped"] == 2)


@test(stores="lmdb")
def what_was_stored_survives_a_restart(rig):
    with Rig(CONF) as other:
        key, gone = fresh(), fresh()
        first = status(other.post("/closed", key), 200)
        status(other.post("/closed", gone, do={"fault": "close"}), 502)
        check(other.quit(), "it goes")
        other.start()
        replay_of(first, other.post("/closed", key))
        status(other.post("/closed", gone), 409, "uncertain")
        eq(other.backend.effects(), 2)


@test
def two_stores_in_one_nginx_do_not_meet(rig):
    with Rig(guard("/a", "idem replay; idem_fingerprint none;", prefix="p:")
             + guard("/b", "idem replay; idem_fingerprint none; idem_store lmdb:@TEMP@/second?sync=off;",
                     prefix="p:")) as other:
        key = fresh()
        one, two = status(other.post("/a", key), 200), status(other.post("/b", key), 200)
        check(not two.replayed, "another store")
        replay_of(one, other.post("/a", key))
        replay_of(two, other.post("/b", key))
        check(other.quit(), "it goes")


if __name__ == "__main__":
    main(CONF)
