#!/usr/bin/env python3
"""Redis: claims beside plain SETs, on a server of the benchmark's own.

    redis_pairs.py BUILD DIRECTORY ROUNDS DIVISOR

BUILD has bench-redis; the server's data are put into DIRECTORY. The two sides run in turn, so that each ratio
is of one moment. DIVISOR divides every number of operations, for a run that only shows that the benchmark works.
"""
import os
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests"))

import redisserver
from ports import free_port
from waiting import patient

BUILD, FOLDER, ROUNDS, DIVISOR = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
PAIRS, LATENCY, RECORDS = 100000 // DIVISOR, 10000 // DIVISOR, 100000 // DIVISOR
CALLERS = 64
NAME = "order:__rand_int__" + "0123456789" * 6


class Bench:
    def __init__(self, server, port):
        self.server, self.port = server, port

    def idem(self, *words):
        """Runs bench-redis; returns its output."""
        return subprocess.run([BUILD + "/bench/bench-redis", patient(f"redis://127.0.0.1:{self.port}"), *map(str, words)], check=True,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout

    def pairs(self):
        return float(self.idem("pairs", CALLERS, PAIRS))

    def sets(self, pipeline, number):
        """Returns the SETs per second of redis-benchmark."""
        said = subprocess.run(["redis-benchmark", "-p", str(self.port), "-c", str(CALLERS), "-P", str(pipeline), "-n",
                               str(number), "-r", "100000000", "--csv", "set", NAME, "x" * 200, "PX", "86400000"],
                              check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
        return float(said.splitlines()[-1].split('","')[1])

    def cpu_us(self, pairs, work):
        """Returns the microseconds of the server's CPU time for each pair."""
        before = self.ticks()
        work()
        return (self.ticks() - before) * 1e6 / os.sysconf("SC_CLK_TCK") / pairs

    def ticks(self):
        with open(f"/proc/{self.server.process.pid}/stat", encoding="ascii") as file:
            words = file.read().rsplit(")", 1)[1].split()
        return int(words[11]) + int(words[12])

    def memory(self):
        text = self.server.ask("INFO", "memory").decode()
        return next(int(line.split(":")[1]) for line in text.splitlines() if line.startswith("used_memory:"))

    def bytes_per_key(self, work):
        self.server.ask("FLUSHALL")
        before = self.memory()
        work()
        return (self.memory() - before) // self.server.ask("DBSIZE")


def measure(bench):
    print("Redis: claim+done pairs of one process, 64 callers in flight, beside two plain SETs per pair by\n"
          "redis-benchmark -c 64; rounds alternate\n"
          "   SET pairs/s, -P 32   -P 1   idem pairs/s   / -P 32   / -P 1   server us/pair, SETs   idem")
    for _ in range(ROUNDS):
        bench.server.ask("FLUSHALL")
        many, one, ours = bench.sets(32, 4 * PAIRS) / 2, bench.sets(1, PAIRS) / 2, bench.pairs()
        plain_us = bench.cpu_us(2 * PAIRS, lambda: bench.sets(32, 4 * PAIRS))
        ours_us = bench.cpu_us(PAIRS, bench.pairs)
        print(f"{many:22.0f} {one:6.0f} {ours:14.0f} {ours / many:9.2f} {ours / one:8.2f} {plain_us:22.1f} {ours_us:6.1f}",
              flush=True)
    print("\nOne claim at a time, microseconds (median), beside a plain SET of the same process, in turn\n"
          "   claim      SET    ratio")
    for _ in range(ROUNDS):
        print(bench.idem("latency", LATENCY), end="", flush=True)
    print("\nBytes of the server's memory per finished record of 200 bytes, beside a plain SET with an expiry")
    print(bench.bytes_per_key(lambda: bench.idem("fill", RECORDS)),
          bench.bytes_per_key(lambda: bench.sets(32, RECORDS)))


PORT = free_port()
with redisserver.start(FOLDER + "/redis", "--port", str(PORT), "--bind", "127.0.0.1", "--appendonly", "no") as redis:
    measure(Bench(redis, PORT))
