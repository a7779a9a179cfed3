"""A real nginx with the module, a store and a backend, in a temporary directory.

Everything listens on loopback ports or sockets of the directory. The rig ends
each process that it started by its pid, also when a test fails or is killed.
From the environment:
  IDEM_HTTP_MODULE   the module; empty: plain nginx, and tests of the module are skipped
  IDEM_HTTP_STORE    lmdb (default), lmdb-always, redis, postgres, mysql
  IDEM_HTTP_KEEP     keep the directory and print its path
"""
import atexit
import contextlib
import ctypes
import itertools
import json
import os
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
# pylint: disable=wrong-import-position
from backend import Backend, Blackhole, Fastcgi, Http, Uwsgi, Wire, pattern, unread
from client import Answer, Conn, H2, Later, burst, curl, request, send, together
from ports import free_ports
from waiting import LIMIT, until
import redisserver
import sqlserver

MODULE = os.environ.get("IDEM_HTTP_MODULE", "")
STORE = os.environ.get("IDEM_HTTP_STORE") or "lmdb"
NGINX = os.environ.get("IDEM_HTTP_NGINX") or "/usr/sbin/nginx"
LONG = bool(os.environ.get("IDEM_LONG"))
DEATHSIG, SUBREAPER = 1, 36  # of prctl

BAD = re.compile(r"\[alert\]|\[emerg\]|\[crit\]|AddressSanitizer|LeakSanitizer|ThreadSanitizer|runtime error")
PATIENT = "timeout=60s&connect_timeout=60s"  # of a store that is a server
NGINX_CLOCK = os.environ.get("IDEM_NGINX_CLOCK_LIBRARY", "")
serials = itertools.count(1)
started = []


def fresh(name="k"):
    """Returns a key that was not used yet."""
    return f"{name}-{os.getpid()}-{next(serials)}"


def follow_parent():
    """Runs in a child: the child ends with this process, however it ends."""
    ctypes.CDLL(None).prctl(DEATHSIG, signal.SIGTERM)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGPIPE,
                   signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_DFL)


def children(pid):
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", encoding="latin-1") as file:
                    if int(file.read().rsplit(")", 1)[1].split()[1]) == pid:
                        found.append(int(entry))
            except (OSError, IndexError):
                pass
    return found


def title(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode("latin-1")
    except OSError:
        return ""


def state(pid):
    """The state as in ps(1): R, S, T ...; Z: the process has ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="latin-1") as file:
            return file.read().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "Z"


def alive(pid):
    return state(pid) != "Z"


def until_answer(what, ask, is_it):
    """Repeats a request until its response is the expected one."""
    def asked():
        answer = ask()
        return answer if is_it(answer) else None
    return until(what, asked, 0.02)


def until_200(what, ask):
    return until_answer(what, ask, lambda answer: answer.status == 200)


def bad_lines(text, expects=()):
    """Returns the lines that nginx must not log, and a sanitizer's reports."""
    return [line for line in text.splitlines()
            if BAD.search(line) and not any(re.search(e, line) for e in expects)]


def sanitizers():
    """Debian's nginx is built without sanitizers; a module that needs them loads them with LD_PRELOAD."""
    if not MODULE:
        return {}
    with open(MODULE, "rb") as file:
        text = file.read()
    names = [n for n in ("libasan.so", "libubsan.so", "libtsan.so") if n.encode() in text]
    if not names:
        return {}
    paths = [subprocess.run(["gcc", "-print-file-name=" + n], stdout=subprocess.PIPE, text=True,
                            check=True).stdout.strip() for n in names]
    options = os.environ.get("ASAN_OPTIONS", "")
    # nginx keeps its configuration until it exits; leak_test finds leaks per request.
    return {"LD_PRELOAD": ":".join(paths),
            "ASAN_OPTIONS": ":".join(filter(None, (options, "detect_leaks=0:detect_odr_violation=0"
                                                   ":quarantine_size_mb=8"))),
            "UBSAN_OPTIONS": os.environ.get("UBSAN_OPTIONS", "print_stacktrace=1")}


class Clock:
    """The clock of a rig's nginx (nginx_clock.c). A worker sees a change at its next turn: Rig.turn()."""

    def __init__(self, path):
        self.path = path
        self.set()

    def set(self, ahead_ms=0, wall_ms=0, stop=False):
        """`ahead_ms`: advances all clocks; `wall_ms`: stops the time of day there; `stop`: stops the clocks of timers,
        so that no timeout ends."""
        still = [int(time.clock_gettime(clock) * 1000) if stop else 0 for clock in (time.CLOCK_MONOTONIC, time.CLOCK_BOOTTIME)]
        with open(self.path, "r+b" if os.path.exists(self.path) else "wb") as file:
            file.write(struct.pack("=qqqq", ahead_ms, wall_ms, *still))


class Adopted:
    """A process whose parent has ended: nginx accepts SIGUSR2 only then. Has the methods of Popen that the rig needs."""

    def __init__(self, command, pidfile, **options):
        ctypes.CDLL(None).prctl(SUBREAPER, 1)
        # The shell stays until nginx has recorded it as its parent.
        script = 'pid=$1; shift; "$@" >/dev/null & echo $!; while [ ! -s "$pid" ]; do sleep 0.02; done'
        run = subprocess.run(["sh", "-c", script, "sh", pidfile, *command], check=True, timeout=LIMIT,
                             stdout=subprocess.PIPE, **options)
        self.pid, self.returncode = int(run.stdout), None

    def poll(self):
        if self.returncode is None:
            try:
                pid, code = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self.returncode = code
            except ChildProcessError:
                self.returncode = None if alive(self.pid) else -1
        return self.returncode

    def wait(self, timeout=LIMIT):
        """Waits with the same limit as `until`."""
        try:
            until("nginx ends", lambda: self.poll() is not None)
        except AssertionError as error:
            raise subprocess.TimeoutExpired("nginx", timeout) from error

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self):
        self.send_signal(signal.SIGTERM)


def start_redis(folder, persist=False):
    """A Redis in a directory of its own. persist: it keeps its data over kill() and start()."""
    return redisserver.start(folder, *([] if persist else ["--appendonly", "no", "--appendfsync", "no"]))


CGI = "".join(f"{{0}}_param {name} ${value};" for name, value in (
    ("REQUEST_METHOD", "request_method"), ("REQUEST_URI", "request_uri"), ("CONTENT_TYPE", "content_type"),
    ("CONTENT_LENGTH", "content_length"), ("QUERY_STRING", "query_string"), ("SERVER_PROTOCOL",
                                                                          "server_protocol")))


def guard(path, rules, to=None, prefix=None):
    """Returns a guarded location; by default the prefix comes from the path."""
    name = prefix or re.sub(r"[^a-z0-9]+", "-", path.lower()).strip("-") + ":"
    target = to or "proxy_pass http://@BACKEND@;"
    return f"location {path} {{ idem_prefix {name}; {rules} {target} }}\n"


# A location where a test reads how many requests are parked or running.
WATCH = "location = /rig-status { idem off; idem_status; access_log off; }\n"


class Rig:
    """nginx in front of a backend. Placeholders in its configuration: @BACKEND@, @FASTCGI@ and @UWSGI@ for the
    backends' addresses, @SELF@ and @TLS@ for nginx's own, @REFUSED@ for a port that no process listens on, @STORE@ for
    the store's URL, @SURE@ for the URL of the same store without the `options`, @TEMP@ for the directory. Timeouts of
    the store never end, unless `options` or a location set some. `expects` are patterns of lines that its log may
    have."""

    def __init__(self, locations, http="", server="", main="", workers=2, store=None, persist=False,
                 defaults="idem_store @STORE@; idem_scope none; idem_finish_timeout 1h;", start=True, backend=None,
                 options="", files=None, expects=(), clock=False):
        self.folder = tempfile.mkdtemp(prefix="idem-http-")
        os.chmod(self.folder, 0o755)
        self.clock = Clock(self.folder + "/clock") if clock else None
        for name, text in (files or {}).items():
            self.put(name, text)
        self.process = self.server = self.redis = self.fastcgi = self.uwsgi = None
        self.workers, self.extra, self.expects = workers, [], expects
        self.backend, self.own_backend = backend or Backend(), backend is None
        self.fastcgi, self.uwsgi = Backend(Fastcgi), Backend(Uwsgi)
        self.refused, self.port, self.h2port, self.tlsport = free_ports(4)
        started.append(self)
        try:
            self.sure = store or self.make_store(persist)
            self.url = self.with_options(options) if options else self.sure
            self.conf = self.write(locations, http, server, main, defaults if MODULE else "")
            if start:
                self.start()
        except BaseException:
            self.stop()
            raise

    def __enter__(self):
        return self

    def __exit__(self, kind, error, _):
        said = self.said()
        self.stop()
        if error is not None:
            error.add_note("the end of its own nginx's log:\n" + "\n".join(said.splitlines()[-12:]))
        elif bad_lines(said, self.expects):
            raise AssertionError("its own nginx logged:\n" + "\n".join(bad_lines(said, self.expects)[:20]))

    def make_store(self, persist):
        """Starts the store, and returns its URL. A store that is a server is also `server`, and a Redis `redis` as
        well."""
        if STORE == "redis":
            self.server = self.redis = start_redis(self.folder + "/redis", persist)
            return self.redis.url + "?" + PATIENT
        if STORE in ("postgres", "mysql"):
            self.server = sqlserver.start(STORE, self.folder + "/sql")
            self.server.migrate(os.environ["IDEM_EXE"])
            return self.server.url + "&" + PATIENT
        sync = "always" if STORE == "lmdb-always" else "off"
        return f"lmdb:{self.folder}/store?sync={sync}"

    def with_options(self, options):
        """The store's URL with these options instead of the patient ones."""
        url = self.sure.replace(PATIENT, options)
        return url if url != self.sure else url + ("&" if "?" in url else "?") + options

    def put(self, name, text, mode=0o600):
        """Writes a file in the directory."""
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), mode)
            file.write(text)

    def certificate(self):
        pem = os.path.join(self.folder, "cert.pem")
        if os.path.exists(pem):
            return pem
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                        "-nodes", "-days", "2", "-subj", "/CN=localhost", "-keyout", pem + ".key",
                        "-out", pem], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        return pem

    def fill(self, text):
        for name, value in (("BACKEND", f"127.0.0.1:{self.backend.port}"),
                            ("FASTCGI", f"127.0.0.1:{self.fastcgi.port}"),
                            ("UWSGI", f"127.0.0.1:{self.uwsgi.port}"),
                            ("REFUSED", f"127.0.0.1:{self.refused}"),
                            ("SELF", f"127.0.0.1:{self.port}"), ("TLS", f"127.0.0.1:{self.tlsport}"), ("STORE", self.url), ("SURE", self.sure),
                            ("TEMP", self.folder), ("CGI_FASTCGI", CGI.format("fastcgi")),
                            ("CGI_UWSGI", CGI.format("uwsgi"))):
            text = text.replace(f"@{name}@", value)
        return text

    def write(self, locations, http, server, main, defaults):
        pem, folder = self.certificate(), self.folder
        variables = "".join(f'"{n}":"${n}",' for n in ("idem_verdict", "idem_key_hash", "idem_attempt",
                                                       "idem_time")) if MODULE else ""
        text = f"""
{f'load_module {os.path.abspath(MODULE)};' if MODULE else ''}
{'user root;' if os.geteuid() == 0 else ''}
{''.join(f'env {name};' for name in sanitizers())}
daemon off;
master_process on;
worker_processes {self.workers};
worker_rlimit_nofile 16384;
pid @TEMP@/nginx.pid;
error_log @TEMP@/error.log {os.environ.get('IDEM_HTTP_LOG', 'info')};
{main}
events {{ worker_connections 8192; }}
http {{
    log_format rig escape=json '{{{variables}"method":"$request_method","uri":"$uri","status":"$status",'
        '"rid":"$http_x_rid","pid":"$pid","bytes":"$body_bytes_sent"}}';
    access_log @TEMP@/access.log rig;
    client_body_temp_path @TEMP@/body;
    proxy_temp_path @TEMP@/proxy;
    fastcgi_temp_path @TEMP@/fastcgi;
    uwsgi_temp_path @TEMP@/uwsgi;
    scgi_temp_path @TEMP@/scgi;
    proxy_set_header X-Worker $pid;
    {defaults}
    {http}
    server {{
        listen 127.0.0.1:{self.port} backlog=4096;
        listen 127.0.0.1:{self.h2port} http2;
        listen 127.0.0.1:{self.tlsport} ssl http2;
        ssl_certificate {pem};
        ssl_certificate_key {pem}.key;
        server_name localhost;
        {server}
        location = /rig-is-up {{ {'idem off;' if MODULE else ''} access_log off; return 204; }}
        location = /rig-worker {{ {'idem off;' if MODULE else ''} access_log off; return 200 $pid; }}
        {locations}
    }}
}}
"""
        path = os.path.join(folder, "nginx.conf")
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.fill(text))
        return path

    # nginx's life.

    def command(self, *args):
        return [NGINX, "-p", self.folder, "-c", self.conf, *args]

    def environment(self):
        env = sanitizers()
        if self.clock:  # after the sanitizers' libraries
            env = {**env, "LD_PRELOAD": ":".join(filter(None, (env.get("LD_PRELOAD"), NGINX_CLOCK))),
                   "IDEM_NGINX_CLOCK": self.clock.path}
        return dict(os.environ, **env)

    def check(self):
        """Runs nginx -t; returns its exit status and its output."""
        run = subprocess.run(self.command("-t"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             env=self.environment(), timeout=LIMIT, check=False)
        return run.returncode, run.stdout.decode("utf-8", "replace")

    def start(self, adopted=False):
        with open(os.path.join(self.folder, "stderr"), "ab") as log:
            if adopted:
                self.process = Adopted(self.command(), self.folder + "/nginx.pid", stderr=log, env=self.environment())
            else:
                self.process = subprocess.Popen(self.command(), stdout=log, stderr=log,
                                                env=self.environment(), preexec_fn=follow_parent)
        until("nginx answers", self.up)

    def up(self):
        if self.process.poll() is not None:
            raise AssertionError(f"nginx ended with {self.process.returncode}:\n{self.said()[-3000:]}")
        try:
            return send(self.port, request("GET", "/rig-is-up")).status == 204 and \
                len(self.worker_pids()) >= self.workers
        except OSError:
            return False

    def worker_pids(self):
        return [pid for pid in children(self.process.pid) if "worker process" in title(pid)
                and "shutting down" not in title(pid)]

    def turn(self):
        """Waits until each worker has turned its loop once, and so has handled all earlier events of its sockets."""
        left = set(map(str, self.worker_pids()))

        def asked():
            for answer in burst(self.port, [request("GET", "/rig-worker")] * 8):
                left.discard(answer.body.decode())
            return not left
        until("each worker answers", asked)

    def until_each(self, what, path, is_it):
        """Waits until each worker has given such a response: a slow one may be the last to notice a change."""
        left = set(map(str, self.worker_pids()))

        def asked():
            rids = [fresh("rid") for _ in range(8)]
            answers = burst(self.port, [self.bytes(path, fresh(), rid=rid) for rid in rids])
            left.difference_update(self.log(rid)["pid"] for rid, answer in zip(rids, answers) if is_it(answer))
            return not left
        until(what, asked)

    def reload(self):
        """Reloads, and waits for the new workers; the old ones may still work."""
        old = set(self.worker_pids())
        self.process.send_signal(signal.SIGHUP)
        until("new workers", lambda: len(set(self.worker_pids()) - old) >= self.workers)
        return old

    def kill_worker(self, pid):
        os.kill(pid, signal.SIGKILL)
        until("the worker is gone", lambda: not alive(pid))
        until("a new worker", lambda: len(self.worker_pids()) >= self.workers)

    def are_gone(self, pids):
        until("the old workers go", lambda: not any(alive(pid) for pid in pids))

    def quit(self):
        """A graceful exit; False if nginx does not exit."""
        self.process.send_signal(signal.SIGQUIT)
        try:
            self.process.wait(LIMIT)
            return True
        except subprocess.TimeoutExpired:
            return False

    def stop(self):
        if self in started:
            started.remove(self)
        if self.process is not None and self.process.poll() is None:
            left = children(self.process.pid)
            for pid in left:
                try:
                    os.kill(pid, signal.SIGCONT)
                except OSError:
                    pass
            self.process.terminate()
            try:
                self.process.wait(LIMIT)
            except subprocess.TimeoutExpired:
                for pid in [self.process.pid, *children(self.process.pid)]:
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except OSError:
                        pass
                self.process.wait()
            for pid in left:
                if alive(pid) and "nginx" in title(pid):
                    with contextlib.suppress(ProcessLookupError):  # the process may exit by itself meanwhile
                        os.kill(pid, signal.SIGKILL)
        for backend in (self.fastcgi, self.uwsgi, *([self.backend] if self.own_backend else []), *self.extra):
            if backend is not None:
                backend.close()
        if self.server is not None:
            self.server.stop()
        if os.environ.get("IDEM_HTTP_KEEP"):
            print(f"# {self.folder} is left there", flush=True)
        else:
            shutil.rmtree(self.folder, ignore_errors=True)

    # Output and logs.

    def said(self):
        text = ""
        for name in ("stderr", "error.log"):
            try:
                with open(os.path.join(self.folder, name), encoding="utf-8", errors="replace") as file:
                    text += file.read()
            except OSError:
                pass
        return text

    def log(self, rid):
        """Returns the line of the access log for the request with this id."""
        def find():
            try:
                with open(os.path.join(self.folder, "access.log"), encoding="utf-8",
                          errors="replace") as file:
                    for line in file:
                        if f'"rid":"{rid}"' in line:
                            return json.loads(line)
            except FileNotFoundError:
                pass
            return None
        return until(f"a line in the access log for {rid}", find)

    def figures(self):
        """Returns the JSON of idem_status; the configuration must have WATCH."""
        return json.loads(self.post("/rig-status?format=json", method="GET", body=b"").body)

    def until_parked(self, count):
        """Waits until this many duplicates wait, in all workers together."""
        until(f"{count} are parked", lambda: self.figures()["parked"] >= count)

    def until_renewed(self, prefix, times=1):
        """Waits until the lease of the run under a prefix has been renewed this often, which shows in the time left."""
        left = []

        def renewed():
            left.append(max([r["left_ms"] for r in self.records(prefix)], default=0))
            return sum(after > before for before, after in zip(left, left[1:])) >= times
        until(f"the lease under {prefix} is renewed", renewed)

    def until_lease_over(self, prefix):
        """Waits until no record under a prefix has a lease."""
        until(f"leases under {prefix} are over",
              lambda: not self.idem("list", "--state", "running", "--json", "--prefix", prefix))

    def records(self, prefix):
        """Returns the records of `idem list --json` under a prefix; listing changes no record."""
        return [json.loads(line) for line in self.idem("list", "--json", "--prefix", prefix).splitlines()]

    def idem(self, *words):
        """Runs idem(1) on the store, with patient timeouts; returns its output."""
        return subprocess.run([os.environ["IDEM_EXE"], *words, "--store", self.sure], stdout=subprocess.PIPE,
                              check=True, timeout=LIMIT).stdout

    # Requests.

    @staticmethod
    def bytes(path, key=None, body=b'{"a":1}', method="POST", headers=(), do=None, user=None, ref=None,
              rid=None, type="application/json", **options):
        fields = []
        if key is not None:
            fields.append(("Idempotency-Key", key))
        if do is not None:
            fields.append(("X-Do", json.dumps(do)))
        if body and type:
            fields.append(("Content-Type", type))
        fields += [(n, v) for n, v in (("X-User", user), ("X-Ref", ref), ("X-Rid", rid)) if v is not None]
        return request(method, path, fields + list(headers), body, **options)

    def post(self, path, key=None, port=None, tls=False, timeout=LIMIT, method="POST", **options):
        data = self.bytes(path, key, method=method, **options)
        return send(port or self.port, data, method=method, tls=tls, timeout=timeout)

    def later(self, path, key=None, **options):
        return Later(lambda: self.post(path, key, **options))

    def logged(self, path, key=None, **options):
        """Returns a response, and its line in the access log."""
        rid = fresh("rid")
        answer = self.post(path, key, rid=rid, **options)
        return answer, self.log(rid)


@atexit.register
def stop_all():
    for rig in list(started):
        rig.stop()


def many_files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    want = 16384 if hard == resource.RLIM_INFINITY else min(16384, hard)
    if soft < want:
        resource.setrlimit(resource.RLIMIT_NOFILE, (want, hard))


many_files()
