#!/usr/bin/env python3
"""`idem doctor`: reports each finding on a set-up that deserves it, and none on one that does not. Prints TAP.

    doctor_test.py [NAME...]

IDEM_EXE is the program. With IDEM_SQL_SERVE the tests examine the SQL servers, without it everything else.
IDEM_CLOCK is a library that shifts the machine's clock, IDEM_MACHINE one that simulates another disk, and
IDEM_LEASE_CLOCK_LIBRARY one that stops the clock of idem's timeouts; IDEM_PRELOAD is the library that nginx needs for
a module that is built with a sanitizer.
"""
import json
import os
import pwd
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
import redisserver  # pylint: disable=wrong-import-position
from ports import free_port  # pylint: disable=wrong-import-position
from waiting import LIMIT, patient, until  # pylint: disable=wrong-import-position
import sqlserver  # pylint: disable=wrong-import-position

IDEM = os.environ["IDEM_EXE"]
SQL = "IDEM_SQL_SERVE" in os.environ
NGINX = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
MODULE = os.path.abspath(os.path.join(os.path.dirname(IDEM), "../nginx/ngx_http_idem_module.so"))
ROOT = os.geteuid() == 0
SERVERS = ("redis", "postgres", "mysql")  # the URLs of stores that are reached over a connection begin with these
tests = []


class Skip(Exception):
    pass


def test(function):
    tests.append((function, False))
    return function


def test_sql(function):
    tests.append((function, True))
    return function


def check(good, *what):
    if not good:
        raise AssertionError(" ".join(map(str, what)))


class Findings(list):
    def of(self, check_name, grade):
        """Returns the findings of a check, which must all have that grade."""
        found = [f for f in self if f["check"] == check_name]
        check(found and all(f["grade"] == grade for f in found), f"{check_name} is not {grade}:", found or list(self))
        return found

    def bad(self):
        return [f for f in self if f["grade"] in ("unsafe", "broken")]


def stopped_clock():
    """The environment of a program whose timeouts do not end: tests/cli/lease_clock.c."""
    path = os.environ["TMPDIR"] + "/stopped"
    if not os.path.exists(path):
        with open(path, "wb") as file:
            file.write(struct.pack("qq", 0, int(time.clock_gettime(time.CLOCK_BOOTTIME))))
    return {"LD_PRELOAD": os.environ["IDEM_LEASE_CLOCK_LIBRARY"], "IDEM_LEASE_CLOCK": path}


def doctor(*words, limits=False, **options):
    """Returns the findings, and checks that the exit status fits them. By default a store has 5 s to respond to the
    doctor, which a busy machine may exceed: `limits` keeps that timeout."""
    env = options.pop("env", {})
    if not limits:
        env = {**env, **stopped_clock(), "LD_PRELOAD": " ".join(filter(None, (env.get("LD_PRELOAD"), stopped_clock()["LD_PRELOAD"])))}
    words = [patient(word) if word.startswith(SERVERS) and "timeout=" not in word else word for word in words]
    env = dict(os.environ, **env)
    run = subprocess.run([IDEM, "doctor", "--json", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                         timeout=LIMIT, check=False, env=env, **options)
    try:
        found = Findings(json.loads(line) for line in run.stdout.splitlines())
    except ValueError:
        raise AssertionError(f"no JSON: {run.stdout} {run.stderr}") from None
    check(found, f"nothing was found: {run.returncode} {run.stderr}")
    check(run.returncode == (78 if found.bad() else 0), f"status {run.returncode}:", found.bad())
    for f in found:
        check(f["found"], "words are missing:", f)
        check(f["grade"] in ("ok", "note") or f.get("do"), "what to do is missing:", f)
    return found


def doctor_at_leisure(*words, **options):
    """Returns the findings once the machine is fast enough, because a slow response is itself a finding."""
    def found():
        findings = doctor(*words, **options)
        slow = [f for f in findings if f["check"] == "reachable" and f["grade"] == "note"]
        return None if slow else findings
    return until("it answers quickly", found)


def made(path):
    subprocess.run([IDEM, "run", "--store", f"lmdb:{path}", "--key", "k", "--", "true"], check=True)
    return path


# The embedded store.

@test
def an_embedded_store_on_a_disk_is_in_order(folder):
    url = f"lmdb:{made(folder + '/store')}"
    found = doctor_at_leisure("--store", url)
    check(not found.bad(), found.bad())
    for name in ("sync", "owner", "reachable", "clock", "permissions"):
        found.of(name, "ok")
    left = subprocess.run([IDEM, "list", "--store", url, "--prefix", "doctor:", "--json"], stdout=subprocess.PIPE,
                          check=True, timeout=LIMIT).stdout
    check(left == b"", "it has left a record:", left)


@test
def a_store_in_memory_is_unsafe(folder):
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        said = doctor("--store", f"lmdb:{made(memory + '/store')}").of("file system", "unsafe")
    check("tmpfs" in said[0]["found"], said)


@test
def what_everybody_may_read_or_replace_is_unsafe(folder):
    path = made(folder + "/store")
    os.chmod(path, 0o777)
    check("replace" in doctor("--store", f"lmdb:{path}").of("owner", "unsafe")[0]["found"], "the folder")
    os.chmod(path, 0o755)
    os.chmod(path + "/data.mdb", 0o644)
    check("read" in doctor("--store", f"lmdb:{path}").of("owner", "unsafe")[0]["found"], "the file")
    os.chmod(path, 0o700)
    doctor("--store", f"lmdb:{path}").of("owner", "ok")


@test
def what_a_group_may_touch_is_not_said_to_be_one_users(folder):
    path = made(folder + "/store")
    group = os.stat(path).st_gid
    for folder_mode, file_mode, grade in ((0o700, 0o660, "ok"), (0o770, 0o600, "note"), (0o750, 0o640, "note"),
                                          (0o711, 0o640, "note"), (0o750, 0o600, "ok")):
        os.chmod(path, folder_mode)
        os.chmod(path + "/data.mdb", file_mode)
        said = doctor("--store", f"lmdb:{path}").of("owner", grade)[0]["found"]
        check((" only" in said) == (grade == "ok") and (f"group {group}" in said) == (grade == "note"), said)


@test
def sync_off_is_told(folder):
    subprocess.run([IDEM, "run", "--store", f"lmdb:{folder}/s?sync=off", "--key", "k", "--", "true"], check=True)
    check("power" in doctor("--store", f"lmdb:{folder}/s?sync=off").of("sync", "note")[0]["found"], "why")
    doctor("--store", f"lmdb:{folder}/s?sync=off&accept_loss=yes").of("sync", "unsafe")
    doctor("--store", f"lmdb:{folder}/s?accept_clock=yes").of("accept_clock", "unsafe")


@test
def a_map_that_is_larger_than_the_disk_is_told(folder):
    doctor("--store", f"lmdb:{folder}/none?size=16T").of("room", "note")
    doctor("--store", f"lmdb:{folder}/none?size=1M").of("room", "ok")


@test
def a_store_that_is_not_there_is_not_made(folder):
    doctor("--store", f"lmdb:{folder}/none").of("store", "note")
    check(not os.path.exists(folder + "/none"), "it was made")
    doctor("--store", f"lmdb:{folder}/none/deeper").of("folder", "broken")


@test
def somebody_elses_store_is_told_before_it_is_used(folder):
    if not ROOT:
        raise Skip("only root can become another user")
    made(folder + "/store")
    os.chmod(folder, 0o755)
    exe = os.path.dirname(IDEM)
    while exe != "/":
        if not os.stat(exe).st_mode & 0o001:
            raise Skip("the user nobody cannot run the program")
        exe = os.path.dirname(exe)
    said = doctor("--store", f"lmdb:{folder}/store", user="nobody").of("permissions", "broken")
    check("uid 0" in said[0]["found"], said)


@test
def containers_are_told_that_it_is_one_machines_memory(folder):
    found = doctor("--store", f"lmdb:{folder}/none", env={"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    check("Kubernetes" in found.of("replicas", "note")[0]["found"], found)


def elsewhere(folder, **env):
    """Simulates another machine."""
    if not os.environ.get("IDEM_MACHINE"):
        raise Skip("no library that makes it another")
    return doctor("--store", f"lmdb:{folder}/none", env={"LD_PRELOAD": os.environ["IDEM_MACHINE"], **env})


@test
def file_systems_that_will_not_do_are_unsafe(folder):
    for number, name, why in (("6969", "NFS", "network"), ("ff534d42", "CIFS", "network"), ("fe534d42", "SMB2", "network"),
                              ("65735546", "FUSE", "network"), ("1021994", "tmpfs", "restarts"), ("794c7630", "overlayfs", "replaced")):
        said = elsewhere(folder, IDEM_FILE_SYSTEM=number).of("file system", "unsafe")[0]["found"]
        check(said.startswith(name + " ") and why in said, said)
    elsewhere(folder, IDEM_FILE_SYSTEM="ef53").of("file system", "ok")


@test
def a_disk_that_is_nearly_full_is_unsafe(folder):
    for left, grade in ((63 << 20, "unsafe"), (65 << 20, "note"), (20 << 30, "ok")):
        elsewhere(folder, IDEM_DISK_LEFT=str(left)).of("room", grade)


@test
def a_container_is_known_by_its_marker(folder):
    for marker in ("/.dockerenv", "/run/.containerenv"):
        check("container" in elsewhere(folder, IDEM_MARKER=marker).of("replicas", "note")[0]["found"], marker)


@test
def a_file_that_is_no_store_is_broken(folder):
    path = made(folder + "/store")
    with open(path + "/data.mdb", "r+b") as file:
        file.write(b"\xff" * 8192)
    doctor("--store", f"lmdb:{path}").of("reachable", "broken")


# Redis.

@test
def a_redis_that_keeps_everything_is_in_order(folder):
    with redisserver.start(folder) as server:
        found = doctor("--store", server.url)
        check(not found.bad() and found.of("version", "ok"), found.bad())
        for name in ("eviction", "persistence", "network", "permissions", "clock"):
            found.of(name, "ok")


@test
def what_redis_may_forget_is_unsafe(folder):
    with redisserver.start(folder, "--appendfsync", "everysec") as server:
        def with_settings(**settings):
            for name, value in settings.items():
                server.ask("CONFIG", "SET", name.replace("_", "-"), value)
            return doctor("--store", server.url)
        check("second" in with_settings().of("persistence", "note")[0]["found"], "everysec")
        with_settings(no_appendfsync_on_rewrite="yes")
        check("rewritten" in [f for f in doctor("--store", server.url) if f["grade"] == "unsafe"][0]["found"], "everysec")
        check("rewritten" in with_settings(appendfsync="always").of("persistence", "unsafe")[0]["found"], "always")
        with_settings(appendfsync="no", no_appendfsync_on_rewrite="no").of("persistence", "unsafe")
        check("snapshots" in with_settings(appendonly="no", save="3600 1").of("persistence", "unsafe")[0]["found"], "save")
        check("restart" in with_settings(save="").of("persistence", "unsafe")[0]["found"], "nothing")
        found = with_settings(maxmemory_policy="allkeys-lru")
        found.of("eviction", "unsafe")
        found.of("reachable", "broken")  # a store refuses it
        found = doctor_at_leisure("--store", server.url + "?unsafe=yes")
        found.of("eviction", "unsafe")
        found.of("reachable", "ok")


@test
def a_replica_is_broken(folder):
    with redisserver.start(folder) as server:
        server.ask("REPLICAOF", "127.0.0.1", "1")
        found = doctor("--store", server.url + "?timeout=15s", limits=True)
        found.of("role", "broken")
        found.of("reachable", "broken")


class Relay:
    """A relay in front of a Redis, which delays and changes the responses."""

    def __init__(self, server, delay=0.0, old=b"\0", new=b"\0"):
        self.server, self.delay, self.old, self.new = server, delay, old, new
        self.url = server.url + ".relay"
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(server.socket + ".relay")
        self.listener.listen()
        self.start(self.serve)

    @staticmethod
    def start(deed, *args):
        threading.Thread(target=deed, args=args, daemon=True).start()

    def serve(self):
        while True:
            client, server = self.listener.accept()[0], socket.socket(socket.AF_UNIX)
            server.connect(self.server.socket)
            self.start(self.pass_on, client, server, lambda data: data)
            self.start(self.pass_on, server, client, self.change)

    @staticmethod
    def pass_on(one, other, change):
        try:
            while data := one.recv(1 << 20):
                other.sendall(change(data))
            other.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def change(self, data):
        time.sleep(self.delay)  # sleep: the distance that the doctor reports
        return data.replace(self.old, self.new)


@test
def a_store_that_is_far_away_is_told(folder):
    with redisserver.start(folder) as server:
        said = doctor("--store", Relay(server, delay=0.03).url).of("reachable", "note")[0]["found"]
        check(int(re.search(r"takes (\d+) ms", said)[1]) >= 30, said)


@test
def a_log_that_cannot_be_written_is_unsafe(folder):
    with redisserver.start(folder) as server:
        relay = Relay(server, old=b"aof_last_write_status:ok\r\naof_last_cow", new=b"aof_last_write_status:err\r\naof_last_co")
        found = [f for f in doctor("--store", relay.url) if f["check"] == "persistence" and f["grade"] == "unsafe"]
        check(len(found) == 1 and "failed" in found[0]["found"], found)


@test
def replicas_that_are_not_waited_for_are_told(folder):
    port = free_port()
    with redisserver.start(folder + "/master", "--port", str(port)) as server, redisserver.start(folder + "/replica") as replica, \
            redisserver.sentinel(folder + "/sentinel", port) as sentinel:
        check(not [f for f in doctor("--store", server.url) if f["check"] == "replicas"], "it has none")
        check("none to promote" in doctor("--store", sentinel.master_url).of("replicas", "note")[0]["found"], "Sentinel")
        replica.ask("REPLICAOF", "127.0.0.1", port)
        until("it has one", lambda: b"connected_slaves:1" in server.ask("INFO", "replication"))
        for url in (server.url, sentinel.master_url):
            check("failover" in doctor("--store", url).of("replicas", "note")[0]["found"], "no client waits for it")
            check("all replicas" in doctor("--store", url + "?replicas=1").of("replicas", "ok")[0]["found"], "replicas=1")
        check("refused" in doctor("--store", server.url + "?replicas=2", limits=True).of("replicas", "broken")[0]["found"], "replicas=2")
        with redisserver.start(folder + "/second") as second:
            second.ask("REPLICAOF", "127.0.0.1", port)
            until("it has two", lambda: b"connected_slaves:2" in server.ask("INFO", "replication"))
            check("may lack" in doctor("--store", server.url + "?replicas=1").of("replicas", "note")[0]["found"], "one of two")
        server.ask("CONFIG", "SET", "min-replicas-to-write", "1")
        for url in (server.url, sentinel.master_url):
            check("min-replicas-to-write" in doctor("--store", url).of("replicas", "ok")[0]["found"], "it is requested")


@test
def a_master_of_sentinels_without_a_log_is_unsafe(folder):
    port = free_port()
    with redisserver.start(folder + "/master", "--port", str(port), "--appendonly", "no") as server, \
            redisserver.sentinel(folder + "/sentinel", port) as sentinel:
        check("restart" in doctor("--store", sentinel.master_url).of("persistence", "unsafe")[0]["found"], server.url)


@test
def every_master_of_a_cluster_is_looked_at(folder):
    with redisserver.cluster(folder) as nodes:
        places = {f"127.0.0.1:{node.port}" for node in nodes}

        def subjects(found, name, grade):
            return {f["subject"] for f in found if f["check"] == name and f["grade"] == grade}
        found = doctor("--store", redisserver.cluster_url(nodes[:1]))
        check(not found.bad(), found.bad())
        for name in ("version", "eviction", "persistence"):
            check(subjects(found, name, "ok") == places, name, found)
        for bad in nodes:
            good = [node for node in nodes if node is not bad]
            place = f"127.0.0.1:{bad.port}"
            bad.ask("CONFIG", "SET", "appendonly", "no")
            found = doctor("--store", redisserver.cluster_url(good))
            check(subjects(found, "persistence", "unsafe") == {place}, found)
            bad.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
            for url in (redisserver.cluster_url(good[:1]), redisserver.cluster_url([bad, *good])):
                found = doctor("--store", url, limits=True)  # the server that refuses is asked again
                check(subjects(found, "eviction", "unsafe") == {place}, url, found)
                check(subjects(found, "eviction", "ok") == places - {place}, url, found)
            check(place in subjects(found, "reachable", "broken"), found)  # a store refuses it
            bad.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
            bad.ask("CONFIG", "SET", "appendonly", "yes")


@test
def a_master_of_a_cluster_that_is_away_is_broken(folder):
    with redisserver.cluster(folder) as nodes:
        place = f"127.0.0.1:{nodes[2].port}"
        for away in (nodes[2].pause, nodes[2].kill):
            away()
            found = doctor("--store", redisserver.cluster_url(nodes[:2]) + "?timeout=15s&connect_timeout=15s", limits=True)
            check(place in {f["subject"] for f in found if f["check"] == "reachable" and f["grade"] == "broken"}, found)


@test
def a_user_who_may_too_little_is_told_before_the_first_customer(folder):
    with redisserver.start(folder) as server:
        base = ["+set", "+get", "+getrange", "+strlen", "+pttl", "+del", "+incrby", "+pexpire", "+publish", "+time",
                "+scan", "+hincrby", "+hgetall", "+eval", "+evalsha", "+script|load", "+client|setname", "+client|id"]
        server.ask("ACL", "SETUSER", "blind", "on", ">pw", "~*", "&*", *base)
        server.ask("ACL", "SETUSER", "reader", "on", ">pw", "~*", "&*", "+@read", "+info", "+config|get", "+script|load",
                   "+client|setname", "+client|id", "+time")
        server.ask("ACL", "SETUSER", "shop", "on", ">pw", "~order:*", "~idem:events", "&*", "+info", "+config|get", *base)
        env = {"IDEM_REDIS_PASSWORD": "pw"}
        check(doctor("--store", server.url + "?user=blind", env=env).of("settings", "note"), "blind")
        said = doctor("--store", server.url + "?user=reader", env=env).of("permissions", "broken")
        check("doctor:" in said[0]["found"], said)
        doctor("--store", server.url + "?user=shop", env=env).of("permissions", "broken")
        doctor("--store", server.url + "?user=shop", "--prefix", "order:", env=env).of("permissions", "ok")


@test
def a_way_over_the_network_needs_tls_and_a_password(folder):
    slow = "connect_timeout=50ms&timeout=100ms"
    found = doctor("--store", f"redis://192.0.2.1:1/?{slow}", limits=True)
    found.of("network", "unsafe")
    found.of("password", "unsafe")
    found.of("reachable", "broken")
    found = doctor("--store", f"rediss://ann:hunter2@192.0.2.1:1/?{slow}", limits=True)
    found.of("network", "ok")
    check(not [f for f in found if f["check"] == "password"], found)
    check("hunter2" not in json.dumps(found), "a password is shown")


@test
def a_clock_that_is_off_is_told(folder):
    if not os.environ.get("IDEM_CLOCK"):
        raise Skip("no library that sets it off")
    with redisserver.start(folder) as server:
        for seconds, grade in ((5, "note"), (-5, "note"), (15, "unsafe"), (-3600, "unsafe")):
            env = {"LD_PRELOAD": os.environ["IDEM_CLOCK"], "IDEM_CLOCK_OFF": str(seconds)}
            # An offset smaller than the request's duration is not detected, so the test asks until the machine is fast
            # enough.
            until(f"{seconds} s are {grade}", lambda: [f["grade"] for f in doctor("--store", server.url, env=env)
                                                       if f["check"] == "clock"] == [grade])


# URLs that are not stores.

@test
def a_url_that_is_none_is_broken(folder):
    doctor("--store", "lmbd:/x").of("URL", "broken")
    doctor("--store", f"lmdb:{folder}?sync=perhaps").of("URL", "broken")
    check("hunter2" not in json.dumps(doctor("--store", "redis://:hunter2?x@h")), "a password is shown")


@test
def people_get_a_line_for_each_and_a_sum(folder):
    run = subprocess.run([IDEM, "doctor", "--store", f"lmdb:{made(folder + '/store')}"], stdout=subprocess.PIPE, text=True,
                         check=False, timeout=LIMIT)
    lines = run.stdout.splitlines()
    check(lines[-1].startswith("0 broken, 0 unsafe, "), lines)
    check(all(line.split(" ")[0] in ("ok", "note") for line in lines[:-1]), lines)


# Policies.

def settings(folder, text, *words):
    with open(folder + "/idem.conf", "w", encoding="utf-8") as file:
        file.write(text)
    return doctor("--config", folder + "/idem.conf", *words)


@test
def times_that_do_not_go_together_are_unsafe(folder):
    found = settings(folder, "[policy good]\npreset = api\n")
    check(not found.bad() and found.of("policy", "ok"), found)
    found = settings(folder, "[policy q]\npreset = queue\nttl = 10m\nattempts = 20\nbackoff = 1s..5m\n")
    found.of("redelivery", "unsafe")
    settings(folder, "[policy brief]\nttl = 30s\n").of("ttl", "unsafe")
    settings(folder, "[policy brief]\nttl = 30s\n", "--client-timeout", "10s").of("ttl", "note")
    settings(folder, "[policy day]\nttl = 24h\n", "--retry-span", "72h").of("ttl", "unsafe")
    check(not settings(folder, "[policy day]\nttl = 24h\n", "--retry-span", "1h").bad(), "a span that fits")
    settings(folder, "[policy slow]\nwait = 2m\n").of("wait", "note")
    settings(folder, "[policy hasty]\nhold_ttl = 1h\n").of("hold_ttl", "unsafe")
    settings(folder, "[policy pay]\npreset = payment\non_store_error = open\n").of("store error", "unsafe")
    settings(folder, "[policy any]\non_store_error = open\n").of("store error", "note")
    settings(folder, "[policy pay]\npreset = payment\nrecover = rerun\n").of("recover", "unsafe")
    settings(folder, "[defaults]\nttl = 30s\n").of("ttl", "unsafe")


@test
def settings_that_cannot_be_read_are_an_error(folder):
    for words in (["--config", folder + "/none"], ["operand"]):
        run = subprocess.run([IDEM, "doctor", *words], stderr=subprocess.PIPE, stdout=subprocess.PIPE, check=False, timeout=LIMIT)
        check(run.returncode in (64, 78) and run.stderr, run)


# nginx.

class Nginx:
    def __init__(self, folder):
        if NGINX is None or not os.path.exists(MODULE):
            raise Skip("no nginx, or no module")
        self.folder = folder

    def put(self, name, text):
        with open(f"{self.folder}/{name}", "w", encoding="utf-8") as file:
            file.write(text)

    def examine(self, locations, *words, http="", server="server_name shop.example;", user="user root;", **options):
        self.put("nginx.conf", f"""
load_module {MODULE}; # not }} a block
{user if ROOT else ''}
pid {self.folder}/pid;
error_log {self.folder}/error.log;
events {{ }}
http {{
    access_log off;
    client_body_temp_path {self.folder}/body; proxy_temp_path {self.folder}/proxy;
    fastcgi_temp_path {self.folder}/f; uwsgi_temp_path {self.folder}/u; scgi_temp_path {self.folder}/s;
    server {{
        listen unix:{self.folder}/sock;
        {server}
        {locations}
    }}
    proxy_http_version 1.1;
    {http or f'idem_store lmdb:{self.folder}/store; idem_scope $cookie_session; idem_label $http_x_order;'}
}}
""")
        return doctor("--nginx", self.folder + "/nginx.conf", "--nginx-exe", NGINX, *words, env=self.env(), **options)

    @staticmethod
    def env():
        preload = os.environ.get("IDEM_PRELOAD")
        return {"LD_PRELOAD": preload, "ASAN_OPTIONS": "detect_leaks=0"} if preload else {}


TO = "proxy_pass http://127.0.0.1:9;"
STATUS = "location = /status { idem_status; allow 127.0.0.1; deny all; }"
GOOD = f"location /orders {{ idem_preset api; idem_prefix order:; {TO} }}"


@test
def a_gateway_that_is_right_has_nothing_unsafe(folder):
    nginx = Nginx(folder)
    found = nginx.examine(STATUS + GOOD)
    check(not found.bad(), found.bad())
    check(found.of("policy", "ok")[0]["subject"] == "nginx shop.example /orders", found)
    check(found.of("store", "note")[0]["subject"] == f"lmdb:{folder}/store", found)  # its store is checked, too
    check(not [f for f in found if f["check"] in ("metrics", "guards", "scope", "upstream", "uncertain")], found)


@test
def what_makes_a_guard_unsafe_is_found_wherever_it_is_said(folder):
    nginx = Nginx(folder)

    def one(rules, name, grade, **options):
        return nginx.examine(f"{STATUS} location /x {{ idem replay; idem_prefix x:; {rules} {TO} }}", **options).of(name, grade)
    one("idem_enforce off;", "enforce", "unsafe")
    one("idem_enforce $https;", "enforce", "note")
    one("idem_enforce $http_x_on;", "enforce", "unsafe")
    one("idem_scope none; auth_basic Shop; auth_basic_user_file /dev/null;", "scope", "unsafe")
    one("idem_scope none;", "scope", "unsafe", server="auth_request /auth;")
    for scope in ("$request_id", '"${request_id}"', "a${REQUEST_ID}b", "$remote_user$msec", "$time_local",
                  "$s; set $s $request_id", "$s; set $s x; if ($arg_a) { set $s ${t}; } set $t $connection"):
        check("each request" in one(f"idem_scope {scope};", "scope", "unsafe")[0]["found"], scope)
    one("idem_scope $s;", "scope", "unsafe", server="set $s $request_id;")
    one("idem_scope $http_authorization;", "scope", "note")
    one("idem_scope ${http_authorization};", "scope", "note")
    one("proxy_http_version 1.0;", "upstream", "note")
    one("idem_ttl 30s;", "ttl", "unsafe")
    one("idem_wait 2m;", "wait", "note")
    one("idem_preset payment; idem_on_store_error open;", "store error", "unsafe")
    one("idem_label off;", "uncertain", "note")
    # The rules stand in the enclosing block, and after the location; a nested rule overrides them.
    found = nginx.examine(f"{STATUS} idem replay; idem_prefix x:; location /in {{ {TO} }} "
                          f"location /out {{ idem_hold_ttl 30d; {TO} }} location /off {{ idem off; {TO} }} idem_hold_ttl 1h;")
    check([f["subject"] for f in found.of("hold_ttl", "unsafe")] == ["nginx shop.example /in"], found)
    check(not [f for f in found if "/off" in f["subject"]], found)


BASIC = "auth_basic Shop; auth_basic_user_file /dev/null;"


def scope_grades(folder):
    """Returns a function: the grades of the findings about the scope, in a location with these rules."""
    nginx = Nginx(folder)

    def one(rules, **options):
        found = nginx.examine(f"{STATUS} location /x {{ idem replay; idem_prefix x:; {rules} {TO} }}", **options)
        return [f["grade"] for f in found if f["check"] == "scope"]
    return one


@test
def a_scope_that_any_client_may_claim_is_unsafe(folder):
    one, basic = scope_grades(folder), BASIC
    for rules in ("idem_scope $http_x_user;", "idem_scope 'u-${http_x_user}';", "set $u $http_x_user; idem_scope $u;",
                  "idem_scope $arg_user;", "idem_scope $cookie_user;", "idem_scope $http_x_user; " + basic,
                  "idem_scope $http_x_user; allow 10.0.0.1; deny all; satisfy any; " + basic,
                  "idem_scope $http_x_user; deny 10.0.0.1;"):
        check(one(rules) == ["unsafe"], rules)
    check(one("idem_scope $http_x_user; allow 10.0.0.1; deny all;") == ["note"], "a proxy's")
    check(one("idem_scope $http_x_user;", server="allow 10.0.0.1; deny all;") == ["note"], "a proxy's, by the server")
    # A scope that cannot be guessed, a scope that was authenticated, and the result of a map.
    for rules in ("idem_scope $http_x_api_key;", "idem_scope $http_x_auth_token;", "idem_scope $cookie_session;",
                  "idem_scope $cookie_PHPSESSID;", "idem_scope $remote_user; " + basic, "set $u $u$remote_user; idem_scope $u; " + basic):
        check(one(rules) == [], rules)
    stores = f"idem_store lmdb:{folder}/store; idem_label $http_x_order;"
    check(one("idem_scope $known;", http=stores + " map $http_x_user $known { ann 1; default 2; }") == [], "a map")


@test
def a_user_name_that_no_password_proves_is_unsafe(folder):
    one, basic = scope_grades(folder), BASIC
    for rules in ("idem_scope $remote_user;", "set $u $u$remote_user; idem_scope $u;", "idem_scope $remote_user; auth_basic off;",
                  f"idem_scope $remote_user; allow 10.0.0.1; deny all; satisfy any; {basic}",
                  "idem_scope $remote_user; auth_basic Shop;", "set $realm off; idem_scope $remote_user; auth_basic $realm; auth_basic_user_file /dev/null;",
                  f"idem_scope $remote_user; {basic} limit_except GET {{ auth_basic off; }}",
                  "idem_set $u '#body.user'; idem_scope $u;", "idem_scope $args;", "idem_scope $host;", "idem_scope $host$uri;", "idem_scope $proxy_add_x_forwarded_for;"):
        check(one(rules) == ["unsafe"], rules)
    check(one("idem_scope $ssl_client_s_dn;", server="ssl_verify_client optional_no_ca;") == ["unsafe"], "a certificate of its own")
    check(one("idem_scope $remote_user;", server="auth_request /auth;") == ["note"], "the service must check it")
    check(one("idem_scope $remote_user; allow 10.0.0.1; deny all;") == ["note"], "a proxy's")
    check(one("idem_scope $remote_user;", server=basic) == [], "proven by the server's auth_basic")
    check(one("idem_scope $remote_user; satisfy any; " + basic) == [], "there is no address to satisfy it")
    check(one("idem_scope $remote_user; satisfy any; auth_request /auth; " + basic) == ["note"], "the service may let others in")
    check(one(f"idem_scope $host:$remote_user; {basic}") == [], "an address beside an identity")
    stores = f"idem_store lmdb:{folder}/store; idem_label $http_x_order;"
    check(one("idem_scope $tenant;", http=stores + " map $remote_user $tenant { default $remote_user; }") == ["unsafe"], "a map of it")
    check(one(f"idem_scope $remote_user; {basic} limit_except POST {{ auth_basic off; }}") == [], "it is not about a POST")


@test
def the_examples_of_the_documents_have_a_scope_that_is_proven(folder):
    nginx, root = Nginx(folder), os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../..")
    for name in ("README.md", "README.zh-CN.md", "docs/http.md", "docs/sql.md", "contrib/examples/nginx-shop.conf"):
        with open(os.path.join(root, name), encoding="utf-8") as file:
            guards = [rules for _, rules in re.findall(r"^( +)location /(?:orders|payments) \{\n(.*?)^\1\}", file.read(), re.S | re.M)
                      if re.search(r"auth_basic|deny +all", rules)]  # others have it in their server
        check(guards, f"{name} has none")
        for rules in guards:
            rules = re.sub(r"idem_store .*", "", rules)
            found = nginx.examine(f"{STATUS} location /orders {{ {rules} }}")
            check(not [f for f in found.bad() if f["check"] == "scope"], name, found.bad())


@test
def a_guard_that_the_client_switches_off_is_unsafe(folder):
    nginx = Nginx(folder)

    def one(rules, http="", **options):
        http = f"idem_store lmdb:{folder}/store; idem_scope $cookie_session; idem_label $http_x_order; {http}"
        return nginx.examine(f"{STATUS} location /x {{ idem replay; idem_prefix x:; {rules} {TO} }}", http=http, **options)
    for condition in ("$http_x", '$http_x = "a b"', "$arg_debug ~ ^[0-9]$", "$cookie_x"):
        said = one(f"if ({condition}) {{ idem off; }}").of("guard", "unsafe")
        check(said[0]["subject"].startswith("nginx shop.example /x if ("), said)
    one("set $o $http_x; if ($o) { idem off; }").of("guard", "unsafe")
    one("if ($o) { idem off; }", http="map $http_x $o { y 1; default 0; }").of("guard", "unsafe")
    one("if ($request_method = PUT) { idem off; }").of("guard", "note")
    # The other rules apply inside it, too; an `if` without rules of Idem is ignored.
    one("if ($request_method = PUT) { idem_enforce off; }").of("enforce", "unsafe")
    check(one("if ($request_method = PUT) { idem_ttl 30s; }").of("ttl", "unsafe")[0]["subject"].endswith("PUT)"), "where")
    found = one("if ($http_x) { return 403; } if ($arg_y) { set $z 1; }")
    check(not found.bad() and not [f for f in found if " if " in f["subject"]], found)


@test
def what_is_not_there_is_told(folder):
    nginx = Nginx(folder)
    nginx.examine(f"location / {{ {TO} }}").of("guards", "unsafe")
    nginx.examine(GOOD).of("metrics", "note")


@test
def operators_whom_nobody_asks_who_they_are_are_unsafe(folder):
    nginx = Nginx(folder)
    basic = "auth_basic Shop; auth_basic_user_file /dev/null;"
    for rule in ("allow=all;", "allow=0.0.0.0/0;", "allow=127.0.0.1 allow=::/0;", "allow=all; deny 192.0.2.1;",
                 "allow=all; allow all; deny all;", "allow=all; allow 0.0.0.0/0; deny all;",
                 "allow=all; satisfy any; allow all; " + basic, "allow=all; satisfy any; deny 192.0.2.1;"):
        nginx.examine(GOOD + f"location = /admin {{ idem_admin {rule} }}").of("idem_admin", "unsafe")
    for verify in ("optional", "optional_no_ca"):
        nginx.examine(GOOD + "location = /admin { idem_admin allow=all; }",
                      server=f"ssl_verify_client {verify}; ssl_client_certificate /dev/null;").of("idem_admin", "unsafe")
    for rule in ("idem_admin allow=127.0.0.1;", "idem_admin allow=10.0.0.0/8 allow=fc00::/7;", "idem_admin allow=all; " + basic,
                 "idem_admin allow=all; allow 127.0.0.1; deny all;",
                 "idem_admin allow=all; satisfy any; allow 127.0.0.1; deny all; " + basic,
                 "idem_admin allow=all; satisfy any; deny 192.0.2.1; " + basic):
        found = nginx.examine(GOOD + f"location = /admin {{ {rule} }}")
        check(not found.bad() and not [f for f in found if f["check"] in ("idem_admin", "metrics")], found)


@test
def included_files_count_where_they_are_included(folder):
    nginx = Nginx(folder)
    os.mkdir(folder + "/conf.d")
    nginx.put("conf.d/a.conf", f"location /a {{ idem replay; idem_prefix a:; idem_enforce off; {TO} }}\n")
    nginx.put("guard.conf", "idem replay;\nidem_prefix 'b:'; idem_ttl \"30s\"; # idem_ttl 24h;\n")
    found = nginx.examine(f"{STATUS} include conf.d/*.conf; location /b {{ include {folder}/guard.conf; {TO} }}")
    check("/a" in found.of("enforce", "unsafe")[0]["subject"] and "/b" in found.of("ttl", "unsafe")[0]["subject"], found)


@test
def included_files_are_those_beside_the_name_that_was_said(folder):
    nginx = Nginx(folder)
    nginx.examine(f"{STATUS} {GOOD} include sites/*.conf;")
    for name in ("real", "etc", "etc/sites"):
        os.mkdir(f"{folder}/{name}")
    os.rename(folder + "/nginx.conf", folder + "/real/nginx.conf")
    os.symlink("../real/nginx.conf", folder + "/etc/nginx.conf")
    nginx.put("etc/sites/x.conf", f"location /x {{ idem replay; idem_prefix x:; idem_enforce off; {TO} }}\n")
    for name, where in ((folder + "/etc/nginx.conf", folder), ("nginx.conf", folder + "/etc"), ("../etc/nginx.conf", folder + "/etc")):
        found = doctor("--nginx", name, "--nginx-exe", NGINX, cwd=where, env=nginx.env())
        check("/x" in found.of("enforce", "unsafe")[0]["subject"], name, found)


@test
def what_is_too_much_to_be_examined_is_not_passed_over_in_silence(folder):
    nginx = Nginx(folder)
    stores = "".join(f"location /{i} {{ idem replay; idem_prefix x:; idem_store lmdb:{folder}/s{i}; {TO} }}" for i in range(33))
    check("32 stores" in nginx.examine(STATUS + stores).of("limits", "unsafe")[0]["found"], "stores")
    os.mkdir(folder + "/many")
    for i in range(1024):
        nginx.put(f"many/{i:04}.conf", f"location /{i} {{ idem_enforce off; return 404; }}\n")
    check("files" in nginx.examine(f"{STATUS} {GOOD} include many/*.conf;").of("limits", "unsafe")[0]["found"], "files")
    nginx.put("large.conf", ("#" * 1023 + "\n") * (32 << 10))
    check("32 MiB" in nginx.examine(f"{STATUS} {GOOD} include large.conf;").of("limits", "unsafe")[0]["found"], "a dump")


@test
def every_store_of_a_configuration_is_examined_with_a_prefix_of_its_own(folder):
    nginx = Nginx(folder)
    made(folder + "/one")
    found = nginx.examine(f"{STATUS} location /a {{ idem replay; idem_prefix a:; {TO} }} "
                          f"location /b {{ idem replay; idem_prefix b:; idem_store redis:{folder}/nobody; {TO} }} "
                          f"location /c {{ idem replay; idem_prefix c:; {TO} }}",
                          http=f"idem_scope none; idem_store lmdb:{folder}/one;", limits=True)
    check([f["subject"] for f in found if f["check"] == "reachable"] == [f"lmdb:{folder}/one", f"redis:{folder}/nobody"], found)
    check("under a:" in found.of("permissions", "ok")[0]["found"], found)


@test
def a_store_is_judged_for_the_user_of_the_workers(folder):
    if not ROOT:
        raise Skip("only root's workers have another user")
    nginx = Nginx(folder)
    os.chmod(folder, 0o755)
    path, workers = folder + "/store", pwd.getpwnam("nobody")

    def examined(user="user nobody nogroup;"):
        return nginx.examine(STATUS + GOOD, user=user)
    # The store does not exist, and only root could make it; nginx's default is an unprivileged
    # user, too.
    for user in ("user nobody nogroup;", ""):
        check("Permission denied" in examined(user).of("folder", "broken")[0]["found"], user)
    made(path)
    check("nobody" in examined().of("permissions", "broken")[0]["found"], "root's")
    os.chown(path, workers.pw_uid, -1)
    check("chown -R nobody" in examined().of("permissions", "broken")[0]["do"], "root's files")
    for name in os.listdir(path):
        os.chown(f"{path}/{name}", workers.pw_uid, -1)
    found = examined()
    check(not found.bad() and found.of("permissions", "ok"), found.bad())
    check(all(os.stat(f"{path}/{name}").st_uid != 0 for name in os.listdir(path)), "it has left root's files there")
    os.chown(path + "/lock.mdb", 0, 0)
    examined().of("permissions", "broken")
    os.chown(path + "/lock.mdb", workers.pw_uid, -1)
    os.chmod(folder, 0o700)  # the directory above the store
    examined().of("permissions", "broken")


@test
def what_nginx_refuses_is_said_in_its_words(folder):
    nginx = Nginx(folder)
    said = nginx.examine("location / { idem perhaps; }").of("nginx", "broken")
    check("perhaps" in said[0]["found"] or "idem" in said[0]["found"], said)
    doctor("--nginx", folder + "/none.conf").of("nginx", "broken")


# SQL servers.

@test_sql
def a_postgres_that_keeps_everything_is_in_order(folder):
    with sqlserver.start("postgres", folder, "durable") as server:
        found = doctor("--store", server.url)
        found.of("tables", "broken")
        server.migrate(IDEM)
        found = doctor("--store", server.url)
        check(not found.bad(), found.bad())
        for name in ("version", "tables", "durability", "logging", "commits", "user", "grants", "permissions", "clock", "network"):
            found.of(name, "ok")
        server.ask("ALTER TABLE idem_record SET UNLOGGED")
        check("idem_record" in doctor("--store", server.url).of("logging", "unsafe")[0]["found"], "which")
        server.ask("ALTER TABLE idem_record SET LOGGED")
        server.ask("ALTER ROLE CURRENT_USER SET synchronous_commit = off")
        doctor("--store", server.owner).of("commits", "unsafe")
        server.ask("REVOKE DELETE ON idem_record FROM PUBLIC")
        for role in server.ask("SELECT string_agg(DISTINCT grantee, ' ') FROM information_schema.table_privileges "
                               "WHERE table_name = 'idem_record' AND grantee NOT IN ('PUBLIC', current_user)").split():
            server.ask(f'REVOKE DELETE ON idem_record FROM "{role}"')
        said = doctor("--store", server.url).of("grants", "broken")
        check("DELETE on idem_record" in said[0]["found"], said)
        server.ask("UPDATE idem_meta SET version = 99, oldest = 99")
        check("99" in doctor("--store", server.url).of("tables", "broken")[0]["found"], "another version")


@test_sql
def a_postgres_without_fsync_or_behind_a_pooler_is_told(folder):
    with sqlserver.start("postgres-pooled", folder) as server:
        server.migrate(IDEM)
        found = doctor("--store", server.url)
        found.of("durability", "unsafe")
        found.of("pooler", "note")


@test_sql
def a_mariadb_that_keeps_everything_is_in_order(folder):
    with sqlserver.start("mysql", folder, "durable") as server:
        server.migrate(IDEM)
        found = doctor("--store", server.url)
        check(not found.bad(), found.bad())
        for name in ("version", "tables", "commits", "binary log", "read only", "engine", "permissions"):
            found.of(name, "ok")


@test_sql
def a_mariadb_that_may_forget_or_refuses_is_told(folder):
    with sqlserver.start("mysql", folder, "innodb_flush_log_at_trx_commit=2") as server:
        doctor("--store", server.url).of("tables", "broken")
        server.migrate(IDEM)
        doctor("--store", server.url).of("commits", "unsafe")
        server.ask("ALTER TABLE idem_counter ENGINE = MyISAM")
        doctor("--store", server.url).of("engine", "unsafe")


def main():
    wanted, failed, n = sys.argv[1:], 0, 0
    for function, sql in tests:
        if sql != SQL or (wanted and function.__name__ not in wanted):
            continue
        n += 1
        try:
            with tempfile.TemporaryDirectory(prefix="idem-doctor-") as folder:
                function(folder)
            print(f"ok {n} - {function.__name__}", flush=True)
        except Skip as why:
            print(f"ok {n} - {function.__name__} # SKIP {why}", flush=True)
        except Exception:  # pylint: disable=broad-except
            failed += 1
            for line in traceback.format_exc().splitlines():
                print("# " + line[:1500])
            print(f"not ok {n} - {function.__name__}", flush=True)
    print(f"1..{n}")
    sys.exit(failed != 0)


main()
