"""A backend that counts orders, and a client, for the gateways in front of it."""
import contextlib
import http.client
import http.server
import socket
import threading

import plain
from ports import free_port  # pylint: disable=unused-import
from waiting import LIMIT, until


class Shop(http.server.ThreadingHTTPServer):
    """`orders` are the bodies of the orders so far."""
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Order)
        self.orders, self.port = [], self.server_address[1]


class Order(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.orders.append(body)
        answer = b"order %d of %s\n" % (len(self.server.orders), body)
        self.send_response(201)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def opened():
    shop = Shop()
    thread = threading.Thread(target=shop.serve_forever)
    thread.start()
    try:
        yield shop
    finally:
        shop.shutdown()
        thread.join()
        shop.server_close()


def post(port, key, body):
    """Sends an order; returns (status, body, whether it is a replay)."""
    conn = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)
    conn.request("POST", "/orders", body, {"Idempotency-Key": key, "X-User": "u"})
    answer = conn.getresponse()
    said = answer.status, answer.read(), answer.headers.get("Idempotent-Replayed") == "true"
    conn.close()
    return said


def get(port, path):
    """Returns the body at this path."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)) as conn:
        conn.request("GET", path)
        answer = conn.getresponse()
        plain.check(answer.status == 200, answer.status)
        return answer.read()


def listens(port, process):
    """Waits until a process listens on the port; returns false if the process ends before that."""
    def answers():
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0
    return until("it listens, or ends", lambda: "listens" if answers() else process.poll() is not None) == "listens"


def check_once(shop, process, port, key):
    """Checks that the gateway in front of the shop lets an order through once, and replays the response."""
    plain.check(listens(port, process), "it does not listen")
    before = len(shop.orders)
    first, second = post(port, key, b"tea"), post(port, key, b"tea")
    plain.check(first[0] == 201 and not first[2], first)
    plain.check(second == (201, first[1], True), second)
    plain.check(len(shop.orders) == before + 1, shop.orders)
