"""Runs test programs, several at a time, and reports the results: for tests/run and tests/repeat.

The programs are those that Meson knows of a build directory (`meson introspect --tests`). Each is started by
tests/environment and prints TAP, or is judged by its exit status. Its output goes to BUILD/test-logs/NAME.log,
with the time of each test that took more than 5 seconds.
"""
import collections
import contextlib
import ctypes
import fcntl
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))


def give_up(reason):
    """Exits before a test has run. CI reads the last line."""
    print(f"{reason}\n0 passed, 1 failed")
    sys.exit(1)


def setting(name, default):
    """Returns a whole number above 0 from the environment."""
    text = os.environ.get(name) or str(default)
    if not text.isdecimal() or int(text) == 0:
        give_up(f"{name} is \"{text}\": set it to a whole number above 0")
    return int(text)


# The time limit of one program in seconds; in the long form 30 times as much. Only a program that hangs reaches it.
LIMIT = setting("IDEM_TEST_LIMIT", 1200) * (30 if os.environ.get("IDEM_LONG") else 1)
LOG_MOST = 64 << 20  # bytes of one log; the rest is dropped, and the program has failed
LINE = re.compile(r"(not )?ok \d+\b(?: - )?([^#\n]*)(?:#\s*(skip)\b)?", re.I)
PLAN = re.compile(r"1\.\.(\d+)\s*(?:#\s*(skip)\b)?", re.I)
SEED = re.compile(r"IDEM_SEED=(\d+)")
NAME = re.compile(r"(?:\w+: )?(\w+)")  # of a test, after the name of its environment
SENTENCE = re.compile(r"[a-z0-9]+(?:_[a-z0-9]+){2,}")  # a test's name among the words of a command
PAGE = re.compile(r"([\w.-]+): .*|([\w-]+\.\w+)")  # of tests/docs/run.py, which runs pages
# Scripts whose tests cannot be named as arguments.
UNNAMED = ("/docs_test.py", "/prometheus_test.py", "/redisserver_test.py", "/serve_test.py", "/server_test.py")
SLOW = 5  # seconds; the time of a slower test is reported


class Program:
    """One test program of a build directory."""

    def __init__(self, build, row):
        self.build, self.name = build, row["name"]
        self.log_name = self.name
        self.command, self.env, self.folder = row["cmd"], row["env"], row["workdir"] or build
        self.suites = {suite.split(":")[-1] for suite in row["suite"]}
        self.priority = row["priority"]
        self.tap = row["protocol"] == "tap"

    def takes_names(self):
        """True if single tests of it can be named as arguments."""
        if not self.tap:
            return False
        scripts = [word for word in self.command if word.endswith(("_test.py", "_test.mjs", "together.py"))]
        if scripts:
            return not scripts[0].endswith(UNNAMED)
        return self.command[0].endswith(("-test", "_test")) or "/contract-" in self.command[0]

    def part(self, test):
        """Returns the name that runs just this test (for a page: its tests); None if the program takes no names."""
        if self.command[0].endswith("docs/run.py"):
            page = PAGE.fullmatch(test)
            return page and (page.group(1) or page.group(2))
        name = NAME.fullmatch(test)
        return name.group(1) if name and self.takes_names() else None

    def command_of(self, parts):
        """Returns the command that runs just these tests, in place of those that Meson names."""
        if self.command[0].endswith("docs/run.py"):
            return self.command[:3] + [page for page in self.command[3:] if os.path.basename(page) in parts]
        return [word for word in self.command if not SENTENCE.fullmatch(word)] + list(parts)

    def repeat_command(self, test=""):
        """Returns the command that repeats the program, or one of its tests."""
        part = self.part(test)
        if part and self.command_of([part]) != [*self.command, part]:  # Meson can only add words
            return f"tests/repeat 1 --build {self.build} {shlex.quote(f'{self.name}:{part}')}"
        words = f"meson test -C {self.build} --no-rebuild --verbose {shlex.quote(self.name)}"
        return words + (f" --test-args={part}" if part else "")


class Result:
    """The result of one run of a program."""

    def __init__(self, program, log, seconds, cpu, status, output):
        self.program, self.log, self.seconds, self.cpu = program, log, seconds, cpu
        self.passed, self.skipped, self.failures, self.slow = 0, 0, [], []
        seeds = SEED.findall(output)
        self.seed = seeds[-1] if seeds else None
        planned = self.read_tap(output) if program.tap else 0
        if not program.tap and status == 0:
            self.passed = 1
        ran = self.passed + self.skipped + len(self.failures)
        if status is None:
            self.failures.append("it hung and was killed")
        elif program.tap and planned is None:
            self.failures.append(f"exit status {status}, before its last line")
        elif program.tap and (planned != ran or ran == 0):
            self.failures.append(f"exit status {status}, {ran} tests instead of {planned or 'some'}")
        elif status != 0 and (status != 1 or not self.failures):  # 1: some tests have failed
            self.failures.append(f"exit status {status}")

    def read_tap(self, output):
        """Counts the tests; returns the planned number, or None if the program did not come to its end."""
        planned = None
        for line in output.splitlines():
            found, plan = LINE.match(line), PLAN.match(line)
            if plan:
                planned = int(plan.group(1))
                self.skipped += planned == 0 and bool(plan.group(2))
                planned = planned or self.skipped
            elif not found:
                continue
            elif found.group(3):
                self.skipped += 1
            elif found.group(1):
                self.failures.append(found.group(2).strip())
            else:
                self.passed += 1
        return planned

    @classmethod
    def of_trouble(cls, program, error):
        """The result of a program that could not be run."""
        result = cls(program, os.devnull, 0, 0, 1, "1..0")  # status 1: a program without TAP has failed, too
        result.failures = [f"it could not be run: {error}"]
        return result


held = []  # descriptors that stay open while this process lives


def hold(build):
    """Reserves a build directory: two runs in one would write the same logs."""
    held.append(os.open(build, os.O_RDONLY))
    try:
        fcntl.flock(held[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        give_up(f"another run uses {build}: wait until it has ended, or use another clone")


def programs(build):
    out = subprocess.run(["meson", "introspect", "--tests", build], check=True, stdout=subprocess.PIPE).stdout
    return [Program(build, row) for row in json.loads(out)]


LIBC, PR_SET_CHILD_SUBREAPER = ctypes.CDLL(None), 36


def adopt_orphans():
    """Makes a process whose parent has ended a child of this one, even a daemon with a session of its own. Calls
    prctl(2); execve(2) keeps the setting, fork(2) does not."""
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class Running:
    """The programs that run now, so that all of them end when this one does. A process that a program has started is a
    descendant of its tests/environment, and becomes a child of this process when that has ended: so no process can
    escape."""

    def __init__(self):
        self.lock, self.processes, self.ended = threading.Lock(), {}, False
        adopt_orphans()

    def start(self, command, base, env, **options):
        """Starts a program. Its temporary files go into a directory below `base`, which is removed when the program
        has ended."""
        with self.lock:
            if self.ended:
                raise SystemExit(1)
            temporary = tempfile.mkdtemp(prefix="idem.", dir=base)
            try:
                process = subprocess.Popen(command, start_new_session=True, preexec_fn=adopt_orphans,
                                           env={**env, "IDEM_TEST_TMPDIR": temporary}, **options)
            except Exception:
                os.rmdir(temporary)
                raise
            self.processes[process] = temporary
            return process

    def finish(self, process):
        with self.lock:  # so that no program is between its start and its entry in the table
            temporary = self.processes.pop(process)
            kill_children(spared={other.pid for other in self.processes})
        remove_tree(temporary)

    def end(self):
        with self.lock:
            self.ended = True
            kill_children()
            for temporary in self.processes.values():
                remove_tree(temporary)


MEMORY, ROOM = "/dev/shm", 4 << 30  # servers put their files there if it has this much room, in bytes


def in_memory():
    """Returns a directory in memory for temporary files, or /tmp: databases that are copied and thrown away, hundreds
    of times, keep a disk busy for a minute."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            free = next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable:"))
        there = os.statvfs(MEMORY)
        with tempfile.NamedTemporaryFile("w", dir=MEMORY, delete=False) as script:
            script.write("#!/bin/sh\n")
        try:
            os.chmod(script.name, 0o700)
            runs = subprocess.run([script.name], check=False).returncode == 0  # the file system may be mounted noexec
        finally:
            os.unlink(script.name)
        return MEMORY if runs and min(free, there.f_bavail * there.f_frsize) > ROOM else "/tmp"
    except (OSError, StopIteration):
        return "/tmp"


TEMPORARY = in_memory()


def kill_group(process):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def is_foreign_child(pid):
    """True for a child of this process that runs in another session: a test program, or a process that a program has
    left running."""
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            state, parent, _, session = file.read().rsplit(")", 1)[1].split()[:4]
        return state not in "ZX" and int(parent) == os.getpid() and int(session) != os.getsid(0)
    return False


def kill_children(spared=()):
    """Kills these children, except for `spared`. The children of a killed process become children of this one, so the
    list is read again until it is empty."""
    for _ in range(1000):
        children = [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and is_foreign_child(pid)]
        children = [pid for pid in children if pid not in spared]
        if not children:
            return
        for pid in children:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)  # sleep: the step of a poll; a process that waits for a disk dies later


def remove_tree(path):
    """Removes a directory, even if a test has left files there that cannot be written."""
    subprocess.run(["chmod", "-R", "u+rwX", path], check=False, stderr=subprocess.DEVNULL)
    shutil.rmtree(path, ignore_errors=True)


class Recorder(threading.Thread):
    """Writes the output of a program to its log, and the time of each slow test. That is the time since the test
    before it, which is too little if a program runs several tests at a time."""
    END = b"\0the program has ended\n"  # ends the log, because other processes may keep the pipe open

    def __init__(self, log):
        super().__init__(daemon=True)
        self.log, self.slow, self.left = log, [], LOG_MOST
        self.from_program, self.to_log = os.pipe()
        self.start()

    def run(self):
        before = time.monotonic()
        with open(self.from_program, "rb") as lines, open(self.log, "wb", buffering=0) as log:
            while line := lines.readline(1 << 16):
                self.write(log, line.removesuffix(self.END))
                if line.endswith(self.END):
                    return
                found = LINE.match(line.decode("utf-8", "replace"))
                if not found:
                    continue
                took, before = time.monotonic() - before, time.monotonic()
                if took > SLOW:
                    self.slow.append((took, found.group(2).strip()))
                    log.write(f"# it took {took:.1f} s\n".encode())

    def write(self, log, text):
        if self.left <= 0:
            return
        log.write(text)
        self.left -= len(text)
        if self.left <= 0:
            log.write(b"\n# the rest is dropped: this log is too long\n")

    def finish(self):
        os.write(self.to_log, self.END)
        os.close(self.to_log)
        self.join()


def run_one(program, running, directory):
    """Runs a program to its end; returns its Result."""
    os.makedirs(directory, exist_ok=True)
    log = os.path.join(directory, re.sub(r"[^\w.=-]+", "-", program.log_name) + ".log")
    open(log, "wb").close()  # fails here if the log cannot be written
    base = TEMPORARY if "disk" not in program.suites else "/tmp"
    begin = time.monotonic()
    recorder = Recorder(log)
    try:
        process = running.start([HERE + "/environment", *program.command], base, {**os.environ, **program.env},
                                stdin=subprocess.DEVNULL, stdout=recorder.to_log, stderr=subprocess.STDOUT,
                                cwd=program.folder)
        hangs = threading.Event()
        timer = threading.Timer(LIMIT, lambda: (hangs.set(), kill_group(process)))
        timer.start()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        timer.cancel()
        running.finish(process)
    finally:
        recorder.finish()
    with open(log, encoding="utf-8", errors="replace") as file:
        result = Result(program, log, time.monotonic() - begin, usage.ru_utime + usage.ru_stime,
                        None if hangs.is_set() else process.returncode, file.read())
    result.slow = recorder.slow
    if recorder.left <= 0:
        result.failures.append(f"it wrote more than {LOG_MOST >> 20} MiB")
    return result


class Progress:
    """One line that shows how far the run is: rewritten on a terminal, else printed every PAUSE seconds."""
    PAUSE = 15

    def __init__(self):
        self.begin, self.total, self.ended, self.failed = time.monotonic(), 0, 0, 0
        # `now` is a counter, because tests/repeat runs a program several times at once.
        self.now, self.work, self.lock = collections.Counter(), "", threading.Lock()
        self.terminal, self.printed = sys.stdout.isatty(), 0.0
        threading.Thread(target=self.tick, daemon=True).start()

    def tick(self):
        while True:
            time.sleep(1)  # sleep: the clock of the line
            with self.lock:
                self.show()

    def elapsed(self):
        seconds = int(time.monotonic() - self.begin)
        return f"{seconds // 60}:{seconds % 60:02}"

    def show(self, force=False):
        """Call with the lock held."""
        text = f"[{self.ended}/{self.total}] {self.elapsed()} " + (f"{self.failed} failed; " if self.failed else "") \
            + ", ".join(filter(None, [self.work, *self.now]))
        if self.terminal:
            # A line that wraps cannot be rewritten.
            width = min(110, shutil.get_terminal_size().columns - 1)
            print(f"\r\x1b[K{text[:width]}", end="", flush=True)
        elif force or time.monotonic() - self.printed > self.PAUSE:
            self.printed = time.monotonic()
            print(text[:160], flush=True)

    def say(self, text):
        """Prints a line that stays."""
        with self.lock:
            print(("\r\x1b[K" if self.terminal else "") + text, flush=True)

    def building(self, what):
        with self.lock:
            self.work = what
            self.show(force=True)

    def starts(self, name):
        with self.lock:
            self.now[name] += 1
            self.show()

    def ends(self, name, failed):
        with self.lock:
            self.now -= collections.Counter([name])
            self.ended += 1
            self.failed += failed
            self.show()


class Pool:
    """Runs the programs that are added, `at_a_time` at once."""

    def __init__(self, at_a_time, directory=None, on_result=None):
        self.directory, self.on_result, self.running = directory, on_result, Running()
        self.waiting, self.closed, self.results = [], False, []
        self.changed, self.progress = threading.Condition(), Progress()
        self.threads = [threading.Thread(target=self.work, daemon=True) for _ in range(at_a_time)]
        for thread in self.threads:
            thread.start()

    def put(self, chosen):
        """Appends programs to those that wait; within one call, the highest priority runs first."""
        with self.changed:
            self.waiting += sorted(chosen, key=lambda p: -p.priority)
            self.progress.total += len(chosen)
            self.changed.notify_all()

    def next(self):
        """Returns the next program; None if no more will come."""
        with self.changed:
            self.changed.wait_for(lambda: self.waiting or self.closed)
            return self.waiting.pop(0) if self.waiting else None

    def work(self):
        while (program := self.next()) is not None:
            name = f"{program.build}: {program.name}"
            self.progress.starts(name)
            try:
                result = run_one(program, self.running, self.directory or os.path.join(program.build, "test-logs"))
            except Exception as error:  # pylint: disable=broad-except  # a full disk: no program may be lost silently
                result = Result.of_trouble(program, error)
            with self.changed:
                self.results.append(result)
                if self.on_result:
                    self.on_result(result)
            for failure in result.failures:
                self.progress.say(f"FAILED {name}: {failure}")
            self.progress.ends(name, len(result.failures))

    def finish(self):
        """Waits for all programs; returns their results."""
        with self.changed:
            self.closed = True
            self.changed.notify_all()
        for thread in self.threads:
            thread.join()
        return self.results


def end_with_signals(pool):
    """When a signal ends this run, its programs end, too. (SIGKILL leaves them running.)

    A thread waits for the signal: Python runs handlers in the main thread only, and a signal that another thread
    receives does not wake the main thread from a lock."""
    received, send = os.pipe()
    os.set_blocking(send, False)

    def end():
        number = os.read(received, 1)[0]
        try:
            pool.running.end()
            pool.progress.lock.acquire(timeout=1)  # so that nothing is printed after the sum
            # print() may be in the middle of a line, and _exit() does not flush it. The reader of the output may have
            # exited.
            os.write(1, b"\n0 passed, 1 failed\n")
        finally:
            os._exit(128 + number)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(send, warn_on_full_buffer=False)
    threading.Thread(target=end, daemon=True).start()


def slowest_first(results):
    return sorted(results, key=lambda result: -result.seconds)
