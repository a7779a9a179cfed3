#!/usr/bin/env python3
"""The verdicts: each verdict's response, and the requests that the backend saw."""
import math
import os
import signal
import sys
import time

sys.dont_write_bytecode = True

from rig import *
from tap import *

MESSAGE = 'Bitte warten \u2603 <b> & \\"so\\"'
CONF = WATCH + "".join((
    guard("/replay", "idem replay; idem_replay_headers X-Kept X-Also;"),
    guard("/reject", "idem reject;"),
    guard("/success", "idem reject; idem_on_duplicate success;"),
    guard("/keep", "idem replay; idem_on_failure keep;"),
    guard("/keep-reject", "idem reject; idem_on_failure keep;"),
    guard("/retry", "idem replay; idem_on_failure retry; idem_attempts 2; idem_backoff 100ms;"),
    guard("/lock", "idem lock;"),
    guard("/leased", "idem replay; idem_lease 7s;"),
    guard("/leased-briefly", "idem replay; idem_lease 900ms;"),
    guard("/retry-later", "idem replay; idem_on_failure retry; idem_attempts 2; idem_backoff 60s;"),
    guard("/lost", "idem replay; idem_fingerprint body; idem_recover rerun; idem_lease 3s; idem_backoff 100ms;"),
    guard("/lost-again", "idem replay; idem_fingerprint body; idem_recover rerun; idem_backoff 100ms;", prefix="lost:"),
    guard("/short", "idem replay; idem_ttl 1s;"),
    guard("/held", "idem replay; idem_hold_ttl 1s;"),
    guard("/worded", f'idem replay; idem_message "{MESSAGE}";'),
    guard("/change-a", "idem replay; idem_fingerprint none;", prefix="change:"),
    guard("/change-b", "idem reject; idem_fingerprint none;", prefix="change:"),
    guard("/change-c", "idem lock;", prefix="change:"),
    guard("/submit", "idem_preset submit; idem_key header=Idempotency-Key;"),
    guard("/api", "idem_preset api;"),
    guard("/payment", "idem_preset payment;"),
    guard("/strict", "idem_preset payment; idem reject;"),
    "location /inherited { idem_prefix inherited:; idem replay; proxy_pass http://@BACKEND@;"
    " location /inherited/off { idem off; proxy_pass http://@BACKEND@; } }",
))


@test
def a_first_request_runs(rig):
    key = fresh()
    answer, line = rig.logged("/replay", key, do={"status": 201, "headers": [["X-Own", "1"], ["Set-Cookie", "a=b"]]})
    status(answer, 201)
    eq(answer.all("Idempotent-Replayed"), [])
    eq((answer.h("X-Own"), answer.h("Set-Cookie")), ("1", "a=b"), "the first answer is whole")
    eq((line["idem_verdict"], line["idem_attempt"]), ("run", "1"))
    check(re.fullmatch("[0-9a-f]{64}", line["idem_key_hash"]), "a hash")
    check(re.fullmatch(r"\d+\.\d{3}", line["idem_time"]), f"seconds: {line['idem_time']}")
    eq(rig.backend.effects(key=key), 1)


@test
def a_replay_is_the_first_answer_byte_for_byte(rig):
    for do in ({"status": 201}, {"status": 200, "body": ""}, {"size": 1}, {"size": 4096}, {"size": 70000},
               {"size": 1000000}, {"status": 404}, {"status": 302, "headers": [["Location", "http://o/1"]]},
               {"body": "".join(map(chr, range(256))), "type": "application/octet-stream"}):
        key = fresh()
        first, again = (rig.logged("/replay", key, do=do)[i] for i in (0, 0))
        check(first.complete and again.complete, "both are complete")
        replay_of(first, again)
        eq(again.h("Content-Type"), first.h("Content-Type"))
        eq(rig.backend.effects(key=key), 1, f"effects of {do}")


@test
def a_replay_has_the_listed_headers_and_no_others(rig):
    key = fresh()
    kept = [["Content-Language", "de"], ["Location", "http://api.example/orders/7?a=b"],
            ["ETag", '"v1"'], ["Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT"],
            ["Link", "<http://a/>; rel=next"], ["X-Kept", "yes"], ["X-Also", "too"]]
    dropped = [["Set-Cookie", "sid=1"], ["Set-Cookie", "b=2"], ["X-Other", "1"], ["X-Powered-By", "y"],
               ["Keep-Alive", "timeout=5"], ["Proxy-Authenticate", "Basic"]]
    first = rig.post("/replay", key, do={"status": 201, "headers": kept + dropped})
    again = rig.post("/replay", key)
    replay_of(first, again)
    for name, value in kept:
        eq(again.all(name), [value], name)
    for name, _ in dropped:
        eq(again.all(name), [], name)
    eq(len(again.all("Date")), 1)
    eq(len(again.all("Content-Type")), 1)
    eq(len(again.all("Content-Length")), 1)
    eq(len(again.all("Server")), 1)


@test
def repeated_link_headers_are_all_replayed(rig):
    key = fresh()
    links = ["<http://a/1>; rel=next", "<http://a/2>; rel=prev"]
    rig.post("/replay", key, do={"headers": [["Link", link] for link in links]})
    eq(rig.post("/replay", key).all("Link"), links)


@test
def a_relative_location_is_replayed_alike(rig):
    key = fresh()
    first = rig.post("/replay", key, do={"status": 201, "headers": [["Location", "/orders/7"]]})
    eq(replay_of(first, rig.post("/replay", key)).h("Location"), first.h("Location"))


@test
def a_content_type_with_a_charset_is_replayed_alike(rig):
    for kind in ("text/html; charset=utf-8", "text/plain;charset=ISO-8859-1", "application/json;v=2"):
        key = fresh()
        first = rig.post("/replay", key, do={"type": kind})
        again = replay_of(first, rig.post("/replay", key))
        eq(again.all("Content-Type"), first.all("Content-Type"))


@test
def a_replay_has_a_fresh_date(rig):
    key = fresh()
    first = rig.post("/replay", key)
    again = until_answer("another date", lambda: rig.post("/replay", key), lambda a: a.h("Date") != first.h("Date"))
    replay_of(first, again)


@test
def a_replay_knows_no_ranges_and_no_not_modified(rig):
    key = fresh()
    first = rig.post("/replay", key, do={"size": 1000, "headers": [
        ["ETag", '"v1"'], ["Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT"]]})
    for header in (("Range", "bytes=0-3"), ("If-None-Match", '"v1"'), ("If-None-Match", "*"),
                   ("If-Match", '"v2"'), ("If-Modified-Since", "Mon, 01 Jan 2024 00:00:00 GMT"),
                   ("If-Unmodified-Since", "Mon, 01 Jan 2001 00:00:00 GMT")):
        replay_of(first, rig.post("/replay", key, headers=[header]))


@test
def replays_are_logged(rig):
    key = fresh()
    _, first = rig.logged("/replay", key)
    _, again = rig.logged("/replay", key)
    eq((again["idem_verdict"], again["idem_attempt"]), ("replay", "1"))
    eq(again["idem_key_hash"], first["idem_key_hash"])


@test
def a_duplicate_is_refused_with_the_first_status(rig):
    for code in (200, 201, 404):
        key = fresh()
        status(rig.post("/reject", key, do={"status": code}), code)
        answer, line = rig.logged("/reject", key)
        status(answer, 409, "duplicate")
        problem = answer.problem
        eq((problem["first_status"], problem["status"], problem["retryable"]), (code, 409, False))
        eq(problem["key_hash"], line["idem_key_hash"])
        check(problem["title"] and problem["detail"], "words")
        eq(answer.all("Retry-After"), [], "waiting does not help")
        eq(line["idem_verdict"], "duplicate")
        check(not answer.replayed, "no replay")
        check(key.encode() not in answer.body, "the key is not revealed")
        eq(rig.backend.effects(key=key), 1)


@test
def a_duplicate_may_be_an_empty_success(rig):
    key, name = fresh(), fresh("hang")
    under_way = rig.later("/success", key, do={"hang": name, "status": 201})
    rig.backend.reached(name)
    status(rig.post("/success", key), 409, "in-progress")
    rig.backend.go(name)
    status(under_way.get(), 201)
    answer = rig.post("/success", key)
    eq((answer.status, answer.body, answer.all("Content-Type"), answer.replayed), (204, b"", [], False))
    eq(rig.backend.effects(key=key), 1)


@test
def a_mismatch_is_told_before_anything_about_progress(rig):
    key, name = fresh(), fresh("hang")
    under_way = rig.later("/replay", key, do={"hang": name})
    rig.backend.reached(name)
    answer, line = rig.logged("/replay", key, body=b"other")
    status(answer, 422, "mismatch")
    eq((answer.all("Retry-After"), answer.problem["retryable"]), ([], False))
    check("progress" not in answer.body.decode(), "nothing about progress")
    eq(line["idem_verdict"], "mismatch")
    rig.backend.go(name)
    first = under_way.get()
    status(rig.post("/replay", key, body=b"other"), 422, "mismatch")
    replay_of(first, rig.post("/replay", key))
    eq(rig.backend.effects(key=key), 1)


@test
def a_busy_key_is_refused_with_the_time_to_wait(rig):
    for path in ("/replay", "/reject", "/lock"):
        key, name = fresh(), fresh("hang")
        under_way = rig.later(path, key, do={"hang": name})
        rig.backend.reached(name)
        answer, line = rig.logged(path, key)
        status(answer, 409, "in-progress")
        eq(answer.problem["retryable"], True)
        check(1 <= int(answer.h("Retry-After")) <= 31, f"within the lease: {answer!r}")
        eq(line["idem_verdict"], "busy")
        rig.backend.go(name)
        status(under_way.get(), 200)
        eq(rig.backend.effects(key=key), 1)


@test
def the_time_to_wait_is_that_of_the_lease_or_of_the_next_try_in_whole_seconds(rig):
    def waits(path, key, most, began):
        # A worker that is not scheduled for longer than a short lease gets the lease back at its next renewal.
        answer = until_answer("it is held", lambda: rig.post(path, key), lambda a: a.type == "in-progress")
        page = until_answer("it is held", lambda: rig.post(path, key, headers=[("Accept", "text/html")]),
                            lambda a: a.h("Retry-After"))
        eq((answer.status, page.status), (409, 409))
        least = max(1, math.ceil(most - (time.monotonic() - began)))  # allows for a machine that was slow meanwhile
        for refusal in (answer, page):
            check(least <= int(refusal.h("Retry-After")) <= most, f"{least} to {most} s: {refusal!r}")
        check(f"again in {page.h('Retry-After')} second".encode() in page.body, repr(page))
    for path, seconds in (("/leased", 7), ("/leased-briefly", 1)):
        key, name, began = fresh(), fresh("hang"), time.monotonic()
        under_way = rig.later(path, key, do={"hang": name})
        rig.backend.reached(name)
        waits(path, key, seconds, began)
        rig.backend.go(name)
        status(under_way.get(), 200)
    key, began = fresh(), time.monotonic()
    status(rig.post("/retry-later", key, do={"status": 500}), 500)
    waits("/retry-later", key, 60, began)


@test
def a_kept_failure_is_replayed(rig):
    key = fresh()
    first = status(rig.post("/keep", key, do={"status": 500, "headers": [["Set-Cookie", "a=b"]]}), 500)
    answer, line = rig.logged("/keep", key)
    replay_of(first, answer)
    eq(answer.all("Set-Cookie"), [])
    eq(line["idem_verdict"], "dead")
    eq(rig.backend.effects(key=key), 1)


@test
def a_kept_failure_is_told_where_nothing_is_replayed(rig):
    key = fresh()
    status(rig.post("/keep-reject", key, do={"status": 503}), 503)
    answer = status(rig.post("/keep-reject", key), 409, "failed")
    eq((answer.problem["last_status"], answer.problem["retryable"]), (503, False))
    eq(rig.backend.effects(key=key), 1)


@test
def a_failure_is_tried_again_when_due_until_the_attempts_are_used_up(rig):
    key = fresh()
    status(rig.post("/retry-later", key, do={"status": 500}), 500)
    answer = status(rig.post("/retry-later", key), 409, "in-progress")
    check(int(answer.h("Retry-After")) >= 1, repr(answer))
    key = fresh()
    status(rig.post("/retry", key, do={"status": 500}), 500)
    last, line = until("it is due", lambda: (lambda both: both if both[0].status == 500 else None)(
        rig.logged("/retry", key, do={"status": 500})))
    eq(line["idem_attempt"], "2")
    time.sleep(0.2)  # sleep: longer than the back-off, after which nothing may happen
    replay_of(last, rig.post("/retry", key))
    seen = rig.backend.requests(key=key)
    eq([s.h("Idem-Attempt") for s in seen], ["1", "2"])
    eq(len({s.h("Idem-Downstream-Key") for s in seen}), 1, "derived keys")


@test
def a_retry_that_succeeds_is_replayed(rig):
    key = fresh()
    status(rig.post("/retry", key, do={"status": 500}), 500)
    first = until_200("it is due", lambda: rig.post("/retry", key))
    replay_of(first, rig.post("/retry", key))
    eq(rig.backend.effects(key=key), 2)


@test
def an_uncertain_outcome_is_not_run_again(rig):
    key = fresh()
    status(rig.post("/replay", key, do={"fault": "close"}), 502)
    for _ in range(2):
        answer, line = rig.logged("/replay", key)
        status(answer, 409, "uncertain")
        eq((answer.problem["retryable"], answer.all("Retry-After")), (False, []))
        eq(line["idem_verdict"], "uncertain")
    status(rig.post("/replay", key, body=b"other"), 422, "mismatch")
    eq(rig.backend.effects(key=key), 1)


def others_work(rig):
    """Returns true if the store is free: a process that was stopped in a commit holds the store's lock."""
    try:
        return rig.post("/replay", fresh(), timeout=10).status == 200
    except TimeoutError:
        return False


def stopped(rig):
    """Returns (key, name of its hang, id in the log, request, worker) of a run whose worker stands still. None: the
    lease ended before, because the machine was slow; or the worker was stopped in a commit."""
    key, name, rid = fresh(), fresh("hang"), fresh("rid")
    under_way = rig.later("/lost", key, do={"hang": name}, rid=rid)
    until("it runs, or its lease is over", lambda: rig.backend.arrivals[name] or under_way.done())
    if rig.backend.arrivals[name]:
        seen = rig.backend.requests(key=key)[0]
        worker = int(seen.h("X-Worker"))
        os.kill(worker, signal.SIGSTOP)
        try:
            until("it takes no connections", lambda: state(worker) == "T")
            if others_work(rig) and not Wire(seen.sock, 0).gone():
                return key, name, rid, under_way, worker
        except BaseException:
            os.kill(worker, signal.SIGCONT)
            raise
        os.kill(worker, signal.SIGCONT)
    rig.backend.go(name)
    under_way.get()
    return None


def superseded(rig, answered):
    """A worker stands still while its backend works, and another takes over; returns the responses of both. answered:
    the backend has responded when the worker wakes."""
    key, name, rid, under_way, worker = until("a worker stands still", lambda: stopped(rig))
    try:
        second = until_200("its lease is over", lambda: rig.post("/lost-again", key))
        if answered:
            rig.backend.go(name)
            until("the backend has answered", lambda: rig.backend.requests(key=key)[0].outcome)
    finally:
        os.kill(worker, signal.SIGCONT)
    first, seen = under_way.get(), rig.backend.requests(key=key)
    if not answered:
        until("the backend's connection is closed", lambda: seen[0].left is not None)
        rig.backend.go(name)
    eq([s.h("Idem-Attempt") for s in seen], ["1", "2"])
    eq((second.body, second.all("Idem-Lost")), (seen[1].answer, []))
    replay_of(second, rig.post("/lost-again", key))
    return first, rig.log(rid)["idem_verdict"], seen[0].answer


@test
def a_superseded_run_is_marked_and_stores_nothing(rig):
    first, verdict, answer = superseded(rig, True)
    eq((status(first, 200).all("Idem-Lost"), verdict, first.body), (["true"], "lost", answer))


@test
def a_superseded_run_that_is_not_answered_is_cancelled(rig):
    first, verdict, _ = superseded(rig, False)
    eq((status(first, 504).all("Idem-Lost"), verdict), ([], "cancelled"))


@test
def a_lock_is_one_at_a_time_and_free_afterwards(rig):
    key = fresh()
    for attempt in ("1", "2", "3"):
        answer, line = rig.logged("/lock", key, body=attempt.encode())
        status(answer, 200)
        eq((answer.replayed, line["idem_verdict"], line["idem_attempt"]), (False, "run", attempt))
    eq([s.h("Idem-Attempt") for s in rig.backend.requests(key=key)], ["1", "2", "3"])
    status(rig.post("/lock", key, do={"status": 500}), 500)
    status(rig.post("/lock", key), 200)
    status(rig.post("/lock", key, do={"fault": "close"}), 502)


@test
def a_key_expires(rig):
    is_forgotten_after_a_second(rig, "/short", {}, 200)


def is_forgotten_after_a_second(rig, path, do, code):
    """Until then each request is a mismatch, which changes nothing."""
    key, began = fresh(), time.monotonic()
    status(rig.post(path, key, do=do), code)
    answer = until_answer("it is forgotten", lambda: rig.post(path, key, body=b"other"), lambda a: a.status != 422)
    check(not status(answer, 200).replayed, "forgotten")
    took = time.monotonic() - began
    check(took > 0.95, f"after {took} s")
    eq(rig.backend.effects(key=key), 2)


@test
def an_uncertain_key_is_held_as_long_as_the_policy_says(rig):
    is_forgotten_after_a_second(rig, "/held", {"fault": "close"}, 502)


@test
def long_headers_are_replayed_whole(rig):
    key = fresh()
    link = "<http://a/" + "x" * 3000 + ">; rel=next"
    first = rig.post("/replay", key, do={"headers": [["Link", link], ["X-Kept", ""]]})
    again = replay_of(status(first, 200), rig.post("/replay", key))
    eq(again.all("Link"), [link])


@test
def a_route_may_change_its_mode(rig):
    key = fresh()
    first = status(rig.post("/change-a", key), 200)
    status(rig.post("/change-b", key), 409, "duplicate")
    replay_of(first, rig.post("/change-a", key))
    key = fresh()
    status(rig.post("/change-b", key), 200)
    status(rig.post("/change-a", key), 409, "duplicate")
    key = fresh()
    status(rig.post("/change-c", key), 200)
    check(not status(rig.post("/change-a", key), 200).replayed, "a lock leaves nothing to replay")


@test
def refusals_have_the_policys_words(rig):
    words = MESSAGE.replace('\\"', '"')
    answer = status(rig.post("/worded"), 400, "key-missing")
    eq(answer.problem["detail"], words)
    eq(answer.problem["title"].__class__, str)
    page = rig.post("/worded", headers=[("Accept", "text/html")])
    eq(page.h("Content-Type").split(";")[0], "text/html")
    check("\u2603 &lt;b&gt; &amp;" in page.body.decode("utf-8"), f"escaped: {page!r}")


@test
def a_refusal_is_a_page_where_the_client_prefers_one(rig):
    page, plain = "text/html", "application/problem+json"
    for accept, want in (
            ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", page),
            ("text/html", page), ("TEXT/HTML", page), ("text/html, application/json;q=0.9", page),
            ("*/*", plain), ("application/json", plain), ("application/problem+json, text/html", plain),
            ("text/html;q=0.5, */*;q=0.8", plain), ("text/html;q=0.9, application/json", plain),
            ("text/html;q=0", plain), ("text/plain", plain), ("", plain), (None, plain),
            ("text/html;level=1;q=0.7, application/problem+json;q=0.3", page), (",;q,=;,", plain),
            ("application/problem+json;q=0.9, text/html;q=0.91", page)):
        answer = status(rig.post("/replay", headers=[] if accept is None else [("Accept", accept)]), 400)
        eq(answer.h("Content-Type").split(";")[0], want, f"the type for {accept!r}")
        eq(answer.h("Cache-Control"), "no-store")
        check(answer.complete and answer.body, "whole")


@test
def a_submit_waits_for_the_first_answer(rig):
    key, name = fresh(), fresh("hang")
    under_way = [rig.later("/submit", key, do={"hang": name}) for _ in range(3)]
    rig.until_parked(2)
    check(not any(u.done() for u in under_way), "duplicates wait")
    rig.backend.go(name)
    eq(len({u.get().body for u in under_way}), 1, "answers")
    eq(rig.backend.effects(key=key), 1)


@test
def an_api_releases_what_failed(rig):
    key = fresh()
    status(rig.post("/api", key, do={"status": 500}), 500)
    first = status(rig.post("/api", key), 200)
    replay_of(first, rig.post("/api", key))
    eq(rig.backend.effects(key=key), 2)


@test
def a_payment_that_committed_and_answered_500_is_never_run_again(rig):
    key = fresh()
    first = status(rig.post("/payment", key, do={"status": 500}), 500)
    for _ in range(3):
        replay_of(first, rig.post("/payment", key))
    eq(rig.backend.effects(key=key), 1)


@test
def what_a_location_says_goes_before_its_preset(rig):
    key = fresh()
    status(rig.post("/strict", key), 200)
    status(rig.post("/strict", key), 409, "duplicate")
    key = fresh()
    status(rig.post("/strict", key, do={"status": 500}), 500)
    status(rig.post("/strict", key), 409, "failed")


@test
def a_guard_of_the_server_holds_for_its_locations(rig):
    with Rig("location / { proxy_pass http://@BACKEND@; }\n", workers=1,
             server="idem replay; idem_prefix all:; idem_release_status 404; idem_methods POST DELETE;") as other:
        key = fresh()
        first = status(other.post("/any", key), 200)
        replay_of(first, other.post("/any", key))
        status(other.post("/any", None, method="DELETE", body=b""), 400, "key-missing")
        key = fresh()
        for _ in range(2):
            status(other.post("/any", key, do={"status": 404}), 404)
        eq(other.backend.effects(key=key), 2, "404 gives the key back")


@test
def a_nested_location_may_switch_the_guard_off(rig):
    key = fresh()
    for _ in range(2):
        answer, line = rig.logged("/inherited/off", key)
        check(status(answer, 200).replayed is False, "unguarded")
        eq((line["idem_verdict"], line["idem_key_hash"]), ("", ""))
    eq(rig.backend.effects(key=key), 2)
    first = status(rig.post("/inherited", key), 200)
    replay_of(first, rig.post("/inherited", key))


@test
def what_was_answered_is_stored_already(rig):
    for _ in range(100):
        key = fresh()
        with Conn(rig.port) as conn, Conn(rig.port) as other:
            first = conn.send(rig.bytes("/replay", key)).answer()
            replay_of(first, other.send(rig.bytes("/replay", key)).answer())
        eq(rig.backend.effects(key=key), 1)


if __name__ == "__main__":
    main(CONF)
