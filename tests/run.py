#!/usr/bin/env python3
"""Runs the tests in every build; the last line is the sum over all of them. tests/run starts this program.

    run.py [TARGET]    without a target: the C system

build-test   gcc, as it is shipped: every suite
build-clang  clang: a short run of each fuzz target, and lint
build-tsan   gcc with the thread sanitizer: programs with threads
build-asan   gcc with the address and undefined behaviour sanitizers: library, module and parsers

The first build's tests begin as soon as it is made; the other builds are made meanwhile, at a lower
priority, and their tests follow. The last build has the most and the shortest programs, so that both
processors are busy until the end. IDEM_LONG=1 adds the suites and forms that take long.
"""
import os
import subprocess
import sys
import traceback

sys.dont_write_bytecode = True
import runner

MAKE_TEST = "test"  # the target of every program whose suites have no target of their own
# Suites that have a target of their own (make test-brokers, ...), and the builds in which they run.
TARGETS = {
    "brokers": ["build-test", "build-tsan", "build-asan"],
    "clients": ["build-test"],
    "install": ["build-test"],
    "upgrade": ["build-test"],
}
EVERY_TARGET = {MAKE_TEST, *TARGETS}  # the targets of CI, and of make test-all
LONG = bool(os.environ.get("IDEM_LONG"))
AT_A_TIME = runner.setting("IDEM_TEST_JOBS", 4 * (os.cpu_count() or 2))  # most tests wait more than they work
# Programs are linked by mold. Without separate-code its RELRO segment begins on a page that is not mapped, if the code before it ends
# within some bytes of a page: the loader refuses such a program, about one in a thousand.
LINKED = "-Dc_link_args=-Wl,-z,separate-code"
# Optimised little, to compile fast. (Warnings are errors in the first build, which is fully optimised, and with
# clang.)
QUICK = ["-Ddebug=false", "-Dc_args=-g1"]


class Build:
    """A build directory: how it is made, and which of its tests run."""

    def __init__(self, name, compiler, options, only=None, without=()):
        self.name, self.compiler, self.options = name, compiler, options
        self.only, self.without = only, set() if LONG else set(without)

    def wants(self, program, targets):
        """True if the program runs in this build when these targets are made."""
        its_targets = program.suites & set(TARGETS) or {MAKE_TEST}
        return bool(its_targets & targets) and (not self.only or bool(program.suites & self.only)) \
            and not program.suites & self.without

    def make(self, targets, nice=0):
        """Sets the directory up; returns None, or the failure."""
        def run(*command, **env):
            done = subprocess.run(["setpriv", "--pdeathsig", "TERM", "nice", "-n", str(nice), *command],
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  text=True, errors="replace", check=False, env={**os.environ, **env})
            return None if done.returncode == 0 else done.stdout or f"{command[0]}: exit status {done.returncode}"
        if not os.path.exists(self.name + "/build.ninja"):
            wrong = run("meson", "setup", self.name, LINKED, *self.options, CC=self.compiler, CC_LD="mold")
            if wrong:
                return wrong
        # The build files first: needs() reads the output of Meson's last run, which may be older than a new or renamed
        # test.
        return run("ninja", "-C", self.name, "build.ninja") or run("ninja", "-C", self.name, *self.needs(targets))

    def needs(self, targets):
        """Returns the targets that its tests need; for the first build, everything."""
        wanted = {need for row in introspect(self.name, "--tests") if self.wants(runner.Program(self.name, row), targets)
                  for need in row["depends"]}
        paths = [os.path.relpath(path, self.name) for row in introspect(self.name, "--targets")
                 if row["id"] in wanted for path in row["filename"]]
        return (["all"] if self is BUILDS[0] else []) + paths


def introspect(build, what):
    return runner.json.loads(subprocess.run(["meson", "introspect", what, build], check=True,
                                            stdout=subprocess.PIPE).stdout)


BUILDS = [
    Build("build-test", "gcc", ["-Dwerror=true"], without=["long"]),
    Build("build-clang", "clang", [*QUICK, "-Doptimization=0", "-Dwerror=true", "-Dfuzz=true",
                                   "-Db_sanitize=address,undefined", "-Db_lundef=false", "-Dnginx=disabled"],
          only={"fuzz", "lint"}),
    Build("build-tsan", "gcc", [*QUICK, "-Doptimization=0", "-Db_sanitize=thread", "-Db_lundef=false", "-Dnginx=disabled"],
          only={"threads"}),
    Build("build-asan", "gcc", [*QUICK, "-Doptimization=1", "-Db_sanitize=address,undefined"],
          without=["long", "slow", "again", "cli", "model", "tools"]),
]


def make_and_put(build, targets, pool, unbuilt, nice):
    pool.progress.building(f"building {build.name}")
    try:
        wrong = build.make(targets, nice)
        wanted = [] if wrong else [p for p in runner.programs(build.name) if build.wants(p, targets)]
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        wrong = str(error)
    pool.progress.building("")
    if wrong:
        unbuilt.append((build.name, wrong))
        return False
    pool.put(wanted)
    return True


def what_failed(lines, most=60):
    """Prints from a log each failed test, with the lines since the test before it; if there is none, the end."""
    shown, since = [], 0
    for at, line in enumerate(lines):
        if line.startswith("not ok"):
            shown += lines[max(since, at - most):at + 1]
        if line.startswith(("ok", "not ok")):
            since = at + 1
    return (shown + ["...\n"] + lines[since:][-most:]) if shown else lines[-most:]


def time_of(result):
    return f"{result.seconds:8.1f} s, {result.cpu:5.1f} s of CPU time  {result.program.build}: {result.program.name}"


def report(results, unbuilt, elapsed):
    slowest = runner.slowest_first(results)
    print("\nthe ten slowest programs (all of them: build-test/test-times):", *map(time_of, slowest[:10]), sep="\n")
    slow = sorted(((seconds, result.program, test) for result in results for seconds, test in result.slow),
                  key=lambda row: -row[0])
    print("\nthe ten slowest tests:", *(f"{seconds:8.1f} s  {program.build}: {program.name}: {test}"
                                       for seconds, program, test in slow[:10]), sep="\n")
    if results:
        with open("build-test/test-times", "w", encoding="utf-8") as file:
            for result in slowest:
                print(time_of(result), *(f"{seconds:14.1f} s  {test}" for seconds, test in result.slow), sep="\n", file=file)
    for build, wrong in unbuilt:
        print(f"\n{build} could not be built, or some of its programs did not run:\n{wrong[-20000:]}")
    for result in results:
        if result.failures:
            print(f"\n== {result.program.build}: {result.program.name}: from {result.log}")
            with open(result.log, encoding="utf-8", errors="replace") as file:
                print("".join(what_failed(file.readlines())), end="")
    failures = [(result, test) for result in results for test in result.failures]
    if failures:
        print("\nwhat failed, and how to run it again:")
    for result, test in failures:
        print(f"  {result.program.build}: {result.program.name}: {test}\n"
              f"    {f'IDEM_SEED={result.seed} ' if result.seed else ''}{result.program.repeat_command(test)}")
    skipped = sum(result.skipped for result in results)
    print(f"\n{len(results)} programs in {elapsed}" + (f", {skipped} tests skipped" if skipped else ""))
    passed, failed = sum(result.passed for result in results), len(failures) + len(unbuilt)
    print(f"{passed} passed, {failed} failed")
    return failed == 0 and passed > 0


def main(target=MAKE_TEST):
    targets = EVERY_TARGET if LONG and target == MAKE_TEST else {target}
    builds = [build for build in BUILDS if target == MAKE_TEST or build.name in TARGETS[target]]
    for build in builds:
        os.makedirs(build.name, exist_ok=True)
        runner.hold(build.name)
    pool, unbuilt = runner.Pool(AT_A_TIME), []
    runner.end_with_signals(pool)

    for build in builds:  # the first one by itself; the others while its tests run
        first = build is builds[0]
        if not make_and_put(build, targets, pool, unbuilt, 0 if first else 5) and first:
            break  # the others would fail in the same way
    results = pool.finish()
    if len(results) != pool.progress.total:
        unbuilt.append(("the run", f"{len(results)} of {pool.progress.total} programs ended"))
    return 0 if report(results, unbuilt, pool.progress.elapsed()) else 1


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit(f"tests/run: name one target, or none; there are: {', '.join(TARGETS)}")
    if sys.argv[1:] and sys.argv[1] not in TARGETS:
        sys.exit(f"tests/run: no target is called {sys.argv[1]}; there are: {', '.join(TARGETS)}")
    try:
        sys.exit(main(*sys.argv[1:2]))
    except Exception:  # pylint: disable=broad-except
        runner.give_up(traceback.format_exc())
