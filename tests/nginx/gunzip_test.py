#!/usr/bin/env python3
"""Stored responses in gzip, for clients that do not accept it: decoded piece by piece, up to the location's limit, and
without delaying other requests."""
import gzip
import os
import re
import sys

sys.dont_write_bytecode = True

from rig import *
from tap import *

COUNTER = os.environ.get("IDEM_INFLATE_COUNTER", "")
PIECE, MIB = 65536, 1 << 20
TAKES = [("Accept-Encoding", "gzip")]
PLAIN = "proxy_http_version 1.1; idem_fingerprint body; idem_prefix one:;"


def location(path, rules):
    return f"location {path} {{ idem replay; {rules} {PLAIN} proxy_pass http://@BACKEND@; }}\n"


CONF = "".join((
    location("/wide", "idem_result_max 64M;"),
    location("/small", "idem_result_max 64k;"),
    location("/gathered", "idem_result_max 64M; postpone_output 1m;"),
    location("/limited", "idem_result_max 64M; limit_rate 20m;"),
    location("/filtered", "idem_result_max 64M; sub_filter_types *; sub_filter ':' '!'; sub_filter_once off; gzip on; gzip_types *;"),
))


def counts(own):
    """Returns (bytes of output, bytes of input, open decoders) for each turn of the worker's loop that decoded."""
    with open(own.folder + "/count", encoding="ascii") as file:
        return [tuple(map(int, line.split())) for line in file.read().splitlines()]


def counted(rig, work):
    """Calls work(rig) with a rig of one worker whose decoding is counted."""
    if not COUNTER or sanitizers():
        raise Skip("IDEM_INFLATE_COUNTER names no library, or it cannot be loaded together with a sanitizer")
    with Rig(CONF, workers=1, start=False) as own:
        own.environment = lambda: dict(os.environ, LD_PRELOAD=COUNTER, IDEM_INFLATE_COUNT=own.folder + "/count")
        own.start()
        work(own)


def stored(own, size, path="/wide"):
    """Returns a key whose response is stored in gzip, the stored body, and the decoded one."""
    key, want = fresh(), (fresh("line").encode() + b":" + b"." * 4096) * (size // 4096)
    own.backend.script(path, {"body": want, "gzip": True})
    first = status(own.post(path, key, headers=TAKES), 200)
    eq(first.h("Content-Encoding"), "gzip")
    own.turn()  # so that the counts are written
    return key, first.body, want


def is_decoded(answer, want):
    check(status(answer, 200).replayed and answer.all("Content-Encoding") == [] and answer.complete, f"{answer!r:.300}")
    eq(answer.h("Content-Length"), str(len(want)))
    check(answer.body == want, "the decoded body")
    eq(answer.all("X-Idem-Decoded"), [])


def is_as_stored(answer, packed):
    check(status(answer, 200).replayed and answer.h("Content-Encoding") == "gzip" and answer.complete, f"{answer!r:.300}")
    check(answer.body == packed, "the stored bytes")


def own_memory(own):
    return sum(int(re.search(r"^RssAnon:\s+(\d+)", open(f"/proc/{pid}/status", encoding="ascii").read(), re.M)[1])
               for pid in own.worker_pids()) << 10


@test
def a_long_body_is_decoded_in_pieces_between_which_others_have_their_turn(rig):
    def work(own):
        key, _, want = stored(own, 24 * MIB)
        os.truncate(own.folder + "/count", 0)
        for answer in together(4, lambda _: own.post("/wide", key)):
            is_decoded(answer, want)
        own.turn()
        turns = counts(own)
        check(max(n for n, _, _ in turns) <= 4 * PIECE, f"bytes in a turn: {sorted(turns)[-5:]}")
        check(sum(n for n, _, _ in turns) < 4 * (len(want) + PIECE), "each is decoded once")
        eq(turns[-1][2], 0, "decoders that are left open")
    counted(rig, work)


@test
def clients_that_do_not_read_cost_a_piece_each(rig):
    with Rig(CONF, workers=1) as own:
        key, _, want = stored(own, 32 * MIB)
        is_decoded(own.post("/wide", key), want)
        own.turn()
        before = own_memory(own)
        conns = [Conn(own.port) for _ in range(10)]
        try:
            for conn in conns:
                conn.send(own.bytes("/wide", key))
            for conn in conns:
                check(conn.sock.recv(1, socket.MSG_PEEK), "the head has come")
            for _ in range(20):
                own.turn()
            grown = own_memory(own) - before
            check(grown < (8 if not sanitizers() else 64) * MIB, f"{grown >> 20} MiB for ten clients")
            for conn in conns[:2]:
                is_decoded(conn.answer(), want)
        finally:
            for conn in conns:
                conn.close()


@test
def what_is_longer_than_the_limit_goes_out_as_it_is_and_is_not_decoded(rig):
    def work(own):
        keys = [stored(own, MIB, "/small"), stored(own, MIB)]  # known lengths: above the limit, and equal
        os.truncate(own.folder + "/count", 0)
        for key, packed, _ in keys:
            check(len(packed) < 65536, "it is kept")
            is_as_stored(own.post("/small", key), packed)
        own.turn()
        eq(counts(own), [])
        # If the limit was raised since, the gateway has to measure the decoded length.
        for key, _, want in keys:
            is_decoded(own.post("/wide", key), want)
        own.turn()
        check(max(n for n, _, _ in counts(own)) <= 2 * PIECE, f"bytes in a turn: {sorted(counts(own))[-5:]}")
        eq(counts(own)[-1][2], 0, "decoders that are left open")
    counted(rig, work)


@test
def a_bomb_is_not_decoded_beyond_the_limit(rig):
    def work(own):
        key, bomb = fresh(), gzip.compress(bytes(60 * MIB), mtime=0)
        check(len(bomb) < 65536, "it is kept")
        do = {"body": bomb, "headers": [["Content-Encoding", "gzip"]]}
        own.backend.script("/small", do)
        status(own.post("/small", key, headers=TAKES), 200)
        own.turn()
        check(sum(n for n, _, _ in counts(own)) < MIB, "it is measured up to the limit")
        os.truncate(own.folder + "/count", 0)
        for answer in together(10, lambda _: own.post("/small", key)):
            is_as_stored(answer, bomb)
        own.turn()
        eq(counts(own), [])
    counted(rig, work)


@test
def a_body_that_decodes_to_nothing_lets_others_have_their_turn(rig):
    """4 MiB of empty members decode to no byte of output, and used to occupy a worker for a second."""
    def work(own):
        key, empty = fresh(), gzip.compress(b"", mtime=0) * (4 * MIB // 20)
        own.backend.script("/wide", {"body": empty, "headers": [["Content-Encoding", "gzip"]]})
        status(own.post("/wide", key, headers=TAKES), 200)
        own.turn()
        os.truncate(own.folder + "/count", 0)
        for answer in together(2, lambda _: own.post("/wide", key)):
            is_decoded(answer, b"")
        own.turn()
        turns = counts(own)
        check(max(read for _, read, _ in turns) <= 2 * PIECE, f"bytes read in a turn: {sorted(turns)[-5:]}")
        check(sum(read for _, read, _ in turns) >= 2 * len(empty), "both are decoded")
        eq(turns[-1][2], 0, "decoders that are left open")
    counted(rig, work)


@test
def a_client_that_leaves_leaves_no_decoder_behind(rig):
    def work(own):
        key, _, want = stored(own, 16 * MIB)
        small, _, _ = stored(own, MIB, "/small")
        for path, one in (("/wide", key), ("/wide", small), ("/limited", key)):
            conns = [Conn(own.port).send(own.bytes(path, one)) for _ in range(8)]
            for i, conn in enumerate(conns):
                if i % 2:
                    check(conn.sock.recv(1, socket.MSG_PEEK), "the head has come")
                conn.reset()
        until("every decoder is released", lambda: own.turn() or counts(own)[-1][2] == 0)
        is_decoded(own.post("/wide", key), want)
    counted(rig, work)


@test
def a_damaged_body_is_not_decoded_at_all(rig):
    def work(own):
        for damage in (lambda b: b[:-1], lambda b: b[:-8] + b"\0" + b[-7:], lambda b: b + b"x", lambda b: b"no gzip"):
            key, body = fresh(), damage(gzip.compress(pattern(200000), mtime=0))
            own.backend.script("/wide", {"body": body, "headers": [["Content-Encoding", "gzip"]]})
            status(own.post("/wide", key, headers=TAKES), 200)
            own.turn()
            os.truncate(own.folder + "/count", 0)
            is_as_stored(own.post("/wide", key), body)
            own.turn()
            eq(counts(own), [])
    counted(rig, work)


@test
def it_is_decoded_for_slow_clients_and_over_every_protocol(rig):
    key, _, want = stored(rig, 3 * MIB)
    for path in ("/gathered", "/limited"):
        is_decoded(rig.post(path, key), want)
    filtered = status(rig.post("/filtered", key), 200)
    check(filtered.complete and filtered.body == want.replace(b":", b"!"), "filters apply")
    is_decoded(rig.post("/wide", key, tls=True, port=rig.tlsport), want)
    for scheme, port, how in (("http", rig.h2port, "--http2-prior-knowledge"), ("http", rig.port, "--http1.1")):
        answer = curl(how, "-H", f"Idempotency-Key: {key}", "-H", "Content-Type: application/json",
                      f"{scheme}://127.0.0.1:{port}/wide", data=b'{"a":1}')
        check(answer.status == 200 and answer.complete and answer.body == want, f"{how} {answer!r:.300}")
    with Conn(rig.port) as conn:  # one after the other, on one connection
        for _ in range(2):
            conn.send(rig.bytes("/wide", key, close=False))
            is_decoded(conn.answer(), want)


if __name__ == "__main__":
    main(CONF)
