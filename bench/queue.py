#!/usr/bin/env python3
"""Messages: the consumer beside a bare one, on a RabbitMQ of the benchmark's own.

    queue.py BUILD DIRECTORY ROUNDS DIVISOR

BUILD has bench-queue, amqp-serve and idem; the servers' data are put into DIRECTORY. The two sides run
in turn on the same server, each time on a queue that was filled anew, so that each ratio is of one
moment. DIVISOR divides every number of messages, for a run that only shows that the benchmark works.
"""
import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests"))

import ports
import rabbit
import redisserver
from waiting import LIMIT, patient, until

BUILD, FOLDER, ROUNDS, DIVISOR = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
BENCH, IDEM = BUILD + "/bench/bench-queue", BUILD + "/src/cli/idem"
os.environ["IDEM_AMQP_SERVE"] = BUILD + "/tests/queue/amqp/amqp-serve"

MESSAGES, PREFETCH = 20000 // DIVISOR, 100
SLOW = {"jsonl": 60000 // DIVISOR, "to": 20000 // DIVISOR}  # one at a time: some seconds each


def bench(url, *words):
    done = subprocess.run([BENCH, url, *map(str, words)], stdout=subprocess.PIPE, text=True, check=True,
                          timeout=300)
    return [float(word) for word in done.stdout.split()]


def connects(port):
    try:
        socket.create_connection(("127.0.0.1", port)).close()
        return True
    except OSError:
        return False


@contextlib.contextmanager
def endpoint():
    """An endpoint that accepts every request, as fast as possible; yields its URL."""
    port, path = ports.free_port(), FOLDER + "/nginx.conf"
    with open(path, "w", encoding="ascii") as conf:
        conf.write(f"""daemon off; pid {FOLDER}/nginx.pid; error_log stderr crit; events {{}}
http {{ access_log off; keepalive_requests 1000000; client_body_temp_path {FOLDER}/body;
proxy_temp_path {FOLDER}/a; fastcgi_temp_path {FOLDER}/b; uwsgi_temp_path {FOLDER}/c; scgi_temp_path {FOLDER}/d;
server {{ listen 127.0.0.1:{port}; location / {{ return 204; }} }} }}""")
    process = subprocess.Popen(["nginx", "-e", "stderr", "-c", path], stdout=subprocess.DEVNULL)
    try:
        until("the endpoint listens", lambda: connects(port) or process.poll() is not None)
        if process.poll() is not None:
            sys.exit(f"queue: nginx ended with status {process.returncode}: see {path}")
        yield f"http://127.0.0.1:{port}/"
    finally:
        process.terminate()
        process.wait()


after = first = 0  # no key is used in two rounds, unless the round wants duplicates


def filled(url, messages):
    global after, first
    first, after = after, after + messages
    bench(url, "fill", "bench", messages, first)


def again(url, messages):
    """Publishes the same keys once more."""
    bench(url, "fill", "bench", messages, first)


def compare(name, ours, other):
    rows = [(other(), ours()) for _ in range(ROUNDS)]
    figures = [statistics.median(row[side][column] for row in rows) for side in (0, 1) for column in (0, 1)]
    ratio = statistics.median(row[1][0] / row[0][0] for row in rows)
    print("  {:32} {:9.0f} {:9.0f} {:7.2f} {:9.1f} {:8.1f}".format(
        name, figures[0], figures[2], ratio, figures[1], figures[3]), flush=True)


def cpu_s(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        words = stat.read().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def command(url, store, messages, *handler):
    """Runs idem consume itself; returns messages per second, and microseconds of CPU time for each."""
    process = subprocess.Popen([IDEM, "consume", url, "--queue", "bench", "--key", "#body.orderId", "--store",
                                store, "--prefetch", str(PREFETCH), "--log", "none", "--json", *handler],
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    rates, done = [], 0  # of the seconds in which it worked from beginning to end
    for line in process.stdout:
        counts = json.loads(line)
        done = counts["done"]
        if done >= messages:
            break
        if done > 0:
            rates.append(counts["per_second"])
    cpu = cpu_s(process.pid)
    process.send_signal(signal.SIGTERM)
    process.wait(LIMIT)
    return [statistics.median(rates[1:] or [counts["per_second"]]), cpu * 1e6 / done]


def measure(url, redis, to):
    lmdb, worker = f"lmdb:{FOLDER}/store?sync=off", f"{BENCH} - worker"

    def one(messages, what, *words):
        filled(url, messages)
        return bench(url, what, "bench", messages, PREFETCH, *words)

    def skipped(store):
        one(MESSAGES, "idem", store)
        again(url, MESSAGES)
        return bench(url, "idem", "bench", MESSAGES, PREFETCH, store)

    def consumed(messages, *handler):
        filled(url, messages)
        return command(url, lmdb, messages, *handler)

    for name, store in (("LMDB sync=off", lmdb), ("Redis", redis)):
        compare(f"in process, {name}", lambda s=store: one(MESSAGES, "idem", s), lambda: one(MESSAGES, "bare"))
        compare(f"duplicates skipped, {name}", lambda s=store: skipped(s), lambda: one(MESSAGES, "bare"))
    compare("--exec-jsonl, one worker", lambda: consumed(SLOW["jsonl"], "--exec-jsonl", worker),
            lambda: one(SLOW["jsonl"], "bare-jsonl", worker))
    compare("--to, one worker", lambda: consumed(SLOW["to"], "--to", to),
            lambda: one(SLOW["to"], "bare-to", to))


def main():
    print(f"Messages per second, and CPU us of the consumer for each; medians of {ROUNDS} rounds in turn, prefetch "
          f"{PREFETCH}")
    print("                                        bare      idem   ratio   bare us  idem us")
    with rabbit.start(FOLDER + "/rabbit", sync=True) as server, \
            redisserver.start(FOLDER + "/redis", "--appendonly", "no") as redis, endpoint() as to:
        measure(server.url, patient(redis.url), to)


main()
