#!/usr/bin/env python3
"""SQL: guards and stores beside the same work written by hand, on servers of the benchmark's own.

    sql.py BUILD DIRECTORY ROUNDS DIVISOR

BUILD has bench-sql, sql-serve and idem; the servers' data are put into DIRECTORY. The two sides run in
turn on the same server, so that each ratio is of one moment. DIVISOR divides every number of
operations, for a run that only shows that the benchmark works. BENCH_SQL_ROWS is the number of rows in
the tables of the last part.
"""
import os
import statistics
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests"))

import sqlserver
from waiting import patient

BUILD, FOLDER, ROUNDS, DIVISOR = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
os.environ["IDEM_SQL_SERVE"] = BUILD + "/tests/store/sql/sql-serve"

# The tests' servers have smaller settings than these defaults.
POOL = "1GB"
DEFAULTS = {
    "postgres": ("max_wal_size=1GB", "wal_level=replica"),
    "mysql": ("innodb-log-file-size=96M",),
}
POOLS = {"postgres": "shared_buffers={}", "mysql": "innodb-buffer-pool-size={}"}

# How many at a time (connections or callers), and how many in all, durable or not.
WIDTHS = {"pairs": 64, "plain": 64, "guard": 8, "call": 8, "hand": 8}
NUMBERS = {True: 2000 // DIVISOR, False: 16000 // DIVISOR}


def serve(kind, name, durable, pool):
    folder = f"{FOLDER}/{name}"
    words = (["durable"] if durable else []) + list(DEFAULTS[kind])
    server = sqlserver.start(kind, folder, *words, POOLS[kind].format(pool.rstrip("B")
                                                                      if kind == "mysql" else pool))
    server.migrate(BUILD + "/src/cli/idem")
    return server


def load(server, name, number):
    """Returns the number per second, and the microseconds of the server's CPU time for each."""
    url = patient(server.owner) + ("&sweep=no" if name == "pairs" else "")
    done = subprocess.run([BUILD + "/bench/bench-sql", url, name, str(WIDTHS[name]), str(number)],
                          stdout=subprocess.PIPE, text=True, check=True, timeout=600)
    return [float(word) for word in done.stdout.split()]


def median(rows, column):
    return statistics.median(row[column] for row in rows)


def compare(server, ours, other, number):
    """Runs the two in turn; returns the figures of both, and the median of the rounds' ratios."""
    rows = []
    for _ in range(ROUNDS):
        b, a = load(server, other, number), load(server, ours, number)
        rows.append((b[0], a[0], a[0] / b[0], b[1], a[1], b[1] / a[1]))
    return [median(rows, column) for column in range(6)]


def ratios():
    print("Transactions or pairs per second, and server CPU us for each; a ratio above 1 is ours better")
    print(f"(medians of {ROUNDS} rounds in turn; guard and call beside hand: 8 connections, pairs beside plain: 64 "
          "callers, 4 connections)")
    print("  server    fsync                 hand      idem   ratio   hand us  idem us  ratio")
    for kind in ("postgres", "mysql"):
        for durable in (True, False):
            with serve(kind, f"{kind}-{durable}", durable, "128MB") as server:
                for ours, other in (("guard", "hand"), ("call", "hand"), ("pairs", "plain")):
                    figures = compare(server, ours, other, NUMBERS[durable])
                    print("  {:9} {:5} {:14} {:9.0f} {:9.0f} {:7.2f} {:9.1f} {:8.1f} {:6.2f}".format(
                        kind, "on" if durable else "off", f"{ours}/{other}", *figures), flush=True)


# Rows as after a run, in the order of their keys' hashes.
ROWS = {
    "postgres": {
        "idem_record": """INSERT INTO idem_record (prefix, hash, revision, format, state, flags,
            attempt, tries, owner, definition, fingerprint, expires, created, changed, status, result)
            SELECT 'order:', sha256(i::text::bytea), i, 1, 3, 2, 1, 1, decode(md5(i::text), 'hex'), 1,
            sha256('x'), now() + interval '1 day', now(), now(), 201, decode(repeat('61', 200), 'hex')
            FROM generate_series({}, {}) i""",
        "idem_tx": """INSERT INTO idem_tx (prefix, hash, definition, created, expires)
            SELECT 'order:', sha256(i::text::bytea), 0, now(), now() + interval '1 day'
            FROM generate_series({}, {}) i""",
    },
    "mysql": {
        "idem_record": """INSERT INTO idem_record (prefix, hash, revision, format, state, flags,
            attempt, tries, owner, definition, fingerprint, expires, created, changed, status, result)
            SELECT 'order:', UNHEX(SHA2(seq, 256)), seq, 1, 3, 2, 1, 1, UNHEX(MD5(seq)), 1,
            UNHEX(SHA2('x', 256)), NOW() + INTERVAL 1 DAY, NOW(), NOW(), 201, REPEAT('a', 200)
            FROM seq_{}_to_{}""",
        "idem_tx": """INSERT INTO idem_tx (prefix, hash, definition, created, expires)
            SELECT 'order:', UNHEX(SHA2(seq, 256)), 0, NOW(), NOW() + INTERVAL 1 DAY
            FROM seq_{}_to_{}""",
    },
}
STEP = 50000  # rows of one statement, so that it does not time out


def fill(server, kind, rows):
    for text in ROWS[kind].values():
        for at in range(1, rows + 1, STEP):
            server.ask(text.format(at, min(at + STEP - 1, rows)))
    if kind == "postgres":
        server.ask("VACUUM ANALYZE " + ", ".join(ROWS[kind]))


def growth():
    few, many = (int(word) for word in os.environ.get("BENCH_SQL_ROWS", "10000 1000000").split())
    print(f"The same at {few} and at {many} rows, durable, buffer pool {POOL}")
    print(f"(in turn, on two servers; the ratio is what one costs among {many} beside {few})")
    print("  server            few /s    many /s  ratio    few us   many us  ratio")
    for kind in ("postgres", "mysql"):
        with serve(kind, f"{kind}-few", True, POOL) as small, \
                serve(kind, f"{kind}-many", True, POOL) as large:
            fill(small, kind, few)
            fill(large, kind, many)
            for name in ("guard", "pairs"):
                rows = []
                for _ in range(ROUNDS):
                    a, b = load(small, name, NUMBERS[True]), load(large, name, NUMBERS[True])
                    rows.append((a[0], b[0], a[0] / b[0], a[1], b[1], b[1] / a[1]))
                print("  {:9} {:6} {:8.0f} {:10.0f} {:6.2f} {:9.1f} {:9.1f} {:6.2f}".format(
                    kind, name, *(median(rows, column) for column in range(6))), flush=True)


ratios()
print()
growth()
