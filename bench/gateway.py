#!/usr/bin/env python3
"""The gateway beside a bare proxy and `return`: CPU time of nginx per request, from /proc, and requests
a second, by wrk, in alternating rounds. Each figure is the median of its rounds.

    gateway.py MODULE DIRECTORY [SECONDS [ROUNDS]]     SECONDS of one round
"""
import os
import re
import statistics
import subprocess
import sys
import urllib.error
import urllib.request

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests"))

import redisserver
from ports import free_port
from waiting import patient, until

MODULE, FOLDER = sys.argv[1:3]
SECONDS = int(sys.argv[3]) if len(sys.argv) > 3 else 2
ROUNDS = int(sys.argv[4]) if len(sys.argv) > 4 else 5
BODY = 200
WORKERS = 2

# name, location, whether each request has a key of its own, the case to compare with
CASES = [
    ("bare proxy_pass", "bare", True, None),
    ("first, LMDB sync=off", "off", True, "bare proxy_pass"),
    ("first, LMDB sync=always", "always", True, "bare proxy_pass"),
    ("first, Redis", "redis", True, "bare proxy_pass"),
    ("return 200", "return", False, None),
    ("replay, LMDB sync=off", "off", False, "return 200"),
    ("replay, LMDB sync=always", "always", False, "return 200"),
    ("replay, Redis", "redis", False, "return 200"),
]

NEW_KEYS = """
local n, id = 0, 0
function init(args)
    local random = io.open("/dev/urandom", "rb")
    id = random:read(8):gsub(".", function(c) return string.format("%%02x", c:byte()) end)
    random:close()
end
local body = string.rep("y", %d)
function request()
    n = n + 1
    return wrk.format("POST", nil, {["Idempotency-Key"] = id .. "-" .. n}, body)
end
"""
ONE_KEY = """
local body = string.rep("y", %d)
function request() return wrk.format("POST", nil, {["Idempotency-Key"] = "one"}, body) end
"""


def file(name, text):
    with open(os.path.join(FOLDER, name), "w", encoding="utf-8") as out:
        out.write(text)
    return os.path.join(FOLDER, name)


def guarded(name, store):
    return (f"location /{name} {{ proxy_pass http://back; proxy_http_version 1.1; "
            f'proxy_set_header Connection ""; idem replay; idem_store {store}; '
            f"idem_prefix {name}:; idem_scope none; }}\n")


def configuration(back, front, redis):
    head = (f"user root; daemon off; events {{ worker_connections 4096; }}\n" if os.geteuid() == 0
            else "daemon off; events { worker_connections 4096; }\n")
    http = "http { access_log off; keepalive_requests 100000000;\n"
    answer = "x" * BODY
    file("back.conf", f"worker_processes 1; pid {FOLDER}/back.pid; error_log {FOLDER}/back.log;\n"
         f'{head}{http}server {{ listen 127.0.0.1:{back}; location / {{ return 200 "{answer}"; }} }} }}')
    file("front.conf", f"load_module {MODULE}; worker_processes {WORKERS}; pid {FOLDER}/front.pid; "
         f"error_log {FOLDER}/front.log;\n{head}{http}"
         f"upstream back {{ server 127.0.0.1:{back}; keepalive 128; keepalive_requests 100000000; }}\n"
         f"server {{ listen 127.0.0.1:{front};\n"
         f"location /bare {{ proxy_pass http://back; proxy_http_version 1.1; "
         f'proxy_set_header Connection ""; }}\n'
         f'location /return {{ return 200 "{answer}"; }}\n'
         + guarded("off", f"lmdb:{FOLDER}/off?sync=off") + guarded("always", f"lmdb:{FOLDER}/always")
         + guarded("redis", patient(f"redis:{redis}")) + "} }")


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
        return [int(child) for child in f.read().split()]


def cpu(pids):
    ticks = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat", encoding="latin-1") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def measure(front, url, script, server):
    workers = children(front.pid)
    before, server_before = cpu(workers), cpu([server.pid])
    said, n = "", 0
    while n == 0:  # a busy machine may have had no time for a request
        said = subprocess.run(["wrk", "-t1", "-c32", f"-d{SECONDS}s", "-s", script, url], check=True,
                              stdout=subprocess.PIPE, text=True).stdout
        n = int(re.search(r"(\d+) requests in", said).group(1))
    after, server_after = cpu(workers), cpu([server.pid])
    if "Non-2xx" in said:
        sys.exit(f"{url}: {said}")
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", said).group(1))
    return (after - before) / n * 1e6, (server_after - server_before) / n * 1e6, rate


def answers(url):
    """True if the response is right. Afterwards there is a result to replay."""
    request = urllib.request.Request(url, data=b"y" * BODY,
                                     headers={"Idempotency-Key": "one", "Content-Type": ""})
    try:
        urllib.request.urlopen(request).close()
        return True
    except (OSError, urllib.error.HTTPError):
        return False


def rounds(front_port, front, server):
    new, one = file("new.lua", NEW_KEYS % BODY), file("one.lua", ONE_KEY % BODY)
    url = f"http://127.0.0.1:{front_port}/"
    figures = {name: [] for name, *_ in CASES}
    for _, location, _, _ in CASES:
        until(f"{url}{location} answers", lambda: answers(url + location))
    for _ in range(ROUNDS):
        for name, location, fresh, _ in CASES:
            figures[name].append(measure(front, url + location, new if fresh else one, server))
    return figures


def main():
    back_port, front_port = free_port(), free_port()
    with redisserver.start(FOLDER + "/redis", "--appendonly", "no") as redis:
        configuration(back_port, front_port, redis.socket)
        started = [subprocess.Popen(["nginx", "-c", f"{FOLDER}/{name}.conf", "-p", FOLDER]) for name in ("back", "front")]
        try:
            figures = rounds(front_port, started[1], redis.process)
        finally:
            for process in reversed(started):
                process.terminate()
            for process in started:
                process.wait()
    median = {name: [statistics.median(column) for column in zip(*rows)]
              for name, rows in figures.items()}
    print(f"The gateway: {WORKERS} workers, bodies of {BODY} bytes, wrk -c32, "
          f"{ROUNDS} rounds of {SECONDS} s; CPU time per request")
    print("                              nginx us  redis us     req/s    ratio of CPU time")
    for name, _, _, to in CASES:
        nginx, other, rate = median[name]
        # CPU time is counted in hundredths of a second, of which a short round may take none.
        ratio = f"{nginx / median[to][0]:.2f} of {to}" if to and median[to][0] else ""
        print(f"  {name:26} {nginx:8.1f}  {other if 'Redis' in name else 0:8.1f} {rate:9.0f}    {ratio}")


main()
