#!/usr/bin/env python3
"""idem_status: each event is counted once, over workers, reloads and a worker's death; and the page shows no user's
data."""
import re
import shutil
import subprocess
import sys
import time

sys.dont_write_bytecode = True

from rig import *
from tap import *

CONF = (guard("/orders", "idem replay; idem_label $http_x_label; idem_scope $http_x_user;")
        + guard("/strict", "idem reject; idem_label $http_x_label;")
        + guard("/optional", "idem replay; idem_enforce off;")
        + guard("/spend", "idem replay; idem_key token;", prefix="strict:")
        + guard("/small", "idem replay; idem_result_max 1k;")
        + guard("/bounded", "idem replay; idem_run_max 500ms;")
        + guard("/late", "idem replay;")
        + "location = /status { idem_status; }"
        "location = /any-status { idem_status host=any; }"
        "location = /if-status { idem_status; if ($arg_x) { set $x 1; } }"
        "location = /guarded-status { idem replay; idem_prefix s:; idem_status; }"
        "location = /token { idem_token; idem_prefix strict:; }")
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


def get(rig, query="", accept=None, method="GET", path="/status"):
    return rig.post(path + query, method=method, body=b"", headers=[("Accept", accept)] if accept else [])


def figures(rig):
    return json.loads(status(get(rig, "?format=json"), 200).body)


def row(rig, route):
    return next(r for r in figures(rig)["rows"] if r["route"] == "localhost " + route)


def counted(rig, route, **want):
    """Waits for the counts: a request is counted when it has ended, which is a moment after its response."""
    def same():
        verdicts = row(rig, route)["verdicts"]
        return all(verdicts[name] == n for name, n in want.items())
    try:
        until("it is counted", same)
    except AssertionError as error:
        raise AssertionError(f"{want}: {row(rig, route)}") from error


def asked_by(rig, host, path="/status"):
    return rig.post(path + "?format=json&x=1", method="GET", body=b"", host=host)


@test
def a_name_that_is_not_the_servers_reads_nothing(rig):
    """The owner of another domain name can point it at this address; a request from a page of that site carries the
    name in its Host field."""
    for path in ("/status", "/if-status"):
        for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "gateway-1.internal:8081"):
            answer = asked_by(rig, host, path)
            eq((answer.status, answer.h("Content-Type")), (403, "application/problem+json"), repr(answer))
            check("server_name" in answer.problem["detail"] and b"routes" not in answer.body, answer.body)
            status(asked_by(rig, host, "/any-status"), 200)
        for host in ("localhost", "LOCALHOST:80", "127.0.0.1:8081", "[::1]:8080", "10.1.2.3"):
            status(asked_by(rig, host, path), 200)
    status(send(rig.port, b"GET /status HTTP/1.0\r\n\r\n"), 200)
    with Rig("location = /status { idem_status; }", server="server_name gateway-1.internal .ops.example;", workers=1) as own:
        for host, want in (("gateway-1.internal:8081", 200), ("a.ops.example", 200), ("10.1.2.3", 200),
                           ("gateway-2.internal", 403), ("evil.example", 403)):
            eq(asked_by(own, host).status, want, host)
    for words in ("idem_status host=all;", "idem_status any;", "idem_status; idem_status;"):
        with Rig(f"location = /x {{ {words} }}", start=False) as own:
            code, text = own.check()
            check(code != 0 and "idem_status" in text, text)


@test
def each_asks_for_its_own_form(rig):
    for query, accept, type in (
            ("", None, "text/plain; version=0.0.4; charset=utf-8"), ("", "*/*", "text/plain; version=0.0.4; charset=utf-8"),
            ("", "text/plain;version=0.0.4;q=0.3,*/*;q=0.2", "text/plain; version=0.0.4; charset=utf-8"),
            ("", "application/json", "application/json"), ("", BROWSER, "text/html; charset=utf-8"),
            ("?format=json", BROWSER, "application/json"), ("?format=html", "application/json", "text/html; charset=utf-8"),
            ("?a=1&format=prometheus", BROWSER, "text/plain; version=0.0.4; charset=utf-8")):
        answer = status(get(rig, query, accept), 200)
        eq((answer.h("Content-Type"), answer.h("Cache-Control"), answer.h("Vary")), (type, "no-store", "Accept"), f"{query} {accept}")
        eq(answer.all("Access-Control-Allow-Origin"), [])
    status(get(rig, "?format=xml"), 400)
    eq(status(get(rig, method="POST"), 405).h("Allow"), "GET, HEAD")
    head = status(get(rig, "?format=html", method="HEAD"), 200)
    eq(int(head.h("Content-Length")), len(get(rig, "?format=html").body))


@test
def the_page_may_load_nothing_and_stand_in_no_frame(rig):
    answer = get(rig, "?format=html")
    policy = answer.h("Content-Security-Policy")
    for part in ("default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'", "connect-src 'self'"):
        check(part in policy, policy)
    check("unsafe" not in policy and "http" not in policy, policy)
    eq((answer.h("X-Frame-Options"), answer.h("X-Content-Type-Options"), answer.h("Referrer-Policy")), ("DENY", "nosniff", "no-referrer"))
    text = answer.body.decode()
    check(not re.search(r"\son\w+=|style=|src=|@import|url\(", text.split("<script>")[0]), "nothing inline but the two")
    eq((text.count("<style>"), text.count("<script>")), (1, 1))


@test
def every_verdict_is_counted_once_by_whichever_worker(rig):
    key, pids = fresh(), []

    def ask():
        pids.append(rig.logged("/orders", key, user="u")[1]["pid"])
        return len(set(pids)) == 2 and len(pids) >= 20
    until("both workers answer", ask)
    asked = len(pids)
    eq(rig.post("/orders", key, user="u", body=b"{}").status, 422)
    status(rig.post("/orders", user="u"), 400)
    status(rig.post("/orders", "a\tb", user="u"), 400)
    late = rig.later("/orders", fresh("hang"), user="u", do={"hang": "h"})
    rig.backend.reached("h")
    busy = next(s.key for s in rig.backend.requests(path="/orders") if "hang" in s.key)
    status(rig.post("/orders", busy, user="u", do={}), 409, "in-progress")
    until("it is in flight", lambda: figures(rig)["running"] == 1)
    rig.backend.go("h")
    eq(late.get().status, 200)
    strict = fresh()
    eq([rig.post("/strict", strict).status for _ in range(3)], [200, 409, 409])
    shadow = fresh()
    eq(rig.post("/optional", shadow).status, 200)
    until("its end is stored", lambda: figures(rig)["running"] == 0)  # not awaited in shadow mode
    eq(rig.post("/optional", shadow).status, 200)
    status(get(rig, path="/token"), 200)
    counted(rig, "/orders", run=2, replay=asked - 1, mismatch=1, missing=1, malformed=1, busy=1, duplicate=0)
    counted(rig, "/strict", run=1, duplicate=2)
    counted(rig, "/optional", run=1, replay=1)
    eq(row(rig, "/optional")["counts"]["shadowed"], 1)
    eq(row(rig, "/token")["counts"]["tokens_issued"], 1)
    eq(figures(rig)["running"], 0)
    text = get(rig).body.decode()
    line = 'idem_verdicts_total{route="localhost /orders",policy="orders:",verdict="replay"}'
    check(f"{line} {asked - 1}\n" in text, text[:3000])
    check("localhost /guarded-status" not in text, "a page of figures is no route")


def lose(rig):
    """Makes the record of a run disappear while the backend works."""
    late = rig.later("/late", fresh(), do={"hang": "lost"})
    rig.backend.reached("lost")
    record, = map(json.loads, rig.idem("list", "--state", "running", "--prefix", "late:", "--json").splitlines())
    rig.idem("forget", "--hash", record["hash"], "--force", "--audit", rig.folder + "/audit")
    rig.backend.go("lost")
    eq(late.get().h("Idem-Lost"), "true")


@test
def what_came_of_runs_is_counted_besides(rig):
    token = json.loads(status(get(rig, path="/token"), 200).body)["token"]
    for _ in range(2):  # and replayed
        status(rig.post("/spend", headers=[("Idempotent-Token", token)]), 200)
    status(rig.post("/small", fresh(), do={"size": 3000}), 200)
    status(rig.post("/small", fresh(), do={"size": 30}), 200)
    status(rig.post("/small", fresh(), do={"fault": "close"}), 502)
    lose(rig)
    cancelled = []

    def cut_short():
        """A run that was not sent before its timeout is released, and runs now: then the test begins another."""
        cancelled.append(fresh())
        status(rig.post("/bounded", cancelled[-1], do={"hang": "long"}), 504)
        return rig.post("/bounded", cancelled[-1]).type == "uncertain"
    until("a run is sent, and ended", cut_short)
    rig.backend.go("long")
    for route, runs, counts in (("/spend", 1, {"tokens_spent": 1}), ("/small", 3, {"results_not_kept": 1, "unknown": 1}),
                                ("/late", 1, {"lost": 1}),
                                ("/bounded", 2 * len(cancelled) - 1, {"cancelled": len(cancelled), "unknown": 1})):
        counted(rig, route, run=runs)
        eq({name: n for name, n in row(rig, route)["counts"].items() if n}, counts, route)


@test
def how_long_the_store_took_is_counted_by_what_it_did(rig):
    redis = start_redis(rig.folder + "/own-redis")
    try:
        with Rig(guard("/x", "idem reject;") + "location = /status { idem_status; }", workers=1,
                 store=f"{redis.url}?{PATIENT}") as own:
            def store():
                return figures(own)["stores"][0]
            seconds = status(own.post("/x", fresh()), 200).seconds
            until("both are counted", lambda: [store()["times"][op]["count"] for op in ("claim", "finish")] == [1, 1])
            eq((store()["events"]["store_error"], store()["reconnects"], store()["failed"]), (0, 0, 0))
            redis.pause()
            with Conn(own.port) as conn:
                conn.send(own.bytes("/x", fresh()))
                own.turn()
                time.sleep(0.3)  # sleep: the time that is counted
                redis.go_on()
                late = status(conn.answer(), 200).seconds
            until("it is counted", lambda: store()["times"]["finish"]["count"] == 2)
            claims, ends = store()["times"]["claim"], store()["times"]["finish"]
            check(claims["count"] == 2 and 250000 < claims["sum_us"] < 1000000 * (seconds + late + 0.1)
                  and claims["p99_us"] > 100000, claims)
            check(0 < ends["sum_us"] < 1000000 * (seconds + late - 0.25), (claims, ends, seconds, late))
            redis.kill()
            status(own.post("/x", fresh()), 503)
            counted(own, "/x", store_error=1)
            check(store()["events"]["store_error"] >= 1 and store()["failed"], store())
            redis.start()
            until("it is there again", lambda: own.post("/x", fresh()).status == 200)
            check(store()["reconnects"] >= 1, store())
    finally:
        redis.stop()


@test
def what_happens_over_time_is_kept(rig):
    until("there are two samples", lambda: figures(rig)["intervals"] and figures(rig)["last_minute"])
    status(rig.post("/strict", fresh()), 200)
    until("a run is in one of them", lambda: any(part["verdicts"].get("run") for part in figures(rig)["intervals"]))


@test(expects=["exited on signal 9"])
def counts_live_over_a_reload_and_over_a_workers_death(rig):
    rig.turn()  # so that earlier responses are counted
    before = row(rig, "/strict")["verdicts"]["run"]
    eq(rig.post("/strict", fresh()).status, 200)
    counted(rig, "/strict", run=before + 1)
    started = figures(rig)["started"]
    rig.reload()
    eq(rig.post("/strict", fresh()).status, 200)
    counted(rig, "/strict", run=before + 2)
    late = rig.later("/strict", fresh("dies"), do={"hang": "death"})
    rig.backend.reached("death")
    until("it is in flight", lambda: figures(rig)["running"] == 1)
    rig.kill_worker(int(next(s for s in rig.backend.requests(path="/strict") if "dies" in s.key).h("X-Worker")))
    late.get()
    until("the runs of the dead worker are not in flight", lambda: figures(rig)["running"] == 0)
    eq(rig.post("/strict", fresh()).status, 200)
    counted(rig, "/strict", run=before + 3)
    eq(figures(rig)["started"], started)


@test
def no_key_no_user_and_no_body_is_ever_shown(rig):
    key, user, body = fresh("canarykey"), "canaryuser", b'{"canarybody":1}'
    eq(rig.post("/orders", key, user=user, body=body, do={"body": "canaryanswer"}).status, 200)
    eq(rig.post("/orders", key, user=user, body=b"canarybody").status, 422)
    eq(rig.post("/strict", key, user=user, body=body, headers=[("X-Label", "order 7")]).status, 200)
    status(rig.post("/strict", key, user=user, body=body, headers=[("X-Label", "order 7")]), 409)
    until("the refusal is shown", lambda: any(n["label"] == "order 7" for n in figures(rig)["refusals"]))
    for form in ("prometheus", "json", "html"):
        text = get(rig, f"?format={form}").body.decode()
        check(not re.search("canary", text), f"{form}: {re.findall('.{30}canary.{30}', text)[:3]}")
    note = next(n for n in figures(rig)["refusals"] if n["label"] == "order 7")
    eq((note["verdict"], note["route"], note["policy"], len(note["hash"])), ("duplicate", "localhost /strict", "strict:", 64))


@test
def what_nobody_sees_in_a_label_is_escaped_in_the_json(rig):
    label, key = "order \u202e7\U000e0041", fresh()
    headers = [("X-Label", label.encode().decode("latin-1"))]
    eq(rig.post("/strict", key, headers=headers).status, 200)
    status(rig.post("/strict", key, headers=headers), 409)
    until("the refusal is shown", lambda: any(n["label"] == label for n in figures(rig)["refusals"]))
    text = get(rig, "?format=json").body.decode()
    check(r"order \u202e7\udb40\udc41" in text and text.isascii(), text)


@test
def prometheus_takes_the_text(rig):
    check(shutil.which("promtool"), "promtool is there (Debian: prometheus)")
    run = subprocess.run(["promtool", "check", "metrics"], input=get(rig).body, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, timeout=LIMIT, check=False)
    eq((run.returncode, run.stdout.decode()), (0, ""), "promtool's output")


@test
def an_outage_is_seen_without_a_request(rig):
    with Rig(guard("/x", "idem replay;") + "location = /status { idem_status; }", workers=1,
             store=f"lmdb:{rig.folder}/no/such/folder?create=no") as own:
        store = until("it has failed", lambda: next((s for s in figures(own)["stores"] if s["failed"]), None))
        check(store["failed"] > store["answered"] == 0, store)
        eq(store["records"], None)
        status(own.post("/x", fresh()), 503)
        counted(own, "/x", store_error=1)
        check(figures(own)["stores"][0]["events"]["store_error"] > store["events"]["store_error"], "a store that never opened")


COUNTER = os.environ.get("IDEM_TURN_COUNTER", "")


@test
def a_look_at_many_records_lets_requests_through(rig):
    """The embedded store is read a thousand records at a time, and after each step the worker handles other requests."""
    if not COUNTER or sanitizers():
        raise Skip("IDEM_TURN_COUNTER names no library, or it cannot be loaded together with a sanitizer")
    with Rig(guard("/x", "idem reject;") + "location = /status { idem_status; }", workers=1, start=False) as own:
        count = own.folder + "/count"
        own.environment = lambda: dict(os.environ, LD_PRELOAD=COUNTER, IDEM_TURN_COUNT=count)
        own.start()

        def fill(_):
            for _ in range(530):
                status(own.post("/x", fresh()), 200)
        together(4, fill)
        os.truncate(count, 0)
        own.reload()

        def looks():
            with open(count, encoding="ascii") as file:
                return [int(line) for line in file]
        # A count that began before adds a step or two, each in a turn of its own.
        until("they are counted", lambda: sum(looks()) >= 3)
        check(max(looks()) < 3, f"looks of a thousand records, turn by turn: {looks()}")


main(CONF)
