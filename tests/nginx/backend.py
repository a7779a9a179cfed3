"""A backend with a ledger, for the tests of the HTTP gateway.

The backend records every request that reaches it and counts its side effects.
A directive chooses the response or the failure of each request: the X-Do header
(JSON), or a script for the path, which takes precedence. The backend speaks
HTTP/1.x, FastCGI and uwsgi, all by hand, because the tests need control of every
byte and of every close.

A directive is a dict; each of its members is optional:
  status, headers, type        of the response; headers is a list of pairs
  body | size                  the body itself, text or (of a script) bytes, or how many bytes of a pattern
  frame                        length (default), chunked, close
  delay, late                  seconds before and after the side effect
  effect                       False: the request has no side effect
  hang                         after the effect, wait until go(NAME) is called
  pause                        [N, NAME]: after N bytes of the body, wait for go(NAME)
  truncate                     N: close after N bytes of the body
  fault                        close, rst: before the response; garbage, bighead: an invalid response
  read                         N: reset after N bytes of the request's body
  gzip                         encode the body even if the client does not accept it
  http10                       write HTTP/1.0 in the status line
  interim                      send 100 Continue first
"""
import collections
import errno
import gzip
import itertools
import json
import socket
import struct
import threading
import time

from ports import free_port
from waiting import LIMIT, until

REASONS = {200: "OK", 201: "Created", 204: "No Content", 302: "Found", 404: "Not Found",
           500: "Internal Server Error"}


def pattern(size, seed=0):
    """Returns `size` bytes that differ by place and by seed."""
    unit = b"".join(b"%08d:%06d;" % (i * 16, seed % 1000000) for i in range(min(size // 16 + 1, 4096)))
    return (unit * (size // len(unit) + 1))[:size]


def unread(sock):
    """Returns how many bytes in the other end's socket its process has not read yet; None: it has disconnected."""
    def address(pair):
        return "%08X:%04X" % (struct.unpack("=I", socket.inet_aton(pair[0]))[0], pair[1])
    try:
        ends = [address(sock.getpeername()), address(sock.getsockname())]
    except OSError:
        return None
    with open("/proc/net/tcp", encoding="ascii") as file:
        for line in file:
            words = line.split()
            if words[1:3] == ends:
                return int(words[4].split(":")[1], 16)
    return None


class Cut(Exception):
    """The other side has disconnected, or the directive ends the connection."""


class Seen:
    """One request as it reached the backend."""

    def __init__(self, serial, wire, sock):
        self.serial = serial
        self.wire, self.sock = wire, sock
        self.method = self.target = ""
        self.headers = []
        self.body = b""
        self.effect = False
        self.effected = None  # the time of the side effect
        self.status = None
        self.outcome = None  # answered, truncated, close, rst, cut, gone
        self.answer = b""
        self.start = time.monotonic()
        self.end = None
        self.left = None  # the time at which the other side was found gone, while the request hung here

    def all(self, name):
        return [v for n, v in self.headers if n.lower() == name.lower()]

    def h(self, name):
        values = self.all(name)
        return values[0] if values else None

    @property
    def path(self):
        return self.target.split("?", 1)[0]

    @property
    def key(self):
        value = self.h("Idempotency-Key")
        return None if value is None else value.strip('"')

    def __repr__(self):
        return f"<{self.serial} {self.method} {self.target} key={self.key} effect={self.effect} " \
               f"{self.outcome} {self.status}>"


class Wire:
    """A connection, with the helpers that all protocols need."""
    name = "?"

    def __init__(self, sock, number):
        self.sock, self.number = sock, number
        self.buffer = b""

    def more(self):
        data = self.sock.recv(65536)
        if not data:
            raise Cut("eof")
        self.buffer += data

    def take(self, n):
        while len(self.buffer) < n:
            self.more()
        data, self.buffer = self.buffer[:n], self.buffer[n:]
        return data

    def gone(self):
        """Returns true if the other side has closed; unread bytes stay unread."""
        try:
            return self.sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def reset(self):
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raise Cut("rst")

    def raw(self, data):
        self.sock.sendall(data)


class Http(Wire):
    name = "http"
    keeps = False
    chunked = False

    def read(self, seen, limit_of):
        try:
            while b"\r\n\r\n" not in self.buffer:
                self.more()
        except (Cut, OSError):
            return False
        head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        lines = head.decode("latin-1").split("\r\n")
        seen.method, seen.target, version = lines[0].split(" ", 2)
        seen.headers = [(n, v.strip()) for n, v in (line.split(":", 1) for line in lines[1:])]
        self.keeps = version == "HTTP/1.1" and (seen.h("Connection") or "").lower() != "close"
        limit = limit_of(seen)
        if limit is not None:
            self.take(min(limit, int(seen.h("Content-Length") or 0)))
            self.reset()
        if (seen.h("Transfer-Encoding") or "").lower() == "chunked":
            seen.body = self.chunks()
        else:
            seen.body = self.take(int(seen.h("Content-Length") or 0))
        return True

    def chunks(self):
        body = b""
        while True:
            while b"\r\n" not in self.buffer:
                self.more()
            line, self.buffer = self.buffer.split(b"\r\n", 1)
            size = int(line.split(b";")[0], 16)
            body += self.take(size)
            self.take(2)
            if size == 0:
                return body

    def head(self, status, headers, do, size):
        self.chunked = do.get("frame") == "chunked"
        bodyless = status in (204, 304)
        if do.get("frame", "length") == "length" and not bodyless:
            headers = headers + [("Content-Length", str(size))]
        elif self.chunked:
            headers = headers + [("Transfer-Encoding", "chunked")]
        elif not bodyless:
            self.keeps = False
        if not self.keeps:
            headers = headers + [("Connection", "close")]
        version = "HTTP/1.0" if do.get("http10") else "HTTP/1.1"
        text = f"{version} {status} {REASONS.get(status, 'Status')}\r\n"
        text += "".join(f"{n}: {v}\r\n" for n, v in headers)
        if do.get("interim"):
            self.raw(b"HTTP/1.1 100 Continue\r\n\r\n")
        return (text + "\r\n").encode("latin-1")

    def part(self, data):
        return b"%x\r\n%s\r\n" % (len(data), data) if self.chunked and data else data

    def tail(self):
        return b"0\r\n\r\n" if self.chunked else b""


class Fastcgi(Wire):
    name = "fastcgi"
    keeps = False

    def read(self, seen, limit_of):
        params, stdin, ended = b"", b"", False
        try:
            while not ended:
                _, kind, self.id, length, padding, _ = struct.unpack("!BBHHBB", self.take(8))
                data = self.take(length)
                self.take(padding)
                if kind == 1:
                    self.keeps = bool(data[2] & 1)
                elif kind == 4:
                    params += data
                elif kind == 5:
                    stdin += data
                    ended = not data
        except (Cut, OSError):
            return False
        adopt(seen, self.pairs(params), stdin)
        if limit_of(seen) is not None:
            self.reset()
        return True

    @staticmethod
    def pairs(data):
        at, found = 0, []

        def length():
            nonlocal at
            n = data[at]
            if n & 0x80:
                n = struct.unpack_from("!I", data, at)[0] & 0x7FFFFFFF
                at += 3
            at += 1
            return n
        while at < len(data):
            n, v = length(), length()
            found.append((data[at:at + n].decode("latin-1"), data[at + n:at + n + v].decode("latin-1")))
            at += n + v
        return found

    def record(self, kind, data):
        return struct.pack("!BBHHBB", 1, kind, self.id, len(data), 0, 0) + data

    def head(self, status, headers, do, size):
        text = f"Status: {status} {REASONS.get(status, 'Status')}\r\n"
        text += "".join(f"{n}: {v}\r\n" for n, v in headers)
        return self.part((text + "\r\n").encode("latin-1"))

    def part(self, data):
        return b"".join(self.record(6, data[i:i + 32768]) for i in range(0, len(data), 32768))

    def tail(self):
        return self.record(6, b"") + self.record(3, struct.pack("!IB3x", 0, 0))


class Uwsgi(Wire):
    name = "uwsgi"
    keeps = False

    def read(self, seen, limit_of):
        try:
            _, size, _ = struct.unpack("<BHB", self.take(4))
            data, at, found = self.take(size), 0, []
            while at < size:
                n = struct.unpack_from("<H", data, at)[0]
                v = struct.unpack_from("<H", data, at + 2 + n)[0]
                found.append((data[at + 2:at + 2 + n].decode("latin-1"),
                              data[at + 4 + n:at + 4 + n + v].decode("latin-1")))
                at += 4 + n + v
            length = int(dict(found).get("CONTENT_LENGTH") or 0)
            adopt(seen, found, b"")
            if limit_of(seen) is not None:
                self.reset()
            seen.body = self.take(length)
        except (Cut, OSError):
            return False
        return True

    head = Http.head
    chunked = False

    def part(self, data):
        return data

    def tail(self):
        return b""


def adopt(seen, params, body):
    """Fills in a request from its CGI variables."""
    table = dict(params)
    seen.method, seen.target = table.get("REQUEST_METHOD", ""), table.get("REQUEST_URI", "")
    seen.headers = [(n[5:].replace("_", "-").title(), v) for n, v in params if n.startswith("HTTP_")]
    seen.headers += [(n.replace("_", "-").title(), table[n]) for n in ("CONTENT_TYPE", "CONTENT_LENGTH")
                     if table.get(n)]
    seen.params = params
    seen.body = body


class Backend:
    def __init__(self, wire=Http, host="127.0.0.1", port=0):
        self.wire = wire
        self.lock = threading.Lock()
        self.seen = []
        self.scripts = {}
        self.events = collections.defaultdict(threading.Event)
        self.arrivals = collections.Counter()
        self.arrived = threading.Condition(self.lock)
        self.active, self.most = collections.Counter(), collections.Counter()
        self.numbers, self.serials = itertools.count(1), itertools.count(1)
        self.connections = set()
        self.accepted = 0
        self.open(host, port)

    def open(self, host="127.0.0.1", port=0):
        while True:
            self.port = port or free_port()
            self.listener = socket.socket()
            self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                self.listener.bind((host, self.port))
                break
            except OSError as error:
                self.listener.close()
                if port or error.errno != errno.EADDRINUSE:
                    raise  # a process outside the tests may take the port meanwhile
        self.listener.listen(1024)
        threading.Thread(target=self.accept, args=(self.listener,), daemon=True).start()

    def accept(self, listener):
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.lock:
                self.connections.add(sock)
                self.accepted += 1
            threading.Thread(target=self.serve, args=(sock,), daemon=True).start()

    def close(self):
        """Stops listening, and lets all hanging requests continue."""
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.listener.close()
        for event in list(self.events.values()):
            event.set()

    # Methods for tests.

    def script(self, path, *directives):
        """The next requests to the path follow these directives, in turn; the last one stays."""
        with self.lock:
            self.scripts[path] = list(directives)

    def go(self, name):
        self.events[name].set()

    def reached(self, name, count=1):
        """Waits until `count` requests hang at that name."""
        end = time.monotonic() + LIMIT
        with self.arrived:
            while self.arrivals[name] < count:
                left = end - time.monotonic()
                if left <= 0:
                    raise AssertionError(f"only {self.arrivals[name]} of {count} reached {name}: "
                                         f"{self.seen[-5:]}")
                self.arrived.wait(left)

    def requests(self, key=None, path=None, ref=None):
        with self.lock:
            return [s for s in self.seen
                    if (key is None or s.key == key) and (path is None or s.path == path)
                    and (ref is None or s.h("X-Ref") == ref)]

    def effects(self, key=None, path=None, ref=None):
        return sum(s.effect for s in self.requests(key, path, ref))

    def wait_effects(self, count, **which):
        until(f"{count} effects of {which}", lambda: self.effects(**which) >= count)
        got = self.effects(**which)
        if got != count:
            raise AssertionError(f"{got} effects instead of {count} of {which}: {self.requests(**which)}")

    # Serves one connection.

    def serve(self, sock):
        wire = self.wire(sock, next(self.numbers))
        try:
            while self.exchange(wire) and wire.keeps:
                pass
        except (Cut, OSError):
            pass
        finally:
            with self.lock:
                self.connections.discard(sock)
            sock.close()

    def directive(self, seen):
        with self.lock:
            script = self.scripts.get(seen.path)
            if script:
                return script.pop(0) if len(script) > 1 else script[0]
        text = seen.h("X-Do")
        return json.loads(text) if text else {}

    def exchange(self, wire):
        seen = Seen(0, wire.number, wire.sock)
        chosen = []

        def limit_of(request):
            chosen.append(self.directive(request))
            limit = chosen[0].get("read")
            if limit is not None:
                self.enter(request)
                request.outcome = "cut"
                self.leave(request)
            return limit
        if not wire.read(seen, limit_of):
            return False
        do = chosen[0]
        self.enter(seen)
        try:
            self.work(wire, seen, do)
            self.reply(wire, seen, do)
            seen.outcome = seen.outcome or "answered"
        except OSError:
            seen.outcome = seen.outcome or "gone"
            raise
        finally:
            self.leave(seen)
        return True

    def enter(self, seen):
        with self.lock:
            seen.serial = next(self.serials)
            self.seen.append(seen)
            self.active[seen.key] += 1
            self.most[seen.key] = max(self.most[seen.key], self.active[seen.key])

    def leave(self, seen):
        """Ends the run before the last byte of its response, because a client that has read that byte may start
        another run."""
        with self.lock:
            if seen.end is None:
                seen.end = time.monotonic()
                self.active[seen.key] -= 1

    def work(self, wire, seen, do):
        if do.get("delay"):
            time.sleep(do["delay"])  # sleep: the test asks for it; nothing may depend on its length
        seen.effect = do.get("effect", True) and seen.method not in ("GET", "HEAD", "OPTIONS")
        seen.effected = time.monotonic()
        if do.get("late"):
            time.sleep(do["late"])  # sleep: as above
        if do.get("hang"):
            self.hang(wire, seen, do["hang"])

    def hang(self, wire, seen, name):
        with self.arrived:
            self.arrivals[name] += 1
            self.arrived.notify_all()
        while not self.events[name].wait(0.02):
            if seen.left is None and wire.gone():
                seen.left = time.monotonic()

    def reply(self, wire, seen, do):
        fault = do.get("fault")
        if fault or "truncate" in do:
            self.leave(seen)
        if fault in ("close", "rst"):
            seen.outcome = fault
            if fault == "rst":
                wire.reset()
            raise Cut(fault)
        if fault == "garbage":
            seen.outcome = fault
            wire.raw(b"HTTP/1.1 200 OK\r\nbad\x00header: x\r\n\r\n")
            raise Cut(fault)
        seen.status = do.get("status", 200)
        body = self.body_of(seen, do)
        seen.answer = body
        headers = [tuple(pair) for pair in do.get("headers", [])]
        if body or not do.get("untyped"):
            headers.insert(0, ("Content-Type", do.get("type", "application/json")))
        if do.get("gzip"):
            body = gzip.compress(body, mtime=0)
            headers.append(("Content-Encoding", "gzip"))
        if fault == "bighead":
            headers.append(("X-Big", "x" * 65536))
            seen.outcome = fault
        head = wire.head(seen.status, headers, do, len(body))
        if seen.method == "HEAD":
            body = b""
        at = min(len(body), *[n for n in (do.get("truncate"), (do.get("pause") or [None])[0])
                              if n is not None], len(body))
        if "truncate" in do:
            seen.outcome = "truncated"
            wire.raw(head + wire.part(body[:at]))
            raise Cut("truncated")
        if "pause" in do:
            wire.raw(head + wire.part(body[:at]))
            self.hang(wire, seen, do["pause"][1])
            head = b""
        else:
            at = 0
        self.leave(seen)
        wire.raw(head + wire.part(body[at:]) + wire.tail())

    @staticmethod
    def body_of(seen, do):
        if do.get("status", 200) in (204, 304):
            return b""
        if "size" in do:
            return pattern(do["size"], seen.serial)
        if "body" in do:
            return do["body"] if isinstance(do["body"], bytes) else do["body"].encode()
        return json.dumps({"serial": seen.serial, "path": seen.path}).encode()


class Blackhole:
    """A port that is open and never accepts: connecting to it takes for ever."""

    def __init__(self):
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(0)
        self.port = self.listener.getsockname()[1]
        self.filler = socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT)
        until("its queue is full", self.is_full)

    def is_full(self):
        """Linux drops a SYN if the queue of connections exceeds the backlog. For a listening socket, tcp_info has the
        two numbers as tcpi_unacked and tcpi_sacked."""
        info = self.listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
        waiting, backlog = struct.unpack_from("=II", info, 24)
        return waiting > backlog

    def close(self):
        self.filler.close()
        self.listener.close()
