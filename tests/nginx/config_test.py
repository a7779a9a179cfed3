#!/usr/bin/env python3
"""nginx -t refuses every mistake, with its line and the allowed values, and accepts the rest."""
import os
import pwd
import re
import sys

sys.dont_write_bytecode = True

from rig import *
from tap import *

TO = "proxy_pass http://@BACKEND@;"
GOOD = "idem replay; idem_prefix p:; "


def try_conf(rig, locations, http="", server="", defaults="idem_store @STORE@; idem_scope none;"):
    """Returns the exit status and the output of nginx -t."""
    keep = rig.conf
    try:
        rig.conf = rig.write(locations, http, server, "", defaults)
        return rig.check()
    finally:
        rig.conf = keep


def refused(rig, rules, *words, whole=False, line=True, to=TO, **options):
    """Checks that nginx -t refuses the rules, with file and line, and that the message has each of the words."""
    code, said = try_conf(rig, rules if whole else f"location /x {{ {rules} {to} }}", **options)
    check(code != 0, f"nginx -t accepts: {rules}\n{said}")
    emerg = [line for line in said.splitlines() if "[emerg]" in line]
    check(emerg, f"no [emerg] line for {rules}:\n{said}")
    check(not line or re.search(r"in \S+nginx\.conf:\d+", said), f"no file and line for {rules}:\n{said}")
    for word in words:
        check(word in said, f"{word!r} is missing in the message for {rules}:\n{said}")
    check("is not expected" not in said, f"a mistake of the test: {said}")
    return said


def accepted(rig, rules, to=TO, warns=None, **options):
    code, said = try_conf(rig, f"location /x {{ {rules} {to} }}", **options)
    check(code == 0, f"nginx -t refuses: {rules}\n{said}")
    warnings = [line for line in said.splitlines() if "[warn]" in line]
    if warns is None:
        eq(warnings, [], f"warnings of {rules}")
    else:
        check(any(warns in line for line in warnings), f"no warning with {warns!r} of {rules}:\n{said}")
    return said




@test
def the_guard_is_off_or_a_mode(rig):
    for value in ("maybe", "on", "Replay", ""):
        refused(rig, f'idem_prefix p:; idem "{value}";', "off", "lock", "reject", "replay")
    refused(rig, "idem_prefix p:; idem;")
    refused(rig, "idem_prefix p:; idem replay lock;")
    refused(rig, "idem_prefix p:; idem replay; idem lock;", "duplicate")


@test
def a_preset_is_one_of_three(rig):
    for value in ("queue", "job", "x"):
        said = refused(rig, f"idem_prefix p:; idem_preset {value};", "submit", "api", "payment")
        check("queue" not in said.split("allowed")[1], f"what is not for requests is not offered: {said}")
    for value in ("submit", "api", "payment"):
        accepted(rig, f"idem_prefix p:; idem_scope $http_x_user; idem_preset {value};")


@test
def a_guard_needs_a_store_a_prefix_and_a_scope(rig):
    refused(rig, "idem replay; idem_prefix p:;", "idem_store", defaults="idem_scope none;")
    refused(rig, "idem replay; idem_prefix p:;", "idem_scope", "none", defaults="idem_store @STORE@;")
    refused(rig, "idem replay;", "idem_prefix")
    refused(rig, "idem_preset api;", "idem_prefix")
    accepted(rig, "idem_prefix p:;", defaults="")  # without a guard nothing is needed
    accepted(rig, "idem off;", defaults="")


@test
def a_store_is_a_url_of_an_engine(rig):
    for url in ("bogus:x", "lmdb", "''", "lmdb:", "lmdb:@TEMP@/s?sync=maybe", "lmdb:@TEMP@/s?nonsense=1",
                "redis://127.0.0.1:notaport/"):
        refused(rig, GOOD + f"idem_store {url};", "idem_store")
    for url in ("lmdb:store", "lmdb:./store", "'lmdb:../store?sync=off'"):  # relative to nginx's own directory
        refused(rig, GOOD + f"idem_store {url};", "idem_store", "whole path")


@test
def a_password_never_shows(rig):
    said = refused(rig, GOOD + "idem_store redis://user:sekrit@127.0.0.1:99999/;")
    check("sekrit" not in said, said)
    said = refused(rig, GOOD + "idem_store bogus://user:sekrit@127.0.0.1/;")
    check("sekrit" not in said, said)


@test
def a_prefix_is_text(rig):
    for value in ("''", "x" * 129, '"a\tb"'):
        refused(rig, f"idem replay; idem_prefix {value};", "idem_prefix")
    accepted(rig, f"idem replay; idem_prefix {'x' * 128};")
    accepted(rig, 'idem replay; idem_prefix "caf\u00e9:";')


@test
def a_scope_is_a_value_or_none(rig):
    refused(rig, GOOD + "idem_scope;")
    refused(rig, GOOD + "idem_scope '';", "idem_scope")
    refused(rig, GOOD + "idem_scope $no_such_variable;", "no_such_variable", line=False)  # nginx's own message
    for value in ("none", "$remote_user", '"$http_x_tenant/$remote_user"'):
        accepted(rig, GOOD + f"idem_scope {value};")


@test
def a_key_is_one_of_its_forms(rig):
    for value in ("header=", "header=X-A sometimes", "param=", "param=a b", "plain", "serial",
                  "serial header=X-A", "serial credential=X-B", "serial header= credential=X", "'header=a b'",
                  "params extra", "header=X-A required optional", "''"):
        refused(rig, GOOD + f"idem_key {value};")
    said = refused(rig, GOOD + "idem_key plain;", "header", "param", "params", "serial", "$")
    check("idem_key" in said, said)
    for value in ("header=Idem-Key", "header=idem-key optional", "serial header=Idem-No credential=X-B",
                  "token header=Idem-Token",
                  "serial header=X-A credential=Idem_Id"):  # these headers are stripped earlier
        refused(rig, GOOD + f"idem_key {value};", "idem_key", "another name")
    refused(rig, GOOD + "idem_key params;", "scope")  # all users would share one scope
    for value in ("header=X-A", "header=X-A required", "header=X-A optional", "param=a", "param=a optional",
                  "serial header=X-A credential=X-B", "$http_x_a", '"$http_x_a:$http_x_b"'):
        accepted(rig, GOOD + f"idem_key {value};")
    accepted(rig, GOOD + "idem_scope $remote_user; idem_key params;")


@test
def an_expression_is_compiled(rig):
    for rules, word in (("idem_set order '#body.id';", "$"), ("idem_set $x 'body.id';", "#"),
                        ("idem_set $x '#body.';", "column"), ("idem_set $x '#body.id +';", "column"),
                        ("idem_set $x '';", ""), ("idem_set $x \"T(java.lang.Runtime)\";", "column"),
                        ("idem_set $x '#nobody.id';", "nobody"), ("idem_set $x;", "idem_set")):
        refused(rig, GOOD + rules + ' idem_key "$http_a";', word)
    accepted(rig, GOOD + "idem_set $x '#body.id'; idem_key $x;")
    accepted(rig, GOOD + "idem_set $x '#{#body.id}-#{#user}'; idem_key $x;")


@test
def a_fingerprint_is_of_parts_or_an_expression(rig):
    refused(rig, GOOD + "idem_fingerprint method bogus;", "method", "path", "query", "body")
    refused(rig, GOOD + "idem_fingerprint;")
    refused(rig, GOOD + "idem_fingerprint none body;")
    refused(rig, GOOD + "idem_fingerprint '#body.';", "column")
    refused(rig, GOOD + "idem_fingerprint method method;")
    for value in ("none", "method", "method path query body", "body", "'#body.amount'", "'{#body.a, #body.b}'"):
        accepted(rig, GOOD + f"idem_fingerprint {value};")


@test
def guarded_methods_change_something(rig):
    for value in ("GET", "HEAD", "OPTIONS", "TRACE", "CONNECT", "POST GET", "post", "P0ST", "A/B", "POST POST", "''", ""):
        refused(rig, GOOD + f"idem_methods {value};" if value else GOOD + "idem_methods;",
                *(("POST", "PUT", "PATCH", "DELETE") if value else ()))
    for value in ("POST", "POST PUT PATCH DELETE", "DELETE", "FOO", "QUERY REPORT", "LOCK X-UN_KNOWN", "POSTS POST"):
        accepted(rig, GOOD + f"idem_methods {value};")


@test
def times_have_a_unit_and_a_range(rig):
    for name, bad, good in (
            ("ttl", ("0", "10", "0s", "3651d", "1x", "-1s", "500ms", "''", "99999999999999999999d"), ("1s", "24h", "3650d", "2h30m")),
            ("hold_ttl", ("10", "0s", "3651d", "none"), ("1s", "30d")),
            ("lease", ("99ms", "25h", "30", "none"), ("100ms", "30s", "24h")),
            ("run_max", ("0s", "3651d", "5"), ("1ms", "10m", "none")),
            ("wait", ("2h", "61m", "5", "0s"), ("1ms", "1h", "none")),
            ("finish_timeout", ("0s", "2h", "10"), ("1ms", "1h")),
            ("backoff", ("5m..1s", "8d", "1s..8d", "1s..", "..1s", "1", "x"), ("1s", "1s..5m", "1ms..7d"))):
        for value in bad:
            refused(rig, GOOD + f"idem_{name} {value};", f"idem_{name}")
        for value in good:
            accepted(rig, GOOD + f"idem_{name} {value};")


@test
def what_is_allowed_is_said(rig):
    for name, value, words in (
            ("recover", "maybe", ("hold", "rerun")), ("on_failure", "x", ("release", "retry", "keep")),
            ("on_duplicate", "x", ("error", "success")), ("on_store_error", "x", ("closed", "open")),
            ("ttl", "0s", ("1s", "3650d")), ("lease", "1ms", ("100ms", "24h")),
            ("wait", "2h", ("1ms", "1h")), ("attempts", "0", ("1", "1000000")),
            ("result_max", "65M", ("64MiB",)), ("json_max", "0", ("64MiB",)),
            ("finish_timeout", "2h", ("1ms", "1h"))):
        refused(rig, GOOD + f"idem_{name} {value};", f"idem_{name}", *words)


@test
def numbers_and_sizes_have_a_range(rig):
    for name, bad, good in (
            ("attempts", ("0", "1000001", "x", "-1", "1.5"), ("1", "5", "1000000", "none")),
            ("result_max", ("0", "65M", "1x", "-1", "x"), ("1", "64k", "1M", "64MiB")),
            ("json_max", ("0", "65M", "x"), ("1", "1MiB", "64M"))):
        for value in bad:
            refused(rig, GOOD + f"idem_{name} {value};", f"idem_{name}")
        for value in good:
            accepted(rig, GOOD + f"idem_{name} {value};")


@test
def words_are_those_of_the_table(rig):
    for name, good in (("recover", ("hold", "rerun")), ("on_failure", ("release", "retry", "keep")),
                       ("on_duplicate", ("error", "success")), ("on_store_error", ("closed", "open"))):
        for value in ("", "X", good[0].upper(), good[0] + "x"):
            refused(rig, GOOD + f"idem_{name} '{value}';", f"idem_{name}", *good)
        refused(rig, GOOD + f"idem_{name};")
        refused(rig, GOOD + f"idem_{name} {good[0]}; idem_{name} {good[0]};", "duplicate")
        for value in good:
            accepted(rig, GOOD + f"idem_{name} {value};")


@test
def a_message_is_short_text(rig):
    refused(rig, GOOD + "idem_message '';", "idem_message")
    refused(rig, GOOD + f"idem_message {'x' * 1025};", "idem_message")
    accepted(rig, GOOD + f"idem_message {'x' * 1024};")
    accepted(rig, GOOD + 'idem_message "Noch einmal? \u2603";')


@test
def releasing_statuses_are_statuses(rig):
    for value in ("99", "600", "abc", "200x", "", "401 x"):
        refused(rig, GOOD + f"idem_release_status {value};")
    accepted(rig, GOOD + "idem_release_status 401 429 503;")


@test
def headers_that_must_not_be_replayed_are_refused(rig):
    for name in ("Set-Cookie", "set-cookie", "Connection", "Transfer-Encoding", "Keep-Alive", "Upgrade", "TE",
                 "Trailer", "Proxy-Authenticate", "Proxy-Authorization"):
        refused(rig, GOOD + f"idem_replay_headers {name};", name)
    refused(rig, GOOD + "idem_replay_headers X-A Set-Cookie;", "Set-Cookie")
    refused(rig, GOOD + "idem_replay_headers 'X A';")
    refused(rig, GOOD + "idem_replay_headers;")
    refused(rig, GOOD + "idem_replay_headers X-A none;", "none", "allowed")
    refused(rig, GOOD + "idem_replay_headers none X-A;", "none", "allowed")
    accepted(rig, GOOD + "idem_replay_headers X-Request-Id X-RateLimit-Limit;")
    accepted(rig, GOOD + "idem_replay_headers none;")


@test
def enforcement_is_a_switch_or_a_value(rig):
    refused(rig, GOOD + "idem_enforce;")
    refused(rig, GOOD + "idem_enforce $no_such_variable;", "no_such_variable", line=False)  # nginx's own message
    refused(rig, GOOD + "idem_enforce maybe;", "on", "off")
    for value in ("on", "off", "$http_x_enforce"):
        accepted(rig, GOOD + f"idem_enforce {value};")


@test
def a_lock_has_no_result_and_no_hold(rig):
    for rules in ("idem_recover hold;", "idem_fingerprint method;", "idem_result_max 1k;"):
        refused(rig, "idem lock; idem_prefix p:; " + rules, "lock")
    accepted(rig, "idem lock; idem_prefix p:;")
    accepted(rig, "idem lock; idem_prefix p:; idem_recover rerun; idem_fingerprint none;")
    # Rules of an outer level do not contradict the lock.
    accepted(rig, "idem lock; idem_prefix p:;", server="idem_recover hold; idem_result_max 1k;")


@test
def a_guarded_location_needs_a_content_handler(rig):
    for to in ("return 200;", ""):
        code, said = try_conf(rig, f"location /x {{ {GOOD} {to} }}")
        check(code != 0 or "[warn]" in said, f"neither refused nor explained: {said}")
        check("return" in said and re.search(r"nginx\.conf:\d+", said), said)
    accepted(rig, "idem off; return 204;", to="", server="idem replay; idem_prefix p:;")


@test
def a_guard_and_unbuffered_requests_exclude_each_other(rig):
    refused(rig, GOOD + "proxy_request_buffering off;", "proxy_request_buffering")
    refused(rig, GOOD + "fastcgi_request_buffering off;", "request_buffering", to="fastcgi_pass @FASTCGI@;")
    refused(rig, GOOD + "uwsgi_request_buffering off;", "request_buffering", to="uwsgi_pass @UWSGI@;")
    accepted(rig, "idem off; proxy_request_buffering off;")
    # The directive of another handler does not matter if the handler is known.
    accepted(rig, GOOD, to="fastcgi_pass @FASTCGI@;", http="proxy_request_buffering off;")
    accepted(rig, GOOD, http="uwsgi_request_buffering off;")


@test
def a_guard_and_a_second_upstream_exclude_each_other(rig):
    for kind, to in (("proxy", TO), ("fastcgi", "fastcgi_pass @FASTCGI@;"), ("uwsgi", "uwsgi_pass @UWSGI@;"),
                     ("scgi", "scgi_pass @UWSGI@;"), ("proxy", "proxy_pass http://$http_x;"),
                     ("fastcgi", "fastcgi_pass $http_x;"), ("uwsgi", "uwsgi_pass $http_x;"),
                     ("scgi", "scgi_pass $http_x;")):
        refused(rig, GOOD + f"{kind}_next_upstream error non_idempotent;", "non_idempotent", to=to)
        accepted(rig, GOOD + f"{kind}_next_upstream error timeout http_500;", to=to)


@test
def grpc_is_not_guarded(rig):
    refused(rig, GOOD, "grpc_pass", "idem off", to="grpc_pass grpc://@BACKEND@;")
    accepted(rig, "idem off;", to="grpc_pass grpc://@BACKEND@;", server="idem replay; idem_prefix p:;")


@test
def body_expressions_are_not_known_in_the_rewrite_phase(rig):
    for rules in ("if ($o) { set $a 1; }", "set $a $o;", "rewrite ^ /y?$o last;"):
        code, said = try_conf(rig, f"location /x {{ {GOOD} idem_set $o '#body.id'; idem_key $o; {rules} {TO} }}")
        check(code != 0 or "[warn]" in said, f"neither refused nor explained: {rules}\n{said}")
        check("$o" in said or "idem_set" in said or "body" in said, said)


@test
def a_doubtful_life_time_is_warned_of(rig):
    accepted(rig, "idem reject; idem_prefix p:; idem_ttl 5s;", warns="idem_ttl")
    accepted(rig, "idem reject; idem_prefix p:; idem_ttl 10m;")


@test
def a_store_that_the_workers_cannot_open_is_warned_of(rig):
    """root can open every directory, and the workers then answer 503."""
    if os.geteuid() != 0:
        raise Skip("only root starts workers that are another user")
    os.chmod(rig.folder, 0o755)  # the way to the stores below

    def directory(name, mode, owner=0):
        path = os.path.join(rig.folder, name)
        os.makedirs(path)
        os.chmod(path, mode)
        os.chown(path, owner, owner)
        return path
    theirs, roots = directory("theirs", 0o700, pwd.getpwnam("www-data").pw_uid), directory("roots", 0o700)

    def warned(path, user="www-data"):
        keep = rig.conf
        try:
            rig.conf = rig.write(f"location /x {{ {GOOD} {TO} }}", "", "", "", f"idem_store lmdb:{path}; idem_scope none;")
            with open(rig.conf, "r+", encoding="utf-8") as file:
                text = file.read().replace("user root;", f"user {user};")
                text = re.sub(r"(error_log \S+) \w+;", r"\1;", text)  # Debian's level is error
                file.seek(0)
                file.truncate()
                file.write(text)
            code, said = rig.check()
        finally:
            rig.conf = keep
        eq(code, 0, said)
        return [line for line in said.splitlines() if "cannot open this directory" in line]
    mixed = directory("mixed", 0o700, pwd.getpwnam("www-data").pw_uid)
    with open(mixed + "/data.mdb", "wb"):
        os.chmod(mixed + "/data.mdb", 0o600)
    for path in (roots, mixed, roots + "/below", theirs + "/two/levels"):
        lines, remedy = warned(path), "chown -R" if path in (roots, mixed) else "install -d -m 700 -o"
        check(len(lines) == 1 and f"{remedy} www-data '{path}'" in lines[0] and "[warn]" in lines[0], f"{path}: {lines}")
    for path in (theirs, theirs + "/below"):
        eq(warned(path), [], path)
    eq(warned(roots, user="root"), [], "the workers are root")


@test
def a_probe_is_a_uri(rig):
    refused(rig, GOOD + "idem_probe;")
    refused(rig, GOOD + "idem_probe 'no-slash';", "idem_probe", "allowed", "off")
    refused(rig, GOOD + "idem_probe '';", "idem_probe", "allowed", "off")
    refused(rig, GOOD + "idem_probe off; idem_probe /p;", "duplicate")
    accepted(rig, GOOD + "idem_probe off;")
    refused(rig, GOOD + "idem_probe /p/$no_such_variable;", "no_such_variable", line=False)  # nginx's own message
    accepted(rig, GOOD + 'idem_probe "/probe/$idem_key_hash";')
    refused(rig, GOOD + "idem_probe /p type=text/plain;", "tx")
    refused(rig, GOOD + "idem_probe off tx;", "tx")


@test
def a_probe_of_rows_needs_the_database_that_has_them(rig):
    for url in ("lmdb:/nowhere", "redis://localhost"):
        refused(rig, GOOD + f"idem_store {url}; idem_probe tx;", "idem_probe tx", "postgres:", "mysql:")
    sql = GOOD + "idem_store postgres://u@localhost/d;"
    refused(rig, sql + "idem_probe tx; idem_key token;", "idem_probe tx", "token")
    for more in ("text/plain", "type=", "'type=text/plain\n'", "a b"):
        refused(rig, sql + f"idem_probe tx {more};", line=False)
    refused(rig, sql + "idem_probe tx; idem_probe tx;", "duplicate")
    for url in ("postgres://u@localhost/d", "mysql://u@localhost/d"):
        accepted(rig, GOOD + f"idem_store {url}; idem_probe tx;")
        accepted(rig, GOOD + f"idem_store {url}; idem_probe tx 'type=text/plain; charset=utf-8';")
    accepted(rig, GOOD + "idem_store lmdb:/nowhere; idem_probe off;", server="idem_probe tx;")
    accepted(rig, GOOD + "idem_store lmdb:/nowhere; idem_probe /p;", server="idem_probe tx;")


@test
def a_probe_that_needs_the_request_is_warned_of(rig):
    for uri in ("/s/$arg_id", "/s/${http_x_order}", "/s/$idem_key_hash/$request_id"):
        accepted(rig, f'idem replay; idem_prefix x:; idem_probe "{uri}";', warns="uses the request")
        accepted(rig, f'idem replay; idem_prefix x:; idem_probe "{uri}"; idem_enforce off;')  # unused there
    for uri in ("/s", "/s/$idem_downstream_key", "/s?h=${idem_key_hash}&n=$idem_attempt"):
        accepted(rig, f'idem replay; idem_prefix x:; idem_probe "{uri}";')


@test
def values_are_inherited_and_overridden(rig):
    accepted(rig, "idem_ttl 1h;", server="idem replay; idem_prefix p:; idem_ttl 2h; idem_wait 3s;",
             http="idem_recover hold; idem_message hello; idem_methods POST; idem_release_status 429;"
                  " idem_replay_headers X-A; idem_fingerprint body; idem_key header=X-K; idem_label $uri;"
                  " idem_enforce on; idem_json_max 1k;")
    accepted(rig, "idem_wait none;", server="idem_preset submit; idem_prefix p:; idem_scope $http_x_user;")


@test
def a_label_is_a_value_or_off(rig):
    refused(rig, GOOD + "idem_label;")
    refused(rig, GOOD + "idem_label off; idem_label $uri;", "duplicate")
    refused(rig, GOOD + "idem_label $no_such_variable;", "no_such_variable", line=False)  # nginx's own message
    for value in ("off", "$uri", "'order $arg_id'"):
        accepted(rig, GOOD + f"idem_label {value};")


OUTER = ("idem_preset submit; idem_prefix outer:; idem_scope $http_x_user; idem_key header=X-K optional;"
         " idem_fingerprint method; idem_methods PUT; idem_ttl 1h; idem_hold_ttl 1d; idem_lease 5s; idem_run_max 1s;"
         " idem_wait 1s; idem_recover rerun; idem_on_failure retry; idem_attempts 3; idem_backoff 1s..2s;"
         " idem_on_duplicate success; idem_message outer; idem_on_store_error open; idem_result_max 1k;"
         " idem_finish_timeout 1s; idem_json_max 1k; idem_probe /_status; idem_release_status 404;"
         " idem_replay_headers X-Outer; idem_label $http_x_label; idem_enforce off;")
UNDONE = ("idem replay; idem_prefix inner:; idem_scope none; idem_key header=Idempotency-Key;"
          " idem_fingerprint method path query body; idem_methods POST PATCH; idem_ttl 24h; idem_hold_ttl 30d;"
          " idem_lease 30s; idem_run_max none; idem_wait none; idem_recover hold; idem_on_failure release;"
          " idem_attempts none; idem_backoff 1s..5m; idem_on_duplicate error; idem_message inner;"
          " idem_on_store_error closed; idem_result_max 1M; idem_finish_timeout 10s; idem_json_max 1M; idem_probe off;"
          " idem_release_status 401 429; idem_replay_headers none; idem_label off; idem_enforce on;")


def is_stored(rig, text):
    """Returns true if a record contains the text, unencoded."""
    if STORE in ("postgres", "mysql"):
        equal = f"convert_to('{text}', 'UTF8')" if STORE == "postgres" else f"'{text}'"
        return rig.server.ask(f"SELECT count(*) FROM idem_record WHERE label = {equal}") != "0"
    if STORE != "redis":
        with open(rig.folder + "/store/data.mdb", "rb") as file:
            return text.encode() in file.read()
    script = ("local n = 0 for _, k in ipairs(redis.call('KEYS', '*')) do if redis.call('TYPE', k).ok == 'string'"
              " and string.find(redis.call('GET', k), ARGV[1], 1, true) then n = n + 1 end end return n")
    return rig.redis.ask("EVAL", script, 0, text) != 0


@test
def what_an_outer_level_says_can_be_undone_inside(rig):
    """Each rule is undone, as the effects in the inner location show."""
    with Rig(f"location /o {{ {OUTER} {TO} location /o/i {{ {UNDONE} {TO} }}"
             f" location /o/on {{ idem_enforce on; idem_recover hold; idem_methods POST; {TO} }} }}"
             "location = /_status { internal; proxy_pass http://@BACKEND@; proxy_pass_request_body off;"
             " proxy_set_header Content-Length ''; }") as other:
        key, label = fresh(), fresh("label")
        do = {"headers": [["X-Outer", "yes"]]}
        first = status(other.post("/o/i", key, do=do, headers=[("X-Label", label)]), 200)
        again = replay_of(first, other.post("/o/i", key, do=do))
        eq((first.h("X-Outer"), again.h("X-Outer")), ("yes", None), "a header that is not replayed any more")
        check(not is_stored(other, label), "no label is stored")
        eq(status(other.post("/o/i", key, body=b"other"), 422, "mismatch").problem["detail"], "inner")
        status(other.post("/o/i"), 400, "key-missing")
        status(other.post("/o/i", fresh(), do={"status": 404}), 404)
        gone = fresh()
        status(other.post("/o/i", gone, do={"fault": "close"}), 502)
        status(other.post("/o/i", gone), 409, "uncertain")
        eq(other.backend.requests(path="/_status"), [], "probes")
        # The rules that are not undone still apply.
        headers = [("X-K", fresh()), ("X-Label", label)]
        first = status(other.post("/o/on", do=do, headers=headers, user="u"), 200)
        eq(replay_of(first, other.post("/o/on", do=do, headers=headers, user="u")).h("X-Outer"), "yes")
        check(is_stored(other, label), "the label is stored")
        headers = [("X-K", fresh())]
        status(other.post("/o/on", do={"fault": "close"}, headers=headers, user="u"), 502)
        other.backend.script("/_status", {"body": "found"})
        eq(status(other.post("/o/on", headers=headers, user="u"), 200).body, b"found")


@test
def every_directive_may_stand_in_every_place(rig):
    every = ("idem replay; idem_prefix p:; idem_preset api; idem_key header=X; idem_fingerprint body; idem_methods POST;"
             " idem_ttl 1h; idem_hold_ttl 1d; idem_lease 5s; idem_run_max 1m; idem_wait 1s; idem_recover hold;"
             " idem_on_failure retry; idem_attempts 3; idem_backoff 1s..2s; idem_on_duplicate success;"
             " idem_message m; idem_on_store_error open; idem_result_max 1k; idem_finish_timeout 1s;"
             " idem_json_max 1k; idem_probe /p; idem_release_status 429; idem_replay_headers X-A;"
             " idem_label $uri; idem_enforce off;")
    accepted(rig, every)
    code, said = try_conf(rig, f"location /x {{ {TO} }}", server=every.replace("idem replay;", "idem reject;"))
    check(code == 0, said)
    code, said = try_conf(rig, f"location /x {{ {TO} }}", http=every)
    check(code == 0 or "rig-is-up" in said or "return" in said, said)


@test
def a_variable_is_unknown_no_longer(rig):
    accepted(rig, GOOD + "add_header X-V $idem_verdict-$idem_key_hash-$idem_attempt-$idem_time;")


@test
def a_token_that_a_lock_gives_back_is_told_of(rig):
    accepted(rig, "idem lock; idem_prefix p:; idem_key token;", warns="as often as it comes")
    accepted(rig, "idem reject; idem_ttl 1h; idem_prefix p:; idem_key token;")


@test
def a_location_that_issues_tokens_does_nothing_else(rig):
    accepted(rig, "idem_token; idem_prefix p:;", to="")
    accepted(rig, "idem_token; idem_prefix p:; location /x/y { proxy_pass http://@BACKEND@; }", to="")
    refused(rig, GOOD + "idem_token;", "idem_token", "proxy_pass", '"/x"')  # the location would be unguarded
    refused(rig, "idem_js; idem_token; idem_prefix p:;", "idem_token", to="idem_js;")


if __name__ == "__main__":
    main(guard("/replay", "idem replay;"))
