#!/usr/bin/env python3
"""Duplicates that wait: parked without a thread or an upstream, woken by the finish."""
import sys
import time

sys.dont_write_bytecode = True

from rig import *
from tap import *

CONF = WATCH + "".join((
    guard("/wait", "idem replay; idem_wait 1h;"),
    guard("/brief", "idem replay; idem_wait 1s;"),
    guard("/refuse", "idem replay;"),
    guard("/reject", "idem reject; idem_wait 1h;"),
    guard("/lock", "idem lock; idem_wait 1h;"),
    guard("/retry", "idem replay; idem_wait 1h; idem_on_failure retry; idem_attempts 3; idem_backoff 300ms;"),
))


LOOK = 2  # seconds: a duplicate that has waited for long polls at this interval


def woken_soon(way):
    """Checks that duplicates are woken, not merely polling. Those that came over a whole interval also poll over a
    whole interval, the last of them at its end: so if all have a response within half an interval, they were woken.
    One success is enough, because a slow machine delays wake-ups. `way` returns the time it took."""
    until(f"duplicates are woken within {LOOK / 2} s", lambda: way() < LOOK / 2)


def come_one_by_one(count, ask):
    """Sends `count` requests over an interval, and then waits until they poll seldom: after a quarter of a second, a
    half, one."""
    asked = []
    for _ in range(count):
        asked.append(ask())
        time.sleep(LOOK / count)  # sleep: the test is about the time between two of them
    time.sleep(LOOK)  # sleep: as above
    return asked


def parked(rig, path, key, count, gather=lambda count, ask: [ask() for _ in range(count)], **options):
    """A run that hangs, and `count` duplicates that wait for it."""
    name = fresh("hang")
    first = Conn(rig.port).send(rig.bytes(path, key, do=dict(options.pop("do", {}), hang=name), **options))
    rig.backend.reached(name)
    rest = gather(count, lambda: Conn(rig.port).send(rig.bytes(path, key, **options)))
    if path != "/brief":  # there the duplicates may have waited long enough meanwhile
        rig.until_parked(count)
    return name, first, rest


def answers_of(conns):
    answers = [conn.answer() for conn in conns]
    for conn in conns:
        conn.close()
    return answers


@test
def a_parked_duplicate_gets_the_first_answer(rig):
    key = fresh()
    name, first, rest = parked(rig, "/wait", key, 1)
    rig.backend.go(name)
    first, again = answers_of([first, *rest])
    replay_of(status(first, 200), again)
    eq(rig.backend.effects(key=key), 1)


@test
def parked_duplicates_are_woken_soon_by_any_worker(rig):
    def one():
        key = fresh()
        name, first, rest = parked(rig, "/wait", key, 16, come_one_by_one)
        began = time.monotonic()
        rig.backend.go(name)
        answers = answers_of([first, *rest])
        took = time.monotonic() - began
        for again in answers[1:]:
            replay_of(status(answers[0], 200), again)
        eq(rig.backend.effects(key=key), 1)
        return took
    woken_soon(one)


@test
def the_time_of_waiting_is_logged_and_that_of_the_backend_is_not(rig):
    key, name, rids = fresh(), fresh("hang"), [fresh("rid"), fresh("rid")]
    first = rig.later("/wait", key, do={"hang": name}, rid=rids[0])
    rig.backend.reached(name)
    again = rig.later("/wait", key, rid=rids[1])
    rig.until_parked(1)
    time.sleep(0.5)  # sleep: the waiting time, which is logged apart from the rest
    rig.backend.go(name)
    first, again = first.get(), again.get()
    replay_of(first, again)
    ran, waited = (float(rig.log(rid)["idem_time"]) for rid in rids)
    check(ran <= first.seconds - 0.45, f"{ran} of {first.seconds} s")
    check(0.45 <= waited <= again.seconds + 0.05, f"{waited} of {again.seconds} s")


@test
def a_wait_has_an_end(rig):
    key = fresh()
    name, first, rest = parked(rig, "/brief", key, 3)
    for answer in answers_of(rest):
        status(answer, 409, "in-progress")
        check(0.8 <= answer.seconds, f"after {answer.seconds:.2f} s")
        check(int(answer.h("Retry-After")) >= 1, repr(answer))
    rig.backend.go(name)
    status(*(a for a in answers_of([first])), 200)
    eq(rig.backend.effects(key=key), 1)


@test
def a_mismatch_does_not_wait(rig):
    key = fresh()
    name, first, _ = parked(rig, "/wait", key, 0)
    answer = rig.post("/wait", key, body=b"other")
    status(answer, 422, "mismatch")  # while the first request hangs
    rig.backend.go(name)
    answers_of([first])


@test
def the_parked_one_runs_what_was_released(rig):
    key = fresh()
    name, first, rest = parked(rig, "/wait", key, 5, do={"status": 500})
    rig.backend.go(name)
    answers = answers_of([first, *rest])
    status(answers[0], 500)
    eq({a.status for a in answers[1:]}, {200})
    eq(sum(a.replayed for a in answers[1:]), 4, "replays")
    eq(len({a.body for a in answers[1:]}), 1, "bodies")
    eq(rig.backend.effects(key=key), 2)


@test
def the_parked_one_runs_a_retry_when_it_is_due(rig):
    key = fresh()
    name, first, rest = parked(rig, "/retry", key, 3, do={"status": 500})
    began = time.monotonic()
    rig.backend.go(name)
    answers = answers_of([first, *rest])
    check(time.monotonic() - began >= 0.25, "not before it is due")
    status(answers[0], 500)
    eq({a.status for a in answers[1:]}, {200})
    eq([s.h("Idem-Attempt") for s in rig.backend.requests(key=key)], ["1", "2"])


@test
def the_parked_ones_learn_that_it_is_uncertain(rig):
    key = fresh()
    name, first, rest = parked(rig, "/wait", key, 3, do={"fault": "close"})
    rig.backend.go(name)
    answers = answers_of([first, *rest])
    status(answers[0], 502)
    for answer in answers[1:]:
        status(answer, 409, "uncertain")
    eq(rig.backend.effects(key=key), 1)


@test
def parked_duplicates_are_refused_where_nothing_is_replayed(rig):
    key = fresh()
    name, first, rest = parked(rig, "/reject", key, 5)
    rig.backend.go(name)
    answers = answers_of([first, *rest])
    status(answers[0], 200)
    for answer in answers[1:]:
        status(answer, 409, "duplicate")
    eq(rig.backend.effects(key=key), 1)


@test
def a_lock_lets_them_in_one_by_one(rig):
    key = fresh()
    answers = burst(rig.port, [rig.bytes("/lock", key, do={"late": 0.03}) for _ in range(12)])
    eq({a.status for a in answers}, {200})
    eq((rig.backend.effects(key=key), rig.backend.most[key]), (12, 1), "effects, and at once")
    eq(sorted(int(s.h("Idem-Attempt")) for s in rig.backend.requests(key=key)), list(range(1, 13)))


@test
def two_hundred_at_once_are_one_effect_and_two_hundred_answers(rig):
    for late in (0, 0.2):
        key = fresh()
        answers = burst(rig.port, [rig.bytes("/wait", key, do={"late": late}) for _ in range(200)])
        eq({a.status for a in answers}, {200})
        eq(len({a.body for a in answers}), 1, "different answers")
        eq(sum(a.replayed for a in answers), 199, "replays")
        eq(rig.backend.effects(key=key), 1)


@test
def two_hundred_at_once_are_one_answer_and_the_rest_refused(rig):
    key = fresh()
    name, first, rest = parked(rig, "/refuse", key, 0)
    answers = burst(rig.port, [rig.bytes("/refuse", key) for _ in range(199)])
    eq({(a.status, a.type) for a in answers}, {(409, "in-progress")})
    rig.backend.go(name)
    status(answers_of([first])[0], 200)
    key = fresh()
    name = fresh("hang")
    under_way = [rig.later("/refuse", key, do={"hang": name}) for _ in range(200)]
    until("all but one are refused", lambda: sum(u.done() for u in under_way) == 199)
    rig.backend.go(name)
    eq(sorted(u.get().status for u in under_way), [200] + [409] * 199)
    eq(rig.backend.effects(key=key), 1)


@test
def keys_do_not_wait_for_each_other(rig):
    keys = [fresh() for _ in range(20)]
    answers = burst(rig.port, [rig.bytes("/wait", key, do={"late": 0.1}) for _ in range(10) for key in keys])
    eq({a.status for a in answers}, {200})
    for i, key in enumerate(keys):
        eq(len({a.body for a in answers[i::20]}), 1, "different answers of a key")
        eq(rig.backend.effects(key=key), 1)


@test
def many_are_parked_and_hold_no_upstream(rig):
    count = 5000 if LONG else 1000
    key = fresh()
    before = rig.backend.accepted
    name, first, rest = parked(rig, "/wait", key, count)
    eq(rig.backend.accepted - before, 1, "connections to the backend")
    status(rig.post("/wait", fresh()), 200)  # other requests are served meanwhile
    rig.backend.go(name)
    answers = answers_of([first, *rest])
    eq({a.status for a in answers}, {200})
    eq(len({a.body for a in answers}), 1, "different answers")
    eq(rig.backend.effects(key=key), 1)


@test
def another_nginx_on_the_same_store_is_woken(rig):
    with Rig(CONF, store=rig.url, backend=rig.backend) as other:
        def one():
            key, name = fresh(), fresh("hang")
            under_way = rig.later("/wait", key, do={"hang": name})
            rig.backend.reached(name)
            parked_there = come_one_by_one(8, lambda: other.later("/wait", key))
            other.until_parked(8)
            began = time.monotonic()
            rig.backend.go(name)
            first = status(under_way.get(), 200)
            for later in parked_there:
                replay_of(first, later.get())
            took = time.monotonic() - began
            eq(rig.backend.effects(key=key), 1)
            return took
        woken_soon(one)
        check(other.quit(), "it goes")


if __name__ == "__main__":
    main(CONF)
