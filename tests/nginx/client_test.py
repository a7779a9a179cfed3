#!/usr/bin/python3
"""Usual clients, with their own ways to retry: requests, urllib3, httpx, nghttp, h2load.

Debian's packages of these libraries are for Debian's own Python, which is why this program names it.
"""
import asyncio
import re
import select
import socket
import struct
import subprocess
import sys
import threading
import time
import warnings

sys.dont_write_bytecode = True

from rig import *
from tap import *

try:
    import httpx
    import requests
    import urllib3
except ImportError as missing:
    print(f"1..0 # SKIP {missing}: tools/packages test installs it")
    sys.exit(0)

CONF = "".join((
    guard("/orders", "idem replay; proxy_http_version 1.1;"),
    guard("/moved-here", "idem replay;"),
    guard("/wait", "idem replay; idem_wait 1h;"),
    guard("/brief", "idem replay; idem_lease 10s;"),  # a waiting duplicate waits for that long at most
    guard("/loose", "idem replay; idem_fingerprint method path;"),
    "location /plain { proxy_pass http://@BACKEND@; }\n",
))
warnings.filterwarnings("ignore", category=urllib3.exceptions.InsecureRequestWarning)


class Cutter:
    """A proxy in front of the gateway that cuts a response after this many bytes, for each connection in turn; the
    last number stays, and None cuts nothing."""

    def __init__(self, port, *cuts):
        self.port, self.cuts, self.count = port, list(cuts), 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            self.count += 1
            cut = self.cuts.pop(0) if len(self.cuts) > 1 else self.cuts[0]
            threading.Thread(target=self.serve, args=(near, cut), daemon=True).start()

    def serve(self, near, cut):
        with near, socket.create_connection(("127.0.0.1", self.port)) as far:
            while True:
                for one in select.select([near, far], [], [])[0]:
                    try:
                        data = one.recv(65536)
                        if one is far and cut is not None and len(data) >= cut:
                            near.sendall(data[:cut])
                            until("it is read before the reset", lambda: not unread(near))
                            near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                            return
                        if one is far and cut is not None:
                            cut -= len(data)
                        (near if one is far else far).sendall(data)
                    except OSError:
                        return
                    if not data:
                        return


def patient(**options):
    """Retries every method, which a client that sends a key may do."""
    return urllib3.Retry(total=5, backoff_factor=0.01, allowed_methods=None, **options)


def session(**options):
    made = requests.Session()
    made.trust_env = False
    made.mount("http://", requests.adapters.HTTPAdapter(max_retries=patient(**options)))
    return made


def headers(key, do=None, **more):
    return {"Idempotency-Key": key, **({"X-Do": json.dumps(do)} if do else {}), **more}


def is_replay(answer):
    return answer.headers.get("Idempotent-Replayed") == "true"


@test
def requests_tries_again_when_the_answers_head_is_cut(rig):
    for cut in (0, 1, 40):
        key = fresh()
        with Cutter(rig.port, cut, cut, None) as way, session() as client:
            answer = client.post(way.url + "/orders", json={"a": 1}, headers=headers(key, {"status": 201}))
            eq((answer.status_code, way.count), (201, 3), "the status, and the number of requests")
            check(is_replay(answer), f"a replay: {answer.headers}")
        eq(answer.content, rig.backend.requests(key=key)[0].answer)
        eq(rig.backend.effects(key=key), 1)


@test
def urllib3_tries_again_when_the_answers_body_is_cut(rig):
    key = fresh()
    with Cutter(rig.port, 5000, 30000, None) as way, urllib3.PoolManager(retries=patient()) as client:
        answer = client.request("POST", way.url + "/orders", body=b'{"a":1}',
                                headers=headers(key, {"size": 50000}, **{"Content-Type": "application/json"}))
        eq((answer.status, is_replay(answer), way.count), (200, True, 3))
    eq(answer.data, rig.backend.requests(key=key)[0].answer)
    eq(rig.backend.effects(key=key), 1)


@test
def a_program_that_catches_a_broken_answer_may_ask_again(rig):
    """requests itself does not retry once the head has come."""
    key = fresh()
    with Cutter(rig.port, 5000, None) as way, session() as client:
        ask = {"json": {"a": 1}, "headers": headers(key, {"size": 50000, "frame": "chunked"})}
        try:
            client.post(way.url + "/orders", **ask)
            raise AssertionError("it was cut")
        except (requests.exceptions.ChunkedEncodingError, requests.exceptions.ConnectionError):
            pass
        answer = client.post(way.url + "/orders", **ask)
    check(is_replay(answer), f"a replay: {answer.headers}")
    eq(answer.content, rig.backend.requests(key=key)[0].answer)
    eq(rig.backend.effects(key=key), 1)


@test
def who_heeds_retry_after_gets_the_first_answer(rig):
    key, name = fresh(), fresh("hang")
    first = Later(lambda: session().post(f"http://127.0.0.1:{rig.port}/brief", data=b"x", headers=headers(
        key, {"hang": name})))
    rig.backend.reached(name)
    with session(status_forcelist=[409, 503]) as client:
        began = time.monotonic()
        rid = fresh("rid")
        second = Later(lambda: client.post(f"http://127.0.0.1:{rig.port}/brief", data=b"x",
                                           headers=headers(key, **{"X-Rid": rid})))
        eq(rig.log(rid)["idem_verdict"], "busy")
        rig.backend.go(name)
        answer = second.get()
    check(answer.status_code == 200 and is_replay(answer), f"{answer.status_code} {answer.headers}")
    check(time.monotonic() - began > 0.9, "after the second of Retry-After")
    eq(answer.content, first.get().content)
    eq(rig.backend.effects(key=key), 1)


@test
def a_session_keeps_its_connection_through_every_answer(rig):
    with Cutter(rig.port, None) as way, session() as client:
        for _ in range(5):
            key = fresh()
            for key, data, want in ((key, b"x", 200), (key, b"x", 200), (key, b"other", 422), (None, b"x", 400),
                                    (fresh(), b"x" * 300000, 200)):
                answer = client.post(way.url + "/orders", data=data, headers=headers(key) if key else {})
                eq(answer.status_code, want)
        eq(client.get(way.url + "/orders").status_code, 200)
        eq(way.count, 1, "connections")


@test
def a_generator_is_uploaded_in_chunks_and_they_do_not_matter(rig):
    key, whole = fresh(), pattern(200000)
    with session() as client:
        answers = [client.post(f"http://127.0.0.1:{rig.port}/orders", headers=headers(key),
                               data=(whole[i:i + size] for i in range(0, len(whole), size)))
                   for size in (1000, 7777, 200000)]
        other = client.post(f"http://127.0.0.1:{rig.port}/orders", headers=headers(key), data=iter([whole, b"more"]))
    eq([(a.status_code, is_replay(a)) for a in answers], [(200, False), (200, True), (200, True)])
    eq(other.status_code, 422)
    seen, = rig.backend.requests(key=key)
    eq(seen.body, whole)


@test
def a_form_with_a_file_is_the_same_one_if_it_is_made_again(rig):
    url, file = f"http://127.0.0.1:{rig.port}", {"report": ("r.bin", pattern(100000), "application/octet-stream")}
    key = fresh()
    with session() as client:
        prepared = client.prepare_request(requests.Request("POST", url + "/orders", headers=headers(key), files=file,
                                                           data={"a": "1"}))
        first, again = client.send(prepared), client.send(prepared)
        eq((first.status_code, again.status_code, is_replay(again)), (200, 200, True))
        # A request made anew has another boundary, which is not compared; its fields and files are.
        anew = client.post(url + "/orders", headers=headers(key), files=file, data={"a": "1"})
        eq((anew.status_code, is_replay(anew)), (200, True))
        eq(client.post(url + "/orders", headers=headers(key), files=file, data={"a": "2"}).status_code, 422)
        eq(rig.backend.effects(key=key), 1)
        key = fresh()
        answers = [client.post(url + "/loose", headers=headers(key), files=file) for _ in range(2)]
        eq([(a.status_code, is_replay(a)) for a in answers], [(200, False), (200, True)])
        eq(rig.backend.effects(key=key), 1)


@test
def redirections_are_followed_again_by_who_tries_again(rig):
    url = f"http://127.0.0.1:{rig.port}"
    with session() as client:
        key = fresh()
        rig.backend.script("/plain/order-1", {"body": "the order"})
        for again in (False, True):
            answer = client.post(url + "/orders", data=b"x", headers=headers(
                key, {"status": 303, "headers": [["Location", "/plain/order-1"]]}))
            eq(([a.status_code for a in answer.history], is_replay(answer.history[0])), ([303], again))
            eq((answer.content, answer.request.method), (b"the order", "GET"))
        eq(rig.backend.effects(key=key), 1)
        # 307 repeats method, body and key: the other location is guarded, too.
        key = fresh()
        rig.backend.script("/orders", {"status": 307, "headers": [["Location", "/moved-here"]]})
        try:
            answers = [client.post(url + "/orders", data=b"x", headers=headers(key)) for _ in range(2)]
        finally:
            rig.backend.script("/orders")
        eq([(is_replay(a.history[0]), a.status_code, is_replay(a)) for a in answers], [(False, 200, False), (True, 200, True)])
        eq([s.path for s in rig.backend.requests(key=key)], ["/orders", "/moved-here"])


@test
def httpx_speaks_both_versions_and_meets_the_same_record(rig):
    key, bodies = fresh(), []
    for http2, base in ((False, f"http://127.0.0.1:{rig.port}"), (False, f"https://127.0.0.1:{rig.tlsport}"),
                        (True, f"https://127.0.0.1:{rig.tlsport}")):
        with httpx.Client(http2=http2, verify=False, trust_env=False, timeout=LIMIT) as client:
            for _ in range(2):
                answer = client.post(base + "/orders", json={"a": 1}, headers=headers(key))
                eq((answer.status_code, answer.http_version), (200, "HTTP/2" if http2 else "HTTP/1.1"))
                bodies.append((answer.content, is_replay(answer)))
            eq(client.post(base + "/orders", json={"a": 2}, headers=headers(key)).status_code, 422)
    eq(sorted(set(bodies)), [(bodies[0][0], False), (bodies[0][0], True)])
    eq(rig.backend.effects(key=key), 1)


@test
def many_streams_of_httpx_are_one_effect(rig):
    key = fresh()

    async def ask():
        async with httpx.AsyncClient(http2=True, verify=False, trust_env=False, timeout=LIMIT,
                                     limits=httpx.Limits(max_connections=1)) as client:
            return await asyncio.gather(*(client.post(f"https://127.0.0.1:{rig.tlsport}/wait", content=b"x", headers=headers(
                key, {"late": 0.2})) for _ in range(30)))
    answers = asyncio.run(ask())
    eq({(a.status_code, a.http_version, a.content) for a in answers}, {(200, "HTTP/2", answers[0].content)})
    eq(sum(map(is_replay, answers)), 29, "replays")
    eq(rig.backend.effects(key=key), 1)


def output_of(*command):
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT, check=False)
    eq(run.returncode, 0, f"{command[0]}: {run.stdout[-500:]}: the exit status")
    return run.stdout


def upload(rig):
    with open(rig.folder + "/upload", "wb") as file:
        file.write(b"x")
    return rig.folder + "/upload"


@test
def many_streams_of_nghttp_are_one_effect(rig):
    for url in (f"http://127.0.0.1:{rig.h2port}/wait", f"https://127.0.0.1:{rig.tlsport}/wait"):
        key = fresh()
        said = output_of("nghttp", "-v", "-y", "-n", "-m", "20", "-H", f"idempotency-key: {key}",
                         "-H", 'x-do: {"late": 0.1}', "-d", upload(rig), url)
        eq((len(re.findall(r":status: 200", said)), len(re.findall(r"idempotent-replayed: true", said))), (20, 19))
        eq(rig.backend.effects(key=key), 1)


@test
def many_streams_of_h2load_are_one_effect(rig):
    key = fresh()
    said = output_of("h2load", "-n", "400", "-c", "4", "-m", "50", "-d", upload(rig), "-H", f"idempotency-key: {key}",
                     "-H", 'x-do: {"late": 0.1}', f"https://127.0.0.1:{rig.tlsport}/wait")
    check("400 succeeded, 0 failed, 0 errored" in said and "status codes: 400 2xx" in said, said[-800:])
    eq(rig.backend.effects(key=key), 1)


if __name__ == "__main__":
    main(CONF)
