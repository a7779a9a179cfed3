"""Clients for the tests of the HTTP gateway: raw sockets, curl, and HTTP/2 by hand.

A request is bytes, so that a test can send what no library would; an Answer keeps its headers as the list that came.
"""
import json
import socket
import ssl
import struct
import subprocess
import threading
import time

from waiting import LIMIT


class Answer:
    def __init__(self):
        self.status, self.version, self.reason = None, "", ""
        self.headers, self.body, self.interim = [], b"", []
        self.complete = False  # ended as its framing demands
        self.seconds = 0.0

    def all(self, name):
        return [v for n, v in self.headers if n.lower() == name.lower()]

    def h(self, name):
        values = self.all(name)
        return values[0] if values else None

    @property
    def replayed(self):
        return self.all("Idempotent-Replayed") == ["true"]

    @property
    def problem(self):
        """The JSON of a refusal; {} for other responses."""
        if (self.h("Content-Type") or "").split(";")[0] != "application/problem+json":
            return {}
        return json.loads(self.body)

    @property
    def type(self):
        return (self.problem.get("type") or "").removeprefix("urn:idem:")

    def __repr__(self):
        return f"<{self.status} {self.headers} {self.body[:300]!r}{'' if self.complete else ' INCOMPLETE'}>"


def request(method, path, headers=(), body=b"", version="HTTP/1.1", host="localhost", chunked=0,
            close=True):
    """Returns the bytes of a request. chunked: the size of a chunk."""
    lines = [f"{method} {path} {version}", f"Host: {host}"]
    lines += [f"{n}: {v}" for n, v in headers]
    names = {n.lower() for n, _ in headers}
    if chunked:
        lines.append("Transfer-Encoding: chunked")
        body = b"".join(b"%x\r\n%s\r\n" % (len(body[i:i + chunked]), body[i:i + chunked])
                        for i in range(0, len(body), chunked)) + b"0\r\n\r\n"
    elif (body or method in ("POST", "PUT", "PATCH")) and "content-length" not in names:
        lines.append(f"Content-Length: {len(body)}")
    if close and "connection" not in names and version != "HTTP/1.0":
        lines.append("Connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body


class Conn:
    """A connection of HTTP/1.x."""

    def __init__(self, port, tls=False, timeout=LIMIT, host="127.0.0.1"):
        self.sock = socket.create_connection((host, port), timeout=timeout)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls:
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            self.sock = context.wrap_socket(self.sock)
        self.buffer = b""
        self.born = time.monotonic()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, data):
        self.born = time.monotonic()
        self.sock.sendall(data)
        return self

    def close(self):
        self.sock.close()

    def reset(self):
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def more(self):
        try:
            data = self.sock.recv(65536)
        except (ConnectionError, ssl.SSLError):
            data = b""
        self.buffer += data
        return bool(data)

    def line(self):
        while b"\r\n" not in self.buffer:
            if not self.more():
                return None
        line, self.buffer = self.buffer.split(b"\r\n", 1)
        return line.decode("latin-1")

    def take(self, n):
        parts, got, self.buffer = [self.buffer], len(self.buffer), b""
        while got < n and self.more():
            got += len(self.buffer)
            parts.append(self.buffer)
            self.buffer = b""
        data = b"".join(parts)
        data, self.buffer = data[:n], data[n:]
        return data

    def head(self, answer):
        line = self.line()
        if line is None:
            return False
        answer.version, status, *reason = line.split(" ", 2)
        answer.status, answer.reason = int(status), " ".join(reason)
        answer.headers = []
        while True:
            line = self.line()
            if not line:
                return line is not None
            name, value = line.split(":", 1)
            answer.headers.append((name, value.strip()))

    def answer(self, method="POST"):
        """Reads the next response; `complete` shows whether all of it came."""
        answer = Answer()
        got = self.head(answer)
        while got and 100 <= answer.status < 200:
            answer.interim.append(answer.status)
            answer.status = None
            got = self.head(answer)
        if got:
            self.body(answer, method)
        answer.seconds = time.monotonic() - self.born
        return answer

    def body(self, answer, method):
        length = answer.h("Content-Length")
        if method == "HEAD" or answer.status in (204, 304):
            answer.complete = True
        elif (answer.h("Transfer-Encoding") or "").lower() == "chunked":
            while True:
                line = self.line()
                if line is None:
                    return
                size = int(line.split(";")[0], 16)
                piece = self.take(size)
                answer.body += piece
                if len(piece) < size or self.take(2) != b"\r\n":
                    return
                if size == 0:
                    answer.complete = True
                    return
        elif length is not None:
            answer.body = self.take(int(length))
            answer.complete = len(answer.body) == int(length)
        else:
            while self.more():
                pass
            answer.body, self.buffer = self.buffer, b""
            answer.complete = True


def send(port, data, method="POST", **options):
    """Sends one request on a connection of its own."""
    with Conn(port, **options) as conn:
        return conn.send(data).answer(method)


def burst(port, requests):
    """Sends all requests at once, each on its own connection; returns the responses in their order."""
    conns = [Conn(port) for _ in requests]
    try:
        for conn, data in zip(conns, requests):
            conn.send(data)
        return [conn.answer() for conn in conns]
    finally:
        for conn in conns:
            conn.close()


def together(count, work):
    """Runs work(i) in `count` threads at once; returns their results in order. A failure is raised here."""
    results, errors = [None] * count, []
    gate = threading.Barrier(count)

    def run(i):
        try:
            gate.wait()
            results[i] = work(i)
        except BaseException as error:  # pylint: disable=broad-except
            errors.append(error)
    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


class Later:
    """A request under way in a thread; get() waits for its response."""

    def __init__(self, work):
        self.result = self.error = None

        def run():
            try:
                self.result = work()
            except BaseException as error:  # pylint: disable=broad-except
                self.error = error
        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()

    def done(self):
        return not self.thread.is_alive()

    def get(self):
        self.thread.join(LIMIT)
        if self.thread.is_alive():
            raise AssertionError(f"no answer within {LIMIT} s")
        if self.error:
            raise self.error
        return self.result


def curl(*args, data=None):
    """Runs curl -i; returns the response, with curl's exit status as answer.code."""
    command = ["curl", "-sS", "-i", "-k", "--max-time", str(LIMIT), *args]
    if data is not None:
        command += ["--data-binary", "@-"]
    run = subprocess.run(command, input=data, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    answer = Answer()
    answer.code, answer.error = run.returncode, run.stderr.decode()
    text = run.stdout
    while text.startswith(b"HTTP/"):
        head, _, text = text.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        if answer.status is not None:
            answer.interim.append(answer.status)
        answer.version, status, *_ = lines[0].split(" ")
        answer.status = int(status)
        answer.headers = [(n, v.strip()) for n, v in (line.split(":", 1) for line in lines[1:])]
        if answer.status >= 200:
            break
    answer.body = text
    answer.complete = run.returncode == 0
    return answer


class H2:
    """Just enough of HTTP/2 to send a request and to cancel it; responses are not decoded."""

    def __init__(self, port):
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=LIMIT)
        self.sock.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + self.frame(4, 0, 0, b""))
        self.buffer = b""
        self.next = 1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    @staticmethod
    def frame(kind, flags, stream, payload):
        return struct.pack("!I", len(payload))[1:] + struct.pack("!BBI", kind, flags, stream) + payload

    @staticmethod
    def literal(name, value):
        """Encodes a header without indexing or Huffman."""
        out = b"\x00"
        for text in (name.encode(), value.encode("latin-1")):
            n = len(text)
            if n < 127:
                out += bytes([n])
            else:
                n -= 127
                out += b"\x7f"
                while n >= 128:
                    out += bytes([n % 128 + 128])
                    n //= 128
                out += bytes([n])
            out += text
        return out

    def post(self, path, headers=(), body=b"", end=True):
        stream, self.next = self.next, self.next + 2
        fields = [(":method", "POST"), (":path", path), (":scheme", "http"), (":authority", "localhost"),
                  ("content-length", str(len(body)))]
        block = b"".join(self.literal(n.lower(), v) for n, v in fields + list(headers))
        data = self.frame(1, 0x4, stream, block)
        for i in range(0, max(len(body), 1), 16384):
            piece = body[i:i + 16384]
            data += self.frame(0, 0x1 if end and i + 16384 >= len(body) else 0, stream, piece)
        self.sock.sendall(data)
        return stream

    def reset(self, stream, code=8):
        self.sock.sendall(self.frame(3, 0, stream, struct.pack("!I", code)))

    def take(self, n):
        while len(self.buffer) < n:
            data = self.sock.recv(65536)
            if not data:
                raise AssertionError("the HTTP/2 connection was closed")
            self.buffer += data
        data, self.buffer = self.buffer[:n], self.buffer[n:]
        return data

    def until_end(self, stream):
        """Returns the body of the stream's response, once it has ended."""
        body = b""
        while True:
            head = self.take(9)
            length = struct.unpack("!I", b"\0" + head[:3])[0]
            kind, flags, which = head[3], head[4], struct.unpack("!I", head[5:])[0]
            payload = self.take(length)
            if kind == 4 and not flags & 1:
                self.sock.sendall(self.frame(4, 1, 0, b""))
            if which != stream:
                continue
            if kind == 3:
                raise AssertionError("the stream was reset")
            if kind == 0:
                body += payload
            if kind in (0, 1) and flags & 1:
                return body
