#!/usr/bin/env python3
"""The counts of a consumer (--metrics), read over HTTP: the test makes each event happen, and finds its count. Prints
TAP."""
import http.client
import shutil
import subprocess
import sys
import urllib.error
import urllib.request

sys.dont_write_bytecode = True
from frame import *
from rig import *

# Acts on the last word of the key.
# sleep: the measured time, and a handler that is killed
HANDLER = 'case "$IDEM_KEY" in *bad) exit 1;; *long) sleep 0.7;; *stuck) exec sleep 600;; *crash) kill -SEGV $$;; esac'
RUN_MAX = 15  # longer than a pause of a handler that must not be ended
FLAGS = ["--workers", 8, "--lease", "60s", "--backoff", "500ms..500ms", "--attempts", 2, "--recover", "hold", "--run-max",
         f"{RUN_MAX}s", "--prefix", "mail:", "--metrics", "127.0.0.1:0", "--exec", HANDLER]


def asked(consumer, query="", host="127.0.0.1"):
    consumer.wait_for(r"metrics at http")
    address = re.search(r"metrics at (http://\S+)", consumer.said())[1]

    def answer():
        """Returns None on a timeout: the server waits five seconds for a request, and either side may stand still for
        longer."""
        request = urllib.request.Request(address + query, headers={"Host": host})
        try:
            with urllib.request.urlopen(request, timeout=LIMIT) as got:
                return got.read().decode()
        except urllib.error.HTTPError as refused:
            if refused.code == 403:
                return refused.read().decode()
            raise
        except (OSError, http.client.HTTPException):
            return None
    return until("the metrics are there", answer)


def figures(consumer):
    """Returns {family, with its verdict, operation or state: value}; for histograms the sum and the count."""
    found = {}
    for name, labels, value in re.findall(r"^idem_(\w+?)(?:_total)?(?:{(.*)})? (\S+)$", asked(consumer), re.M):
        if "le=" not in labels:
            found[" ".join([name] + re.findall(r'(?:verdict|op|state)="(\w+)"', labels))] = float(value)
    return found


def counted(consumer, want):
    """Waits for the counts, which are copied once a second."""
    def differ():
        have = figures(consumer)
        return {name: have.get(name) for name, n in want.items() if have.get(name) != n}
    try:
        until("it is counted", lambda: not differ(), step=0.1)
    except AssertionError as error:
        raise AssertionError(f"{error}: {differ()}, and not {want}") from error


def consume(rig, queue, store):
    """Consumes with a key in a header, so that a message has a fingerprint."""
    return rig.consume(queue, *FLAGS, store=store, key="header:idempotency-key")


def send(queue, key, **more):
    queue.publish(key, {"Idempotency-Key": key}, **more)


def one_that_is_uncertain(rig, queue, store):
    """Leaves an uncertain record behind, so that a later count of records finds one."""
    consumer = consume(rig, queue, store)
    send(queue, rig.key() + "crash")
    until("its letter", queue.dead_count)
    settled(queue, consumer)
    queue.letters()


@test(slow=True)
def each_count_of_a_consumer_is_seen_over_http(rig):
    queue, store = rig.queue(), rig.lmdb()
    good, bad = [rig.key() for _ in range(3)], rig.key() + "bad"
    one_that_is_uncertain(rig, queue, store)
    consumer = consume(rig, queue, store)
    counted(consumer, {"records uncertain": 1, "records running": 0, "verdicts run": 0, "messages_done": 0})
    for key in (*good, bad, rig.key() + "stuck", rig.key() + "long"):
        send(queue, key)
    queue.publish_bytes(b'{"note": "sesame"}')
    until("no key, no attempt left, and uncertain", lambda: queue.dead_count() == 3)
    send(queue, good[0])
    send(queue, good[1], other=1)
    send(queue, bad)
    counted(consumer, {
        "verdicts run": 7, "verdicts duplicate": 1, "verdicts mismatch": 1, "verdicts malformed": 1, "verdicts dead": 1,
        "verdicts uncertain": 1, "verdicts store_error": 0, "messages_done": 4, "messages_retried": 2, "messages_buried": 5,
        "messages_unburied": 0, "cancelled": 1, "outcomes_unknown": 1, "leases_lost": 1, "store_errors": 0,
        "handler_seconds_count": 7, "messages_in_hand": 0, "messages_handled_now": 0, "claims_in_flight": 0})
    have = figures(consumer)
    check(have["handler_seconds_sum"] >= 0.7 + RUN_MAX, have)
    check(have["store_seconds_count claim"] >= 11 and have["store_seconds_count finish"] >= 7, have)
    text, more = asked(consumer), asked(consumer, "?format=json")
    check(not any(word in text + more for word in (MARK, rig.broker.password, rig.broker.password_in_url)), "no key, no password")
    check(shutil.which("promtool"), "promtool is there (Debian: prometheus)")
    run = subprocess.run(["promtool", "check", "metrics"], input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                         timeout=LIMIT, check=False)
    eq((run.returncode, run.stdout), (0, ""), "promtool's output")
    settled(queue, consumer)


@test
def a_key_that_somebody_else_is_at_is_counted_as_busy(rig):
    queue, store, key = rig.queue(), rig.lmdb(), rig.key()
    consumer = rig.consume(queue, *FLAGS, store=store)
    counted(consumer, {"verdicts busy": 0})
    gate = rig.gate()
    with subprocess.Popen([IDEM, "run", "--store", store, "--prefix", "mail:", "--key", key, "--", "sh", "-c", gate.wait()],
                          preexec_fn=follow_parent):
        until("it runs", lambda: rig.idem("list", "--store", store, "--state", "running", "--json"))
        queue.publish(key)
        until("it is counted", lambda: figures(consumer)["verdicts busy"])
        gate.open()
    counted(consumer, {"verdicts duplicate": 1, "verdicts run": 0, "handler_seconds_count": 0})
    settled(queue, consumer)


@test
def a_store_that_is_away_and_comes_back_is_seen_over_http(rig):
    queue, server = rig.queue(), rig.store
    # A store that stands still for some seconds does not count as away.
    consumer = rig.consume(queue, *FLAGS, store=server.url + "?timeout=60s&connect_timeout=60s")
    queue.publish(rig.key())
    counted(consumer, {"messages_done": 1, "store_errors": 0, "store_reconnects": 0})
    server.kill()
    queue.publish(rig.key())
    until("errors are counted", lambda: figures(consumer)["verdicts store_error"] and figures(consumer)["store_errors"])
    server.start()
    counted(consumer, {"messages_done": 2, "verdicts run": 2})
    check(figures(consumer)["store_reconnects"] >= 1, figures(consumer))
    check(redistcp.PASSWORD not in asked(consumer) and redistcp.PASSWORD_IN_URL not in asked(consumer), "no password")
    settled(queue, consumer)


@test
def a_name_reads_what_was_counted_only_where_it_is_allowed(rig):
    """The owner of another domain name can point it at this address."""
    queue = rig.queue()
    consumer = rig.consume(queue, *FLAGS, "--metrics-host", "consumer-1.internal", store=rig.lmdb())
    for host, want in (("consumer-1.internal:9100", True), ("localhost", True), ("evil.example", False)):
        eq("idem_build_info" in asked(consumer, host=host), want, host)
    check("--metrics-host" in asked(consumer, host="evil.example"), "what to do")
    settled(queue, consumer)


if __name__ == "__main__":
    main()
