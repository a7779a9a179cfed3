#!/usr/bin/env python3
"""The rig itself, with a plain nginx: the properties on which the other tests rely."""
import os
import sys

sys.dont_write_bytecode = True

from rig import *
from tap import *

CONF = """
location / { proxy_pass http://@BACKEND@; proxy_intercept_errors off; }
location /slow { proxy_pass http://@BACKEND@; proxy_read_timeout 300ms; }
location /11 { proxy_pass http://@BACKEND@; proxy_http_version 1.1; }
location /refused { proxy_pass http://@REFUSED@; }
location /fastcgi { fastcgi_pass @FASTCGI@; @CGI_FASTCGI@ }
location /uwsgi { uwsgi_pass @UWSGI@; @CGI_UWSGI@ }
"""


@test
def a_request_reaches_the_backend_and_is_counted(rig):
    key = fresh()
    answer = rig.post("/a", key, do={"status": 201, "headers": [["X-A", "1"], ["X-A", "2"]]})
    status(answer, 201)
    eq(answer.all("X-A"), ["1", "2"])
    seen, = rig.backend.requests(key=key)
    eq((seen.method, seen.path, seen.body, seen.effect), ("POST", "/a", b'{"a":1}', True))
    eq(answer.body, seen.answer)


@test
def no_two_ports_are_the_same(rig):
    eq(len(set(free_ports(500))), 500)


@test
def bodies_come_in_every_frame(rig):
    for path in ("/a", "/11"):
        for frame in ("length", "chunked", "close"):
            if path == "/a" and frame == "chunked":
                continue
            answer = rig.post(path, fresh(), do={"size": 100000, "frame": frame})
            check(answer.complete and len(answer.body) == 100000, f"{path} {frame} {answer!r}")
    status(rig.post("/a", fresh(), do={"status": 204}), 204)


@test
def a_backend_can_fail_in_many_ways(rig):
    for do in ({"fault": "close"}, {"fault": "rst"}, {"fault": "bighead"}, {"read": 3}):
        status(rig.post("/a", fresh(), do=do), 502)
    answer = rig.post("/a", fresh(), do={"size": 1000, "truncate": 500})
    check(not answer.complete, f"truncated {answer!r}")
    status(rig.post("/refused"), 502)
    name = fresh("hang")
    status(rig.post("/slow", fresh(), do={"hang": name}), 504)
    rig.backend.go(name)


@test
def a_hanging_request_goes_on_when_told(rig):
    name = fresh("hang")
    under_way = rig.later("/11", fresh(), do={"hang": name})
    rig.backend.reached(name)
    check(not under_way.done(), "it hangs")
    rig.backend.go(name)
    status(under_way.get(), 200)


@test
def fastcgi_and_uwsgi_answer(rig):
    for path, backend in (("/fastcgi", rig.fastcgi), ("/uwsgi", rig.uwsgi)):
        key = fresh()
        answer = rig.post(path, key, body=pattern(70000), do={"status": 201, "size": 70000})
        status(answer, 201)
        eq(len(answer.body), 70000)
        seen, = backend.requests(key=key)
        eq((seen.method, seen.path, seen.body), ("POST", path, pattern(70000)))


@test
def clients_speak_http_1_and_2_and_tls(rig):
    status(rig.post("/a", tls=True, port=rig.tlsport), 200)
    answer = curl("--http2-prior-knowledge", f"http://127.0.0.1:{rig.h2port}/a", data=b"x")
    eq((answer.version, answer.status), ("HTTP/2", 200))
    answer = curl("--http2", f"https://127.0.0.1:{rig.tlsport}/a", data=b"x")
    eq((answer.version, answer.status), ("HTTP/2", 200))
    with H2(rig.h2port) as h2:
        stream = h2.post("/a", [("x-ref", "h2")], b"hello")
        check(b"serial" in h2.until_end(stream), "an answer by hand")
    eq(rig.backend.requests(ref="h2")[0].body, b"hello")


@test(expects=["exited on signal 9"])
def workers_are_reloaded_and_killed(rig):
    old = rig.reload()
    status(rig.post("/a"), 200)
    rig.are_gone(old)
    rig.kill_worker(rig.worker_pids()[0])
    status(rig.post("/a"), 200)


@test
def a_burst_is_answered(rig):
    answers = burst(rig.port, [rig.bytes("/11", fresh()) for _ in range(200)])
    eq({a.status for a in answers}, {200})


@test
def the_access_log_has_a_line(rig):
    _, line = rig.logged("/a", fresh())
    eq(line["status"], "200")


@test
def a_connection_that_is_never_accepted_times_out(rig):
    hole = Blackhole()
    with Rig(f"location / {{ proxy_pass http://127.0.0.1:{hole.port}; proxy_connect_timeout 300ms; }}") as other:
        status(other.post("/a"), 504)
    hole.close()


main(CONF, plain=True)
