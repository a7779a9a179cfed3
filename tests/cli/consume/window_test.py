#!/usr/bin/env python3
"""idem consume is killed in each window between a delivery and its acknowledgement, and started again. Prints TAP. The
expected results are the table of docs/queue.md, "when idem consume is killed".
"""
import os
import signal
import sys

sys.dont_write_bytecode = True
from frame import *
from proxy import Proxy
from rig import *

# The consumer that is killed has a lease that ends soon, which it may lose when it stands still; its successor has one
# that holds (FAST).
SHORT = ["--lease", "3s", "--backoff", "500ms..500ms"]
READY = r"connected to"


class Killer:
    """A handler that does its work; but the first one kills its parent, after it has run `before`. The handler
    outlives the lease of a parent that stood still, and ignores SIGTERM until it has killed the parent."""

    def __init__(self, rig, effects, before=":"):
        self.path = f"{rig.folder}/{rig.fresh('killed')}"
        self.command = (f"trap '' TERM; if [ ! -e {self.path} ]; then {before}; echo $IDEM_ATTEMPT >{self.path}; "
                        f"kill -9 $PPID; exit 1; fi; {effects.line()}")

    def flags(self):
        return ["--kill-after", "10m", "--exec", self.command]

    def attempt(self):
        """The attempt that killed its parent: a parent that stood still may have lost one before."""
        with open(self.path, encoding="ascii") as file:
            return int(file.read())


def died(consumer):
    eq(consumer.end(), -signal.SIGKILL, "how it ended")


@test(kinds="all")
def before_the_claim_with_a_store_that_is_down_it_is_merely_delivered_again(rig):
    queue, effects, key, store = rig.queue(), rig.effects(), rig.key(), rig.store
    consumer = rig.consume(queue, *SHORT, "--exec", effects.line(), store=store.url)
    consumer.wait_for(READY)
    store.kill()
    queue.publish(key)
    until("it is fetched", lambda: consumer.told("fetched") == 1)
    consumer.kill()
    store.start()
    eq(effects.keys(), [], "effects without a store")
    consumer = rig.consume(queue, *FAST, "--exec", effects.line(), store=store.url)
    effects.wait(1)
    settled(queue, consumer)
    eq(effects.all(), [[key, "1"]], "effects")


@test(kinds="all")
def while_the_claim_is_on_its_way_it_is_handled_when_that_is_over(rig):
    queue, effects, key, store = rig.queue(), rig.effects(), rig.key(), rig.store
    consumer = rig.consume(queue, *SHORT, "--exec", effects.line(), store=store.url)
    consumer.wait_for(READY)
    store.pause()
    try:
        queue.publish(key)
        until("it is fetched", lambda: consumer.told("fetched") == 1)
        consumer.kill()
    finally:
        store.go_on()
    consumer = rig.consume(queue, *FAST, "--exec", effects.line(), store=store.url)
    effects.wait(1)
    settled(queue, consumer)
    eq(effects.keys(), [key], "effects")


@test(kinds="all")
def claimed_and_not_begun_it_is_handled_when_the_lease_is_over(rig):
    queue, effects, key, store = rig.queue(), rig.effects(), rig.key(), rig.lmdb()
    killer = Killer(rig, effects)
    first = rig.consume(queue, *SHORT, *killer.flags(), store=store)
    queue.publish(key)
    died(first)
    eq(effects.keys(), [], "effects before")
    again = rig.consume(queue, *FAST, *killer.flags(), store=store)
    effects.wait(1)
    settled(queue, again)
    eq(effects.all(), [[key, str(killer.attempt() + 1)]], "effects")


@test(kinds="all")
def claimed_and_not_begun_under_hold_it_is_a_dead_letter(rig):
    queue, effects, key, store = rig.queue(), rig.effects(), rig.key(), rig.lmdb()
    flags = ["--recover", "hold", *Killer(rig, effects).flags()]
    first = rig.consume(queue, *SHORT, *flags, store=store)
    queue.publish(key)
    died(first)
    again = rig.consume(queue, *FAST, *flags, store=store)
    again.wait_for(r"uncertain .*then=bury")
    settled(queue, again)
    eq(effects.keys(), [], "effects")
    eq([(l.headers["idem-verdict"], l.headers["idem-attempts"]) for l in queue.letters()], [("uncertain", "1")],
       "dead letters")


@test(kinds="all")
def handled_and_not_stored_it_is_handled_once_more_and_is_told_so(rig):
    queue, effects, key, store = rig.queue(), rig.effects(), rig.key(), rig.lmdb()
    killer = Killer(rig, effects, effects.line())
    first = rig.consume(queue, *SHORT, *killer.flags(), store=store)
    queue.publish(key)
    died(first)
    last = killer.attempt()
    eq(effects.attempts(key), [last], "effects before")
    again = rig.consume(queue, *FAST, *killer.flags(), store=store)
    effects.wait(2)
    settled(queue, again)
    eq(effects.all(), [[key, str(last)], [key, str(last + 1)]], "effects")


@test(kinds="all")
def handled_and_not_stored_under_hold_it_is_not_handled_again(rig):
    queue, effects, key, store = rig.queue(), rig.effects(), rig.key(), rig.lmdb()
    flags = ["--recover", "hold", *Killer(rig, effects, effects.line()).flags()]
    first = rig.consume(queue, *SHORT, *flags, store=store)
    queue.publish(key)
    died(first)
    again = rig.consume(queue, *FAST, *flags, store=store)
    again.wait_for(r"uncertain .*then=bury")
    settled(queue, again)
    eq(effects.all(), [[key, "1"]], "effects")


@test(kinds="all")
def handled_in_a_transaction_of_its_own_it_happens_once_wherever_it_is_killed(rig):
    guarded = os.environ["IDEM_QUEUE_EFFECT"]
    queue, key, store = rig.queue(), rig.key(), rig.lmdb()
    database = f"{rig.folder}/{rig.fresh('guarded')}.db"
    rig.idem("migrate", "--store", f"sqlite:{database}")
    subprocess.run([guarded, "make", database], check=True, timeout=LIMIT)
    flag = f"{rig.folder}/{rig.fresh('killed')}"
    command = (f"trap '' TERM; {guarded} once {database} || exit; if mkdir {flag} 2>/dev/null; then kill -9 $PPID; fi")
    first = rig.consume(queue, *SHORT, "--kill-after", "10m", "--exec", command, store=store)
    queue.publish(key)
    died(first)
    again = rig.consume(queue, *FAST, "--exec", command, store=store)
    again.wait_for(r"run done ")
    settled(queue, again)
    rows = subprocess.run([guarded, "list", database], stdout=subprocess.PIPE, text=True, check=True, timeout=LIMIT)
    eq([row.split()[2] for row in rows.stdout.splitlines()], [key], "rows")


@test(kinds="all")
def handled_with_a_store_that_is_silent_it_is_not_acknowledged(rig):
    queue, effects, key, store = rig.queue(), rig.effects(), rig.key(), rig.timed_store
    gate, pid = rig.gate(), f"{rig.folder}/{rig.fresh('pid')}"
    first = rig.consume(queue, *FAST, "--exec",
                        f"echo $$ >{pid}; {effects.line()}; {gate.wait()}", store=store.url)
    try:
        queue.publish(key)
        effects.wait(1)
        store.pause()
        gate.open()
        # The consumer has reaped the handler: no other process removes it from the table of processes.
        until("the handler is gone", lambda: not os.path.exists(f"/proc/{open(pid, encoding='ascii').read().strip()}"))
        first.told("in hand")
        first.kill()
        check(not first.has("run done"), first.said())
        until("it is still there", lambda: queue.count() == 1)
    finally:
        store.go_on()
    store.ask("PING")  # if the finish was on its way, it arrived before this
    store.clock.advance(LEASE_S + 1)
    again = rig.consume(queue, *FAST, "--exec", effects.line(), store=store.url)
    again.wait_for(r"duplicate record=|run done record=.*attempt=2")  # the finish was on its way, or not
    settled(queue, again)
    eq(effects.attempts(key), [1] if again.has("duplicate record=") else [1, 2], "attempts")


@test(kinds="all")
def done_and_not_acknowledged_it_is_a_duplicate(rig):
    queue, effects, key, store = rig.queue(), rig.effects(), rig.key(), rig.lmdb()
    with Proxy(rig.broker.port) as proxy:
        proxy.hold(rig.broker.is_ack)
        first = rig.consume(queue, *FAST, "--exec", effects.line(), store=store, url=rig.broker.at(proxy.port))
        queue.publish(key)
        first.wait_for(r"run done ")
        check(proxy.held.wait(LIMIT), "an acknowledgement is on its way")
        first.kill()
        proxy.cut()
    again = rig.consume(queue, *FAST, "--exec", effects.line(), store=store)
    again.wait_for(r"^.*duplicate record=")
    settled(queue, again)
    eq(again.sum()["duplicates"], 1, "duplicates")
    eq(effects.all(), [[key, "1"]], "effects")


@test(kinds="all", only="rabbit")
def the_copy_for_later_is_confirmed_and_the_original_not_acknowledged_one_record_decides(rig):
    queue, effects, key, store = rig.queue(), rig.effects(), rig.key(), rig.lmdb()
    flags = FAST + ["--exec", f"[ $IDEM_ATTEMPT -ge 2 ] || exit 75; {effects.line()}"]
    with Proxy(rig.broker.port) as proxy:
        proxy.hold(rig.broker.is_ack)
        first = rig.consume(queue, *flags, store=store, url=rig.broker.at(proxy.port))
        queue.publish(key)
        first.wait_for(r"run retry .*then=delay")
        check(proxy.held.wait(LIMIT), "an acknowledgement is on its way")
        first.kill()
        proxy.cut()
    again = rig.consume(queue, *flags, store=store)
    again.wait_for(r"^.*duplicate record=")  # the copy and the original
    settled(queue, again)
    eq(effects.all(), [[key, "2"]], "effects")


@test(kinds="all")
def the_dead_letter_is_confirmed_and_the_original_not_acknowledged_it_is_dead_and_not_handled_again(rig):
    queue, effects, key, store = rig.queue(), rig.effects(), rig.key(), rig.lmdb()
    flags = FAST + ["--on-exit", "65=dead", "--exec", f"{effects.line()}; exit 65"]
    with Proxy(rig.broker.port) as proxy:
        proxy.hold(rig.broker.is_ack)
        first = rig.consume(queue, *flags, store=store, url=rig.broker.at(proxy.port))
        queue.publish(key)
        first.wait_for(r"run refused .*then=bury")
        check(proxy.held.wait(LIMIT), "an acknowledgement is on its way")
        first.kill()
        proxy.cut()
    eq(queue.dead_count(), 1, "dead letters before")
    again = rig.consume(queue, *flags, store=store)
    again.wait_for(r"dead record=.*then=bury")
    settled(queue, again)
    eq(effects.all(), [[key, "1"]], "effects")
    eq(queue.dead_count(), 2, "dead letters: twice is allowed, never is not")


@test(kinds="all")
def buried_and_not_stored_as_failed_nothing_is_lost(rig):
    queue, effects, key, store = rig.queue(), rig.effects(), rig.key(), rig.timed_store
    flags = FAST + ["--on-exit", "65=dead", "--exec", f"{effects.line()}; kill -STOP {store.process.pid}; exit 65"]
    first = rig.consume(queue, *flags, store=store.url)
    try:
        queue.publish(key)
        until("a dead letter", lambda: queue.dead_count() == 1)
        first.kill()
    finally:
        store.go_on()
    store.ask("PING")  # as before
    store.clock.advance(LEASE_S + 1)
    again = rig.consume(queue, *FAST, "--exec", effects.line(), store=store.url)
    effects.wait(1)
    # Either the finish was on its way and is stored, or the message is handled again: one of both, never neither.
    until("it is dealt with", lambda: again.has(r"dead record=.*then=bury|run done record="))
    settled(queue, again)
    check(len(effects.all()) <= 2, effects.all())


if __name__ == "__main__":
    main()
