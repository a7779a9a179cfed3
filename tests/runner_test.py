#!/usr/bin/env python3
"""tests/run, tests/repeat, tests/environment and the targets of the Makefile, in a directory of their own with
stand-ins for Meson, ninja and the test programs. Prints TAP.

    runner_test.py TESTS [TEST...]     TESTS: the directory of tests/run
"""
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
TESTS = sys.argv.pop(1)
sys.path.insert(0, TESTS)
import plain  # pylint: disable=wrong-import-position
from plain import check, test  # pylint: disable=wrong-import-position
from waiting import until  # pylint: disable=wrong-import-position

BUILDS = 4
PASSES = "echo 'ok 1 - good'; echo 1..1"
MESON = """#!/bin/sh
case $1 in
setup) mkdir -p "$2"; : >"$2/build.ninja" ;;
introspect) case $2 in --tests) cat programs.json ;; *) echo '[]' ;; esac ;;
esac
"""


class Tree:
    """A source tree that contains only the runner."""

    def __init__(self, folder):
        self.folder = folder
        for name in ("tests", "tools", "bin"):
            os.mkdir(f"{folder}/{name}")
        for name in ("run", "run.py", "runner.py", "repeat", "environment"):
            shutil.copy(f"{TESTS}/{name}", f"{folder}/tests")
        shutil.copy(TESTS + "/../Makefile", folder)
        self.programs = []
        self.script("tools/packages", "")
        self.script("bin/ninja", "")
        self.write("bin/meson", MESON)

    def write(self, name, text, mode=0o755):
        with open(f"{self.folder}/{name}", "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(f"{self.folder}/{name}", mode)

    def script(self, name, text):
        self.write(name, "#!/bin/sh\n" + text + "\n")

    def program(self, name, text, *words, path=None):
        """Adds a test program to every build."""
        path = path or f"bin/{name}-test"
        self.script(path, text)
        self.programs.append({"name": name, "cmd": [f"{self.folder}/{path}", *words], "env": {}, "workdir": None,
                              "suite": ["idem:threads", "idem:fuzz"], "is_parallel": True, "priority": 0, "protocol": "tap",
                              "depends": []})
        self.write("programs.json", json.dumps(self.programs))

    def build(self):
        """Sets up a build directory; returns its name."""
        os.makedirs(self.folder + "/build-test", exist_ok=True)
        self.write("build-test/build.ninja", "")
        return "build-test"

    def environment(self, **more):
        # The runner under test does not see the settings of the run that started this test.
        clean = {k: v for k, v in os.environ.items() if k not in ("IDEM_LONG", "MAKEFLAGS", "MAKELEVEL")}
        return {**clean, "PATH": f"{self.folder}/bin:{os.environ['PATH']}", **more}

    def run(self, *command, status=0, **env):
        """Runs a command; returns its lines."""
        said = plain.run(*(command or ["tests/run"]), status=status, cwd=self.folder, env=self.environment(**env))
        return said.splitlines()


@contextlib.contextmanager
def tree():
    with tempfile.TemporaryDirectory() as folder:
        yield folder


def fresh(folder):
    path = tempfile.mkdtemp(dir=folder)
    made = Tree(path)
    made.program("one", PASSES)
    return made


def last(lines):
    return lines[-1]


@test
def tests_that_pass_are_added_up(folder):
    lines = fresh(folder).run()
    check(last(lines) == f"{BUILDS} passed, 0 failed", lines)
    check(any(re.search(r"^ +\d+\.\d s,.* of CPU time +build-asan: one$", line) for line in lines), lines)
    check(any(re.match(r"\[\d/\d\] \d:\d\d ", line) for line in lines), f"a line of progress: {lines}")


@test
def a_test_that_was_renamed_since_the_last_run_is_built(folder):
    made = fresh(folder)
    made.run()
    os.rename(made.folder + "/programs.json", made.folder + "/programs.new")
    made.programs[0]["depends"] = ["old"]
    made.write("programs.json", json.dumps(made.programs))
    # Meson writes the new list when ninja builds build.ninja, and the old one has no target for it.
    made.write("bin/meson", MESON.replace("echo '[]'", """echo '[{"id": "old", "filename": ["'$PWD/$3'/old-test"]}]'"""))
    made.script("bin/ninja", 'case "$*" in *build.ninja) cp programs.new programs.json;; *old-test*) exit 1;; esac')
    check(last(made.run()) == f"{BUILDS} passed, 0 failed", "after a test was renamed")


@test
def what_has_a_target_of_its_own_runs_there_and_in_no_other(folder):
    made = fresh(folder)
    made.program("two", PASSES)
    made.programs[1]["suite"].append("idem:brokers")
    made.write("programs.json", json.dumps(made.programs))
    check(last(made.run()) == f"{BUILDS} passed, 0 failed", "make test")
    check(last(made.run("tests/run", "brokers")) == "3 passed, 0 failed", "its target, in three builds")
    check(last(made.run(IDEM_LONG="1")) == f"{2 * BUILDS} passed, 0 failed", "make test-all")
    check("no target is called broker;" in made.run("tests/run", "broker", status=1)[0], "a target that is none")


@test
def what_was_skipped_is_no_success(folder):
    made = fresh(folder)
    made.program("two", "echo 'ok 1 - odd # SKIP not here'; echo 1..1")
    lines = made.run()
    check(last(lines) == f"{BUILDS} passed, 0 failed" and f"{BUILDS} tests skipped" in lines[-2], lines)


@test
def a_package_that_is_missing_ends_with_a_sum(folder):
    made = fresh(folder)
    made.script("tools/packages", "exit 69")
    check(last(made.run(status=1)) == "0 passed, 1 failed", made)


@test
def a_build_that_cannot_be_set_up_ends_with_a_sum(folder):
    made = fresh(folder)
    made.script("bin/meson", "echo broken; exit 1")
    lines = made.run(status=1)
    check(last(lines) == "0 passed, 1 failed" and "broken" in lines, lines)


@test
def a_build_that_fails_is_a_failure_beside_what_passed(folder):
    made = fresh(folder)
    made.script("bin/ninja", "case $2 in build-tsan) echo broken; exit 1 ;; esac")
    lines = made.run(status=1)
    check(last(lines) == f"{BUILDS - 1} passed, 1 failed" and "broken" in lines, lines)


@test
def a_failure_names_the_command_that_repeats_it(folder):
    made = fresh(folder)
    made.program("two", "echo '# IDEM_SEED=77'; echo 'ok 1 - good'; echo 'not ok 2 - quorum: bad_one'; echo 1..2; exit 1")
    lines = made.run(status=1)
    check(last(lines) == f"{2 * BUILDS} passed, {BUILDS} failed", lines)
    check("    IDEM_SEED=77 meson test -C build-tsan --no-rebuild --verbose two --test-args=bad_one" in lines, lines)


@test
def the_command_of_a_failure_repeats_just_that_test_although_meson_names_some(folder):
    made = fresh(folder)
    made.program("two", """[ "$*" = "--with=x a_bad_one" ] || echo 'not ok 1 - lmdb: a_good_one_of_three'
        echo 'not ok 2 - lmdb: a_bad_one'; echo "1..$(($# == 2 ? 1 : 2))"; exit 1""",
                 "--with=x", "a_good_one_of_three", "a_bad_one")
    lines = made.run(status=1)
    again = "tests/repeat 1 --build build-test two:a_bad_one"
    check("    " + again in lines, lines)
    check(last(made.run("sh", "-c", again, status=1)) == "0 passed, 1 failed", "just that one")
    check(last(made.run("tests/repeat", "1", "two:a_bad_one", "two:another_bad_one", status=1)) == "0 passed, 2 failed", "two")


@test
def the_command_of_a_page_that_failed_repeats_that_page(folder):
    made = fresh(folder)
    os.mkdir(made.folder + "/docs")
    made.program("docs", """shift 2; n=0; for page; do n=$((n + 1)); echo "not ok $n - ${page##*/}: idem run, and so on"; done
        echo 1..$n; exit 1""", "SOURCE", "BUILD", "a/one.md", "a/two.1", path="docs/run.py")
    lines = made.run(status=1)
    again = "tests/repeat 1 --build build-test docs:two.1"
    check("    " + again in lines, lines)
    check(last(made.run("sh", "-c", again, status=1)) == "0 passed, 1 failed", "just that page")


@test
def the_time_of_a_slow_test_is_reported(folder):
    made = fresh(folder)
    with open(TESTS + "/runner.py", encoding="utf-8") as file:
        made.write("tests/runner.py", file.read().replace("SLOW = 5 ", "SLOW = 0 "))
    made.run()
    for name in ("test-times", "test-logs/one.log"):
        with open(f"{made.folder}/build-test/{name}", encoding="utf-8") as file:
            said = file.read()
            check(re.search(r"^ +\d+\.\d s  good$" if name == "test-times" else r"^ok 1 - good\n# it took \d", said, re.M), said)


@test
def what_a_program_leaves_running_is_killed(folder):
    made = fresh(folder)
    # sleep: the test kills it, even outside of its session and its environment
    made.program("two", f"setsid sleep 600 & echo $! >{made.folder}/left; sleep 600 & echo $! >>{made.folder}/left; "
                        f"env -i setsid sh -c 'echo $$ >>{made.folder}/left; exec sleep 600' & "
                        f"until [ $(wc -l <{made.folder}/left) = 3 ]; do sleep .02; done; {PASSES}")
    made.build()
    check(last(made.run("tests/repeat", "1", "two")) == "1 passed, 0 failed", "it ends")
    with open(made.folder + "/left", encoding="ascii") as file:
        left = file.read().split()
    check(len(left) == 3 and not any(belongs_to(pid, made.folder) for pid in left), left)


@test
def a_log_has_an_end(folder):
    made = fresh(folder)
    with open(TESTS + "/runner.py", encoding="utf-8") as file:
        made.write("tests/runner.py", file.read().replace("LOG_MOST = 64 << 20", "LOG_MOST = 1 << 20"))
    made.program("two", f"head -c 3000000 /dev/zero | tr '\\0' x; echo; {PASSES}")
    made.build()
    lines = made.run("tests/repeat", "1", "two", status=1)
    check(any("it wrote more than 1 MiB" in line for line in lines), lines)


@test
def two_runs_do_not_share_a_build_directory(folder):
    made = fresh(folder)
    made.program("two", f"echo $$ >{made.folder}/pid; until [ -e {made.folder}/go ]; do sleep 0.05; done; {PASSES}")
    made.build()
    with subprocess.Popen(["tests/repeat", "1", "two"], cwd=made.folder, env=made.environment(), text=True,
                          stdout=subprocess.PIPE) as first:
        until("the first one runs", lambda: os.path.exists(made.folder + "/pid"))
        for command in (["tests/repeat", "1", "one"], ["tests/run"]):
            lines = made.run(*command, status=1)
            check("another run uses build-test" in lines[-2] and last(lines) == "0 passed, 1 failed", lines)
        made.write("go", "")
        check(first.communicate()[0].endswith("\n1 passed, 0 failed\n"), "the first one is not disturbed")


@test
def bad_settings_are_refused(folder):
    made = fresh(folder)
    made.build()
    for name in ("IDEM_TEST_JOBS", "IDEM_TEST_LIMIT"):
        for value in ("x", "0", "-1", "1m"):
            lines = made.run(status=1, **{name: value})
            check(f'{name} is "{value}"' in lines[-2] and last(lines) == "0 passed, 1 failed", lines)
    for words in (["0"], ["-1"], ["1", "--jobs", "0"], ["1", "one:"], ["1", "--build", "nowhere", "one"]):
        check("Traceback" not in " ".join(made.run("tests/repeat", *words, status=None)), words)
        check(made.run("tests/repeat", *words, status=None)[-1] != "0 passed, 0 failed", words)


@test
def a_program_that_dies_has_failed(folder):
    for text, how in (("echo 'ok 1 - good'; kill -SEGV $$", "exit status 139"),
                      ("echo 'ok 1 - good'; echo 1..1; exit 3", "exit status 3"),
                      ("echo 'ok 1 - good'", "exit status 0, before its last line"),
                      ("echo 'ok 1 - good'; echo 1..7", "exit status 0, 1 tests instead of 7"),
                      ("echo 1..0", "exit status 0, 0 tests instead of some"),
                      ("echo 'ok, let us go'; echo 1..1", "exit status 0, 0 tests instead of 1"),
                      ("echo 'not ok 1 - bad'; echo 1..1; kill -SEGV $$", "exit status 139"),
                      ("exec sleep 600", "hung")):  # sleep: a program that hangs
        made = fresh(folder)
        made.programs.clear()
        made.program("two", text)
        lines = made.run(status=1, IDEM_TEST_LIMIT="1" if "600" in text else "100")
        check(any(re.search(how, line) for line in lines), f"{text}: {lines}")
        check(last(lines).endswith(f", {BUILDS * (2 if 'not ok' in text else 1)} failed"), lines)


@test
def what_could_not_be_run_has_failed(folder):
    made = fresh(folder)
    made.write("bin/meson", MESON.replace("introspect)", "introspect) case $3 in build-tsan) exit 1 ;; esac;"))
    check(last(made.run(status=1)) == f"{BUILDS - 1} passed, 1 failed", "a build whose tests are not known")
    made = fresh(folder)
    made.script("bin/ninja", "[ $2 != build-tsan ]")
    check(last(made.run(status=1)) == f"{BUILDS - 1} passed, 1 failed", "a build that fails without output")
    made = fresh(folder)
    os.mkdir(made.folder + "/build-asan")
    made.write("build-asan/test-logs", "")
    check(last(made.run(status=1)) == f"{BUILDS - 1} passed, 1 failed", "a program whose log cannot be written")
    made = fresh(folder)
    made.program("two", PASSES)
    made.programs[0]["env"] = {"A": 1}
    os.mkdir(made.folder + "/memory")
    with open(TESTS + "/runner.py", encoding="utf-8") as file:
        made.write("tests/runner.py", file.read().replace('MEMORY, ROOM = "/dev/shm", 4 << 30', f'MEMORY, ROOM = "{made.folder}/memory", 0'))
    made.write("programs.json", json.dumps(made.programs))
    check(last(made.run("tests/repeat", "1", "--jobs", "1", "--build", made.build(), "one", "two", status=1))
          == "1 passed, 1 failed", "a program that cannot be started")
    check(os.listdir(made.folder + "/memory") == [], "the remains")


@test
def the_reason_of_a_failure_is_shown_wherever_it_stands(folder):
    made = fresh(folder)
    made.program("two", "echo '# the reason'; echo 'not ok 1 - bad'; for i in $(seq 2 200); do echo ok $i - good; done; "
                 "echo 1..200; exit 1")
    check(made.run(status=1).count("# the reason") == BUILDS, "the reason")


def belongs_to(pid, folder):
    """True for a running process that has the directory in its environment, because another process may have the same
    number by now."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return folder.encode() in file.read()
    except OSError:
        return False


def end_by_signal(run):
    """Ends a run with SIGTERM, in a thread that is not its main one: a signal that comes just before the main thread
    blocks does not wake that thread either."""
    threads = [int(name) for name in os.listdir(f"/proc/{run.pid}/task") if int(name) != run.pid]
    os.kill(threads[0], signal.SIGTERM)
    try:
        until("it ends before its program does", lambda: run.poll() is not None)
    finally:
        run.kill()
    check(run.returncode == 128 + signal.SIGTERM, run.returncode)


@test
def load_ends_with_its_run(folder):
    made = fresh(folder)
    made.program("two", f"echo $$ >{made.folder}/pid; exec sleep 600")  # sleep: it is killed
    made.build()
    with subprocess.Popen(["tests/repeat", "1", "--load", "two"], cwd=made.folder, env=made.environment(),
                          stdout=subprocess.DEVNULL, start_new_session=True) as run:
        until("the program runs", lambda: os.path.exists(made.folder + "/pid"))
        busy = plain.run("pgrep", "-P", str(run.pid)).split()
        check(len(busy) >= 5, busy)
        end_by_signal(run)
    for pid in busy:
        until("it is gone", lambda: not belongs_to(pid, made.folder))


@test
def a_run_that_is_ended_leaves_no_program_behind(folder):
    made = fresh(folder)
    # sleep: it is killed
    made.program("two", f"echo $TMPDIR >>{made.folder}/directories; "
                        f"env -i setsid sh -c 'echo $$ >>{made.folder}/pids; exec sleep 600' & "
                        f"echo $$ >>{made.folder}/pids; exec sleep 600")
    with subprocess.Popen(["tests/run"], cwd=made.folder, env=made.environment(), stdout=subprocess.PIPE,
                          start_new_session=True) as run:
        until("the programs run", lambda: os.path.exists(made.folder + "/pids") and
              len(open(made.folder + "/pids", encoding="ascii").readlines()) >= 2)
        end_by_signal(run)
        out = run.stdout.read().decode()
    check(out.endswith("\n0 passed, 1 failed\n"), out)
    with open(made.folder + "/pids", encoding="ascii") as file:
        for pid in file.read().split():
            until("it is gone", lambda: not belongs_to(pid, made.folder))
    with open(made.folder + "/directories", encoding="ascii") as file:
        for directory in file.read().split():
            until("its files are gone", lambda: not os.path.exists(directory))


@test
def a_run_ends_though_nobody_reads_what_it_prints(folder):
    made = fresh(folder)
    made.program("two", f"echo $$ >>{made.folder}/pids; exec sleep 600")  # sleep: it is killed
    made.build()
    with subprocess.Popen(["tests/repeat", "1", "two"], cwd=made.folder, env=made.environment(), stdout=subprocess.PIPE,
                          start_new_session=True) as run:
        until("the program runs", lambda: os.path.exists(made.folder + "/pids"))
        run.stdout.close()
        end_by_signal(run)


@test
def a_program_has_an_environment_of_its_own(folder):
    made = fresh(folder)
    made.programs.clear()
    made.program("two", 'kill -HUP $$; echo "not ok 1 - SIGHUP is ignored"')
    lines = made.run("nohup", "tests/run", status=1)
    check(any("exit status 129" in line for line in lines), lines)
    made.programs.clear()
    made.program("two", f'''touch "$HOME/file" || exit 1
        echo "$(umask) $LC_ALL $TZ $IDEM_STORE $PGHOST $TMPDIR $HOME $ASAN_OPTIONS" >{made.folder}/seen; {PASSES}''')
    made.run("sh", "-c", "umask 077; exec tests/run", TZ="Asia/Tokyo", LC_ALL="de_DE.UTF-8", IDEM_STORE="redis:x",
             PGHOST="elsewhere", TMPDIR=folder + "/a-name-that-is-too-long-for-the-paths-of-sockets", HOME="/nowhere",
             ASAN_OPTIONS="detect_leaks=0")
    with open(made.folder + "/seen", encoding="utf-8") as file:
        seen = file.read().split()
    check(seen[:3] == ["0022", "C.UTF-8", "UTC0"] and len(seen) == 6 and re.match("/(tmp|dev/shm)/idem[.]", seen[3]), seen)
    check(seen[4] == seen[3] + "/home" and seen[5].startswith("detect_leaks=1:"), seen)
    check(not os.path.exists(seen[3]), "its temporary directory is removed")


@test
def repeat_counts_what_fails_now_and_then(folder):
    made = fresh(folder)
    made.program("two", f"""n=$(cat {made.folder}/n 2>/dev/null || echo 0); echo $((n + 1)) >{made.folder}/n
        [ $n != 2 ] || {{ echo '# IDEM_SEED=5'; echo 'not ok 1 - now_and_then'; echo 1..1; exit 1; }}
        {PASSES}""")
    made.build()
    lines = made.run("tests/repeat", "4", "--jobs", "1", "threads", status=1)
    check(last(lines) == "7 passed, 1 failed", lines)
    at = lines.index("build-test: two: now_and_then: failed 1 of 4 times")
    check(lines[at + 2:at + 4] == ["  seed: IDEM_SEED=5",
                                   "  meson test -C build-test --no-rebuild --verbose two --test-args=now_and_then"], lines)
    check("no suite and no program" in " ".join(made.run("tests/repeat", "1", "nothing", status=1)), "a name that is none")
    check(last(made.run("tests/repeat", "2", "--load", "one")) == "2 passed, 0 failed", "beside load")
    with open(made.folder + "/" + lines[at + 1].split()[1], encoding="utf-8") as log:  # still there after other runs
        check("not ok 1 - now_and_then" in log.read(), lines)


@test
def a_sleep_without_a_reason_is_found_however_it_is_spelt(folder):
    word = "sl" + "eep"  # so that the search does not find this file
    bad = [f"time.{word}(3)", f"t.{word}(3)", f"time.{word} (3)", f"self.{word}(3)", f"from time import {word} as nap",
           "Event()" + ".wait(3)", "select.select" + "([], [], [], 3)", f'run(["{word}", "3"])', f"u{word}(1000);",
           f"nano{word}(&t, NULL);", f"thrd_{word}(&t, NULL);", "po" + "ll(NULL, 0, 100);", "po" + "ll(0,0,100);",
           "po" + "ll(&fd, 0, 100);", "psel" + "ect(0, NULL, NULL, NULL, &t, NULL);", "wait_" + "us(1000);",
           "Event()" + ".wait(timeout=2)", "select.select" + "((), (), (), 2)", f"nap = time.{word}",
           f'run(["/bin/{word}", "3"])', f"/bin/{word} 2", f"for i in 1 2 3; do {word} 2; done", "read " + "-t 2",
           "import { set" + "Timeout as delay }", "Atomics" + ".wait(a, 0, 0, 9);",
           "sel" + "ect(0, NULL, NULL, NULL, &t);", "await page.waitFor" + "Timeout(300);", "timers.set" + "Timeout(f, 3);",
           f"{word} 3", f'{word} "$n"', "rig_" + "turn(&rig, 600);"]
    good = [f"time.{word}(3)  # {word}: a reason", f"until x; do {word} 0.1; done", f"exec {word} 600",
            "pa" + "use();", "poll(fds, 1, 100);", f"/* {word}: a reason */\nu{word}(3);"]
    for text in bad + good:
        path = os.path.join(folder, "text")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text + "\n")
        plain.run(TESTS + "/sleeps", path, status=int(text in bad))


@test
def make_check_installs_what_it_needs(folder):
    made = fresh(folder)
    made.script("tools/packages", 'echo "packages $*"')
    made.script("bin/ninja", "echo built")
    made.programs[0]["suite"].append("idem:check")
    made.program("two", PASSES)
    said = made.run("make", "-s", "check")
    check(said[0] == "packages build check" and "built" in said and last(said) == "1 passed, 0 failed", said)


@test
def every_group_of_packages_is_known(_folder):
    with open(TESTS + "/../tools/packages", encoding="utf-8") as file:
        groups = dict(re.findall(r"^    (\w+)\) echo (.*?) ;;$", file.read().replace("\\\n", ""), re.M))
    for name in ("Makefile", "tests/run"):
        with open(f"{TESTS}/../{name}", encoding="utf-8") as file:
            for words in re.findall(r"tools/packages ([a-z ]+)", file.read()):
                check(set(words.split()) <= set(groups), f"{name}: {words}")
    check(set(groups["check"].split()) <= set(groups["test"].split()), "make check needs no more than make test")


if __name__ == "__main__":
    plain.main(tree)
