"""RabbitMQ and Redis Streams, for publishers and operators: one interface to both.

With `url` a server or a consumer that stands still for ten seconds does not count as lost: a burial without a response
would be repeated. `plain_url` has no options.
"""
import os
import re
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
import rabbit
import redistcp
from redisserver import RedisError


class Letter:
    """A message in a queue."""

    def __init__(self, body, headers, message_id=None):
        self.body, self.headers, self.message_id = body, headers, message_id

    def __repr__(self):
        return f"<{self.body!r} {self.headers!r}>"


class Rabbit:
    """The server; `kind` is the kind of the queues that it makes. No request is sent while it is down."""
    name = "rabbit"
    patience = "?heartbeat=60s&connect_timeout=60s"
    password = "a:b@c/d?e"
    password_in_url = "a:b%40c%2Fd%3Fe"

    def __init__(self, server, kind, lock=None):
        self.server, self.kind = server, kind
        self.plain_url, self.port = self.server.url, int(self.server.url.rsplit(":", 1)[1])
        self.url = self.plain_url + self.patience
        self.lock = lock or threading.RLock()

    @classmethod
    def start(cls, folder):
        return cls(rabbit.start(folder), "quorum")

    def fork(self, kind):
        return Rabbit(self.server, kind, self.lock)

    def locked(self, deed, *args):
        with self.lock:
            return deed(*args)

    def stop(self):
        self.server.stop()

    def settle(self):
        """Makes sure that all queues so far survive a kill(); RabbitMQ 3.10 writes them down some seconds later."""
        self.locked(self.server.settle)

    def kill(self):
        self.locked(self.server.kill)

    def restart(self):
        self.locked(self.server.restart)

    def pause(self):
        self.locked(self.server.pause)

    def go_on(self):
        self.locked(self.server.go_on)

    def at(self, port):
        return self.url.replace(f":{self.port}", f":{port}")

    @staticmethod
    def is_ack(data):
        return b"\x00\x3c\x00\x50" in data

    def declare(self, queue, **arguments):
        self.locked(self.server.declare, queue, self.kind, arguments)

    def delete(self, queue):
        self.locked(self.server.delete, queue)

    def publish(self, queue, body, headers=None, message_id=None):
        """Returns when the message is safe."""
        self.locked(self.server.publish, queue, body, message_id or "", headers)

    def publish_many(self, queue, bodies):
        with self.lock:
            for body in bodies:
                self.server.send(queue, body)
            self.server.confirm()

    def count(self, queue):
        """Returns the number of waiting messages, without unacknowledged ones; None: there is no such queue."""
        return self.locked(self.server.count, queue)

    def take(self, queue):
        """Takes all waiting messages out of a queue."""
        found = []
        with self.lock:
            while self.server.count(queue):
                got = self.server.get(queue)
                if got is not None:
                    found.append(Letter(got.body, got.headers, got.message_id))
        return found


class Stream:
    """Redis, with one stream per queue and the group "idem"."""
    name = "stream"
    patience = "?timeout=120s&connect_timeout=120s"
    password = redistcp.PASSWORD
    password_in_url = redistcp.PASSWORD_IN_URL

    def __init__(self, server, kind):
        self.server, self.kind = server, kind
        self.plain_url, self.port = self.server.url, self.server.port
        self.url = self.plain_url + self.patience
        self.ask = server.ask

    @classmethod
    def start(cls, folder):
        return cls(redistcp.Server(folder), "stream")

    def fork(self, kind):
        return Stream(self.server, kind)

    def stop(self):
        self.server.stop()

    def settle(self):
        pass

    def kill(self):
        self.server.kill()

    def restart(self):
        self.server.start()

    def pause(self):
        self.server.pause()

    def go_on(self):
        self.server.go_on()

    def at(self, port):
        return self.url.replace(f":{self.port}", f":{port}")

    @staticmethod
    def is_ack(data):
        return b"$4\r\nXACK\r\n" in data

    def declare(self, queue, **_):
        try:
            self.ask("XGROUP", "CREATE", queue, "idem", "0", "MKSTREAM")
        except RedisError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise

    def delete(self, queue):
        self.ask("DEL", queue)

    def publish(self, queue, body, headers=None, message_id=None):
        words = [w for pair in (headers or {}).items() for w in pair]
        self.ask("XADD", queue, "*", "body", body, *words)

    def publish_many(self, queue, bodies):
        self.server.ask_all([("XADD", queue, "*", "body", body) for body in bodies])

    def count(self, queue):
        """Returns the number of unfinished messages: pending ones, and those not delivered yet."""
        if not self.ask("EXISTS", queue):
            return None
        return len(self.server.pending(queue)) + self.server.unread(queue)

    def take(self, queue):
        found = []
        for name, fields in self.server.entries(queue):
            body = fields.pop("body", b"")
            found.append(Letter(body, {n: v.decode() for n, v in fields.items()}, name))
            self.ask("XDEL", queue, name)
        return found


def kinds():
    """Returns the broker and the kinds of queues to test: IDEM_BROKER is rabbit or stream, IDEM_BROKER_KINDS the kinds
    of queues."""
    name = os.environ.get("IDEM_BROKER", "rabbit")
    return name, re.split(r"[ ,]+", os.environ.get("IDEM_BROKER_KINDS", "quorum" if name == "rabbit" else "stream"))


def start(folder):
    return (Rabbit if kinds()[0] == "rabbit" else Stream).start(folder)
