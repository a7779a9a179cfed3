#!/usr/bin/env python3
"""Signed requests: a proven request passes once; one that is changed, old or repeated does not."""
import json
import os
import signal
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True

import signing
from rig import *
from signing import FORMS, classic, message, nonce
from tap import *

SECRETS = {"secrets": signing.FILE}
SIGN = "idem_sign secret_file=@TEMP@/secrets"
PASS = "proxy_set_header X-Signer $idem_sign_key_id; proxy_pass http://@BACKEND@;"
CONF = "".join((
    f"location /classic {{ {SIGN} form=classic; {PASS} }}",
    f"location /rfc9421 {{ {SIGN}; {PASS} }}",
    f"location /both/classic {{ {SIGN} form=classic headers=Idempotency-Key; idem_prefix both:; idem replay; idem_scope $idem_sign_key_id; {PASS} }}",
    f"location /both/rfc9421 {{ {SIGN} form=rfc9421 headers=Idempotency-Key,@authority; idem_prefix both:; idem replay; idem_scope $idem_sign_key_id; {PASS}"
    f" location /both/rfc9421/free {{ idem_sign off; idem off; {PASS} }} }}",
    f"location /brief/classic {{ {SIGN} form=classic window=1s; {PASS} }}",
    f"location /brief/rfc9421 {{ {SIGN} window=1s; {PASS} }}",
    f"location /wide/classic {{ {SIGN} form=classic window=1d; {PASS} }}",
    f"location /wide/rfc9421 {{ {SIGN} window=1d; {PASS} }}",
    f"location /grows {{ {SIGN} form=classic sequence=increasing; {PASS} }}",
    f"location /steps {{ {SIGN} form=classic sequence=consecutive; {PASS} }}",
    f"location /shadow {{ {SIGN} form=classic; idem_prefix shadow:; idem replay; idem_enforce off; {PASS} }}",
    f"location /open {{ {SIGN} form=classic; idem_prefix open:; idem replay; idem_on_store_error open; {PASS} }}",
    f"location = /token {{ {SIGN} form=classic; idem_prefix token:; idem_scope $idem_sign_key_id; idem_token; }}",
    f"location /spooled {{ {SIGN}; client_body_buffer_size 1k; {PASS} }}",
    f"location /json {{ {SIGN} form=classic; idem_prefix json:; idem replay; {PASS} }}",
    f"location /form {{ {SIGN} form=classic; idem_prefix form:; idem replay; {PASS} }}",
    f"location /error {{ {SIGN} form=classic; error_page 401 = /classic/error; {PASS} }}",
    f"location /cors {{ {SIGN}; if ($request_method = OPTIONS) {{ return 204; }} {PASS} }}",
    f"location = /kept.html {{ {SIGN}; alias @TEMP@/secrets; }}",
    f"location /led/try {{ idem_prefix led:; idem replay; try_files /none /rfc9421/led; }}",
    f"location /led/shadow {{ idem_prefix led:; idem replay; idem_enforce off; try_files /none /rfc9421/led; }}",
    f"location /led/other {{ {SIGN} form=classic; try_files /none /rfc9421/led; }}",
    f"location /led/accel {{ idem_prefix led:; idem replay; {PASS} }}",
    f"location /led/page {{ idem_prefix led:; idem replay; proxy_intercept_errors on; error_page 404 = /kept.html; {PASS} }}",
    f"location /led/one {{ {SIGN}; try_files /none /led/one/more; location /led/one/more {{ {PASS} }} }}",
    f"location /leads {{ idem_prefix led:; idem replay; error_page 502 = @signed; proxy_pass http://127.0.0.1:1; }}",
    f"location /scoped {{ {SIGN} form=classic; idem_prefix scoped:; idem replay; idem_scope $http_x_user; {PASS} }}",
    f"location /named {{ {SIGN} form=classic; add_header X-Who $idem_sign_key_id always; {PASS} }}",
    f"location /host {{ {SIGN} form=classic headers=Host; {PASS} }}",
    f"location /other {{ {SIGN} form=classic headers=X-Other; error_page 502 = @signed; proxy_pass http://127.0.0.1:1; }}",
    f"location /bare {{ error_page 502 = @signed; proxy_pass http://127.0.0.1:1; }}",
    f"location @signed {{ {SIGN} form=classic; {PASS} }}",
    f"location /same {{ {SIGN} form=classic; {PASS} location /same/led {{ error_page 502 = @file; proxy_pass http://127.0.0.1:1; }} }}",
    f"location @file {{ {PASS} }}",
    f"location /big {{ {SIGN} form=classic; client_max_body_size 100; error_page 413 /big/page.html; try_files $uri @file; }}",
    f"location /acted {{ {SIGN} form=classic; post_action /classic/acted; {PASS} }}",
    f"location /after {{ {SIGN} form=classic; post_action /after/that; {PASS} location /after/that {{ post_action off; {PASS} }} }}",
))


def signed(rig, form, path, body=b'{"a":1}', method="POST", headers=(), key=None, of=None, by="shop-1", **how):
    """Sends a signed request; `of` are the parts to sign that differ from those sent."""
    of = {"method": method, "target": path, "body": body, **(of or {})}
    also = [("Idempotency-Key", key)] if path.startswith("/both") else []
    fields = FORMS[form](of["method"], of["target"], of["body"], signed=of.get("signed", also), key=by, **how)
    return rig.post(path, key=key, body=body, method=method, headers=[*fields, *headers])


def runs(rig, path):
    return len([r for r in rig.backend.requests() if r.path == path])


def place(rig, form, under=""):
    return f"{under}/{form}/{fresh('p')}"


@test
def what_is_signed_passes_and_names_its_signer(rig):
    for form in FORMS:
        path = place(rig, form)
        status(signed(rig, form, path + "?b=2&a=1"), 200)
        status(signed(rig, form, path + "?b=2&a=1"), 200)  # with a nonce of its own
        seen = rig.backend.requests(path=path)
        eq([r.h("X-Signer") for r in seen], ["shop-1", "shop-1"])
        eq(seen[0].body, b'{"a":1}')


@test
def a_request_sent_again_is_refused_whatever_its_method(rig):
    for form in FORMS:
        for method, body in (("POST", b"x"), ("GET", b""), ("PUT", b"x"), ("DELETE", b""), ("HEAD", b""), ("OPTIONS", b"")):
            path = place(rig, form)
            fields = FORMS[form](method, path, body)
            status(rig.post(path, body=body, method=method, headers=fields), 200)
            again = rig.post(path, body=body, method=method, headers=fields)
            eq(again.status, 401)
            if method != "HEAD":
                eq(again.type, "nonce-reused")
            eq(runs(rig, path), 1)


@test
def what_is_signed_reaches_the_program_in_one_spelling(rig):
    """Otherwise an attacker on the way could add X_Amount to a signed X-Amount: CGI programs have one variable for
    both."""
    to = "fastcgi_pass @FASTCGI@; @CGI_FASTCGI@"
    with Rig("".join(f"location /{form} {{ {SIGN} form={form} headers=X-Amount; {to} }}" for form in FORMS), files=SECRETS,
             http="underscores_in_headers on;", workers=1) as own:
        for form in FORMS:
            ref, amount = fresh("ref"), [("X-Amount", "10")]
            fields = FORMS[form]("POST", "/" + form, b"x", signed=amount) + amount
            added = [(name.replace("-", "_"), "forged") for name, _ in fields if "-" in name]
            status(own.post("/" + form, body=b"x", headers=added[:1] + fields + added, ref=ref), 200)
            seen, = own.fastcgi.requests(ref=ref)
            eq([n for n, v in seen.headers if v == "forged"], [], form)
            eq(seen.all("X-Amount"), ["10"])


@test
def a_request_without_a_signature_is_refused_and_told_what_is_missing(rig):
    for form in FORMS:
        path = place(rig, form)
        answer = status(rig.post(path), 401, "signature-incomplete")
        eq(answer.h("WWW-Authenticate"), "Signature")
        eq(answer.h("Cache-Control"), "no-store")
        check("missing" in json.dumps(answer.problem), answer.body)
        for gone in [n for n, _ in FORMS[form]("POST", path, b'{"a":1}')]:
            fields = FORMS[form]("POST", path, b'{"a":1}')
            status(rig.post(path, headers=[(n, v) for n, v in fields if n != gone]), 401, "signature-incomplete")
        page = rig.post(path, headers=[("Accept", "text/html")])
        eq(page.status, 401)
        check(b"<html" in page.body.lower(), page.body)
        eq(runs(rig, path), 0)


@test
def each_part_that_is_changed_is_refused(rig):
    for form in FORMS:
        path = place(rig, form, "/both")
        query, k = path + "?x=1&y=2", fresh()
        right = dict(method="POST", target=query, body=b'{"a":1}', signed=[("Idempotency-Key", k)])
        changes = ({"method": "PUT"}, {"target": path + "z?x=1&y=2"}, {"target": path + "?x=1&y=3"}, {"target": path + "?x=1"},
                   {"target": path}, {"body": b'{"a":2}'}, {"body": b'{"a": 1}'}, {"signed": [("Idempotency-Key", "other")]})
        for change in changes:
            answer = signed(rig, form, query, key=k, of={**right, **change})
            check(answer.status == 401 and answer.type in ("signature-wrong", "signature-incomplete"), (change, answer))
        for how in ({"secret": b"a wrong secret, of some length"}, {"key": "shop-2", "secret": signing.KEYS["shop-1"]}, {"key": "nobody", "secret": b"x"}):
            status(rig.post(query, key=k, headers=FORMS[form](**right, **how)), 401, "signature-wrong")
        for name in ("X-Timestamp", "X-Nonce", "X-Key-Id", "X-Sign", "Signature-Input", "Signature"):
            fields = FORMS[form](**right)
            if name not in dict(fields):
                continue
            old = dict(fields)[name]
            new = {"X-Timestamp": str(int(time.time()) - 1), "X-Key-Id": "shop-2"}.get(name) or old.replace("n-", "m-", 1)
            if new == old:  # not the last digit of base64, of which two bits are padding
                new = old[:-4] + ("0" if old[-4] != "0" else "1") + old[-3:]
            answer = rig.post(query, key=k, headers=[(n, new if n == name else v) for n, v in fields])
            eq(answer.status, 401, f"{name}: {new}")
        eq(runs(rig, path), 0)
        status(rig.post(query, key=k, headers=FORMS[form](**right)), 200)
        eq(runs(rig, path), 1)


@test
def what_was_not_there_cannot_be_added(rig):
    for form in FORMS:
        path = place(rig, form)
        wrong = "signature-incomplete" if form == "rfc9421" else "signature-wrong"
        for method in ("GET", "POST"):
            for to, options in ((path, {"body": b"x"}), (path, {"body": b"x" * 20000, "chunked": 7000}), (path + "?x=1", {"body": b""}),
                                (path + "?", {"body": b""})):
                status(rig.post(to, method=method, headers=FORMS[form](method, path), **options), 401, wrong)
        fields = [*FORMS[form]("POST", path), ("Content-Digest", signing.digest(b"x"))]
        status(rig.post(path, body=b"x", headers=fields), 401, wrong)  # a digest that is right, but not signed
        eq(runs(rig, path), 0)


@test
def a_target_is_signed_as_it_is_sent(rig):
    for form in FORMS:
        for sent, meant in (("/a%2Fb", "/a/b"), ("/%61", "/a"), ("/a/./b", "/a/b"), ("/a/x/../b", "/a/b"), ("/a//b", "/a/b"),
                            ("/a?q=%41", "/a?q=A"), ("/a?q=a+b", "/a?q=a%20b"), ("/a?", "/a")):
            status(signed(rig, form, f"/{form}{sent}"), 200)
            answer = signed(rig, form, f"/{form}{sent}", of={"target": f"/{form}{meant}"})
            check(answer.status == 401 and answer.type in ("signature-wrong", "signature-incomplete"), (sent, answer))


@test
def the_timestamp_may_be_a_window_away_and_no_more(rig):
    """The window is a minute. nginx's time stands still, so that the edge of the window is exact."""
    now = int(time.time())
    conf = f"location /classic {{ {SIGN} form=classic; {PASS} }} location /rfc9421 {{ {SIGN}; {PASS} }}"
    with Rig(conf, files=SECRETS, clock=True) as own:
        own.clock.set(wall_ms=now * 1000)
        own.turn()
        for form in FORMS:
            path = place(own, form)
            for off in (-60, 0, 60):
                status(signed(own, form, path, at=now + off), 200)
            for off in (-61, 61, -86400, 86400 * 365):
                status(signed(own, form, path, at=now + off), 401, "signature-stale")
    status(signed(rig, "classic", place(rig, "classic"), at=int(time.time() * 1000)), 200)  # milliseconds
    for bad in ("", "x", "-1", "1.5", "0", "0x10", "1e9"):
        status(signed(rig, "classic", place(rig, "classic"), at=bad), 401, "signature-incomplete")


@test
def what_is_refused_leaves_no_nonce_behind(rig):
    for form in FORMS:
        path, number = place(rig, form), nonce()
        status(signed(rig, form, path, number=number, at=int(time.time()) - 600), 401, "signature-stale")
        status(signed(rig, form, path, number=number, secret=b"a wrong secret, of some length"), 401, "signature-wrong")
        fields = FORMS[form]("POST", path, b'{"a":1}', number=number)
        status(rig.post(path, headers=[f for f in fields if f[0] not in ("X-Sign", "Signature")]), 401, "signature-incomplete")
        status(signed(rig, form, path, number=number), 200)
        status(signed(rig, form, path, number=number), 401, "nonce-reused")


@test
def nobody_is_named_before_it_is_proven(rig):
    fields = classic("POST", "/named", b'{"a":1}')
    eq(status(rig.post("/named", headers=fields), 200).h("X-Who"), "shop-1")
    for headers in (fields, fields[:-1], classic("POST", "/named", b"x"), classic("POST", "/named", b'{"a":1}', at=1)):
        eq(status(rig.post("/named", headers=headers), 401).h("X-Who"), None)


@test
def nonces_are_each_keys_own(rig):
    for form in FORMS:
        path, number = place(rig, form), nonce()
        for name in signing.KEYS:
            fields = FORMS[form]("POST", path, b'{"a":1}', key=name, number=number)
            status(rig.post(path, headers=fields), 200)
            status(rig.post(path, headers=fields), 401, "nonce-reused")


@test
def no_answer_tells_which_key_ids_are_known(rig):
    """Also with two signatures, of which the one with a known key is verified."""
    path = place(rig, "rfc9421")
    now = int(time.time())
    whole, half = f';created={now};nonce="n"', ""
    def ask(*members):
        inputs = ", ".join(f'{label}=("@method" "@path");keyid="{key}"{more}' for label, key, more in members)
        values = ", ".join(f"{label}=:AAAA:" for label, _, _ in members)
        answer = rig.post(path, method="GET", body=b"", headers=[("Signature-Input", inputs), ("Signature", values)])
        return answer.status, answer.type, answer.body
    for more in (whole, half, ';created=1;nonce="n"'):
        eq(ask(("a", "shop-1", more)), ask(("a", "nobody", more)))
        for first in (whole, half):
            eq(ask(("a", "who", first), ("b", "shop-1", more)), ask(("a", "who", first), ("b", "nobody", more)))
            eq(ask(("a", "shop-1", first), ("b", "shop-2", more)), ask(("a", "shop-1", first), ("b", "nobody", more)))
    fields = message("GET", path)
    beside = [(n, v + (f', b=("@method");keyid="nobody"{whole}' if n == "Signature-Input" else ", b=:AAAA:")) for n, v in fields]
    status(rig.post(path, method="GET", body=b"", headers=beside), 200)


@test
def a_retry_is_signed_anew_and_gets_the_first_answer(rig):
    for form in FORMS:
        path, key = place(rig, form, "/both"), fresh()
        fields = FORMS[form]("POST", path, b'{"a":1}', signed=[("Idempotency-Key", key)])
        first = status(rig.post(path, key=key, headers=fields), 200)
        replay_of(first, signed(rig, form, path, key=key))
        status(rig.post(path, key=key, headers=fields), 401, "nonce-reused")  # not even a replay
        status(signed(rig, form, path, key=key, body=b'{"a":2}'), 422, "mismatch")
        eq(runs(rig, path), 1)


@test
def the_signer_is_the_scope(rig):
    for form in FORMS:
        path, key = place(rig, form, "/both"), fresh()
        for name in signing.KEYS:
            fields = FORMS[form]("POST", path, b'{"a":1}', key=name, signed=[("Idempotency-Key", key)])
            answer = status(rig.post(path, key=key, headers=fields), 200)
            check(not answer.replayed, "another's answer")
        eq([r.h("X-Signer") for r in rig.backend.requests(path=path)], ["shop-1", "shop-2"])


@test
def a_nonce_is_spent_although_the_key_is_refused(rig):
    path = place(rig, "classic", "/both")
    fields = classic("POST", path, b'{"a":1}', signed=[("Idempotency-Key", '"half')])
    status(rig.post(path, key='"half', headers=fields), 400, "key-malformed")
    status(rig.post(path, key='"half', headers=fields), 401, "nonce-reused")


@test
def the_signature_is_asked_for_before_scope_and_key(rig):
    def order(fields, user, key):
        return rig.post("/scoped", headers=[*fields, *([("X-User", user)] if user else [])], key=key)
    fields = [classic("POST", "/scoped", b'{"a":1}') for _ in range(3)]
    for user, key in ((None, fresh()), ("me", None), ("me", "")):
        status(order([], user, key), 401, "signature-incomplete")
        eq(order(fields[0], user, key).status // 100, 4)
        status(order(fields.pop(0), user, key), 401, "nonce-reused")  # spent, although refused later
    eq(runs(rig, "/scoped"), 0)


@test
def a_nonce_is_used_for_every_location_and_form(rig):
    number = nonce()
    status(signed(rig, "classic", "/classic/one", number=number), 200)
    status(signed(rig, "classic", "/wide/classic", number=number), 401, "nonce-reused")
    status(signed(rig, "rfc9421", "/rfc9421/one", number=number), 401, "nonce-reused")


@test
def a_nonce_is_remembered_until_its_timestamp_is_old(_rig):
    """A request from a minute ahead is valid for twice the window, and refused for its nonce up to the last
    millisecond. The embedded store expires nonces by nginx's clock; a server by its own, which does not move here."""
    now = int(time.time()) * 1000
    with Rig(f"location / {{ {SIGN} form=classic window=1m; {PASS} }}", files=SECRETS, clock=True) as own:
        def answer(after_ms):
            own.clock.set(wall_ms=now + after_ms)
            own.turn()
            return own.post("/x", body=b"x", headers=fields)
        fields = classic("POST", "/x", b"x", at=now + 60000)
        status(answer(0), 200)
        for after_ms in (0, 60000, 119999, 120000):
            status(answer(after_ms), 401, "nonce-reused")
        status(answer(120001), 401, "signature-stale")


def later(own, ms):
    """Moves all of nginx's clocks, so that nonces expire in the embedded store; a server uses its own clock, which
    does not move."""
    own.clock.set(ahead_ms=ms)
    own.turn()


@test
def what_was_captured_is_refused_after_the_window_is_widened(_rig):
    """After 66 s, when a nonce of a window of 1 s has expired; and for as long as the new window accepts the request."""
    def conf(window):
        return f"location / {{ {SIGN} form=classic window={window}; {PASS} }}"
    for window, ages in (("10m", (66, 300)), ("12h", (66, 11 * 3600))):
        with Rig(conf("1s"), files=SECRETS, clock=True) as own:
            fields = passes_in_time(own, "classic", "/x")
            own.write(conf(window), "", "", "", "idem_store @STORE@; idem_scope none;")
            own.are_gone(own.reload())
            for age in ages:
                later(own, age * 1000)
                status(own.post("/x", headers=fields), 401, "nonce-reused")
            eq(runs(own, "/x"), 1)


@test
def what_one_location_took_is_refused_by_one_with_a_longer_window(_rig):
    """Two hosts, one store and one path: the classic form does not sign the host. With the longest window a nonce is
    kept for longer than a day."""
    for ahead, wide, ages in ((0, "10m", (66, 300)), (11 * 3600, "1d", (66, 25 * 3600, 34 * 3600))):
        narrow = "12h" if ahead else "1s"
        http = f"server {{ listen @SELF@; server_name wide.test; location / {{ {SIGN} form=classic window={wide}; {PASS} }} }}"
        with Rig(f"location / {{ {SIGN} form=classic window={narrow}; {PASS} }}", http=http, files=SECRETS, clock=True) as own:
            if ahead:
                fields = classic("POST", "/x", b'{"a":1}', at=int(time.time()) + ahead)
                status(own.post("/x", headers=fields), 200)
            else:
                fields = passes_in_time(own, "classic", "/x")
            for age in ages:
                later(own, age * 1000)
                status(own.post("/x", host="wide.test", headers=fields), 401, "nonce-reused")
            eq(runs(own, "/x"), 1)
            old = classic("POST", "/x", b'{"a":1}', at=int(time.time()) + ages[-1] - 300)
            status(own.post("/x", host="wide.test", headers=old), 200)  # accepted by that window


@test
def a_window_that_makes_old_nonces_reusable_is_warned_of(_rig):
    says = "can make nonces reusable"
    def warned(*rules):
        conf = "\n".join(f"location /{i} {{ {SIGN} {rule}; {PASS} }}" for i, rule in enumerate(rules))
        with Rig(conf, start=False, files=SECRETS, **({"store": STORE + "://u@localhost/d"} if STORE in ("postgres", "mysql") else {})) as own:
            code, said = own.check()
            eq(code, 0, said)
            check(said.count(says) <= 1, said)
            return [line for line in said.splitlines() if says in line]
    eq(warned("window=1s", "window=12h", "form=classic window=1d sequence=increasing"), [])
    line, = warned("window=1s", "window=13h", "window=12h30m")
    for word in ("[warn]", "window=13h ", "at most 12h", "new key ids", "nginx.conf:"):
        check(word in line, f"{word!r} is not in {line}")


@test
def two_servers_of_which_one_has_a_sequence_are_warned_of(_rig):
    """One path and one key, and the host is not signed: one server does not know the nonces that the other has
    accepted."""
    def warned(first, second, form="classic", secrets="secrets", server=True):
        rules = "idem_sign secret_file=@TEMP@/%s form=%s %s;"
        one, two = (rules % ("secrets", form, first), rules % (secrets, "classic", second))
        http = f"server {{ listen @SELF@; server_name other.test; location / {{ {two} {PASS} }} }}" if server else ""
        conf = f"location / {{ {one} {PASS} }}" + ("" if server else f"location /two {{ {two} {PASS} }}")
        files = {**SECRETS, "others": SECRETS["secrets"].replace("base64:", "text:")}
        with Rig(conf, http=http, start=False, files=files) as own:
            code, said = own.check()
            eq(code, 0, said)
            return [line for line in said.splitlines() if "only one has sequence=" in line]
    line, = warned("", "sequence=increasing")
    check("[warn]" in line and line.count("nginx.conf:") >= 2, line)
    eq(len(warned("sequence=consecutive", "")), 1)
    for same in (("", ""), ("sequence=increasing", "sequence=consecutive")):
        eq(warned(*same), [])
    eq(warned("", "sequence=increasing", secrets="others"), [], "another key")
    eq(warned("", "sequence=increasing", form="rfc9421"), [], "another form")
    eq(warned("", "sequence=increasing", server=False), [], "another path")


@test
def a_reload_warns_of_nonces_that_it_makes_reusable(_rig):
    """A reload knows the previous window, but not the one before that."""
    says = "can make nonces reusable"
    def conf(window):
        return f"location / {{ {SIGN} form=classic window={window}; {PASS} }}"
    with Rig(conf("1m"), files=SECRETS) as own:
        def warned(window):
            before = own.said().count(says)
            own.write(conf(window), "", "", "", "idem_store @STORE@; idem_scope none;")
            own.are_gone(own.reload())
            return own.said().count(says) - before
        eq([warned(window) for window in ("12h", "1d", "1d", "13h", "1d", "1m", "23h", "23h")], [0, 1, 0, 0, 1, 0, 1, 0])


@test
def of_machines_that_share_a_store_one_takes_it(rig):
    conf = "".join(f"location /{form} {{ {SIGN} form={form}; {PASS} }}" for form in FORMS)
    conf += f"location /grows {{ {SIGN} form=classic sequence=increasing; {PASS} }}"
    with Rig(conf, files=SECRETS, store=rig.url) as other:
        for form in FORMS:
            path = place(rig, form)
            fields = FORMS[form]("POST", path, b'{"a":1}')
            answers = together(40, lambda i: (rig, other)[i % 2].post(path, headers=fields))
            eq(sorted(a.status for a in answers), [200] + [401] * 39)
            for one in (rig, other):
                status(one.post(path, headers=fields), 401, "nonce-reused")
        number = str(int(time.time() * 1000))
        status(signed(other, "classic", "/grows", number=number, timed=False, by="shop-2"), 200)
        status(signed(rig, "classic", "/grows", number=number, timed=False, by="shop-2"), 401, "nonce-reused")


@test
def the_classic_form_can_sign_the_host(rig):
    for version, port in (("--http1.1", rig.port), ("--http2", rig.tlsport)):
        url = f"{'http' if port == rig.port else 'https'}://localhost:{port}/host"
        for host, want in ((f"localhost:{port}", 200), ("elsewhere", 401)):
            fields = classic("POST", "/host", b"x", signed=[("Host", host)])
            eq(curl(version, *(x for n, v in fields for x in ("-H", f"{n}: {v}")), url, data=b"x").status, want, f"{version} {host}")


@test
def the_request_line_and_host_name_one_server(rig):
    """The request line chooses the server; the Host header is signed."""
    for line, host, want in (("localhost", "localhost", 200), ("LOCALHOST:80", "localhost:80", 200), ("elsewhere", "localhost", 401),
                             ("local", "localhost", 401), ("localhost", "local", 401)):
        path = place(rig, "rfc9421")
        fields = message("POST", path, b"x", host=host.removesuffix(":80"))
        answer = rig.post(f"http://{line}{path}", body=b"x", host=host, headers=fields)
        eq(answer.status, want, f"{line} and {host}")
        if want == 401:
            eq(answer.type, "signature-wrong")
            status(rig.post(f"http://{host}{path}", body=b"x", host=host, headers=fields), 200)  # the nonce is unused


@test
def other_locations_need_none(rig):
    status(rig.post("/both/rfc9421/free"), 200)


@test
def an_increasing_sequence_only_grows_and_needs_no_clock(rig):
    path, base = "/grows", int(time.time() * 1000)
    def at(number, **how):
        return signed(rig, "classic", path, number=str(number), **{"timed": False, **how})
    status(at(base + 1), 200)
    status(at(base + 1), 401, "nonce-reused")
    status(at(base), 401, "nonce-reused")
    status(at(base + 10), 200)
    answer = status(at(base + 5), 401, "nonce-reused")
    check(str(base + 10) in json.dumps(answer.problem), answer.body)
    status(at("x"), 401, "signature-incomplete")
    status(at("007"), 401, "signature-incomplete")
    status(at(base + 20, timed=True, at=int(time.time()) - 3600), 401, "signature-stale")
    status(at(base + 20, timed=True), 200)
    status(at(base + 21, by="shop-2"), 200)  # each key has its own sequence
    status(at(base + 21), 200)


@test
def a_consecutive_sequence_has_no_gap(rig):
    def at(number):
        return signed(rig, "classic", "/steps", by="shop-2", number=str(number), timed=False)
    last = 0
    answer = at(1 << 40)
    eq(answer.status, 401)
    last = int("".join(c for c in json.dumps(answer.problem).split("taken, ")[1] if c.isdigit()) or 0)
    for number, want in ((last + 1, 200), (last + 1, 401), (last + 3, 401), (last + 2, 200)):
        eq(at(number).status, want, f"number {number}")


@test
def of_many_at_once_with_one_nonce_one_passes(rig):
    for form in FORMS:
        path = place(rig, form)
        fields = FORMS[form]("POST", path, b'{"a":1}')
        answers = together(100, lambda _: rig.post(path, headers=fields))
        eq(sorted(a.status for a in answers), [200] + [401] * 99)
        eq(runs(rig, path), 1)


def passes_in_time(rig, form, path):
    """Returns the headers of a request that passed: a window of a second ends soon on a busy machine."""
    def passed():
        fields = FORMS[form]("POST", path, b'{"a":1}')
        answer = rig.post(path, headers=fields)
        check(answer.status == 200 or answer.type == "signature-stale", repr(answer))
        return fields if answer.status == 200 else None
    return until("it passes", passed)


@test(expects=["exited on signal 9"])
def ten_thousand_captured_requests_are_all_refused(rig):
    """Eight connections send captured requests: within the window, over its edge, after a reload and after a worker's
    death."""
    captured = []
    for i in range(50):
        for form in FORMS:
            path = place(rig, form, "/brief" if i % 2 else "/wide")
            captured.append(rig.bytes(path, headers=passes_in_time(rig, form, path), close=False))
    before = len(rig.backend.requests())
    taken, count, lock = [], [0], threading.Lock()

    def replay(number):
        conn = Conn(rig.port)
        for i in range(1250):
            data = captured[(number * 1250 + i) % len(captured)]
            for _ in range(20):
                try:
                    answer = conn.send(data).answer()
                except OSError:
                    answer = None
                if answer is not None and answer.complete:
                    break
                conn = Conn(rig.port)      # the worker has died
            check(answer is not None and answer.complete, "no answer in twenty attempts")
            with lock:
                count[0] += 1
                if answer.status != 401 or answer.type not in ("nonce-reused", "signature-stale"):
                    taken.append(answer)
            if answer.h("Connection") == "close":
                conn = Conn(rig.port)

    def trouble():
        rig.reload()
        rig.kill_worker(rig.worker_pids()[0])

    other = Later(trouble)
    together(8, replay)
    other.get()
    eq(count[0], 10000)
    eq(taken[:3], [])
    eq(len(rig.backend.requests()), before)


@test
def bodies_of_every_kind_are_signed(rig):
    big = os.urandom(300000)
    for body in (b"", b"x", big):
        for path in ("/rfc9421/body", "/spooled/body"):
            for algorithm in ("sha-256", "sha-512"):
                fields = message("POST", path, body, algorithm=algorithm)
                status(rig.post(path, body=body, headers=fields), 200)
                if body:
                    fields = message("POST", path, body, algorithm=algorithm)
                    status(rig.post(path, body=body[:-1] + bytes([body[-1] ^ 1]), headers=fields), 401, "signature-wrong")
        status(rig.post("/spooled/chunks", body=body, headers=message("POST", "/spooled/chunks", body), chunked=7000), 200)
    two = message("POST", "/rfc9421/two", b"x")
    two[0] = ("Content-Digest", signing.digest(b"x") + ", " + signing.digest(b"y", "sha-512"))
    status(rig.post("/rfc9421/two", body=b"x", headers=two), 401)


@test
def over_http_2_and_tls_the_same_is_signed(rig):
    host = f"localhost:{rig.tlsport}"
    for components in (["@method", "@path", "@authority", "content-digest"], ["@method", "@target-uri", "content-digest"]):
        for version in ("--http2", "--http1.1"):
            path = place(rig, "rfc9421")
            fields = message("POST", path, b"x", scheme="https", host=host, components=components)
            args = ["-k", version, *(x for n, v in fields for x in ("-H", f"{n}: {v}")), f"https://{host}{path}"]
            status(curl(*args, data=b"x"), 200)
            status(curl(*args, data=b"x"), 401, "nonce-reused")
            eq(runs(rig, path), 1)


@test
def json_is_compared_by_its_meaning_and_a_form_by_its_bytes(rig):
    key = fresh()
    first = status(signed(rig, "classic", "/json", body=b'{"a":1,"b":2}', key=key), 200)
    replay_of(first, signed(rig, "classic", "/json", body=b'{"b":2, "a":1}', key=key))
    status(signed(rig, "classic", "/json", body=b'{"b":2, "a":2}', key=key), 422, "mismatch")
    key = fresh()
    def form(body):
        return rig.post("/form", key=key, body=body, type="application/x-www-form-urlencoded", headers=classic("POST", "/form", body))
    first = status(form(b"a=1&b=2"), 200)
    replay_of(first, form(b"a=1&b=2"))
    status(form(b"a=1&b=3"), 422, "mismatch")


@test
def neither_shadow_mode_nor_an_open_store_lets_the_unsigned_pass(rig):
    status(rig.post("/shadow", key=fresh()), 401, "signature-incomplete")
    status(signed(rig, "classic", "/shadow", key=fresh()), 200)
    status(rig.post("/open", key=fresh()), 401, "signature-incomplete")


@test
def a_token_is_issued_to_who_signs(rig):
    status(rig.post("/token", method="GET", body=b""), 401, "signature-incomplete")
    answer, line = rig.logged("/token", method="GET", body=b"", headers=classic("GET", "/token"))
    status(answer, 200)
    eq(len(json.loads(answer.body)["token"]), 32)
    eq(line["idem_verdict"], "issued")


@test
def an_error_page_leads_no_unsigned_request_to_a_backend(rig):
    status(rig.post("/error"), 401)
    eq([r.path for r in rig.backend.requests() if "error" in r.path], [])


@test(expects=["not led on to"])
def no_location_leads_an_unsigned_request_to_one_that_asks_for_a_signature(rig):
    for path, do in (("try", {}), ("shadow", {}), ("accel", {"headers": [["X-Accel-Redirect", "/rfc9421/led"]]}),
                     ("accel", {"headers": [["X-Accel-Redirect", "/kept.html"]]}), ("page", {"status": 404})):
        key, before = fresh(), len(rig.backend.requests(path="/led/" + path))
        for _ in range(2):
            answer = status(rig.post("/led/" + path, key=key, do=do), 403)
            check(b"hmac" not in answer.body, answer.body)
        eq(len(rig.backend.requests(path="/led/" + path)) - before, int(path in ("accel", "page")), "runs of its own")
    status(signed(rig, "classic", "/led/other"), 403)  # under other rules
    eq(runs(rig, "/rfc9421/led"), 0)
    status(signed(rig, "rfc9421", "/led/one"), 200)    # under the same rules
    status(rig.post("/led/one"), 401, "signature-incomplete")
    eq(runs(rig, "/led/one/more"), 1)


@test
def a_browsers_question_before_a_request_can_be_answered_unsigned(rig):
    status(rig.post("/cors", method="OPTIONS", body=b""), 204)
    status(rig.post("/cors"), 401, "signature-incomplete")
    status(signed(rig, "rfc9421", "/cors"), 200)


@test(expects=["Connection refused", "not led on to"])
def no_redirect_leads_past_a_signature(rig):
    """A signed location demands a signature also of a request that an internal redirect brings there from another
    guarded location."""
    status(rig.post("/bare/1"), 401, "signature-incomplete")
    eq(rig.post("/leads/1", key=fresh()).status, 403)
    fields = classic("POST", "/other/1", b'{"a":1}', signed=[("X-Other", "1")])
    eq(rig.post("/other/1", headers=[*fields, ("X-Other", "1")]).status, 403)
    eq([r.path for r in rig.backend.requests() if r.path in ("/bare/1", "/leads/1", "/other/1")], [])
    status(signed(rig, "classic", "/same/led/1"), 200)  # redirected once it is proven
    eq(runs(rig, "/same/led/1"), 1)


@test
def a_body_that_cannot_be_read_leads_no_unsigned_request_to_a_backend(rig):
    """Neither through the page of the refusal, nor through a path that try_files makes."""
    status(rig.post("/big/1", body=b"x" * 500, chunked=50), 413)
    eq([r.path for r in rig.backend.requests() if r.path.startswith("/big")], [])
    status(signed(rig, "classic", "/big/1"), 200)
    eq(runs(rig, "/big/1"), 1)


@test(expects=["not led on to"])
def what_is_done_behind_a_request_is_signed_where_it_has_to_be(rig):
    """post_action follows every response, even a refusal."""
    status(rig.post("/acted/1"), 401, "signature-incomplete")
    status(signed(rig, "classic", "/acted/2"), 200)   # under rules of its own
    status(rig.post("/after/1"), 401, "signature-incomplete")
    status(signed(rig, "classic", "/after/2"), 200)
    until("one post_action", lambda: runs(rig, "/after/that"))
    until("the refused ones", lambda: rig.said().count("not led on to \"/classic/acted\"") == 2)
    eq((runs(rig, "/classic/acted"), runs(rig, "/after/that")), (0, 1))


@test
def the_log_says_why_and_shows_neither_secret_nor_signature(rig):
    path = place(rig, "classic")
    fields = classic("POST", path, b"{}")
    answer, line = rig.logged(path, body=b"{}", headers=fields)
    eq((answer.status, line["idem_verdict"]), (200, "signed"))
    answer, line = rig.logged(path, body=b"{}", headers=fields)
    eq(line["idem_verdict"], "nonce_reused")
    wrong = classic("POST", path, b"{}", secret=b"a wrong secret, of some length")
    eq(rig.logged(path, body=b"{}", headers=wrong)[1]["idem_verdict"], "signature_wrong")
    eq(rig.logged(path)[1]["idem_verdict"], "signature_incomplete")
    eq(rig.logged(path, body=b"{}", headers=classic("POST", path, b"{}", at=1))[1]["idem_verdict"], "signature_stale")
    said = rig.said()
    check("its nonce was used before" in said and "its signature is wrong" in said, "the log")
    for secret in [s.decode() for s in signing.KEYS.values()] + [dict(fields)["X-Sign"], signing.FILE.split("base64:")[1].split()[0]]:
        check(secret not in said, "a secret in the log")
    titles = "".join(title(pid) for pid in [rig.process.pid, *rig.worker_pids()])
    check("horse" not in titles, titles)


@test
def not_even_what_nginx_logs_for_its_developers_has_a_secret(rig):
    log = "error_log @TEMP@/debug.log debug;"
    conf = "".join(f"location /{form} {{ {SIGN} form={form}; {PASS} }}" for form in FORMS)
    with Rig(conf, main=log, files=SECRETS) as own:
        for form in FORMS:
            path = place(own, form)
            for how in ({}, {"secret": b"a wrong secret, of some length"}, {"at": 1}):
                fields = FORMS[form]("POST", path, b'{"a":1}', **how)
                for headers in (fields, fields, [*fields, ("Accept", "text/html")]):
                    answer = own.post(path, headers=headers)
                    check(b"horse" not in answer.body, answer.body)
            status(own.post(path), 401, "signature-incomplete")
        own.are_gone(own.reload())
        with open(own.folder + "/debug.log", encoding="utf-8", errors="replace") as file:
            said = own.said() + file.read()
        check("[debug]" in said and "http header: " in said, "it is no log of that level")
        for line in signing.FILE.split("\n")[:2]:
            check(line.split("base64:")[1] not in said, "a secret in the log")
        for secret in signing.KEYS.values():
            for text in (secret.decode(), secret.hex()):
                check(text not in said, "a secret in the log")


EXE = os.environ.get("IDEM_EXE", "")
COUNTER = os.environ.get("IDEM_HASH_COUNTER", "")


@test
def refusals_are_counted(rig):
    if not EXE:
        raise Skip("IDEM_EXE is not set")
    with Rig(f"location / {{ {SIGN} form=classic; {PASS} }}", files=SECRETS) as own:
        def counts():
            run = subprocess.run([EXE, "stats", "--store", own.url], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                 timeout=LIMIT, check=True)
            words = [line.split() for line in run.stdout.decode().splitlines()]
            return [int(w[1]) for w in words if w[0].startswith("signature_") or w[0] == "nonce_reused"]
        fields = classic("POST", "/x", b'{"a":1}')
        for headers, want in ((fields, 200), (fields, 401), ([], 401), (classic("POST", "/x", b'{"a":1}', at=1), 401),
                              (classic("PUT", "/x", b'{"a":1}'), 401)):
            status(own.post("/x", headers=headers), want)
        until("each is counted once", lambda: counts() == [1, 1, 1, 1], step=0.2)


@test
def a_body_is_hashed_once(rig):
    if not COUNTER or sanitizers():
        raise Skip("IDEM_HASH_COUNTER names no library, or it cannot be loaded together with a sanitizer")
    conf = "".join(f"location /{form} {{ {SIGN} form={form}; idem_prefix once:; idem replay; {PASS} }}" for form in FORMS)
    with Rig(conf, files=SECRETS, start=False, http="client_body_buffer_size 16k;") as own:
        count = own.folder + "/count"
        own.environment = lambda: dict(os.environ, LD_PRELOAD=COUNTER, IDEM_HASH_COUNT=count)
        own.start()
        body = os.urandom(500000)
        for form in FORMS:
            for options in ({"type": "text/plain"}, {"type": "application/octet-stream", "chunked": 9000}):
                os.truncate(count, 0)
                fields = FORMS[form]("POST", f"/{form}", body)
                status(own.post(f"/{form}", key=fresh(), body=body, headers=fields, **options), 200)
                with open(count, encoding="utf-8") as file:
                    total = sum(int(line) for line in file)
                check(len(body) <= total < len(body) + 20000, f"{total} bytes were hashed of {len(body)}")


def piped(rig, form, url, words="", sent=""):
    """Runs `idem sign | curl` in a shell; returns the response's status."""
    script = (f"{EXE} sign --key-id shop-1 --secret-file {rig.folder}/secrets --form {form} {words} '{url}' |"
              f" curl -sS --max-time {LIMIT} -o /dev/null -w '%{{http_code}}' -H @- {sent} '{url}'")
    run = subprocess.run(["sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT, check=False)
    return run.stdout.decode()


@test
def the_command_line_signs_what_curl_sends(rig):
    if not EXE:
        raise Skip("IDEM_EXE is not set")
    rig.put("sent", "two\nlines\n")
    base = f"http://127.0.0.1:{rig.port}"
    for form in FORMS:
        key = fresh("k")
        for path, words, sent in (
                (place(rig, form) + "?b=2&a=1", "-d '{\"a\":1}'", "-d '{\"a\":1}'"),
                (place(rig, form), "", ""),
                (place(rig, form) + "?", "-X DELETE", "-X DELETE"),
                (place(rig, form) + "?q=%20x#part", "-d @" + rig.folder + "/sent", "--data-binary @" + rig.folder + "/sent"),
                (place(rig, form, "/both"), f"-H 'Idempotency-Key: {key}' --headers idempotency-key -d x", "-d x")):
            eq(piped(rig, form, base + path, words, sent), "200", f"{form} {words}")
        eq(piped(rig, form, base + place(rig, form), "-d x", "-d y"), "401")
    secure = f"https://localhost:{rig.tlsport}" + place(rig, "rfc9421")
    eq(piped(rig, "rfc9421", secure, "--headers @target-uri -d x", "-k -d x"), "200")


# Configurations.

def refused(conf, words, **options):
    if STORE in ("postgres", "mysql"):  # the store is not used, and would take long to start
        options.setdefault("store", STORE + "://u@localhost/d")
    with Rig(conf, start=False, files=SECRETS, **options) as rig:
        rig.put("open", signing.FILE, 0o644)
        rig.put("broken", "shop-1 hmac-sha256 text:short\n")
        code, said = rig.check()
        check(code != 0, said)
        for word in words if isinstance(words, tuple) else (words,):
            check(word in said, f"{word!r} is not in:\n{said}")
        check("nginx.conf:" in said, said)
        check("hunter2" not in said and "c2Vj" not in said, said)


def in_location(words):
    return f"location / {{ {words} {PASS} }}"


@test
def a_wrong_configuration_is_refused_with_its_place(rig):
    for words, says in (
            ("idem_sign on;", '"on" is not understood'),
            ("idem_sign form=classic;", "secret_file=FILE is missing"),
            ("idem_sign secret_file=;", "is not understood"),
            ("idem_sign secret=hunter2hunter2hunter2;", '"secret=" is not understood'),
            ("idem_sign c2VjcmV0IGh1bnRlcjI=;", '"..." is not understood'),
            ("idem_sign hunter2hunter2hunter2;", '"..." is not understood'),
            (f"{SIGN} form=old;", ("form=old", "rfc9421, classic")),
            (f"{SIGN} window=0;", "1s to 1d"),
            (f"{SIGN} window=2d;", "1s to 1d"),
            (f"{SIGN} window=60;", "1s to 1d"),
            (f"{SIGN} sequence=up;", ("sequence=up", "off, increasing, consecutive")),
            (f"{SIGN} headers=a:b;", '"a:b"'),
            (f"{SIGN} form=classic headers=@authority;", '"@authority"'),
            (f"{SIGN} {SIGN.split()[1]};", "set twice"),
            (f"{SIGN}; {SIGN};", "duplicate"),
            ("idem_sign secret_file=@TEMP@/none;", ("none", "No such file")),
            ("idem_sign secret_file=@TEMP@/open;", ("open", "0644", "chmod 600")),
            ("idem_sign secret_file=@TEMP@/broken;", ("broken:1:", "at least 16")),
    ):
        refused(in_location(words), says)
    refused(in_location(f"{SIGN};"), "idem_store is missing", defaults="")


@test
def secrets_are_read_again_with_a_reload(rig):
    with Rig(f"location / {{ {SIGN} form=classic; {PASS} }}", start=False) as own:
        old, new = b"the secret of yesterday", b"the secret of tomorrow!"
        def write(*secrets):
            own.put("secrets", "".join(f"a hmac-sha256 text:{s.decode()}\n" for s in secrets))
        def by(secret):
            return own.post("/x", body=b"x", headers=classic("POST", "/x", b"x", key="a", secret=secret)).status
        write(old)
        own.start()
        eq((by(old), by(new)), (200, 401))
        write(new, old)
        own.are_gone(own.reload())
        until("the new secret is taken", lambda: by(new) == 200)
        eq(by(old), 200)
        write(new)
        own.are_gone(own.reload())
        until("the old secret is refused", lambda: by(old) == 401)
        eq(by(new), 200)
        captured = classic("POST", "/x", b"x", key="a", secret=new)
        status(own.post("/x", body=b"x", headers=captured), 200)
        own.are_gone(own.reload())
        status(own.post("/x", body=b"x", headers=captured), 401, "nonce-reused")


@test
def secrets_that_are_refused_with_a_reload_leave_those_of_before(rig):
    with Rig(f"location / {{ {SIGN} form=classic; {PASS} }}", files=SECRETS) as own:
        for text, mode, says in (("shop-1 hmac-sha256 text:hunter2\n", 0o600, "at least 16"),
                                 ("shop-1 hunter2hunter2hunter2\n", 0o600, "three words"),
                                 (signing.FILE, 0o644, "chmod 600")):
            before = own.worker_pids()
            own.put("secrets", text, mode)
            own.process.send_signal(signal.SIGHUP)
            until("it is refused", lambda: says in own.said())
            status(signed(own, "classic", "/x"), 200)
            eq(own.worker_pids(), before)
            check("hunter2" not in own.said(), "a secret in the log")
        os.truncate(own.folder + "/error.log", 0)  # the test has caused these log lines


@test
def switching_it_on_or_off_makes_no_retry_a_mismatch(rig):
    def conf(sign):
        return (f"location / {{ {sign} idem_prefix switch:; idem replay; {PASS} }}"
                f"location /params {{ {sign} idem_prefix switch:; idem replay; idem_key params; idem_scope $host; {PASS} }}")
    on, off = conf(f"{SIGN} form=classic;"), conf("")
    with Rig(on, files=SECRETS) as own:
        bodies = [(b'{"a":1}', "application/json"), (b"a=1", "application/x-www-form-urlencoded"), (b"text", "text/plain")]
        keys = [fresh() for _ in bodies]
        def order(i, signed):
            body, kind = bodies[i]
            return own.post("/x", key=keys[i], body=body, type=kind, headers=classic("POST", "/x", body) if signed else [])
        firsts = [status(order(i, True), 200) for i in range(len(bodies))]
        for _ in range(2):
            status(signed(own, "classic", "/params"), 200)
        own.write(off, "", "", "", "idem_store @STORE@; idem_scope none;")
        own.are_gone(own.reload())
        until("no signature is required", lambda: order(0, False).status == 200)
        for i, first in enumerate(firsts):
            replay_of(first, order(i, False))
        eq(runs(own, "/x"), len(bodies))
        for _ in range(2):
            status(own.post("/params"), 200)
        eq(runs(own, "/params"), 2)  # a key made of the request differs, as sign.md warns


@test(stores="redis")
def who_leaves_while_his_nonce_is_asked_for_is_let_go(rig):
    with Rig(f"location / {{ {SIGN} form=classic; {PASS} }}", files=SECRETS) as own:
        status(signed(own, "classic", "/x"), 200)
        before = own.worker_pids()
        own.redis.pause()
        conns = [Conn(own.port) for _ in range(40)]
        for conn in conns:
            conn.send(own.bytes("/x", headers=classic("POST", "/x", b'{"a":1}')))
        own.turn()
        for conn in conns:
            conn.close()
        own.turn()
        own.redis.go_on()
        for _ in range(20):
            status(signed(own, "classic", "/x"), 200)
        eq(own.worker_pids(), before)
        eq(runs(own, "/x"), 21)
        check(own.quit(), "the worker exits, and does not wait for clients that have disconnected")


@test
def without_a_store_nothing_signed_passes(rig):
    conf = "".join(f"location /{name} {{ {SIGN} form=classic; idem_prefix x:; idem replay; {rule} {PASS} }}"
                   for name, rule in (("closed", ""), ("open", "idem_on_store_error open;"), ("shadow", "idem_enforce off;")))
    with Rig(conf, store="redis://127.0.0.1:1", files=SECRETS) as own:
        for path in ("/closed", "/open", "/shadow"):
            answer = own.post(path, key=fresh(), headers=classic("POST", path, b'{"a":1}'))
            status(answer, 503, "store-unavailable")
            check(answer.h("Retry-After"), "Retry-After")
            status(own.post(path, key=fresh()), 401, "signature-incomplete")
        eq(own.backend.requests(), [])


def counted(rig, *names):
    """Returns the counts of these events from `idem stats`."""
    run = subprocess.run([EXE, "stats", "--json", "--store", rig.url], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=LIMIT, check=True)
    return [json.loads(run.stdout)["events"][name] for name in names]


@test
def refusals_are_counted(rig):
    if not EXE:
        raise Skip("IDEM_EXE is not set")
    with Rig(f"location / {{ {SIGN} form=classic; {PASS} }}", files=SECRETS) as own:
        fields = classic("POST", "/x", b"x")
        for headers in (fields, fields, fields[1:], classic("POST", "/x", b"y"), classic("POST", "/x", b"x", at=1)):
            own.post("/x", body=b"x", headers=headers)
        until("all are counted", lambda: counted(own, "signature_incomplete", "signature_stale", "signature_wrong", "nonce_reused") == [1] * 4)


@test(stores="redis")
def who_leaves_while_the_nonce_is_asked_for_harms_nobody(rig):
    with Rig(f"location / {{ {SIGN} form=classic; {PASS} }}", files=SECRETS) as own:
        pids = sorted(own.worker_pids())
        for end in ("close", "reset"):
            own.redis.pause()
            gone = [Conn(own.port).send(own.bytes("/gone", headers=classic("POST", "/gone", b'{"a":1}'))) for _ in range(20)]
            with H2(own.h2port) as h2:
                headers = [(n.lower(), v) for n, v in classic("POST", "/gone", b"x")]
                h2.reset(h2.post("/gone", headers, b"x"))
                stays = Conn(own.port).send(own.bytes("/stays", rid=end, headers=classic("POST", "/stays", b'{"a":1}')))
                own.turn()
                began = time.monotonic()
                for conn in gone:
                    getattr(conn, end)()
                own.turn()
                paused = time.monotonic() - began
                own.redis.go_on()
                status(stays.answer(), 200)
                stays.close()
                took = float(own.log(end)["idem_time"])
                check(took > paused - 0.05, f"the time that the store took: {took} of {paused}")
        status(signed(own, "classic", "/stays"), 200)
        eq(sorted(own.worker_pids()), pids)
        eq({r.path for r in own.backend.requests()}, {"/stays"})


@test(stores="redis")
def a_nonce_that_nobody_answers_for_is_given_up_in_time(rig):
    """It is unknown whether the nonce was used: the request is refused, and passes at most once after that."""
    with Rig(f"location / {{ {SIGN} form=classic; {PASS} }}", files=SECRETS, options="timeout=10s", workers=1) as own:
        pids = own.worker_pids()
        status(signed(own, "classic", "/first"), 200)
        fields = classic("POST", "/x", b"x")
        own.redis.pause()
        try:
            status(own.post("/x", body=b"x", headers=fields), 503, "store-unavailable")
        finally:
            own.redis.go_on()
        def asked():
            answer = own.post("/x", body=b"x", headers=fields)
            check(answer.status in (200, 503) or answer.type == "nonce-reused", answer)
            return answer.status == 401
        until("the store is back, and knows it", asked)
        check(runs(own, "/x") <= 1, "it ran twice")
        if EXE:
            until("it is counted", lambda: counted(own, "store_error")[0] >= 1)
        eq(own.worker_pids(), pids)


if __name__ == "__main__":
    main(CONF, files=SECRETS)
