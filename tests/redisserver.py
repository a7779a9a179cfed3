"""A Redis of a test's own, for tests in Python.

    with redisserver.start(folder) as server: server.url, server.ask("XADD", "q", "*", "body", "x")

The server listens on a socket in the directory, keeps its data over kill() and start(), and ends with this
process. Further words are settings of the server: start(folder, "--maxmemory", "50mb").

    with redisserver.cluster(folder) as nodes: redisserver.cluster_url(nodes), nodes[0].ask("PING")

Three masters, which also listen on ports of the loopback: node.port.

    with redisserver.start(folder, clock=redisserver.Clock(library)) as server: server.clock.advance(60)

The server's time of day is the test's (tests/clock_preload.c).

    with redisserver.sentinel(folder, server.port) as sentinel: sentinel.master_url

The sentinel watches a server that listens on a port, under the name "shop".
"""
import contextlib
import ctypes
import mmap
import os
import signal
import socket
import struct
import subprocess
import time

import ports
import waiting

DEATHSIG = 1  # of prctl


class RedisError(Exception):
    """The error that the server returned."""


def follow_parent():
    ctypes.CDLL(None).prctl(DEATHSIG, signal.SIGTERM)


def state(pid):
    """The state of the process as in ps(1), a letter."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        return file.read().rsplit(")", 1)[1].split()[0]


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(word) for word in file.read().split()]


class Answers:
    """Reads replies from a connection as Python values: None, bytes, int, list; an error is raised."""

    def __init__(self, sock):
        self.file = sock.makefile("rb")

    def next(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise OSError("the connection was lost")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest
        if kind == b"-":
            raise RedisError(rest.decode("utf-8", "replace"))
        if kind == b":":
            return int(rest)
        if kind == b"$":
            size = int(rest)
            return None if size < 0 else self.file.read(size + 2)[:-2]
        if kind == b"*":
            return None if int(rest) < 0 else [self.next() for _ in range(int(rest))]
        raise OSError(f"no reply begins with {kind!r}")


def command(words):
    parts = [w if isinstance(w, bytes) else str(w).encode() for w in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts)


class Clock:
    """The time of day of a server. It stands still until the test advances it."""

    def __init__(self, library):
        self.library, self.fd = library, os.memfd_create("clock")
        os.ftruncate(self.fd, 16)
        self.numbers = mmap.mmap(self.fd, 16)
        self.set(int(time.time() * 1000))

    def set(self, ms):
        struct.pack_into("=q", self.numbers, 8, ms)

    def advance(self, seconds):
        self.set(struct.unpack_from("=q", self.numbers, 8)[0] + int(seconds * 1000))

    def env(self):
        return {"LD_PRELOAD": self.library, "IDEM_CLOCK_FD": str(self.fd)}


class Server:
    def __init__(self, folder, *settings, clock=None):
        os.makedirs(folder, exist_ok=True)
        self.folder, self.settings, self.process, self.clock = folder, settings, None, clock
        self.socket = os.path.join(folder, "s")
        self.url = "redis:" + self.socket
        self.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def words(self):
        return ["redis-server", "--port", "0", "--unixsocket", self.socket, "--dir", self.folder,
                "--save", "", "--appendonly", "yes", "--appendfsync", "always", *self.settings]

    def start(self):
        with open(os.path.join(self.folder, "log"), "ab") as log:
            self.process = subprocess.Popen(self.words(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            preexec_fn=follow_parent, pass_fds=[self.clock.fd] if self.clock else [],
                                            env={**os.environ, **(self.clock.env() if self.clock else {})})
        waiting.until("redis-server", self.is_ready)

    def is_ready(self):
        if self.process.poll() is None:
            return self.answers()
        with open(os.path.join(self.folder, "log"), encoding="utf-8", errors="replace") as log:
            raise AssertionError("redis-server did not start: " + log.read()[-1000:])

    def answers(self):
        try:
            return self.ask("PING") == b"PONG"
        except (OSError, RedisError):  # RedisError: the server is loading
            return False

    def ask(self, *words):
        """Sends one command, on a connection of its own."""
        return self.ask_all([words])[0]

    def ask_all(self, commands):
        """Sends many commands in one go; returns their replies."""
        commands = list(commands)
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(waiting.LIMIT)
            sock.connect(self.socket)
            answers, replies = Answers(sock), []
            for at in range(0, len(commands), 500):
                part = commands[at:at + 500]
                sock.sendall(b"".join(command(words) for words in part))
                replies += [answers.next() for _ in part]
            return replies

    def kill(self):
        """SIGKILL; start() brings the server back with its data. A child that rewrites its file is killed, too."""
        if self.process.poll() is not None:
            return
        self.pause()
        family = children(self.process.pid)
        self.process.kill()
        for pid in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        waiting.until("its children are gone", lambda: not any(os.path.exists(f"/proc/{pid}/exe") for pid in family))

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)
        waiting.until("it stands still", lambda: state(self.process.pid) in "TZX")

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def stop(self):
        self.kill()

    # Streams.

    def add(self, stream, **fields):
        """Adds an entry; returns its id."""
        return self.ask("XADD", stream, "*", *[x for pair in fields.items() for x in pair]).decode()

    def entries(self, stream):
        """Returns [(id, {name: value})], names as text."""
        return [(entry.decode(), {fields[i].decode("latin-1"): fields[i + 1]
                                  for i in range(0, len(fields), 2)})
                for entry, fields in self.ask("XRANGE", stream, "-", "+")]

    def pending(self, stream, group="idem"):
        """Returns {id: (consumer, idle in ms, deliveries)}."""
        try:
            rows = self.ask("XPENDING", stream, group, "-", "+", 1000000)
        except RedisError as error:
            if str(error).startswith("NOGROUP"):
                return {}
            raise
        return {row[0].decode(): (row[1].decode(), row[2], row[3]) for row in rows}

    def unread(self, stream, group="idem"):
        """Returns how many entries the group has not delivered yet."""
        for row in self.ask("XINFO", "GROUPS", stream):
            info = dict(zip(row[::2], row[1::2]))
            if info[b"name"] == group.encode():
                after = self.ask("XRANGE", stream, b"(" + info[b"last-delivered-id"], "+")
                return len(after)
        return self.ask("XLEN", stream)


def start(folder, *settings, clock=None):
    return Server(folder, *settings, clock=clock)


class Sentinel(Server):
    def __init__(self, folder, master_port):
        self.port, self.master_port = ports.free_ports(1)[0], master_port
        self.master_url = f"redis+sentinel://127.0.0.1:{self.port}/shop"
        super().__init__(folder)

    def words(self):
        path = os.path.join(self.folder, "conf")
        with open(path, "w", encoding="ascii") as file:
            file.write(f"port {self.port}\nbind 127.0.0.1\nunixsocket {self.socket}\ndir {self.folder}\n"
                       f"sentinel monitor shop 127.0.0.1 {self.master_port} 1\n")
        return ["redis-server", path, "--sentinel"]


def sentinel(folder, master_port):
    return Sentinel(folder, master_port)


# A cluster.

SLOTS = 16384


def view(node, n):
    """Returns {id: (epoch, ranges of slots)} of the n nodes, as one node reports them; None: some are missing."""
    if b"cluster_state:ok" not in node.ask("CLUSTER", "INFO"):
        return None
    seen = {}
    for line in node.ask("CLUSTER", "NODES").decode().splitlines():
        words = line.split()
        if len(words) < 8 or "master" not in words[2] or "fail" in words[2] or words[7] != "connected":
            return None
        seen[words[0]] = words[6], [word for word in words[8:] if word[0] != "["]
    return seen if len(seen) == n else None


def agrees(nodes):
    """True if all nodes are up and connected, have epochs of their own, and name the same owner for each slot: as
    farm_agrees() in tests/store/redis/farm.c."""
    views = [view(node, len(nodes)) for node in nodes]
    first = views[0]
    return first is not None and all(other == first for other in views) \
        and len({epoch for epoch, _ in first.values()}) == len(nodes)


def cluster_join(nodes):
    for i, node in enumerate(nodes):
        node.ask("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
        node.ask("CLUSTER", "ADDSLOTSRANGE", SLOTS * i // len(nodes), SLOTS * (i + 1) // len(nodes) - 1)
        for other in nodes[:i]:
            other.ask("CLUSTER", "MEET", "127.0.0.1", node.port)
    waiting.until("the nodes of the cluster agree", lambda: agrees(nodes))


def cluster_url(nodes):
    return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes)


@contextlib.contextmanager
def cluster(folder, n=3):
    with contextlib.ExitStack() as stack:
        nodes = []
        for port in ports.free_ports(n):
            node = stack.enter_context(start(f"{folder}/{port}", "--port", str(port), "--bind", "127.0.0.1",
                                             "--cluster-enabled", "yes",
                                             "--cluster-node-timeout", "2000000000"))  # only a test makes a node count as dead
            node.port = port
            nodes.append(node)
        cluster_join(nodes)
        yield nodes
