#!/usr/bin/env python3
"""An incident, rehearsed: a backend that accepts requests and answers none. The metrics show it, and the very commands
of docs/operating.md clear it. Prometheus raises the alarm, and ends it. Each order happens once in the end.

IDEM_INCIDENT is the number of orders (500). The rig is that of tests/nginx.
"""
import collections
import json
import os
import re
import stat
import subprocess
import sys
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../nginx"))

from rig import *
from alerts import Prometheus
from shop import Customers, Shop
from tap import *

N = int(os.environ.get("IDEM_INCIDENT", "500"))
PROBED = 20
# Every second order has no label: its downstream key is the only link between the backend and the record.
LABELS = "map $http_x_order $order_label { default $http_x_order; ~^o-.*[13579]$ ''; }"
RULES = "idem_preset api; idem_label $order_label; proxy_pass http://unix:@TEMP@/shop.sock;"
CONF = (f"location /orders {{ idem_prefix order:; {RULES} }}\n"
        f"location /probed {{ idem_prefix probed:; idem_probe /ask/$idem_downstream_key; {RULES} }}\n"
        "location /ask { internal; proxy_pass http://unix:@TEMP@/shop.sock; proxy_pass_request_body off;"
        " proxy_set_header Content-Length ''; }\n"
        "location = /status { idem_status; }\n")
ORDERS = [("/orders", f"o-{i}") for i in range(N)]
PAID = [("/probed", f"p-{i}") for i in range(PROBED)]
scene = {}  # shared by the tests, which are the acts of one play


def uncertain(rig):
    """Returns the metrics' count of uncertain records; None: they are not counted yet."""
    said = re.search(r'^idem_records{[^}]*state="uncertain"} (\d+)$', rig.post("/status", method="GET", body=b"").body.decode(),
                     re.M)
    return int(said[1]) if said else None


def listed(rig, *words):
    """Returns the records of idem list --json."""
    run = subprocess.run([os.environ["IDEM_EXE"], "list", "--store", rig.url, "--json", *words], stdout=subprocess.PIPE,
                         check=True, timeout=LIMIT)
    return [json.loads(line) for line in run.stdout.splitlines()]


def commands():
    """Returns the shell commands of the runbook's last part."""
    with open(os.path.join(HERE, "../../docs/operating.md"), encoding="utf-8") as file:
        part = file.read().split("## An outage, step by step\n", 1)[1].split("\n## ", 1)[0]
    return "".join(re.findall(r"^```sh\n(.*?)^```$", part, re.S | re.M))


@test
def an_outage_leaves_uncertain_records_and_runs_nothing_twice(rig):
    scene["shop"], scene["customers"] = Shop(rig.folder + "/shop.sock"), Customers(rig.port)
    shop, customers = scene["shop"], scene["customers"]
    eq(customers.ask([("/orders", "before")]), collections.Counter({"201": 1}))
    shop.out = True
    eq(customers.ask(ORDERS + PAID), collections.Counter({"502": N + PROBED}), "answers while it is out")
    eq(customers.ask(ORDERS[:20]), collections.Counter({"409": 20}), "answers to retries")
    eq(shop.taken, 1 + N + PROBED, "requests that reached the backend")
    check(rig.said().count("refused uncertain: ") == 20, "each retry has its line")
    # A record that the background probe asks about is running for that moment.
    until("all are uncertain", lambda: len(listed(rig, "--state", "uncertain")) == N + PROBED)


@test
def the_metrics_show_them(rig):
    rig.reload()  # a new worker counts at once
    until("they are counted", lambda: uncertain(rig) == N + PROBED)
    scene["prometheus"] = Prometheus(rig.folder + "/prometheus", rig.port)
    until("there is an alarm", lambda: scene["prometheus"].value("IdemUncertainRecords") == N + PROBED, 0.1)


@test
def what_has_a_probe_is_settled_by_the_gateway(rig):
    shop = scene["shop"]
    shop.out = False
    happened = {order for order in shop.orders if order.startswith("p-")}
    check(0 < len(happened) < PROBED, f"some of them happened: {len(happened)}")
    until("the orders that happened are done",
          lambda: {record["label"] for record in listed(rig, "--state", "done", "--prefix", "probed:")} == happened, 0.1)


@test
def the_runbook_clears_the_rest(rig):
    shop, work = scene["shop"], rig.folder + "/operator"
    os.mkdir(work)
    records = {record["hash"]: record for record in listed(rig, "--state", "uncertain", "--prefix", "order:")}
    # The script that the operator has to write: it searches the backend's own data for the label, or for the
    # downstream key.
    with open(work + "/orders", "w", encoding="utf-8") as file:
        file.writelines(f'"downstream_key":"{key}",\n' if re.search("[13579]$", order) else f'"label":"{order}",\n'
                        for key, order in shop.keys.items())
    with open(work + "/happened", "w", encoding="utf-8") as file:
        file.write("#!/bin/sh\nexec grep -Ff orders\n")
    os.chmod(work + "/happened", stat.S_IRWXU)
    script, said = re.subn(r"^export IDEM_STORE=\S+ IDEM_AUDIT=\S+$", f"export IDEM_STORE='{rig.url}' IDEM_AUDIT={work}/audit",
                           commands(), flags=re.M)
    eq(said, 1, "lines with the store's URL")
    # The doctor reports a store as broken if it does not respond for five seconds: on a busy machine the test tries
    # again.
    script, said = re.subn(r"^idem doctor$", "until idem doctor; do sleep 1; done", script, flags=re.M)  # sleep: the step of a poll
    eq(said, 1, "lines that ask the doctor")
    env = dict(os.environ, PATH=os.path.dirname(os.environ["IDEM_EXE"]) + ":" + os.environ["PATH"])
    begin = time.monotonic()
    run = subprocess.run(["sh", "-e", "-c", script], cwd=work, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                         text=True, timeout=SECONDS, check=False)
    print(f"# the runbook took {time.monotonic() - begin:.1f} s for {N} records", flush=True)
    eq(run.returncode, 0, f"the status of the runbook, with the output {run.stdout[-2000:]}")
    done = sum(order.startswith("o-") for order in shop.orders)
    for line in (f"{N} uncertain.jsonl", f"{done} done.jsonl", f"{N - done} failed.jsonl",
                 f"{done} records; nothing was changed", f"{N - done} records; nothing was changed",
                 f"settled {done} records as done", f"settled {N - done} records as failed", str(N)):
        check(re.search(rf"^\s*{re.escape(line)}$", run.stdout, re.M), f"{line!r} is not in: {run.stdout[-2000:]}")
    eq(listed(rig, "--state", "uncertain", "--prefix", "order:"), [], "the remaining records")
    with open(work + "/audit", encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    eq(len({line["record"] for line in lines}), N, "records in the audit")
    begun = [line for line in lines if line["result"] == "begun"]
    lines = [line for line in lines if line["result"] == "done"]
    eq((len({line["record"] for line in begun}), len(lines)), (N, N), "lines in the audit: begun, and done")
    eq(collections.Counter(line["after"] for line in lines), collections.Counter(done=done, failed=N - done))
    check(all(line["who"] and line["time"] and line["before"] == "uncertain" and line["action"] == "settle"
              and "INC-7" in line["reason"] for line in lines), "who, when, what, before and why")
    settled = [records[line["record"]] for line in lines if line["after"] == "done"]
    eq({shop.keys.get(record["downstream_key"]) for record in settled}, {o for o in shop.orders if o.startswith("o-")},
       "the records that are done")
    check(0 < sum(record["label"] == "" for record in settled) < done, "some of them have a label")


@test
def every_order_happens_once(rig):
    shop, customers = scene["shop"], scene["customers"]
    done = sum(order.startswith("o-") for order in shop.orders)
    eq(customers.ask(ORDERS), collections.Counter({"409": done, "201": N - done}), "answers to the customers' retries")
    # The background probe may be asking about an order: then its customer gets 409 and tries again.
    until("all that have a probe are answered", lambda: not customers.ask(PAID)["409"])
    eq(set(shop.orders), {"before"} | {order for _, order in ORDERS + PAID}, "orders")
    eq(set(shop.orders.values()), {1}, "how often each was made")
    eq(listed(rig, "--state", "uncertain"), [], "the remaining records")
    rig.reload()
    until("the metrics show it", lambda: uncertain(rig) == 0)
    until("the alarm is over", lambda: scene["prometheus"].value("IdemUncertainRecords") == 0, 0.1)
    scene["prometheus"].stop()
    shop.stop()
    customers.stop()


main(CONF, http=f"access_log off; {LABELS}", persist=True)
