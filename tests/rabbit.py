"""A RabbitMQ of a test's own, for tests in Python.

    with rabbit.start(folder) as server: server.url, server.publish("queue", b"body")

amqp-serve (tests/queue/amqp/serve.c), whose path is in IDEM_AMQP_SERVE, starts the server, which ends
with this process. It listens on 127.0.0.1 only; `url` belongs to a user who may do everything, `tls_url`
is the same with TLS and an authority of its own.
"""
import collections
import ctypes
import os
import select
import signal
import subprocess

DEATHSIG = 1  # of prctl
SECONDS = 300  # only a failure takes that long

Message = collections.namedtuple("Message", "body message_id headers")


def follow_parent():
    ctypes.CDLL(None).prctl(DEATHSIG, signal.SIGTERM)


def hexed(text):
    return (text if isinstance(text, bytes) else text.encode()).hex() or "-"


def unhexed(word):
    return b"" if word == "-" else bytes.fromhex(word)


def pairs(values):
    """Encodes {"x-max-length": 1, "x-overflow": "reject-publish"} for amqp-serve."""
    return [hexed(name) + (f":{value}" if isinstance(value, int) else "=" + hexed(value))
            for name, value in (values or {}).items()]


def header(word):
    if "=" in word:
        name, value = word.split("=")
        return unhexed(name).decode(), unhexed(value).decode("utf-8", "replace")
    name, value = word.split(":")
    return unhexed(name).decode(), int(value)


class Server:
    """A failure raises AssertionError, which fails the test."""

    def __init__(self, folder, sync):
        os.makedirs(folder, exist_ok=True)
        words = [os.environ["IDEM_AMQP_SERVE"], folder] + (["sync"] if sync else [])
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        preexec_fn=follow_parent, bufsize=0)
        self.said = b""
        try:
            self.url, self.tls_url = self.line(), self.line()
        except BaseException:
            self.stop()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def line(self):
        while b"\n" not in self.said:
            if not select.select([self.process.stdout], [], [], SECONDS)[0]:
                raise AssertionError(f"RabbitMQ does not respond within {SECONDS} s")
            part = self.process.stdout.read(65536)
            if not part:
                raise AssertionError("RabbitMQ did not start, or a command failed: "
                                     "see above")
            self.said += part
        line, self.said = self.said.split(b"\n", 1)
        return line.decode()

    def tell(self, *words):
        self.process.stdin.write(" ".join(words).encode() + b"\n")
        answer = self.line()
        if not answer.startswith("ok ") or answer.startswith("ok no"):
            raise AssertionError(f"{words[0]}: {answer}")
        return answer[3:]

    def declare(self, queue, kind="classic", arguments=None):
        """Declares a durable queue, "classic" or "quorum"; arguments are texts or numbers."""
        self.tell("declare", hexed(queue), kind, *pairs(arguments))

    def delete(self, queue):
        self.tell("delete", hexed(queue))

    def bind(self, exchange, queue, key):
        """Makes an exchange of type direct, unless it exists, and binds the queue to it."""
        self.tell("bind", hexed(exchange), hexed(queue), hexed(key))

    def send(self, queue, body, message_id="", headers=None, exchange=""):
        """Sends a persistent message, which is safe after confirm()."""
        self.tell("send", hexed(exchange), hexed(queue), hexed(body), hexed(message_id),
                  *pairs(headers))

    def confirm(self):
        self.tell("confirm")

    def publish(self, queue, body, message_id="", headers=None, exchange=""):
        self.send(queue, body, message_id, headers, exchange)
        self.confirm()

    def count(self, queue):
        """Returns the number of ready messages, without unacknowledged ones; None: there is no such queue."""
        n = int(self.tell("count", hexed(queue)))
        return None if n < 0 else n

    def get(self, queue):
        """Takes the first message; None: there is none. Headers that are neither texts nor numbers become 0."""
        words = self.tell("get", hexed(queue)).split()
        if not words:
            return None
        return Message(unhexed(words[0]), unhexed(words[1]).decode(),
                       dict(header(word) for word in words[2:]))

    def kill(self):
        """SIGKILL. The server forgets queues that were declared after settle(), or some seconds before."""
        self.tell("kill")

    def settle(self):
        self.tell("settle")

    def restart(self):
        """Starts a killed server again, with the data that were safe."""
        self.tell("restart")

    def pause(self):
        self.tell("pause")

    def go_on(self):
        self.tell("go-on")

    def stop(self):
        if self.process.poll() is None:
            self.process.stdin.close()
            try:
                self.process.wait(SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process.stdout.close()


def start(folder, sync=False):
    """Without sync, the server's writes do not wait for the disk."""
    return Server(folder, sync)
