"""A Redis of a test's own, for tests in Python.

    with redisserver.start(folder) as server: server.url, server.ask("XADD", "q", "*", "body", "x")

On a socket in the folder; it keeps what it was told over kill() and start(), and ends with us.
Further words are settings of the server: start(folder, "--maxmemory", "50mb").

    with redisserver.cluster(folder) as nodes: redisserver.cluster_url(nodes), nodes[0].ask("PING")

Three masters, on ports of the loopback besides: node.port.
"""
import contextlib
import ctypes
import os
import random
import signal
import socket
import subprocess
import time

DEATHSIG = 1  # of prctl
SECONDS = 20


class RedisError(Exception):
    """What the server said."""


def follow_parent():
    ctypes.CDLL(None).prctl(DEATHSIG, signal.SIGTERM)


class Answers:
    """Replies from a connection, as Python has them: None, bytes, int, list; an error is raised."""

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


class Server:
    def __init__(self, folder, *settings):
        os.makedirs(folder, exist_ok=True)
        self.folder, self.settings, self.process = folder, settings, None
        self.socket = os.path.join(folder, "s")
        self.url = "redis:" + self.socket
        self.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        words = ["redis-server", "--port", "0", "--unixsocket", self.socket, "--dir", self.folder,
                 "--save", "", "--appendonly", "yes", "--appendfsync", "always", *self.settings]
        with open(os.path.join(self.folder, "log"), "ab") as log:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            preexec_fn=follow_parent)
        end = time.monotonic() + SECONDS
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"redis-server did not start: see {self.folder}/log")
            time.sleep(0.01)

    def answers(self):
        try:
            return self.ask("PING") == b"PONG"
        except (OSError, RedisError):  # RedisError: it is loading
            return False

    def ask(self, *words):
        """One command, on a connection of its own."""
        return self.ask_all([words])[0]

    def ask_all(self, commands):
        """Many commands in one go; their replies."""
        commands = list(commands)
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(SECONDS)
            sock.connect(self.socket)
            answers, replies = Answers(sock), []
            for at in range(0, len(commands), 500):
                part = commands[at:at + 500]
                sock.sendall(b"".join(command(words) for words in part))
                replies += [answers.next() for _ in part]
            return replies

    def kill(self):
        """SIGKILL; start() brings it back with what it had."""
        self.process.kill()
        self.process.wait()

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def stop(self):
        if self.process.poll() is None:
            self.kill()

    # Streams.

    def add(self, stream, **fields):
        """An entry; its id."""
        return self.ask("XADD", stream, "*", *[x for pair in fields.items() for x in pair]).decode()

    def entries(self, stream):
        """[(id, {name: value})], names as text."""
        return [(entry.decode(), {fields[i].decode("latin-1"): fields[i + 1]
                                  for i in range(0, len(fields), 2)})
                for entry, fields in self.ask("XRANGE", stream, "-", "+")]

    def pending(self, stream, group="idem"):
        """{id: (consumer, idle in ms, deliveries)}"""
        try:
            rows = self.ask("XPENDING", stream, group, "-", "+", 1000000)
        except RedisError as error:
            if str(error).startswith("NOGROUP"):
                return {}
            raise
        return {row[0].decode(): (row[1].decode(), row[2], row[3]) for row in rows}

    def unread(self, stream, group="idem"):
        """How many entries the group has not delivered to anybody yet."""
        for row in self.ask("XINFO", "GROUPS", stream):
            info = dict(zip(row[::2], row[1::2]))
            if info[b"name"] == group.encode():
                after = self.ask("XRANGE", stream, b"(" + info[b"last-delivered-id"], "+")
                return len(after)
        return self.ask("XLEN", stream)


def start(folder, *settings):
    return Server(folder, *settings)


# A cluster.

SLOTS = 16384


def ports_free(n):
    """Ports of the loopback that nobody has, nor those by which nodes of a cluster speak, 10000 further."""
    found = []
    for port in random.sample(range(20000, 30000), 1000):
        with socket.socket() as one, socket.socket() as other:
            try:
                one.bind(("127.0.0.1", port))
                other.bind(("127.0.0.1", port + 10000))
            except OSError:
                continue
        found.append(port)
        if len(found) == n:
            return found
    raise AssertionError("no ports are free")


def cluster_join(nodes):
    for i, node in enumerate(nodes):
        node.ask("CLUSTER", "ADDSLOTSRANGE", SLOTS * i // len(nodes), SLOTS * (i + 1) // len(nodes) - 1)
        nodes[0].ask("CLUSTER", "MEET", "127.0.0.1", node.port)
    end = time.monotonic() + SECONDS
    wanted = [b"cluster_state:ok", b"cluster_slots_ok:%d" % SLOTS, b"cluster_size:%d" % len(nodes)]
    while not all(word in node.ask("CLUSTER", "INFO") for node in nodes for word in wanted):
        if time.monotonic() > end:
            raise AssertionError("the cluster does not come together")
        time.sleep(0.05)


def cluster_url(nodes):
    return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes)


@contextlib.contextmanager
def cluster(folder, n=3):
    with contextlib.ExitStack() as stack:
        nodes = []
        for port in ports_free(n):
            node = stack.enter_context(start(f"{folder}/{port}", "--port", str(port), "--bind", "127.0.0.1",
                                             "--cluster-enabled", "yes"))
            node.port = port
            nodes.append(node)
        cluster_join(nodes)
        yield nodes
