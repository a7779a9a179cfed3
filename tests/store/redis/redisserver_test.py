#!/usr/bin/env python3
"""The Redis server that tests in Python start: it responds, and keeps its data."""
import os
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
import redisserver  # pylint: disable=wrong-import-position


def check(condition, what):
    if not condition:
        raise AssertionError(what)


def it_answers(server):
    check(server.ask("SET", "k", b"\0\r\n") == b"OK", "SET")
    check(server.ask("GET", "k") == b"\0\r\n", "GET")
    check(server.ask("GET", "none") is None, "GET of nothing")
    check(server.ask_all([("INCR", "n")] * 1200)[-1] == 1200, "INCR")
    try:
        server.ask("INCR", "k")
    except redisserver.RedisError:
        return
    raise AssertionError("an error is none")


def streams_are_read(server):
    first = server.add("q", body="x", n=1)
    check(server.pending("q") == {}, "no group")
    server.ask("XGROUP", "CREATE", "q", "idem", "0")
    check(server.unread("q") == 1, "unread")
    server.ask("XREADGROUP", "GROUP", "idem", "me", "STREAMS", "q", ">")
    check(server.unread("q") == 0, "read")
    check(server.pending("q")[first][0] == "me", "pending")
    check(server.entries("q") == [(first, {"body": b"x", "n": b"1"})], "entries")


def it_is_killed_paused_and_started_again(server):
    server.kill()
    check(not server.answers(), "killed")
    server.start()
    check(server.ask("XLEN", "q") == 1, "kept")
    server.pause()
    server.go_on()
    check(server.answers(), "goes on")


def main():
    failed = 0
    tests = (it_answers, streams_are_read, it_is_killed_paused_and_started_again)
    with tempfile.TemporaryDirectory(prefix="idem-redis-") as folder, \
            redisserver.start(folder) as server:
        for i, test in enumerate(tests, 1):
            try:
                test(server)
                print(f"ok {i} - {test.__name__}")
            except (AssertionError, OSError, redisserver.RedisError) as error:
                print(f"# {error}\nnot ok {i} - {test.__name__}")
                failed += 1
    print(f"1..{len(tests)}")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
