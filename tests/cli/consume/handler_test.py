#!/usr/bin/env python3
"""The results of handlers, and the fate of the message: programs, workers that stay, endpoints. Prints TAP."""
import sys

sys.dont_write_bytecode = True
import ports
from endpoint import Endpoint
from frame import *
from rig import *


def letter_of(queue):
    until(f"a letter in {queue.dead}", queue.dead_count)
    return queue.letters()[0]


# Programs.


@test
def a_poison_message_is_dead_after_its_attempts_and_others_go_on(rig):
    queue, effects, store = rig.queue(), rig.effects(), rig.lmdb()
    poison, good = rig.key(), [rig.key() for _ in range(5)]
    command = f'{effects.line()}; [ "$IDEM_KEY" != {poison} ] || {{ echo "the reason" >&2; exit 1; }}'
    consumer = rig.consume(queue, *FAST, "--attempts", 3, "--exec", command, store=store)
    queue.publish(poison, {"tenant": "north"}, "id-1")
    for key in good:
        queue.publish(key)
    letter = letter_of(queue)
    settled(queue, consumer)
    eq(effects.attempts(poison), [1, 2, 3], "its attempts")
    eq(sorted(k for k in effects.keys() if k != poison), sorted(good), "the effects of the others")
    check(json.loads(letter.body)["id"] == poison and letter.headers["tenant"] == "north", letter)
    eq({name: letter.headers["idem-" + name] for name in ("verdict", "attempts", "status", "queue")},
       {"verdict": "dead", "attempts": "3", "status": "1", "queue": queue.name}, "the letter's reason")
    check("exit status 1" in letter.headers["idem-reason"] and letter.headers["idem-dead-at"], letter)
    eq(consumer.sum()["dead"], 1, "the count")
    check(rig.idem("list", "--store", store, "--state", "failed").count("\n") >= 1, "the record is failed")


@test
def a_message_without_a_key_is_dead_at_once_and_says_why(rig):
    queue, effects = rig.queue(), rig.effects()
    consumer = rig.consume(queue, *FAST, "--exec", effects.line())
    queue.publish_bytes(b'{"note": "sesame"}')
    queue.publish_bytes(b"\xff\xfe no text sesame")
    queue.publish_bytes(b'{"id": null}')
    until("three letters", lambda: queue.dead_count() == 3)
    settled(queue, consumer)
    letters = queue.letters()
    eq([(l.headers["idem-verdict"], l.headers["idem-attempts"]) for l in letters], [("key", "0")] * 3, "letters")
    check(all(l.headers["idem-reason"] for l in letters), letters)
    eq(effects.all(), [], "effects")


@test
def the_same_key_with_another_body_is_parked(rig):
    queue, effects, key = rig.queue(), rig.effects(), rig.key()
    consumer = rig.consume(queue, *FAST, "--exec", effects.line(), key="header:idempotency-key")
    for body in (b'{"sesame": 1, "b": [2]}', b'{"b":[2],"sesame":1}', b'{"sesame": 2}'):
        queue.publish_bytes(body, {"Idempotency-Key": key})
    letter = letter_of(queue)
    settled(queue, consumer)
    eq(letter.headers["idem-verdict"], "mismatch", "the verdict")
    eq(letter.body, b'{"sesame": 2}', "the one that is parked")
    eq((effects.keys(), consumer.sum()["duplicates"]), ([key], 1), "effects, and duplicates")


@test
def a_handler_that_segfaults_counts_and_ends_among_the_dead(rig):
    queue, effects, key = rig.queue(), rig.effects(), rig.key()
    consumer = rig.consume(queue, *FAST, "--attempts", 2, "--exec", f"{effects.line()}; kill -SEGV $$")
    queue.publish(key)
    letter = letter_of(queue)
    settled(queue, consumer)
    eq(effects.attempts(key), [1, 2], "its attempts")
    eq((letter.headers["idem-verdict"], letter.headers["idem-attempts"]), ("dead", "2"), "the letter")
    consumer.wait_for(r"run unknown record=.*attempt=1 .*then=delay .*signal 11")


@test
def a_handler_that_segfaults_under_hold_is_uncertain(rig):
    queue, effects, key = rig.queue(), rig.effects(), rig.key()
    consumer = rig.consume(queue, *FAST, "--recover", "hold", "--exec", f"{effects.line()}; kill -SEGV $$")
    queue.publish(key)
    letter = letter_of(queue)
    settled(queue, consumer)
    eq(effects.attempts(key), [1], "its attempts")
    eq(letter.headers["idem-verdict"], "uncertain", "the letter")


@test(slow=True)
def a_handler_that_takes_several_leases_keeps_its_own(rig):
    queue, effects, store, key = rig.queue(), rig.effects(), rig.lmdb(), rig.key()
    clock, gate, begun, minutes = rig.lease_clock(), rig.gate(), f"{rig.folder}/{rig.fresh('begun')}", 10
    flags = ["--lease", f"{minutes}m", "--backoff", "500ms..500ms", "--exec", f"touch {begun}; {gate.wait()}; {effects.line()}"]
    first = rig.consume(queue, *flags, "--consumer", "one", store=store, env=clock.env())
    second = rig.consume(queue, *flags, "--consumer", "two", store=store, env=clock.env())
    for consumer in (first, second):
        consumer.wait_for(r"connected to")
    queue.publish(key)
    queue.publish(key)
    until("it is handled", lambda: os.path.exists(begun))

    def is_renewed():
        shown = rig.idem("list", "--json", "--store", store, env=clock.env())
        return int(re.search(r'"left_ms":\s*(\d+)', shown).group(1)) > minutes * 60000 * 3 / 4
    for _ in range(4):  # each takes half a lease
        clock.advance(minutes * 30, first, second)
        until("it is renewed", is_renewed)
    gate.open()
    effects.wait(1)
    until("the other one is a duplicate", lambda: first.has("duplicate record=") or second.has("duplicate record="))
    settled(queue, first, second)
    eq((first.sum()["lost"], second.sum()["lost"]), (0, 0), "leases lost")
    eq(effects.all(), [[key, "1"]], "effects")


@test(kinds="all", slow=True)
def a_burst_of_duplicates_of_one_that_is_handled_is_settled(rig):
    queue, effects, key = rig.queue(), rig.effects(), rig.key()
    gate = rig.gate()
    consumer = rig.consume(queue, "--exec", f"{gate.wait()}; {effects.line()}")
    for _ in range(30):  # many more messages than it has in hand
        queue.publish(key)
    until("more were fetched than it keeps in hand", lambda: consumer.told("fetched") >= 15)
    gate.open()
    until("the others are duplicates", lambda: consumer.told("duplicates") == 29)
    settled(queue, consumer)
    eq(effects.all(), [[key, "1"]], "effects")


@test
def exit_statuses_mean_what_on_exit_says(rig):
    queue, effects = rig.queue(), rig.effects()
    command = f'{effects.line()}; [ $IDEM_ATTEMPT -ge 2 ] && exit 0; exit $(echo "$IDEM_KEY" | sed "s/.*x//")'
    consumer = rig.consume(queue, *FAST, "--on-exit", "65=dead,3=done,4=unknown,*=dead", "--exec", command)
    keys = {status: f"{rig.key()}x{status}" for status in (0, 3, 4, 65, 75, 9)}
    for key in keys.values():
        queue.publish(key)
    effects.wait(8)
    until("two letters", lambda: queue.dead_count() == 2)
    settled(queue, consumer)
    eq({status: len(effects.attempts(key)) for status, key in keys.items()}, {0: 1, 3: 1, 4: 2, 65: 1, 75: 2, 9: 1},
       "attempts")
    eq(sorted(l.headers["idem-status"] for l in queue.letters()), ["65", "9"], "statuses of letters")


@test
def a_program_gets_the_body_and_what_is_known_of_the_message(rig):
    queue, key = rig.queue(), rig.key()
    got = f"{rig.folder}/{rig.fresh('got')}"
    consumer = rig.consume(queue, *FAST, "--exec", f"env | grep ^IDEM_ >{got}.env; cat >{got}")
    body = json.dumps({"id": key, "text": "no\u0000thing\n", "n": 12345678901234567890}).encode() + b"\n"
    queue.publish_bytes(body, {"tenant": "north", "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
                        "id-9")
    consumer.wait_for(r"run done record=[0-9a-f]+ attempt=1 trace=4bf92f3577b34da6a3ce929d0e0e4736 took=")
    consumer.stop()
    with open(got, "rb") as file:
        eq(file.read(), body, "the body")
    with open(got + ".env", encoding="utf-8") as file:
        env = dict(line.rstrip("\n").split("=", 1) for line in file)
    eq((env["IDEM_KEY"], env["IDEM_ATTEMPT"], env["IDEM_QUEUE"], env["IDEM_TRACE"]),
       (key, "1", queue.name, "4bf92f3577b34da6a3ce929d0e0e4736"), "variables")
    eq(json.loads(env["IDEM_HEADERS"])["tenant"], "north", "a header")
    if rig.broker.name == "rabbit":
        eq((json.loads(env["IDEM_PROPERTIES"])["message_id"], env["IDEM_MESSAGE_ID"]), ("id-9", "id-9"), "its id")
    check(re.fullmatch(r"[0-9a-f]{64}", env["IDEM_KEY_HASH"]), env)
    check(not any(rig.broker.password in v or redistcp.PASSWORD in v for v in env.values()), "no password in it")


# Long-lived workers.

WORKER = """
import json, os, sys
path = sys.argv[1]
for line in sys.stdin:
    message = json.loads(line)
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.write(fd, f"{message['key']} {message['attempt']} {os.getpid()}\\n".encode())
    os.close(fd)
    do = json.loads(message["body"]).get("do", {}) if message["attempt"] == 1 else {}
    if do.get("die"):
        os._exit(3)
    answer = {"id": message["id"], "result": "done", **do.get("say", {})}
    print(do.get("line") or json.dumps(answer), flush=True)
"""


@test
def workers_stay_and_say_what_becomes_of_each_message(rig):
    queue, effects = rig.queue(), rig.effects()
    script = f"{rig.folder}/{rig.fresh('worker')}.py"
    with open(script, "w", encoding="utf-8") as file:
        file.write(WORKER)
    consumer = rig.consume(queue, *FAST, "--exec-jsonl", f"exec {sys.executable} {script} {effects.path}")
    dos = {"done": {}, "retry": {"say": {"result": "retry", "delay": "1s", "reason": "closed"}},
           "dead": {"say": {"result": "dead", "reason": "no such thing", "status": 7}},
           "unknown": {"say": {"result": "unknown"}}, "die": {"die": True}, "odd": {"line": "what?"},
           "other": {"say": {"id": 99}}}
    keys = {name: rig.key() for name in dos}
    began = time.monotonic()
    for name, do in dos.items():
        queue.publish(keys[name], do=do)
    effects.wait(12)
    until("a letter", queue.dead_count)
    check(time.monotonic() - began >= 1, "the delay was kept")
    last = rig.key()
    queue.publish(last)
    effects.wait(13)
    consumer.wait_for(r"run done", times=7)
    settled(queue, consumer)
    eq({name: effects.attempts(key) for name, key in keys.items()},
       {"done": [1], "retry": [1, 2], "dead": [1], "unknown": [1, 2], "die": [1, 2], "odd": [1, 2], "other": [1, 2]},
       "attempts")
    workers = [pid for _, _, pid in effects.all()]
    check(4 <= len(set(workers)) <= 6, f"three of them were replaced: {workers}")
    letter = queue.letters()[0]
    eq((letter.headers["idem-verdict"], letter.headers["idem-status"], letter.headers["idem-reason"]),
       ("refused", "7", "no such thing"), "the letter")


# Endpoints.


@test
def an_endpoint_gets_the_message_its_key_and_the_attempt(rig):
    queue, key = rig.queue(), rig.key()
    with Endpoint(answers={key: [(503, {}, False)]}) as endpoint:
        consumer = rig.consume(queue, *FAST, "--to", endpoint.url)
        queue.publish(key, {"tenant": "north", "Content-Type": "text/evil", "Idem-Attempt": "77", "Host": "evil"})
        until("two requests", lambda: len(endpoint.of(key)) == 2)
        consumer.wait_for(r"run done .*attempt=2")
        settled(queue, consumer)
        first, second = endpoint.of(key)
    eq((first[1], second[1]), (1, 2), "attempts")
    eq(json.loads(first[2])["id"], key, "the body")
    eq(first[3]["tenant"], "north", "a header of the message")
    eq(len(first[3].get_all("Idem-Attempt")), 1, "headers Idem-Attempt")
    check("evil" not in first[3]["Host"], "the host is the endpoint's")
    check(first[3]["Idem-Downstream-Key"] and first[3]["Idem-Downstream-Key"] == second[3]["Idem-Downstream-Key"],
          "the derived key is the same for each attempt")


@test
def statuses_of_an_endpoint_decide(rig):
    queue = rig.queue()
    keys = {name: rig.key() for name in ("created", "conflict", "missing", "broken", "moved", "gateway", "last")}
    answers = {keys["created"]: [(201, {}, False)], keys["conflict"]: [(409, {"Retry-After": "2"}, False)],
               keys["missing"]: [(404, {}, False)], keys["broken"]: [(500, {}, False)],
               keys["moved"]: [(302, {"Location": "http://127.0.0.1:9/"}, False)],
               keys["gateway"]: [(502, {}, False)], keys["last"]: [(500, {}, False)] * 3}
    with Endpoint(answers=answers) as endpoint:
        consumer = rig.consume(queue, *FAST, "--attempts", 3, "--workers", 4, "--to-timeout", "2m", "--to", endpoint.url)
        for key in keys.values():
            queue.publish(key)
        until("three letters", lambda: queue.dead_count() == 3)
        until("each has come", lambda: len(endpoint.seen) == 12)
        consumer.wait_for(r"run done", times=4)
        settled(queue, consumer)
        attempts = {name: [s[1] for s in endpoint.of(key)] for name, key in keys.items()}
        when = [s[4] for s in endpoint.of(keys["conflict"])]
    eq(attempts, {"created": [1], "conflict": [1, 2], "missing": [1], "broken": [1, 2], "moved": [1], "gateway": [1, 2],
                  "last": [1, 2, 3]}, "attempts")
    check(when[1] - when[0] >= 1.9, f"Retry-After: 2 was {when[1] - when[0]:.2f} s")
    eq(sorted((l.headers["idem-status"], l.headers["idem-verdict"]) for l in queue.letters()),
       [("302", "refused"), ("404", "refused"), ("500", "dead")], "letters")
    consumer.wait_for(r"run unknown record=.*then=(delay|hold)")


@test
def an_endpoint_that_is_too_slow_leaves_it_unknown_and_is_asked_again(rig):
    queue, key = rig.queue(), rig.key()
    with Endpoint(answers={key: [(200, {}, True)]}) as endpoint:
        # A busy machine may be as slow: then the request is repeated.
        consumer = rig.consume(queue, *FAST, "--attempts", 100, "--to-timeout", "1s", "--to", endpoint.url)
        queue.publish(key)
        consumer.wait_for(r"run unknown record=.*attempt=1 .*then=(delay|hold)")
        consumer.wait_for(r"run done record=.*attempt=([2-9]|\d\d)")
        settled(queue, consumer)
        eq([seen[1] for seen in endpoint.of(key)][:2], [1, 2], "attempts")
    eq(queue.dead_count(), 0, "dead letters")


@test
def on_status_says_otherwise(rig):
    queue, keys = rig.queue(), [rig.key(), rig.key()]
    with Endpoint(answers={keys[0]: [(404, {}, False)], keys[1]: [(500, {}, False)]}) as endpoint:
        consumer = rig.consume(queue, *FAST, "--on-status", "404=retry,5xx=dead", "--to", endpoint.url)
        for key in keys:
            queue.publish(key)
        until("a letter", queue.dead_count)
        until("a retry", lambda: len(endpoint.of(keys[0])) == 2)
        consumer.wait_for(r"run done")
        settled(queue, consumer)
    eq((queue.letters()[0].headers["idem-status"], len(endpoint.of(keys[1]))), ("500", 1), "the dead one")


@test
def an_endpoint_that_is_down_costs_no_attempt(rig):
    queue, key = rig.queue(), rig.key()
    port = ports.free_port()
    consumer = rig.consume(queue, *FAST, "--attempts", 2, "--to", f"http://127.0.0.1:{port}/")
    queue.publish(key)
    consumer.wait_for(r"run unbegun .*then=hold", times=2)
    with Endpoint(port) as endpoint:
        until("it comes", lambda: endpoint.of(key))
        consumer.wait_for(r"run done")
        settled(queue, consumer)
        eq([s[1] for s in endpoint.of(key)], [1], "attempts")
    eq(queue.dead_count(), 0, "dead letters")


@test
def a_program_that_cannot_be_found_is_told_and_costs_what_it_says(rig):
    queue, key = rig.queue(), rig.key()
    consumer = rig.consume(queue, *FAST, "--attempts", 2, "--exec", "/no/such/program")
    queue.publish(key)
    letter = letter_of(queue)
    consumer.stop()
    eq((letter.headers["idem-status"], letter.headers["idem-attempts"]), ("127", "2"), "the letter")


if __name__ == "__main__":
    main()
