"""A proxy in front of the broker that can hold back the consumer's acknowledgement, and cut connections."""
import socket
import struct
import threading

from waiting import LIMIT

RESET = struct.pack("ii", 1, 0)  # SO_LINGER: a close is a reset


class Proxy:
    """hold(is_ack): from the first acknowledgement on, no bytes of that connection reach the broker."""

    def __init__(self, port):
        self.target, self.pairs, self.lock = port, [], threading.Lock()
        self.is_ack = None
        self.held, self.kept, self.kept_for = threading.Event(), b"", None
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()
        self.cut()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.target), LIMIT)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            for s in (near, far):
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.lock:
                self.pairs.append((near, far))
            threading.Thread(target=self.pump, args=(near, far, True), daemon=True).start()
            threading.Thread(target=self.pump, args=(far, near, False), daemon=True).start()

    def keeps(self, data, far):
        """Returns true if the bytes are held back."""
        with self.lock:
            if self.kept_for is None and self.is_ack is not None and self.is_ack(data):
                self.kept_for = far
            if self.kept_for is not far:
                return False
            self.kept += data
        self.held.set()
        return True

    def pump(self, source, sink, ours):
        try:
            while True:
                data = source.recv(65536)
                if not data:
                    break
                if not (ours and self.keeps(data, sink)):
                    sink.sendall(data)
        except OSError:
            pass
        for s in (source, sink):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def hold(self, is_ack):
        with self.lock:
            self.held.clear()
            self.kept, self.kept_for, self.is_ack = b"", None, is_ack

    def let_part(self):
        """Passes on half of the bytes that were held back."""
        with self.lock:
            self.kept_for.sendall(self.kept[:len(self.kept) // 2])

    def cut(self):
        """Resets all connections, as when a machine fails, and stops holding bytes back."""
        with self.lock:
            pairs, self.pairs, self.is_ack, self.kept_for = self.pairs, [], None, None
        for pair in pairs:
            for s in pair:
                try:
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                    s.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
                s.close()
