"""An HTTP endpoint for messages, whose responses the test chooses."""
import http.server
import threading
import time


class Endpoint:
    """An HTTP server that responds per key and attempt, and records the requests. `answers` is {key: [(status,
    headers, silent), ...]}: a silent response comes when the endpoint ends.
    """

    def __init__(self, port=0, answers=None):
        self.seen, self.answers, self.ended = [], answers or {}, threading.Event()
        endpoint = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                key, attempt = self.headers["Idempotency-Key"].strip('"'), int(self.headers["Idem-Attempt"])
                endpoint.seen.append((key, attempt, body, self.headers, time.monotonic()))
                steps = endpoint.answers.get(key, [])
                status, headers, silent = steps[attempt - 1] if attempt <= len(steps) else (200, {}, False)
                if silent:
                    endpoint.ended.wait()
                try:
                    self.send_response(status)
                    for name, value in headers.items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", "2")
                    self.end_headers()
                    self.wfile.write(b"ok")
                except OSError:
                    pass

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/handle"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.server.shutdown()
        self.server.server_close()

    def of(self, key):
        return [seen for seen in self.seen if seen[0] == key]
