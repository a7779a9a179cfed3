"""Many `idem run` of two releases on one store, some killed, logged for the judge of histories
(tests/model/history.h).

Either release runs a key, again and again. Its command logs each step before it happens; idem's verdicts
come from --verdict-fd. A run is killed together with its command.
"""
import collections
import contextlib
import json
import os
import random
import signal
import subprocess
import tempfile
import threading
import time

from waiting import LIMIT, until

LEASE_MS = 1000
KEYS = 16  # new keys in each phase
# The command line is the same in every run of a key, because it is the fingerprint.
COMMAND = '''
note() { "$CHECK" --append "$LOG" "$OWNER" "$KEY" "$@"; }
note claimed owner=$OWNER verdict=run attempt=$IDEM_ATTEMPT
note effect owner=$OWNER attempt=$IDEM_ATTEMPT
sleep $PAUSE # sleep: a moment that is left to chance
if [ "$FAIL" != 0 ]; then note finish owner=$OWNER said=$FAIL; exit 1; fi
note finish owner=$OWNER said=done digest=$OWNER-$IDEM_ATTEMPT
echo $OWNER-$IDEM_ATTEMPT
'''
# kind of key: options of idem, the finish of a failing command, the judge's policy
KINDS = {
    "hold": (["--recover", "hold", "--on-failure", "release"], "release", "mode=replay recover=hold"),
    "rerun": (["--recover", "rerun", "--on-failure", "retry", "--attempts", "50", "--backoff", "1ms..10ms"], "fail",
              "mode=replay recover=rerun"),
}
ACKS = {"stored": "ack", "lost": "lost", "unknown": "error"}


class Storm:
    def __init__(self, programs, url, check, folder, seed):
        self.programs, self.url, self.check, self.log = programs, url, check, folder + "/history"
        self.chance, self.lock = random.Random(seed), threading.Lock()
        self.keys, self.serial, self.seen, self.odd = [], 0, collections.Counter(), []

    def keys_add(self, n):
        for i in range(len(self.keys), len(self.keys) + n):
            kind = list(KINDS)[i % len(KINDS)]
            self.keys.append((kind, f"{kind}-{i}"))
            self.note("test", self.keys[-1][1], "policy", f"{KINDS[kind][2]} lease_ms={LEASE_MS}")

    def note(self, actor, key, event, names):
        with open(self.log, "ab", buffering=0) as log:
            log.write(f"{time.monotonic_ns()} {actor} {key} {event} {names} .\n".encode())

    def choose(self, which):
        """Chooses (program, owner, kind, key, fails, pause, when it is killed or None)."""
        with self.lock:
            self.serial += 1
            kind, key = self.chance.choice(self.keys[-KEYS:] if self.chance.random() < 0.7 else self.keys)
            fails = KINDS[kind][1] if self.chance.random() < 0.15 else "0"
            kill = self.chance.random() * 0.3 if self.chance.random() < 0.2 else None
            return self.chance.choice(which), f"o{self.serial}", kind, key, fails, self.chance.choice((0, 0, 0.2)), kill

    def one(self, which):
        self.ask(*self.choose(which))

    def ask(self, name, owner, kind, key, fails="0", pause=0, kill=None):
        """Runs one idem, from its start to its end."""
        env = {**os.environ, "CHECK": self.check, "LOG": self.log, "OWNER": owner, "KEY": key, "FAIL": fails,
               "PAUSE": str(pause)}
        with tempfile.TemporaryFile() as verdict, tempfile.TemporaryFile() as out:
            fd = verdict.fileno()
            command = [self.programs[name], "run", "--store", self.url, "--key", key, "--label", key,
                       "--lease", f"{LEASE_MS}ms", "--quiet", "--verdict-fd", str(fd), *KINDS[kind][0], "--",
                       "sh", "-c", COMMAND]
            self.note(owner, key, "claim", f"owner={owner} x-by={name}")
            process = subprocess.Popen(command, env=env, pass_fds=[fd], stdin=subprocess.DEVNULL, stdout=out,
                                       stderr=subprocess.DEVNULL, start_new_session=True)
            try:
                process.wait(kill if kill is not None else LIMIT)
            except subprocess.TimeoutExpired:
                kill_all(process)
                self.note(owner, "*", "crash", "")
                with self.lock:
                    self.seen["killed"] += 1
                    if kill is None:
                        self.odd.append(f"{name} of {key} ({owner}) did not end")
                return
            verdict.seek(0)
            out.seek(0)
            self.told(name, owner, key, verdict.read().decode().splitlines(), out.read().decode().strip())

    def told(self, name, owner, key, lines, out):
        """Logs idem's verdict and finish; the command has logged its own lines already."""
        words = [line.split() for line in lines] or [["error"]]
        verdict = words[0][0]
        with self.lock:
            self.seen[f"{name} {verdict}"] += 1
            self.seen["again"] += verdict == "run" and words[0][1] != "attempt=1"
            if verdict in ("error", "mismatch"):
                self.odd.append(f"{name} of {key} ({owner}): {lines}")
        if verdict != "run":
            self.note(owner, key, "claimed", f"owner={owner} verdict={verdict}" +
                      (f" digest={out}" if verdict == "replay" else ""))
        elif len(words) > 1:
            said = words[1][1].split("=")[1]
            if said != "none":
                self.note(owner, key, "finished", f"owner={owner} said={said} ack={ACKS[words[1][0]]}")

    def settle(self, which):
        """An operator, of either release, frees uncertain records: otherwise all keys of the kind `hold` would come to
        rest."""
        name = self.chance.choice(which)
        idem = [self.programs[name]]
        env = {**os.environ, "IDEM_AUDIT": "/dev/null"}
        found = subprocess.run(idem + ["list", "--state", "uncertain", "--json", "--store", self.url], env=env,
                               stdout=subprocess.PIPE, timeout=LIMIT, check=True).stdout.splitlines()
        for key in [json.loads(line)["label"] for line in found]:
            self.note("operator", key, "settle", f"x-by={name}")
            done = subprocess.run(idem + ["settle", "--failed", key, "--store", self.url], env=env,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=LIMIT, check=False)
            self.note("operator", key, "settled", "")
            self.seen[f"{name} settled"] += done.returncode == 0

    def phase(self, which, asks, threads=5):
        """Each thread runs keys `asks` times, new ones and all earlier ones, with both releases or one of them."""
        self.keys_add(KEYS)

        def work():
            for _ in range(asks):
                self.one(which)
        together(threads, work)
        self.settle(which)

    def ask_all(self, threads=5):
        """When every lease is over, runs each key once more, with one release or the other."""
        listed = [self.programs["new"], "list", "--state", "running", "--json", "--store", self.url]
        until("every lease is over", lambda: not subprocess.run(listed, stdout=subprocess.PIPE, timeout=LIMIT,
                                                                check=True).stdout)
        left = list(enumerate(self.keys))

        def work():
            while left:
                with contextlib.suppress(IndexError):
                    i, (kind, key) = left.pop()
                    self.ask(("old", "new")[i % 2], f"last{i}", kind, key)
        together(threads, work)

    def judge(self):
        """Returns the judge's exit status and its output."""
        done = subprocess.run([self.check, self.log], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=LIMIT, check=False)
        return done.returncode, done.stdout


def together(threads, work):
    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def kill_all(process):
    """Kills the run and its command, which is in the same session, but in a process group of its own."""
    children = subprocess.run(["ps", "-o", "pid=", "-s", str(process.pid)], stdout=subprocess.PIPE, text=True,
                              check=False).stdout.split()
    process.kill()
    for pid in children:
        try:
            os.kill(int(pid), signal.SIGKILL)
        except ProcessLookupError:
            pass
    process.wait()
