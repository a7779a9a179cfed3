#!/usr/bin/env python3
"""idem consume as a command: flags, signals, its messages, and the secrets that it must not show. Prints TAP."""
import pty
import select
import sys

sys.dont_write_bytecode = True
from frame import *
from rig import *

# The stop.


@test
def sigterm_waits_for_what_is_handled_and_gives_back_what_was_not_begun(rig):
    queue, effects, store, keys = rig.queue(), rig.effects(), rig.lmdb(), [rig.key() for _ in range(4)]
    gate = rig.gate()
    consumer = rig.consume(queue, *FAST, "--drain", "10m", "--exec", f"{effects.line()}; {gate.wait()}", store=store)
    for key in keys:
        queue.publish(key)
    effects.wait(1)
    consumer.signal(signal.SIGTERM)
    until("it has given back the others", lambda: consumer.has("stopping") and consumer.told("in hand") == 1)
    check(consumer.running() and not consumer.has("run done"), "it waits")
    gate.open()
    eq(consumer.end(), 0, "how it ended")
    check(consumer.has("stopping") and consumer.has("run done record=", 1), consumer.said())
    eq(effects.keys(), keys[:1], "the effects")
    until("three are left", lambda: queue.count() == 3)
    consumer = rig.consume(queue, *FAST, "--exec", effects.line(), store=store)
    effects.wait(4)
    settled(queue, consumer)
    eq(sorted(effects.all()), sorted([key, "1"] for key in keys), "no attempt was counted")


@test
def a_second_sigterm_ends_what_is_handled_and_that_is_no_failure(rig):
    queue, effects, store, key = rig.queue(), rig.effects(), rig.lmdb(), rig.key()
    # sleep: the test ends the handler, which would otherwise outlive it
    consumer = rig.consume(queue, *FAST, "--drain", "10m", "--exec", f"{effects.line()}; exec sleep 600", store=store)
    queue.publish(key)
    effects.wait(1)
    consumer.signal(signal.SIGTERM)
    consumer.wait_for("stopping")
    eq(consumer.told("handled now"), 1, "it waits for what is handled")
    consumer.stop()
    consumer.wait_for(r"run unknown record=.*made to end")
    eq(rig.idem("list", "--store", store, "--state", "failed").count(queue.name), 0, "failed records")
    consumer = rig.consume(queue, *FAST, "--exec", effects.line(), store=store)
    effects.wait(2)
    consumer.stop()
    eq(effects.attempts(key), [1, 2], "attempts")


@test
def the_deadline_of_a_stop_ends_who_does_not_listen(rig):
    queue, effects, key = rig.queue(), rig.effects(), rig.key()
    consumer = rig.consume(queue, *FAST, "--drain", "1s", "--kill-after", "500ms", "--exec",
                           f"trap '' TERM; {effects.line()}; sleep 600 & wait; sleep 600")  # sleep: it is killed
    queue.publish(key)
    effects.wait(1)
    began = time.monotonic()
    consumer.stop()
    check(time.monotonic() - began > 1.3, f"it took {time.monotonic() - began:.2f} s")


@test
def a_stop_gives_up_what_only_waits_for_its_time(rig):
    queue, key, effects, store = rig.queue(), rig.key(), rig.effects(), rig.lmdb()
    consumer = rig.consume(queue, "--lease", "60s", "--backoff", "10m..10m", "--order-by", "#body.id", "--exec",
                           f"{effects.line()}; exit 75", store=store)
    queue.publish(key)
    consumer.wait_for(r"run retry .*then=hold")
    consumer.stop()
    until("it is still there", lambda: queue.count() == 1)


# Messages.


@test
def sigusr1_reports_the_counts_and_so_does_sighup(rig):
    queue, effects, key = rig.queue(), rig.effects(), rig.key()
    consumer = rig.consume(queue, *FAST, "--exec", effects.line())
    for _ in range(3):
        queue.publish(key)
    consumer.wait_for("duplicate record=", times=2)
    check(not consumer.sum(), "not requested yet")
    for lines, number in enumerate((signal.SIGUSR1, signal.SIGHUP), 1):
        consumer.signal(number)
        consumer.wait_for(r"fetched \d+, ", times=lines)
        counts = consumer.sum()
        eq((counts["fetched"], counts["done"], counts["duplicates"], counts["in hand"]), (3, 1, 2, 0), "the counts")
    check(consumer.running(), "it goes on")
    consumer.stop()


@test
def under_nohup_sighup_stays_ignored_and_sigusr1_reports(rig):
    queue, effects = rig.queue(), rig.effects()
    consumer = rig.consume(queue, *FAST, "--exec", effects.line(), ignored=(signal.SIGHUP,))
    queue.publish(rig.key())
    effects.wait(1)
    consumer.signal(signal.SIGHUP)
    eq(consumer.told("fetched"), 1, "the count")
    eq(len(re.findall(r"fetched \d+, ", consumer.said())), 1, "reports")
    consumer.stop()


@test
def json_is_a_line_each_second_on_stdout(rig):
    queue, effects = rig.queue(), rig.effects()
    began = time.monotonic()
    consumer = rig.consume(queue, *FAST, "--json", "--log", "none", "--exec", effects.line())
    for _ in range(5):
        queue.publish(rig.key())
    effects.wait(5)
    until("three lines", lambda: len(consumer.out) >= 3 and consumer.counts()["done"] == 5)
    consumer.stop()
    lines = [json.loads(line) for _, line in consumer.out]
    check(all({"ready", "fetched", "done", "duplicates", "retries", "dead", "held", "lost", "store_errors", "in_hand",
               "working", "per_second"} <= set(line) for line in lines), lines)
    check(lines[-1]["ready"] and lines[-1]["in_hand"] == 0, lines[-1])
    check(len(lines) <= time.monotonic() - began + 2, f"no more than one each second, and one at the end: {lines}")
    check(not consumer.has(r"run done"), "nothing of a message on stderr")


@test
def problems_only_leaves_out_what_is_expected(rig):
    queue, good, bad = rig.queue(), rig.key(), rig.key()
    consumer = rig.consume(queue, *FAST, "--log", "problems", "--on-exit", "9=dead", "--exec",
                           f'[ "$IDEM_KEY" != {bad} ] || exit 9')
    queue.publish(good)
    queue.publish(good)
    queue.publish(bad)
    consumer.wait_for(r"run refused record=[0-9a-f]{12} attempt=1 trace=\S+ took=\S+ then=bury reason=")
    consumer.stop()
    check(not consumer.has("run done") and not consumer.has("duplicate key"), consumer.said())


@test
def on_a_terminal_one_line_shows_how_it_goes(rig):
    queue, effects = rig.queue(), rig.effects()
    near, far = pty.openpty()
    words = [IDEM, "consume", rig.broker.url, "--queue", queue.name, "--store", rig.lmdb(), "--key", "#body.id",
             "--exec", effects.line()]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=far, env=rig.env(),
                               preexec_fn=follow_parent)
    os.close(far)
    seen = b""

    def shows_it():
        nonlocal seen
        if select.select([near], [], [], 0)[0]:
            seen += os.read(near, 65536)
        return b"done 1" in seen
    try:
        queue.publish(rig.key())
        until("it shows that one is done", shows_it)
        process.terminate()
        eq(process.wait(LIMIT), 0, "how it ended")
    finally:
        process.kill()
        process.wait()
        os.close(near)
    check(b"\r\x1b[Kconsuming " in seen and b"done 1" in seen, seen)
    check(b"run done" not in seen, "no line for what is expected")


# Secrets.


def title_of(consumer):
    with open(f"/proc/{consumer.pid}/cmdline", "rb") as file:
        return file.read().decode("utf-8", "replace")


@test
def passwords_are_in_no_title_and_may_come_from_elsewhere(rig):
    queue, effects, key = rig.queue(), rig.effects(), rig.key()
    consumer = rig.consume(queue, *FAST, "--to", "http://user:geheim@127.0.0.1:9/", store=rig.store.url)
    consumer.wait_for("connected to")
    title = title_of(consumer)
    for secret in (rig.broker.password_in_url, redistcp.PASSWORD_IN_URL, "geheim"):
        check(secret not in title, f"{secret} is in {title!r}")
    consumer.stop()
    bare = rig.broker.url.replace(":" + rig.broker.password_in_url + "@", "@")
    variable = "IDEM_AMQP_PASSWORD" if rig.broker.name == "rabbit" else "IDEM_REDIS_PASSWORD"
    consumer = rig.consume(queue, *FAST, "--exec", effects.line(), url=bare,
                           env={variable: rig.broker.password})
    queue.publish(key)
    effects.wait(1)
    consumer.stop()


@test
def a_wrong_password_is_told_and_not_shown(rig):
    url = rig.broker.url.replace(rig.broker.password_in_url, "quite-wrong")
    consumer = rig.consume(rig.queue(), *FAST, "--exec", "true", url=url)
    consumer.wait_for(r"(?i)access|refuse|password|login|WRONGPASS")
    check(consumer.running(), "an operator may correct it")
    consumer.stop()
    check("quite-wrong" not in consumer.said(), consumer.said())
    said = rig.idem("dead", "list", url, "--queue", "nothing", status=69)
    check("quite-wrong" not in said and said.strip(), said)


# Refusals.


@test
def names_that_no_message_has_are_refused_at_the_start(rig):
    for flags in (["--key", "#nobody.x"], ["--key", "#body.x", "--order-by", "#bdy.user"],
                  ["--key", "#body.x", "--label", "#header.x"], ["--key", "#body.x", "--fingerprint-expr", "#boddy"]):
        said = rig.idem("consume", rig.broker.url, "--queue", "q", *flags, "--exec", "true", status=64)
        check("there is no #" in said and "#properties" in said, said)
    said = rig.idem("consume", rig.broker.url, "--queue", "q" * 140, "--key", "#body.x", "--exec", "true", status=64)
    check("set one with --prefix" in said, said)


@test
def a_ttl_below_the_longest_redelivery_is_refused_unless_it_is_said(rig):
    queue, effects = rig.queue(), rig.effects()
    words = ["consume", rig.broker.url, "--queue", queue.name, "--store", rig.lmdb(), "--key", "#body.id", "--exec",
             effects.line()]
    said = rig.idem(*words, "--ttl", "30s", "--attempts", "5", "--backoff", "1s..1m", "--lease", "30s", status=64)
    check(re.search(r"ttl is 30s, and a message may come again \S+ later.*ttl of at least \S+.*--unsafe-ttl", said), said)
    least = re.search(r"ttl of at least ([^,\s]+)", said).group(1)
    consumer = rig.consume(queue, "--ttl", "30s", "--unsafe-ttl", "--exec", effects.line())
    consumer.wait_for("connected to")
    consumer.stop()
    consumer = rig.consume(queue, "--ttl", least, "--attempts", 5, "--backoff", "1s..1m", "--lease", "30s", "--exec",
                           effects.line())
    consumer.wait_for("connected to")
    consumer.stop()


MISTAKES = (
    ([], "the broker's URL is missing"),
    (["URL"], "--queue NAME is missing"),
    (["URL", "URL", "--queue", "q"], "one URL is enough"),
    (["URL", "--queue", "q", "--key", "#body.id"], "a handler is missing"),
    (["URL", "--queue", "q", "--exec", "true"], "--key is missing"),
    (["ALL", "--exec", "true", "--to", "http://127.0.0.1/"], "exclude each other"),
    (["ALL", "--exec", "true", "--on-status", "404=retry"], "--on-status is about HTTP"),
    (["ALL", "--exec", "true", "--metrics-host", "consumer-1.internal"], "goes with --metrics"),
    (["ALL", "--to", "http://127.0.0.1/", "--on-exit", "4=retry"], "--on-exit is about exit"),
    (["ALL", "--exec", "true", "--on-exit", "x=y"], "a status is a number from 1 to 255"),
    (["ALL", "--to", "http://127.0.0.1/", "--on-status", "99=retry"], "a status is a number from 200"),
    (["ALL", "--to", "ftp://127.0.0.1/"], "begins with http"),
    (["ALL", "--exec", ""], "the command is empty"),
    (["ALL", "--exec", "true", "--log", "some"], "--log is all, problems or none"),
    (["ALL", "--exec", "true", "--retry-topology", "all"], "--retry-topology is declare or none"),
    (["ALL", "--exec", "true", "--workers", "4", "--prefetch", "2"], "--prefetch is below --workers"),
    (["ALL", "--exec", "true", "--workers", "0"], "allowed: 1 to"),
    (["URL", "--queue", "q", "--key", "#body.", "--exec", "true"], "the name of a member is missing"),
    (["URL", "--queue", "q", "--key", "orderId", "--exec", "true"], "a name without # is no variable"),
    (["URL", "--queue", "q", "--key", "header:", "--exec", "true"], "the header's name"),
    (["ALL", "--exec", "true", "--order-by", "#bo(dy"], "--order-by"),
    (["kafka://h", "--queue", "q", "--key", "#body.id", "--exec", "true"], 'no broker is known by "kafka"'),
    (["ALL", "--exec", "true", "--mode", "lock"], "use mode = reject"),
    (["ALL", "--exec", "true", "--scope", "caller"], "a queue has no caller"),
    (["ALL", "--exec", "true", "--backoff", "5m..1s"], "the first time is longer"),
    (["ALL", "--exec", "true", "--dead-letter", "q"], ""),
    (["ALL", "--exec", "true", "--nosuch"], 'unknown flag "--nosuch"'),
    (["ALL", "--exec", "true", "--recover", "maybe"], "allowed: hold, rerun"),
)


@test
def mistakes_are_told_clearly_and_cost_nothing(rig):
    store = rig.lmdb()
    for words, want in MISTAKES:
        put = [w for word in words for w in ({"URL": [rig.broker.url], "ALL": [
            rig.broker.url, "--queue", "q", "--key", "#body.id"]}.get(word, [word]))]
        said = rig.idem("consume", *put, "--store", store, status=64)
        check(want in said and said.startswith("idem: ") and rig.broker.password_in_url not in said, f"{words}: {said}")
    eq(rig.broker.count("q"), None, "a queue that was made")


if __name__ == "__main__":
    main()
