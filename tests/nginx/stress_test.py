#!/usr/bin/env python3
"""A random mix of requests, hang-ups, failing backends, killed and reloaded workers, judged by the ledger.

The promises of the policies, checked against the backend's requests and the clients' responses:
  hold     one run, and another one only after a response that failed or released
  keep     one run, and another one only after a response that released
  rerun    never two runs at once; none after a client got the done response
  lock     never two runs at once
and for all of them: one done response per key, byte for byte; a client with another body gets none of it.

Then the judge of histories (tests/model/history.h) checks the same events, and must find no fault either.

IDEM_MIX is the number of requests (3000; IDEM_LONG: 50000), IDEM_SEED the seed, IDEM_HISTORY_CHECK the judge.
"""
import collections
import hashlib
import os
import random
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True

from rig import *
from tap import *

COUNT = int(os.environ.get("IDEM_MIX") or (50000 if LONG else 3000))
KEYS = 500 if COUNT >= 20000 else max(40, COUNT // 10)
SEED = int(os.environ.get("IDEM_SEED") or time.time_ns() % 1000000)
THREADS, KILLS = 12, 4 + COUNT // 5000
RELEASED, FAILED = {429}, {500}
LEASE = 20  # seconds: longer than a pause of a busy machine; a run whose lease ends may overlap the next one
COMMON = f"idem replay; idem_lease {LEASE}s; idem_backoff 100ms; "
CONF = "".join((
    guard("/hold", COMMON + "idem_wait 100ms;"),
    guard("/keep", COMMON + "idem_on_failure keep;"),
    guard("/rerun", COMMON + "idem_recover rerun;"),
    guard("/lock", f"idem lock; idem_lease {LEASE}s; idem_backoff 100ms;"),
))
ENDS = (({}, 50), ({"status": 500}, 9), ({"status": 429}, 6), ({"fault": "close"}, 4), ({"fault": "rst"}, 3),
        ({"size": 9000, "truncate": 4000}, 3), ({"status": 502}, 2), ({"late": 0.05}, 12), ({"delay": 0.05}, 5),
        ({"size": 60000}, 6))


class Ask:
    """One request of the mix, and its result."""

    def __init__(self, path, key, body):
        self.path, self.key, self.body = path, key, body
        self.rid = fresh("r")
        self.start = time.monotonic()
        self.left = False
        self.answer = self.error = None
        self.end = None


def one(rig, chance, keys):
    path, key = chance.choice(keys)
    ask = Ask(path, key, b'{"b":2}' if chance.random() < 0.03 else b'{"a":1}')
    do = chance.choices([d for d, _ in ENDS], [w for _, w in ENDS])[0]
    data = rig.bytes(path, key, body=ask.body, do=do, rid=ask.rid)
    try:
        with Conn(rig.port) as conn:
            conn.send(data)
            if chance.random() < 0.08:
                ask.left = True
                time.sleep(chance.choice((0, 0.001, 0.01, 0.03)))  # sleep: a random time
                conn.reset()
            else:
                ask.answer = conn.answer()
    except OSError as error:
        ask.error = error
    ask.end = time.monotonic()
    return ask


def runs_of(rig):
    runs = collections.defaultdict(list)
    for seen in rig.backend.requests():
        if seen.effect:
            runs[seen.path, seen.key].append(seen)
    return runs


def may_follow(path, before):
    """Returns true if a run may follow this one, after the backend's response."""
    if before.outcome != "answered":
        return False
    return before.status in RELEASED or (path == "/hold" and before.status in FAILED)


def judge_runs(runs):
    for (path, key), seen in runs.items():
        seen.sort(key=lambda s: s.start)
        for before, after in zip(seen, seen[1:]):
            if path in ("/hold", "/keep"):
                check(may_follow(path, before), f"{path} {key}: {after} came after {before}")
            else:
                check(after.start >= before.end, f"{path} {key}: two at once: {before} and {after}")
        eq(len({s.h("Idem-Downstream-Key") for s in seen}), 1, f"derived keys of {key}")
        attempts = [int(s.h("Idem-Attempt")) for s in seen]
        if path == "/lock":
            eq(attempts, sorted(set(attempts)), f"the fencing numbers of {key}")


def judge_answers(asks, runs):
    done = collections.defaultdict(dict)  # by key: each done response, and when a client first got it
    for ask in asks:
        answer = ask.answer
        if answer is None or answer.status is None:
            continue
        allowed = {200, 409, 422, 429, 500, 502} - ({422} if ask.path == "/lock" else set())
        check(answer.status in allowed and answer.complete, f"{ask.path} {ask.key}: {answer!r}")
        if answer.status != 200:
            continue
        source = [s for s in runs[ask.path, ask.key] if s.answer == answer.body]
        check(source, f"{ask.path} {ask.key}: no run gave this response: {answer!r}")
        check(ask.path == "/lock" or source[0].body == ask.body,
              f"{ask.key}: a response to a request with another body")
        check(ask.path != "/lock" or not answer.replayed, "a lock replays nothing")
        if not answer.all("Idem-Lost"):
            when = done[ask.path, ask.key]
            when[answer.body] = min(ask.end, when.get(answer.body, ask.end))
    for (path, key), told in done.items():
        if path == "/lock":
            continue
        eq(len(told), 1, f"different done answers of {path} {key}")
        when = next(iter(told.values()))
        late = [s for s in runs[path, key] if s.start > when]
        check(not late, f"{path} {key}: {late} after its done response")


# The same for the judge of histories: each request is an owner.

POLICIES = {"/hold": "mode=replay recover=hold", "/keep": "mode=replay recover=hold",
            "/rerun": "mode=replay recover=rerun", "/lock": "mode=lock recover=rerun"}
TOLD = {"in-progress": "busy", "mismatch": "mismatch", "uncertain": "uncertain", "duplicate": "duplicate", "failed": "dead"}
mixed = []  # the requests, and the backend's record of them, for the next test


def digest(body):
    return hashlib.sha256(body).hexdigest()[:16]


def said_of(path, seen):
    """Returns the gateway's finish for a run, given the backend's response."""
    if seen.outcome not in ("answered", "gone") or seen.status == 502:
        return "unknown"
    if seen.status == 500:
        return "fail" if path == "/keep" else "release"
    return "release" if seen.status in RELEASED else "done"


def events_of(ask, seen):
    """Yields a request's lines: time, event, names. seen is its run, or None."""
    done, lock = ask.answer is not None and ask.answer.status is not None, ask.path == "/lock"
    yield ask.start, "claim", "" if lock else f"fp={digest(ask.body)}"
    if seen is None:
        if done and ask.answer.replayed and ask.answer.status == 200:
            yield ask.end, "claimed", f"verdict=replay digest={digest(ask.answer.body)}"
        elif done:
            yield ask.end, "claimed", "verdict=" + ("dead" if ask.answer.replayed else TOLD[ask.answer.type])
        return
    attempt, said = seen.h("Idem-Attempt"), said_of(ask.path, seen)
    yield seen.start, "claimed", f"verdict=run attempt={attempt}"
    yield seen.effected, "effect", f"attempt={attempt}"
    if lock:
        yield seen.start, "enter", ""
        yield seen.end, "leave", ""
    # The finish comes before the last byte of the response. Whether the gateway sent it at all, only the client knows:
    # a worker that was killed has sent nothing.
    yield seen.end, "finish", f"said={said}" + (f" digest={digest(seen.answer)}" if said == "done" else "")
    if done:
        yield ask.end, "finished", f"said={said} ack={'lost' if ask.answer.all('Idem-Lost') else 'ack'}"


def line(when, key, owner, event, names=""):
    return f"{int(when * 1e9)} mix {key} {event}{' owner=' + owner if owner else ''}{' ' + names if names else ''} .\n"


def history(asks, requests):
    seen = {s.h("X-Rid"): s for s in requests}
    lines = [line(0, f"{path[1:]}:{key}", None, "policy", POLICIES[path] + f" lease_ms={LEASE * 1000}")
             for path, key in sorted({(a.path, a.key) for a in asks})]
    for ask in asks:
        lines += [line(when, f"{ask.path[1:]}:{ask.key}", ask.rid, event, names)
                  for when, event, names in events_of(ask, seen.get(ask.rid))]
    return lines


def judged(rig, lines):
    """Returns the judge's exit status and its output."""
    with open(rig.folder + "/history", "w", encoding="ascii") as file:
        file.writelines(lines)
    run = subprocess.run([os.environ["IDEM_HISTORY_CHECK"], rig.folder + "/history"], stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, text=True, timeout=LIMIT, check=False)
    return run.returncode, run.stdout


@test(seconds=1800 if LONG else SECONDS, expects=["exited on signal 9"])
def the_backends_ledger_agrees_with_the_policy(rig):
    print(f"# seed {SEED}, {COUNT} requests, {KEYS} keys")
    chance = random.Random(SEED)
    paths = ["/hold", "/hold", "/keep", "/rerun", "/lock"]
    keys = [(paths[i % len(paths)], f"mix-{SEED}-{i}") for i in range(KEYS)]
    asks, lock = [], threading.Lock()

    def client(seed):
        mine = random.Random(seed)
        while True:
            with lock:
                if len(asks) >= COUNT:
                    return
            ask = one(rig, mine, keys)
            with lock:
                asks.append(ask)
    threads = [threading.Thread(target=client, args=(chance.random(),), daemon=True) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for i in range(KILLS):
        until("progress", lambda i=i: len(asks) > COUNT * (i + 1) // (KILLS + 1))
        if i % 3 == 2:
            rig.reload()
        else:
            rig.kill_worker(chance.choice(rig.worker_pids()))
    for thread in threads:
        thread.join()
    until("all leases are over", lambda: not rig.idem("list", "--state", "running", "--json"))
    for path, key in keys:  # ask for the final state of every key
        ask = Ask(path, key, b'{"a":1}')
        ask.answer, ask.end = rig.post(path, key, do={}, rid=ask.rid), time.monotonic()
        asks.append(ask)
    until("the backend is idle", lambda: all(s.outcome for s in rig.backend.requests()))
    mixed[:] = asks, rig.backend.requests()
    runs = runs_of(rig)
    judge_runs(runs)
    judge_answers(asks, runs)
    silent = [a for a in asks if not a.left and (a.answer is None or a.answer.status is None)]
    check(len(silent) <= KILLS * THREADS, f"{len(silent)} requests had no answer: {silent[:3]}")
    told = collections.Counter(a.answer.status for a in asks if a.answer is not None)
    replays = sum(a.answer.replayed for a in asks if a.answer is not None)
    print(f"# {sum(map(len, runs.values()))} runs, {replays} replays, {sum(a.left for a in asks)} left, "
          f"{len(silent)} without an answer, {dict(told)}")
    check(replays > COUNT // 20 and told[409] and told[422], "the mix was one")


def of_the_mix():
    if "IDEM_HISTORY_CHECK" not in os.environ:
        raise Skip("IDEM_HISTORY_CHECK is not set")
    check(mixed, "there was a mix")
    return mixed


@test
def the_judge_of_histories_agrees_with_the_policy(rig):
    asks, requests = of_the_mix()
    code, said = judged(rig, history(asks, requests))
    eq(code, 0, f"{said[-3000:]}: what the judge answers")
    keys, claims, runs, replays, _, acknowledged, _, effects, _, torn = map(int, re.findall(r"\d+", said)[:10])
    print("# " + said.strip())
    eq((keys, claims, effects, torn), (KEYS, len(asks), sum(s.effect for s in requests), 0), "what it has seen")
    check(runs == effects and replays > COUNT // 20 and acknowledged > runs // 3, said)


@test
def the_judge_of_histories_refuses_what_was_forged(rig):
    asks, requests = of_the_mix()
    lines, seen = history(asks, requests), {s.h("X-Rid"): s for s in requests}
    done = next(a for a in asks if a.path == "/hold" and a.answer is not None and a.answer.status == 200
                and not a.answer.replayed and a.rid in seen)
    key, fp, late = f"hold:{done.key}", f"fp={digest(done.body)}", max(a.end for a in asks) + 1
    second = [line(late, key, "forged", "claim", fp), line(late + 0.1, key, "forged", "claimed", "verdict=run attempt=2"),
              line(late + 0.2, key, "forged", "effect", "attempt=2")]
    for forged, broken in (
            (second, (2, 3)),  # the key is done, and runs again
            ([line(late, key, done.rid, "effect", "attempt=1")], (7,)),
            ([line(late, key, "forged", "claim", fp), line(late + 0.1, key, "forged", "claimed",
                                                           "verdict=replay digest=0000")], (5,)),
            ([line(late, key, "forged", "claim", "fp=another"), line(late + 0.1, key, "forged", "claimed",
                                                                     "verdict=replay digest=" + digest(done.answer.body))], (6,))):
        code, said = judged(rig, lines + forged)
        eq((code, set(map(int, re.findall(r"invariant (\d) is broken for key " + key, said)))), (1, set(broken)),
           f"{said[-2000:]}: what the judge says of {forged}")
    code, said = judged(rig, lines + second[2:])
    check(code == 1 and "without being let in" in said, f"an effect without a claim: {code} {said[-500:]}")


if __name__ == "__main__":
    main(CONF)
