"""A real nginx with the module, a store and a backend, in a temporary folder.

Everything listens on loopback ports or sockets of the folder; whatever was
started is ended by its pid, also when a test fails or is killed. From the
environment:
  IDEM_HTTP_MODULE   the module; empty: plain nginx, and tests of the module are skipped
  IDEM_HTTP_STORE    lmdb (default), lmdb-always, redis, postgres, mysql
  IDEM_HTTP_KEEP     leave the folder there and say where it is
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
import subprocess
import sys
import tempfile
import time

from backend import Backend, Blackhole, Fastcgi, Http, Uwsgi, pattern
from client import Answer, Conn, H2, Later, burst, curl, request, send, together

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import sqlserver  # pylint: disable=wrong-import-position

MODULE = os.environ.get("IDEM_HTTP_MODULE", "")
STORE = os.environ.get("IDEM_HTTP_STORE") or "lmdb"
NGINX = os.environ.get("IDEM_HTTP_NGINX") or "/usr/sbin/nginx"
LONG = bool(os.environ.get("IDEM_LONG"))
DEATHSIG, SUBREAPER = 1, 36  # of prctl

BAD = re.compile(r"\[alert\]|\[emerg\]|\[crit\]|AddressSanitizer|LeakSanitizer|ThreadSanitizer|runtime error")
serials = itertools.count(1)
started = []


def fresh(name="k"):
    """A key that nobody used yet."""
    return f"{name}-{os.getpid()}-{next(serials)}"


def free_ports(n):
    """Ports that were free a moment ago, no two of them the same: all are held until the last is found."""
    with contextlib.ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(n)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def follow_parent():
    """A child of ours ends with us, however we end."""
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


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="latin-1") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def until(what, condition, seconds=10, step=0.02):
    end = time.monotonic() + seconds
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {seconds} s")
        time.sleep(step)


def bad_lines(text, expects=()):
    """What nginx must not log, and what a sanitizer says."""
    return [line for line in text.splitlines()
            if BAD.search(line) and not any(re.search(e, line) for e in expects)]


def sanitizers():
    """Debian's nginx has none; a module that needs them brings them by LD_PRELOAD."""
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
    # nginx keeps its configuration until it exits; what leaks per request is told by leak_test.
    return {"LD_PRELOAD": ":".join(paths),
            "ASAN_OPTIONS": ":".join(filter(None, (options, "detect_leaks=0:detect_odr_violation=0"
                                                   ":quarantine_size_mb=8"))),
            "UBSAN_OPTIONS": os.environ.get("UBSAN_OPTIONS", "print_stacktrace=1")}


class Adopted:
    """A process whose parent has gone: nginx takes SIGUSR2 only then. Enough of a Popen."""

    def __init__(self, command, pidfile, **options):
        ctypes.CDLL(None).prctl(SUBREAPER, 1)
        # The shell stays until nginx knows it as its parent.
        script = 'pid=$1; shift; "$@" >/dev/null & echo $!; while [ ! -s "$pid" ]; do sleep 0.02; done'
        run = subprocess.run(["sh", "-c", script, "sh", pidfile, *command], check=True, timeout=20,
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

    def wait(self, timeout=20):
        end = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("nginx", timeout)
            time.sleep(0.02)

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self):
        self.send_signal(signal.SIGTERM)


class Redis:
    """A Redis of our own on a socket in the folder."""

    def __init__(self, folder, persist=False):
        self.folder, self.persist, self.process = folder, persist, None
        self.socket = os.path.join(folder, "redis.sock")
        self.start()

    def start(self):
        command = ["redis-server", "--port", "0", "--unixsocket", self.socket, "--dir", self.folder,
                   "--save", "", "--appendonly", "yes" if self.persist else "no",
                   "--appendfsync", "always" if self.persist else "no"]
        with open(os.path.join(self.folder, "redis.log"), "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=follow_parent)
        until("redis answers", self.answers)

    def answers(self):
        try:
            return self.ask(b"PING\r\n").startswith(b"+PONG")
        except OSError:
            return False

    def ask(self, command):
        """A command of one line, on a connection of its own; the beginning of the answer."""
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(1)
            sock.connect(self.socket)
            sock.sendall(command)
            return sock.recv(100)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


CGI = "".join(f"{{0}}_param {name} ${value};" for name, value in (
    ("REQUEST_METHOD", "request_method"), ("REQUEST_URI", "request_uri"), ("CONTENT_TYPE", "content_type"),
    ("CONTENT_LENGTH", "content_length"), ("QUERY_STRING", "query_string"), ("SERVER_PROTOCOL",
                                                                          "server_protocol")))


def guard(path, rules, to=None, prefix=None):
    """A guarded location; its prefix is its own unless said."""
    name = prefix or re.sub(r"[^a-z0-9]+", "-", path.lower()).strip("-") + ":"
    target = to or "proxy_pass http://@BACKEND@;"
    return f"location {path} {{ idem_prefix {name}; {rules} {target} }}\n"


class Rig:
    """nginx in front of a backend. In its configuration @BACKEND@, @FASTCGI@ and @UWSGI@ stand for
    addresses, @SELF@ and @TLS@ for nginx's own, @REFUSED@ for one that nobody listens on, @STORE@ for the store's URL, @TEMP@ for the
    folder."""

    def __init__(self, locations, http="", server="", main="", workers=2, store=None, persist=False,
                 defaults="idem_store @STORE@; idem_scope none;", start=True, backend=None,
                 options="", files=None):
        self.folder = tempfile.mkdtemp(prefix="idem-http-")
        os.chmod(self.folder, 0o755)
        for name, text in (files or {}).items():
            self.put(name, text)
        self.process = self.server = self.redis = self.fastcgi = self.uwsgi = None
        self.workers, self.extra = workers, []
        self.backend, self.own_backend = backend or Backend(), backend is None
        self.fastcgi, self.uwsgi = Backend(Fastcgi), Backend(Uwsgi)
        self.refused, self.port, self.h2port, self.tlsport = free_ports(4)
        started.append(self)
        try:
            self.url = store or self.make_store(persist, options)
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
        elif bad_lines(said):
            raise AssertionError("its own nginx logged:\n" + "\n".join(bad_lines(said)[:20]))

    def make_store(self, persist, options):
        """Its URL; where it is a server, that is `server`, and `redis` as well if it is one."""
        if STORE == "redis":
            self.server = self.redis = Redis(self.folder, persist)
            return f"redis:{self.redis.socket}" + ("?" + options if options else "")
        if STORE in ("postgres", "mysql"):
            self.server = sqlserver.start(STORE, self.folder + "/sql")
            self.server.migrate(os.environ["IDEM_EXE"])
            return self.server.url + ("&" + options if options else "")
        sync = "always" if STORE == "lmdb-always" else "off"
        return f"lmdb:{self.folder}/store?sync={sync}" + ("&" + options if options else "")

    def put(self, name, text, mode=0o600):
        """A file in the folder."""
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
                            ("SELF", f"127.0.0.1:{self.port}"), ("TLS", f"127.0.0.1:{self.tlsport}"), ("STORE", self.url),
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
        return dict(os.environ, **sanitizers())

    def check(self):
        """nginx -t: its exit status and what it said."""
        run = subprocess.run(self.command("-t"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             env=self.environment(), timeout=60, check=False)
        return run.returncode, run.stdout.decode("utf-8", "replace")

    def start(self, adopted=False):
        with open(os.path.join(self.folder, "stderr"), "ab") as log:
            if adopted:
                self.process = Adopted(self.command(), self.folder + "/nginx.pid", stderr=log, env=self.environment())
            else:
                self.process = subprocess.Popen(self.command(), stdout=log, stderr=log,
                                                env=self.environment(), preexec_fn=follow_parent)
        until("nginx answers", self.up, 20)

    def up(self):
        if self.process.poll() is not None:
            raise AssertionError(f"nginx ended with {self.process.returncode}:\n{self.said()[-3000:]}")
        try:
            return send(self.port, request("GET", "/rig-is-up"), timeout=5).status == 204 and \
                len(self.worker_pids()) >= self.workers
        except OSError:
            return False

    def worker_pids(self):
        return [pid for pid in children(self.process.pid) if "worker process" in title(pid)
                and "shutting down" not in title(pid)]

    def reload(self):
        """A new configuration's workers are there; the old ones may still work."""
        old = set(self.worker_pids())
        self.process.send_signal(signal.SIGHUP)
        until("new workers", lambda: len(set(self.worker_pids()) - old) >= self.workers, 20)
        return old

    def kill_worker(self, pid, seconds=10):
        os.kill(pid, signal.SIGKILL)
        until("the worker is gone", lambda: not alive(pid), seconds)
        until("a new worker", lambda: len(self.worker_pids()) >= self.workers, seconds)

    def quit(self, seconds=20):
        """A graceful exit; False if it takes longer."""
        self.process.send_signal(signal.SIGQUIT)
        try:
            self.process.wait(seconds)
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
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                for pid in [self.process.pid, *children(self.process.pid)]:
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except OSError:
                        pass
                self.process.wait()
            for pid in left:
                if alive(pid) and "nginx" in title(pid):
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

    # What it said.

    def said(self):
        text = ""
        for name in ("stderr", "error.log"):
            try:
                with open(os.path.join(self.folder, name), encoding="utf-8", errors="replace") as file:
                    text += file.read()
            except OSError:
                pass
        return text

    def log(self, rid, seconds=5):
        """The line of the access log for a request that was sent with this id."""
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
        return until(f"a line in the access log for {rid}", find, seconds)

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

    def post(self, path, key=None, port=None, tls=False, timeout=20, method="POST", **options):
        data = self.bytes(path, key, method=method, **options)
        return send(port or self.port, data, method=method, tls=tls, timeout=timeout)

    def later(self, path, key=None, **options):
        return Later(lambda: self.post(path, key, **options))

    def logged(self, path, key=None, **options):
        """An answer, and its line in the access log."""
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
