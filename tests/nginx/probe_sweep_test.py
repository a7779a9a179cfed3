#!/usr/bin/env python3
"""Sweeps: uncertain runs that are probed in the background; and probing workers that exit."""
import os
import signal
import socket
import sys
import threading

sys.dont_write_bytecode = True

from rig import *
from tap import *

CONF = guard("/p", 'idem replay; idem_lease 1h; idem_probe "/_status?$idem_downstream_key";') + \
    "location /_status { internal; proxy_set_header X-Worker $pid; proxy_set_header X-Asked $msec; proxy_pass http://@BACKEND@; }\n"
SHORT = "worker_shutdown_timeout 300ms;"


def vanish(rig, count):
    """Makes `count` uncertain runs; returns {key: downstream key}. The first run is made at once, because a sweep that
    finds nothing waits until the next."""
    keys = [fresh() for _ in range(count)]
    for some in (keys[:1], keys[1:]):
        for answer in burst(rig.port, [rig.bytes("/p", key, do={"fault": "close"}) for key in some]):
            status(answer, 502)
    return {key: rig.backend.requests(key=key)[0].h("Idem-Downstream-Key") for key in keys}


def probes(rig, names=None):
    return [s for s in rig.backend.requests(path="/_status") if names is None or s.target.split("?")[1] in names]


def at_each(rig, answers, rest=None):
    """Sets the backend's responses to probes, by downstream key; for all others `rest`, or 500."""
    plain = rig.backend.directive
    rig.backend.directive = lambda seen: answers.get(seen.target.split("?")[1], rest or {"status": 500}) \
        if seen.path == "/_status" else plain(seen)


def is_uncertain(rig, key):
    """The key is uncertain, at once or as soon as a sweep that probes it has ended."""
    answer = until_answer("no prober holds it", lambda: rig.post("/p", key), lambda a: a.type != "in-progress")
    status(answer, 409, "uncertain")
    eq(rig.backend.effects(key=key), 1)


class Gate:
    """A proxy in front of Redis that holds back all responses to claims while it is shut."""

    def __init__(self, redis):
        self.redis, self.listener = redis, socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self.listener.getsockname()[1]}?{PATIENT}"
        self.shut, self.came, self.open = threading.Event(), threading.Event(), threading.Event()
        self.open.set()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX)
            far.connect(self.redis)
            for work in (self.ask, self.answer):
                threading.Thread(target=work, args=(near, far), daemon=True).start()

    def ask(self, near, far):
        self.pump(near, far, self.watch)

    def answer(self, near, far):
        self.pump(far, near, lambda _: self.open.wait())

    def watch(self, data):
        if self.shut.is_set() and b"\r\nSET\r\n" in data:
            self.shut.clear()
            self.open.clear()
            self.came.set()

    @staticmethod
    def pump(one, other, first):
        try:
            while data := one.recv(65536):
                first(data)
                other.sendall(data)
        except OSError:
            pass
        for sock in (one, other):
            sock.close()

    def close(self):
        self.open.set()
        self.listener.close()


@test
def one_worker_asks_and_what_never_happened_is_asked_about_once(rig):
    with Rig(CONF, workers=3) as other:
        at_each(other, {})  # before there is a record to probe
        names = vanish(other, 21)
        never, *rest = names

        def asked(key):
            return len(probes(other, {names[key]}))
        at_each(other, {names[never]: {"status": 404}})
        until("the probe reports that one never happened", lambda: any(s.status == 404 for s in probes(other, {names[never]})))
        before, at_once = {key: asked(key) for key in rest}, asked(never)
        until("all others are probed three times more", lambda: all(asked(key) >= before[key] + 3 for key in rest))
        eq(len({s.h("X-Worker") for s in probes(other)}), 1, "workers that ask")
        eq(asked(never), at_once, "probes of what never happened")
        first = status(other.post("/p", never), 200)
        check(not first.replayed, "its client's retry runs it")
        eq(other.backend.effects(key=never), 2)
        status(other.post("/p", rest[0]), 409)
        eq(other.backend.effects(key=rest[0]), 1)


@test
def a_round_asks_fifty_a_second_and_leaves_nothing_open(rig):
    def open_files():
        return sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in other.worker_pids())
    with Rig(CONF) as other:
        before = open_files()
        at_each(other, {}, {"body": "found"})
        names = vanish(other, 70)
        until("all are probed", lambda: len(probes(other)) >= 70)
        starts = sorted(float(s.h("X-Asked")) for s in probes(other))  # nginx's time: the backend may be slow
        eq(len(starts), 70, "probes")
        least = min(after - before for before, after in zip(starts, starts[50:]))
        check(least > 0.5, f"fifty-one within {least:.2f} s")  # a second by nginx's clock, which may be one turn late
        # The store's own descriptors, and that of a listening socket: a few; SQL has four connections.
        own = 24 if STORE in ("postgres", "mysql") else 8
        until("all is closed again", lambda: open_files() <= before + own)
        for key in names:  # a probed record is not settled yet
            answer = until_200("it is settled", lambda key=key: other.post("/p", key))
            check(answer.replayed and answer.body == b"found", repr(answer))
        eq(other.backend.effects(), 70)


@test
def a_prober_that_is_made_to_go_gives_it_back_at_once(rig):
    """The prober's lease would block the key for another hour."""
    with Rig(CONF, main=SHORT) as other:
        at_each(other, {})
        (key, name), hang = vanish(other, 1).popitem(), fresh("hang")
        at_each(other, {name: {"hang": hang, "status": 500}})
        under_way = other.later("/p", key)
        other.backend.reached(hang)
        at_each(other, {})
        other.are_gone(other.reload())
        under_way.get()
        is_uncertain(other, key)
        other.backend.go(hang)


@test(stores="redis")
def a_probe_that_is_granted_to_a_worker_that_goes_is_given_back(rig):
    gate = Gate(rig.redis.socket)
    try:
        with Rig(CONF, store=gate.url, workers=1) as other:
            at_each(other, {})
            (key, _), = vanish(other, 1).items()
            gate.shut.set()
            check(gate.came.wait(LIMIT), "a round claims it")
            before = len(probes(other))
            old, = other.worker_pids()
            other.process.send_signal(signal.SIGHUP)
            until("the worker gets the signal", lambda: "shutting down" in title(old))
            gate.open.set()
            until("the old worker is gone", lambda: not alive(old))
            eq(len([s for s in probes(other) if s.h("X-Worker") == str(old)]), before, "probes by a worker that goes")
            is_uncertain(other, key)
    finally:
        gate.close()


if __name__ == "__main__":
    main(guard("/", "idem replay;"))  # each test has an nginx of its own, so that no other one probes its runs
