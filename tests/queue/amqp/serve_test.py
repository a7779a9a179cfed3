#!/usr/bin/env python3
"""The RabbitMQ that tests in Python start (tests/rabbit.py). Prints TAP."""
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
import rabbit  # noqa: E402


def check(server):
    server.declare("q", "quorum")
    server.declare("c", "classic", {"x-max-length": 1, "x-overflow": "drop-head"})
    assert server.count("q") == 0 and server.count("nowhere") is None
    server.publish("q", b"\x00\xff body", "id-1", {"text": "caf\u00e9", "number": -5})
    for i in range(3):
        server.send("c", str(i))
    server.confirm()
    assert server.count("c") == 1
    server.settle()
    server.kill()
    server.restart()
    assert server.get("q") == rabbit.Message(
        b"\x00\xff body", "id-1", {"text": "caf\u00e9", "number": -5, "x-delivery-count": 0})
    assert server.get("q") is None
    assert server.get("c").body == b"2"
    server.bind("shop", "q", "key")
    server.publish("key", "", exchange="shop")
    assert server.get("q").body == b""
    server.pause()
    server.go_on()
    server.delete("q")
    assert server.count("q") is None


def main():
    with tempfile.TemporaryDirectory() as folder:
        try:
            with rabbit.start(folder) as server:
                check(server)
            ok = True
        except Exception as e:  # noqa: B902
            print("#", repr(e))
            ok = False
    print("ok" if ok else "not ok", "1 - a_server_is_started_killed_and_asked_from_python")
    print("1..1")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
