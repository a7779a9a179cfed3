"""The frame of tests in Python that share something slow: functions named as sentences, run in their
order, TAP on stdout.

    @test
    def a_sentence(shared): ...

    plain.main(make)         make() is a context manager of the shared object
    plain.main(make, words)  runs the tests once with make(word) for each word

A test that raises plain.Skip(why) is skipped; if make() raises it, all are.

    NAME_test.py [TEST...]
"""
import signal
import subprocess
import sys
import traceback

tests = []


class Skip(Exception):
    pass


def test(function):
    tests.append(function)
    return function


def check(good, what):
    if not good:
        raise AssertionError(what)


def run(*command, status=0, timeout=900, **options):
    """Runs a command, checks its exit status, and returns its output."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace", timeout=timeout, check=False, **options)
    check(status is None or done.returncode == status,
          f"{' '.join(command)[:400]}: {done.returncode}, not {status}:\n{done.stdout[-6000:]}")
    return done.stdout


class Report:
    def __init__(self):
        self.count = self.failed = 0

    def row(self, name, failure="", skip=""):
        self.count += 1
        self.failed += bool(failure)
        for line in failure.splitlines():
            print("# " + line[:1000])
        print(f"{'not ok' if failure else 'ok'} {self.count} - {name}" + (f" # SKIP {skip}" if skip else ""),
              flush=True)

    def body(self, name, function, *args):
        """Runs a test and prints its row; returns the test's result."""
        try:
            value = function(*args)
        except Skip as why:
            self.row(name, skip=str(why))
            return None
        except Exception:  # pylint: disable=broad-except
            self.row(name, traceback.format_exc())
            return None
        self.row(name)
        return value


def main(make, words=("",)):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    chosen = [body for body in tests if not sys.argv[1:] or body.__name__ in sys.argv[1:]]
    report = Report()
    for word in words:
        name = word + ": " if word else ""
        try:
            with make(*([word] if word else [])) as shared:
                for body in chosen:
                    report.body(name + body.__name__, body, shared)
        except Skip as why:
            report.row(name + "all of it", skip=str(why))
        except Exception:  # pylint: disable=broad-except
            report.row(name + "what these tests share is there", traceback.format_exc())
    print(f"1..{report.count}")
    sys.exit(report.failed != 0)
