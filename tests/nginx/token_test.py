#!/usr/bin/env python3
"""Tokens: issued to one user, used once by the same user, and refused to the others."""
import json
import os
import re
import statistics
import sys
import time

sys.dont_write_bytecode = True

from rig import *
from tap import *

USER = "idem_scope $http_x_user;"
ZONE = "limit_req_zone $http_x_user zone=few:1m rate=1r/m;"
CONF = "".join((
    f"location = /token {{ idem_prefix token:; {USER} idem_token; }}",
    f"location = /token/brief {{ idem_prefix token:; {USER} idem_token_ttl 1s; idem_token; }}",
    f"location = /token/bound {{ idem_prefix token:; {USER} idem_token_bind $http_x_session; idem_token; }}",
    "location = /token/anybody { idem_prefix token:; idem_token; }",
    f"location = /token/few {{ limit_req zone=few; idem_prefix token:; {USER} idem_token; }}",
    # A guard on this location does not apply to it.
    f"location = /token/guarded {{ idem_prefix token:; {USER} idem replay; idem_token; }}",
    f"location = /token/linger {{ idem_prefix token:; {USER} lingering_timeout 100ms; idem_token; }}",
    f"location = /token/sure {{ idem_prefix token:; idem_store @SURE@; {USER} idem_token; }}",
    "location = /page { ssi on; default_type text/html; alias @TEMP@/page; }",
    guard("/use", f"idem replay; {USER} idem_key token;", prefix="token:"),
    guard("/wait", f"idem replay; {USER} idem_key token; idem_wait 1h;", prefix="token:"),
    guard("/reject", f"idem reject; {USER} idem_key token;", prefix="token:"),
    guard("/keep", f"idem replay; {USER} idem_key token; idem_on_failure keep;", prefix="token:"),
    guard("/keep/reject", f"idem reject; {USER} idem_key token; idem_on_failure keep;", prefix="token:"),
    guard("/retry", f"idem replay; {USER} idem_key token; idem_on_failure retry; idem_attempts 2; idem_backoff 100ms..100ms;",
          prefix="token:"),
    guard("/retry-later", f"idem replay; {USER} idem_key token; idem_on_failure retry; idem_attempts 2; idem_backoff 60s;",
          prefix="token:"),
    guard("/bound", f"idem replay; {USER} idem_key token; idem_token_bind $http_x_session;", prefix="token:"),
    guard("/param", f"idem replay; {USER} idem_key token param=ticket;", prefix="token:"),
    "idem_set $cart '#body.cart';",
    f"location = /token/cart {{ idem_prefix token:; {USER} idem_token_bind $cart; idem_token; }}",
    guard("/cart", f"idem replay; {USER} idem_key token; idem_token_bind $cart;", prefix="token:"),
    guard("/named", f"idem replay; {USER} idem_key token header=X-Ticket;", prefix="token:"),
    guard("/open", f"idem replay; {USER} idem_key token; idem_on_store_error open;", prefix="token:"),
    guard("/anybody", "idem replay; idem_key token;", prefix="token:"),
    guard("/plain", f"idem replay; {USER}", prefix="token:"),
))


def issue(rig, path="/token", user="ann", method="GET", headers=()):
    answer = status(rig.post(path, method=method, body=b"", user=user, headers=headers), 200)
    said = json.loads(answer.body)
    eq(sorted(said), ["expires_in", "token"])
    check(re.fullmatch("[0-9a-f]{32}", said["token"]), f"128 bits: {said['token']}")
    return said["token"]


def use(rig, token, path="/use", user="ann", name="Idempotent-Token", headers=(), **options):
    return rig.post(path, user=user, headers=[(name, token), *headers], **options)


def effects(rig, token):
    return rig.backend.effects(key=token)


@test
def a_token_is_issued_on_get_and_post_and_kept_by_no_cache(rig):
    seen = set()
    for method in ("GET", "POST"):
        answer, line = rig.logged("/token", method=method, body=b"", user="ann")
        status(answer, 200)
        eq((answer.h("Cache-Control"), answer.h("Content-Type")), ("no-store", "application/json"))
        eq(json.loads(answer.body)["expires_in"], 300)
        eq(line["idem_verdict"], "issued")
        seen.add(json.loads(answer.body)["token"])
    eq(len(seen), 2)


@test
def other_methods_are_not_allowed(rig):
    for method in ("HEAD", "PUT", "DELETE", "PATCH"):
        answer = rig.post("/token", method=method, body=b"", user="ann")
        status(answer, 405)
        eq(answer.h("Allow"), "GET, POST")


@test
def a_token_is_never_the_one_that_somebody_has(rig):
    for header in (("If-None-Match", "*"), ("If-Match", '"x"'),
                   ("If-Unmodified-Since", "Mon, 01 Jan 2001 00:00:00 GMT"), ("Range", "bytes=0-3")):
        issue(rig, headers=[header])


@test
def a_page_that_holds_tokens_is_whole(rig):
    with open(rig.folder + "/page", "w", encoding="utf-8") as page:
        page.write("one" + '<!--# include virtual="/token" -->two' * 2 + "<!--# include virtual=\"/token/bound\" -->three")
    answer = status(rig.post("/page", method="GET", body=b"", user="ann"), 200)
    tokens = re.findall("[0-9a-f]{32}", answer.body.decode())
    eq(len(set(tokens)), 2)
    check(b"urn:idem:key-missing" in answer.body and answer.body.endswith(b"three"), f"{answer.body}")
    status(use(rig, tokens[0]), 200)


@test
def a_long_body_is_read_and_forgotten(rig):
    body, url = b"x" * 300000, f"http://127.0.0.1:{rig.h2port}/token"
    status(curl("--http2-prior-knowledge", "-H", "X-User: ann", url, data=body), 200)
    status(rig.post("/token", body=body, user="ann", chunked=4000), 200)
    with Conn(rig.port) as conn:
        for _ in range(3):
            conn.send(rig.bytes("/token", body=body, user="ann", close=False))
            status(conn.answer(), 200)
    status(rig.post("/token", body=b"x" * (1 << 20) + b"x", user="ann"), 413)


@test(stores="redis")
def a_body_that_comes_while_the_store_is_asked_does_not_cost_the_connection(rig):
    with Conn(rig.port) as conn:
        rig.redis.pause()
        try:
            conn.send(rig.bytes("/token/linger", body=b"x" * 9, user="ann", close=False)[:-9])
            rig.turn()
            conn.send(b"x" * 9)
            rig.turn()
        finally:
            rig.redis.go_on()
        status(conn.answer(), 200)
        time.sleep(0.3)  # sleep: longer than the connection lingers, which must not show
        conn.send(rig.bytes("/token", body=b"", user="ann"))
        status(conn.answer(), 200)


@test
def tokens_are_all_different(rig):
    tokens = [json.loads(a.body)["token"] for a in together(200, lambda _: rig.post("/token", method="GET", body=b"", user="ann"))]
    eq(len(set(tokens)), 200)


@test
def a_token_runs_once_and_is_replayed_then(rig):
    token = issue(rig)
    first, line = rig.logged("/use", user="ann", headers=[("Idempotent-Token", token)], do={"status": 201})
    status(first, 201)
    eq(line["idem_verdict"], "run")
    replay_of(first, use(rig, token, do={"status": 201}))
    eq(effects(rig, token), 1)


@test
def a_token_used_twice_is_a_duplicate_under_reject(rig):
    token = issue(rig)
    status(use(rig, token, "/reject"), 200)
    status(use(rig, token, "/reject"), 409, "duplicate")
    eq(effects(rig, token), 1)


@test
def a_missing_token_and_a_malformed_one_are_told_apart_from_a_refused_one(rig):
    status(rig.post("/use", user="ann"), 400, "key-missing")
    status(rig.post("/use", user="ann", headers=[("Idempotent-Token", "a"), ("Idempotent-Token", "b")]), 400, "key-malformed")
    status(use(rig, "x" * 256), 400, "key-malformed")
    status(use(rig, "never-issued"), 403, "token-refused")


@test
def another_users_token_looks_like_one_that_never_was(rig):
    token, unknown = issue(rig), "0" * 32
    answers = [use(rig, token, user="bob"), use(rig, unknown, user="bob"),
               use(rig, token, user="bob", headers=[("Accept", "text/html")]),
               use(rig, unknown, user="bob", headers=[("Accept", "text/html")])]
    for answer in answers:
        status(answer, 403)
    for theirs, nobodys in (answers[:2], answers[2:]):
        same = [(re.sub(rb"[0-9a-f]{64}", b"H", a.body), [(n, v) for n, v in a.headers if n not in ("Date", "Content-Length")])
                for a in (theirs, nobodys)]
        eq(*same, "one wording")
        eq(len(theirs.body), len(nobodys.body), "one length")
    status(use(rig, token), 200)
    status(use(rig, token, user="bob"), 403, "token-refused")  # also once it is done
    eq(effects(rig, token), 1)


@test
def a_refusal_takes_as_long_for_anothers_token_as_for_none(rig):
    """No limit in milliseconds: the median for one kind lies within the range of the other."""
    tokens = [issue(rig) for _ in range(60)]
    took = {"theirs": [], "nobodys": []}
    for i, token in enumerate(tokens):
        for kind, name in (("theirs", token), ("nobodys", f"{i:032x}")):
            begin = time.perf_counter()
            status(use(rig, name, user="bob"), 403)
            took[kind].append(time.perf_counter() - begin)
    low, high = (sorted(took["nobodys"])[i] for i in (2, -3))
    check(low <= statistics.median(took["theirs"]) <= high, f"{took}")


def outlive_brief_tokens():
    time.sleep(1.2)  # sleep: longer than the tokens live; to use one would be to spend it


def use_in_time(rig, path="/use", **options):
    """Returns a token with a ttl of a second that was used in time: a busy machine may take longer for the two
    requests."""
    def used():
        token = issue(rig, "/token/brief")
        answer = use(rig, token, path, **options)
        return (token, answer) if answer.status != 403 else None
    return until("it is used in time", used)


@test
def a_token_that_expired_is_refused_in_the_same_words(rig):
    token = issue(rig, "/token/brief")
    outlive_brief_tokens()
    for headers in ((), [("Accept", "text/html")]):
        expired, unknown = (re.sub(rb"[0-9a-f]{64}", b"H", status(use(rig, t, headers=headers), 403).body)
                            for t in (token, "0" * 32))
        eq(expired, unknown)
    status(use(rig, token), 403, "token-refused")
    eq(effects(rig, token), 0)


@test
def a_run_may_take_longer_than_its_token_lives(rig):
    def begun():
        token, name = issue(rig, "/token/brief"), fresh("hang")
        first = rig.later("/use", user="ann", headers=[("Idempotent-Token", token)], do={"hang": name, "status": 201})
        until("it runs, or came too late", lambda: rig.backend.requests(key=token) or first.done())
        return (token, name, first) if rig.backend.requests(key=token) else None
    token, name, first = until("it is used in time", begun)
    outlive_brief_tokens()
    status(use(rig, token), 409, "in-progress")
    rig.backend.go(name)
    first = status(first.get(), 201)
    replay_of(first, use(rig, token, do={"status": 201}))
    eq(effects(rig, token), 1)


@test
def a_token_that_is_given_back_lives_no_longer_for_it(rig):
    token, answer = use_in_time(rig, do={"status": 500})
    status(answer, 500)
    outlive_brief_tokens()
    status(use(rig, token), 403, "token-refused")


@test
def a_token_is_good_for_what_it_was_bound_to_alone(rig):
    def session(name):
        return [("X-Session", name)]
    token = issue(rig, "/token/bound", headers=session("s1"))
    status(use(rig, token, "/bound", headers=session("s2")), 403, "token-refused")
    status(use(rig, token, "/bound"), 403, "token-refused")
    status(use(rig, token, "/use"), 403, "token-refused")
    status(use(rig, token, "/bound", headers=session("s1"), user="bob"), 403, "token-refused")
    status(use(rig, token, "/bound", headers=session("s1")), 200)
    status(use(rig, token, "/bound", headers=session("s2")), 403, "token-refused")
    eq(effects(rig, token), 1)
    status(use(rig, issue(rig), "/bound", headers=session("s1")), 403, "token-refused")  # the token has no binding
    status(use(rig, issue(rig), "/bound"), 403, "token-refused")  # and a missing binding does not match that
    status(rig.post("/token/bound", method="GET", body=b"", user="ann"), 400, "key-missing")


@test
def what_it_is_bound_to_may_stand_in_the_body(rig):
    token = json.loads(status(rig.post("/token/cart", user="ann", body=b'{"cart":"c1"}'), 200).body)["token"]
    status(use(rig, token, "/cart", body=b'{"cart":"c2"}'), 403, "token-refused")
    status(use(rig, token, "/cart", body=b"{}"), 403, "token-refused")
    status(use(rig, token, "/cart", body=b'{"cart":"c1"}'), 200)
    status(rig.post("/token/cart", user="ann", body=b"{}"), 400, "key-missing")
    eq(effects(rig, token), 1)


@test
def nobody_in_particular_gets_a_token_only_where_the_scope_is_none(rig):
    status(rig.post("/token", method="GET", body=b""), 400, "key-missing")
    token = issue(rig, "/token/anybody", user=None)
    status(use(rig, token, "/anybody", user=None), 200)
    status(use(rig, issue(rig, "/token/anybody", user=None)), 403, "token-refused")  # the scope of another user


@test
def two_hundred_at_once_with_one_token_run_once(rig):
    token = issue(rig)
    answers = together(200, lambda _: use(rig, token, "/wait", do={"delay": 0.2, "status": 201}))
    eq({a.status for a in answers}, {201})
    eq(sum(not a.replayed for a in answers), 1)
    eq(effects(rig, token), 1)


@test
def while_it_runs_it_is_busy(rig):
    token = issue(rig)
    name = fresh("hang")
    first = rig.later("/use", user="ann", headers=[("Idempotent-Token", token)], do={"hang": name})
    rig.backend.reached(name)
    status(use(rig, token), 409, "in-progress")
    rig.backend.go(name)
    status(first.get(), 200)


@test
def another_request_under_a_used_token_is_a_mismatch(rig):
    token = issue(rig)
    status(use(rig, token), 200)
    status(use(rig, token, body=b'{"a":2}'), 422, "mismatch")
    eq(effects(rig, token), 1)


@test
def a_run_that_failed_gives_the_token_back(rig):
    token = issue(rig)
    status(use(rig, token, do={"status": 500}), 500)
    status(use(rig, token, body=b'{"corrected":true}'), 200)  # the corrected form may differ
    eq(len(rig.backend.requests(key=token)), 2)


@test
def a_token_that_was_given_back_is_bound_as_before(rig):
    token = issue(rig, "/token/bound", headers=[("X-Session", "s1")])
    status(use(rig, token, "/bound", headers=[("X-Session", "s1")], do={"status": 500}), 500)
    status(use(rig, token, "/bound", headers=[("X-Session", "s2")]), 403, "token-refused")
    status(use(rig, token, "/bound", headers=[("X-Session", "s1")]), 200)


@test
def under_keep_it_is_gone_at_its_first_use(rig):
    token = issue(rig)
    first = status(use(rig, token, "/keep", do={"status": 500, "body": "no"}), 500)
    replay_of(first, use(rig, token, "/keep"))
    eq(len(rig.backend.requests(key=token)), 1)


@test
def under_keep_and_reject_it_has_failed_for_good(rig):
    token = issue(rig)
    status(use(rig, token, "/keep/reject", do={"status": 500}), 500)
    status(use(rig, token, "/keep/reject"), 409, "failed")
    status(use(rig, token, "/keep/reject", user="bob"), 403, "token-refused")
    eq(len(rig.backend.requests(key=token)), 1)


@test
def under_retry_it_runs_again_when_it_is_due_and_no_oftener_than_allowed(rig):
    token = issue(rig)
    status(use(rig, token, "/retry-later", do={"status": 500}), 500)
    answer = status(use(rig, token, "/retry-later", do={"status": 500}), 409, "in-progress")
    check(answer.h("Retry-After"), "when to come again")
    token = issue(rig)
    status(use(rig, token, "/retry", do={"status": 500}), 500)
    last = until_answer("it is due", lambda: use(rig, token, "/retry", do={"status": 500}), lambda a: a.status == 500)
    eq(len(rig.backend.requests(key=token)), 2)
    time.sleep(0.2)  # sleep: longer than the back-off, after which nothing may happen
    replay_of(last, use(rig, token, "/retry", do={"status": 500}))
    eq(len(rig.backend.requests(key=token)), 2)


@test
def a_run_that_vanished_leaves_its_token_uncertain(rig):
    token = issue(rig)
    status(use(rig, token, do={"fault": "rst"}), 502)
    status(use(rig, token), 409, "uncertain")
    eq(len(rig.backend.requests(key=token)), 1)


@test
def who_asks_for_too_many_is_refused_before_they_are_issued(rig):
    answers = [rig.post("/token/few", method="GET", body=b"", user="ann").status for _ in range(5)]
    eq((answers[0], set(answers[1:])), (200, {503}))


@test
def a_parameter_carries_it_where_that_is_allowed(rig):
    form = "application/x-www-form-urlencoded"
    token = issue(rig)
    status(rig.post(f"/use?ticket={token}", user="ann"), 400, "key-missing")
    first = status(rig.post(f"/param?ticket={token}", user="ann"), 200)
    replay_of(first, rig.post(f"/param?ticket={token}", user="ann"))
    token = issue(rig)
    body = f"item=1&ticket={token}".encode()
    first = status(rig.post("/param", user="ann", body=body, type=form), 200)
    replay_of(first, rig.post("/param", user="ann", body=body, type=form))
    token = issue(rig)
    status(use(rig, token, "/param"), 200)  # the header still works
    status(rig.post(f"/param?ticket={issue(rig)}", user="ann", headers=[("Idempotent-Token", issue(rig))]), 400, "key-malformed")
    token = issue(rig)
    status(rig.post(f"/param?ticket={token}", user="ann", headers=[("Idempotent-Token", token)]), 200)
    status(rig.post("/param", user="ann"), 400, "key-missing")
    body = f"ticket={issue(rig)}".encode()
    status(rig.post(f"/param?ticket={issue(rig)}", user="ann", body=body, type=form), 400, "key-malformed")


@test
def the_header_may_have_another_name(rig):
    token = issue(rig)
    status(use(rig, token, "/named"), 400, "key-missing")
    status(use(rig, token, "/named", name="X-Ticket"), 200)


@test
def a_token_and_a_key_of_the_same_bytes_never_meet(rig):
    status(rig.post("/plain", "chosen", user="ann"), 200)
    status(use(rig, "chosen"), 403, "token-refused")
    token = issue(rig)
    status(rig.post("/plain", token, user="ann"), 200)
    answer = status(use(rig, token), 200)
    check(not answer.replayed, "it is another's record")


@test
def a_guard_around_the_issue_is_none(rig):
    first, again = issue(rig, "/token/guarded", method="POST"), issue(rig, "/token/guarded", method="POST")
    check(first != again, "two tokens")


@test(stores="redis")
def a_store_that_is_down_issues_nothing_and_runs_nothing(rig):
    with Rig(CONF, http=ZONE, options="timeout=300ms&connect_timeout=300ms") as own:
        token = issue(own, "/token/sure")
        own.redis.kill()
        status(own.post("/token", method="GET", body=b"", user="ann"), 503, "store-unavailable")
        answer = status(use(own, token, "/open"), 503, "store-unavailable")
        check(answer.h("Retry-After"), "when to come again")
        eq(effects(own, token), 0)


@test(stores="lmdb")
def a_store_that_cannot_be_opened_issues_nothing_and_runs_nothing(rig):
    with Rig(CONF, http=ZONE, store="lmdb:/proc/no/such/folder?sync=off") as own:
        answer = status(own.post("/token", method="GET", body=b"", user="ann"), 503, "store-unavailable")
        eq(answer.h("Retry-After"), "1")
        status(use(own, "made-up", "/open"), 503, "store-unavailable")
        eq(effects(own, "made-up"), 0)


@test
def a_client_that_hangs_up_before_its_token_came_harms_nobody(rig):
    for _ in range(50):
        with Conn(rig.port) as conn:
            conn.send(rig.bytes("/token", method="GET", body=b"", user="ann"))
            conn.reset()
    issue(rig)


@test(stores="redis")
def a_store_that_does_not_answer_is_not_waited_for(rig):
    with Rig(CONF, http=ZONE, options="timeout=300ms&connect_timeout=300ms") as own:
        issue(own, "/token/sure")
        own.redis.pause()
        status(own.post("/token", method="GET", body=b"", user="ann"), 503, "store-unavailable")
        own.redis.go_on()  # the late response is ignored
        until_200("it issues again", lambda: own.post("/token", method="GET", body=b"", user="ann"))


@test(stores="redis")
def how_long_the_store_took_is_logged(rig):
    rid = fresh("rid")
    rig.redis.pause()
    with Conn(rig.port) as conn:
        conn.send(rig.bytes("/token", method="GET", body=b"", user="ann", rid=rid))
        rig.turn()
        time.sleep(0.3)  # sleep: the time that is logged
        rig.redis.go_on()
        answer = status(conn.answer("GET"), 200)
    took = float(rig.log(rid)["idem_time"])
    check(0.25 <= took <= answer.seconds + 0.05, f"{took} s of {answer.seconds}")


@test(stores="redis")
def a_client_that_leaves_while_the_store_is_asked_is_let_go(rig):
    rid = fresh("rid")
    rig.redis.pause()
    try:
        with Conn(rig.port) as conn:
            conn.send(rig.bytes("/token", method="GET", body=b"", user="ann", rid=rid))
            rig.turn()
            conn.reset()
        eq(rig.log(rid)["status"], "499")
    finally:
        rig.redis.go_on()
    issue(rig)


@test
def http2_gets_tokens_and_uses_them(rig):
    url, user = f"http://127.0.0.1:{rig.h2port}", ("--http2-prior-knowledge", "-H", "X-User: ann")
    answer = status(curl(*user, url + "/token"), 200)
    eq(answer.version, "HTTP/2")
    token = json.loads(answer.body)["token"]
    status(curl(*user, "-H", f"Idempotent-Token: {token}", url + "/use", data=b"{}"), 200)
    eq(effects(rig, token), 1)


@test
def the_log_holds_no_token(rig):
    token = issue(rig)
    use(rig, token)
    use(rig, token, user="bob")
    check(token not in rig.said(), "a token in the error log")


if __name__ == "__main__":
    main(CONF, http=ZONE)
