#!/usr/bin/env python3
"""Clients that disconnect: they will retry, so the gateway still stores the response."""
import os
import random
import sys
import time

sys.dont_write_bytecode = True

from rig import *
from tap import *

CONF = WATCH + "".join((
    guard("/replay", "idem replay;"),
    guard("/wait", "idem replay; idem_wait 1h;"),
    guard("/small", "idem replay; idem_result_max 1k; proxy_http_version 1.1;"),
    guard("/unbuffered", "idem replay; proxy_buffering off; proxy_http_version 1.1;"),
    guard("/abort-on", "idem replay; proxy_ignore_client_abort off;"),
    guard("/unreached", "idem replay; error_page 502 = @other;", to="proxy_pass http://@REFUSED@;"),
    "location @other { proxy_pass http://@BACKEND@; }\n",
))


def settles(rig, path, key, **options):
    """Repeats the request until the key is no longer busy."""
    return until_answer("the key is free", lambda: rig.post(path, key, **options), lambda a: a.type != "in-progress")


def captured(rig, path, key, **options):
    answer = status(settles(rig, path, key, **options), 200)
    check(answer.replayed, f"captured: {answer!r}")
    eq(rig.backend.effects(key=key), 1, "effects")
    eq(answer.body, rig.backend.requests(key=key)[0].answer)
    return answer


@test
def a_client_that_leaves_while_the_upstream_works_finds_its_answer(rig):
    for path in ("/replay", "/abort-on", "/unbuffered", "/unreached"):
        for end in ("close", "reset"):
            key, name = fresh(), fresh("hang")
            conn = Conn(rig.port).send(rig.bytes(path, key, do={"hang": name, "size": 10000}))
            rig.backend.reached(name)
            getattr(conn, end)()
            rig.turn()
            status(rig.post(path, key), 409, "in-progress")
            rig.backend.go(name)
            captured(rig, path, key)


@test
def a_client_of_tls_that_leaves_finds_its_answer(rig):
    key, name = fresh(), fresh("hang")
    conn = Conn(rig.tlsport, tls=True).send(rig.bytes("/replay", key, do={"hang": name}))
    rig.backend.reached(name)
    conn.close()
    rig.turn()
    rig.backend.go(name)
    captured(rig, "/replay", key)


@test
def a_stream_that_is_reset_finds_its_answer(rig):
    for whole in (False, True):
        key, name = fresh(), fresh("hang")
        headers = [("idempotency-key", key), ("x-do", json.dumps({"hang": name})),
                   ("content-type", "application/json")]
        with H2(rig.h2port) as h2:
            stream = h2.post("/replay", headers, b'{"a":1}')
            rig.backend.reached(name)
            if whole:
                h2.sock.close()
            else:
                h2.reset(stream)
                other = h2.post("/replay", [("idempotency-key", fresh())], b"x")
                check(b"serial" in h2.until_end(other), "the connection lives on")
            rig.turn()
            rig.backend.go(name)
            captured(rig, "/replay", key)


@test
def an_answer_that_was_not_read_is_captured_whole(rig):
    for size in (200000, 900000):
        key = fresh()
        conn = Conn(rig.port).send(rig.bytes("/replay", key, do={"size": size}))
        while len(conn.buffer) < 1000 and conn.more():
            pass
        conn.reset()
        eq(len(captured(rig, "/replay", key).body), size)


@test
def who_leaves_in_mid_body_of_the_upstream_finds_all_of_it(rig):
    key, name = fresh(), fresh("hang")
    conn = Conn(rig.port).send(rig.bytes("/replay", key, do={"size": 100000, "pause": [50000, name]}))
    rig.backend.reached(name)
    conn.reset()
    rig.turn()
    rig.backend.go(name)
    eq(len(captured(rig, "/replay", key).body), 100000)


@test
def who_leaves_a_stream_leaves_it_done(rig):
    key, name = fresh(), fresh("hang")
    conn = Conn(rig.port).send(rig.bytes("/small", key, do={"size": 100000, "pause": [50000, name]}))
    rig.backend.reached(name)
    conn.reset()
    rig.backend.go(name)
    status(settles(rig, "/small", key), 409, "duplicate")
    eq(rig.backend.effects(key=key), 1)


@test
def who_leaves_a_failing_run_leaves_it_released(rig):
    key, name = fresh(), fresh("hang")
    conn = Conn(rig.port).send(rig.bytes("/replay", key, do={"hang": name, "status": 500}))
    rig.backend.reached(name)
    conn.close()
    rig.backend.go(name)
    answer = status(settles(rig, "/replay", key), 200)
    check(not answer.replayed, "it runs again")
    eq(rig.backend.effects(key=key), 2)


@test
def who_leaves_a_broken_run_leaves_it_uncertain(rig):
    key, name = fresh(), fresh("hang")
    conn = Conn(rig.port).send(rig.bytes("/replay", key, do={"hang": name, "fault": "close"}))
    rig.backend.reached(name)
    conn.close()
    rig.backend.go(name)
    status(settles(rig, "/replay", key), 409, "uncertain")
    eq(rig.backend.effects(key=key), 1)


@test
def a_parked_duplicate_may_leave(rig):
    key, name = fresh(), fresh("hang")
    under_way = rig.later("/wait", key, do={"hang": name})
    rig.backend.reached(name)
    parked = [Conn(rig.port).send(rig.bytes("/wait", key)) for _ in range(20)]
    rig.until_parked(20)
    for i, conn in enumerate(parked):
        if i % 4 == 0:
            conn.close()
        elif i % 4 == 1:
            conn.reset()
    rig.turn()
    rig.backend.go(name)
    first = status(under_way.get(), 200)
    for i, conn in enumerate(parked):
        if i % 4 > 1:
            replay_of(first, conn.answer())
            conn.close()
    eq(rig.backend.effects(key=key), 1)


@test
def a_parked_duplicate_that_left_holds_no_connection(rig):
    def open_files():
        return sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in rig.worker_pids())
    key, name = fresh(), fresh("hang")
    under_way = rig.later("/wait", key, do={"hang": name})
    rig.backend.reached(name)
    parked = [Conn(rig.port).send(rig.bytes("/wait", key)) for _ in range(50)]
    rig.until_parked(50)
    held = open_files()
    for i, conn in enumerate(parked):
        (conn.close if i % 2 else conn.reset)()
    until("their connections are closed", lambda: open_files() <= held - 50)
    until("the first one alone runs on", lambda: rig.figures()["running"] == 1)
    check(not under_way.done(), "it runs on")
    rig.backend.go(name)
    status(under_way.get(), 200)
    eq(rig.backend.effects(key=key), 1)


@test
def a_parked_stream_may_be_reset(rig):
    key, name = fresh(), fresh("hang")
    under_way = rig.later("/wait", key, do={"hang": name}, body=b"x", type="text/plain")
    rig.backend.reached(name)
    with H2(rig.h2port) as h2:
        headers = [("idempotency-key", key), ("content-type", "text/plain")]
        streams = [h2.post("/wait", headers, b"x") for _ in range(6)]
        rig.until_parked(6)
        for stream in streams[:5]:
            h2.reset(stream)
        until("one is left", lambda: rig.figures()["parked"] == 1)
        rig.backend.go(name)
        first = status(under_way.get(), 200)
        eq(h2.until_end(streams[5]), first.body)
    eq(rig.backend.effects(key=key), 1)


@test
def when_all_leave_the_last_parked_one_does_not_run(rig):
    """The first run fails after the parked clients have disconnected: so there is no client to run it again."""
    key, name = fresh(), fresh("hang")
    first = Conn(rig.port).send(rig.bytes("/wait", key, do={"hang": name, "status": 500}))
    rig.backend.reached(name)
    parked = [Conn(rig.port).send(rig.bytes("/wait", key)) for _ in range(5)]
    rig.until_parked(5)
    for conn in [first, *parked]:
        conn.close()
    until("they have gone", lambda: rig.figures()["parked"] == 0)
    rig.turn()
    rig.backend.go(name)
    until("the first one has ended", lambda: rig.figures()["running"] == 0)
    answer = status(settles(rig, "/wait", key), 200)
    effects = rig.backend.effects(key=key)
    check(effects == (1 if answer.replayed else 2) or effects == 2, f"{effects} effects, {answer!r}")


@test
def half_a_close_runs_nothing_twice(rig):
    key = fresh()
    with Conn(rig.port) as conn:
        conn.send(rig.bytes("/replay", key, do={"late": 0.1}))
        conn.sock.shutdown(1)
        answer = conn.answer()
    check(answer.status in (200, None), repr(answer))
    # nginx may take a half close for a disconnect; then there was no claim yet, or the response is stored.
    status(settles(rig, "/replay", key), 200)
    eq(rig.backend.effects(key=key), 1, "effects")


@test
def whenever_a_client_leaves_there_is_one_effect_at_most(rig):
    chance = random.Random(5)
    keys = [fresh() for _ in range(120)]
    for key in keys:
        conn = Conn(rig.port).send(rig.bytes("/replay", key, do={"size": 3000}))
        # sleep: a random moment
        time.sleep(chance.choice((0, 0, 0.0005, 0.001, 0.002, 0.005)))
        chance.choice((conn.close, conn.reset))()
    for key in keys:
        answer = status(settles(rig, "/replay", key, do={"size": 3000}), 200)
        eq(rig.backend.effects(key=key), 1, "effects")
        eq(answer.body, rig.backend.requests(key=key)[0].answer)


@test
def whenever_a_stream_is_reset_there_is_one_effect_at_most(rig):
    chance = random.Random(6)
    keys = [fresh() for _ in range(100)]
    with H2(rig.h2port) as h2:
        for key in keys:
            stream = h2.post("/replay", [("idempotency-key", key), ("content-type", "application/json")], b'{"a":1}')
            # sleep: a random moment
            time.sleep(chance.choice((0, 0, 0.0005, 0.001, 0.003)))
            h2.reset(stream)
    for key in keys:
        status(settles(rig, "/replay", key), 200)
        eq(rig.backend.effects(key=key), 1, "effects")


if __name__ == "__main__":
    main(CONF)
