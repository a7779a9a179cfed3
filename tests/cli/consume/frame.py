"""The frame of these tests: functions named as sentences, TAP on stdout.

    @test                      def a_sentence(rig): ...
    @test(kinds="all", only="rabbit", alone=True, slow=True, long=True)

kinds="all": with each kind of queue (classic and quorum), not only with the first. slow: begins first.
long: only with IDEM_LONG. The tests of a program share one broker, and several run at a time, since
they wait more than they work; a test that kills or stops the broker runs alone. A line of a consumer
with a password, a key or a body, or with a sanitizer's report, fails the test.

    NAME_test.py [TEST...]
"""
import concurrent.futures
import signal
import sys
import tempfile
import threading
import time
import traceback

import brokers
import rig as rigs

AT_A_TIME = 10
LIMIT_S = 7200 if rigs.LONG else 300  # of a test; only a test that hangs reaches it
tests = []


class Skip(Exception):
    pass


class Test:
    def __init__(self, body, kinds, only, alone, slow, long):
        self.body, self.name, self.kinds, self.only = body, body.__name__, kinds, only
        self.alone, self.slow, self.long = alone, slow, long


def test(function=None, kinds="first", only=None, alone=False, slow=False, long=False):
    def add(body):
        tests.append(Test(body, kinds, only, alone, slow, long))
        return body
    return add(function) if function else add


def eq(got, want, what="value"):
    if got != want:
        raise AssertionError(f"{what} is {got!r}, not {want!r}")


def check(condition, what):
    if not condition:
        raise AssertionError(what)


def indiscretions(rig, said):
    secrets = [rigs.MARK, rig.broker.password, rig.broker.password_in_url, rigs.redistcp.PASSWORD,
               rigs.redistcp.PASSWORD_IN_URL]
    return [line for line in said if any(s in line for s in secrets) or rigs.SANITIZER.search(line)]


class Report:
    def __init__(self):
        self.count = self.failed = 0
        self.lock = threading.Lock()

    def row(self, name, failure=None, skip=None, took=0):
        with self.lock:
            self.count += 1
            self.failed += failure is not None
            for line in (failure or "").splitlines():
                print("# " + line[:1000])
            if took > 5:
                print(f"# the next one took {took:.1f} s")
            print(f"{'not ok' if failure else 'ok'} {self.count} - {name}" + (f" # SKIP {skip}" if skip else ""),
                  flush=True)


def run_one(one, kind, broker, folder, report):
    rig = rigs.Rig(broker, folder, kind)
    # At the time limit, kill the consumers, so that waits for them end soon.
    limit = threading.Timer(LIMIT_S, lambda: [c.process.kill() for c in rig.consumers])
    begin, failure, skip = time.monotonic(), None, None
    limit.start()
    try:
        one.body(rig)
        if time.monotonic() - begin > LIMIT_S:
            failure = f"it took {time.monotonic() - begin:.1f} s, and {LIMIT_S} are allowed"
    except Skip as why:
        skip = str(why)
    except BaseException as error:  # pylint: disable=broad-except
        frames = traceback.extract_tb(error.__traceback__)
        place = "\n".join(f"{f.filename.rsplit('/', 1)[-1]}:{f.lineno}: {f.line}" for f in frames[1:])
        failure = f"{type(error).__name__}: {error}\n{place}"
    limit.cancel()
    said = rig.close()
    bad = indiscretions(rig, said)
    if bad:
        failure = (failure + "\n" if failure else "") + "a consumer said:\n" + "\n".join(bad[:20])
    if failure:
        failure += "\nthe last that consumers said:\n" + "\n".join([s for s in said if not s.startswith("{")][-25:])
    report.row(f"{kind}: {one.name}", failure, skip, time.monotonic() - begin)


def plan(wanted):
    """Tests and kinds."""
    name, kinds = brokers.kinds()
    for one in tests:
        if (wanted and one.name not in wanted) or (one.only and one.only != name):
            continue
        if one.long and not rigs.LONG and not wanted:
            continue
        for kind in kinds if one.kinds == "all" else kinds[:1]:
            yield one, kind


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    chosen, report = list(plan(sys.argv[1:])), Report()
    with tempfile.TemporaryDirectory(prefix="idem-consume.") as folder:
        broker = brokers.start(folder + "/broker")
        try:
            with concurrent.futures.ThreadPoolExecutor(AT_A_TIME) as pool:
                for one, kind in sorted(chosen, key=lambda pair: not pair[0].slow):
                    if not one.alone:
                        pool.submit(run_one, one, kind, broker, folder, report)
            for one, kind in chosen:
                if one.alone:
                    run_one(one, kind, broker, folder, report)
        finally:
            broker.stop()
    print(f"1..{report.count}", flush=True)
    sys.exit(report.failed != 0 or report.count != len(chosen) or not chosen)
