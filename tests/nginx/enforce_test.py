#!/usr/bin/env python3
"""Shadow mode and kill switch: verdicts are computed and logged, and every request passes."""
import os
import sys

sys.dont_write_bytecode = True

from rig import *
from tap import *

OTHER, THIRD = Backend(), Backend()
CONF = "".join((
    guard("/shadow", "idem replay; idem_enforce off;", prefix="s:"),
    guard("/on", "idem replay; idem_enforce on; idem_fingerprint method body;", prefix="o:"),
    guard("/switch", "idem replay; idem_enforce $http_x_enforce;"),
    guard("/reject", "idem reject; idem_enforce off;"),
    guard("/waiting", "idem replay; idem_wait 1h; idem_enforce off;"),
    guard("/hold", "idem replay; idem_enforce off; idem_on_failure keep;"),
    guard("/probed", "idem replay; idem_enforce off; idem_probe /_probe;"),
    "location = /_probe { internal; proxy_pass http://@BACKEND@; proxy_pass_request_body off;"
    " proxy_set_header Content-Length ''; }\n",
    guard("/part", "idem replay; idem_enforce $part;"),
    guard("/dav", "idem replay; idem_methods DELETE; idem_enforce off;", to="root @TEMP@; dav_methods DELETE;"),
    guard("/big", "idem replay; idem_enforce $big; idem_key $big optional;"),
    guard("/next", "idem replay; idem_methods PUT; idem_enforce off; proxy_next_upstream error;", to="proxy_pass http://two;"),
    guard("/other", "idem replay; idem_enforce off; error_page 502 = @other;"),
    f"location @other {{ proxy_pass http://127.0.0.1:{OTHER.port}; }}\n",
    guard("/whose", "idem replay; idem_scope $http_x_user; idem_enforce $acme; idem_key $whose;"),
))
HTTP = ("map $http_x_tenant $part { default off; acme on; } idem_set $big '#body.big ?: \"\"';"
        f" upstream two {{ server 127.0.0.1:{OTHER.port} max_fails=0; server 127.0.0.1:{THIRD.port} max_fails=0; }}"
        " idem_set $acme \"#user == 'acme' ? 'on' : 'off'\"; idem_set $whose \"(#user ?: 'nobody') + '-' + #body.id\";"
        if MODULE else "")


def until_stored(rig):
    """In shadow mode a response is not held until its outcome is stored, so the test waits for that."""
    until("all ends are stored", lambda: all(json.loads(line)["state"] != "running"
                                             for line in rig.idem("list", "--json").splitlines()))


def passes(rig, path, key, verdict, code=200, **options):
    answer, line = rig.logged(path, key, **options)
    if verdict == "run":
        until_stored(rig)
    status(answer, code)
    check(not answer.replayed, "nothing is replayed")
    eq(line["idem_verdict"], verdict, "the verdict that would have been acted on")
    return answer


@test
def in_shadow_mode_every_request_passes_and_is_judged(rig):
    key, ref = fresh(), fresh("ref")
    for i, verdict in enumerate(("run", "replay", "replay")):
        passes(rig, "/shadow", key, verdict, ref=ref)
        eq(rig.backend.effects(ref=ref), i + 1)
    passes(rig, "/shadow", key, "mismatch", body=b"other", ref=ref)
    passes(rig, "/shadow", None, "missing", ref=ref)
    passes(rig, "/shadow", "a b", "malformed", ref=ref)
    eq(rig.backend.effects(ref=ref), 6)
    passes(rig, "/reject", key, "run")
    passes(rig, "/reject", key, "duplicate")


@test(stores="redis")
def in_shadow_mode_verdicts_are_counted(rig):
    with Rig(guard("/shadow", "idem replay; idem_enforce off;")) as other:
        key = fresh()
        for body in (b"one", b"one", b"one", b"two"):
            status(other.post("/shadow", key, body=body), 200)
            until_stored(other)

        def counted(name):
            return other.redis.ask("HGET", "idem:events", name)
        until("what would have been done is counted",
              lambda: [counted(n) for n in ("run", "replay", "mismatch")] == [b"1", b"2", b"1"])


@test
def in_shadow_mode_a_busy_key_passes_at_once(rig):
    for path in ("/shadow", "/waiting"):
        key, name = fresh(), fresh("hang")
        under_way = rig.later(path, key, do={"hang": name})
        rig.backend.reached(name)
        passes(rig, path, key, "busy")  # the duplicate does not wait: the first one hangs
        rig.backend.go(name)
        status(under_way.get(), 200)
        eq(rig.backend.effects(key=key), 2)
        until_stored(rig)
        passes(rig, path, key, "replay")


@test
def in_shadow_mode_failures_are_recorded(rig):
    key = fresh()
    passes(rig, "/shadow", key, "run", 502, do={"fault": "close"})
    passes(rig, "/shadow", key, "uncertain")
    key = fresh()
    passes(rig, "/hold", key, "run", 500, do={"status": 500})
    passes(rig, "/hold", key, "dead")


@test
def in_shadow_mode_nobody_is_asked(rig):
    key = fresh()
    passes(rig, "/probed", key, "run", 502, do={"fault": "close"})
    passes(rig, "/probed", key, "uncertain")
    eq([s.path for s in rig.backend.requests(key=key)], ["/probed", "/probed"])


@test
def in_shadow_mode_nobody_is_asked_in_the_background(rig):
    """With a variable, the record does not show which requests were enforced, so the gateway probes the backend."""
    rules = "idem replay; idem_probe /_status/{0}; idem_enforce {1};"
    with Rig(guard("/off", rules.format("off", "off")) + guard("/on", rules.format("on", "on"))
             + guard("/some", rules.format("some", "$http_x_enforce"))
             + "location /_status/ { internal; proxy_pass http://@BACKEND@; }") as other:
        names = ("off", "on", "some")
        for name in names:
            other.backend.script("/_status/" + name, {"status": 500})  # so that the next request probes again
            status(other.post("/" + name, fresh(), do={"fault": "close"}), 502)

        def asked(name):
            return len(other.backend.requests(path="/_status/" + name))
        until("they are probed again and again", lambda: asked("on") >= 3 and asked("some") >= 3)
        eq(asked("off"), 0)


@test
def in_shadow_mode_answers_are_whole(rig):
    for do in ({"size": 0}, {"size": 500000}, {"status": 204}, {"size": 2 << 20},
               {"headers": [["Set-Cookie", "a=b"], ["Idem-Outcome", "done"]]}):
        key = fresh()
        for verdict in ("run", "duplicate" if do.get("size") == 2 << 20 else "replay"):
            answer, line = rig.logged("/shadow", key, do=do)
            until_stored(rig)
            check(answer.complete and answer.status == do.get("status", 200), repr(answer))
            eq(answer.body, rig.backend.requests(key=key)[-1].answer)
            eq(answer.all("Idem-Outcome"), [])
            eq(line["idem_verdict"], verdict, f"the verdict of {do}")
        eq(rig.backend.effects(key=key), 2)


@test
def in_shadow_mode_an_answer_without_a_body_is_done(rig):
    """nginx passes on no body of its own 204, not even an empty one, nor of any 204 over HTTP/2."""
    key = fresh()
    status(curl("--http2-prior-knowledge", "-X", "POST", "-H", f"Idempotency-Key: {key}", "-H",
                'X-Do: {"status": 204}', f"http://127.0.0.1:{rig.h2port}/shadow"), 204)
    until_stored(rig)
    passes(rig, "/shadow", key, "replay", 204, body=b"", do={"status": 204})
    os.makedirs(rig.folder + "/dav", exist_ok=True)
    with open(f"{rig.folder}/dav/{key}", "w", encoding="utf-8"):
        pass
    passes(rig, f"/dav/{key}", key, "run", 204, method="DELETE", body=b"")
    passes(rig, f"/dav/{key}", key, "replay", 404, method="DELETE", body=b"")


@test
def in_shadow_mode_nginx_asks_whom_it_would_ask_without_a_guard(rig):
    key = fresh()
    passes(rig, "/next", key, "run", 502, method="PUT", do={"fault": "close"})
    eq([len(backend.requests(key=key)) for backend in (OTHER, THIRD)], [1, 1], "nginx sends a PUT to the next server")
    passes(rig, "/next", key, "uncertain", method="PUT")
    key = fresh()
    OTHER.script("/other", {"body": "from the other"})
    rig.backend.script("/other", {"fault": "close"})
    eq(passes(rig, "/other", key, "run").body, b"from the other")
    passes(rig, "/other", key, "replay")
    eq(len(rig.backend.requests(path="/other")), 2)


@test
def the_switch_may_be_a_variable(rig):
    key = fresh()
    first = status(rig.post("/switch", key, headers=[("X-Enforce", "on")]), 200)
    for value in ("on", "1", "yes", "acme"):
        replay_of(first, rig.post("/switch", key, headers=[("X-Enforce", value)]))
    eq(rig.backend.effects(key=key), 1)
    for i, headers in enumerate(([], [("X-Enforce", "0")], [("X-Enforce", "off")])):
        passes(rig, "/switch", key, "replay", headers=headers)
        eq(rig.backend.effects(key=key), i + 2)
    replay_of(first, rig.post("/switch", key, headers=[("X-Enforce", "on")]))
    status(rig.post("/switch", None, headers=[("X-Enforce", "on")]), 400, "key-missing")
    status(rig.post("/switch", None), 200)


@test
def one_tenant_may_be_enforced(rig):
    key = fresh()
    status(rig.post("/part", key), 200)
    until_stored(rig)
    check(not rig.post("/part", key).replayed, "others pass")
    check(rig.post("/part", key, headers=[("X-Tenant", "acme")]).replayed, "this one is guarded")


@test
def the_switch_may_be_made_of_the_body(rig):
    ref, big = fresh("ref"), fresh()
    first = status(rig.post("/big", ref=ref, body=json.dumps({"big": big}).encode()), 200)
    replay_of(first, rig.post("/big", ref=ref, body=json.dumps({"big": big}).encode()))
    eq(rig.backend.effects(ref=ref), 1)


@test
def the_switch_may_be_made_of_who_asks(rig):
    ref, number = fresh("ref"), fresh()

    def ask(user):
        return status(rig.post("/whose", user=user, ref=ref, body=json.dumps({"id": number}).encode()), 200)
    replay_of(ask("acme"), ask("acme"))
    eq(rig.backend.effects(ref=ref), 1)
    check(not ask("other").replayed and not ask("other").replayed, "others pass")
    eq([s.key for s in rig.backend.requests(ref=ref)], [f"acme-{number}", f"other-{number}", None])
    status(rig.post("/whose", body=b'{"id": 1}'), 200)  # not acme: it passes without a scope


@test
def what_ran_in_the_shadow_is_replayed_when_it_is_enforced(rig):
    key = fresh()
    first = passes(rig, "/switch", key, "run")
    replay_of(first, rig.post("/switch", key, headers=[("X-Enforce", "on")]))


@test
def a_store_that_is_down_does_not_matter_in_the_shadow(rig):
    if STORE != "redis":
        return
    with Rig(guard("/shadow", "idem replay; idem_enforce off;"), options="timeout=300ms&connect_timeout=300ms") as other:
        status(other.post("/shadow", fresh()), 200)
        other.redis.kill()
        key = fresh()
        rid = fresh("rid")
        status(other.post("/shadow", key, rid=rid), 200)
        check(other.log(rid)["idem_verdict"] in ("store_error", "open"), str(other.log(rid)))
        eq(other.backend.effects(key=key), 1)


@test
def two_hundred_in_the_shadow_all_pass(rig):
    key = fresh()
    answers = burst(rig.port, [rig.bytes("/shadow", key) for _ in range(200)])
    eq({a.status for a in answers}, {200})
    eq(rig.backend.effects(key=key), 200)


if __name__ == "__main__":
    main(CONF, http=HTTP)
