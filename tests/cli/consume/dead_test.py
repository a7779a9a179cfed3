#!/usr/bin/env python3
"""idem dead list, show and requeue, with letters that idem consume has buried. Prints TAP."""
import sys

sys.dont_write_bytecode = True
from frame import *
from rig import *

FAST = FAST + ["--on-exit", "9=dead"]
ABSENT, UNCERTAIN = 66, 70


class Grave:
    """A queue whose messages are dead, and its store."""

    def __init__(self, rig, n, **more):
        self.rig, self.queue, self.store, self.keys = rig, rig.queue(), rig.lmdb(), [rig.key() for _ in range(n)]
        consumer = rig.consume(self.queue, *FAST, "--exec", "exit 9", store=self.store)
        for key in self.keys:
            self.queue.publish(key, {"tenant": "north"}, **more)
        until(f"{n} letters", lambda: self.queue.dead_count() == n)
        settled(self.queue, consumer)

    def dead(self, *words, status=0):
        return self.look(*words) if words[0] in ("list", "show") and status == 0 else self.ask(*words, status=status)

    def look(self, *words):
        """The command gives up after ten seconds, and a busy machine may stand still for that long, so this tries
        again."""
        def answer():
            try:
                return self.ask(*words)
            except AssertionError as error:
                if "no response in time" not in str(error):
                    raise
                return None
        return until(f"idem dead {words[0]}", answer)

    def ask(self, *words, status=0):
        return self.rig.idem("dead", *words[:1], self.rig.broker.url, "--queue", self.queue.name, "--store", self.store,
                             *words[1:], status=status)

    def holds(self, letters, messages):
        """Messages that were only shown are back in the queue a moment later."""
        until(f"{letters} letters, and {messages} messages", lambda: (self.queue.dead_count(), self.queue.count()) == (letters, messages))

    def numbers(self):
        return [json.loads(line)["number"] for line in self.dead("list", "--json").splitlines()]

    def body(self, n):
        return json.loads(self.dead("show", "--number", n, "--result"))

    def consume(self, effects):
        return self.rig.consume(self.queue, *FAST, "--exec", effects.line(), store=self.store)


@test(kinds="all")
def letters_are_listed_and_shown_and_stay_where_they_are(rig):
    grave = Grave(rig, 3)
    said = grave.dead("list").splitlines()
    eq(len(said), 4, "lines")
    check(re.match(r" +N +AT +VERDICT +TRIES +STATUS +KEY +QUEUE +REASON", said[0]), said[0])
    check(all(re.match(rf" +{n} +\d{{4}}-\d\d-\d\dT\S+Z +refused +1 +9 +[0-9a-f]{{12}} +\S+ +exit status 9", line)
              for n, line in enumerate(said[1:], 1)), said)
    for _ in range(2):
        eq(grave.numbers(), [1, 2, 3], "numbers")
        eq([grave.body(n)["id"] for n in (1, 2, 3)], grave.keys, "their order")
    shown = grave.dead("show", "--number", 2)
    check("tenant: north" in shown and "idem-verdict: refused" in shown and MARK not in shown, shown)
    told = json.loads(grave.dead("show", "--number", 3, "--json"))
    eq((told["number"], told["headers"]["idem-queue"], json.loads(told["body"])["id"]),
       (3, grave.queue.name, grave.keys[2]), "as JSON")
    until("all of them are there again", lambda: grave.queue.dead_count() == 3)


@test(kinds="all")
def two_looks_in_a_row_see_the_same(rig):
    grave = Grave(rig, 5)
    for _ in range(15):
        eq(grave.numbers(), [1, 2, 3, 4, 5], "numbers")


@test
def what_is_not_there_is_said(rig):
    grave, nobody = Grave(rig, 1), rig.queue(dead=False)
    check("none of number 2" in grave.dead("show", "--number", 2, status=ABSENT), "a number too high")
    said = rig.idem("dead", "list", rig.broker.url, "--queue", nobody.name, status=ABSENT)
    check(nobody.dead in said and "no dead letters" in said, said)
    rig.idem("dead", "list", rig.broker.at(1), "--queue", nobody.name, status=69)


@test(kinds="all")
def one_is_requeued_and_handled_as_if_it_were_new(rig):
    grave, effects = Grave(rig, 3), rig.effects()
    got = f"{rig.folder}/{rig.fresh('got')}"
    check("1 requeued" in grave.dead("requeue", "--number", 2), "the output names it")
    grave.holds(2, 1)
    consumer = rig.consume(grave.queue, *FAST, "--exec", f"echo $IDEM_HEADERS >{got}; {effects.line()}", store=grave.store)
    effects.wait(1)
    settled(grave.queue, consumer)
    eq(effects.all(), [[grave.keys[1], "1"]], "effects")
    with open(got, encoding="utf-8") as file:
        headers = json.load(file)
    eq(headers.get("tenant"), "north", "its own header")
    check(not any(name in headers for name in ("idem-verdict", "idem-reason", "idem-attempts", "idem-hash")), headers)
    eq([grave.body(n)["id"] for n in (1, 2)], [grave.keys[0], grave.keys[2]], "the remaining ones")


@test
def all_are_requeued_after_a_look_at_what_would_be(rig):
    grave, effects = Grave(rig, 4), rig.effects()
    said = grave.dead("requeue", "--all", "--dry-run")
    eq((len(said.splitlines()), grave.queue.count()), (5, 0), "a dry run")
    until("all of them are there again", lambda: grave.queue.dead_count() == 4)
    check("4 requeued, 0 kept" in grave.dead("requeue", "--all"), "the output has the number")
    grave.holds(0, 4)
    consumer = grave.consume(effects)
    effects.wait(4)
    consumer.stop()
    eq(effects.keys(), grave.keys, "effects")


@test
def who_is_buried_again_meanwhile_is_not_requeued_for_ever(rig):
    grave, effects = Grave(rig, 3), rig.effects()
    consumer = rig.consume(grave.queue, *FAST, "--exec", f"{effects.line()}; exit 9", store=grave.store)
    consumer.wait_for("connected to")
    check("3 requeued" in grave.dead("requeue", "--all"), "the earlier ones")
    until("they are dead again", lambda: grave.queue.dead_count() == 3)
    settled(grave.queue, consumer)
    eq(sorted(effects.keys()), sorted(grave.keys), "effects")


@test
def without_its_store_a_letter_would_only_be_dead_again(rig):
    """This is why --store is needed: its record is `failed` for good."""
    grave, effects, another = Grave(rig, 1), rig.effects(), rig.lmdb()
    rig.idem("run", "--store", another, "--key", "anything", "--", "true")
    rig.idem("dead", "requeue", rig.broker.url, "--queue", grave.queue.name, "--number", 1, "--store", another)
    consumer = grave.consume(effects)
    consumer.wait_for(r"dead record=.*then=bury")
    settled(grave.queue, consumer)
    eq((effects.all(), grave.queue.dead_count()), ([], 1), "effects, and letters")


class Doubt(Grave):
    """One dead letter, of a message whose outcome is unknown."""

    def __init__(self, rig):  # pylint: disable=super-init-not-called
        self.rig, self.queue, self.store, self.keys = rig, rig.queue(), rig.lmdb(), [rig.key()]
        consumer = rig.consume(self.queue, *FAST, "--recover", "hold", "--exec", "kill -9 $$", store=self.store)
        self.queue.publish(self.keys[0])
        until("a letter", lambda: self.queue.dead_count() == 1)
        settled(self.queue, consumer)

    def consume(self, effects):
        return self.rig.consume(self.queue, *FAST, "--recover", "hold", "--exec", effects.line(), store=self.store)


@test
def what_is_uncertain_is_kept_unless_it_is_forced(rig):
    doubt, effects = Doubt(rig), rig.effects()
    said = doubt.dead("requeue", "--number", 1, status=UNCERTAIN)
    check("is uncertain" in said and "--force" in said and "idem settle" in said, said)
    check("0 requeued, 1 kept" in doubt.dead("requeue", "--all", status=UNCERTAIN), "all: it is kept")
    doubt.holds(1, 0)
    check("1 requeued" in doubt.dead("requeue", "--number", 1, "--force"), "forced")
    consumer = doubt.consume(effects)
    effects.wait(1)
    settled(doubt.queue, consumer)
    eq((effects.all(), doubt.queue.dead_count()), ([[doubt.keys[0], "1"]], 0), "effects, and letters")


@test
def each_requeue_leaves_a_line_of_who_what_before_and_after(rig):
    grave, doubt, path = Grave(rig, 2), Doubt(rig), f"{rig.folder}/{rig.fresh('audit')}"
    grave.dead("requeue", "--all", "--dry-run", "--audit", path)
    check(not os.path.exists(path), "a dry run is none")
    grave.dead("requeue", "--number", 1, "--audit", "/no/such/folder/audit", status=74)
    grave.dead("requeue", "--number", 1, "--audit", "/dev/full", status=74)
    grave.holds(2, 0)
    grave.dead("requeue", "--all", "--audit", path)
    doubt.dead("requeue", "--all", "--audit", path, status=UNCERTAIN)
    doubt.dead("requeue", "--number", 1, "--force", "--audit", path)
    with open(path, encoding="utf-8") as file:
        text = file.read()
    lines = [json.loads(line) for line in text.splitlines()]
    eq([(line["action"], line["result"], line["before"], line["after"], line["queue"], "force" in line) for line in lines],
       [("requeue", "begun", "failed", "absent", grave.queue.name, False),
        ("requeue", "done", "failed", "absent", grave.queue.name, False)] * 2 +
       [("requeue", "refused", "uncertain", "uncertain", doubt.queue.name, False),
        ("requeue", "begun", "uncertain", "absent", doubt.queue.name, True),
        ("requeue", "done", "uncertain", "absent", doubt.queue.name, True)], "lines")
    check(all(line["who"] and line["time"] and line["store"].startswith("lmdb:") and len(line["record"]) == 64 for line in lines), lines)
    check(all(line["broker"].split(":")[0] == rig.broker.url.split(":")[0] for line in lines) and "guest:" not in text, lines)
    check(MARK not in text, "no key in the audit")


@test
def it_is_said_where_they_go_back_to(rig):
    said = rig.idem("dead", "requeue", rig.broker.url, "--dead-letter", "x", "--all", status=64)
    check("--queue" in said, said)


@test
def what_was_settled_as_done_is_a_duplicate_when_it_is_requeued(rig):
    doubt, effects = Doubt(rig), rig.effects()
    name = json.loads(doubt.dead("show", "--number", 1, "--json"))["headers"]
    rig.idem("settle", "--hash", name["idem-hash"], "--prefix", name["idem-prefix"], "--done", "--store", doubt.store)
    doubt.dead("requeue", "--number", 1)
    consumer = doubt.consume(effects)
    consumer.wait_for("duplicate record=")
    settled(doubt.queue, consumer)
    eq((effects.all(), doubt.queue.dead_count()), ([], 0), "effects, and letters")


@test
def a_mismatch_that_is_requeued_leaves_the_first_ones_record_alone(rig):
    queue, effects, store, key = rig.queue(), rig.effects(), rig.lmdb(), rig.key()
    consumer = rig.consume(queue, *FAST, "--exec", f"{effects.line()}; exit 9", key="header:Idempotency-Key", store=store)
    for n in (1, 2):
        queue.publish_bytes(json.dumps({"n": n}).encode(), {"Idempotency-Key": key})
        until("a letter", lambda n=n: queue.dead_count() == n)
    check("1 requeued" in rig.idem("dead", "requeue", rig.broker.url, "--queue", queue.name, "--number", 2, "--store",
                                   store), "requeued")
    consumer.wait_for(r"mismatch record=.*then=bury", times=2)
    until("two letters", lambda: queue.dead_count() == 2)
    settled(queue, consumer)
    eq(effects.attempts(key), [1], "effects")


@test
def one_without_a_key_is_requeued_and_dead_again(rig):
    queue, effects = rig.queue(), rig.effects()
    consumer = rig.consume(queue, *FAST, "--exec", effects.line())
    queue.publish_bytes(b"{}")
    until("a letter", lambda: queue.dead_count() == 1)
    rig.idem("dead", "requeue", rig.broker.url, "--queue", queue.name, "--number", 1)
    consumer.wait_for(r"key record=-.*then=bury", times=2)
    until("a letter again", lambda: queue.dead_count() == 1)
    consumer.stop()


@test(kinds="all")
def a_letter_goes_to_no_queue_that_the_operator_has_not_named(rig):
    grave, other = Grave(rig, 1), rig.queue()
    rig.broker.publish(grave.queue.dead, b'{"id": "x"}', {"idem-queue": other.name, "idem-verdict": "dead"})
    until("two letters", lambda: grave.queue.dead_count() == 2)
    said = grave.dead("requeue", "--number", 2, "--force", status=UNCERTAIN)
    check(f"came from {other.name}" in said, said)
    check("1 requeued, 1 kept" in grave.dead("requeue", "--all", status=UNCERTAIN), "all: it is kept")
    grave.holds(1, 1)
    eq(other.count(), 0, "elsewhere")


@test
def a_senders_word_on_a_record_is_not_believed(rig):
    """If the broker itself dead-letters a message, its headers come from the sender."""
    if rig.broker.name != "rabbit":
        return
    grave = Grave(rig, 1)
    told = json.loads(grave.dead("show", "--number", 1, "--json"))["headers"]
    rig.broker.publish(grave.queue.dead, b'{"id": "x"}',
                       {name: told[name] for name in ("idem-queue", "idem-verdict", "idem-hash", "idem-prefix")})
    until("two letters", lambda: grave.queue.dead_count() == 2)
    said = grave.dead("requeue", "--number", 2, status=UNCERTAIN)
    check("does not vouch" in said and "--force" in said, said)
    shown = rig.idem("show", "--store", grave.store, "--prefix", told["idem-prefix"], "--hash", told["idem-hash"])
    check("failed" in shown, shown)
    check("1 requeued" in grave.dead("requeue", "--number", 2, "--force"), "forced")


if __name__ == "__main__":
    main()
