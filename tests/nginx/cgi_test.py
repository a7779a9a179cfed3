#!/usr/bin/env python3
"""Guards on fastcgi_pass and uwsgi_pass work as on proxy_pass."""
import sys

sys.dont_write_bytecode = True

from rig import *
from tap import *

FASTCGI, UWSGI = "fastcgi_pass @FASTCGI@; @CGI_FASTCGI@", "uwsgi_pass @UWSGI@; @CGI_UWSGI@"
CONF = WATCH + "".join(
    guard(f"/{kind}", "idem replay; idem_result_max 512k;", to=to)
    + guard(f"/{kind}-payment", "idem_preset payment;", to=to)
    + guard(f"/{kind}-wait", f"idem replay; idem_wait 1h;", to=to)
    + guard(f"/{kind}-slow", f"idem replay; {kind}_read_timeout 300ms;", to=to)
    + guard(f"/{kind}-abort", f"idem replay; {kind}_ignore_client_abort off;", to=to)
    + guard(f"/{kind}-unbuffered", f"idem replay; {kind}_buffering off;", to=to)
    + guard(f"/{kind}-refused", "idem replay;", to=f"{kind}_pass @REFUSED@;")
    + guard(f"/{kind}-named", "idem replay; idem_key header=X-Order-Key optional;", to=to)
    + guard(f"/{kind}-odd", "idem replay; idem_key header=X_Order-Key optional;", to=to)
    + guard(f"/{kind}-serial", "idem replay; idem_key serial header=X-Serial-No credential=X-Cred-Id;", to=to)
    + guard(f"/{kind}-token", "idem replay; idem_key token;", prefix="spelling:", to=to)
    + guard(f"/{kind}-value", "idem replay; idem_key '$http_x_order_no';", to=to)
    + guard(f"/{kind}-expr", "idem replay; idem_key $spelled; idem_fingerprint \"#headers['x-print-of'] + '.'\";", to=to)
    + guard(f"/{kind}-scope", "idem replay; idem_scope $http_x_user_id; if ($http_x_user_id = no) { set $x 1; }", to=to)
    for kind, to in (("fastcgi", FASTCGI), ("uwsgi", UWSGI))) + "location = /token { idem_token; idem_prefix spelling:; }\n"
SPELLED = "idem_set $spelled \"#headers['x-expr-key']\";"


def each(work):
    """Yields the test once per protocol."""
    def run(rig):
        for kind, backend in (("fastcgi", rig.fastcgi), ("uwsgi", rig.uwsgi)):
            work(rig, "/" + kind, backend)
            for name in list(backend.events):
                backend.go(name)
    run.__name__ = work.__name__
    return run


@test
@each
def a_request_runs_once_and_is_replayed(rig, path, backend):
    for do in ({"status": 201}, {"size": 100000}, {"status": 404}, {"status": 204}, {"body": ""}):
        for variant in (path, path + "-unbuffered"):
            key = fresh()
            first = rig.post(variant, key, body=pattern(50000), type="text/plain", do=do)
            check(first.status == do.get("status", 200) and not first.replayed, repr(first))
            replay_of(first, rig.post(variant, f'"{key}"', body=pattern(50000), type="text/plain"))
            seen, = backend.requests(key=key)
            eq(seen.body, pattern(50000))


@test
@each
def the_backend_gets_our_headers_and_nobody_elses(rig, path, backend):
    key = fresh()
    status(rig.post(path, key, headers=[("Idem-Attempt", "9"), ("Idem-Foo", "x"), ("Accept-Encoding", "gzip")]), 200)
    seen, = backend.requests(key=key)
    eq(seen.all("Idem-Attempt"), ["1"])
    eq(len(seen.all("Idem-Downstream-Key")), 1)
    eq((seen.all("Idem-Foo"), seen.all("Accept-Encoding")), ([], []))


@test
@each
def an_underscore_is_no_way_to_forge_our_headers(rig, path, backend):
    """In CGI variables Idem_Attempt and Idem-Attempt are one."""
    key = fresh()
    forged = [("Idem_Attempt", "9"), ("idem_downstream_key", "f" * 64), ("Idem_Foo", "x")]
    status(rig.post(path, key, headers=forged), 200)
    seen, = backend.requests(key=key)
    eq(seen.all("Idem-Attempt"), ["1"])
    eq((len(seen.all("Idem-Downstream-Key")), seen.all("Idem-Foo")), (1, []))
    ref = fresh("ref")
    answer = rig.post(path, key, headers=[("Idempotency_Key", "another")], ref=ref)
    for seen in backend.requests(ref=ref):
        eq(seen.all("Idempotency-Key"), [key])
    check(answer.replayed or answer.status == 400, repr(answer))
    other = fresh()
    answer = rig.post(path, other, headers=[("Idempotency_Key", "another")], ref=ref)
    for seen in backend.requests(ref=ref):
        eq(seen.all("Idempotency-Key"), [other], "the key in the backend's request")


def spellings(name):
    """The spellings that CGI programs may take for the header, except its own; the last is a client's usual one."""
    return [s for s in (name.replace("-", "_"), name.replace("-", "_", 1), name.replace("-", ".", 1), name.lower().replace("-", "_"))
            if s != name]


@test
@each
def a_header_that_decides_reaches_the_program_in_one_spelling(rig, path, backend):
    token = json.loads(rig.post("/token", method="GET", body=b"").body)["token"]
    for variant, fields in (
            ("-named", {"X-Order-Key": "a"}), ("-odd", {"X_Order-Key": "a"}), ("-serial", {"X-Serial-No": "7", "X-Cred-Id": "c"}),
            ("-token", {"Idempotent-Token": token}), ("-value", {"X-Order-No": "a"}),
            ("-expr", {"X-Expr-Key": "a", "X-Print-Of": "p"}), ("-scope", {"X-User-Id": "ann"})):
        ref, forged = fresh("ref"), [(s, "forged") for name in fields for s in spellings(name)]
        own = [(name, value + ("" if name == "Idempotent-Token" else ref)) for name, value in fields.items()]
        key = ref if variant == "-scope" else None
        before = status(rig.post(path + variant, key, headers=forged + own, ref=ref), 200)
        replay_of(before, rig.post(path + variant, key, headers=own + forged, ref=ref))
        seen, = backend.requests(ref=ref)
        for name, value in own:
            eq(seen.all(name.replace("_", "-")), [value], f"{path}{variant}")
        eq([n for n, v in seen.headers if v == "forged"], [], f"{path}{variant}")


@test
@each
def a_spelling_that_decides_nothing_is_no_key(rig, path, backend):
    """If the key is optional, a program must not accept a spelling that the guard has not seen."""
    for variant, sent in (("-named", "X_Order_Key"), ("-odd", "X-Order-Key"), ("-odd", "X_Order_Key")):
        ref = fresh("ref")
        for _ in range(2):
            status(rig.post(path + variant, headers=[(sent, "7")], ref=ref), 200)
        eq([seen.all("X-Order-Key") for seen in backend.requests(ref=ref)], [[], []], f"{path}{variant} {sent}")
    # A spelling that an nginx variable reads reaches the program too, if it was sent.
    key = fresh()
    first = status(rig.post(path + "-scope", key, headers=[("x_user_id", "eve")]), 200)
    replay_of(first, rig.post(path + "-scope", key, headers=[("X-User-Id", "eve"), ("X_User_Id", "ann")]))
    eq([seen.all("X-User-Id") for seen in backend.requests(key=key)], [["eve"]])


@test
@each
def a_spelling_that_a_variable_does_not_read_does_not_replace_one_that_it_reads(rig, path, backend):
    """With `ignore_invalid_headers off` a name may have a full stop. $http_x_user_id never reads X.User-Id."""
    key = fresh()
    forged, own = ("X.User-Id", "eve"), ("X_User_Id", "ann")
    first = status(rig.post(path + "-scope", key, headers=[forged, own]), 200)
    replay_of(first, rig.post(path + "-scope", key, headers=[own]))
    eq([seen.all("X-User-Id") for seen in backend.requests(key=key)], [["ann"]])


@test
@each
def accept_encoding_is_cleared_in_every_spelling(rig, path, backend):
    key = fresh()
    status(rig.post(path, key, headers=[(s, "gzip") for s in spellings("Accept-Encoding")]), 200)
    eq(backend.requests(key=key)[0].all("Accept-Encoding"), [])


@test
@each
def a_refusal_does_not_reach_the_backend(rig, path, backend):
    before = len(backend.requests())
    status(rig.post(path), 400, "key-missing")
    status(rig.post(path, "a b"), 400, "key-malformed")
    eq(len(backend.requests()), before)


@test
@each
def failures_follow_the_policy(rig, path, backend):
    key = fresh()
    status(rig.post(path, key, do={"status": 500}), 500)
    status(rig.post(path, key), 200)
    eq(backend.effects(key=key), 2)
    key = fresh()
    first = status(rig.post(path + "-payment", key, do={"status": 500}), 500)
    replay_of(first, rig.post(path + "-payment", key))
    eq(backend.effects(key=key), 1)


@test
@each
def a_broken_answer_is_unknown(rig, path, backend):
    for do in ({"fault": "close"}, {"fault": "rst"}, {"read": 1}):
        key = fresh()
        status(rig.post(path, key, do=do), 502)
        status(rig.post(path, key), 409, "uncertain")
        eq(len(backend.requests(key=key)), 1)
    key = fresh()
    name = fresh("hang")
    status(rig.post(path + "-slow", key, do={"hang": name}), 504)
    status(rig.post(path + "-slow", key), 409, "uncertain")
    backend.go(name)


@test
def a_truncated_answer_is_unknown(rig):
    for path, backend in (("/fastcgi", rig.fastcgi), ("/uwsgi", rig.uwsgi)):
        for variant in (path, path + "-unbuffered"):
            for size, cut in ((1000, 500), (200000, 100000)):
                key = fresh()
                length = [["Content-Length", str(size)]] if path == "/fastcgi" else []
                status(rig.post(variant, key, do={"size": size, "truncate": cut, "headers": length}), 502)
                status(rig.post(variant, key), 409, "uncertain")
                eq(backend.effects(key=key), 1)


@test
def an_answer_of_fastcgi_without_its_end_is_unknown(rig):
    """PHP sends no length; only the missing end record shows that its process died."""
    for path in ("/fastcgi", "/fastcgi-unbuffered"):
        for size, cut in ((1000, 500), (200000, 100000), (1000, 0)):
            key = fresh()
            status(rig.post(path, key, do={"size": size, "truncate": cut}), 502)
            status(rig.post(path, key), 409, "uncertain")
            eq(rig.fastcgi.effects(key=key), 1)


@test
@each
def a_refused_connection_releases(rig, path, backend):
    key = fresh()
    for _ in range(2):
        answer, line = rig.logged(path + "-refused", key)
        status(answer, 502)
        eq((line["idem_verdict"], line["idem_attempt"]), ("run", "1"))


@test
@each
def the_backend_can_say_what_becomes_of_it(rig, path, backend):
    key = fresh()
    answer = status(rig.post(path, key, do={"headers": [["Idem-Outcome", "release"], ["Idem-Ttl", "5"]]}), 200)
    eq([n for n, _ in answer.headers if n.lower().startswith("idem-")], [])
    check(not status(rig.post(path, key), 200).replayed, "released")
    key = fresh()
    status(rig.post(path, key, do={"headers": [["Idem-Store", "no"]]}), 200)
    status(rig.post(path, key), 409, "duplicate")


@test
@each
def a_client_that_leaves_finds_its_answer(rig, path, backend):
    key, name = fresh(), fresh("hang")
    conn = Conn(rig.port).send(rig.bytes(path + "-abort", key, do={"hang": name}))
    backend.reached(name)
    conn.reset()
    rig.turn()
    backend.go(name)
    answer = until_200("an answer", lambda: rig.post(path + "-abort", key))
    check(answer.replayed, repr(answer))
    eq(backend.effects(key=key), 1)


@test
@each
def duplicates_wait(rig, path, backend):
    key, name = fresh(), fresh("hang")
    under_way = [rig.later(path + "-wait", key, do={"hang": name}) for _ in range(6)]
    rig.until_parked(5)
    backend.go(name)
    eq(len({u.get().body for u in under_way}), 1)
    eq(backend.effects(key=key), 1)


@test
@each
def an_answer_over_the_limit_flows_whole(rig, path, backend):
    key = fresh()
    first = status(rig.post(path, key, do={"size": 800000}), 200)
    eq(first.body, backend.requests(key=key)[0].answer)
    status(rig.post(path, key), 409, "duplicate")
    eq(backend.effects(key=key), 1)


if __name__ == "__main__":
    main(CONF, http="underscores_in_headers on; ignore_invalid_headers off;" + SPELLED)
