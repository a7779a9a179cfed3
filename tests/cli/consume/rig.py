"""Shared by the tests of `idem consume`: a broker, a store, queues, consumers, and their effects.

IDEM_EXE is idem(1), IDEM_BROKER the broker (brokers.py), IDEM_LONG asks for the long forms.
"""
import collections
import json
import os
import re
import shlex
import signal
import struct
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True
import brokers
import redistcp
from rabbit import follow_parent
from waiting import LIMIT, until

IDEM = os.environ.get("IDEM_EXE", "idem")
LONG = bool(os.environ.get("IDEM_LONG"))
HERE = os.path.dirname(os.path.abspath(__file__))
# No log line may contain this word, which is in every body and in every key.
MARK = "sesame"
SANITIZER = re.compile(r"AddressSanitizer|LeakSanitizer|runtime error:|ThreadSanitizer")


# A lease that holds, however busy the machine is. A test that needs a lease to end uses a shorter one, or moves the
# clock that ends it: LeaseClock for a store in LMDB, rig.timed_store for one in Redis.
LEASE_S = 60
FAST = ["--lease", f"{LEASE_S}s", "--backoff", "500ms..500ms"]


class LeaseClock:
    """The clock by which consumers with its env() renew leases, and LMDB ends them (tests/cli/lease_clock.c)."""

    def __init__(self, path):
        self.path, self.ahead = path, 0
        self.advance(0)

    def advance(self, seconds, *consumers):
        """Moves the clock, and makes these consumers read it."""
        self.ahead += seconds
        with open(self.path, "r+b" if os.path.exists(self.path) else "wb") as file:
            file.write(struct.pack("=qq", self.ahead, 0))
        for consumer in consumers:
            consumer.told("in hand")

    def env(self):
        return {"LD_PRELOAD": os.environ["IDEM_LEASE_CLOCK_LIBRARY"], "IDEM_LEASE_CLOCK": self.path}


class Consumer:
    """A running `idem consume`."""

    def __init__(self, words, env, cwd, ignored=()):
        self.words = words
        self.lines, self.out = [], []  # stderr with times, and stdout
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, errors="replace", env=env, cwd=cwd,
                                        preexec_fn=lambda: self.prepare(ignored))
        self.pid = self.process.pid
        self.readers = [threading.Thread(target=self.read, args=pair, daemon=True)
                        for pair in ((self.process.stderr, self.lines), (self.process.stdout, self.out))]
        for reader in self.readers:
            reader.start()

    @staticmethod
    def prepare(ignored):
        """Runs in the child, before it becomes idem."""
        follow_parent()
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)

    @staticmethod
    def read(file, into):
        for line in file:
            into.append((time.monotonic(), line.rstrip("\n")))
            if os.environ.get("IDEM_TRACE_LINES"):
                print(f"# {time.monotonic():.3f} {line.rstrip()}", flush=True)

    def said(self):
        return "\n".join(line for _, line in self.lines)

    def has(self, pattern, times=1):
        return len(re.findall(pattern, self.said(), re.M)) >= times

    def wait_for(self, pattern, times=1):
        try:
            until(f"a line with {pattern!r}", lambda: self.has(pattern, times))
        except AssertionError as error:
            raise AssertionError(f"{error}; the consumer said:\n" + "\n".join(self.said().splitlines()[-30:])) from None

    def counts(self):
        """The last line of --json."""
        return json.loads(self.out[-1][1]) if self.out else {}

    def sum(self):
        """The counts of the last report, at SIGUSR1 or at the end: {name: number}."""
        found = re.findall(r"^.*fetched \d+, .*$", self.said(), re.M)
        return {name.strip(): int(n) for name, n in re.findall(r"([a-z ]+) (\d+)", found[-1])} if found else {}

    def told(self, name):
        """A count at this moment; -1 if the report lacks it."""
        before = len(re.findall(r"fetched \d+, ", self.said()))
        self.signal(signal.SIGUSR1)
        until("the counts are reported", lambda: len(re.findall(r"fetched \d+, ", self.said())) > before)
        return self.sum().get(name, -1)

    def running(self):
        return self.process.poll() is None

    def takes(self, number):
        """Returns true if the signal does not kill the process: it handles, blocks or ignores it."""
        try:
            with open(f"/proc/{self.pid}/status", encoding="ascii", errors="replace") as file:
                masks = re.findall(r"^Sig(?:Blk|Ign|Cgt):\t(\w+)$", file.read(), re.M)
        except OSError:
            return True
        return not self.running() or any(int(mask, 16) >> (number - 1) & 1 for mask in masks)

    def signal(self, number):
        if number not in (signal.SIGSTOP, signal.SIGCONT):
            until("it waits for signals", lambda: self.takes(number))
        self.process.send_signal(number)

    def kill(self):
        """Simulates a crash."""
        if self.running():
            self.process.kill()
        return self.end()

    def end(self):
        """Waits for the end; returns the exit status."""
        try:
            self.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end within {LIMIT} s; it said:\n" +
                                 "\n".join(self.said().splitlines()[-20:])) from None
        for reader in self.readers:
            reader.join(LIMIT)
        return self.process.returncode

    def stop(self):
        """Ends the consumer gracefully."""
        self.signal(signal.SIGTERM)
        status = self.end()
        if status != 0:
            raise AssertionError(f"it ended with {status}; it said:\n" + "\n".join(self.said().splitlines()[-20:]))
        return status


class Queue:
    """A queue of a test's own."""

    def __init__(self, rig, name):
        self.rig, self.name, self.broker = rig, name, rig.broker
        self.dead = name + ".dead"

    def publish(self, key, headers=None, message_id=None, **more):
        """Publishes a message with the key in its body. The key counts as a secret: no log may show it."""
        body = {"id": key, "note": MARK, **more}
        self.broker.publish(self.name, json.dumps(body).encode(), headers, message_id)

    def publish_bytes(self, body, headers=None, message_id=None):
        self.broker.publish(self.name, body, headers, message_id)

    def count(self):
        return self.broker.count(self.name)

    def dead_count(self):
        return self.broker.count(self.dead) or 0

    def letters(self):
        """Takes the dead letters out of their queue."""
        return self.broker.take(self.dead)

    def empty(self):
        """Waits until no message is ready or unacknowledged; the consumers must have ended."""
        until(f"{self.name} is empty", lambda: self.count() == 0)


class Rig:
    """One for each test; all share the broker, and the counters of names."""
    names, lock = collections.Counter(), threading.Lock()

    def __init__(self, broker, folder, kind):
        self.broker, self.folder, self.kind = broker.fork(kind), folder, kind
        self.redis, self.consumers = None, []

    def close(self):
        """Ends all processes of the test. Returns the consumers' output."""
        said = []
        for consumer in self.consumers:
            consumer.kill()
            said += [line for _, line in consumer.out + consumer.lines]
        if self.redis is not None:
            self.redis.stop()
        return said

    def fresh(self, what):
        with self.lock:
            self.names[what] += 1
            return f"{what}{self.names[what]}"

    def key(self):
        return self.fresh(MARK + "-")

    @property
    def store(self):
        """A Redis, as the store that can fail."""
        if self.redis is None:
            self.redis = redistcp.Server(f"{self.folder}/{self.fresh('redis')}")
        return self.redis

    @property
    def timed_store(self):
        """The same, with a clock that the test moves: store.clock.advance(LEASE_S + 1) ends all leases."""
        if self.redis is None:
            clock = redistcp.redisserver.Clock(os.environ["IDEM_SERVER_CLOCK_LIBRARY"])
            self.redis = redistcp.Server(f"{self.folder}/{self.fresh('redis')}", clock)
        return self.redis

    def lease_clock(self):
        return LeaseClock(f"{self.folder}/{self.fresh('clock')}")

    def lmdb(self):
        return f"lmdb:{self.folder}/{self.fresh('store')}?sync=off"

    def queue(self, dead=True):
        """Declares a queue with its queue of dead letters now, because a consumer waits for a new one."""
        queue = Queue(self, self.fresh(f"{self.kind}-orders"))
        self.broker.declare(queue.name)
        if dead:
            self.broker.declare(queue.dead)
        return queue

    def effects(self):
        return Effects(f"{self.folder}/{self.fresh('effects')}")

    def gate(self):
        return Gate(f"{self.folder}/{self.fresh('gate')}")

    def env(self, **more):
        clean = {k: v for k, v in os.environ.items() if not k.endswith("_PASSWORD") and k != "IDEM_STORE"}
        return dict(clean, **more)

    def consume(self, queue, *flags, store=None, url=None, key="#body.id", env=None, ignored=()):
        words = [IDEM, "consume", url or self.broker.url, "--queue", getattr(queue, "name", queue), "--store",
                 store or self.lmdb(), *(["--key", key] if key else []), *map(str, flags)]
        if self.broker.name == "stream" and "--consumer" not in flags:
            words += ["--consumer", "first"]
        consumer = Consumer(words, self.env(**(env or {})), self.folder, ignored)
        self.consumers.append(consumer)
        return consumer

    def idem(self, *words, status=0, env=None):
        """Runs idem, checks its exit status, and returns its output (stdout and stderr)."""
        run = subprocess.run([IDEM, *map(str, words)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, timeout=LIMIT, check=False,
                             env=self.env(**(env or {})), cwd=self.folder)
        if run.returncode != status:
            raise AssertionError(f"idem {shlex.join(map(str, words))}: {run.returncode}, not {status}: {run.stdout}")
        return run.stdout


def settled(queue, *consumers):
    """Waits until no message is ready or in hand; then stops the consumers, and checks that the queue is empty."""
    until("nothing waits, nor is in hand",
          lambda: queue.count() == 0 and all(c.told("in hand") == 0 for c in consumers) and queue.count() == 0,
          step=0.05)
    for consumer in consumers:
        consumer.stop()
    queue.empty()


class Gate:
    """Handlers wait at the gate until the test opens it."""

    def __init__(self, path):
        self.path = path

    def wait(self):
        """A shell command that waits. It ends with its consumer at the latest."""
        return f"while [ ! -e {self.path} ]; do sleep .02; done"

    def is_open(self):
        """A shell command that succeeds if the gate is open."""
        return f"[ -e {self.path} ]"

    def open(self):
        with open(self.path, "w", encoding="ascii"):
            pass


class Effects:
    """The effects of handlers: a file of lines "KEY ATTEMPT", each appended in one write."""

    def __init__(self, path):
        self.path = path
        with open(path, "w", encoding="utf-8"):
            pass

    def line(self):
        """A shell command that appends a line."""
        return f'echo "$IDEM_KEY $IDEM_ATTEMPT" >>{self.path}'

    def all(self):
        with open(self.path, encoding="utf-8") as file:
            return [line.split() for line in file]

    def keys(self):
        return [words[0] for words in self.all()]

    def attempts(self, key):
        return [int(words[1]) for words in self.all() if words[0] == key]

    def wait(self, n):
        try:
            until(f"{n} effects", lambda: len(self.all()) >= n)
        except AssertionError as error:
            raise AssertionError(f"{error}, but {self.all()}") from None
