#!/usr/bin/env python3
"""No leaks: memory and descriptors of the workers stay constant over many requests.

IDEM_LEAK is the number of requests that are measured (8000; IDEM_LONG: 100000).
"""
import os
import sys
import threading

sys.dont_write_bytecode = True

from rig import *
from tap import *

COUNT = int(os.environ.get("IDEM_LEAK") or (100000 if LONG else 8000))
CONF = WATCH + "".join((
    guard("/replay", "idem replay; idem_ttl 5s; proxy_http_version 1.1; proxy_set_header Connection '';",
          to="proxy_pass http://kept;"),
    guard("/wait", "idem replay; idem_ttl 5s; idem_wait 2s;"),
    guard("/set", "idem reject; idem_ttl 5s; idem_set $o '#body.id'; idem_key $o;"),
))
HTTP = "upstream kept { server @BACKEND@; keepalive 16; } keepalive_requests 1000000;"


def anonymous(pid):
    """Returns the private memory of the process in KiB."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon"))


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def exercise(rig, count):
    """Sends every kind of request in turn, from some clients that keep their connections."""
    def client(share):
        with Conn(rig.port) as conn:
            for i in range(share):
                kind, key = i % 10, fresh()
                if kind == 9:
                    Conn(rig.port).send(rig.bytes("/wait", key, do={"late": 0.002})).reset()
                elif kind == 8:
                    conn.send(rig.bytes("/set", close=False, body=b'{"id":"%s"}' % key.encode())).answer()
                elif kind == 7:
                    conn.send(rig.bytes("/replay", None, close=False)).answer()
                elif kind == 6:
                    conn.send(rig.bytes("/replay", key, close=False, do={"status": 500})).answer()
                elif kind == 5:
                    conn.send(rig.bytes("/wait", key, close=False, do={"fault": "close"})).answer()
                elif kind == 4:
                    conn.send(rig.bytes("/replay", key, close=False, do={"size": 20000}, body=pattern(20000))).answer()
                else:
                    for _ in range(2):
                        conn.send(rig.bytes("/replay", key, close=False)).answer()
    threads = [threading.Thread(target=client, args=(count // 4,), daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rig.backend.seen.clear()
    until("nothing runs or waits", lambda: (lambda now: not now["running"] and not now["parked"])(rig.figures()))
    rig.turn()


@test(seconds=1800 if LONG else SECONDS)
def memory_and_descriptors_stay_flat(rig):
    exercise(rig, max(COUNT // 2, 4000))
    workers = rig.worker_pids()
    before = {pid: (anonymous(pid), descriptors(pid)) for pid in workers}
    exercise(rig, COUNT)
    eq(sorted(rig.worker_pids()), sorted(workers), "the workers")
    after = {pid: (anonymous(pid), descriptors(pid)) for pid in workers}
    print(f"# KiB and descriptors of the workers: {before} then {after}")
    limit = 1024 if not sanitizers() else 64 << 10
    for pid in workers:
        check(after[pid][0] - before[pid][0] < limit, f"memory grew: {before} {after}")
        check(after[pid][1] - before[pid][1] < 8, f"descriptors grew: {before} {after}")


if __name__ == "__main__":
    main(CONF, http=HTTP)
