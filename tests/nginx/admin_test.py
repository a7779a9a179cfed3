#!/usr/bin/env python3
"""idem_admin: the users who may change records, protection against another site's page, the effect of each action, and
its line in the log."""
import base64
import datetime
import re
import signal
import socket
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True

from rig import *
from tap import *

CONF = (guard("/pay", "idem_preset payment; idem_label $http_x_label;", prefix="pay:")
        + "location = /admin { idem_admin allow=10.0.0.0/8 allow=127.0.0.1 allow=::1; }"
        "location = /elsewhere { idem_admin allow=10.0.0.0/8 allow=fd00::/8 allow=unix:; }"
        "location = /named { idem_admin allow=all \"who=$remote_user of $http_x_team\"; }"
        "location = /quiet { error_log @TEMP@/quiet.log crit; idem_admin allow=all; }"
        "location = /under-guard { idem replay; idem_prefix a:; idem_admin allow=all; }")
HOSTILE = 'x" action=forget result=done who="root\\'


def figures(rig, path="/admin", headers=()):
    return json.loads(status(rig.post(path + "?format=json", method="GET", body=b"", headers=headers), 200).body)


def token(rig, path="/admin", headers=()):
    return figures(rig, path, headers)["admin"]


def act(rig, path="/admin", tok=None, headers=(), body=None, type="application/json", **asked):
    data = json.dumps({"store": figures(rig, path, headers)["stores"][0]["name"], "prefix": "pay:", **asked}).encode()
    return rig.post(path, body=data if body is None else body, type=type,
                    headers=[("Idem-Admin-Token", token(rig, path, headers) if tok is None else tok), *headers])


def refused(answer, want, words=""):
    eq((answer.status, answer.h("Content-Type")), (want, "application/problem+json"), f"{answer!r}")
    eq((answer.problem["status"], answer.all("Access-Control-Allow-Origin")), (want, []))
    check(words in answer.problem["detail"], answer.problem)


def audits(rig, hash, name="error.log"):
    """Returns the lines of the audit about a record; `level` is nginx's."""
    with open(os.path.join(rig.folder, name), encoding="utf-8") as file:
        heads = [line.partition(" idem: audit: ") for line in file if " idem: audit: " in line and hash in line]
    return [{"level": re.search(r"\[(\w+)\]", head)[1], **json.JSONDecoder().raw_decode(line)[0]} for head, _, line in heads]


def is_like(line, **want):
    eq({name: line.get(name) for name in want}, want)


def vanished(rig, label="order 7"):
    """Returns the hash of a run that has vanished."""
    key = fresh("canary")
    _, line = rig.logged("/pay", key, do={"fault": "close"}, headers=[("X-Label", label)])
    return key, line["idem_key_hash"]


def running(rig, name):
    key = fresh("canary")
    late = rig.later("/pay", key, do={"hang": name})
    rig.backend.reached(name)
    run = subprocess.run([os.environ["IDEM_EXE"], "list", "--store", rig.url, "--state", "running", "--json"],
                         stdout=subprocess.PIPE, check=True, timeout=LIMIT)
    return late, [json.loads(line)["hash"] for line in run.stdout.splitlines()][0]


@test
def without_an_access_rule_nginx_does_not_start(rig):
    for words, said in (("idem_admin;", "allow=127.0.0.1"), ("idem_admin who=$remote_user;", "allow=all"),
                        ("idem_admin allow=nobody;", "not understood"), ("idem_admin permit=all;", "not understood"),
                        ("idem_admin allow=all; idem_admin allow=all;", "duplicate"),
                        ("idem_admin allow=all; proxy_pass http://127.0.0.1:1;", "exclude each other")):
        with Rig(f"location /x {{ {words} }}", start=False) as own:
            code, text = own.check()
            check(code != 0 and said in text and "idem_admin" in text, f"{words}: {text}")


@test
def who_is_not_allowed_gets_neither_the_page_nor_a_token(rig):
    for method in ("GET", "POST"):
        refused(rig.post("/elsewhere", method=method, body=b""), 403, "address")
    refused(act(rig, tok=token(rig), headers=[], hash="0" * 64, action="inspect"), 404)
    eq(rig.post("/admin", method="DELETE", body=b"").h("Allow"), "GET, HEAD, POST")
    page = status(rig.post("/admin?format=html", method="GET", body=b""), 200)
    eq(page.h("X-Frame-Options"), "DENY")
    check("frame-ancestors 'none'" in page.h("Content-Security-Policy"), page.headers)


@test
def each_sign_of_another_sites_page_is_enough(rig):
    key, hash = vanished(rig)
    good = {"action": "settle", "to": "done", "hash": hash}
    host, tok = ("Origin", "http://localhost"), token(rig)
    for headers, words in (([("Origin", "http://evil.example")], "Origin"), ([("Origin", "null")], "Origin"),
                           ([("Origin", "http://localhost.evil.example")], "Origin"), ([host, host], "Origin"),
                           ([("Sec-Fetch-Site", "cross-site")], "Sec-Fetch-Site"), ([("Sec-Fetch-Site", "same-site")], "Sec-Fetch-Site"),
                           ([("Sec-Fetch-Site", "none")], "Sec-Fetch-Site"), ([("Idem-Admin-Token", tok)], "Idem-Admin-Token")):
        refused(act(rig, tok=tok, headers=headers, **good), 403, words)
    for wrong in ("", "0" * 64, tok[:-1], tok[:-1] + ("0" if tok[-1] != "0" else "1")):
        refused(act(rig, tok=wrong, **good), 403, "Idem-Admin-Token")
    for type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonp", ""):
        refused(act(rig, tok=tok, type=type, **good), 415)
    eq(audits(rig, hash), [])
    status(rig.post("/pay", key), 409, "uncertain")
    status(act(rig, tok=tok, headers=[host, ("Sec-Fetch-Site", "same-origin")], type="application/json; charset=utf-8", **good), 200)


def asked_by(rig, host, tok=""):
    """Returns the responses to a GET and to an action, sent as by a page of a site whose name leads to this address."""
    headers = [("Origin", f"http://{host}"), ("Sec-Fetch-Site", "same-origin")]
    body = json.dumps({"store": figures(rig)["stores"][0]["name"], "prefix": "pay:", "action": "inspect", "hash": "a" * 64}).encode()
    return (rig.post("/admin?format=json", method="GET", body=b"", headers=headers, host=host),
            rig.post("/admin", body=body, headers=headers + [("Idem-Admin-Token", tok)], host=host))


@test
def a_name_that_is_not_the_servers_leads_nowhere(rig):
    for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "evil.example:80"):
        for answer in asked_by(rig, host, token(rig)):
            refused(answer, 403, "server_name")
    for host in ("localhost", "LOCALHOST:80", "127.0.0.1", "[::1]:8080", "shop.localhost"):
        eq([answer.status for answer in asked_by(rig, host, token(rig))], [200, 404], host)
    names = "_ ops.example .team.example ~^night\\d+\\.example$"
    with Rig(CONF, server=f"server_name {names};") as own:
        for host in ("ops.example", "team.example", "a.team.example", "night7.example:81"):
            eq([answer.status for answer in asked_by(own, host, token(own))], [200, 404], host)
        for host in ("evil.example", "xteam.example", "nightx.example"):
            eq([answer.status for answer in asked_by(own, host, token(own))], [403, 403], host)


@test
def a_subrequest_leads_nowhere(rig):
    with Rig(CONF + f"location = /mirrored {{ mirror /admin; proxy_pass http://@BACKEND@; }} location = /status {{ idem_status; }}"
             f"location = /included {{ ssi on; ssi_types *; proxy_pass http://@BACKEND@; }}") as own:
        for _ in range(3):
            status(own.post("/mirrored", body=b"{}"), 200)
        for path in ("/admin", "/status"):
            said = own.post("/included", method="GET", body=b"", do={"body": f'<!--# include virtual="{path}?format=json" -->'})
            check(b"stores" not in said.body and b"403" in said.body, said.body[:300])
        check("exited on signal" not in own.said(), own.said()[-600:])


@test
def a_token_is_good_for_one_operator(rig):
    login = [("Authorization", "Basic " + base64.b64encode(f"{name}:x".encode()).decode()) for name in ("ann", "bob")]
    team = ("X-Team", "support")
    ann, bob = ([one, team] for one in login)
    for headers in (ann, bob):
        refused(act(rig, "/named", headers=headers, action="inspect", hash="1" * 64), 404)
    refused(act(rig, "/named", tok=token(rig, "/named", ann), headers=bob, action="inspect", hash="1" * 64), 403)
    is_like(audits(rig, "1" * 64)[-1], who="bob of support", address="127.0.0.1", action="inspect", result="refused")
    eq(token(rig), token(rig))
    before = token(rig)
    rig.reload()
    refused(act(rig, tok=before, action="inspect", hash="2" * 64), 404)


@test
def a_record_is_inspected_settled_and_forgotten(rig):
    began = time.time()
    key, hash = vanished(rig, HOSTILE)
    seen = json.loads(status(act(rig, action="inspect", hash=hash), 200).body)["before"]
    eq((seen["state"], seen["live"], seen["attempt"], seen["label"]), ("uncertain", False, 1, HOSTILE))
    said = json.loads(status(act(rig, action="settle", hash=hash, to="done", status=201, reason="seen on the bank’s \"statement\"",
                                 attempt=1, force=False), 200).body)
    eq((said["before"]["state"], said["after"]["state"], said["after"]["status"]), ("uncertain", "done", 201))
    eq(rig.post("/pay", key).problem["first_status"], 201)
    refused(act(rig, action="settle", hash=hash, to="failed"), 409, "done already")
    said = json.loads(status(act(rig, action="forget", hash=hash), 200).body)
    eq((said["before"]["state"], said["after"]), ("done", None))
    status(rig.post("/pay", key), 200)
    lines = audits(rig, hash)
    eq([(line["action"], line["result"]) for line in lines],
       [("inspect", "done"), ("settle", "begun"), ("settle", "done"), ("settle", "begun"), ("settle", "refused"),
        ("forget", "begun"), ("forget", "done")])
    is_like(lines[0], level="notice", who="", address="127.0.0.1")
    said = datetime.datetime.fromisoformat(lines[0]["time"].replace("Z", "+00:00")).timestamp()
    check(began - 1 < said < time.time() + 1, lines[0])
    for line, result in ((lines[1], "begun"), (lines[2], "done")):
        eq({name: value for name, value in line.items() if name not in ("level", "time", "who", "address")},
           {"action": "settle", "result": result, "record": hash, "prefix": "pay:", "store": rig.url.split("?")[0], "before": "uncertain",
            "attempt": 1, "after": "done", "status": 201, "label": HOSTILE, "reason": "seen on the bank’s \"statement\""})
    is_like(lines[5], before="done", after="absent")
    is_like(lines[6], before="done", after="absent")
    check(key not in rig.said(), "no key in the log")


@test
def what_is_settled_as_failed_is_told_so(rig):
    key, hash = vanished(rig)
    said = json.loads(status(act(rig, action="settle", hash=hash, to="failed", status=502), 200).body)
    eq((said["after"]["state"], said["after"]["reason"]), ("failed", "settled by an operator"))
    check(rig.post("/pay", key).status in (200, 409), "it runs again, or is refused, according to its policy")


@test
def a_live_lease_needs_force(rig):
    late, hash = running(rig, "live")
    for action in ({"action": "settle", "to": "done"}, {"action": "forget"}):
        refused(act(rig, hash=hash, **action), 409, "force")
    is_like(audits(rig, hash)[-1], result="refused", before="running", force=None)
    status(act(rig, hash=hash, action="settle", to="done", attempt=1, force=True), 200)
    is_like(audits(rig, hash)[-1], result="done", force=True)
    rig.backend.go("live")
    eq(late.get().h("Idem-Lost"), "true")


@test
def what_was_begun_again_since_is_left_alone(rig):
    _, hash = vanished(rig)
    refused(act(rig, hash=hash, action="settle", to="done", attempt=2), 409, "started again")


@test
def what_is_not_understood_changes_nothing(rig):
    _, hash = vanished(rig)
    for asked, words in (({"action": "inspect"}, '"hash" is missing'), ({"action": "settle", "hash": hash}, '"to" is missing'),
                         ({"hash": hash}, '"action" is missing'), ({"action": "drop", "hash": hash}, "inspect, settle or forget"),
                         ({"action": "forget", "hash": hash, "forced": True}, "not known"),
                         ({"action": "forget", "hash": hash, "force": "yes"}, "true or false"),
                         ({"action": "forget", "hash": hash, "to": "done"}, "means nothing"),
                         ({"action": "settle", "hash": hash, "to": "done", "status": -1}, "0 to 999"),
                         ({"action": "settle", "hash": hash, "to": "done", "reason": "a\nb"}, "control"),
                         ({"action": "settle", "hash": hash, "to": "running"}, "done or failed"),
                         ({"action": "inspect", "hash": hash[:-1]}, "64"), ({"action": "inspect", "hash": hash, "prefix": ""}, "prefix"),
                         ({"action": "inspect", "hash": hash, "store": "lmdb:/elsewhere"}, "no store")):
        refused(act(rig, **asked), 400, words)
    for body in (b" ", b"{", b"[]", b"null", b'{"action":"inspect","action":"forget"}', b"\xff"):
        refused(act(rig, body=body), 400, "JSON")
    refused(act(rig, body=b"x" * 4097), 413)
    refused(rig.post("/admin", body=b"{}", headers=[("Idem-Admin-Token", token(rig))], chunked=100), 411)
    eq(audits(rig, hash), [])
    eq(json.loads(act(rig, action="inspect", hash=hash).body)["before"]["state"], "uncertain")


@test
def http_2_is_asked_for_the_same(rig):
    body = json.dumps({"store": figures(rig)["stores"][0]["name"], "prefix": "pay:", "action": "inspect", "hash": "9" * 64}).encode()
    for origin, want in ((f"http://localhost:{rig.h2port}", 404), ("http://localhost", 403), ("http://evil.example", 403)):
        answer = curl("--http2-prior-knowledge", "-H", f"Origin: {origin}", "-H", "Content-Type: application/json", "-H",
                      f"Idem-Admin-Token: {token(rig)}", f"http://localhost:{rig.h2port}/admin", "--resolve", f"localhost:{rig.h2port}:127.0.0.1",
                      data=body)
        eq((answer.version, answer.status), ("HTTP/2", want), origin)


@test
def a_guard_from_above_does_not_hold_there(rig):
    refused(act(rig, "/under-guard", action="inspect", hash="3" * 64), 404)


@test
def a_log_that_takes_no_notices_has_the_line_all_the_same(rig):
    refused(act(rig, "/quiet", action="inspect", hash="4" * 64), 404)
    line = audits(rig, "4" * 64, "quiet.log")
    eq([one["level"] for one in line], ["crit"])


@test
def a_store_that_is_away_is_said_so_and_written_down(rig):
    with Rig("location = /admin { idem_admin allow=all; }" + guard("/x", "idem replay;"), workers=1,
             store=f"lmdb:{rig.folder}/no/such/folder?create=no") as own:
        refused(act(own, action="forget", hash="5" * 64), 503, "nothing was changed")
        is_like(audits(own, "5" * 64)[0], action="forget", result="failed", before=None, after=None)


class Relay:
    """A relay in front of a Redis. A command that holds the word arrives, and no response comes back on that
    connection."""

    def __init__(self, folder, server, word):
        self.word, self.server, self.path = word, server, os.path.join(folder, "relay.sock")
        self.swallowed = 0  # connections that carried the word
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(16)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            far, deaf = socket.socket(socket.AF_UNIX), threading.Event()
            far.connect(self.server.socket)
            threading.Thread(target=self.carry, args=(near, far, deaf, self.word), daemon=True).start()
            threading.Thread(target=self.carry, args=(far, near, deaf, None), daemon=True).start()

    def carry(self, source, to, deaf, word):
        try:
            while data := source.recv(65536):
                if word and word in data:
                    deaf.set()
                    self.swallowed += 1
                if word or not deaf.is_set():
                    to.sendall(data)
        except OSError:
            pass
        finally:
            to.close()


@test
def a_store_that_does_not_answer_leaves_a_line_whoever_gives_up_first(rig):
    server = start_redis(rig.folder + "/own-redis")
    relay = Relay(rig.folder, server, b"swallowed")
    conf = "location = /admin { idem_admin allow=all; }" + guard("/x", "idem replay; idem_on_failure keep;", prefix="pay:")
    url = f"redis:{relay.path}"
    try:
        # The clocks stand still: no request to the store times out before a test moves them.
        with Rig(conf, workers=1, store=url + "?timeout=1m", clock=True) as own, \
                Rig(conf, workers=1, store=url + "?timeout=1m", clock=True) as sure:
            own.clock.set(stop=True)
            sure.clock.set(stop=True)
            hashes = [sure.logged("/x", fresh(), do={"fault": "close"})[1]["idem_key_hash"] for _ in range(4)]
            told = {rig: (figures(rig)["stores"][0]["name"], token(rig)) for rig in (own, sure)}

            def settle(rig, hash, reason):
                store, tok = told[rig]
                asked = {"store": store, "prefix": "pay:", "hash": hash, "action": "settle", "to": "done", "reason": reason}
                return Conn(rig.port).send(rig.bytes("/admin", body=json.dumps(asked).encode(), headers=[("Idem-Admin-Token", tok)]))

            def result(rig, hash):
                return [(line["result"], line.get("before"), line.get("after")) for line in audits(rig, hash)]

            def gives_up(minutes):
                """Moves the clock past the timeout of the store."""
                own.clock.set(stop=True, ahead_ms=minutes * 60000)
                own.turn()
            server.pause()
            with settle(own, hashes[0], "") as conn:
                figures(own)  # the only worker has handled the earlier requests
                gives_up(2)
                refused(conn.answer(), 503, "nothing was changed")
            eq(result(own, hashes[0]), [("failed", "unknown", None)])
            with settle(sure, hashes[3], ""):
                figures(sure)
            figures(sure)  # the client has disconnected, and the worker has noticed
            server.go_on()
            until("it was done all the same", lambda: result(sure, hashes[3])[-1:] == [("done", "uncertain", "done")])
            eq(result(sure, hashes[3]), [("begun", "uncertain", "done"), ("done", "uncertain", "done")])
            own.clock.set(ahead_ms=2 * 60000)  # the clock runs, so that the pause before the next connection ends
            own.turn()
            # With another record, because actions while the store is known to be down leave lines, too.
            until("the store answers again", lambda: json.loads(act(own, action="inspect", hash=hashes[0]).body).get("before"))
            own.clock.set(stop=True, ahead_ms=2 * 60000)
            with settle(own, hashes[1], "swallowed") as conn:
                until("the order went by", lambda: relay.swallowed)
                own.clock.set(ahead_ms=4 * 60000)
                own.turn()
                refused(conn.answer(), 503, "may have been done")
            eq([part[:2] for part in result(own, hashes[1])], [("begun", "uncertain"), ("unknown", "uncertain")])
            sure.clock.set()  # a worker that exits waits for the store by this clock
            with settle(sure, hashes[2], "swallowed"):
                figures(sure)  # the only worker has handled the earlier requests
                worker, = sure.worker_pids()
                os.kill(worker, signal.SIGTERM)  # by the test: nginx would kill a worker that does not exit soon
                until("it is gone", lambda: not alive(worker))
            ends = [part[0] for part in result(sure, hashes[2]) if part[0] != "begun"]
            check(len(ends) == 1 and ends[0] in ("unknown", "failed"), audits(sure, hashes[2]))
    finally:
        relay.listener.close()
        server.stop()


@test
def what_is_not_there_is_no_error_of_the_store(rig):
    before = figures(rig)["stores"][0]
    refused(act(rig, action="forget", hash="6" * 64), 404)
    after = figures(rig)["stores"][0]
    eq(after["events"]["store_error"], before["events"]["store_error"])
    check(after["answered"] > after["failed"], after)


main(CONF, persist=True)
