#!/usr/bin/env python3
"""The outcome of a run: for every kind of response, and for every failure to get one."""
import gzip
import sys
import time

sys.dont_write_bytecode = True

from rig import *
from tap import *

CHOSEN = "proxy_pass http://127.0.0.1:$http_x_port;"
CONF = "".join((
    guard("/hidden", "idem replay; proxy_hide_header Idem-Outcome;"),
    guard("/replay", "idem replay;"),
    guard("/11", "idem replay; proxy_http_version 1.1;"),
    guard("/chosen", "idem replay; proxy_connect_timeout 500ms;", to=CHOSEN),
    guard("/keep", "idem replay; idem_on_failure keep;"),
    guard("/payment", "idem_preset payment;"),
    guard("/slow", "idem replay; proxy_read_timeout 300ms;"),
    guard("/rerun", "idem replay; idem_fingerprint body; idem_recover rerun; idem_backoff 100ms;"),
    guard("/rerun-slow", "idem replay; idem_fingerprint body; idem_recover rerun; idem_backoff 100ms;"
          " proxy_read_timeout 300ms;", prefix="rerun:"),
    guard("/listed", "idem replay; idem_release_status 404 429;"),
    guard("/small", "idem replay; idem_result_max 1k; proxy_http_version 1.1;"),
    guard("/unbuffered", "idem replay; proxy_buffering off; proxy_http_version 1.1;"),
    guard("/rejected", "idem reject;"),
    guard("/tiny", "idem replay; proxy_buffer_size 4k; proxy_buffers 2 4k; proxy_busy_buffers_size 4k;"
          " proxy_http_version 1.1;"),
    guard("/tls", "idem replay;", to="proxy_pass https://@TLS@/plain;"),
    guard("/no-tls", "idem replay; idem_fingerprint none;", to="proxy_pass https://@SELF@;", prefix="no-tls:"),
    guard("/chain", "idem replay;", to="proxy_pass http://@SELF@/replay;"),
    "location /plain { proxy_pass http://@BACKEND@; }\n",
    guard("/named", "idem replay;", to="set $where nowhere.invalid; proxy_pass http://$where;"),
))


def stays(rig, path, key, first, **options):
    """Checks that the key is done: the next request is a replay."""
    replay_of(first, rig.post(path, key, **options))
    eq(rig.backend.effects(key=key), 1, "effects")


def runs_again(rig, path, key, **options):
    before = len(rig.backend.requests(key=key))
    answer, line = rig.logged(path, key, **options)
    check(status(answer, 200).replayed is False, repr(answer))
    eq(line["idem_verdict"], "run")
    eq(len(rig.backend.requests(key=key)), before + 1, "requests at the backend")
    return line


def is_uncertain(rig, path, key, **options):
    before = len(rig.backend.requests(key=key))
    status(rig.post(path, key, **options), 409, "uncertain")
    eq(len(rig.backend.requests(key=key)), before, "requests at the backend")


@test
def a_complete_answer_below_500_is_done(rig):
    for code in (200, 201, 202, 203, 204, 206, 300, 301, 303, 307, 400, 402, 403, 404, 405, 409, 410, 412,
                 413, 418, 422, 424, 426, 428, 431, 451, 299, 499):
        key = fresh()
        first = status(rig.post("/replay", key, do={"status": code}), code)
        stays(rig, "/replay", key, first)


@test
def statuses_that_ask_for_another_try_release(rig):
    for code in (401, 407, 408, 421, 423, 425, 429):
        key = fresh()
        answer, line = rig.logged("/replay", key, do={"status": code})
        status(answer, code)
        eq(line["idem_verdict"], "run")
        eq(runs_again(rig, "/replay", key)["idem_attempt"], "1")


@test
def the_releasing_statuses_are_a_directive(rig):
    for code, releases in ((404, True), (429, True), (401, False), (408, False)):
        key = fresh()
        first = status(rig.post("/listed", key, do={"status": code}), code)
        if releases:
            runs_again(rig, "/listed", key)
        else:
            stays(rig, "/listed", key, first)


@test
def a_500_is_released_by_default(rig):
    for code in (500, 501, 503, 505, 507, 511, 599):
        key = fresh()
        status(rig.post("/replay", key, do={"status": code}), code)
        runs_again(rig, "/replay", key)


@test
def a_500_may_be_kept(rig):
    for code in (500, 503):
        for path in ("/keep", "/payment"):
            key = fresh()
            first = status(rig.post(path, key, do={"status": code}), code)
            stays(rig, path, key, first)


@test
def a_502_or_504_of_the_upstream_is_unknown(rig):
    for path in ("/replay", "/keep"):
        for code in (502, 504):
            key = fresh()
            answer = status(rig.post(path, key, do={"status": code}), code)
            eq(answer.body, rig.backend.requests(key=key)[0].answer, "the upstream's own answer")
            is_uncertain(rig, path, key)


@test
def a_connection_that_is_refused_releases(rig):
    key = fresh()
    answer, line = rig.logged("/chosen", key, headers=[("X-Port", str(rig.refused))])
    status(answer, 502)
    eq(line["idem_verdict"], "run")
    eq(runs_again(rig, "/chosen", key, headers=[("X-Port", str(rig.backend.port))])["idem_attempt"], "1")
    eq(rig.backend.effects(key=key), 1)


@test
def a_connection_that_times_out_releases(rig):
    hole, key = Blackhole(), fresh()
    status(rig.post("/chosen", key, headers=[("X-Port", str(hole.port))]), 504)
    runs_again(rig, "/chosen", key, headers=[("X-Port", str(rig.backend.port))])
    hole.close()


@test
def a_name_that_is_not_found_releases(rig):
    key = fresh()
    for _ in range(2):
        answer = rig.post("/named", key)
        check(answer.status in (502, 503), repr(answer))


@test
def an_upstream_with_tls_is_guarded_alike(rig):
    key = fresh()
    first = status(rig.post("/tls", key, do={"size": 100000}), 200)
    stays(rig, "/tls", key, first)
    key = fresh()
    status(rig.post("/tls", key, do={"size": 1000, "truncate": 500}), 502)
    is_uncertain(rig, "/tls", key)


@test
def a_handshake_that_fails_has_sent_nothing(rig):
    key = fresh()
    for _ in range(2):
        answer, line = rig.logged("/no-tls", key)
        status(answer, 502)
        eq((line["idem_verdict"], line["idem_attempt"]), ("run", "1"))


@test
def gateways_may_stand_in_a_row(rig):
    key = fresh()
    first = status(rig.post("/chain", key, headers=[("Idem-Attempt", "5")]), 200)
    again = replay_of(first, rig.post("/chain", key))
    eq(rig.backend.effects(key=key), 1, "effects")
    seen, = rig.backend.requests(key=key)
    eq((seen.all("Idem-Attempt"), len(seen.all("Idem-Downstream-Key")), len(seen.all("Idempotency-Key"))), (["1"], 1, 1))
    # The first response of the outer gateway is the inner one's replay.
    inner = fresh()
    status(rig.post("/replay", inner), 200)
    outer = rig.post("/chain", inner)
    eq(len(outer.all("Idempotent-Replayed")), 1)
    eq(len(rig.post("/chain", inner).all("Idempotent-Replayed")), 1)
    eq(rig.backend.effects(key=inner), 1, "effects")


@test
def a_kept_failure_needs_an_answer(rig):
    """No byte was sent, so on_failure does not apply."""
    with Rig(guard("/", "idem_preset payment; proxy_next_upstream off;",
                   to="proxy_pass http://127.0.0.1:$http_x_port;")) as other:
        key = fresh()
        status(other.post("/a", key, headers=[("X-Port", str(other.refused))]), 502)
        status(other.post("/a", key, headers=[("X-Port", str(other.backend.port))]), 200)


@test
def bytes_sent_and_no_answer_is_unknown(rig):
    for do in ({"fault": "close"}, {"fault": "rst"}, {"fault": "garbage"}, {"fault": "bighead"}, {"read": 3}):
        for path in ("/replay", "/11", "/payment"):
            key = fresh()
            status(rig.post(path, key, do=do), 502)
            is_uncertain(rig, path, key)


@test
def an_answer_that_does_not_come_is_unknown(rig):
    key, name = fresh(), fresh("hang")
    status(rig.post("/slow", key, do={"hang": name}), 504)
    rig.backend.reached(name)  # the backend may be slower than nginx's timeout
    is_uncertain(rig, "/slow", key)
    rig.backend.go(name)
    until("the backend has answered", lambda: rig.backend.requests(key=key)[0].outcome)
    rig.turn()
    is_uncertain(rig, "/slow", key)
    eq(rig.backend.effects(key=key), 1)


@test
def a_truncated_answer_is_unknown_and_not_passed_on(rig):
    for path in ("/11", "/replay", "/tiny"):
        for do in ({"size": 1000, "truncate": 500}, {"size": 200000, "truncate": 150000},
                   {"size": 1000, "truncate": 0}, {"size": 3000, "truncate": 2999, "frame": "chunked"},
                   {"size": 100000, "truncate": 90000, "frame": "chunked"}):
            if path == "/replay" and do.get("frame"):
                continue
            key = fresh()
            answer = status(rig.post(path, key, do=do), 502, "uncertain")
            check(answer.complete, "a whole page")
            check(b"nothing was run" not in answer.body, repr(answer))
            is_uncertain(rig, path, key)
            eq(rig.backend.effects(key=key), 1)


@test
def what_vanished_is_run_again_where_the_policy_says_so(rig):
    name = fresh("hang")
    for do in ({"fault": "close"}, {"fault": "rst"}, {"hang": name}, {"size": 1000, "truncate": 500},
               {"status": 502}, {"status": 504}):
        key = fresh()
        answer = rig.post("/rerun-slow" if "hang" in do else "/rerun", key, do=do)
        check(answer.status in (502, 504), repr(answer))
        if "hang" in do:
            rig.backend.reached(name)  # the backend may be slower than nginx's timeout
        line = until("it runs again", lambda key=key: (lambda answer, line: line if answer.status == 200 else None)(
            *rig.logged("/rerun", key)))
        eq((line["idem_verdict"], line["idem_attempt"]), ("run", "2"))
        eq(len(rig.backend.requests(key=key)), 2, "requests at the backend")
        replay_of(rig.post("/rerun", key), rig.post("/rerun", key))
        eq(len({s.h("Idem-Downstream-Key") for s in rig.backend.requests(key=key)}), 1)


def cut_short(do, name):
    """Returns the rig, the key, the response and the log line of a run that nginx ends while its backend hangs. The
    test moves nginx's clock once the backend has the request."""
    own = Rig(guard("/bounded", "idem replay; idem_run_max 1h; proxy_read_timeout 1d;"), clock=True)
    key, rid = fresh(), fresh("rid")
    late = own.later("/bounded", key, rid=rid, do=do)
    own.backend.reached(name)
    own.clock.set(ahead_ms=2 * 3600 * 1000)
    own.turn()
    return own, key, late.get(), own.log(rid)


@test
def a_run_has_an_end(_rig):
    name = fresh("hang")
    own, key, answer, line = cut_short({"hang": name}, name)
    with own:
        status(answer, 504)  # while the backend hangs
        eq(line["idem_verdict"], "cancelled")
        seen, = own.backend.requests(key=key)
        until("the backend's connection is closed", lambda: seen.left is not None)
        is_uncertain(own, "/bounded", key)
        own.backend.go(name)


@test
def a_run_has_an_end_also_in_the_middle_of_its_answer(_rig):
    name = fresh("hang")
    own, key, answer, _ = cut_short({"size": 1000, "pause": [500, name]}, name)
    with own:
        check(answer.status in (502, 504), repr(answer))
        is_uncertain(own, "/bounded", key)
        own.backend.go(name)


@test
def the_backend_can_say_that_it_is_done(rig):
    for code in (500, 502, 429, 401):
        key = fresh()
        first = status(rig.post("/replay", key, do={"status": code, "headers": [["Idem-Outcome", "done"]]}), code)
        stays(rig, "/replay", key, first)


@test
def the_backend_can_release(rig):
    for path, code in (("/replay", 200), ("/replay", 404), ("/payment", 500), ("/replay", 502)):
        key = fresh()
        status(rig.post(path, key, do={"status": code, "headers": [["Idem-Outcome", "release"]]}), code)
        runs_again(rig, path, key)


@test
def the_backend_can_keep_a_failure(rig):
    for code in (200, 429, 500, 503, 504):
        key = fresh()
        first = status(rig.post("/replay", key, do={"status": code, "headers": [["Idem-Outcome", "keep"]]}), code)
        stays(rig, "/replay", key, first)


@test
def the_backend_can_say_that_it_does_not_know(rig):
    for code in (200, 500, 429):
        key = fresh()
        status(rig.post("/replay", key, do={"status": code, "headers": [["Idem-Outcome", "unknown"]]}), code)
        is_uncertain(rig, "/replay", key)


@test
def what_the_backend_tells_the_gateway_is_stripped(rig):
    ours = [["Idem-Outcome", "done"], ["idem-ttl", "60"], ["IDEM-STORE", "yes"]]
    key = fresh()
    for answer in (rig.post("/replay", key, do={"headers": ours}), rig.post("/replay", key)):
        status(answer, 200)
        eq([n for n, _ in answer.headers if n.lower().startswith("idem-")], [])


@test
def what_the_backend_tells_may_be_hidden_besides(rig):
    key = fresh()
    answer = rig.post("/hidden", key, do={"status": 500, "headers": [["Idem-Outcome", "done"], ["X-A", "b"]]})
    eq((answer.status, answer.h("X-A"), answer.h("Idem-Outcome")), (500, "b", None))
    replay_of(answer, rig.post("/hidden", key))
    eq(rig.backend.effects(key=key), 1)


@test
def an_outcome_that_nobody_knows_changes_nothing(rig):
    for word in ("", "maybe", "DONE!", "done, release"):
        key = fresh()
        first = status(rig.post("/replay", key, do={"headers": [["Idem-Outcome", word]]}), 200)
        eq(first.all("Idem-Outcome"), [])
        stays(rig, "/replay", key, first)


@test
def the_backend_can_say_how_long_it_is_remembered(rig):
    key, kept, began = fresh(), fresh(), time.monotonic()
    first = rig.post("/replay", key, do={"headers": [["Idem-Ttl", "1"]]})
    last = rig.post("/replay", kept, do={"headers": [["Idem-Ttl", "nonsense"]]})
    eq(first.all("Idem-Ttl"), [])
    again = until_answer("it is forgotten", lambda: rig.post("/replay", key), lambda a: not a.replayed)
    took = time.monotonic() - began
    check(took > 0.95, f"after {took} s")
    eq((status(again, 200).body, rig.backend.effects(key=key)), (rig.backend.requests(key=key)[1].answer, 2))
    stays(rig, "/replay", kept, last)


@test
def an_odd_life_time_breaks_nothing(rig):
    for value in ("0", "-1", "1.5", "99999999999999999999", "", "1s", "315360000"):
        key = fresh()
        status(rig.post("/replay", key, do={"headers": [["Idem-Ttl", value]]}), 200)
        status(rig.post("/replay", key), 200)
        check(rig.backend.effects(key=key) == 1 or value == "0", f"remembered: {value!r}")


@test
def the_backend_can_ask_that_its_answer_is_not_stored(rig):
    key = fresh()
    first = status(rig.post("/replay", key, do={"status": 201, "headers": [["Idem-Store", "no"]]}), 201)
    eq(first.all("Idem-Store"), [])
    answer = status(rig.post("/replay", key), 409, "duplicate")
    eq(answer.problem["first_status"], 201)
    eq(rig.backend.effects(key=key), 1)


@test
def an_answer_over_the_limit_flows_whole_and_is_never_run_again(rig):
    for do in ({"size": 5000}, {"size": 300000}, {"size": 5000, "frame": "chunked"},
               {"size": 300000, "frame": "chunked"}, {"size": 300000, "frame": "close"}):
        key = fresh()
        first = status(rig.post("/small", key, do=dict(do, status=201)), 201)
        check(first.complete, f"whole: {do}")
        eq(first.body, rig.backend.requests(key=key)[0].answer, f"the body of {do}")
        answer = status(rig.post("/small", key), 409, "duplicate")
        eq(answer.problem["first_status"], 201)
        eq(rig.backend.effects(key=key), 1)


@test
def an_answer_over_the_default_limit_flows_whole(rig):
    key = fresh()
    first = status(rig.post("/replay", key, do={"size": 3 << 20}), 200)
    eq(first.body, rig.backend.requests(key=key)[0].answer)
    status(rig.post("/replay", key), 409, "duplicate")


@test
def a_slow_reader_gets_all_of_it(rig):
    for path, size in (("/small", 3 << 20), ("/replay", 900000)):
        key = fresh()
        for _ in range(2):
            with Conn(rig.port) as conn:
                conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
                conn.send(rig.bytes(path, key, do={"size": size}))
                time.sleep(0.1)  # sleep: the client reads late
                answer = conn.answer()
                if path == "/small" and answer.status == 409:
                    continue
                check(answer.complete, f"whole: {answer!r:.300}")
                eq(answer.body, rig.backend.requests(key=key)[0].answer)
        eq(rig.backend.effects(key=key), 1)


@test
def an_answer_over_the_limit_is_done_before_it_has_ended(rig):
    key, name = fresh(), fresh("hang")
    with Conn(rig.port) as conn:
        conn.send(rig.bytes("/small", key, do={"size": 100000, "pause": [60000, name]}))
        rig.backend.reached(name)
        while len(conn.buffer) < 2000 and conn.more():
            pass
        check(len(conn.buffer) >= 2000, "it flows while the backend pauses")
        status(rig.post("/small", key), 409, "duplicate")
        rig.backend.go(name)
        eq(len(conn.answer().body), 100000)
    eq(rig.backend.effects(key=key), 1)


@test
def a_length_over_the_limit_is_known_by_the_head(rig):
    """The outcome is done before a byte of the body has arrived."""
    key, name = fresh(), fresh("hang")
    with Conn(rig.port) as conn:
        conn.send(rig.bytes("/small", key, do={"size": 100000, "pause": [0, name]}))
        rig.backend.reached(name)
        answer = until_answer("it is done", lambda: rig.post("/small", key), lambda a: a.type != "in-progress")
        status(answer, 409, "duplicate")
        rig.backend.go(name)
        eq(len(conn.answer().body), 100000)


@test
def a_failing_answer_over_the_limit_follows_on_failure(rig):
    key = fresh()
    first = status(rig.post("/small", key, do={"size": 50000, "status": 500}), 500)
    eq(len(first.body), 50000)
    runs_again(rig, "/small", key)


@test
def a_declared_stream_flows_at_once_and_is_done(rig):
    for do in ({"headers": [["X-Accel-Buffering", "no"]]},
               {"headers": [["X-Accel-Buffering", "no"]], "frame": "chunked"},
               {"type": "text/event-stream", "frame": "chunked"}, {"type": "text/event-stream; charset=utf-8", "frame": "chunked"}):
        key, name = fresh(), fresh("hang")
        with Conn(rig.port) as conn:
            conn.send(rig.bytes("/11", key, do=dict(do, size=1000, pause=[100, name])))
            rig.backend.reached(name)
            while b"00000000:" not in conn.buffer and conn.more():
                pass
            check(b"00000000:" in conn.buffer, "the first bytes came before the end")
            status(rig.post("/11", key), 409, "duplicate")
            rig.backend.go(name)
            answer = conn.answer()
            check(answer.complete and len(answer.body) == 1000, f"whole: {do}")
        status(rig.post("/11", key), 409, "duplicate")
        eq(rig.backend.effects(key=key), 1)


@test
def a_stream_that_says_nothing_yet_has_begun(rig):
    key, name = fresh(), fresh("pause")
    with Conn(rig.port) as conn:
        conn.send(rig.bytes("/replay", key, do={"headers": [["X-Accel-Buffering", "no"]], "size": 100,
                                                "pause": [0, name]}))
        check(conn.line().startswith("HTTP/1.1 200"), "its head has come")
        rig.backend.go(name)
    status(rig.post("/replay", key), 409, "duplicate")


@test
def a_stream_that_breaks_is_not_run_again(rig):
    key = fresh()
    rig.post("/11", key, do={"size": 1000, "truncate": 100, "type": "text/event-stream"})
    answer = status(rig.post("/11", key), 409)
    check(answer.type in ("duplicate", "uncertain"), repr(answer))
    eq(rig.backend.effects(key=key), 1)


@test
def answers_without_a_body_are_replayed_so(rig):
    for code in (204, 304):
        key = fresh()
        first = status(rig.post("/11", key, do={"status": code, "headers": [["ETag", '"x"']]}), code)
        again = replay_of(first, rig.post("/11", key))
        for answer in (first, again):
            eq((answer.body, answer.all("Content-Length"), answer.all("Transfer-Encoding")), (b"", [], []))
            eq(answer.h("ETag"), '"x"')
        eq(again.h("Content-Type"), first.h("Content-Type"))
    key = fresh()
    first = status(rig.post("/11", key, do={"body": ""}), 200)
    eq(replay_of(first, rig.post("/11", key)).body, b"")


@test
def every_frame_of_an_answer_is_captured(rig):
    for path in ("/11", "/unbuffered", "/tiny"):
        for frame in ("length", "chunked", "close"):
            for size in (0, 1, 4096, 5000, 300000):
                key = fresh()
                first = status(rig.post(path, key, do={"size": size, "frame": frame}), 200)
                eq(len(first.body), size)
                stays(rig, path, key, first)


@test
def an_answer_of_http_1_0_is_captured(rig):
    key = fresh()
    first = status(rig.post("/replay", key, do={"size": 50000, "frame": "close", "http10": True}), 200)
    eq(len(first.body), 50000)
    stays(rig, "/replay", key, first)


@test
def a_first_response_says_when_its_retry_will_not_get_it_again(rig):
    for path, do in (("/small", {"size": 5000}), ("/small", {"size": 5000, "frame": "chunked"}),
                     ("/11", {"headers": [["X-Accel-Buffering", "no"]]}), ("/11", {"type": "text/event-stream", "frame": "chunked"}),
                     ("/replay", {"headers": [["Idem-Store", "no"]]}), ("/replay", {"headers": [["Idem-Store", "no"], ["Idem-Kept", "yes"]]})):
        key = fresh()
        first = status(rig.post(path, key, do=do), 200)
        eq((first.all("Idem-Kept"), first.complete), (["no"], True), f"{path} {do}")
        eq(status(rig.post(path, key), 409, "duplicate").all("Idem-Kept"), [])
    for path, do in (("/small", {"size": 500}), ("/replay", {"headers": [["Idem-Kept", "no"]]}), ("/rejected", {"size": 5000}),
                     ("/replay", {"status": 503}), ("/replay", {"status": 429}), ("/replay", {"status": 204})):
        eq(rig.post(path, fresh(), do=do).all("Idem-Kept"), [], f"{path} {do}")


@test
def the_upstream_is_not_asked_to_encode(rig):
    key = fresh()
    rig.post("/replay", key, headers=[("Accept-Encoding", "gzip, br")])
    eq(rig.backend.requests(key=key)[0].all("Accept-Encoding"), [])


@test
def an_encoded_answer_is_decoded_for_who_does_not_take_it(rig):
    for size in (0, 100, 200000):
        key = fresh()
        takes = [("Accept-Encoding", "gzip")]
        first = status(rig.post("/11", key, do={"size": size, "gzip": True}, headers=takes), 200)
        eq(first.h("Content-Encoding"), "gzip")
        want = rig.backend.requests(key=key)[0].answer
        eq(gzip.decompress(first.body), want)
        again = status(rig.post("/11", key, headers=takes), 200)
        check(again.replayed and again.h("Content-Encoding") == "gzip", f"{again!r:.300}")
        eq(again.body, first.body, "the encoded bytes")
        for refuses in ([], [("Accept-Encoding", "identity")], [("Accept-Encoding", "gzip;q=0")],
                        [("Accept-Encoding", "br")]):
            plain = status(rig.post("/11", key, headers=refuses), 200)
            check(plain.replayed and plain.all("Content-Encoding") == [], f"{refuses} {plain!r:.300}")
            check(plain.complete, "whole")
            eq(plain.body, want, f"decoded for {refuses}")
        eq(rig.backend.effects(key=key), 1)


if __name__ == "__main__":
    main(CONF)
