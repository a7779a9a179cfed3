"""The backend of an incident, and its customers: an outage in which the backend takes half of the orders and answers
none, and a recovery after which each order exists at most once.

Both speak HTTP/1.1 on asyncio, each in a thread of its own, because an incident is fifty thousand requests.
"""
import asyncio
import collections
import threading


class Loop:
    """An event loop in a thread."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def run(self, coroutine, seconds=600):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(seconds)

    def stop(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()


async def head_read(reader):
    """Returns the first line, and the headers by their lower-case names."""
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    fields = dict(line.split(": ", 1) for line in lines[1:] if ": " in line)
    return lines[0], {name.lower(): value for name, value in fields.items()}


class Shop:
    """A backend on a socket. POST makes an order, whose name is in X-Order; GET finds the order of an
    Idem-Downstream-Key. While it is `out`, the backend takes half of the orders and never responds: of each four, o-0
    and o-1. The numbers of the orders decide, because their order of arrival is random; and odd ones are in both
    halves, because these have no label."""

    def __init__(self, path):
        self.out, self.taken = False, 0
        self.orders = collections.Counter()  # how often each was made
        self.keys = {}                       # downstream key: order
        self.loop = Loop()
        self.server = self.loop.run(asyncio.start_unix_server(self.serve, path, backlog=4096))

    async def serve(self, reader, writer):
        try:
            while True:
                first, fields = await head_read(reader)
                await reader.readexactly(int(fields.get("content-length", 0)))
                status = self.handle(first.split(" ")[0], fields)
                if status is None:
                    break
                writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: 2\r\n\r\nok".encode())
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def handle(self, method, fields):
        key = fields.get("idem-downstream-key")
        if method == "GET":
            return 503 if self.out else 200 if key in self.keys else 404
        self.taken += 1
        if not self.out or int(fields["x-order"].split("-")[1]) % 4 < 2:
            self.orders[fields["x-order"]] += 1
            self.keys[key] = fields["x-order"]
        return None if self.out else 201

    def stop(self):
        self.loop.loop.call_soon_threadsafe(self.server.close)
        self.loop.stop()


class Customers:
    """Sends requests to the gateway, over some connections at a time; counts the responses by status."""

    def __init__(self, port):
        self.port, self.loop = port, Loop()

    async def customer(self, orders, answers):
        reader = writer = None
        while orders:
            path, order = orders.pop()
            if writer is None or writer.is_closing():
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.write(f"POST {path} HTTP/1.1\r\nHost: shop\r\nIdempotency-Key: {order}\r\nX-Order: {order}\r\n"
                         "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}".encode())
            first, fields = await head_read(reader)
            await reader.readexactly(int(fields.get("content-length", 0)))
            answers[first.split(" ")[1]] += 1
            if fields.get("connection") == "close":
                writer.close()
                writer = None
        if writer is not None:
            writer.close()

    def ask(self, orders, connections=64):
        """Sends all of [(path, order)]; returns the number of responses per status."""
        async def all_of_them():
            left, answers = list(orders), collections.Counter()
            await asyncio.gather(*(self.customer(left, answers) for _ in range(connections)))
            return answers
        return self.loop.run(all_of_them())

    def stop(self):
        self.loop.stop()
