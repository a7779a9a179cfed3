#!/usr/bin/env python3
"""The identity of a request: the key, its forms and its refusals, the scope, the fingerprint."""
import re
import sys

sys.dont_write_bytecode = True

from rig import *
from tap import *

FORM = "application/x-www-form-urlencoded"
SET = "idem_set $order_id '#body.orderId'; idem_key \"$order_id\";"

CONF = "".join((
    guard("/replay", "idem replay;"),
    guard("/optional", "idem replay; idem_key header=Idempotency-Key optional;"),
    guard("/named", "idem replay; idem_key header=X-Operation;"),
    guard("/param", "idem replay; idem_key param=order;"),
    guard("/param-small", "idem replay; idem_key param=order; idem_json_max 64;"),
    guard("/maybe", "idem replay; idem_key param=order optional;"),
    guard("/params", "idem replay; idem_scope $http_x_user; idem_key params; idem_methods POST PATCH DELETE;"),
    guard("/serial", "idem replay; idem_key serial header=X-Serial-No credential=X-Client-Id;"),
    guard("/value", 'idem replay; idem_key "$http_x_order";'),
    guard("/joined", 'idem replay; idem_key "$http_x_a|$http_x_b";'),
    guard("/set", "idem replay; " + SET + " access_log @TEMP@/set.log order;"),
    guard("/logged", "idem replay; client_body_buffer_size 1k; access_log @TEMP@/set.log order;"),
    guard("/unread", "idem replay; idem_fingerprint none; client_body_buffer_size 1k; access_log @TEMP@/set.log order;"),
    guard("/setlog", "idem replay; idem_set $its_id '#body.id'; idem_key $its_id; access_log @TEMP@/set.log order;"),
    guard("/setall", "idem replay; idem_scope $http_x_user; idem_set $all "
          "'{#method, #path, #query.q, #headers[\"x-tenant\"], #cookies.sid, #body.id, #user}';"
          ' idem_key "$all";'),
    guard("/whose", "idem replay; idem_set $whose '#headers[\"x-tenant\"]'; idem_scope $whose;"
          " idem_set $theirs '#user + \"-\" + #body.id'; idem_key $theirs;"),
    guard("/elvis", "idem replay; idem_set $e '#body.coupon ?: \"none\"'; idem_key \"$e\";"),
    guard("/fp-none", "idem replay; idem_fingerprint none;"),
    guard("/fp-path", "idem replay; idem_fingerprint method path;"),
    guard("/fp-amount", "idem replay; idem_fingerprint '#body.amount';"),
    guard("/json-small", "idem replay; idem_json_max 32;"),
    guard("/scoped", "idem replay; idem_scope $http_x_user;"),
    guard("/one", "idem replay; idem_fingerprint none;", prefix="shared:"),
    guard("/two", "idem replay; idem_fingerprint none;", prefix="shared:"),
    guard("/three", "idem replay; idem_fingerprint none;", prefix="other:"),
    guard("/note", "idem replay; idem_set $note '#body.note'; idem_label $note;"),
    guard("/label", "idem replay; idem_label $http_x_label;"),
))
HTTP = "log_format order '$order_id';" if MODULE else ""


def once(rig, path, key, forms, **options):
    """All these forms denote one key."""
    first = status(rig.post(path, forms[0], **options), 200)
    check(not first.replayed, "the first one runs")
    for form in forms[1:]:
        replay_of(first, rig.post(path, form, **options))
    return first


def refused(rig, path, kind, ref=None, **options):
    ref = ref or fresh("ref")
    answer = status(rig.post(path, ref=ref, **options), 400, kind)
    eq(answer.problem["status"], 400)
    check(answer.problem["retryable"] is False, f"not retryable: {answer!r}")
    eq(rig.backend.requests(ref=ref), [], "what the backend saw")
    return answer


@test
def a_key_runs_once_and_is_replayed(rig):
    key = fresh()
    once(rig, "/replay", key, [key, key, key])
    eq(rig.backend.effects(key=key), 1, "effects")


@test
def a_bare_key_and_a_quoted_one_are_one(rig):
    key = fresh()
    once(rig, "/replay", key, [key, f'"{key}"', f'"{key}"', key])
    eq(rig.backend.effects(key=key), 1, "effects")


@test
def an_escaped_quote_and_backslash_are_those_bytes(rig):
    key = fresh()
    once(rig, "/replay", key, [f'"{key}\\"x\\\\y"', f'{key}"x\\y'])


@test
def keys_differ_by_case_and_by_every_byte(rig):
    key = fresh()
    for form in (key, key.upper(), key + ".", key + "-", f'"{key} "'):
        check(not status(rig.post("/replay", form), 200).replayed, f"{form} is a key of its own")


@test
def a_quoted_key_may_hold_blanks_and_a_bare_one_not(rig):
    key = fresh()
    once(rig, "/replay", key, [f'"{key} a b"', f'"{key} a b"'])
    refused(rig, "/replay", "key-malformed", key=f"{key} a b")


@test
def what_begins_with_a_quote_must_parse(rig):
    for form in ('"', '"abc', '"abc"x', '"a\\qb"', '"abc" "d"', '"abc\\"', '"a"b"'):
        refused(rig, "/replay", "key-malformed", key=form)


@test
def bytes_that_are_not_visible_ascii_are_malformed(rig):
    for form in ("a\tb", "\x7fa", "caf\xe9", "\xc3\xa9", '"caf\xe9"', '"a\tb"', "a\x01b"):
        refused(rig, "/replay", "key-malformed", key=form)


@test
def an_empty_key_is_refused(rig):
    for form in ("", '""', "  "):
        ref = fresh("ref")
        answer = status(rig.post("/replay", form, ref=ref), 400)
        check(answer.type in ("key-missing", "key-malformed"), repr(answer))
        eq(rig.backend.requests(ref=ref), [])


@test
def a_key_has_at_most_255_bytes(rig):
    for length, quoted in ((255, False), (255, True), (1, False)):
        key = (fresh("L") + "x" * 255)[:length] if length > 1 else "~"
        once(rig, "/replay", key, [f'"{key}"' if quoted else key, key])
    for key in ("y" * 256, '"' + "y" * 256 + '"', "y" * 4096):
        refused(rig, "/replay", "key-malformed", key=key)


@test
def a_parameter_of_a_quoted_key_makes_no_other_key(rig):
    key = fresh()
    once(rig, "/replay", key, [key])
    answer = rig.post("/replay", f'"{key}";a=1')
    check(answer.status == 400 or answer.replayed, repr(answer))
    eq(rig.backend.effects(key=key), 1)


@test
def blanks_around_a_key_do_not_matter(rig):
    key = fresh()
    once(rig, "/replay", key, [key, "  " + key + " \t"])


@test
def a_repeated_key_is_refused_even_if_it_is_the_same(rig):
    for second in ("Idempotency-Key", "idempotency-key", "IDEMPOTENCY-KEY"):
        for value in ("same", "other"):
            refused(rig, "/replay", "key-malformed", key="same", headers=[(second, value)])
    refused(rig, "/replay", "key-malformed", headers=[("Idempotency-Key", ""), ("Idempotency-Key", "x")])


@test
def a_missing_key_is_refused(rig):
    answer = refused(rig, "/replay", "key-missing")
    eq(answer.h("Cache-Control"), "no-store")
    check("key_hash" not in answer.problem or not answer.problem["key_hash"], "there is no key")


@test
def a_refusal_is_logged_as_such(rig):
    for key, verdict in ((None, "missing"), ("a b", "malformed")):
        _, line = rig.logged("/replay", key)
        eq((line["idem_verdict"], line["idem_key_hash"]), (verdict, ""))


@test
def an_optional_key_may_be_missing_and_guards_when_it_is_there(rig):
    ref = fresh("ref")
    for _ in range(2):
        answer, line = rig.logged("/optional", ref=ref)
        status(answer, 200)
        eq(line["idem_verdict"], "")
    eq(rig.backend.effects(ref=ref), 2)
    key = fresh()
    once(rig, "/optional", key, [key, key])
    refused(rig, "/optional", "key-malformed", key='"x')


@test
def another_header_can_be_the_key(rig):
    ref, value = fresh("ref"), fresh("op")
    first = status(rig.post("/named", ref=ref, headers=[("X-Operation", value)]), 200)
    replay_of(first, rig.post("/named", ref=ref, headers=[("x-operation", f'"{value}"')]))
    eq(rig.backend.effects(ref=ref), 1)
    ref = fresh("ref")
    status(rig.post("/named", "not this one", ref=ref, headers=[("X-Operation", f'"{value} 2"')]), 200)
    status(rig.post("/named", "not this one", ref=ref, headers=[("X-Operation", value + "-3")]), 200)
    odd, plain = rig.backend.requests(ref=ref)
    check(re.fullmatch("[0-9a-f]{64}", odd.key), f"a key with a blank goes by its hash: {odd.key}")
    eq(plain.all("Idempotency-Key"), [value + "-3"], "the key, and not the client's other header")
    refused(rig, "/named", "key-missing", key="not this one")
    refused(rig, "/named", "key-malformed", headers=[("X-Operation", "a"), ("X-Operation", "a")])


@test
def the_backend_gets_the_key_the_attempt_and_a_derived_key(rig):
    key = fresh()
    status(rig.post("/replay", f'"{key}"'), 200)
    seen, = rig.backend.requests(key=key)
    eq(seen.all("Idempotency-Key"), [f'"{key}"'], "the client's header as it was")
    eq(seen.all("Idem-Attempt"), ["1"])
    derived = seen.all("Idem-Downstream-Key")
    check(len(derived) == 1 and re.fullmatch("[0-9a-f]{64}", derived[0]), f"64 hex digits: {derived}")
    check(key not in derived[0], "derived")


@test
def derived_keys_differ_by_key_scope_and_prefix_and_are_stable(rig):
    key, derived = fresh(), set()
    for path, user, k in (("/scoped", "u1", key), ("/scoped", "u2", key), ("/scoped", "u1", key + "x"),
                          ("/one", None, key), ("/three", None, key)):
        ref = fresh("ref")
        status(rig.post(path, k, user=user, ref=ref), 200)
        derived.add(rig.backend.requests(ref=ref)[0].h("Idem-Downstream-Key"))
    eq(len(derived), 5, "derived keys")
    # Released and requested again: another run, the same derived key.
    key = fresh()
    rig.post("/scoped", key, user="u", do={"status": 429})
    rig.post("/scoped", f'"{key}"', user="u")
    first, second = rig.backend.requests(key=key)
    eq(first.h("Idem-Downstream-Key"), second.h("Idem-Downstream-Key"), "the derived key")


@test
def headers_of_ours_that_a_client_sends_are_stripped(rig):
    key = fresh()
    forged = [("Idem-Attempt", "99"), ("idem-downstream-key", "f" * 64), ("Idem-Outcome", "release"),
              ("Idem-Anything", "x"), ("IDEM-LOST", "true")]
    status(rig.post("/replay", key, headers=forged), 200)
    seen, = rig.backend.requests(key=key)
    ours = sorted(n.lower() for n, _ in seen.headers if n.lower().startswith("idem-"))
    eq(ours, ["idem-attempt", "idem-downstream-key"])
    eq(seen.all("Idem-Attempt"), ["1"])
    ref = fresh("ref")
    status(rig.post("/optional", headers=forged, ref=ref), 200)
    seen, = rig.backend.requests(ref=ref)
    eq([n for n, _ in seen.headers if n.lower().startswith("idem-")], [], "unguarded, they are stripped too")


@test
def many_headers_all_reach_the_backend(rig):
    for count in (10, 19, 20, 21, 40, 90):
        for ours in (0, 1, 25):
            key = fresh()
            headers = [(f"X-H{i}", str(i)) for i in range(count)]
            for i in range(ours):
                headers.insert(i * 3 % (count + 1), (f"Idem-Forged-{i}", "x"))
            status(rig.post("/replay", key, headers=headers + [("Accept-Encoding", "gzip")]), 200)
            seen, = rig.backend.requests(key=key)
            eq([v for n, v in seen.headers if n.startswith("X-H")], [str(i) for i in range(count)])
            eq(sorted(n for n, _ in seen.headers if n.startswith("Idem-")), ["Idem-Attempt", "Idem-Downstream-Key"])
            eq((seen.all("Accept-Encoding"), seen.all("Idempotency-Key")), ([], [key]))


@test
def a_query_parameter_can_be_the_key(rig):
    key = fresh()
    first = status(rig.post(f"/param?order={key}&x=1"), 200)
    replay_of(first, rig.post(f"/param?order={key}&x=1"))
    status(rig.post(f"/param?order={key}&x=2"), 422, "mismatch")
    eq(rig.backend.effects(path="/param", key=key), 1, "effects, and the key reaches the backend")
    refused(rig, "/param?orders=1&xorder=2", "key-missing")
    refused(rig, "/param", "key-missing")
    answer = status(rig.post("/param?order="), 400)
    check(answer.type in ("key-missing", "key-malformed"), repr(answer))
    refused(rig, "/param?order=1&order=1", "key-malformed")
    refused(rig, "/param?order=" + "z" * 5000, "key-malformed")


@test
def a_form_field_can_be_the_key(rig):
    key = fresh()
    body = f"a=1&order={key}&b=2".encode()
    first = status(rig.post("/param", body=body, type=FORM), 200)
    replay_of(first, rig.post("/param", body=body, type=FORM + "; charset=UTF-8"))
    eq(rig.backend.effects(path="/param", key=key), 1)
    status(rig.post("/param", body=body + b"&c=3", type=FORM), 422, "mismatch")
    refused(rig, "/param", "key-malformed", body=b"order=1&order=2", type=FORM)
    refused(rig, "/param", "key-missing", body=b"a=1", type=FORM)
    refused(rig, "/param", "key-missing", body=body, type="text/plain")


@test
def a_key_in_the_query_and_in_the_form_is_repeated(rig):
    for value in ("a", "b"):
        refused(rig, "/param?order=a", "key-malformed", body=f"order={value}".encode(), type=FORM)


@test
def a_form_in_a_temporary_file_is_read_too(rig):
    key = fresh()
    body = b"pad=" + b"p" * 100000 + f"&order={key}".encode()
    first = status(rig.post("/param", body=body, type=FORM), 200)
    replay_of(first, rig.post("/param", body=body, type=FORM))
    eq(rig.backend.effects(path="/param", key=key), 1)


@test
def a_form_that_is_too_long_is_no_way_around_its_key(rig):
    ref = fresh("ref")
    for body in (f"order={ref}&pad=" + "p" * 100, "pad=" + "p" * 100):
        refused(rig, "/param-small", "key-malformed", ref=ref, body=body.encode(), type=FORM)
    status(rig.post("/param-small", ref=ref, body=f"order={ref}".encode(), type=FORM), 200)


@test
def an_encoded_parameter_is_no_way_around_its_key(rig):
    key = fresh("a")
    first = status(rig.post(f"/param?order={key}"), 200)
    again = rig.post(f"/param?order=%61{key[1:]}")
    check(again.status == 422 or again.replayed, repr(again))
    check(not first.replayed, "the first runs")
    eq(rig.backend.effects(path="/param", key=key), 1)


@test
def a_parameter_with_odd_bytes_reaches_the_backend_as_its_hash(rig):
    ref = fresh("ref")
    answer, line = rig.logged("/param?order=a%20b%0d%0aX:1" + ref, ref=ref)
    if answer.status == 400:
        eq(answer.type, "key-malformed")
        return
    seen, = rig.backend.requests(ref=ref)
    eq(seen.all("Idempotency-Key"), [line["idem_key_hash"]])
    eq(seen.h("X"), None)


@test
def an_optional_parameter_may_be_missing(rig):
    ref = fresh("ref")
    for _ in range(2):
        status(rig.post("/maybe", ref=ref), 200)
    eq(rig.backend.effects(ref=ref), 2)
    key = fresh()
    first = status(rig.post(f"/maybe?order={key}"), 200)
    replay_of(first, rig.post(f"/maybe?order={key}"))


@test
def a_client_key_does_not_double_a_computed_one(rig):
    key = fresh()
    status(rig.post(f"/param?order={key}", key="mine"), 200)
    seen, = rig.backend.requests(path="/param", key=key)
    eq(seen.all("Idempotency-Key"), [key])


@test
def parameters_are_the_key_of_who_has_none(rig):
    ref, user = fresh("ref"), fresh("u")

    def ask(path="/params", user=user, body=b'{"to":"bob","amount":10}', **options):
        return status(rig.post(path, user=user, ref=ref, body=body, **options), 200)
    first = ask()
    replay_of(first, ask())
    replay_of(first, ask(body=b'{ "amount": 1e1, "to": "b\\u006fb" }'))
    runs = 1
    for other in (dict(user=fresh("u")), dict(path="/params/x"), dict(path="/params?x=1"),
                  dict(body=b'{"to":"bob","amount":11}'), dict(body=b""), dict(method="PATCH"),
                  dict(method="DELETE"), dict(method="DELETE", body=b"")):
        check(not ask(**other).replayed, f"{other} is another request")
        runs += 1
        eq(rig.backend.effects(ref=ref), runs, f"effects after {other}")
    refused(rig, "/params", "key-missing")


@test
def a_serial_number_and_a_credential_are_both_needed(rig):
    ref = fresh("ref")

    def pair(serial, client):
        return [(n, v) for n, v in (("X-Serial-No", serial), ("X-Client-Id", client)) if v is not None]
    serial = fresh()
    first = status(rig.post("/serial", ref=ref, headers=pair(serial, "c1")), 200)
    replay_of(first, rig.post("/serial", ref=ref, headers=pair(serial, "c1")))
    check(not status(rig.post("/serial", ref=ref, headers=pair(serial, "c2")), 200).replayed, "another client")
    check(not status(rig.post("/serial", ref=ref, headers=pair(serial + "c", "2")), 200).replayed,
          "adjacent pairs are kept apart")
    eq(rig.backend.effects(ref=ref), 3)
    for headers in (pair(None, "c"), pair("1", None), pair(None, None), pair("", "c"), pair("1", "")):
        refused(rig, "/serial", "key-missing", headers=headers)
    refused(rig, "/serial", "key-malformed", headers=pair("1", "c") + pair("1", None))
    refused(rig, "/serial", "key-malformed", headers=pair("1", "c") + pair(None, "d"))


@test
def nginx_variables_can_be_the_key(rig):
    ref, order = fresh("ref"), fresh()
    first = status(rig.post("/value", ref=ref, headers=[("X-Order", order)]), 200)
    replay_of(first, rig.post("/value", ref=ref, headers=[("X-Order", order)]))
    status(rig.post("/value", ref=ref, headers=[("X-Order", order)], body=b"{}"), 422, "mismatch")
    eq(rig.backend.effects(ref=ref), 1)
    seen, = rig.backend.requests(ref=ref)
    eq(seen.all("Idempotency-Key"), [order])
    refused(rig, "/value", "key-missing")
    first = status(rig.post("/joined", headers=[("X-A", order), ("X-B", "1")]), 200)
    replay_of(first, rig.post("/joined", headers=[("X-A", order), ("X-B", "1")]))
    check(not rig.post("/joined", headers=[("X-A", order), ("X-B", "2")]).replayed, "another key")


@test
def a_key_of_variables_has_at_most_4096_bytes(rig):
    status(rig.post("/value", headers=[("X-Order", fresh() + "x" * 4000)]), 200)
    refused(rig, "/value", "key-malformed", headers=[("X-Order", "x" * 4097)])


@test
def an_expression_over_the_body_can_be_the_key(rig):
    order = fresh()

    def ask(path="/set", **members):
        return rig.post(path, body=json.dumps(members).encode())
    first = status(ask(orderId=order, note="a"), 200)
    replay_of(first, ask(orderId=order, note="another note"))  # a computed key has no fingerprint
    eq(rig.backend.effects(path="/set", key=order), 1)
    for members in ({}, {"orderId": None}, {"orderId": {}}, {"orderId": ""}, {"orderId": []}):
        ref = fresh("ref")
        answer = status(rig.post("/set", body=json.dumps(members).encode(), ref=ref), 400)
        check(answer.type in ("key-missing", "key-malformed"), repr(answer))
        eq(rig.backend.requests(ref=ref), [])
    for body in (b"", b"{", b"orderId=1", b"\xff\xfe"):
        ref = fresh("ref")
        status(rig.post("/set", body=body, ref=ref), 400)
        eq(rig.backend.requests(ref=ref), [])


@test
def integers_keep_their_digits_in_a_key(rig):
    for number in (b"1810966706881941507", b"1810966706881941508", b"123456789012345678901234567890"):
        status(rig.post("/set", body=b'{"orderId": %s}' % number), 200)
        eq(rig.backend.effects(path="/set", key=number.decode()), 1)


@test
def an_expression_is_usable_in_a_log(rig):
    order = fresh()
    status(rig.post("/set", body=json.dumps({"orderId": order}).encode()), 200)

    def logged():
        with open(rig.folder + "/set.log", encoding="utf-8") as file:
            return order in file.read().split()
    until("the expression in the log", logged)


@test
def an_expression_that_only_a_log_reads_is_read_and_given_back(rig):
    def grown():
        return sum(int(re.search(r"^RssAnon:\s+(\d+)", open(f"/proc/{pid}/status", encoding="ascii").read(),
                                 re.M)[1]) for pid in rig.worker_pids())

    def ask(count):
        for _ in range(count):
            body = json.dumps({"id": fresh(), "orderId": "o", "pad": ["x"] * 400}).encode()
            status(rig.post("/logged", fresh(), body=body), 200)
            status(rig.post("/setlog", body=body), 200)
    ask(300)
    before = grown()
    ask(600)
    limit = 64 << 10 if sanitizers() else 4096
    check(grown() - before < limit, f"memory grew by {grown() - before} KiB")


@test
def an_expression_in_a_log_reads_a_body_in_a_file(rig):
    tag = fresh("tag")
    # With the second path, the body was not read before the guard, and is in a temporary file.
    for path in ("/logged", "/unread"):
        body = json.dumps({"orderId": tag + path, "pad": "x" * 5000}).encode()
        status(rig.post(path, fresh(), body=body), 200)
        until("it is logged", lambda: tag + path in open(rig.folder + "/set.log", encoding="utf-8").read())


@test
def an_expression_sees_the_whole_request(rig):
    ref = fresh("ref")

    def ask(path="/setall/p", query="q=1", tenant="t", sid="s", ident=ref, user="u", method="POST"):
        return status(rig.post(f"{path}?{query}", method=method, user=user, ref=ref,
                               body=json.dumps({"id": ident}).encode(),
                               headers=[("X-Tenant", tenant), ("Cookie", f"a=b; sid={sid}")]), 200)
    first = ask()
    replay_of(first, ask())
    replay_of(first, ask(query="q=1&z=2"))
    for i, other in enumerate((dict(path="/setall/q"), dict(query="q=2"), dict(tenant="T"), dict(sid="S"),
                               dict(ident=ref + "x"), dict(user="v"), dict(method="PATCH"))):
        check(not ask(**other).replayed, f"{other} is another key")
        eq(rig.backend.effects(ref=ref), i + 2)


@test
def a_scope_of_an_expression_is_known_to_that_of_the_key(rig):
    ref, number = fresh("ref"), fresh()

    def ask(tenant):
        return status(rig.post("/whose", ref=ref, headers=[("X-Tenant", tenant)],
                               body=json.dumps({"id": number}).encode()), 200)
    first = ask("t1")
    replay_of(first, ask("t1"))
    check(not ask("t2").replayed, "another tenant")
    eq([s.key for s in rig.backend.requests(ref=ref)], [f"t1-{number}", f"t2-{number}"])


@test
def an_expression_can_say_what_stands_for_nothing(rig):
    body = b'{"coupon":null}'
    first = status(rig.post("/elvis", body=body), 200)
    replay_of(first, rig.post("/elvis", body=b"{\"coupon\":\"none\"}"))
    eq(rig.backend.effects(path="/elvis"), 1)


@test
def method_path_query_and_body_must_be_equal(rig):
    key = fresh()
    first = status(rig.post("/replay/a?x=1", key), 200)
    for other in (dict(path="/replay/b?x=1"), dict(path="/replay/a?x=2"), dict(path="/replay/a"),
                  dict(path="/replay/a?x=1", method="PATCH"), dict(path="/replay/a?x=1", body=b'{"a":2}'),
                  dict(path="/replay/a?x=1", body=b"")):
        answer = status(rig.post(key=key, **other), 422, "mismatch")
        check(b"serial" not in answer.body, "nothing of the result is revealed")
    replay_of(first, rig.post("/replay/a?x=1", key))
    eq(rig.backend.effects(key=key), 1)


@test
def members_of_json_have_no_order_and_text_has(rig):
    for kind in ("application/json", "application/json; charset=utf-8", "application/vnd.api+json", "Application/JSON"):
        key = fresh()
        first = status(rig.post("/replay", key, body=b'{"a":1,"b":[1.0,"x"]}', type=kind), 200)
        replay_of(first, rig.post("/replay", key, body=b'{ "b" : [1, "\\u0078"],\n "a" : 1e0 }', type=kind))
        status(rig.post("/replay", key, body=b'{"a":1,"b":["x",1]}', type=kind), 422, "mismatch")
        eq(rig.backend.effects(key=key), 1)
    key = fresh()
    status(rig.post("/replay", key, body=b'{"a":1,"b":2}', type="text/plain"), 200)
    status(rig.post("/replay", key, body=b'{"b":2,"a":1}', type="text/plain"), 422, "mismatch")


@test
def big_integers_keep_their_digits_in_a_fingerprint(rig):
    key = fresh()
    status(rig.post("/replay", key, body=b'{"id":1810966706881941507}'), 200)
    status(rig.post("/replay", key, body=b'{"id":1810966706881941508}'), 422, "mismatch")


@test
def what_only_claims_to_be_json_is_compared_by_its_bytes(rig):
    for body in (b"{", b'{"a":1,"a":2}', b'"\xff"', b"[1,]"):
        key = fresh()
        first = status(rig.post("/replay", key, body=body), 200)
        replay_of(first, rig.post("/replay", key, body=body))
        status(rig.post("/replay", key, body=body + b" "), 422, "mismatch")


@test
def json_beyond_its_limit_is_compared_by_its_bytes(rig):
    key, long = fresh(), b'{"a":1,"b":"%s"}' % (b"x" * 64)
    first = status(rig.post("/json-small", key, body=long), 200)
    replay_of(first, rig.post("/json-small", key, body=long))
    status(rig.post("/json-small", key, body=long.replace(b",", b", ")), 422, "mismatch")
    key = fresh()
    first = status(rig.post("/json-small", key, body=b'{"a":1,"b":2}'), 200)
    replay_of(first, rig.post("/json-small", key, body=b'{"b":2,"a":1}'))


@test
def no_fingerprint_compares_nothing(rig):
    key = fresh()
    first = status(rig.post("/fp-none", key), 200)
    replay_of(first, rig.post("/fp-none/x?y=1", key, body=b"other", method="PATCH"))
    eq(rig.backend.effects(key=key), 1)


@test
def parts_of_a_request_can_be_compared(rig):
    key = fresh()
    first = status(rig.post("/fp-path/a?x=1", key), 200)
    replay_of(first, rig.post("/fp-path/a?x=2", key, body=b"other"))
    status(rig.post("/fp-path/b?x=1", key), 422, "mismatch")
    status(rig.post("/fp-path/a?x=1", key, method="PATCH"), 422, "mismatch")


@test
def an_expression_can_be_compared(rig):
    key = fresh()
    first = status(rig.post("/fp-amount", key, body=b'{"amount":10,"note":"a"}'), 200)
    replay_of(first, rig.post("/fp-amount", key, body=b'{"note":"b","amount":10}'))
    status(rig.post("/fp-amount", key, body=b'{"amount":11,"note":"a"}'), 422, "mismatch")
    eq(rig.backend.effects(key=key), 1)


@test
def scopes_never_meet(rig):
    key, answers = fresh(), {}
    for user in ("u1", "u2", "u1u2"):
        answers[user] = status(rig.post("/scoped", key, user=user), 200)
        check(not answers[user].replayed, f"{user} runs")
    for user, first in answers.items():
        replay_of(first, rig.post("/scoped", key, user=user))
    eq(rig.backend.effects(key=key), 3)
    refused(rig, "/scoped", "key-missing", key=key)
    refused(rig, "/scoped", "key-missing", key=key, user="")
    refused(rig, "/scoped", "key-malformed", key=key, user="u" * 4097)


@test
def a_scope_and_a_key_are_told_apart_where_they_meet(rig):
    a, b = fresh("s"), fresh()
    check(not status(rig.post("/scoped", b, user=a), 200).replayed, "one")
    check(not status(rig.post("/scoped", a + b, user="x"), 200).replayed, "two")
    check(not status(rig.post("/scoped", b[1:], user=a + b[0]), 200).replayed, "three")


@test
def locations_of_one_prefix_share_keys_and_others_do_not(rig):
    key = fresh()
    first = status(rig.post("/one", key), 200)
    replay_of(first, rig.post("/two", key))
    check(not status(rig.post("/three", key), 200).replayed, "another prefix")
    eq(rig.backend.effects(key=key), 2)


@test
def a_label_is_taken_and_told_to_nobody(rig):
    key = fresh()
    first = status(rig.post("/label", key, headers=[("X-Label", "order 7 \xe9")]), 200)
    replay_of(first, rig.post("/label", key))
    status(rig.post("/label", fresh()), 200)
    status(rig.post("/label", fresh(), headers=[("X-Label", "x" * 3000)]), 200)


@test
def a_label_that_is_not_there_refuses_nobody(rig):
    key = fresh()
    first = status(rig.post("/note", key), 200)
    replay_of(first, rig.post("/note", key))
    status(rig.post("/note", fresh(), body=b'{"note": "x"}'), 200)


@test
def a_key_never_shows_in_the_log(rig):
    key, scope = fresh("sekret"), fresh("whom")
    rig.post("/scoped", key, user=scope)
    rig.post("/scoped", key, user=scope, body=b"other")
    rig.post("/scoped", key + "2", user=scope, do={"fault": "close"})
    rig.post("/scoped", key + "2", user=scope)
    rig.post("/scoped", key + "3", user=scope, do={"status": 500})
    said = rig.said()
    check(key not in said and scope not in said, "keys and scopes stay out of the error log")


if __name__ == "__main__":
    main(CONF, http=HTTP)
