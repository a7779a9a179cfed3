#!/usr/bin/env python3
"""Combinations of the guard with other directives: error pages, timeouts, shutdown, hostile responses."""
import os
import random
import sys
import time

sys.dont_write_bytecode = True

from rig import *
from tap import *

TIMEOUTS = ("send_timeout 100ms; client_body_timeout 10s; lingering_timeout 100ms; reset_timedout_connection on;"
            " keepalive_timeout 100ms;")
CONF = WATCH + "".join((
    "location @unguarded { proxy_pass http://@BACKEND@; }\n",
    "location /plain { proxy_pass http://@BACKEND@; }\n",
    guard("/pages", "idem replay; error_page 400 409 422 500 502 503 504 = @unguarded;"),
    guard("/unread", "idem replay; client_max_body_size 10k; client_body_buffer_size 4k; error_page 400 413 /sorry.html;"),
    guard("/unread-named", "idem replay; client_max_body_size 10k; client_body_buffer_size 4k;"
          " error_page 400 413 = @unguarded;"),
    "location = /sorry.html { root @TEMP@; }\n",
    guard("/fallback", "idem replay; error_page 502 504 = @unguarded;", to="proxy_pass http://@REFUSED@;"),
    guard("/guarded-fallback", "idem replay; error_page 502 504 = @guarded;", to="proxy_pass http://@REFUSED@;",
          prefix="gf:"),
    guard("@guarded", "idem replay;", prefix="gf:"),
    guard("/patient", "idem replay; idem_wait 1h;" + TIMEOUTS),
    guard("/lease", "idem replay; idem_lease 200ms;" + TIMEOUTS),
    guard("/after", "idem replay; idem_wait 1h; post_action /behind;"),
    "location /behind { internal; proxy_pass http://@BACKEND@; }\n",
    guard("/told", "idem replay; add_header X-Verdict $idem_verdict always; add_header X-Attempt $idem_attempt always;"),
    guard("/whoami", "auth_request /auth; auth_request_set $whom $upstream_http_x_user; idem replay; idem_scope $whom;"),
    "location = /auth { internal; proxy_pass http://@BACKEND@; proxy_pass_request_body off;"
    " proxy_set_header Content-Length ''; }\n",
    guard("/body-key", 'idem replay; idem_key "$request_body"; client_body_in_single_buffer on;'),
    guard("/accel", "idem replay;"),
    guard("/accel-max", "idem replay; idem_run_max 500ms;"),
    guard("/accel-rerun", "idem replay; idem_recover rerun; idem_backoff 50ms;"),
    "location /inside/ { internal; proxy_pass http://@BACKEND@; }\n",
    "location /inside-refused/ { internal; proxy_pass http://@REFUSED@; }\n",
    guard("/accel-ignored", "idem replay; proxy_ignore_headers X-Accel-Redirect; error_page 502 = @unguarded;"),
    guard("/accel-intercepted", "idem replay; proxy_intercept_errors on; recursive_error_pages on;"
          " error_page 500 = @unguarded;"),
    guard("/sorry", "idem replay; proxy_intercept_errors on; error_page 404 500 /sorry.html;"),
    guard("/memory", "idem replay; proxy_max_temp_file_size 0; proxy_buffers 4 4k; proxy_http_version 1.1;"),
    guard("/cached", "idem replay; proxy_cache odd; proxy_cache_methods POST; proxy_cache_valid any 1m;"
          " proxy_cache_key $request_uri;"),
    guard("/stale", "idem replay; proxy_cache odd; proxy_cache_methods POST; proxy_cache_valid 200 1s;"
          " proxy_cache_key $uri; proxy_cache_use_stale error timeout;"),
    guard("/upgraded", "idem replay; proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade;"
          " proxy_set_header Connection upgrade;"),
    guard("/11", "idem replay; proxy_http_version 1.1;"),
    guard("/wait", "idem replay; idem_wait 1h;"),
    guard("/limited", "idem replay; limit_conn conns 1; limit_conn_status 429;"),
    guard("/slow-in", "idem replay; limit_rate 100k;"),
    guard("/deep", "idem replay; sub_filter_types *; sub_filter serial SERIAL; gzip on; gzip_types *; gzip_min_length 1;"
          " gzip_proxied any; add_after_body /plain/after; addition_types *; ssi on; ssi_types *;"),
))
HTTP = "proxy_cache_path @TEMP@/cache keys_zone=odd:1m; limit_conn_zone $http_x_user zone=conns:1m;"


@test
def a_refusal_is_not_sent_to_the_backend_by_error_page(rig):
    key, name = fresh(), fresh("hang")
    ref = fresh("ref")
    answer = rig.post("/pages", None, ref=ref)
    eq(rig.backend.requests(ref=ref), [], f"no key, but the backend got it: {answer!r}")
    under_way = rig.later("/pages", key, do={"hang": name})
    rig.backend.reached(name)
    for body in (b'{"a":1}', b"other"):
        rig.post("/pages", key, body=body)
    rig.backend.go(name)
    under_way.get()
    rig.post("/pages", key, body=b"other")
    eq(len(rig.backend.requests(key=key)), 1, "requests at the backend")
    key = fresh()
    rig.post("/pages", key, do={"fault": "close"})
    rig.post("/pages", key)
    eq(len(rig.backend.requests(key=key)), 1, "requests at the backend")


@test
def a_body_that_cannot_be_read_is_told_by_error_page(rig):
    with open(rig.folder + "/sorry.html", "w", encoding="ascii") as file:
        file.write("sorry")
    head = "POST {} HTTP/1.1\r\nHost: x\r\nIdempotency-Key: {}\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"1000\r\n" + b"x" * 4096 + b"\r\n"
    for path in ("/unread", "/unread-named"):
        for body in (b"no size\r\n", chunk * 4):
            key = fresh()
            with Conn(rig.port) as conn:
                conn.send(head.format(path, key).encode())
                rig.turn()
                conn.send(body)
                answer = conn.answer()
            check(answer.status in (400, 413), repr(answer))
            eq(answer.body == b"sorry", path == "/unread", "a page that is a file is shown")
            eq(rig.backend.requests(key=key), [], "what reached the backend")


@test
def what_a_fallback_did_is_not_done_again(rig):
    """No byte was sent to the first server, so error_page may use another one: once."""
    for path in ("/fallback", "/guarded-fallback"):
        key = fresh()
        first = rig.post(path, key)
        again = rig.post(path, key)
        effects = rig.backend.effects(key=key)
        check(effects <= 1, f"{path}: {effects} effects: {first!r} {again!r}")
        check(first.status in (200, 502), repr(first))
        if first.status == 200:
            replay_of(first, again)


@test
def waiting_is_not_sending(rig):
    """Timeouts of the connection do not run while a request is parked, or while its upstream works."""
    key, name = fresh(), fresh("hang")
    under_way = [rig.later("/patient", key, do={"hang": name}) for _ in range(6)]
    leased = fresh()
    first = rig.later("/lease", leased, do={"hang": name})
    rig.backend.reached(name, 2)
    rig.until_parked(5)
    time.sleep(0.3)  # sleep: longer than all of the timeouts, none of which may show
    rig.backend.go(name)
    answers = [u.get() for u in under_way]
    eq({a.status for a in answers}, {200})
    eq(rig.backend.effects(key=key), 1)
    replay_of(status(first.get(), 200), rig.post("/lease", leased))


@test
def what_nginx_does_behind_a_request_is_no_part_of_it(rig):
    key, name = fresh(), fresh("hang")
    under_way = rig.later("/after", key, do={"hang": name, "status": 500})
    rig.backend.reached(name)
    with Conn(rig.port) as conn:  # this duplicate waits for the first, and disconnects
        conn.send(rig.bytes("/after", key))
        rig.until_parked(1)
    until("the second location was requested", lambda: rig.backend.requests(key=key, path="/behind"))
    rig.backend.go(name)
    status(under_way.get(), 500)
    first = status(rig.post("/after", key), 200)
    eq((first.replayed, first.body), (False, rig.backend.requests(key=key, path="/after")[1].answer))
    replay_of(first, rig.post("/after", key))
    eq(rig.backend.effects(key=key, path="/after"), 2)


@test
def waiting_streams_are_not_idle(rig):
    key, name = fresh(), fresh("hang")
    with H2(rig.h2port) as h2:
        headers = [("idempotency-key", key), ("x-do", json.dumps({"hang": name}))]
        streams = [h2.post("/patient", headers, b"x") for _ in range(5)]
        rig.until_parked(4)
        time.sleep(0.3)  # sleep: longer than the timeouts, none of which may show
        rig.backend.go(name)
        h2.until_end(streams[-1])
    eq(rig.backend.effects(key=key), 1)


@test
def variables_tell_the_verdict_in_headers(rig):
    key = fresh()
    seen = [(rig.post("/told", key).h("X-Verdict"), rig.post("/told", key).h("X-Verdict"),
             rig.post("/told", key, body=b"o").h("X-Verdict"), rig.post("/told").h("X-Verdict"))]
    eq(seen[0][:2], ("run", "replay"))
    check(seen[0][2] in ("mismatch", None) and seen[0][3] in ("missing", None), str(seen))


@test
def a_scope_may_come_from_the_authorization(rig):
    key = fresh()
    answers = []
    for user in ("ann", "bob", "ann"):
        rig.backend.script("/auth", {"status": 200, "headers": [["X-User", user]]})
        answers.append(status(rig.post("/whoami", key), 200))
    eq([a.replayed for a in answers], [False, False, True])
    eq(answers[0].body, answers[2].body)
    rig.backend.script("/auth", {"status": 200})
    status(rig.post("/whoami", key), 400, "key-missing")


@test
def the_body_itself_may_be_the_key(rig):
    body = fresh().encode()
    first = status(rig.post("/body-key", body=body, type="text/plain"), 200)
    replay_of(first, rig.post("/body-key", body=body, type="text/plain"))
    status(rig.post("/body-key", body=b""), 400)
    answer = rig.post("/body-key", body=pattern(100000), type="text/plain")
    check(answer.status in (200, 400), repr(answer))


@test
def an_accel_redirect_to_a_proxy_is_captured(rig):
    rig.backend.script("/inside/doc", {"body": "the document", "headers": [["ETag", '"d"']]})
    key = fresh()
    first = status(rig.post("/accel", key, do={"headers": [["X-Accel-Redirect", "/inside/doc"]]}), 200)
    eq(first.body, b"the document")
    again = rig.post("/accel", key)
    if again.status == 200:
        replay_of(first, again)
    else:
        status(again, 409, "duplicate")
    eq(rig.backend.effects(key=key, path="/accel"), 1)
    key = fresh()
    rig.backend.script("/inside/bad", {"status": 500})
    rig.post("/accel", key, do={"headers": [["X-Accel-Redirect", "/inside/bad"]]})
    rig.post("/accel", key)
    check(rig.backend.effects(key=key, path="/accel") <= 2, "effects")
    key = fresh()
    answer = rig.post("/accel", key, do={"headers": [["X-Accel-Redirect", "/no/such/place"]]})
    check(answer.status >= 400, repr(answer))
    key = fresh()
    rig.backend.script("/inside/loop", {"headers": [["X-Accel-Redirect", "/inside/loop"]]})
    answer = rig.post("/accel", key, do={"headers": [["X-Accel-Redirect", "/inside/loop"]]})
    eq(answer.status, 500)
    eq(rig.backend.effects(key=key, path="/accel"), 1)


@test
def what_an_accel_redirect_cannot_get_is_not_run_again(rig):
    rig.backend.script("/inside/broken", {"status": 500})
    rig.backend.script("/inside/busy", {"status": 429})
    for place, code in (("/inside-refused/", 502), ("/inside/broken", 500), ("/inside/busy", 429)):
        key = fresh()
        status(rig.post("/accel", key, do={"headers": [["X-Accel-Redirect", place]]}), code)
        status(rig.post("/accel", key), 409, "uncertain")
        eq(rig.backend.effects(key=key, path="/accel"), 1, place)


@test
def the_backend_is_heard_beside_its_accel_redirect(rig):
    rig.backend.script("/inside/fine", {"status": 200})
    rig.backend.script("/inside/broken", {"status": 500})
    for place, word, effects in (("fine", "release", 2), ("broken", "done", 1), ("broken", "release", 2),
                                 ("fine", "unknown", 1)):
        key = fresh()
        answer = rig.post("/accel", key, do={"headers": [["X-Accel-Redirect", "/inside/" + place],
                                                         ["Idem-Outcome", word]]})
        eq(answer.all("Idem-Outcome"), [])
        rig.post("/accel", key)
        eq(rig.backend.effects(key=key, path="/accel"), effects, f"effects of {word}")


@test
def what_is_said_beside_an_accel_redirect_holds_without_the_answer(rig):
    """nginx's own page is not stored as a result; and a done request does not run again."""
    hang, pause = fresh("hang"), fresh("hang")
    rig.backend.script("/inside/hang", {"hang": hang})
    rig.backend.script("/inside/pause", {"size": 1000, "pause": [500, pause]})
    rig.backend.script("/inside/cut", {"size": 1000, "truncate": 500})
    for path, place, code, name in (("/accel-max", "/inside/hang", 504, hang), ("/accel-max", "/inside/pause", 504, pause),
                                    ("/accel-rerun", "/inside/cut", 502, None), ("/accel-rerun", "/inside-refused/", 502, None)):
        for word, effects in (("done", 1), ("release", 2)):
            def asked(path=path, place=place, name=name, word=word):
                """Returns (key, answer). If the timeout ends before the redirect, the test begins another request."""
                key, before = fresh(), rig.backend.arrivals[name]
                under_way = rig.later(path, key, do={"headers": [["X-Accel-Redirect", place], ["Idem-Outcome", word]]})
                until("it is led on, or ends", lambda: rig.backend.arrivals[name] > before or under_way.done())
                return (key, under_way.get()) if name is None or rig.backend.arrivals[name] > before else None
            key, answer = until("it is led on", asked)
            check(status(answer, code).complete, repr(answer))
            again = rig.post(path, key)
            if word == "done":
                status(again, 409, "duplicate")
            else:
                check(again.status == 200 and not again.replayed, repr(again))
            eq(rig.backend.effects(key=key, path=path), effects, f"effects of {word}, {place}")
    rig.backend.go(hang)
    rig.backend.go(pause)


@test
def a_second_backends_own_word_is_not_held_against_its_cut(rig):
    rig.backend.script("/inside/said", {"size": 1000, "truncate": 500, "headers": [["Idem-Outcome", "release"]]})
    key = fresh()
    do = {"headers": [["X-Accel-Redirect", "/inside/said"], ["Idem-Outcome", "done"]]}
    status(rig.post("/accel", key, do=do), 502, "uncertain")
    status(rig.post("/accel", key), 409, "uncertain")
    eq(rig.backend.effects(key=key, path="/accel"), 1)


@test
def what_comes_behind_an_interim_head_is_not_known(rig):
    """nginx takes the interim head for the response."""
    for do in ({"interim": True}, {"interim": True, "status": 500}, {"status": 103}, {"status": 101}):
        for path in ("/accel", "/11"):
            key = fresh()
            rig.post(path, key, do=do)
            status(rig.post(path, key), 409, "uncertain")
            eq(rig.backend.effects(key=key), 1)


@test
def a_redirect_that_nginx_does_not_follow_opens_no_second_backend(rig):
    place = [["X-Accel-Redirect", "/inside/fine"]]
    for path, do in (("/accel-ignored", {"size": 10, "fault": "close"}), ("/accel-intercepted", {"status": 500})):
        key = fresh()
        rig.post(path, key, do=dict(do, headers=place))
        eq(len(rig.backend.requests(key=key)), 1, f"requests at a backend of {path}")
    key = fresh()
    first = status(rig.post("/accel-ignored", key, do={"headers": place}), 200)
    replay_of(first, rig.post("/accel-ignored", key))
    eq(len(rig.backend.requests(key=key)), 1)


@test
def the_backend_is_heard_behind_an_error_page(rig):
    with open(rig.folder + "/sorry.html", "w", encoding="ascii") as file:
        file.write("sorry")
    for code, word, effects in ((500, "done", 1), (500, "keep", 1), (500, "unknown", 1), (404, "release", 2),
                                (500, "release", 2)):
        key = fresh()
        answer = status(rig.post("/sorry", key, do={"status": code, "headers": [["Idem-Outcome", word]]}), code)
        eq((answer.body, answer.all("Idem-Outcome")), (b"sorry", []))
        rig.post("/sorry", key)
        eq(rig.backend.effects(key=key), effects, f"effects of {code} {word}")


@test
def without_temporary_files_answers_are_whole(rig):
    for size in (100, 100000, 900000, 3 << 20):
        key = fresh()
        first = status(rig.post("/memory", key, do={"size": size}), 200)
        eq(first.body, rig.backend.requests(key=key)[0].answer)
        again = rig.post("/memory", key)
        check(again.replayed or again.type == "duplicate", f"{again!r:.200}")
        eq(rig.backend.effects(key=key), 1)


@test
def an_answer_from_a_cache_has_no_effect_to_remember(rig):
    one, two = fresh(), fresh()
    uri = "/cached?" + fresh()
    first = status(rig.post(uri, one), 200)
    second = status(rig.post(uri, two), 200)
    eq(second.body, first.body, "from nginx's cache")
    replay_of(first, rig.post(uri, one))
    eq(status(rig.post(uri, two), 200).body, first.body)  # from nginx's cache; the key may be released
    eq(rig.backend.effects(path="/cached"), 1)


@test
def a_log_for_debugging_breaks_nothing(rig):
    with Rig(guard("/debug", "idem replay; idem_wait 1s;"), main="error_log @TEMP@/debug.log debug;") as other:
        key = fresh()
        first = status(other.post("/debug", key), 200)
        replay_of(first, other.post("/debug", key))
        check(other.reload(), "workers go")
        status(other.post("/debug", fresh()), 200)


@test
def a_stale_answer_from_a_cache_is_not_what_came_of_it(rig):
    status(rig.post("/stale", fresh()), 200)
    time.sleep(2.1)  # sleep: the cached response is valid for one second of nginx's clock; a request would renew it
    key = fresh()
    status(rig.post("/stale", key, do={"fault": "close"}), 200)
    status(rig.post("/stale", key), 409, "uncertain")
    eq(rig.backend.effects(key=key), 1)


@test
def a_connection_that_is_switched_begins_with_its_head(rig):
    key = fresh()
    with Conn(rig.port) as conn:
        conn.send(rig.bytes("/upgraded", key, headers=[("Upgrade", "x")], close=False,
                            do={"status": 101, "frame": "close", "body": "raw"}))
        said = b""
        while not said.endswith(b"raw"):
            said += conn.sock.recv(4096) or b"END"
            check(b"END" not in said, repr(said))
        check(said.startswith(b"HTTP/1.1 101"), repr(said))
    status(until_answer("done", lambda: rig.post("/upgraded", key), lambda a: a.type != "in-progress"), 409, "duplicate")
    eq(rig.backend.effects(key=key), 1)


@test
def hostile_answers_break_nothing(rig):
    for do in ({"headers": [["Content-Type", "text/plain"], ["Content-Type", "text/html"]]},
               {"headers": [["Location", ""], ["ETag", ""], ["Link", ""]]},
               {"headers": [["Location", "http://a/\xe9\xff"]]},
               {"headers": [["Last-Modified", "not a date"], ["ETag", "unquoted"]]},
               {"headers": [["Content-Encoding", "gzip"]], "body": "this is not gzip"},
               {"headers": [["Content-Encoding", "gzip, br"]], "body": "nor this"},
               {"headers": [["Content-Encoding", "identity"]]},
               {"headers": [["Content-Range", "bytes 0-3/10"]], "status": 206},
               {"headers": [["Idempotent-Replayed", "true"], ["Idem-Lost", "true"], ["Idem-Guard", "open"]]},
               {"headers": [["Idem-Outcome", "x" * 3000]]}, {"headers": [["Retry-After", "5"]] * 50},
               {"type": "", "body": "x"}, {"type": "text/plain; charset=" + "x" * 500},
               {"headers": [["X-Accel-Expires", "0"], ["X-Accel-Limit-Rate", "1000000"], ["X-Accel-Charset", "utf-8"]]}):
        for accept in ([], [("Accept-Encoding", "gzip")]):
            key = fresh()
            first = rig.post("/11", key, do=do, headers=accept)
            check(first.status in (200, 206), f"{do}: {first!r}")
            eq(first.all("Idem-Outcome"), [])
            again = rig.post("/11", key, headers=accept)
            check(again.status in (200, 206, 409, 502), f"{do}: {again!r}")
            check(rig.backend.effects(key=key) == 1, f"effects of {do}")
            if not do.get("headers") or do["headers"][0][0] != "Content-Encoding":
                replay_of(first, again)


@test
def more_than_was_promised_is_cut(rig):
    key = fresh()
    do = {"body": "0123456789", "frame": "close", "headers": [["Content-Length", "5"]]}
    first = rig.post("/11", key, do=do)
    eq((first.status, first.body), (200, b"01234"))
    again = rig.post("/11", key)
    check(again.status in (200, 409) and rig.backend.effects(key=key) == 1, repr(again))
    if again.status == 200:
        replay_of(first, again)


@test
def limits_of_connections_apply(rig):
    key, name = fresh(), fresh("hang")
    under_way = rig.later("/limited", key, user="u", do={"hang": name})
    rig.backend.reached(name)
    status(rig.post("/limited", fresh(), user="u"), 429)
    rig.backend.go(name)
    first = status(under_way.get(), 200)
    replay_of(first, until_200("the connection is gone", lambda: rig.post("/limited", key, user="u")))


@test
def a_limited_rate_is_kept_and_whole(rig):
    """nginx counts whole seconds of its clock: at the turn of a second the bytes of two seconds may go out at once.
    This response takes three."""
    key = fresh()
    for _ in range(2):
        answer = status(rig.post("/slow-in", key, do={"size": 300000}), 200)
        check(answer.complete and len(answer.body) == 300000, "whole")
        check(answer.seconds > 0.5, f"{answer.seconds:.2f} s")
    eq(rig.backend.effects(key=key), 1)


@test
def many_filters_at_once_are_no_trouble(rig):
    rig.backend.script("/plain/after", {"body": "]", "effect": False})
    for size in (100, 50000):
        key = fresh()
        first = status(rig.post("/deep", key, do={"size": size, "type": "text/html"}), 200)
        again = status(rig.post("/deep", key), 200)
        check(again.replayed and first.complete and again.complete, "both are whole")
        eq(again.body, first.body)
        eq(rig.backend.effects(key=key, path="/deep"), 1)


@test
def a_worker_that_is_made_to_go_leaves_its_runs_held(rig):
    """worker_shutdown_timeout closes the connection of a run, which must not run again for that."""
    with Rig(WATCH + guard("/hold", "idem replay; idem_lease 1s;")
             + guard("/wait", "idem replay; idem_wait 1h; idem_lease 1s;"), main="worker_shutdown_timeout 300ms;") as other:
        keys, name = [fresh(), fresh()], fresh("hang")
        under_way = [other.later("/hold", keys[0], do={"hang": name}), other.later("/wait", keys[1], do={"hang": name})]
        other.backend.reached(name, 2)
        parked = [other.later("/wait", keys[1]) for _ in range(4)]
        until("they are parked, or were", lambda: other.figures()["parked"] + sum(p.done() for p in parked) == 4)
        other.are_gone(other.reload())
        for later in under_way + parked:
            answer = later.get()
            check(answer.status in (None, 409, 502, 504), repr(answer))
        other.backend.go(name)
        for prefix in ("hold:", "wait:"):
            other.until_lease_over(prefix)
        for path, key in zip(("/hold", "/wait"), keys):
            status(other.post(path, key), 409, "uncertain")
            eq(other.backend.effects(key=key), 1)


@test
def a_quick_end_is_quick(rig):
    """SIGTERM does not wait; the unfinished run is held."""
    # nginx kills a worker that does not exit within a second or two, which happens on a busy machine.
    with Rig(guard("/hold", "idem replay; idem_lease 500ms;"), expects=["exited on signal 9"]) as other:
        key, name = fresh(), fresh("hang")
        under_way = other.later("/hold", key, do={"hang": name})
        other.backend.reached(name)
        other.process.terminate()
        other.process.wait(LIMIT)  # the backend still hangs
        eq(under_way.get().status, None)
        other.backend.go(name)
        other.until_lease_over("hold:")
        other.start()
        status(other.post("/hold", key), 409, "uncertain")
        eq(other.backend.effects(key=key), 1)


@test
def a_changed_policy_takes_over_what_is_there(rig):
    with Rig(guard("/a", "idem replay; idem_fingerprint none;")) as other:
        done, lost = fresh(), fresh()
        status(other.post("/a", done), 200)
        status(other.post("/a", lost, do={"fault": "close"}), 502)
        with open(other.conf, encoding="utf-8") as file:
            text = file.read()
        with open(other.conf, "w", encoding="utf-8") as file:
            file.write(text.replace("idem replay; idem_fingerprint none;",
                                    "idem reject; idem_recover rerun; idem_fingerprint body;"))
        other.are_gone(other.reload())
        status(other.post("/a", done), 409, "duplicate")
        until_200("the back-off is over", lambda: other.post("/a", lost))


@test
def odd_bytes_in_every_header_break_nothing(rig):
    chance = random.Random(11)
    alphabet = [chr(c) for c in range(1, 256) if c not in (10, 13)] + ['"', "\\", ";", ",", "=", '"', "\\"] * 8
    for _ in range(400):
        def text(most=40):
            return "".join(chance.choice(alphabet) for _ in range(chance.randrange(most)))
        headers = [("Accept", text()), ("Accept-Encoding", text()), ("Content-Type", text()), ("Cookie", text()),
                   ("Idem-X", text())]
        key = chance.choice((text(), '"' + text() + '"', '"' + text(), text(300)))
        answer = send(rig.port, request("POST", "/11?" + "".join(chance.choice("&=%a+") for _ in range(8)),
                                        [("Idempotency-Key", key), *headers], b"x"))
        check(answer.status in (200, 400, 422), f"{key!r} {headers}: {answer!r}")
        check(answer.complete, repr(answer))


if __name__ == "__main__":
    main(CONF, http=HTTP)
