"""The frame of the tests of the gateway: functions named as sentences, TAP on stdout.

    @test                          def a_sentence(rig): ...
    @test(expects=["exited on signal 9"])

The tests of a file share one rig. A line of nginx's log with [alert],
[emerg] or [crit], or a sanitizer's report, fails the running test,
unless the test expects it. At the end nginx must exit gracefully, without such lines.

    NAME_test.py [TEST...]
"""
import signal
import sys
import time
import traceback

import rig as rigs

SECONDS = 300 * (30 if rigs.LONG else 1)  # for one test; only a failure takes that long
tests = []


class Slow(BaseException):
    """The time limit; no `except Exception` of a test catches it."""


class Skip(Exception):
    pass


def test(function=None, seconds=SECONDS, expects=(), stores=None):
    def add(body):
        tests.append((body, seconds, list(expects), stores))
        return body
    return add(function) if function else add


def eq(got, want, what="value"):
    if got != want:
        raise AssertionError(f"{what} is {got!r}, not {want!r}")


def check(condition, what):
    if not condition:
        raise AssertionError(what)


def status(answer, want, kind=None):
    """Checks the status of a response and, for a refusal, the last word of its type; returns the response."""
    if answer.status != want or (kind is not None and answer.type != kind):
        raise AssertionError(f"expected {want} {kind or ''}, got {answer!r}")
    return answer


def replay_of(first, again):
    """Checks that the second response is a replay of the first."""
    check(again.status == first.status and again.replayed, f"no replay of {first!r}: {again!r}")
    eq(again.body, first.body, "the replayed body")
    return again


def time_limit(*_):
    raise Slow("the time limit")


def run_one(body, rig, seconds, expects):
    """Runs a test; returns None, or its failure."""
    before = len(rig.said())
    failure = None
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        body(rig)
    except Skip:
        raise
    except (Exception, Slow) as error:  # pylint: disable=broad-except
        last = [f for f in traceback.extract_tb(error.__traceback__)]
        place = "\n".join(f"{f.filename.rsplit('/', 1)[-1]}:{f.lineno}: {f.line}" for f in last[1:])
        notes = "\n".join(getattr(error, "__notes__", []))
        failure = f"{type(error).__name__}: {error}\n{place}\n{notes}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    for name in list(rig.backend.events):
        rig.backend.go(name)
    said = rig.said()[before:]
    bad = rigs.bad_lines(said, expects)
    if bad:
        failure = (failure + "\n" if failure else "") + "nginx logged:\n" + "\n".join(bad[:20])
    if failure:
        failure += "\nthe end of nginx's log:\n" + "\n".join(said.splitlines()[-12:])
    return failure


class Report:
    def __init__(self):
        self.count = self.failed = 0

    def row(self, name, failure=None, skip=None):
        self.count += 1
        if failure:
            self.failed += 1
            for line in failure.splitlines():
                print("# " + line[:1000])
        print(f"{'not ok' if failure else 'ok'} {self.count} - {name}" + (f" # SKIP {skip}" if skip else ""),
              flush=True)


def ending(rig):
    """The file's last row: a graceful exit, and no bad line in the log."""
    if rig.process is None or rig.process.poll() is not None:
        return f"nginx had gone: {rig.said()[-2000:]}"
    before = len(rig.said())
    if not rig.quit():
        return "nginx does not go after SIGQUIT; the end of its log:\n" + \
            "\n".join(rig.said().splitlines()[-12:])
    bad = rigs.bad_lines(rig.said()[before:], [])
    return "nginx logged while it went:\n" + "\n".join(bad[:20]) if bad else None


def main(locations="", plain=False, **options):
    """Runs the tests of the program. plain: they need no module."""
    if not rigs.MODULE and not plain:
        print("1..0 # SKIP IDEM_HTTP_MODULE is not set")
        sys.exit(0)
    signal.signal(signal.SIGALRM, time_limit)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    wanted = sys.argv[1:]
    chosen = [t for t in tests if not wanted or t[0].__name__ in wanted]
    report = Report()
    rig = None
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        rig = rigs.Rig(locations, **options)
    except (Exception, Slow) as error:  # pylint: disable=broad-except
        report.row("nginx starts with this file's configuration", str(error) or repr(error))
        chosen = []
    signal.setitimer(signal.ITIMER_REAL, 0)
    for body, seconds, expects, stores in chosen:
        if stores and not rigs.STORE.startswith(stores):
            report.row(body.__name__, skip=f"only for {stores}")
            continue
        begin = time.monotonic()
        try:
            failure = run_one(body, rig, seconds, expects)
        except Skip as why:
            report.row(body.__name__, skip=str(why))
            continue
        report.row(body.__name__, failure)
        if time.monotonic() - begin > 5:
            print(f"# {body.__name__} took {time.monotonic() - begin:.1f} s", flush=True)
    if rig is not None:
        report.row("nginx_goes_gracefully_and_quietly", ending(rig))
        rig.stop()
    print(f"1..{report.count}", flush=True)
    if len(chosen) < len(set(wanted)):
        print("# there is no test of that name")
    sys.exit(report.failed != 0 or len(chosen) < len(set(wanted)))
