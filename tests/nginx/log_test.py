#!/usr/bin/env python3
"""An operator's view of a refusal: one line, its fields in one order, and a hint."""
import json
import re
import sys
import time

sys.dont_write_bytecode = True

import signing
from rig import *
from signing import classic, nonce
from tap import *

SIGN = "idem_sign secret_file=@TEMP@/secrets form=classic;"
LABEL = "idem_label $http_x_label;"
CONF = "".join((
    guard("/replay", f"idem replay; {LABEL}"),
    guard("/reject", "idem reject;"),
    guard("/keep", f"idem reject; idem_on_failure keep; {LABEL}"),
    guard("/token", "idem replay; idem_key token;"),
    guard("/named", "idem reject; idem_label $name;"),
    f"location /signed {{ {SIGN} proxy_pass http://@BACKEND@; }}\n",
    guard("/away", "idem replay; idem_store redis:@TEMP@/nobody.sock;"),
    guard("/closed", "idem replay; idem_store lmdb:@TEMP@/none/store;"),
    guard("/intercepted", "idem replay; proxy_intercept_errors on; error_page 500 = @second;"),
    guard("@second", "idem replay;", prefix="intercepted:"),
    guard("/unsigned", "idem replay; proxy_intercept_errors on; error_page 500 = @signed;"),
    f"location @signed {{ {SIGN} proxy_pass http://@BACKEND@; }}\n",
    guard("/twice", "idem replay; proxy_intercept_errors on; error_page 502 = @twice;", to="proxy_pass http://@REFUSED@;"),
    "location @twice { proxy_next_upstream error non_idempotent; proxy_pass http://@BACKEND@; }\n",
))
VALUE = r'"(?:[^"\\]|\\["\\]|\\x[0-9a-f]{2})*"|[A-Za-z0-9._:/@+-]+'
LINE = re.compile(r"\[(\w+)\] \S+ \S+ idem: refused ([a-z-]+): (.*?)((?: (?:record|prefix|label|attempt|route|reason|do)="
                  rf"(?:{VALUE}))+)(?:, client: .*)?$")
ORDER = ["record", "prefix", "label", "attempt", "route", "reason", "do"]


def lines(rig, kind):
    return [m for m in map(LINE.search, rig.said().splitlines()) if m and m[2] == kind]


def told(rig, kind, ask, level):
    """Returns the log line about the request of `ask`, as (words, fields)."""
    before = len(lines(rig, kind))
    answer = ask()
    eq(answer.type, kind)
    found = until("the line", lambda: lines(rig, kind)[before:])
    eq(len(found), 1, "lines about one refusal")
    eq(found[0][1], level, "its level")
    fields = dict(re.findall(rf" (\w+)=({VALUE})", found[0][4]))
    eq([name for name in ORDER if name in fields], list(fields), "the order of its fields")
    fields = {name: re.sub(r'\\(["\\])', r"\1", value[1:-1]) if value[0] == '"' else value
              for name, value in fields.items()}
    check(fields["record"] == "-" or re.fullmatch("[0-9a-f]{64}", fields["record"]), fields)
    check(fields["do"], "what to do")
    eq(fields["route"].split()[0], "localhost", "its server")
    return found[0][3], fields


def sign(**options):
    return classic("POST", "/signed", b"{}", **options)


@test
def a_key_that_is_missing_or_malformed(rig):
    _, fields = told(rig, "key-missing", lambda: rig.post("/replay"), "info")
    eq((fields["record"], fields["prefix"], fields["route"]), ("-", "replay:", "localhost /replay"))
    words, fields = told(rig, "key-malformed", lambda: rig.post("/replay", "a b"), "info")
    eq(words, "malformed key")
    check(fields["reason"], "the fault")


@test
def another_request_under_a_key(rig):
    key = fresh()
    rig.post("/replay", key)
    _, fields = told(rig, "mismatch", lambda: rig.post("/replay", key, body=b"{}"), "warn")
    check("idem_fingerprint" in fields["do"], fields)
    check(f"idem forget --hash {fields['record'][:12]} frees the key" in fields["do"], fields)
    check("idem settle --failed lets only that request run again" in fields["do"], fields)


@test
def a_request_that_is_under_way(rig):
    key, name = fresh(), fresh("hang")
    under_way = rig.later("/reject", key, do={"hang": name})
    rig.backend.reached(name)
    words, fields = told(rig, "in-progress", lambda: rig.post("/reject", key), "info")
    eq((words, fields["attempt"]), ("the first request is still running", "1"))
    rig.backend.go(name)
    under_way.get()


@test
def what_was_done_or_has_failed(rig):
    key = fresh()
    rig.post("/reject", key)
    told(rig, "duplicate", lambda: rig.post("/reject", key), "info")
    key = fresh()
    rig.post("/keep", key, do={"status": 500})
    _, fields = told(rig, "failed", lambda: rig.post("/keep", key), "info")
    check(f"idem forget --hash {fields['record'][:12]}" in fields["do"], fields)


@test
def what_nobody_knows_is_said_with_its_command(rig):
    key, label = fresh(), [("X-Label", "order 7")]
    rig.post("/replay", key, do={"fault": "close"}, headers=label)
    words, fields = told(rig, "uncertain", lambda: rig.post("/replay", key, headers=label), "warn")
    eq(words, "a run vanished, and its outcome is unknown")
    eq((fields["label"], fields["prefix"], fields["attempt"], fields["route"]),
       ("order 7", "replay:", "1", "localhost /replay"))
    check(f"idem settle --hash {fields['record'][:12]} --done, or --failed" in fields["do"], fields)


@test
def a_token_that_was_never_issued(rig):
    token = [("Idempotent-Token", "0" * 32)]
    told(rig, "token-refused", lambda: rig.post("/token", headers=token), "info")


@test
def signatures_that_are_no_good(rig):
    def ask(headers):
        return lambda: rig.post("/signed", body=b"{}", headers=headers)
    told(rig, "signature-incomplete", ask(sign()[:2]), "info")
    told(rig, "signature-stale", ask(sign(at=int(time.time()) - 1000)), "info")
    _, fields = told(rig, "signature-wrong", ask(sign(secret=b"x" * 20)), "warn")
    check("idem verify" in fields["do"] and "prefix" not in fields, fields)
    number = nonce()
    ask(sign(number=number))()
    told(rig, "nonce-reused", ask(sign(number=number)), "warn")


@test
def a_store_that_is_away(rig):
    words, fields = told(rig, "store-unavailable", lambda: rig.post("/away", fresh()), "error")
    eq(words, "the store cannot be asked")
    check("idem doctor" in fields["do"] and "cannot be reached" in fields["reason"], fields)
    eq(rig.said().count("cannot be reached"), 1, "log lines")
    _, fields = told(rig, "store-unavailable", lambda: rig.post("/closed", fresh()), "error")
    check("cannot make the store's directory" in fields["reason"], fields)


@test
def a_hostile_label_stays_one_value(rig):
    for label in ('x" do="rm -rf', "back\\slash", 'a=b record=- c', "\u00e9\u20ac", "\\x0a\\"):
        key, body = fresh(), json.dumps({"name": label}).encode()
        rig.post("/named", key, body=body)
        _, fields = told(rig, "duplicate", lambda key=key, body=body: rig.post("/named", key, body=body), "info")
        eq(fields["label"], label)
        check(fields["do"].startswith("nothing"), fields)


@test
def a_label_with_a_newline_begins_no_line(rig):
    key, body = fresh(), json.dumps({"name": "one\n2026/01/01 [alert] two\x1b[31m"}).encode()
    rig.post("/named", key, body=body)
    _, fields = told(rig, "duplicate", lambda: rig.post("/named", key, body=body), "info")
    eq(fields["label"], "one")
    check("[alert] two" not in rig.said() and "\x1b" not in rig.said(), "the rest of the label is not logged")


@test
def a_uri_with_a_newline_begins_no_line(rig):
    """Some of Idem's log lines name a page, and so contain the client's URI, which nginx has decoded."""
    forged = "/%0a2026/01/01%2000:00:00%20[error]%20forged%e2%80%ae%1b[31m"
    for path, words in (("/intercepted", "not sent to a second backend"), ("/unsigned", "not led on to"),
                        ("/twice", "non_idempotent")):
        rig.post(path + forged, fresh(), do={"status": 500})
        line = until("the line", lambda path=path, words=words: [
            s for s in rig.said().splitlines() if words in s and f'"{path}/?2026' in s])[0]
        check("[error] forged??[31m" in line, line)
    check(not any(line.startswith("2026/01/01") for line in rig.said().splitlines()), "a line of the client's")


@test
def what_nobody_sees_in_a_label_is_escaped(rig):
    """Such characters would reorder the line, or hide words that only programs read."""
    label = "order \u202e7\u200b\u00ad\u2028\U000e0041"
    key, body = fresh(), json.dumps({"name": label}).encode()
    rig.post("/named", key, body=body)
    _, fields = told(rig, "duplicate", lambda: rig.post("/named", key, body=body), "info")
    eq(fields["label"], "".join(c if c.isascii() else "".join(f"\\x{b:02x}" for b in c.encode()) for c in label))


@test
def what_a_backend_says_in_vain_is_logged_without_what_nobody_sees(rig):
    value = "do\u202ene\x1b[31m".encode().decode("latin-1")
    status(rig.post("/replay", fresh(), do={"headers": [["Idem-Outcome", value]]}), 200)
    line = until("the line", lambda: [s for s in rig.said().splitlines() if "the backend's" in s])[0]
    check('"Idem-Outcome": "do?ne?[31m" is not understood' in line, line)


@test
def no_key_is_ever_in_a_line(rig):
    key = fresh("secret")
    rig.post("/replay", key)
    told(rig, "mismatch", lambda: rig.post("/replay", key, body=b"{}"), "warn")
    check(key not in rig.said(), "a key is in the log")


main(CONF, http="idem_set $name '#body.name';", files={"secrets": signing.FILE})
