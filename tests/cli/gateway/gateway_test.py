#!/usr/bin/env python3
"""`idem gateway` from its user's side: its flags; and end to end, a real nginx in front of the shop of
examples/shop, whose SQLite file shows how often an order happened. Prints TAP.

    gateway_test.py [NAME...]

IDEM_EXE and IDEM_SHOP are the programs; IDEM_PRELOAD, if set, is the library that nginx needs to load
a module that is built with a sanitizer.
"""
import contextlib
import http.client
import json
import os
import pwd
import re
import shutil
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading

sys.dont_write_bytecode = True
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
from ports import free_port  # pylint: disable=wrong-import-position
from waiting import LIMIT, until  # pylint: disable=wrong-import-position

IDEM, SHOP = os.environ["IDEM_EXE"], os.environ.get("IDEM_SHOP")
NGINX = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
MODULE = os.path.join(os.path.dirname(IDEM), "../nginx/ngx_http_idem_module.so")
ROOT = os.geteuid() == 0
FLAGS = ["--upstream", "http://127.0.0.1:9", "--scope", "none"]

tests = []


def test(function):
    tests.append((function, False))
    return function


def served(function):
    """Marks a test that needs nginx, the module and the shop."""
    tests.append((function, True))
    return function


class Failed(Exception):
    pass


def check(ok, *what):
    if not ok:
        raise Failed(" ".join(str(w) for w in what))


def check_is(got, want):
    check(got == want, "got", repr(got), "not", repr(want))


def check_has(text, part):
    check(part in text, repr(text), "does not contain", repr(part))


# Directories, ports, programs.

@contextlib.contextmanager
def folder():
    path = tempfile.mkdtemp(prefix="idem-gateway-test.")
    os.chmod(path, 0o755)  # root's workers run as another user
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def environment(path):
    env = {name: value for name, value in os.environ.items()
           if name not in ("IDEM_STORE", "XDG_RUNTIME_DIR", "IDEM_NGINX_MODULE")}
    env.update(HOME=path, TMPDIR=path, IDEM_STORE="lmdb:" + path + "/store")
    if os.environ.get("IDEM_PRELOAD"):
        env.update(LD_PRELOAD=os.environ["IDEM_PRELOAD"], ASAN_OPTIONS="detect_leaks=0")
    return env


def idem(path, *args, env=None):
    return subprocess.run([IDEM, *args], env=env or environment(path), stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=LIMIT)


def gateway(path, *args, env=None):
    return idem(path, "gateway", *args, env=env)


def refused(args, status, *parts):
    with folder() as path:
        done = gateway(path, *args)
        check(done.returncode == status, args, "gives", done.returncode, done.stderr)
        for part in parts:
            check_has(done.stderr, part)
        check_is(done.stdout, "")
        return done


class Shop:
    def __init__(self, path, name="orders.db"):
        self.file = os.path.join(path, name)
        self.process = subprocess.Popen([SHOP, "0", self.file], stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        self.port = int(re.search(r":(\d+),", line).group(1))
        self.url = f"http://127.0.0.1:{self.port}"

    def rows(self):
        db = sqlite3.connect(self.file)
        try:
            return db.execute("SELECT id, item, amount, downstream_key FROM orders").fetchall()
        finally:
            db.close()

    def has_one(self):
        """Returns true if the stopped process has a request that it has not read."""
        with open("/proc/net/tcp", encoding="ascii") as file:
            rows = [line.split() for line in file]  # address, state (01: connected), bytes to send and to read
        return any(row[1].endswith(f":{self.port:04X}") and row[3] == "01" and not row[4].endswith(":00000000")
                   for row in rows[1:])

    @contextlib.contextmanager
    def stopped(self):
        """The process accepts no requests meanwhile."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


class Gateway:
    """A running gateway, with its output in files."""

    def __init__(self, path, shop, *args, scope="$http_x_user", listen=None, prefix=(), env=None):
        self.path, self.port = path, free_port()
        self.listen = listen or f"127.0.0.1:{self.port}"
        self.out = open(path + "/gateway.out", "w+", encoding="utf-8")
        self.err = open(path + "/gateway.err", "w+", encoding="utf-8")
        upstreams = shop if isinstance(shop, list) else [shop.url]
        self.process = subprocess.Popen(
            [*prefix, IDEM, "gateway", "--listen", self.listen, "--scope", scope, "--workers", "2",
             *[word for url in upstreams for word in ("--upstream", url)], *args],
            env=env or environment(path), stdin=subprocess.DEVNULL, stdout=self.out,
            stderr=self.err, start_new_session=True)
        until("it listens", self.is_up)
        until("its workers are there", lambda: len(self.workers()) == 2)

    def is_up(self):
        if self.process.poll() is not None:
            raise Failed(f"it ended with {self.process.returncode}: {self.said()}")
        try:
            self.connect().close()
            return True
        except OSError:
            return False

    def connect(self):
        if self.listen.startswith("unix:"):
            s = socket.socket(socket.AF_UNIX)
            s.connect(self.listen[5:])
            return s
        return socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT)

    def said(self):
        with open(self.path + "/gateway.err", encoding="utf-8") as file:
            return file.read()

    def log(self):
        with open(self.path + "/gateway.out", encoding="utf-8") as file:
            return file.read()

    def ask(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT)
        connection.sock = self.connect()
        try:
            connection.request(method, path, body=body, headers=headers or {})
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    def order(self, key, amount=42, query="", user="ann", **headers):
        return self.ask("POST", "/orders" + query, json.dumps({"item": "book", "amount": amount}),
                        {"Idempotency-Key": key, "X-User": user,
                         "Content-Type": "application/json", **headers})

    def nginx(self):
        """The pids of nginx's processes."""
        listed = subprocess.run(["pgrep", "-g", str(self.master())], stdout=subprocess.PIPE,
                                text=True).stdout.split() if self.master() else []
        return [int(pid) for pid in listed]

    def master(self):
        if not hasattr(self, "master_pid"):
            children = subprocess.run(["pgrep", "-P", str(self.process.pid), "nginx"],
                                      stdout=subprocess.PIPE, text=True).stdout.split()
            check(len(children) == 1, "children:", children)
            self.master_pid = int(children[0])
        return self.master_pid

    def workers(self):
        return [pid for pid in self.nginx() if pid != self.master()]

    def signal(self, number):
        self.process.send_signal(number)

    def until_new(self, old):
        """Waits until all workers are newer than these."""
        until("there are new workers", lambda: len(self.workers()) == 2 and not set(old) & set(self.nginx()))

    def until_runs(self):
        """Begins a request; nginx passes it on, or is about to."""
        until("it runs", lambda: idem(self.path, "list", "--state", "running", "--json").stdout)

    def until_told_to_go(self):
        def told():
            check(self.process.poll() is None, "it did not wait")
            return any("shutting down" in title(pid) for pid in self.nginx())
        until("the workers get the signal", told)

    def end(self):
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
            try:
                self.process.wait(LIMIT)
            except subprocess.TimeoutExpired:
                self.signal(signal.SIGTERM)
                self.process.wait(LIMIT)
        self.out.close()
        self.err.close()
        return self.process.returncode

    def folder(self):
        """The working directory of nginx, from the arguments in its process title."""
        with open(f"/proc/{self.master()}/cmdline", encoding="utf-8") as file:
            return re.search(r"-p[ \0](\S+?)[ \0]", file.read()).group(1)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def title(pid):
    try:
        with open(f"/proc/{pid}/cmdline", encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


@contextlib.contextmanager
def running(*args, **named):
    with folder() as path:
        shop = Shop(path)
        g = None
        try:
            g = Gateway(path, shop, *args, **named)
            yield g, shop
        finally:
            if g is not None:
                g.end()
            shop.end()


def later(function, *args):
    """Runs it in a thread; the returned function waits for its result."""
    result = []
    thread = threading.Thread(target=lambda: result.append(function(*args)))
    thread.start()

    def wait():
        thread.join(LIMIT)
        check(result, "no answer came")
        return result[0]
    return wait


# Flags.

@test
def without_a_scope_it_says_why_one_is_needed_and_how_to_say_none():
    refused(["--upstream", "http://127.0.0.1:9"], 64, "--scope is missing", "each other's responses",
            "'$http_x_user'", "--scope none")


@test
def a_usage_error_exits_with_64_and_says_what_to_write():
    for args, part in (
            (["--scope", "none"], "--upstream URL is missing"),
            ([*FLAGS, "operand"], "takes no operand"),
            ([*FLAGS, "--listen", "foo"], "HOST:PORT"),
            ([*FLAGS, "--listen", "0"], "1 to 65535"),
            ([*FLAGS, "--listen", "127.0.0.1:65536"], "1 to 65535"),
            ([*FLAGS, "--listen", "[::1"], "[V6]:PORT"),
            ([*FLAGS, "--listen", "127.0.0.1:80;"], "no address"),
            ([*FLAGS, "--listen", "unix:"], "no address"),
            ([*FLAGS, "--listen", "unix:/" + "a" * 120], "107 bytes"),
            (["--scope", "none", "--upstream", "ftp://x"], "neither http://"),
            (["--scope", "none", "--upstream", "http://"], "its host"),
            (["--scope", "none", "--upstream", "http://a b/"], "its host"),
            (["--scope", "none", "--upstream", "http://user@x/"], "its host"),
            (["--scope", "none", "--upstream", "http://x/$request_uri"], "its path"),
            (["--scope", "none", "--upstream", "http://x/;}"], "its path"),
            ([*FLAGS, "--upstream", "https://127.0.0.1"], "the same scheme"),
            ([*FLAGS, "--key", "params", "--key-expr", "#body.id"], "exclude"),
            ([*FLAGS, "--fingerprint", "body", "--fingerprint-expr", "#body.id"], "exclude"),
            ([*FLAGS, "--token", "/token"], "--key 'token param=token'"),
            ([*FLAGS, "--token", "token", "--key", "token"], "--token: a path begins with a slash"),
            ([*FLAGS, "--js", "idem.js"], "--js: a path begins with a slash"),
            ([*FLAGS, "--ttl", "soon"], "--ttl"),
            ([*FLAGS, "--workers", "0"], "1 to 512"),
            ([*FLAGS, "--scoop", "x"], "did you mean --scope?"),
            ([*FLAGS, "--module", "/none"], "--module /none"),
            ([*FLAGS, "--store", "nonsense:x", "--listen", str(free_port())],
             "no store is called")):
        refused(args, 64, part)


@test
def a_control_character_is_refused_wherever_it_stands():
    for flag in ("--scope", "--key", "--label", "--methods", "--probe", "--enforce", "--message",
                 "--prefix", "--fingerprint", "--release-status", "--replay-headers", "--store",
                 "--key-expr", "--fingerprint-expr", "--config", "--module", "--token-bind"):
        for text in ("a\nb", "\x7f"):
            done = refused([*FLAGS, flag, text], 64, flag)
            check_has(done.stderr, "control character")
    for flag in ("--token", "--js"):
        refused([*FLAGS, "--key", "token", flag, "/a\nb"], 64, flag, "control character")
    refused([*FLAGS, "--listen", "unix:/a\nb"], 64, "control character")
    refused([*FLAGS, "--label", ""], 64, "--label is empty")


@test
def a_program_that_is_not_there_is_told():
    refused([*FLAGS, "--nginx", "/none"], 127)
    with folder() as path:
        os.mkdir(path + "/bin")
        shutil.copy(IDEM, path + "/bin/idem")
        done = subprocess.run([path + "/bin/idem", "gateway", *FLAGS], env=environment(path),
                              stderr=subprocess.PIPE, text=True)
        if "nginx refuses" not in done.stderr and done.returncode != 71:  # an nginx is installed
            check_is(done.returncode, 127)
            check_has(done.stderr, "nginx-dev")
            check_has(done.stderr, "--module FILE")


@test
def a_file_that_is_not_there_is_told():
    refused([*FLAGS, "--config", "/none/at/all"], 78 if os.path.exists(MODULE) else 127)


# The output of --print.

AWKWARD = ["--key", "$http_a;\"{'}\\$http_b # optional", "--message", "a \"b\" \\ c; d {e} 'f' #$",
           "--prefix", "o;{}\"'\\:", "--label", "${request_id};", "--preset", "payment",
           "--ttl", "2h", "--attempts", "none", "--backoff", "1s..2s", "--methods", "POST,PUT",
           "--release-status", "429 503", "--replay-headers", "X-One X-Two", "--enforce", "$arg_e",
           "--fingerprint", "method body", "--probe", "/probe/$http_a", "--on-duplicate", "success"]


def printed(path, *args):
    done = gateway(path, "--print-config", *args)
    check(done.returncode == 0 and done.stderr == "", done.returncode, done.stderr)
    return done.stdout


@test
def the_printed_configuration_is_commented_and_has_what_was_said():
    with folder() as path:
        text = printed(path, *FLAGS)
        for part in ("load_module ", "idem replay;", f"idem_store lmdb:{path}/store;",
                     "idem_prefix http:;", "idem_scope none;", "location / {",
                     "proxy_pass http://127.0.0.1:9;", "# "):
            check_has(text, part)
        check(not os.path.exists(path + "/store"), "it made a store")
        env = environment(path)
        del env["IDEM_STORE"]
        check_has(gateway(path, "--print-config", *FLAGS, env=env).stdout,
                  "idem_store lmdb:/var/lib/nginx/idem;")
        for url in ("lmdb:here", "lmdb:./here?sync=off"):  # nginx starts in another directory
            check_has(printed(path, *FLAGS, "--store", url), f"idem_store lmdb:{os.getcwd()}/{url[5:]};")
        text = printed(path, *FLAGS, "--upstream", "http://[::1]:8/", "--preset", "payment",
                       "--key-expr", "'a' + #body.id")
        check_has(text, "server [::1]:8;")
        check_has(text, "idem_preset payment;")
        check_has(text, "idem_set $gateway_key \"'a' + #body.id\";")
        check("idem replay" not in text, text)


@served
def the_printed_configuration_passes_nginx():
    for args in (FLAGS, [*FLAGS, *AWKWARD], [*FLAGS, "--upstream", "http://127.0.0.1:8"],
                 ["--scope", "$remote_user", "--upstream", "https://127.0.0.1/api", "--key",
                  "params"],
                 [*FLAGS, "--key", "serial header=X-Serial credential=X-Client"],
                 [*FLAGS, "--key", "param=orderId optional", "--fingerprint", "none"],
                 [*FLAGS, "--key", "token param=t", "--token", "/a b;{", "--token-bind", "$cookie_c", "--js", "/$x"],
                 [*FLAGS, "--key-expr", "order:#{#body.id}", "--fingerprint-expr", "#body.a"]):
        with folder() as path:
            text = printed(path, *args)
            load = re.search(r"^load_module .*;$", text, re.M).group(0)
            groups = "".join(re.findall(r"^upstream .*?^}\n", text, re.M | re.S))
            rest = text.replace(load, "").replace(groups, "") if groups else text.replace(load, "")
            with open(path + "/nginx.conf", "w", encoding="utf-8") as file:
                file.write(f"{load}\npid {path}/pid;\nevents {{}}\nhttp {{\naccess_log off;\n"
                           f"client_body_temp_path {path}/b; proxy_temp_path {path}/p;\n"
                           f"fastcgi_temp_path {path}/f; uwsgi_temp_path {path}/u;\n"
                           f"scgi_temp_path {path}/s;\n{groups}\nserver {{\n"
                           f"listen 127.0.0.1:{free_port()};\n{rest}\n}}\n}}\n")
            done = subprocess.run([NGINX, "-t", "-e", "stderr", "-c", path + "/nginx.conf"],
                                  env=environment(path), stderr=subprocess.PIPE, text=True)
            check(done.returncode == 0, args, done.stderr, text)


# Configurations that nginx refuses.

@served
def what_nginx_refuses_is_told_of_the_flag_and_the_configuration_is_kept():
    for args, part in ((["--key", "x\";}{"], "--key: \"x\";}{\" is not understood"),
                       (["--preset", "queue"], "--preset: \"queue\" is not for requests"),
                       (["--fingerprint", "method colour"], "--fingerprint: \"colour\""),
                       (["--methods", "GET"], "--methods: \"GET\""),
                       (["--replay-headers", "Set-Cookie"], '--replay-headers: "Set-Cookie"'),
                       (["--release-status", "200"], "--release-status: \"200\""),
                       (["--enforce", "maybe"], "--enforce: \"maybe\""),
                       (["--label", "$no_such_variable"], "unknown \"no_such_variable\""),
                       (["--key-expr", "#body.("], "--key-expr: column 7"),
                       (["--mode", "lock", "--recover", "hold"], "contradicts mode=lock"),
                       (["--scope", "shop"], "--scope: \"shop\" has no variable")):
        with folder() as path:
            done = gateway(path, "--listen", str(free_port()), *FLAGS, *args)
            check(done.returncode == 78, args, done.returncode, done.stderr)
            check_has(done.stderr, part)
            kept = re.search(r"kept in (\S+)/nginx.conf", done.stderr).group(1)
            try:
                mode = os.stat(kept + "/nginx.conf").st_mode
                check_is(stat.S_IMODE(mode), 0o600)
            finally:
                shutil.rmtree(kept)


@served
def tokens_are_issued_and_idem_js_is_served_without_a_config_file():
    with running("--key", "token param=token", "--token", "/token", "--token-ttl", "10m",
                 "--token-bind", "$http_x_cart", "--js", "/idem.js") as (g, shop):
        ann, bob = ({"X-User": name, "X-Cart": "17"} for name in ("ann", "bob"))
        status, headers, body = g.ask("GET", "/token", headers=ann)
        check_is((status, headers["Cache-Control"], json.loads(body)["expires_in"]), (200, "no-store", 600))
        token = json.loads(body)["token"]
        form = {"Content-Type": "application/x-www-form-urlencoded"}

        def use(who, **more):
            return g.ask("POST", "/form/orders", f"item=ink&amount=1&token={token}",
                               {**who, **form, **more})[0]
        check_is([use(bob), use(ann, **{"X-Cart": "18"}), use(ann), use(ann)], [403, 403, 201, 201])
        check_is(len(shop.rows()), 1)
        check_is(g.ask("GET", "/token", headers={"X-User": "ann"})[0], 400)
        # A token from the shell works as well.
        made = idem(os.path.dirname(shop.file), "token", "--scope", "ann", "--bind", "17", "--prefix", "http:")
        check_is((made.returncode, made.stderr), (0, ""))
        token = made.stdout.strip()
        check_is([use(bob), use(ann), use(ann)], [403, 201, 201])
        check_is(len(shop.rows()), 2)
        status, headers, body = g.ask("GET", "/idem.js")
        check_is((status, headers["Content-Type"]), (200, "text/javascript; charset=utf-8"))
        check_has(body.decode(), "export async function idemFetch")


@served
def a_directive_of_the_config_file_that_nginx_refuses_is_told_with_its_place():
    with folder() as path:
        with open(path + "/more?.conf", "w", encoding="utf-8") as file:
            file.write("\nfoo bar;\n")
        done = gateway(path, "--listen", str(free_port()), *FLAGS, "--config", path + "/more?.conf")
        check_is(done.returncode, 78)
        check_has(done.stderr, "unknown directive \"foo\" in " + path + "/more?.conf:2")
        shutil.rmtree(re.search(r"kept in (\S+)/nginx.conf", done.stderr).group(1))


@served
def an_address_that_is_taken_is_told_at_once():
    with socket.socket() as taken, folder() as path:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = gateway(path, *FLAGS, "--listen", str(taken.getsockname()[1]))
        check_is(done.returncode, 71)
        check_has(done.stderr, "the address is in use")
        check(not os.path.exists(path + "/store"), "it made a store")
        done = gateway(path, *FLAGS, "--listen", "192.0.2.1:8080")
        check_is(done.returncode, 71)


@served
def a_store_that_cannot_be_used_ends_it_before_nginx_starts():
    refused([*FLAGS, "--listen", str(free_port()), "--store", "lmdb:/proc/none/store"], 69,
            "cannot make the store's directory")


# End to end.

@served
def a_retry_gets_the_same_order_and_there_is_one_row():
    with running() as (g, shop):
        first = g.order("k")
        again = g.order("k")
        check_is(first[0], 201)
        check_is(again[0], 201)
        check_is(again[2], first[2])
        check_is(again[1]["Location"], "/orders/1")
        check("Idempotent-Replayed" not in first[1], first)
        check_is(again[1].get("Idempotent-Replayed"), "true")
        check_is(g.order("k", amount=43)[0], 422)
        check_is(g.order("k", user="bob")[0], 201)
        check_is(len(shop.rows()), 2)
        check(all(len(row[3]) == 64 for row in shop.rows()), shop.rows())
        check_is(g.ask("POST", "/orders", "{}", {"X-User": "ann"})[0], 400)
        check_is(g.ask("GET", "/orders")[0], 200)
        check_is(len(shop.rows()), 2)


@served
def the_log_has_the_verdict_and_neither_key_nor_query():
    with running() as (g, _):
        # Two workers may write two lines in any order.
        g.order("the-key-itself", query="?secret=1")
        until("it happens", lambda: g.log().count("\n") == 1)
        g.order("the-key-itself", query="?secret=1")
        until("it happens", lambda: g.log().count("\n") == 2)
        g.ask("GET", "/orders?secret=2")
        until("it happens", lambda: g.log().count("\n") == 3)
        lines = g.log().splitlines()
        check(re.fullmatch(r"\S+ 127\.0\.0\.1 POST \"/orders\" 201 [\d.]+s idem=run "
                           r"hash=[0-9a-f]{12} attempt=1 store=[\d.]+s", lines[0]), lines[0])
        check_has(lines[1], "idem=replay")
        check(re.fullmatch(r"\S+ 127\.0\.0\.1 GET \"/orders\" 200 [\d.]+s", lines[2]), lines[2])
        g.ask("POST", "/orders", "{}", {"X-User": "ann"})  # refused without a request to the store
        until("it happens", lambda: g.log().count("\n") == 4)
        check_has(g.log().splitlines()[3], "idem=missing hash=- attempt=- store=-")
        check("secret" not in g.log() and "the-key" not in g.log() + g.said(), g.log(), g.said())
        digits = re.search(r"hash=(\w+)", lines[0]).group(1)
        listed = idem(g.path, "show", "--hash", digits, "--json")
        check_is(listed.returncode, 0)
        check_has(listed.stdout, '"prefix":"http:"')


@served
def texts_with_quotes_semicolons_and_braces_arrive_as_they_were_said():
    message = "a \"b\" \\ c; d {e} 'f' #$ \\n é"
    key = "$http_idempotency_key;\"{'}\\ #"
    with running("--message", message, "--key", key, "--prefix", "o;{}\"'\\:", "--label",
                 "x;\"{$http_x_user}") as (g, shop):
        check_is(g.order("k")[0], 201)
        check_is(g.order("k")[1].get("Idempotent-Replayed"), "true")
        status, _, body = g.order("k", amount=1)
        check_is(status, 422)
        check_is(json.loads(body)["detail"], message)
        shown = idem(g.path, "show", "--prefix", "o;{}\"'\\:", "--scope", "ann", "--json",
                     "k;\"{'}\\ #")
        check(shown.returncode == 0, shown.stderr)
        check_is(json.loads(shown.stdout)["label"], "x;\"{ann}")
        check_is(len(shop.rows()), 1)


@served
def a_key_expression_reads_the_body():
    with running("--key-expr", "'n' + #body.amount") as (g, shop):
        for _ in range(2):
            check_is(g.ask("POST", "/orders", '{"item": "a", "amount": 7}',
                           {"X-User": "ann", "Content-Type": "application/json"})[0], 201)
        check_is(g.ask("POST", "/orders", '{"item": "a", "amount": 8}',
                       {"X-User": "ann", "Content-Type": "application/json"})[0], 201)
        check_is(len(shop.rows()), 2)


@served
def sigterm_lets_a_slow_request_finish():
    with running() as (g, shop):
        made = g.folder()
        check(os.path.isdir(made), made)
        with shop.stopped():
            answer = later(g.order, "slow")
            g.until_runs()
            g.signal(signal.SIGTERM)
            g.until_told_to_go()
        check_is(answer()[0], 201)
        check_is(g.process.wait(LIMIT), 0)
        check_is(len(shop.rows()), 1)
        check(not os.path.exists(made), "the directory is left")


@served
def a_second_signal_ends_it_at_once():
    with running() as (g, shop):
        def order():
            try:
                return g.order("slow")
            except (OSError, http.client.HTTPException):
                return "cut"
        with shop.stopped():
            answer = later(order)
            g.until_runs()
            g.signal(signal.SIGINT)
            g.until_told_to_go()
            g.signal(signal.SIGINT)
            check_is(g.process.wait(LIMIT), 0)
            check_is(answer(), "cut")


@served
def sighup_reads_the_config_file_anew_and_keeps_serving():
    with folder() as path:
        more = path + "/more [1].conf"

        def write(text):
            with open(more, "w", encoding="utf-8") as file:
                file.write(f"add_header X-Version {text} always;\n")
        write("one")
        shop = Shop(path)
        g = Gateway(path, shop, "--config", more)
        try:
            check_is(g.order("k")[1].get("X-Version"), "one")
            master, old = g.master(), g.workers()
            write("two")
            g.signal(signal.SIGHUP)
            until("it is taken over", lambda: g.ask("GET", "/orders")[1].get("X-Version") == "two")
            g.until_new(old)
            check_is(g.order("k")[1].get("Idempotent-Replayed"), "true")
            check_is(g.master(), master)
            # A configuration that nginx refuses changes nothing.
            write("} nonsense")
            g.signal(signal.SIGHUP)
            until("it is taken over", lambda: "[emerg]" in g.said())
            check_is(g.order("k")[1].get("X-Version"), "two")
            check_is(len(shop.rows()), 1)
            check_is(g.end(), 0)
        finally:
            g.end()
            shop.end()


@served
def nginxs_own_limits_hold_and_the_config_file_changes_them():
    def is_refused(g, key, size):
        """Returns true if nginx refuses the body. The shop has a limit, too, and closes before it has read a body that
        is too long. nginx may take that for a broken connection, and log a run."""
        status, _, body = g.order(key, {"pad": "x" * size})
        check(status in (413, 502), status)
        return status == 413 and b"<html>" in body
    with running() as (g, _):
        check(is_refused(g, "large", 3 << 19), "the shop was asked")
        check("idem=run" not in g.log(), g.log())
    with folder() as path:
        with open(path + "/limits.conf", "w", encoding="utf-8") as file:
            file.write("client_max_body_size 2m;\n")
        shop = Shop(path)
        g = Gateway(path, shop, "--config", path + "/limits.conf")
        try:
            check(not is_refused(g, "large", 3 << 19), "the shop was not asked")
            until("it is logged", lambda: "idem=run" in g.log())
            check(is_refused(g, "larger", 5 << 19), "the shop was asked")
            check_is(g.order("quick")[0], 201)
            with open(path + "/limits.conf", "w", encoding="utf-8") as file:
                file.write("proxy_read_timeout 300ms; add_header X-Version two always;\n")
            old = g.workers()
            g.signal(signal.SIGHUP)
            until("it is read", lambda: g.ask("GET", "/none")[1].get("X-Version") == "two")
            g.until_new(old)
            with shop.stopped():
                check_is(g.order("slow")[0], 504)
                status, _, body = g.order("slow")
                check_is((status, json.loads(body)["type"]), (409, "urn:idem:uncertain"))
            check_is(g.end(), 0)
        finally:
            g.end()
            shop.end()


@served
def nginx_does_not_outlive_an_idem_that_was_killed():
    with running() as (g, _):
        made, pids = g.folder(), g.nginx()
        check(len(pids) >= 2, pids)
        g.signal(signal.SIGKILL)
        g.process.wait()
        until("it happens", lambda: not any(map(alive, pids)))
        try:
            g.connect().close()
            raise Failed("a process still listens there")
        except OSError:
            pass
        shutil.rmtree(made)  # the killed process could not remove it


@served
def a_worker_that_dies_is_replaced():
    with running() as (g, _):
        old = g.workers()
        for pid in old:
            os.kill(pid, signal.SIGKILL)
        g.until_new(old)
        check_is(g.order("k")[0], 201)


@served
def an_nginx_that_is_killed_ends_idem_with_its_signal():
    with running() as (g, _):
        pids = g.nginx()
        os.kill(g.master(), signal.SIGKILL)
        check_is(g.process.wait(LIMIT), 128 + signal.SIGKILL)
        check_has(g.said(), "nginx was ended by signal 9")
        for pid in pids:  # the kernel notifies only idem of the death
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


@served
def a_run_that_vanished_is_asked_about_where_a_probe_is_given():
    with running("--probe", "/orders/by-key", "--lease", "5s") as (g, shop):
        def order():
            try:
                return g.order("lost")
            except (OSError, http.client.HTTPException):
                return "cut"
        with shop.stopped():
            answer = later(order)
            g.until_runs()
            until("the shop has it", shop.has_one)
            for pid in g.workers():
                os.kill(pid, signal.SIGKILL)
            check_is(answer(), "cut")
        until("the order is there", lambda: len(shop.rows()) == 1)
        until("it is found", lambda: g.order("lost")[0] == 200)
        check_is(json.loads(g.order("lost")[2])["id"], 1)
        check_is(len(shop.rows()), 1)


@served
def a_failure_after_a_commit_is_not_run_again_under_preset_payment():
    with running("--preset", "payment") as (g, shop):
        check_is(g.order("k", query="?fail=after")[0], 500)
        check_is(g.order("k", query="?fail=after")[0], 500)
        check_is(len(shop.rows()), 1)


@served
def several_upstreams_take_turns_and_one_that_is_down_is_passed_over():
    with folder() as path:
        shops = [Shop(path, "a.db"), Shop(path, "b.db")]
        down = f"http://127.0.0.1:{free_port()}"
        g = Gateway(path, [shops[0].url, down, shops[1].url])
        try:
            for i in range(8):
                check_is(g.order(f"k{i}")[0], 201)
            check_is(sum(len(shop.rows()) for shop in shops), 8)
            check(all(shop.rows() for shop in shops), "one got them all")
        finally:
            g.end()
            for shop in shops:
                shop.end()


@served
def it_listens_on_a_socket_file_and_removes_one_that_nobody_serves():
    with folder() as path:
        shop = Shop(path)
        stale = socket.socket(socket.AF_UNIX)
        stale.bind(path + "/sock")
        stale.close()
        g = Gateway(path, shop, listen="unix:" + path + "/sock")
        try:
            check_is(g.order("k")[0], 201)
            done = gateway(path, *FLAGS, "--listen", "unix:" + path + "/sock")
            check_is(done.returncode, 71)
            check_has(done.stderr, "the address is in use")
        finally:
            g.end()
            shop.end()
        check(not os.path.exists(path + "/sock"), "the socket's file is left")
        with open(path + "/file", "w", encoding="utf-8"):
            pass
        done = gateway(path, *FLAGS, "--listen", "unix:" + path + "/file")
        check_is(done.returncode, 71)
        check_has(done.stderr, "no socket")


@served
def a_password_is_in_no_list_of_processes_and_no_message():
    with folder() as path:
        shop = Shop(path)
        env = environment(path)
        g = Gateway(path, shop, "--store", "redis://user:hunter2@127.0.0.1:1/?timeout=300ms", env=env)
        try:
            for pid in [g.process.pid, *g.nginx()]:
                with open(f"/proc/{pid}/cmdline", encoding="utf-8") as file:
                    check("hunter2" not in file.read(), "it is in the list of processes")
            check_is(g.order("k")[0], 503)
            check_is(len(shop.rows()), 0)
        finally:
            g.end()
            shop.end()
        check("hunter2" not in g.said() + g.log(), g.said())


def as_nobody(path):
    """Returns the words that run a program as another user than root; None if that is impossible."""
    if not ROOT:
        return []
    user = pwd.getpwnam("nobody")
    for name in (path, path + "/home"):
        os.makedirs(name, exist_ok=True)
    os.chown(path + "/home", user.pw_uid, user.pw_gid)
    prefix = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    if shutil.which("setpriv") is None or subprocess.run(
            [*prefix, "sh", "-c", f"test -x '{IDEM}' && test -r '{MODULE}'"]).returncode != 0:
        return None
    return prefix


@served
def root_is_not_needed():
    with folder() as path:
        prefix = as_nobody(path)
        if prefix is None:
            return
        home = path + "/home" if ROOT else path
        env = environment(home)
        del env["IDEM_STORE"]
        shop = Shop(path)
        g = Gateway(path, shop, prefix=prefix, env=env)
        try:
            check_is(g.order("k")[0], 201)
            check_is(g.order("k")[1].get("Idempotent-Replayed"), "true")
            # A body that does not fit into memory goes to a file.
            check_is(g.ask("POST", "/orders", "x" * 60000,
                           {"Idempotency-Key": "big", "X-User": "ann"})[0], 400)
            check(os.path.exists(home + "/.local/state/idem/data.mdb"), os.listdir(home))
            until("it happens", lambda: g.log().count("idem=") >= 3)
            folders = [name for name in os.listdir(home) if name.startswith("idem-gateway.")]
            check_is(len(folders), 1)
            check_is(stat.S_IMODE(os.stat(home + "/" + folders[0]).st_mode), 0o700)
            check(not re.search(r"\[(emerg|alert|crit|error)\]", g.said()), g.said())
        finally:
            g.end()
            shop.end()
        check_is([name for name in os.listdir(home) if name.startswith("idem-gateway.")], [])


@served
def roots_workers_own_the_store_that_was_made_for_them():
    if not ROOT:
        return
    with running() as (g, _):
        check(os.stat(g.path + "/store").st_uid != 0, "it is root's")
        check_is(g.order("k")[0], 201)
        check_is(g.ask("POST", "/orders", "x" * 60000,
                       {"Idempotency-Key": "big", "X-User": "ann"})[0], 400)
        check("[crit]" not in g.said(), g.said())
        for pid in g.workers():
            check(os.stat(f"/proc/{pid}").st_uid != 0, "a worker is root")
        check_is(idem(g.path, "list").returncode, 0)
    with folder() as path:
        check_is(idem(path, "run", "--key", "k", "--", "true").returncode, 0)
        done = gateway(path, *FLAGS, "--listen", str(free_port()))
        check_is(done.returncode, 69)
        check_has(done.stderr, "give the directory to that user")


@served
def the_workers_can_open_their_store_after_root_has_looked_into_it():
    if not ROOT:
        return
    with folder() as path:
        shop = Shop(path)
        try:
            for key in ("before", "after"):
                g = Gateway(path, shop)
                try:
                    check_is(g.order(key)[0], 201)
                finally:
                    g.end()
                check_is(idem(path, "list").returncode, 0)
        finally:
            shop.end()


def with_var_lib(path):
    """Returns the words that run a program with this directory as /var/lib; None if that is impossible."""
    prefix = ["unshare", "--mount", "sh", "-c", 'mount --bind "$1" /var/lib && shift && exec "$@"', "sh", path]
    may = ROOT and shutil.which("unshare") and subprocess.run([*prefix, "true"], stderr=subprocess.DEVNULL)
    return prefix if may and may.returncode == 0 else None


def mode_of(path):
    found = os.stat(path)
    return found.st_uid, stat.S_IMODE(found.st_mode)


@served
def roots_own_store_is_not_given_to_the_workers():
    for before in (None, 0o711, "run"):
        with folder() as path:
            lib, env = path + "/lib", environment(path)
            os.mkdir(lib)
            prefix = with_var_lib(lib)
            if prefix is None:
                return
            del env["IDEM_STORE"]
            run = [*prefix, IDEM, "run", "--key", "k", "--", "true"]
            if before == "run":
                subprocess.run(run, env=env, check=True)
            elif before:
                os.mkdir(lib + "/idem", before)
            shop = Shop(path)
            g = None
            try:
                g = Gateway(path, shop, prefix=prefix, env=env)
                check_is(g.order("k")[0], 201)
                check_is(mode_of(lib + "/idem"), (0, 0o711))
                check(os.stat(lib + "/idem/gateway/data.mdb").st_uid != 0, "the workers' store is root's")
                check_is(mode_of(lib + "/idem/gateway")[1], 0o700)
                subprocess.run(run, env=env, check=True)
                check_is(mode_of(lib + "/idem/data.mdb"), (0, 0o600))
            finally:
                if g is not None:
                    g.end()
                shop.end()


@served
def the_place_of_roots_store_is_not_given_away_even_if_it_is_named():
    with folder() as path:
        os.makedirs(path + "/lib/idem")
        prefix = with_var_lib(path + "/lib")
        if prefix is None:
            return
        done = subprocess.run([*prefix, IDEM, "gateway", *FLAGS, "--listen", str(free_port()),
                               "--store", "lmdb:/var/lib/idem"],
                              env=environment(path), stderr=subprocess.PIPE, text=True, timeout=LIMIT)
        check_is(done.returncode, 69)
        check_has(done.stderr, "not /var/lib/idem itself")
        check_is(mode_of(path + "/lib/idem")[0], 0)


@served
def another_users_link_has_no_directory_of_roots_made_or_given_away():
    """The owner of a directory on the path puts a link there, which leads to a place where only root may write."""
    if not ROOT:
        return
    for there in (False, True):
        with folder() as path:
            os.makedirs(path + "/etc" + "/idem" * there)
            os.mkdir(path + "/www")
            os.symlink(path + "/etc", path + "/www/data")
            for name in ("/www", "/www/data"):
                os.chown(path + name, 65534, 65534, follow_symlinks=False)
            done = gateway(path, *FLAGS, "--listen", str(free_port()), "--store", f"lmdb:{path}/www/data/idem")
            check_is(done.returncode, 69)
            check_is([os.stat(f"{path}/etc/{name}").st_uid for name in os.listdir(path + "/etc")], [0] * there)


def main():
    chosen = [one for one in tests if len(sys.argv) < 2 or one[0].__name__ in sys.argv[1:]]
    missing = [name for name, there in (("nginx", NGINX), ("the module", os.path.exists(MODULE)),
                                        ("the shop", SHOP and os.path.exists(SHOP))) if not there]
    failures = 0
    for n, (function, needs) in enumerate(chosen, 1):
        if needs and missing:
            print(f"ok {n} - {function.__name__} # SKIP without {missing[0]}", flush=True)
            continue
        try:
            function()
            print(f"ok {n} - {function.__name__}", flush=True)
        except Exception as error:  # a test that breaks has failed
            failures += 1
            for line in f"{type(error).__name__}: {error}".splitlines():
                print("# " + line)
            print(f"not ok {n} - {function.__name__}", flush=True)
    print(f"1..{len(chosen)}")
    return failures != 0


sys.exit(main())
