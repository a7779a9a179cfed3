#!/usr/bin/env python3
"""The framing and the protocol of a request's body: neither changes which requests are the same."""
import os
import sys
import time

sys.dont_write_bytecode = True

from rig import *
from tap import *

CONF = "".join((
    guard("/replay", "idem replay; client_body_buffer_size 8k; client_max_body_size 4m;"),
    guard("/limited", "idem replay; client_max_body_size 10k; client_body_buffer_size 4k;"),
    guard("/file", "idem replay; client_body_in_file_only clean;"),
    guard("/single", "idem replay; client_body_in_single_buffer on; client_body_buffer_size 1m;"),
    guard("/methods", "idem replay; idem_methods PUT DELETE;"),
    guard("/named", "idem replay; idem_methods QUERY REPORT LOCK X-UN_KNOWN;"),
    guard("/patient", "idem replay; client_body_timeout 500ms;"),
    guard("/wait", "idem replay; idem_wait 1h;"),
    guard("/11", "idem replay; proxy_http_version 1.1; proxy_set_header Connection '';"),
))


def both(rig, path, key, one, two, count=1):
    first = status(one, 200)
    check(not first.replayed, "the first runs")
    replay_of(first, two)
    eq(rig.backend.effects(key=key), count, "effects")


@test
def an_empty_body_is_a_body(rig):
    key = fresh()
    both(rig, "/replay", key, rig.post("/replay", key, body=b""), rig.post("/replay", key, body=b""))
    status(rig.post("/replay", key, body=b"x"), 422, "mismatch")
    # A missing Content-Length is the same as a length of zero.
    data = f"POST /replay HTTP/1.1\r\nHost: a\r\nIdempotency-Key: {key}\r\nConnection: close\r\n\r\n".encode()
    check(send(rig.port, data).replayed, "no length")
    check(rig.post("/replay", key, body=b"", chunked=10).replayed, "no chunk")


@test
def chunks_do_not_matter(rig):
    for size in (1, 100, 7000, 9000, 200000):
        key, body = fresh(), pattern(size)
        both(rig, "/replay", key, rig.post("/replay", key, body=body, chunked=max(1, size // 3), type="text/plain"),
             rig.post("/replay", key, body=body, type="text/plain"))
        check(rig.post("/replay", key, body=body, chunked=max(1, size // 7), type="text/plain").replayed, "other chunks")
        eq(rig.backend.requests(key=key)[0].body, body, "the backend's requests")


@test
def bodies_in_memory_and_in_files_arrive_whole_and_are_compared_whole(rig):
    for path in ("/replay", "/file", "/single"):
        for size in (1, 4095, 8192, 8193, 300000):
            key, body = fresh(), pattern(size)
            both(rig, path, key, rig.post(path, key, body=body, type="text/plain"),
                 rig.post(path, key, body=body, type="text/plain"))
            eq(rig.backend.requests(key=key)[0].body, body, "the backend's requests")
            other = body[:-1] + bytes([body[-1] ^ 1])
            status(rig.post(path, key, body=other, type="text/plain"), 422, "mismatch")
            status(rig.post(path, key, body=bytes([body[0] ^ 1]) + body[1:], type="text/plain"), 422, "mismatch")
            eq(rig.backend.effects(key=key), 1)


@test
def json_in_a_file_is_json(rig):
    key = fresh()
    pad = "p" * 50000
    first = status(rig.post("/replay", key, body=f'{{"a":1,"pad":"{pad}"}}'.encode()), 200)
    replay_of(first, rig.post("/replay", key, body=f'{{"pad":"{pad}", "a":1.0}}'.encode()))


@test
def the_same_bytes_arrive_slowly(rig):
    key, body = fresh(), pattern(1000)
    data = rig.bytes("/replay", key, body=body, type="text/plain")
    with Conn(rig.port) as conn:
        for i in range(0, len(data), len(data) // 6 + 1):
            conn.send(data[i:i + len(data) // 6 + 1])
            time.sleep(0.01)  # sleep: the parts come one by one
        first = conn.answer()
    both(rig, "/replay", key, first, rig.post("/replay", key, body=body, type="text/plain"))


@test
def a_body_over_the_limit_is_413_and_leaves_no_record(rig):
    for chunked in (0, 1000):
        key = fresh()
        answer = rig.post("/limited", key, body=pattern(20000), chunked=chunked, type="text/plain")
        status(answer, 413)
        eq(rig.backend.requests(key=key), [])
        first = status(rig.post("/limited", key, body=pattern(9000), type="text/plain"), 200)
        check(not first.replayed, "no record was left")


@test
def a_client_that_stops_in_its_body_leaves_no_record(rig):
    for size, type, chunked in ((100, "text/plain", 0), (50000, "text/plain", 0), (100, "application/json", 0),
                                (50000, "application/json", 0), (50000, "application/json", 5000)):
        key = fresh()
        data = rig.bytes("/replay", key, body=pattern(size), type=type, chunked=chunked)
        conn = Conn(rig.port)
        conn.send(data[:-10])
        rig.turn()
        conn.close()
        first = status(rig.post("/replay", key, body=b"another"), 200)
        check(not first.replayed, "no record was left")
        eq(rig.backend.effects(key=key), 1)


@test
def clients_that_stop_in_their_bodies_leave_no_memory_behind(rig):
    """The body is hashed as it arrives: text with its fingerprint, and JSON of unknown length in parallel."""
    def own():
        return sum(int(re.search(r"^RssAnon:\s+(\d+)", open(f"/proc/{pid}/status", encoding="ascii").read(),
                                 re.M)[1]) for pid in other.worker_pids())

    def stop(count):
        for i in range(count):
            data = other.bytes("/a", "stops", body=b"0123456789", chunked=5,
                               type="text/plain" if i % 2 else "application/json")
            Conn(other.port).send(data[:-10]).reset()
    with Rig(guard("/a", "idem replay;"), workers=1) as other:  # a new heap, without free blocks that hide a leak
        stop(1000)
        before = own()
        stop(5000)
        status(other.post("/a", fresh()), 200)
        grown = own() - before
        check(grown < (64 << 10 if sanitizers() else 200), f"memory grew by {grown} KiB")


@test
def a_body_that_does_not_come_is_408_and_leaves_no_record(rig):
    key = fresh()
    data = rig.bytes("/patient", key, body=pattern(100), type="text/plain")
    with Conn(rig.port) as conn:
        answer = conn.send(data[:-10]).answer()
    check(answer.status in (408, None), repr(answer))
    status(rig.post("/patient", key, body=b"another"), 200)
    eq(rig.backend.effects(key=key), 1)


@test
def a_body_that_is_none_leaves_no_record(rig):
    key = fresh()
    data = (f"POST /replay HTTP/1.1\r\nHost: a\r\nIdempotency-Key: {key}\r\nTransfer-Encoding: chunked\r\n"
            "Connection: close\r\n\r\n5\r\nhello\r\nzz\r\n").encode()
    answer = send(rig.port, data)
    status(answer, 400)
    eq(rig.backend.requests(key=key), [])
    check(not status(rig.post("/replay", key), 200).replayed, "no record was left")


@test
def expect_100_continue_is_answered(rig):
    key = fresh()
    data = rig.bytes("/replay", key, body=b"hello", headers=[("Expect", "100-continue")], type="text/plain")
    head, body = data[:-5], data[-5:]
    answers = []
    for _ in range(2):
        with Conn(rig.port) as conn:
            conn.send(head)
            while b"\r\n\r\n" not in conn.buffer and conn.more():
                pass
            check(conn.buffer.startswith(b"HTTP/1.1 100"), f"{conn.buffer!r}")
            answers.append(conn.send(body).answer())
            eq(answers[-1].interim, [100])
    both(rig, "/replay", key, *answers)
    answer = curl("-H", "Expect: 100-continue", "-H", f"Idempotency-Key: {key}", "-H", "Content-Type: text/plain",
                  f"http://127.0.0.1:{rig.port}/replay", data=b"hello")
    check(answer.replayed, repr(answer))


@test
def http_1_0_is_served(rig):
    key = fresh()
    one, two = (rig.post("/replay", key, version="HTTP/1.0") for _ in range(2))
    both(rig, "/replay", key, one, two)
    eq(two.h("Connection"), "close")
    status(rig.post("/replay", version="HTTP/1.0"), 400, "key-missing")


def by_curl(rig, *args, path="/replay", key=None, data=b"hello", headers=()):
    fields = [("Content-Type", "text/plain"), *([("Idempotency-Key", key)] if key else []), *headers]
    return curl(*args[:-1], *(a for n, v in fields for a in ("-H", f"{n}: {v}")), args[-1] + path, data=data)


@test
def http_2_is_served(rig):
    plain = ("--http2-prior-knowledge", f"http://127.0.0.1:{rig.h2port}")
    tls = ("--http2", f"https://127.0.0.1:{rig.tlsport}")
    for args in (plain, tls):
        key = fresh()
        one, two = (by_curl(rig, *args, key=key) for _ in range(2))
        eq((one.version, two.version), ("HTTP/2", "HTTP/2"))
        both(rig, "/replay", key, one, two)
        big = fresh()
        one, two = (by_curl(rig, *args, key=big, data=pattern(200000),
                            headers=[("X-Do", '{"size": 200000}')]) for _ in range(2))
        both(rig, "/replay", big, one, two)
        eq(rig.backend.requests(key=big)[0].body, pattern(200000))
        status(by_curl(rig, *args), 400, "key-missing")
        status(by_curl(rig, *args, key=key, data=b"other"), 422, "mismatch")
    # One key, over every protocol.
    key = fresh()
    first = by_curl(rig, *plain, key=key)
    replay_of(status(first, 200), by_curl(rig, *tls, key=f'"{key}"'))
    replay_of(first, rig.post("/replay", key, body=b"hello", type="text/plain"))
    eq(rig.backend.effects(key=key), 1)


@test
def many_streams_of_one_connection_are_one_key(rig):
    key = fresh()
    with H2(rig.h2port) as h2:
        h2.post("/wait", [("idempotency-key", key), ("x-do", '{"late": 0.3}')], b"x")
        streams = [h2.post("/wait", [("idempotency-key", key), ("x-do", '{"late": 0.3}')], b"x")]
        check(b"serial" in h2.until_end(streams[-1]), "a parked stream is answered")
    eq(rig.backend.effects(key=key), 1)


@test
def tls_is_served(rig):
    key = fresh()
    one, two = (rig.post("/replay", key, tls=True, port=rig.tlsport) for _ in range(2))
    both(rig, "/replay", key, one, two)
    key = fresh()
    one, two = (rig.post("/replay", key, tls=True, port=rig.tlsport, body=pattern(100000), type="text/plain",
                         do={"size": 500000}) for _ in range(2))
    both(rig, "/replay", key, one, two)


@test
def a_connection_is_kept_through_every_verdict(rig):
    key = fresh()
    with Conn(rig.port) as conn:
        def ask(k, want, kind=None, **options):
            return status(conn.send(rig.bytes("/replay", k, close=False, **options)).answer(), want, kind)
        first = ask(key, 200)
        replay_of(first, ask(key, 200))
        ask(None, 400, "key-missing")
        ask("a b", 400, "key-malformed")
        ask(key, 422, "mismatch", body=b"other")
        ask(None, 400, "key-missing", body=pattern(300000))
        ask("x y", 400, "key-malformed", body=pattern(300000), chunked=5000)
        replay_of(first, ask(key, 200))
        ask(fresh(), 500, do={"status": 500})
        ask(fresh(), 204, do={"status": 204})
        lost = fresh()
        ask(lost, 502, do={"fault": "close"})
        ask(lost, 409, "uncertain")
        ask(fresh(), 200, body=pattern(100000), chunked=3000)
        replay_of(first, ask(key, 200))
    eq(rig.backend.effects(key=key), 1)


@test
def pipelined_requests_are_answered_in_their_order(rig):
    key, other = fresh(), fresh()
    with Conn(rig.port) as conn:
        conn.send(rig.bytes("/replay", key, close=False) + rig.bytes("/replay", key, close=False)
                  + rig.bytes("/replay", None, close=False) + rig.bytes("/replay", other, close=False)
                  + rig.bytes("/replay", key, close=False, body=b"z") + rig.bytes("/replay", other))
        answers = [conn.answer() for _ in range(6)]
    eq([a.status for a in answers], [200, 200, 400, 200, 422, 200])
    replay_of(answers[0], answers[1])
    replay_of(answers[3], answers[5])
    eq((rig.backend.effects(key=key), rig.backend.effects(key=other)), (1, 1))


@test
def a_pipelined_duplicate_behind_a_slow_one_is_a_replay(rig):
    key = fresh()
    with Conn(rig.port) as conn:
        data = rig.bytes("/replay", key, close=False, do={"late": 0.3})
        conn.send(data + data)
        first, again = conn.answer(), conn.answer()
    both(rig, "/replay", key, first, again)


@test
def the_guarded_methods_are_a_directive(rig):
    for method in ("POST", "PATCH"):
        key = fresh()
        both(rig, "/replay", key, *(rig.post("/replay", key, method=method) for _ in range(2)))
        key = fresh()
        for _ in range(2):
            check(not status(rig.post("/methods", key, method=method), 200).replayed, f"{method} is not guarded")
        eq(rig.backend.effects(key=key), 2)
    for method in ("PUT", "DELETE"):
        key = fresh()
        for _ in range(2):
            check(not status(rig.post("/replay", key, method=method), 200).replayed, f"{method} is not guarded")
        key = fresh()
        both(rig, "/methods", key, *(rig.post("/methods", key, method=method) for _ in range(2)))


@test
def a_method_that_nginx_does_not_know_is_guarded_by_its_name(rig):
    for method in ("QUERY", "REPORT", "LOCK", "X-UN_KNOWN"):
        key = fresh()
        both(rig, "/named", key, *(rig.post("/named", key, method=method) for _ in range(2)))
        eq([seen.method for seen in rig.backend.requests(key=key)], [method])
        status(rig.post("/named", key, method="REPORT" if method == "QUERY" else "QUERY"), 422, "mismatch")
        status(rig.post("/named", method=method), 400, "key-missing")
    for method in ("SEARCH", "QUER", "QUERYS", "POST", "UNLOCK"):
        key = fresh()
        for _ in range(2):
            check(not status(rig.post("/named", key, method=method), 200).replayed, f"{method} is not guarded")


@test
def a_delete_without_a_body_is_guarded(rig):
    key = fresh()
    both(rig, "/methods", key, *(rig.post("/methods", key, method="DELETE", body=b"") for _ in range(2)))


@test
def temporary_files_are_gone_afterwards(rig):
    for _ in range(5):
        rig.post("/file", fresh(), body=pattern(100000))
        rig.post("/replay", fresh(), body=pattern(100000))
        rig.post("/file", None, body=pattern(100000))

    def left():
        return [f for _, _, files in os.walk(os.path.join(rig.folder, "body")) for f in files]
    until("no file is left", lambda: not left())


if __name__ == "__main__":
    main(CONF)
