#!/usr/bin/env python3
"""Messages that are published up to three times, in lanes, while consumers, the broker and the store are killed at
random; the checker of histories (tests/model/history.h) judges the result. Prints TAP.

Three queues are consumed at the same time. Workers of the first have their effect in one transaction with their guard,
so that it must happen once; those of the second have no guard, and each kill may repeat one effect of the messages in
hand. Both keep the order of each lane. Two consumers share the third queue, without an order: its retries wait in the
broker, and its workers are like those of the first. No queue loses a message.

IDEM_MIX is the number of messages of each (200; IDEM_LONG: 3300), IDEM_SEED the seed, IDEM_HISTORY_CHECK the judge.
"""
import random
import sys

sys.dont_write_bytecode = True
from frame import *
from rig import *

COUNT = int(os.environ.get("IDEM_MIX") or (3300 if LONG else 200))
SEED = int(os.environ.get("IDEM_SEED") or time.time_ns() % 1000000)
LANES, WORKERS = 50, 4
# An unguarded effect happens twice if a consumer stands still for longer than its lease, which is no crash.
GUARDED_LEASE_MS, PLAIN_LEASE_MS = 1500, 12000
EFFECT, JUDGE = os.environ.get("IDEM_QUEUE_EFFECT"), os.environ.get("IDEM_HISTORY_CHECK")


def publications(chance, count, ordered):
    """Returns keys and their lanes, each up to three times; the first publications are in order. Without an order each
    key is its own lane."""
    keys = [(f"{MARK}-{SEED}-{n}" + (".dead" if chance.random() < 0.02 else ".retry" if chance.random() < 0.05 else ""),
             f"lane{chance.randrange(LANES) if ordered else n}") for n in range(count)]
    found = [(n, key, lane) for n, (key, lane) in enumerate(keys)]
    for n, (key, lane) in enumerate(keys):
        found += [(n + chance.random() * 60, key, lane) for _ in range(chance.choice((0, 0, 1, 2)))]
    return [(key, lane) for _, key, lane in sorted(found)]


class Stage:
    """One queue with its consumers, its history and its effects."""

    def __init__(self, rig, kind, guarded, chance, shared=False):
        self.rig, self.kind, self.guarded, self.shared = rig, kind, guarded, shared
        self.lease_ms = GUARDED_LEASE_MS if guarded else PLAIN_LEASE_MS
        kept, rig.kind, rig.broker.kind = rig.kind, kind, kind
        self.queue = rig.queue()
        rig.kind = rig.broker.kind = kept
        self.path = f"{rig.folder}/{rig.fresh('history')}"
        self.database = f"{rig.folder}/{rig.fresh('effects')}.db" if guarded else "-"
        self.todo, self.lines, self.past = publications(chance, COUNT, not shared), [], []
        self.keys = {key for key, _ in self.todo}
        self.consumers = [None, None] if shared else [None]
        if guarded:
            rig.idem("migrate", "--store", f"sqlite:{self.database}")
            subprocess.run([EFFECT, "make", self.database], check=True, timeout=LIMIT)
        self.note("*", "policy", f"mode=reject recover=rerun lease_ms={self.lease_ms // 2}"
                  + (" effects=once" if guarded else ""))

    def note(self, key, event, names="", at=None, who="mix"):
        self.lines.append(f"{int((at or time.monotonic()) * 1e9)} {who} {key} {event}{' ' + names if names else ''} .\n")

    def start(self, n):
        how = ["--backoff", "300ms..500ms"] if self.shared else ["--backoff", "100ms..200ms", "--order-by", "#body.lane"]
        url = self.rig.broker.plain_url
        if self.rig.broker.name == "stream":
            how += ["--consumer", f"consumer{n}"]
        elif self.shared:  # one waits for three queues for delays that have lost their leader
            url += "?heartbeat=2s"
        self.consumers[n] = self.rig.consume(
            self.queue, "--lease", f"{self.lease_ms}ms", "--workers", WORKERS // len(self.consumers), "--prefetch", 40,
            "--attempts", 100, *how, "--exec-jsonl", f"exec {EFFECT} lines {self.database} {self.path}",
            store=self.rig.store.url, url=url)
        self.past.append(self.consumers[n])

    def publish(self, n):
        some, self.todo = self.todo[:n], self.todo[n:]
        for key, lane in some:
            self.note(key, "publish", f"lane={lane}")
        self.rig.broker.publish_many(self.queue.name,
                                     [json.dumps({"id": key, "lane": lane}).encode() for key, lane in some])

    def written(self):
        with open(self.path, encoding="ascii") as file:
            return file.readlines()

    def handled(self):
        """Returns the keys that will not run again. A retry may still wait in the broker, so its key does not count."""
        if not os.path.exists(self.path):
            return set()
        ends = [line.split() for line in self.written() if " finish " in line]
        return {words[2] for words in ends if "said=done" in words or ".dead" in words[2]}

    def acknowledged(self, runs):
        """Adds the ends that consumers have logged: by then the store had acknowledged them."""
        for consumer in self.past:
            for at, line in consumer.lines:
                said = re.search(r"run (done|unknown) record=(\w+) attempt=(\d+) trace=\S+ took=\S+( then=)?", line)
                owners = said and runs.get((str(consumer.pid), said.group(2), said.group(3)))
                if owners and said.group(1) == "done" and not said.group(4):
                    key, owner, _ = owners[-1]
                    self.note(key, "finished", f"owner={owner} said=done ack=ack", at)
                elif owners and said.group(1) == "unknown":
                    key, owner, began = owners[-1]
                    self.note(key, "finish", f"owner={owner} said=unknown", began)

    def history(self):
        runs, claimed = {}, {}
        lines = self.written()
        for line in lines:
            words = dict(word.split("=") for word in line.split() if "=" in word)
            if " claim " in line:
                claimed[words["owner"]] = words["x-hash"][:12]
            elif " claimed " in line and words["owner"] in claimed:
                at, _, key = line.split()[:3]
                pid = words["owner"].split(".")[0]
                runs.setdefault((pid, claimed[words["owner"]], words["attempt"]), []).append(
                    (key, words["owner"], int(at) / 1e9))
        if self.guarded:
            rows = subprocess.run([EFFECT, "list", self.database], stdout=subprocess.PIPE, text=True, check=True,
                                  timeout=LIMIT).stdout
            for at, owner, key, attempt in (row.split() for row in rows.splitlines()):
                self.note(key, "effect", f"owner={owner} attempt={attempt}", int(at) / 1e9)
        for letter in self.queue.letters():
            self.note(json.loads(letter.body)["id"], "dead")
        self.acknowledged(runs)
        # An event must stand after the event that caused it.
        return self.lines[:1] + lines + self.lines[1:]

    def judged(self, lines, name="judged"):
        path = f"{self.path}.{name}"
        with open(path, "w", encoding="ascii") as file:
            file.writelines(lines)
        run = subprocess.run([JUDGE, path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT,
                             check=False)
        return run.returncode, run.stdout


def strike(rig, stages, chance, what):
    """Kills one of them, and restarts it; in between the histories get a line about it."""
    pause = chance.random()
    if what == "consumer":
        stage = chance.choice(stages)
        n = chance.randrange(len(stage.consumers))
        stage.consumers[n].kill()
        stage.note("*", "crash", who="consumer")
        time.sleep(pause / 5)  # sleep: a random time
        stage.start(n)
        return
    (rig.store if what == "store" else rig.broker).kill()
    for stage in stages:  # the death of a broker excuses nothing
        stage.note("*" if what == "store" else "broker", "crash", who=what)
    time.sleep(pause)  # sleep: a random time
    if what == "store":
        rig.store.start()
    else:
        rig.broker.restart()


def forged(stage, lines):
    """Checks the judge itself: it refuses forged lines, each for its own reason."""
    effects = [line for line in lines if " effect " in line]
    late = f"{int(time.monotonic() * 1e9)} "
    first, last = effects[0].split(), effects[-1].split()
    again = late + " ".join(["w", first[2], "claim", "owner=forged .\n"]), late + " ".join(
        ["w", first[2], "claimed", "owner=forged verdict=run attempt=99 .\n"]), late + " ".join(
            ["w", first[2], "effect", "owner=forged attempt=99 .\n"])
    lane = next(w for line in lines if line.split()[2:4] == [last[2], "publish"] for w in line.split() if "lane=" in w)
    early = [line for line in lines if f" {last[2]} " not in line or " publish " not in line]
    early.insert(1, f"1 mix {last[2]} publish {lane} .\n")
    peers = {line.split()[2] for line in lines if f" publish {lane} " in line and ".dead" not in line}
    for name, more, broken in (("twice", lines + list(again), "[29]"),
                               ("lost", [l for l in lines if f" {first[2]} effect " not in l], "8"),
                               ("order", early, "10")):
        if name == "order" and len(peers) < 2:
            continue
        code, said = stage.judged(more, name)
        check(code == 1 and re.search(f"invariant {broken} is broken", said), f"{name}: {code} {said[-600:]}")


def mixed(rig, kinds, weights):
    print(f"# seed {SEED}, {COUNT} messages of each", flush=True)
    chance = random.Random(SEED)
    stages = [Stage(rig, kinds[0], True, chance), Stage(rig, kinds[-1], False, chance),
              Stage(rig, kinds[0], True, chance, shared=True)]
    plan = [what for what, n in weights.items() for _ in range(n * (COUNT // 800 + 1))]
    chance.shuffle(plan)
    rig.broker.settle()
    for stage in stages:
        stage.publish(len(stage.todo) // 2)
        for n in range(len(stage.consumers)):
            stage.start(n)
    for n, what in enumerate(plan):
        share = COUNT * len(stages) * (n + 1) // (len(plan) + 2)
        until(f"{share} are handled", lambda share=share: sum(len(s.handled()) for s in stages) >= share,
              step=0.05)
        strike(rig, stages, chance, what)
        for stage in stages:
            stage.publish(len(stage.todo) // (len(plan) - n))
    for stage in stages:
        until("all are handled", lambda stage=stage: stage.handled() >= stage.keys, step=0.1)
    print(f"# killed: {plan}", flush=True)
    for stage in stages:
        # This may take a minute: for that long a consumer does not retry a queue of dead letters that has lost its
        # leader.
        settled(stage.queue, *stage.consumers)
        lines = stage.history()
        code, said = stage.judged(lines)
        print(f"# {stage.kind}, {'shared' if stage.shared else 'guarded' if stage.guarded else 'plain'}: {said.strip().splitlines()[-1]}", flush=True)
        eq(code, 0, f"{said[-3000:]}: what the judge answers")
        told = list(map(int, re.findall(r"\d+", said.splitlines()[-1])))
        check(told[6 - 1] > COUNT // 3, f"ends were acknowledged: {told}")
        forged(stage, lines)


@test(alone=True, only="rabbit")
def every_message_happens_in_its_order_and_none_is_lost_whoever_is_killed(rig):
    mixed(rig, ["quorum", "classic"], {"consumer": 4, "store": 1, "broker": 1})


@test(alone=True, only="rabbit", long=True)
def the_same_with_the_kinds_of_queues_exchanged(rig):
    mixed(rig, ["classic", "quorum"], {"consumer": 4, "store": 1, "broker": 1})


@test(alone=True, only="stream")
def each_entry_happens_in_its_order_and_none_is_lost_whoever_is_killed(rig):
    mixed(rig, ["stream"], {"consumer": 4, "store": 2, "broker": 3})


if __name__ == "__main__":
    main()
