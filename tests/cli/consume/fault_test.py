#!/usr/bin/env python3
"""Brokers and stores that go, come back, refuse and lose messages; several consumers. Prints TAP."""
import sys

sys.dont_write_bytecode = True
from frame import *
from proxy import Proxy
from rig import *

def publish_all(queue, keys):
    for key in keys:
        queue.publish(key)


# The broker.


class Outage:
    """A queue, its consumer, and messages of which the first is being handled."""

    def __init__(self, rig, kind):
        kept, rig.kind, rig.broker.kind = rig.kind, kind, kind
        self.queue, self.effects, self.keys = rig.queue(), rig.effects(), [rig.key() for _ in range(6)]
        rig.kind = rig.broker.kind = kept
        self.begun, self.gate = f"{rig.folder}/{rig.fresh('begun')}", rig.gate()
        self.consumer = rig.consume(self.queue, *FAST, "--exec", f"touch {self.begun}; {self.gate.wait()}; {self.effects.line()}")
        self.consumer.wait_for("connected to")


@test(alone=True)
def a_broker_that_is_killed_is_waited_for_and_finds_done_what_was_handled(rig):
    stages = [Outage(rig, kind) for kind in (("classic", "quorum") if rig.broker.name == "rabbit" else ("stream",))]
    waiting, effects, key, idle = rig.queue(), rig.effects(), rig.key(), rig.consume(rig.queue(), "--exec", "true")
    idle.wait_for("connected to")
    waiting.publish(key)
    rig.broker.settle()
    for stage in stages:
        publish_all(stage.queue, stage.keys)
    until("one of each is handled", lambda: all(os.path.exists(stage.begun) for stage in stages))
    rig.broker.kill()
    try:
        late = rig.consume(waiting, *FAST, "--exec", effects.line())  # started before its broker
        late.wait_for(r"no connection|tried again|refused")
        for stage in stages:
            stage.consumer.wait_for(r"lost|tried again|made again|no connection")
            stage.gate.open()
            stage.effects.wait(1)
        idle.wait_for(r"lost|tried again|made again|no connection")
        idle.stop()
    finally:
        rig.broker.restart()
    effects.wait(1)
    settled(waiting, late)
    for stage in stages:
        stage.effects.wait(len(stage.keys))
        settled(stage.queue, stage.consumer)
        eq(sorted(stage.effects.keys()), sorted(stage.keys), "effects")


@test
def a_queue_that_is_deleted_and_made_again_is_consumed_again(rig):
    queue, effects, keys = rig.queue(), rig.effects(), [rig.key(), rig.key()]
    consumer = rig.consume(queue, *FAST, "--exec", effects.line())
    queue.publish(keys[0])
    effects.wait(1)
    rig.broker.delete(queue.name)
    if rig.broker.name == "rabbit":
        consumer.wait_for(r"was deleted|is there again")
    rig.broker.declare(queue.name)
    queue.publish(keys[1])
    effects.wait(2)
    settled(queue, consumer)
    eq(effects.keys(), keys, "effects")


@test
def a_queue_that_is_deleted_while_its_message_is_handled_is_survived(rig):
    queue, effects, keys = rig.queue(), rig.effects(), [rig.key(), rig.key()]
    gate = rig.gate()
    consumer = rig.consume(queue, *FAST, "--exec", f"{effects.line()}; {gate.wait()}")
    queue.publish(keys[0])
    effects.wait(1)
    rig.broker.delete(queue.name)
    consumer.wait_for(r"was deleted|not there any more")
    gate.open()
    consumer.wait_for(r"run done")
    rig.broker.declare(queue.name)
    queue.publish(keys[1])
    effects.wait(2)
    consumer.wait_for(r"run done", times=2)
    settled(queue, consumer)
    eq(effects.keys(), keys, "effects")


@test(kinds="all")
def a_connection_that_is_cut_in_mid_acknowledgement_costs_nothing(rig):
    queue, effects, keys = rig.queue(), rig.effects(), [rig.key(), rig.key()]
    with Proxy(rig.broker.port) as proxy:
        proxy.hold(rig.broker.is_ack)
        consumer = rig.consume(queue, *FAST, "--exec", effects.line(), url=rig.broker.at(proxy.port))
        queue.publish(keys[0])
        check(proxy.held.wait(LIMIT), "an acknowledgement is on its way")
        proxy.let_part()
        proxy.cut()
        queue.publish(keys[1])
        effects.wait(2)
        settled(queue, consumer)
    eq(effects.keys(), keys, "effects")


@test(alone=True)
def a_broker_that_is_silent_is_left_and_found_again(rig):
    queue, effects, keys = rig.queue(), rig.effects(), [rig.key(), rig.key()]
    url = rig.broker.plain_url + ("?heartbeat=1s" if rig.broker.name == "rabbit" else "?timeout=1s&connect_timeout=1s")
    consumer = rig.consume(queue, *FAST, "--exec", effects.line(), url=url)
    queue.publish(keys[0])
    effects.wait(1)
    rig.broker.pause()
    try:
        consumer.wait_for(r"lost|no response within")
    finally:
        rig.broker.go_on()
    queue.publish(keys[1])
    effects.wait(2)
    settled(queue, consumer)
    eq(sorted(effects.keys()), sorted(keys), "effects")


@test(only="rabbit")
def messages_come_by_tls(rig):
    queue, effects, key = rig.queue(), rig.effects(), rig.key()
    consumer = rig.consume(queue, *FAST, "--exec", effects.line(), url=rig.broker.server.tls_url)
    queue.publish(key)
    effects.wait(1)
    settled(queue, consumer)


# Dead letters that the broker refuses.


def stuck(consumer):
    """A dead letter that is refused is kept, and not retried without a pause."""
    consumer.wait_for(r"a dead letter is not taken: .*it is kept and tried again")
    until("it is tried again", lambda: consumer.counts().get("unburied", 0) >= 3)
    counts, seconds = consumer.counts(), len(consumer.out)  # the consumer writes a line each second by itself
    check(counts["unburied"] <= 4 * (seconds + 1), f"{counts['unburied']} tries in {seconds} s")
    check(counts["in_hand"] >= 1, counts)


@test(only="rabbit", kinds="all")
def dead_letters_without_a_queue_for_them_are_kept_until_there_is_one(rig):
    queue, effects, bad, good = rig.queue(dead=False), rig.effects(), rig.key(), rig.key()
    consumer = rig.consume(queue, *FAST, "--retry-topology", "none", "--json", "--on-exit", "9=dead", "--exec",
                           f'{effects.line()}; [ "$IDEM_KEY" != {bad} ] || exit 9')
    queue.publish(bad)
    stuck(consumer)
    queue.publish(good)
    effects.wait(2)
    eq(queue.broker.count(queue.dead), None, "dead letters")
    rig.broker.declare(queue.dead)
    until("it is there", lambda: queue.dead_count() == 1)
    settled(queue, consumer)
    eq(effects.keys(), [bad, good], "it was not handled again")


@test(only="rabbit")
def dead_letters_that_find_their_queue_full_are_kept_until_there_is_room(rig):
    queue, effects, keys = rig.queue(dead=False), rig.effects(), [rig.key() for _ in range(3)]
    kind, rig.broker.kind = rig.broker.kind, "classic"  # a quorum queue accepts some more than its limit
    rig.broker.declare(queue.dead, **{"x-max-length": 1, "x-overflow": "reject-publish"})
    rig.broker.kind = kind
    consumer = rig.consume(queue, *FAST, "--json", "--on-exit", "9=dead", "--exec", f"{effects.line()}; exit 9")
    publish_all(queue, keys)
    effects.wait(3)
    stuck(consumer)
    eq(queue.dead_count(), 1, "dead letters")
    taken = []

    def take():
        taken.extend(json.loads(l.body)["id"] for l in queue.letters())
        return len(set(taken)) == 3
    until("all of them, as there is room", take, step=0.3)
    settled(queue, consumer)
    eq(sorted(effects.keys()), sorted(keys), "none was handled twice")


@test(only="stream")
def dead_letters_that_the_server_refuses_are_kept_until_it_takes_them(rig):
    queue, effects, bad, good = rig.queue(dead=False), rig.effects(), rig.key(), rig.key()
    rig.broker.ask("SET", queue.dead, "in the way")
    consumer = rig.consume(queue, *FAST, "--json", "--on-exit", "9=dead", "--exec",
                           f'{effects.line()}; [ "$IDEM_KEY" != {bad} ] || exit 9')
    queue.publish(bad)
    stuck(consumer)
    queue.publish(good)
    effects.wait(2)
    rig.broker.ask("DEL", queue.dead)
    until("it is there", lambda: len(queue.letters()) == 1)
    settled(queue, consumer)
    eq(effects.keys(), [bad, good], "it was not handled again")


@test
def a_dead_letter_that_is_not_taken_waits_for_the_next_start(rig):
    queue, effects, bad, store = rig.queue(dead=False), rig.effects(), rig.key(), rig.lmdb()
    if rig.broker.name == "stream":
        rig.broker.ask("SET", queue.dead, "in the way")
    flags = FAST + ["--retry-topology", "none", "--json", "--on-exit", "9=dead"]
    consumer = rig.consume(queue, *flags, "--drain", "1s", "--exec", f"{effects.line()}; exit 9", store=store)
    queue.publish(bad)
    consumer.wait_for(r"a dead letter is not taken")
    consumer.stop()
    until("it is still there", lambda: queue.count() == 1)
    if rig.broker.name == "stream":
        rig.broker.ask("DEL", queue.dead)
    rig.broker.declare(queue.dead)
    consumer = rig.consume(queue, *flags, "--exec", f"{effects.line()}; exit 9", store=store)
    until("it is buried", lambda: len(queue.letters()) >= 1)
    settled(queue, consumer)


# The store.


@test(slow=True)
def a_store_that_is_down_stops_the_work_and_loses_nothing(rig):
    queue, effects, store, clock = rig.queue(), rig.effects(), rig.timed_store, rig.lease_clock()
    keys, begun, gate = [rig.key() for _ in range(20)], f"{rig.folder}/{rig.fresh('begun')}", rig.gate()
    consumer = rig.consume(queue, *FAST, "--json", "--workers", 2, "--exec",
                           f"touch {begun}; {gate.wait()}; {effects.line()}", store=store.url, env=clock.env())
    consumer.wait_for("connected to")
    publish_all(queue, keys[:2])
    until("one is handled", lambda: os.path.exists(begun))
    store.kill()
    gate.open()
    try:
        publish_all(queue, keys[2:])
        consumer.wait_for(r"the store: ")
        store.clock.advance(LEASE_S + 1)
        clock.advance(LEASE_S + 1, consumer)
        time.sleep(30 if LONG else 1)  # sleep: only time shows that no run begins
        # A handler that was running when the store went down may have ended; none has begun since.
        check(len(effects.all()) <= 2, effects.all())
        check(consumer.running() and consumer.counts().get("done", 0) == 0, consumer.counts())
    finally:
        store.start()
    consumer.wait_for(r"the store answers again")

    def all_are_done():
        store.clock.advance(0.02)  # so that a back-off ends, but not a lease
        return set(effects.keys()) == set(keys)
    until("all are done", all_are_done)
    settled(queue, consumer)
    # The lease of the first two ended in between: they may have been handled once more.
    check(all(len(effects.attempts(key)) == 1 for key in keys[2:]), effects.all())
    check(all(len(effects.attempts(key)) <= 2 for key in keys[:2]), effects.all())


@test
def a_short_outage_of_the_store_does_not_make_it_happen_twice(rig):
    queue, effects, store, key = rig.queue(), rig.effects(), rig.store, rig.key()
    gate = rig.gate()
    consumer = rig.consume(queue, *FAST, "--exec", f"{effects.line()}; {gate.wait()}", store=store.url)
    queue.publish(key)
    effects.wait(1)
    store.kill()
    gate.open()
    consumer.wait_for(r"the store: ")
    store.start()
    consumer.wait_for(r"run done")
    settled(queue, consumer)
    eq(effects.all(), [[key, "1"]], "effects")


# Several consumers.


@test
def two_consumers_share_a_queue_and_each_message_happens_once(rig):
    queue, effects, store = rig.queue(), rig.effects(), rig.lmdb()
    keys = [rig.key() for _ in range(60)]
    gate = rig.gate()
    # Six keys are handled at a time, so all duplicates may be held. Beyond half of --prefetch, they would wait for a
    # whole lease in the broker.
    flags = FAST + ["--workers", 3, "--prefetch", 16, "--exec", f"{gate.wait()}; {effects.line()}"]
    consumers = [rig.consume(queue, *flags, "--consumer", name, store=store) for name in ("one", "two")]
    for consumer in consumers:
        consumer.wait_for("connected to")
    for key in keys:
        queue.publish(key)
        queue.publish(key)
    until("both have their hands full", lambda: all(c.told("handled now") == 3 for c in consumers))
    gate.open()
    effects.wait(len(keys))
    until("duplicates, too", lambda: sum(len(re.findall("duplicate record=", c.said())) for c in consumers) >= len(keys))
    settled(queue, *consumers)
    eq(sorted(effects.keys()), sorted(keys), "effects")
    sums = [c.sum() for c in consumers]
    eq(sum(s["done"] for s in sums), len(keys), "done")
    check(all(s["done"] >= 3 for s in sums), f"both had something to do: {sums}")


@test
def a_duplicate_of_what_runs_is_neither_acknowledged_nor_spun_on(rig):
    queue, effects, store, key = rig.queue(), rig.effects(), rig.lmdb(), rig.key()
    gate = rig.gate()
    flags = ["--lease", "60s", "--json", "--exec", f"{gate.wait()}; {effects.line()}"]
    first = rig.consume(queue, *flags, "--consumer", "one", "--prefetch", 1, store=store)
    first.wait_for("connected to")
    queue.publish(key)
    until("it runs", lambda: first.counts().get("working") == 1)
    second = rig.consume(queue, *flags, "--consumer", "two", "--prefetch", 2, store=store)
    second.wait_for("connected to")
    queue.publish(key)
    queue.publish(key)
    began = time.monotonic()
    until("all three are in hand", lambda: sum(c.counts().get("in_hand", 0) for c in (first, second)) == 3)

    def held():
        return len(re.findall("busy .*then=hold", first.said() + second.said()))
    until("they were requested again", lambda: held() >= 3)
    often, took = held(), time.monotonic() - began
    check(not second.has("duplicate") and not first.has("duplicate"), "nothing was acknowledged")
    fetched = first.counts()["fetched"] + second.counts()["fetched"]
    check(often < 25 * (took + 1) and fetched == 3, f"{often} requests in {took:.1f} s, and fetched {fetched} times")
    gate.open()
    effects.wait(1)
    until("two duplicates", lambda: len(re.findall("duplicate record=", first.said() + second.said())) == 2)
    settled(queue, first, second)
    eq(effects.all(), [[key, "1"]], "effects")


@test
def who_was_stopped_for_longer_than_a_lease_finds_itself_superseded(rig):
    # A store without locks: the consumer may be stopped at any point.
    queue, effects, store, key = rig.queue(), rig.effects(), rig.timed_store, rig.key()
    gate = rig.gate()
    first = rig.consume(queue, *FAST, "--prefetch", 1, "--consumer", "one", "--exec", f"{effects.line()}; {gate.wait()}",
                        store=store.url)
    queue.publish(key)
    effects.wait(1)
    first.signal(signal.SIGSTOP)
    store.clock.advance(LEASE_S + 1)
    second = rig.consume(queue, *FAST, "--prefetch", 1, "--consumer", "two", "--exec", effects.line(), store=store.url)
    queue.publish(key)
    second.wait_for(r"run done record=.*attempt=2")
    gate.open()
    first.signal(signal.SIGCONT)
    first.wait_for("duplicate record=")
    settled(queue, first, second)
    eq(effects.attempts(key), [1, 2], "attempts")
    eq((first.sum()["lost"], first.sum()["done"], second.sum()["done"]), (1, 0, 1), "lost, and done by each")


# Order.


@test
def an_order_is_kept_over_a_failure_which_holds_up_no_other_lane(rig):
    queue, effects = rig.queue(), rig.effects()
    slow, fast = [rig.key() for _ in range(4)], [rig.key() for _ in range(4)]
    gate = rig.gate()
    command = f'[ "$IDEM_KEY" != {slow[0]} ] || {gate.is_open()} || exit 1; {effects.line()}'
    consumer = rig.consume(queue, *FAST, "--attempts", 100, "--workers", 3, "--order-by", "#body.lane", "--exec", command)
    for one, other in zip(slow, fast):
        queue.publish(one, lane="slow")
        queue.publish(other, lane="fast")
    effects.wait(4)
    consumer.wait_for(r"run retry .*then=hold", times=2)
    gate.open()
    effects.wait(8)
    settled(queue, consumer)
    done = effects.keys()
    eq([k for k in done if k in slow], slow, "the lane that was held up")
    eq([k for k in done if k in fast], fast, "the other one")
    eq(done[:4], fast, "the first effects")


@test(kinds="all", long=True)
def an_order_is_kept_over_stops_and_kills(rig):
    queue, effects, store = rig.queue(), rig.effects(), rig.lmdb()
    keys = [rig.key() for _ in range(24)]
    flags = ["--lease", "3s", "--backoff", "500ms..500ms", "--workers", 2, "--order-by", "#body.lane", "--exec",
             f"{effects.line()}; sleep 0.1"]  # sleep: so that a stop or a kill comes in the middle
    for key in keys:
        queue.publish(key, lane="one")
    for n in range(4):
        before = len(effects.all())
        consumer = rig.consume(queue, *flags, store=store)
        effects.wait(before + 2)
        if n % 2 == 0:
            consumer.stop()
        else:
            consumer.kill()
    consumer = rig.consume(queue, *flags, store=store)
    until("all are done", lambda: set(effects.keys()) == set(keys))
    settled(queue, consumer)
    eq(list(dict.fromkeys(effects.keys())), keys, "the order of first effects")


@test
def without_an_order_a_failure_makes_room(rig):
    queue, effects = rig.queue(), rig.effects()
    bad, good = rig.key(), [rig.key() for _ in range(6)]
    gate = rig.gate()
    command = f'[ "$IDEM_KEY" != {bad} ] || {gate.is_open()} || exit 75; {effects.line()}'
    consumer = rig.consume(queue, *FAST, "--attempts", 100, "--prefetch", 1, "--exec", command)
    queue.publish(bad)
    publish_all(queue, good)
    effects.wait(6)
    consumer.wait_for(r"run retry .*then=delay")
    gate.open()
    effects.wait(7)
    settled(queue, consumer)
    eq(effects.keys(), good + [bad], "the order")


@test(only="rabbit")
def without_queues_of_its_own_a_delay_is_waited_for_in_hand(rig):
    queue, effects, key = rig.queue(), rig.effects(), rig.key()
    consumer = rig.consume(queue, *FAST, "--retry-topology", "none", "--exec",
                           f"[ $IDEM_ATTEMPT -ge 2 ] || exit 75; {effects.line()}")
    queue.publish(key)
    effects.wait(1)
    settled(queue, consumer)
    eq(effects.attempts(key), [2], "attempts")
    for ms in (500, 600, 1000):
        eq(rig.broker.count(f"{queue.name}.idem.retry.{ms}"), None, "a queue of delays")


if __name__ == "__main__":
    main()
