#!/usr/bin/env python3
"""A store that fails: before the claim, after the answer, and when it comes back."""
import os
import re
import shutil
import sys
import time

sys.dont_write_bytecode = True

from rig import *
from tap import *

PLAIN = "location /plain { proxy_pass http://@BACKEND@; }\n"
CONF = PLAIN + "".join((
    guard("/closed", "idem replay; idem_finish_timeout 1s;"),
    guard("/open", "idem replay; idem_on_store_error open; idem_finish_timeout 1s;"),
    guard("/wait", "idem replay; idem_wait 20s; idem_finish_timeout 1s;"),
    guard("/patient", "idem replay; idem_finish_timeout 20s;"),
))
FAST = "timeout=700ms&connect_timeout=700ms"
SERVERS = ("redis", "postgres", "mysql")


def is_down(rig, seconds=4):
    """Requests are refused, or let through where the policy says so; the rest of nginx is as ever."""
    key = fresh()
    answer, line = rig.logged("/closed", key)
    status(answer, 503, "store-unavailable")
    check(answer.seconds < seconds, f"after {answer.seconds:.1f} s")
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
    for path in ("/closed", "/open"):
        key = fresh()
        first = status(rig.post(path, key), 200)
        eq(first.all("Idem-Guard"), [])
        replay_of(first, rig.post(path, key))
        eq(rig.backend.effects(key=key), 1)


def comes_up(rig, seconds=15):
    # Each worker has a connection of its own.
    until("the store is used again", lambda: all(rig.post("/closed", fresh()).status == 200 for _ in range(20)),
          seconds, 0.1)
    is_up(rig)


@test
def a_store_that_works_is_told_of_nowhere(rig):
    is_up(rig)


@test(seconds=60, stores=SERVERS)
def a_server_is_killed_and_comes_back(rig):
    with Rig(CONF, options=FAST, persist=True) as other:
        key = fresh()
        first = status(other.post("/closed", key), 200)
        other.server.kill()
        is_down(other)
        status(other.post("/closed", key), 503, "store-unavailable")
        other.server.start()
        comes_up(other)
        replay_of(first, other.post("/closed", key))
        check(other.quit(), "it goes")


@test(seconds=60, stores=SERVERS)
def a_server_is_not_there_when_nginx_starts(rig):
    with Rig(CONF, options=FAST, start=False) as other:
        other.server.kill()
        other.start()
        is_down(other)
        other.server.start()
        comes_up(other)


@test(seconds=60, stores=SERVERS)
def a_server_that_says_nothing_is_given_up_in_time(rig):
    with Rig(CONF, options=FAST) as other:
        is_up(other)
        other.server.pause()
        try:
            is_down(other)
        finally:
            other.server.go_on()
        comes_up(other)


@test(seconds=60, stores=SERVERS)
def a_claim_that_was_given_up_does_not_block_the_key(rig):
    with Rig(CONF, options=FAST) as other:
        is_up(other)
        key = fresh()
        other.server.pause()
        status(other.post("/closed", key), 503, "store-unavailable")
        other.server.go_on()
        answer = until("the key is free", lambda: (lambda a: a if a.status == 200 else None)(
            other.post("/closed", key)), 10, 0.1)
        check(not answer.replayed, "it had not run")
        eq(other.backend.effects(key=key), 1)


@test(seconds=60, stores=SERVERS)
def an_answer_is_held_at_most_finish_timeout(rig):
    with Rig(CONF, options=FAST, persist=True) as other:
        key, name = fresh(), fresh("hang")
        under_way = other.later("/closed", key, do={"hang": name})
        other.backend.reached(name)
        other.server.kill()
        began = time.monotonic()
        other.backend.go(name)
        answer = status(under_way.get(), 200)
        took = time.monotonic() - began
        check(took < 3, f"held for {took:.1f} s")
        eq(answer.body, other.backend.requests(key=key)[0].answer)
        other.server.start()
        end = time.monotonic() + 15
        while time.monotonic() < end:
            again = other.post("/closed", key)
            if again.replayed:
                break
            check(again.status in (409, 503), f"the claim is not released: {again!r}")
            time.sleep(0.2)
        replay_of(answer, again)
        eq(other.backend.effects(key=key), 1)


@test(seconds=60, stores=SERVERS)
def a_store_that_comes_back_in_time_is_waited_for(rig):
    with Rig(CONF, options=FAST, persist=True) as other:
        key, name, rid = fresh(), fresh("hang"), fresh("rid")
        under_way = other.later("/patient", key, do={"hang": name}, rid=rid)
        other.backend.reached(name)
        other.server.kill()
        other.backend.go(name)
        time.sleep(1.5)
        check(not under_way.done(), "the answer is held")
        other.server.start()
        first = status(under_way.get(), 200)
        check(float(other.log(rid)["idem_time"]) > 1, "the time is the store's")
        until("stored", lambda: other.post("/patient", key).status != 503, 10, 0.1)
        replay_of(first, other.post("/patient", key))
        eq(other.backend.effects(key=key), 1)


@test(seconds=60, stores=SERVERS)
def a_store_that_is_slow_is_no_client_that_is(rig):
    """send_timeout is the client's: it does not run while the answer is held for the store."""
    with Rig(guard("/a", "idem replay; send_timeout 300ms;"), options="timeout=10s") as other:
        key, name = fresh(), fresh("hang")
        under_way = other.later("/a", key, do={"hang": name, "size": 100000})
        other.backend.reached(name)
        other.server.pause()
        other.backend.go(name)
        time.sleep(1.2)
        check(not under_way.done(), "the answer is held")
        other.server.go_on()
        first = status(under_way.get(), 200)
        check(first.complete, "whole")
        replay_of(first, other.post("/a", key))


@test(seconds=60, stores=SERVERS)
def a_graceful_exit_waits_for_what_is_not_stored_yet(rig):
    with Rig(CONF, options=FAST, persist=True) as other:
        key, name = fresh(), fresh("hang")
        under_way = other.later("/closed", key, do={"hang": name})
        other.backend.reached(name)
        other.server.kill()
        other.backend.go(name)
        first = status(under_way.get(), 200)
        other.process.send_signal(signal.SIGQUIT)
        time.sleep(0.7)
        other.server.start()
        other.process.wait(20)
        with Rig(CONF, store=other.url, backend=other.backend) as third:
            replay_of(first, third.post("/closed", key))
            eq(other.backend.effects(key=key), 1)


@test(seconds=60, stores=SERVERS)
def parked_duplicates_survive_a_store_that_goes_and_comes(rig):
    with Rig(CONF, options=FAST, persist=True) as other:
        key, name = fresh(), fresh("hang")
        under_way = other.later("/wait", key, do={"hang": name})
        other.backend.reached(name)
        parked = [other.later("/wait", key) for _ in range(5)]
        time.sleep(0.4)
        other.server.kill()
        time.sleep(0.3)
        other.server.start()
        time.sleep(0.3)
        other.backend.go(name)
        first = status(under_way.get(), 200)
        for later in parked:
            answer = later.get()
            if answer.status == 503:
                eq(answer.type, "store-unavailable")
            else:
                replay_of(first, answer)
        eq(other.backend.effects(key=key), 1)


@test(seconds=60, stores=SERVERS)
def a_run_outlives_a_store_that_is_away_while_it_is_renewed(rig):
    with Rig(guard("/hold", "idem replay; idem_lease 600ms; idem_finish_timeout 5s;"), options=FAST,
             persist=True) as other:
        key, name = fresh(), fresh("hang")
        under_way = other.later("/hold", key, do={"hang": name})
        other.backend.reached(name)
        other.server.kill()
        time.sleep(1.5)
        other.server.start()
        time.sleep(0.5)
        other.backend.go(name)
        first = status(under_way.get(), 200)
        answer = other.post("/hold", key)
        replay_of(first, answer)
        eq(other.backend.effects(key=key), 1)


# Leases that cannot be renewed.

LEASE = 0.9
RERUN = f"idem_recover rerun; idem_lease {LEASE * 1000:.0f}ms; idem_backoff 200ms; idem_finish_timeout 20s;"
LEASED = "".join((
    guard("/rerun", "idem replay;" + RERUN),
    guard("/lock", f"idem lock; idem_lease {LEASE * 1000:.0f}ms; idem_finish_timeout 20s;"),
    guard("/hold", f"idem replay; idem_lease {LEASE * 1000:.0f}ms; idem_finish_timeout 5s;"),
    guard("/shadow", "idem replay; idem_enforce off;" + RERUN),
    guard("/small", "idem replay; idem_result_max 1k;" + RERUN),
    guard("/nowhere", "idem replay; error_page 504 = @second;" + RERUN, to="proxy_pass http://127.0.0.1:@HOLE@;"),
    "location @second { proxy_pass http://@BACKEND@; }\n",
    guard("/slowly", "idem replay; error_page 502 = @slowly;" + RERUN, to="proxy_pass http://@REFUSED@;"),
    "location @slowly { limit_req zone=slowly burst=5; proxy_pass http://@BACKEND@; }\n",
))


def leased(hole=None):
    return Rig(LEASED.replace("@HOLE@", str(hole.port if hole else 1)), persist=True,
               options=FAST if STORE in SERVERS else "", http="limit_req_zone $server_name zone=slowly:32k rate=20r/m;")


def store_goes(rig, how):
    """By the three ways there are; what brings it back is returned."""
    if how == "moved":
        os.rename(rig.folder + "/store", rig.folder + "/moved")
        return lambda: os.rename(rig.folder + "/moved", rig.folder + "/store")
    if how == "paused":
        rig.server.pause()
        return rig.server.go_on
    rig.server.kill()
    return rig.server.start


def ways():
    return ("killed", "paused") if STORE in SERVERS else ("moved",)


def redis_says(rig, command):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(rig.redis.socket)
        sock.sendall(command.encode() + b"\r\n")
        return sock.recv(10000).decode()


def forget_all(rig):
    if STORE == "redis":
        redis_says(rig, "FLUSHALL")
    else:
        rig.server.ask("DELETE FROM idem_record")


def lost_leases(rig):
    """As the store counts them."""
    if STORE == "redis":
        return redis_says(rig, "HGET idem:events lease_lost") == "$1\r\n1\r\n"
    return rig.server.ask("SELECT n FROM idem_event WHERE name = 'lease_lost'") == "1"


def is_cancelled(other, path, key, under_way, rid, began):
    answer = status(under_way.get(), 504)
    took = time.monotonic() - began
    check(LEASE * 0.6 < took < LEASE + 1.2, f"after {took:.1f} s")
    check(answer.complete, repr(answer))
    seen, = other.backend.requests(key=key)
    until("the backend's connection is closed", lambda: seen.left is not None, 2)
    eq((other.log(rid)["idem_verdict"], other.log(rid)["status"]), ("cancelled", "504"))
    check(re.search(r"record [0-9a-f]{64}: its lease is over, and could not be renewed: cancelled", other.said()),
          other.said()[-2000:])
    return answer


@test(seconds=60)
def a_run_whose_lease_is_over_is_cancelled_under_rerun(rig):
    for how in ways():
        for path in ("/rerun", "/lock"):
            with leased() as other:
                key, name, rid = fresh(), fresh("hang"), fresh("rid")
                began = time.monotonic()
                under_way = other.later(path, key, do={"hang": name}, rid=rid)
                other.backend.reached(name)
                back = store_goes(other, how)
                is_cancelled(other, path, key, under_way, rid, began)
                back()
                again = until("it runs again", lambda: (lambda a: a if a.status == 200 else None)(
                    other.post(path, key)), 15, 0.2)
                check(not again.replayed, repr(again))
                eq([s.h("Idem-Attempt") for s in other.backend.requests(key=key)], ["1", "2"])
                other.backend.go(name)


@test(seconds=60)
def a_lease_that_is_over_cancels_in_the_middle_of_an_answer(rig):
    for how in ways():
        with leased() as other:
            key, name, rid = fresh(), fresh("hang"), fresh("rid")
            began = time.monotonic()
            under_way = other.later("/rerun", key, do={"size": 1000, "pause": [500, name]}, rid=rid)
            other.backend.reached(name)
            back = store_goes(other, how)
            answer = is_cancelled(other, "/rerun", key, under_way, rid, began)
            eq((answer.type, answer.problem["retryable"]), ("uncertain", True))
            back()
            other.backend.go(name)


@test(seconds=60, stores=SERVERS)
def a_cancelled_run_is_counted(rig):
    with leased() as other:
        key, name = fresh(), fresh("hang")
        under_way = other.later("/rerun", key, do={"hang": name})
        other.backend.reached(name)
        other.server.kill()
        status(under_way.get(), 504)
        other.server.start()
        until("a lost lease among the counts", lambda: lost_leases(other), 10, 0.1)
        other.backend.go(name)


@test(seconds=60)
def what_was_never_sent_is_not_sent_after_its_lease(rig):
    hole = Blackhole()
    for how in ways():
        with leased(hole) as other:
            key, rid = fresh(), fresh("rid")
            under_way = other.later("/nowhere", key, rid=rid)
            time.sleep(0.3)
            store_goes(other, how)()  # and comes back at once: the connection is still being made
            time.sleep(2 * LEASE)
            check(not under_way.done(), "renewed, and tried on")
            back = store_goes(other, how)
            status(under_way.get(), 504)
            eq((other.log(rid)["idem_verdict"], other.backend.requests(key=key)), ("cancelled", []))
            back()
    hole.close()


@test(seconds=60)
def what_is_delayed_before_a_second_backend_is_not_sent_after_its_lease(rig):
    """Between two backends there is no connection that could be closed."""
    for how in ways():
        with leased() as other:
            first, key, rid = fresh(), fresh(), fresh("rid")
            status(other.post("/slowly", first), 200)
            eq(len(other.backend.requests(key=first)), 1)
            under_way = other.later("/slowly", key, rid=rid)
            time.sleep(0.2)
            back = store_goes(other, how)
            answer = until("an answer", lambda: under_way.done() and under_way.get(), 10)
            eq((answer.status >= 500, other.backend.requests(key=key)), (True, []))
            eq(other.log(rid)["idem_verdict"], "cancelled")
            back()


@test(seconds=60, stores=SERVERS)
def what_was_never_sent_is_not_sent_after_somebody_took_over(rig):
    hole = Blackhole()
    with leased(hole) as other:
        key, rid = fresh(), fresh("rid")
        under_way = other.later("/nowhere", key, rid=rid)
        time.sleep(0.2)
        forget_all(other)
        answer = status(under_way.get(), 504)
        check(answer.seconds < 2 and "somebody has taken over: cancelled" in other.said(), other.said()[-2000:])
        eq(other.backend.requests(key=key), [])
    hole.close()


@test(seconds=60, stores=SERVERS)
def who_was_superseded_while_the_backend_worked_gets_its_answer(rig):
    for path in ("/rerun", "/hold"):
        with leased() as other:
            key, name, rid = fresh(), fresh("hang"), fresh("rid")
            under_way = other.later(path, key, do={"hang": name}, rid=rid)
            other.backend.reached(name)
            forget_all(other)
            until("it is noticed", lambda: "somebody has taken over" in other.said(), 5)
            time.sleep(0.2)
            check(not under_way.done() and "cancelled" not in other.said(), other.said()[-2000:])
            other.backend.go(name)
            answer = status(under_way.get(), 200)
            seen, = other.backend.requests(key=key)
            eq((answer.all("Idem-Lost"), answer.body, seen.left), (["true"], seen.answer, None))
            eq(other.log(rid)["idem_verdict"], "lost")


@test(seconds=60)
def an_answer_that_flows_is_not_cancelled(rig):
    """Done was stored before its first byte went out: there is no lease to be over."""
    for how in ways():
        with leased() as other:
            key, name, rid = fresh(), fresh("hang"), fresh("rid")
            under_way = other.later("/small", key, do={"size": 5000, "pause": [3000, name]}, rid=rid)
            other.backend.reached(name)
            time.sleep(0.3)
            back = store_goes(other, how)
            time.sleep(2 * LEASE)
            check(not under_way.done(), "it is still under way")
            other.backend.go(name)
            answer = status(under_way.get(), 200)
            seen, = other.backend.requests(key=key)
            check(answer.complete and answer.body == seen.answer and seen.left is None, repr(answer))
            eq(other.log(rid)["idem_verdict"], "run")
            back()


@test(seconds=60)
def in_the_shadow_and_under_hold_a_run_goes_on_without_its_lease(rig):
    for how in ways():
        for path in ("/shadow", "/hold"):
            with leased() as other:
                key, name = fresh(), fresh("hang")
                under_way = other.later(path, key, do={"hang": name})
                other.backend.reached(name)
                back = store_goes(other, how)
                time.sleep(2 * LEASE)
                check(not under_way.done(), "it is still under way")
                back()
                other.backend.go(name)
                first = status(under_way.get(), 200)
                eq([s.left for s in other.backend.requests(key=key)], [None])
                if path == "/hold":
                    replay_of(first, until("the store answers", lambda: (lambda a: a if a.status == 200 else None)(
                        other.post(path, key)), 15, 0.2))


@test(seconds=60, stores="redis")
def redis_that_loses_its_scripts_is_given_them_again(rig):
    is_up(rig)
    rig.redis.ask(b"SCRIPT FLUSH\r\n")
    is_up(rig)


@test(seconds=60, stores="redis")
def redis_that_cuts_all_connections_is_met_again(rig):
    for _ in range(5):
        rig.redis.ask(b"CLIENT KILL TYPE normal SKIPME yes\r\nCLIENT KILL TYPE pubsub\r\n")
        key = fresh()
        first = status(rig.post("/closed", key), 200)
        replay_of(first, rig.post("/closed", key))
        eq(rig.backend.effects(key=key), 1)


@test(seconds=60, stores=SERVERS)
def an_end_is_tried_to_be_stored_long_after_its_client_was_answered(rig):
    with Rig(guard("/a", "idem replay; idem_finish_timeout 100ms;"), options="timeout=200ms&connect_timeout=200ms",
             persist=True) as other:
        key, name = fresh(), fresh("hang")
        under_way = other.later("/a", key, do={"hang": name})
        other.backend.reached(name)
        other.server.kill()
        other.backend.go(name)
        first = status(under_way.get(), 200)
        time.sleep(1.5)  # many times what the client waited, and what the store is given for one answer
        other.server.start()
        again = until("it is stored", lambda: (lambda a: a if a.replayed else None)(other.post("/a", key)), 5, 0.05)
        replay_of(first, again)
        eq(other.backend.effects(key=key), 1)


@test(seconds=60)
def a_store_that_cannot_be_opened_is_told_of_once_and_tried_again(rig):
    """A folder where something else stands; a password that a new worker cannot read."""
    redis = STORE == "redis"
    with Rig(guard("/closed", "idem replay;") + PLAIN, start=False, workers=1,
             **({"options": "password_file=@TEMP@/secret"} if redis else {"store": "lmdb:@TEMP@/taken/store?sync=off"})) as other:
        obstacle = other.folder + ("/secret" if redis else "/taken")
        with open(obstacle, "wb") as file:
            file.write(b"open-sesame\n")
        if redis:
            other.redis.ask(b"CONFIG SET requirepass open-sesame\r\n")
        other.start()
        if redis:
            os.rename(obstacle, obstacle + "-away")
            first, = other.worker_pids()
            os.kill(first, signal.SIGTERM)
            until("another worker", lambda: set(other.worker_pids()) - {first})
        key = fresh()
        eq(status(other.post("/closed", key), 503, "store-unavailable").all("Retry-After"), ["1"])
        status(other.post("/plain"), 200)
        time.sleep(2.3)  # it was tried twice more
        status(other.post("/closed", key), 503, "store-unavailable")
        eq(other.said().count("the store cannot be opened"), 1, "lines that tell it")
        eq(other.backend.requests(key=key), [])
        if redis:
            os.rename(obstacle + "-away", obstacle)
        else:
            os.unlink(obstacle)
            os.mkdir(obstacle)
        first = until("it is opened", lambda: (lambda a: a if a.status == 200 else None)(other.post("/closed", key)), 4)
        replay_of(first, other.post("/closed", key))
        eq(other.backend.effects(key=key), 1)
        check(other.quit(), "it goes")


@test(seconds=40, stores="lmdb", expects=[r"\[emerg\]", r"\[crit\]", r"\[alert\].*exited with"])
def a_folder_that_cannot_be_made_is_refused_or_503(rig):
    try:
        other = Rig(CONF, store="lmdb:/proc/no/such/folder?sync=off")
    except AssertionError as error:
        check("/proc/no/such/folder" in str(error), f"the reason is told: {error}")
        return
    with other:
        is_down(other)


@test(seconds=40, stores="lmdb")
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


@test(seconds=60)
def what_runs_unguarded_is_bounded_too(rig):
    rules = "idem replay; idem_on_store_error open; idem_run_max 500ms;"
    with Rig(guard("/open", rules + "error_page 504 = @second;") + guard("/flows", rules)
             + "location @second { proxy_pass http://@BACKEND@; }\n",
             store="redis:/nowhere/redis.sock" if STORE == "redis" else "lmdb:/proc/nowhere/store") as other:
        key, name, rid = fresh(), fresh("hang"), fresh("rid")
        answer = status(other.post("/open", key, do={"hang": name}, rid=rid), 504)
        eq((answer.all("Idem-Guard"), other.log(rid)["idem_verdict"]), (["open"], "cancelled"))
        check(answer.complete and answer.seconds < 5, repr(answer))
        seen, = other.backend.requests(key=key)
        until("the backend's connection is closed", lambda: seen.left is not None, 2)
        check("idem_run_max, unguarded: cancelled" in other.said(), other.said()[-2000:])
        other.backend.go(name)
        key, name = fresh(), fresh("hang")  # what flows is not cut off
        under_way = other.later("/flows", key, do={"size": 5000, "pause": [3000, name]})
        other.backend.reached(name)
        time.sleep(1)
        other.backend.go(name)
        answer = status(under_way.get(), 200)
        seen, = other.backend.requests(key=key)
        eq((answer.complete, answer.body), (True, seen.answer))


@test(seconds=40, stores="lmdb")
def a_folder_that_is_deleted_while_it_is_used_never_runs(rig):
    with Rig(CONF) as other:
        is_up(other)
        shutil.rmtree(other.folder + "/store")
        time.sleep(0.2)
        is_down(other)


@test(seconds=40, stores="lmdb")
def an_answer_whose_store_has_gone_is_held_at_most_finish_timeout(rig):
    with Rig(CONF) as other:
        key, name = fresh(), fresh("hang")
        under_way = other.later("/closed", key, do={"hang": name})
        other.backend.reached(name)
        os.rename(other.folder + "/store", other.folder + "/moved")
        time.sleep(0.2)
        began = time.monotonic()
        other.backend.go(name)
        status(under_way.get(), 200)
        took = time.monotonic() - began
        check(took < 3, f"held for {took:.1f} s")
        answer = other.post("/closed", key)
        check(answer.status in (409, 503), repr(answer))
        eq(other.backend.effects(key=key), 1)


@test(seconds=60, stores="lmdb")
def a_store_that_is_full_refuses_new_keys_and_replays_old_ones(rig):
    with Rig(CONF, options="size=2M") as other:
        first_key = fresh()
        first = status(other.post("/closed", first_key, do={"size": 1000}), 200)
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


@test(seconds=60, stores="lmdb")
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


@test(seconds=60)
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
