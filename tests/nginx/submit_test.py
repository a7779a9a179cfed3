#!/usr/bin/env python3
"""idem_preset submit: a plain form, whose page knows nothing of the guard, and a button that is clicked twice."""
import json
import sys
import time

sys.dont_write_bytecode = True

from rig import *
from tap import *

FORM = "application/x-www-form-urlencoded"
USER = "idem_scope $http_x_user;"
CONF = WATCH + "".join((
    guard("/order", f"idem_preset submit; {USER}", prefix="order:"),
    guard("/refund", f"idem_preset submit; {USER}", prefix="order:"),
    guard("/strict", f"idem_preset submit; idem reject; idem_wait none; {USER}"),
    guard("/once", f"idem_preset submit; idem lock; {USER}"),
    guard("/brief", f"idem_preset submit; idem_ttl 1s; {USER}"),
    guard("/long", f"client_max_body_size 4m; idem_preset submit; idem_key token param=token; {USER}", prefix="ticket:"),
    guard("/ticket", f"idem_preset submit; idem_key token param=token; {USER}", prefix="ticket:"),
    f"location /api {{ idem replay; idem_prefix api:; {USER} proxy_pass http://@BACKEND@;"
    "    location = /api/form { idem_preset submit; idem_prefix form:; proxy_pass http://@BACKEND@; } }",
    f"location /params {{ idem replay; idem_key params; idem_prefix params:; {USER} proxy_pass http://@BACKEND@;"
    "    location = /params/keyed { idem_key header=Idempotency-Key; proxy_pass http://@BACKEND@; } }",
    f"location = /token {{ idem_prefix ticket:; {USER} idem_token; }}",
))
PAGE = [("Accept", "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8")]


def click(rig, path="/order", body=b"item=7&count=1", user="ann", later=False, **options):
    options = dict(user=user, body=body, type=FORM, headers=PAGE, ref=options.pop("ref", None), **options)
    return rig.later(path, **options) if later else rig.post(path, **options)


@test
def the_second_click_is_answered_with_the_first_ones_page(rig):
    ref, name = fresh("ref"), fresh("gate")
    clicks = [click(rig, ref=ref, later=True, do={"hang": name, "status": 201, "body": "<h1>Order 1</h1>", "type": "text/html"})
              for _ in range(5)]
    rig.until_parked(4)
    rig.backend.reached(name)  # the claim comes before the request to the backend: duplicates may be parked earlier
    eq(len(rig.backend.requests(ref=ref)), 1)
    rig.backend.go(name)
    answers = [c.get() for c in clicks]
    eq({(a.status, a.body, a.h("Content-Type")) for a in answers}, {(201, b"<h1>Order 1</h1>", "text/html")})
    eq(rig.backend.effects(ref=ref), 1)


def multipart(boundary, *fields):
    """Returns a form with files as a browser sends it, with its type; a browser chooses a new boundary each time."""
    body = b"".join(b"--%s\r\nContent-Disposition: form-data; name=\"%s\"%s\r\n\r\n%s\r\n" % (boundary, name, more, value)
                    for name, more, value in fields)
    return {"body": body + b"--%s--\r\n" % boundary, "type": f"multipart/form-data; boundary={boundary.decode()}"}


def upload(rig, boundary, path, contents, *fields, **options):
    picture = (b"picture", b'; filename="a.png"\r\nContent-Type: image/png', contents)
    return rig.post(path, user="ann", headers=PAGE, **multipart(boundary, (b"item", b"", b"7"), picture, *fields), **options)


@test
def a_form_with_a_file_is_the_same_under_another_boundary(rig):
    for contents in (b"", b"\r\n--no\0boundary\xff", bytes(range(256)) * 2000):
        ref = fresh("ref")
        first = status(upload(rig, b"----one" + ref.encode(), "/order", contents, ref=ref), 200)
        for other in (b"x", b"----two" + ref.encode()):
            replay_of(first, upload(rig, other, "/order", contents, ref=ref))
        check(not status(upload(rig, b"----one" + ref.encode(), "/order", contents + b".", ref=ref), 200).replayed, "another file")
        eq(rig.backend.effects(ref=ref), 2)


@test
def the_fields_of_a_form_with_a_file_are_told_apart(rig):
    ref = fresh("ref")
    forms = ([(b"a", b"", b"12")], [(b"a", b"", b"1"), (b"b", b"", b"2")], [(b"a", b"", b"1\r\n--X\r\n")], [])
    for fields in forms:
        check(not status(upload(rig, b"X" * 20, "/order", b"told apart", *fields, ref=ref), 200).replayed, f"{fields}")
    eq(rig.backend.effects(ref=ref), len(forms))


@test
def a_token_may_stand_in_a_form_with_a_file(rig):
    def send(boundary, *tokens):
        return upload(rig, boundary, "/ticket", b"\x89PNG", *[(b"token", b"", t) for t in tokens])
    token = json.loads(rig.post("/token", method="GET", body=b"", user="ann").body)["token"].encode()
    first = status(send(b"one", token), 200)
    replay_of(first, send(b"two", token))
    eq(rig.backend.effects(key=token.decode()), 1)
    eq(send(b"one").status, 400, "without one")
    eq(send(b"one", token, token).status, 400, "with two")
    eq(send(b"one", b"0" * 32).status, 403, "with one that never was")


@test
def a_long_file_hides_no_token_that_stands_elsewhere(rig):
    def token():
        return json.loads(rig.post("/token", method="GET", body=b"", user="ann").body)["token"]
    file = pattern(1_500_000)  # longer than idem_json_max
    one, two = token(), token()
    status(upload(rig, b"aa", f"/long?token={one}", file), 200)
    replay = upload(rig, b"bb", f"/long?token={one}", file)
    check(replay.replayed, f"{replay}")
    form = multipart(b"aa", (b"picture", b'; filename="a.png"', file))
    status(rig.post("/long", user="ann", headers=[("Idempotent-Token", two)], **form), 200)
    status(rig.post("/long", user="ann", **form), 400, "key-malformed")
    status(rig.post("/long", user="ann", **multipart(b"aa", (b"token", b"", token().encode()), (b"f", b"", file))), 400)


@test
def below_a_guard_with_keys_a_form_needs_none(rig):
    ref = fresh("ref")
    status(click(rig, "/api", ref=ref), 400)
    for replayed in (False, True):
        answer = click(rig, "/api/form", ref=ref)
        status(answer, 200)
        eq(answer.replayed, replayed)
    wrong = fresh("ref")
    for _ in range(2):
        status(click(rig, "/api/form", b"item=wrong", ref=wrong, do={"status": 422}), 422)
    eq(len(rig.backend.requests(ref=wrong)), 2, "a 4xx gives the key back")


@test
def what_is_compared_goes_by_the_key_of_its_own_level(rig):
    key = fresh("key")
    status(click(rig, "/params/keyed", b"item=1", key=key), 200)
    status(click(rig, "/params/keyed", b"item=2", key=key), 422)


@test
def other_fields_another_user_and_another_route_are_other_orders(rig):
    ref = fresh("ref")
    one = {"body": b"item=80&count=1"}
    for options in ({}, {"body": b"item=81&count=1"}, {"user": "bob"}, {"path": "/refund"}):
        status(click(rig, ref=ref, **{**one, **options}), 200)
    eq(rig.backend.effects(ref=ref), 4)
    answer = click(rig, ref=ref, **one)
    check(answer.replayed, "the first one is remembered")
    eq(rig.backend.effects(ref=ref), 4)


@test
def after_its_time_the_same_order_can_be_placed_again(rig):
    ref, began = fresh("ref"), time.monotonic()
    status(click(rig, "/brief", ref=ref), 200)
    status(until_answer("it is forgotten", lambda: click(rig, "/brief", ref=ref), lambda a: not a.replayed), 200)
    took = time.monotonic() - began
    check(took > 0.95, f"after {took} s")
    eq(rig.backend.effects(ref=ref), 2)


@test
def a_form_that_was_wrong_can_be_corrected_and_sent_again(rig):
    ref, body = fresh("ref"), b"item=9&count=x"
    for code in (400, 403, 404, 409, 413, 422, 429, 451):
        status(click(rig, body=body, ref=ref, do={"status": code, "effect": False}), code)
    check(not status(click(rig, body=body, ref=ref), 200).replayed, "the same, too")
    status(click(rig, body=b"item=9&count=2", ref=ref), 200)


@test
def a_corrected_form_keeps_its_token(rig):
    token = json.loads(rig.post("/token", method="GET", body=b"", user="ann").body)["token"]
    def body(count):
        return f"count={count}&token={token}".encode()
    status(click(rig, "/ticket", body("x"), do={"status": 422, "effect": False}), 422)
    first = status(click(rig, "/ticket", body("2")), 200)
    replay_of(first, click(rig, "/ticket", body("2")))


@test
def a_person_who_is_refused_reads_a_page(rig):
    ref = fresh("ref")
    status(click(rig, "/strict", ref=ref), 200)
    answer = click(rig, "/strict", ref=ref)
    eq((answer.status, answer.h("Content-Type")), (409, "text/html; charset=utf-8"))
    check(b"<title>" in answer.body and b"done already" in answer.body, f"{answer.body}")
    eq(rig.backend.effects(ref=ref), 1)


@test
def a_lock_is_free_again_when_it_is_done(rig):
    ref = fresh("ref")
    for _ in range(3):
        status(click(rig, "/once", ref=ref), 200)
    eq(rig.backend.effects(ref=ref), 3)


@test
def who_is_not_known_is_not_served(rig):
    status(click(rig, user=None), 400)


@test
def a_submit_without_a_scope_is_refused_by_the_configuration(rig):
    with Rig(guard("/x", "idem_preset submit;"), start=False) as other:
        code, said = other.check()
        check(code != 0 and "idem_key params and idem_scope none exclude each other" in said, said)


if __name__ == "__main__":
    main(CONF)
