"""Ports of the loopback for the servers of tests in Python; tests/port.c explains the scheme."""
import random
import socket

FIRST, RANGE = 10000, 10000  # below the ports that the kernel gives to outgoing connections
BUS = 10000                  # a node of a Redis Cluster listens this far above its port, too
reservations = []            # sockets that stay open while this process lives


def is_free(port):
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def reserve(port):
    """Returns the socket that reserves a port; None if another process has it."""
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.bind(f"\0idem-test-port-{port}")
    except OSError:
        sock.close()
        return None
    return sock


def free_port():
    """Returns a port on which nothing listens, and which no other test gets while this process lives."""
    for _ in range(1000):
        port = FIRST + random.randrange(RANGE)
        sock = reserve(port)
        if sock is None:
            continue
        if is_free(port) and is_free(port + BUS):
            reservations.append(sock)
            return port
        sock.close()
    raise AssertionError("no port is free")


def free_ports(n):
    return [free_port() for _ in range(n)]
