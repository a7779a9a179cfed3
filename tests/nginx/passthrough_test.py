#!/usr/bin/env python3
"""The gateway within nginx: requests that pass untouched, redirects, groups, filters."""
import gzip
import os
import socket
import sys
import threading
import time

sys.dont_write_bytecode = True

from rig import *
from tap import *

OTHER, THIRD = Backend(), Backend()
NEXT = "proxy_next_upstream error timeout invalid_header http_500 http_503 http_429;"
HTTP = f"""
sendfile on;
charset_map windows-1251 utf-8 {{ C0 D090; E4 D0B4; E0 D0B0; }}
upstream two {{ server 127.0.0.1:{OTHER.port} max_fails=0; server 127.0.0.1:{THIRD.port} max_fails=0; }}
upstream half {{ server @REFUSED@ max_fails=0; server @BACKEND@ max_fails=0; }}
upstream kept {{ server @BACKEND@; keepalive 4; }}
upstream down {{ server @REFUSED@ down; }}
"""
CONF = "".join((
    "location /plain { proxy_pass http://@BACKEND@; }\n",
    guard("/replay", "idem replay;"),
    guard("/gzip", "idem replay; gzip on; gzip_types *; gzip_min_length 1; gzip_proxied any; gzip_http_version 1.0;"),
    guard("/charset", "idem replay; charset utf-8; charset_types text/plain application/json;"),
    guard("/recoded", "idem replay; charset windows-1251; source_charset utf-8; charset_types text/plain;"),
    guard("/spooled", "idem replay; proxy_buffers 2 4k; proxy_buffer_size 4k; proxy_busy_buffers_size 4k;"
          " idem_result_max 2M;"),
    guard("/headers", "idem replay; add_header X-Added $request_method always; add_header X-Two b; expires 60s;"),
    guard("/next", "idem replay; idem_methods POST PUT DELETE QUERY; " + NEXT, to="proxy_pass http://two;"),
    guard("/half", "idem replay; " + NEXT, to="proxy_pass http://half;"),
    guard("/kept", "idem replay; proxy_http_version 1.1; proxy_set_header Connection '';",
          to="proxy_pass http://kept;"),
    guard("/down", "idem replay;", to="proxy_pass http://down;"),
    guard("/authorized", "idem replay; auth_request /auth;"),
    "location = /auth { internal; proxy_pass http://@BACKEND@; proxy_pass_request_body off;"
    " proxy_set_header Content-Length ''; }\n",
    guard("/mirrored", "idem replay; mirror /mirror;"),
    guard("= /mirror", "internal; idem replay;", prefix="mirrored:"),
    guard("/intercepted", "idem replay; proxy_intercept_errors on; error_page 500 503 404 422 = @again; error_page 410 =200 @again;"
          " error_page 402 @again;"),
    guard("@again", "idem replay;", prefix="intercepted:"),
    guard("/recursive", "idem replay; proxy_intercept_errors on; recursive_error_pages on; error_page 404 = @recursive;"),
    guard("@recursive", "idem replay; proxy_intercept_errors on; recursive_error_pages on; error_page 404 = @recursive;",
          prefix="recursive:"),
    guard("/unintercepted", "idem replay; error_page 502 504 = @unguarded;",
          to="proxy_pass http://@BACKEND@;"),
    "location @unguarded { proxy_pass http://@BACKEND@; }\n",
    guard("/unreached", "idem replay; error_page 502 = @unguarded;", to="proxy_pass http://@REFUSED@;"),
    guard("/twice", "idem replay; error_page 502 = @twice;", to="proxy_pass http://@REFUSED@;"),
    guard("/twice-tried", "idem replay;", to="try_files /no-such-file @twice;"),
    "location @twice { proxy_pass http://two; proxy_next_upstream error non_idempotent; }\n",
    "location /behind { proxy_pass http://@REFUSED@; error_page 502 @behind; }\n",
    guard("@behind", "idem reject;"),
    guard("/page", "idem_preset payment; proxy_intercept_errors on; error_page 500 /static/sorry.html;"),
    guard("/page-api", "idem_preset api; proxy_intercept_errors on; error_page 404 500 /static/sorry.html;"),
    "location /static/ { root @TEMP@; }\n",
    guard("/accel", "idem replay;"),
    "location /files/ { internal; alias @TEMP@/static/; }\n",
    guard("/ranges", "idem replay; idem_fingerprint none; proxy_force_ranges on;", prefix="ranges:"),
    guard("/ranges-shadow", "idem replay; idem_fingerprint none; idem_enforce off; proxy_force_ranges on;",
          prefix="ranges:"),
    "location /moved { rewrite ^/moved(.*)$ /replay$1 last; }\n",
    "location /tried { try_files /no-such-file @app; }\n",
    guard("@app", "idem replay;"),
    guard("/limited", "idem replay; limit_except POST { deny all; }"),
    guard("/forbidden", "idem replay; deny all;"),
    guard("/sub", "idem replay; sub_filter_types *; sub_filter serial SERIAL; sub_filter_once off;"),
    guard("/wrapped", "idem replay; addition_types *; add_before_body /before; add_after_body /after;"),
    "location = /before { internal; proxy_pass http://@BACKEND@/before; }\n",
    guard("= /after", "internal; idem replay; idem_methods POST PUT PATCH DELETE;", to="proxy_pass http://@BACKEND@/after;"),
))


def once(rig, path, key, **options):
    first = status(rig.post(path, key, **options), 200)
    check(not first.replayed, f"the first runs: {first!r}")
    replay_of(first, rig.post(path, key, **options))
    eq(rig.backend.effects(key=key), 1, "effects")
    return first


@test
def get_head_and_options_pass_untouched(rig):
    for method in ("GET", "HEAD", "OPTIONS"):
        key = fresh()
        for form in (key, key):
            rid = fresh("rid")
            answer = rig.post("/replay", form, method=method, body=b"", rid=rid,
                              headers=[("Accept-Encoding", "gzip"), ("Idem-Attempt", "9"), ("Idem_Other", "x")])
            status(answer, 200)
            check(not answer.replayed, "no replay")
            eq((rig.log(rid)["idem_verdict"], rig.log(rid)["idem_key_hash"]), ("", ""))
        seen = rig.backend.requests(key=key)
        eq(len(seen), 2, "both reach the backend")
        eq(seen[0].all("Accept-Encoding"), ["gzip"])
        eq([n for n, _ in seen[0].headers if n.lower().startswith("idem-")], [])
        # These requests may lack a key or a scope, or have a malformed key.
        for form in (None, '"broken', "a b"):
            status(rig.post("/replay", form, method=method, body=b""), 200)


@test
def other_methods_pass_too(rig):
    """nginx has a single number for all methods that it does not know: QUERY, REPORT, and any that a backend invents."""
    for method in ("PUT", "DELETE", "PROPFIND", "LOCK", "QUERY", "REPORT", "X-UN_KNOWN"):
        key = fresh()
        for _ in range(2):
            answer, line = rig.logged("/replay", key, method=method, headers=[("Idem-Attempt", "9")])
            check(status(answer, 200) and not answer.replayed, repr(answer))
            eq(line["idem_verdict"], "")
        eq([seen.h("Idem-Attempt") for seen in rig.backend.requests(key=key)], [None, None])
        for key in (None, '"broken'):
            status(rig.post("/replay", key, method=method), 200)


@test
def an_unguarded_location_is_nginx_as_ever(rig):
    key = fresh()
    for _ in range(2):
        answer = status(rig.post("/plain", key, headers=[("Idem-Attempt", "7"), ("Accept-Encoding", "gzip")]), 200)
        check(not answer.replayed, "no replay")
    seen = rig.backend.requests(key=key)
    eq(len(seen), 2)
    eq((seen[0].h("Idem-Attempt"), seen[0].h("Accept-Encoding")), ("7", "gzip"))
    status(rig.post("/plain", "a b"), 200)


@test
def gzip_towards_the_client_applies_anew(rig):
    key, takes = fresh(), [("Accept-Encoding", "gzip")]
    first = status(rig.post("/gzip", key, do={"size": 20000}, headers=takes), 200)
    eq(first.h("Content-Encoding"), "gzip")
    want = rig.backend.requests(key=key)[0].answer
    eq(gzip.decompress(first.body), want)
    again = status(rig.post("/gzip", key, headers=takes), 200)
    check(again.replayed and again.h("Content-Encoding") == "gzip", repr(again))
    eq(gzip.decompress(again.body), want)
    plain = status(rig.post("/gzip", key), 200)
    check(plain.replayed and not plain.all("Content-Encoding"), repr(plain))
    eq(plain.body, want)
    # The reverse: a response stored for a client without gzip is encoded for one that accepts it.
    key = fresh()
    rig.post("/gzip", key, do={"size": 20000})
    again = status(rig.post("/gzip", key, headers=takes), 200)
    eq(gzip.decompress(again.body), rig.backend.requests(key=key)[0].answer)


@test
def a_weak_etag_stays_as_it_is_and_a_strong_one_is_weakened_with_its_encoding(rig):
    takes = [("Accept-Encoding", "gzip")]
    for path, said, plain, encoded in (("/replay", 'W/"v"', 'W/"v"', 'W/"v"'), ("/replay", '"v"', '"v"', '"v"'),
                                       ("/gzip", 'W/"v"', 'W/"v"', 'W/"v"'), ("/gzip", '"v"', '"v"', 'W/"v"')):
        for first_takes in (False, True):
            key = fresh()
            first = rig.post(path, key, do={"size": 1000, "headers": [["ETag", said]]}, headers=takes * first_takes)
            eq(status(first, 200).all("ETag"), [encoded if first_takes else plain])
            for again, tag in ((rig.post(path, key), plain), (rig.post(path, key, headers=takes), encoded)):
                check(again.replayed, repr(again))
                eq(again.all("ETag"), [tag], f"{path} {said}")
    # If the backend encoded it, the decoded response no longer has the bytes of the ETag.
    key = fresh()
    rig.post("/replay", key, do={"size": 1000, "gzip": True, "headers": [["ETag", '"v"']]}, headers=takes)
    eq(rig.post("/replay", key, headers=takes).all("ETag"), ['"v"'])
    eq(rig.post("/replay", key).all("ETag"), ['W/"v"'])


@test
def headers_that_nginx_adds_are_there_once(rig):
    key = fresh()
    for answer in (rig.post("/headers", key), rig.post("/headers", key)):
        status(answer, 200)
        eq((answer.all("X-Added"), answer.all("X-Two"), answer.all("Cache-Control")), (["POST"], ["b"], ["max-age=60"]))
        eq(len(answer.all("Expires")), 1)
    key = fresh()  # the backend's values for these headers give way, on the replay too
    said = [["Cache-Control", "no-store"], ["Expires", "Mon, 01 Jan 2024 00:00:00 GMT"]]
    for answer in (rig.post("/headers", key, do={"headers": said}), rig.post("/headers", key)):
        eq((answer.all("Cache-Control"), len(answer.all("Expires"))), (["max-age=60"], 1), repr(answer))
    eq(rig.backend.effects(key=key), 1)


@test
def a_charset_that_nginx_adds_is_there_once(rig):
    for kind in ("text/plain", "application/json", "text/plain; charset=utf-8", "text/html"):
        key = fresh()
        first = status(rig.post("/charset", key, do={"type": kind, "body": "x"}), 200)
        eq(replay_of(first, rig.post("/charset", key)).all("Content-Type"), first.all("Content-Type"))
    key = fresh()
    first = status(rig.post("/recoded", key, do={"type": "text/plain", "body": "\u0434\u0430"}), 200)
    eq(first.body, b"\xe4\xe0", "the recoded body")
    again = replay_of(first, rig.post("/recoded", key))
    eq(again.all("Content-Type"), first.all("Content-Type"))


@test
def an_answer_that_was_spooled_to_a_file_is_whole(rig):
    for size in (20000, 500000, 1500000):
        key = fresh()
        with Conn(rig.port) as conn:
            conn.send(rig.bytes("/spooled", key, do={"size": size}))
            time.sleep(0.1)  # sleep: the client reads late
            first = conn.answer()
        eq(first.body, rig.backend.requests(key=key)[0].answer)
        replay_of(first, rig.post("/spooled", key))


@test
def filters_of_the_body_apply_once(rig):
    key = fresh()
    first, again = rig.post("/sub", key), rig.post("/sub", key)
    check(b"SERIAL" in first.body, "the filter works")
    replay_of(first, again)


@test
def parts_that_subrequests_add_are_no_part_of_the_guard(rig):
    rig.backend.script("/before", {"body": "[", "effect": False})
    rig.backend.script("/after", {"body": "]", "effect": False})
    key = fresh()
    first = status(rig.post("/wrapped", key), 200)
    again = status(rig.post("/wrapped", key), 200)
    check(first.complete and again.complete and again.replayed, f"{first!r} {again!r}")
    eq(first.body[:1] + first.body[-1:], b"[]")
    eq(again.body, first.body)
    eq(len(rig.backend.requests(key=key, path="/wrapped")), 1)


@test
def a_claimed_request_never_goes_to_a_second_upstream(rig):
    for do in ({"fault": "close"}, {"fault": "rst"}, {"status": 500}, {"status": 503}, {"status": 429},
               {"fault": "bighead"}, {"read": 1}):
        # nginx itself would resend PUT, DELETE and QUERY; each server comes first in turn.
        for method in ("POST", "PUT", "DELETE", "QUERY", "POST", "PUT", "DELETE", "QUERY", "PUT"):
            key = fresh()
            answer = rig.post("/next", key, do=do, method=method)
            check(answer.status in (500, 502, 503, 429), repr(answer))
            seen = OTHER.requests(key=key) + THIRD.requests(key=key)
            eq(len(seen), 1, f"upstreams that saw {method} {do}")


@test
def a_refused_connection_lets_the_next_upstream_do_it(rig):
    for _ in range(4):
        key = fresh()
        first = once(rig, "/half", key)
        check(first.complete, "whole")
    eq(rig.backend.requests(key=key)[0].h("Idem-Attempt"), "1")


@test
def no_upstream_at_all_releases(rig):
    key = fresh()
    for _ in range(2):
        answer, line = rig.logged("/down", key)
        check(answer.status in (502, 503), repr(answer))
        eq((line["idem_verdict"], line["idem_attempt"]), ("run", "1"))


@test
def connections_to_the_upstream_are_kept(rig):
    before = rig.backend.accepted
    for _ in range(20):
        once(rig, "/kept", fresh(), do={"size": 2000})
    check(rig.backend.accepted - before < 10, f"{rig.backend.accepted - before} connections")


@test
def a_kept_connection_that_dies_runs_nothing_twice(rig):
    for _ in range(10):
        once(rig, "/kept", fresh())
        with rig.backend.lock:
            idle = list(rig.backend.connections)
        for sock in idle:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        key = fresh()
        answer = rig.post("/kept", key)
        check(answer.status in (200, 502), repr(answer))
        again = rig.post("/kept", key)
        check(again.status in (200, 409), repr(again))
        check(rig.backend.effects(key=key) <= 1, "effects")


@test
def who_is_not_authorized_leaves_no_record(rig):
    key = fresh()
    rig.backend.script("/auth", {"status": 403})
    status(rig.post("/authorized", key), 403)
    rig.backend.script("/auth", {"status": 200})
    asked = len(rig.backend.requests(path="/auth"))
    first = status(rig.post("/authorized", key, body=b"another"), 200)
    check(not first.replayed, "no record was left")
    replay_of(first, rig.post("/authorized", key, body=b"another"))
    eq(len(rig.backend.requests(path="/auth")) - asked, 2, "each request is authorized")
    rig.backend.script("/auth", {"status": 401})
    answer = status(rig.post("/authorized", key, body=b"another"), 401)
    check(b"serial" not in answer.body, "a replay needs leave too")
    eq(rig.backend.effects(key=key, path="/authorized"), 1)
    status(rig.post("/forbidden", key), 403)


@test
def a_mirror_is_left_alone(rig):
    for size in (10, 100000):
        key, body = fresh(), pattern(size)
        first = status(rig.post("/mirrored", key, body=body, type="text/plain"), 200)
        rig.backend.wait_effects(2, key=key)
        eq(sorted(s.path for s in rig.backend.requests(key=key)), ["/mirror", "/mirrored"])
        eq({s.body for s in rig.backend.requests(key=key)}, {body})
        replay_of(first, rig.post("/mirrored", key, body=body, type="text/plain"))
        eq(rig.backend.effects(key=key, path="/mirrored"), 1)


@test
def error_page_does_not_send_it_again(rig):
    for code in (500, 503, 404):
        key = fresh()
        answer = rig.post("/intercepted", key, do={"status": code})
        check(status(answer, code).complete, repr(answer))
        eq(len(rig.backend.requests(key=key)), 1, "requests at the backend")


@test
def an_intercepted_answer_whose_page_is_refused_is_stored_as_the_backends(rig):
    for code in (404, 422, 410, 402):
        key = fresh()
        rid = fresh("rid")
        first = status(rig.post("/intercepted", key, do={"status": code}, rid=rid), code)
        replay_of(first, rig.post("/intercepted", key))
        eq(len(rig.backend.requests(key=key)), 1, "requests at the backend")
        stored = json.loads(rig.idem("show", "--json", "--prefix", "intercepted:", "--hash", rig.log(rid)["idem_key_hash"]))
        eq((stored["state"], stored["status"]), ("done", code))


@test
def a_page_that_is_refused_is_not_looked_for_again(rig):
    key = fresh()
    first = status(rig.post("/recursive", key, do={"status": 404}), 404)
    replay_of(first, rig.post("/recursive", key))
    eq(len(rig.backend.requests(key=key)), 1, "requests at the backend")


@test
def error_page_does_not_send_it_again_after_a_broken_answer(rig):
    for do in ({"fault": "close"}, {"fault": "rst"}, {"fault": "garbage"}, {"fault": "bighead"}):
        key = fresh()
        answer = rig.post("/unintercepted", key, do=do)
        check(answer.status in (502, 504), repr(answer))
        eq(len(rig.backend.requests(key=key)), 1, "requests at the backend")
        status(rig.post("/unintercepted", key), 409, "uncertain")


@test
def error_page_may_name_another_backend_for_one_that_was_not_reached(rig):
    once(rig, "/unreached", fresh())


@test
def where_it_is_redirected_to_does_not_send_it_twice(rig):
    for path in ("/twice", "/twice-tried"):
        key = fresh()
        status(rig.post(path, key, do={"fault": "close"}), 502)
        seen = OTHER.requests(key=key) + THIRD.requests(key=key)
        check(len(seen) <= 1, f"{path}: {seen}")
        check("non_idempotent would send it twice" in rig.said(), "the reason is not revealed")


@test
def a_refusal_has_its_own_status_whatever_error_has_led_to_it(rig):
    """Without `=`, error_page gives its own status to the response that follows: to the backend's, but not to a
    refusal."""
    key = fresh()
    first = status(rig.post("/behind", key), 502)
    eq(first.body, rig.backend.requests(key=key)[0].answer, "the backend's body")
    eq(status(rig.post("/behind", key), 409, "duplicate").problem["status"], 409)
    status(rig.post("/behind", key, body=b"other"), 422, "mismatch")
    status(rig.post("/behind"), 400, "key-missing")
    eq(rig.backend.effects(key=key), 1)


@test
def error_page_may_be_a_page(rig):
    os.makedirs(rig.folder + "/static", exist_ok=True)
    with open(rig.folder + "/static/sorry.html", "w", encoding="utf-8") as file:
        file.write("we are sorry")
    key = fresh()
    first = status(rig.post("/page", key, do={"status": 500}), 500)
    eq(first.body, b"we are sorry")
    replay_of(first, rig.post("/page", key))  # a payment's failure is kept as the client got it
    eq(rig.backend.effects(key=key), 1)
    key = fresh()
    status(rig.post("/page-api", key, do={"status": 500}), 500)
    check(not status(rig.post("/page-api", key), 200).replayed, "released")
    key = fresh()
    first = status(rig.post("/page-api", key, do={"status": 404}), 404)
    eq(first.body, b"we are sorry")
    replay_of(first, rig.post("/page-api", key))
    eq(rig.backend.effects(key=key), 1)


@test
def an_accel_redirect_to_a_file_is_captured(rig):
    os.makedirs(rig.folder + "/static", exist_ok=True)
    content = pattern(50000)
    with open(rig.folder + "/static/report.bin", "wb") as file:
        file.write(content)
    os.utime(rig.folder + "/static/report.bin", (1704067200, 1704067200))
    key = fresh()
    first = status(rig.post("/accel", key, do={"headers": [["X-Accel-Redirect", "/files/report.bin"]]}), 200)
    eq(first.body, content)
    eq(first.all("X-Accel-Redirect"), [])
    eq(first.all("Last-Modified"), ["Mon, 01 Jan 2024 00:00:00 GMT"], "the file's time")
    with open(rig.folder + "/static/report.bin", "wb") as file:
        file.write(b"another one")
    again = replay_of(first, rig.post("/accel", key))
    for name in ("Last-Modified", "ETag", "Content-Type"):
        eq(again.all(name), first.all(name), name)
    eq(rig.backend.effects(key=key), 1)


@test
def a_first_answer_knows_no_ranges(rig):
    """Neither the head nor the body of a first response is a range: a client that takes a part for the whole would
    take the rest for the next response."""
    os.makedirs(rig.folder + "/static", exist_ok=True)
    content = pattern(5000)
    with open(rig.folder + "/static/part.bin", "wb") as file:
        file.write(content)
    for path, do in (("/ranges", {"size": 5000}), ("/ranges-shadow", {"size": 5000}), ("/ranges", {"size": 1500000}),
                     ("/accel", {"headers": [["X-Accel-Redirect", "/files/part.bin"]]})):
        key = fresh()
        with Conn(rig.port) as conn:
            first = conn.send(rig.bytes(path, key, do=do, headers=[("Range", "bytes=0-9")], close=False)).answer()
            plain = status(conn.send(rig.bytes("/plain", do={"body": "the next"})).answer(), 200)
        eq((status(first, 200).all("Content-Range"), plain.body), ([], b"the next"), path)
        eq(first.body, content if path == "/accel" else rig.backend.requests(key=key)[0].answer, path)
        if path == "/ranges-shadow":
            path = "/ranges"
        if do.get("size", 0) < 1000000:
            replay_of(first, rig.post(path, key))


@test
def a_rewritten_request_is_guarded_where_it_arrives(rig):
    key = fresh()
    once(rig, "/moved/x", key)
    replay_of(rig.post("/moved/x", key), rig.post("/moved/x", key))
    key = fresh()
    once(rig, "/tried", key)


@test
def a_stored_answer_does_not_depend_on_the_backend(rig):
    key = fresh()
    with Rig(guard("/a", "idem replay;")) as other:
        first = status(other.post("/a", key), 200)
        other.backend.close()
        replay_of(first, other.post("/a", key))
        status(other.post("/a", fresh()), 502)


if __name__ == "__main__":
    main(CONF, http=HTTP)
