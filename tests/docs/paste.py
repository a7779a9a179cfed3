"""Each nginx configuration that the documents show, pasted as a reader would paste it: into the file that its first line
names, in a Debian whose nginx was never configured, after the commands that the page shows. It must answer 200.

    for page, path, text, commands in of_pages(source):
        verdict(path, the output of sh, given script(path, text, commands) in the other system)

The script makes the backend, the servers that the example names, the file and the requests. The other system needs nginx, curl,
openssl and idem, and those servers.
"""
import os
import re
import shlex

import examples

PAGES = ("README.md", "docs/annotations.md", "docs/http.md", "docs/sign.md", "docs/web.md", "docs/sql.md")
NAMED = re.compile(r"# (/etc/nginx/\S+\.conf)\n")
ANN = "-u ann:secret "
KEY = "-H 'Idempotency-Key: k-4711' "
SESSION = "-b session=8f1c2a "
FORM = "-d item=book "
# What to request of each file: arguments of curl, in which $TOKEN is a token of /token. In a row of requests none repeats an
# operation: each must reach the backend, and none may be refused.
REQUESTS = {
    "orders": [ANN + KEY + FORM + "/orders"],
    "nginx": [ANN + KEY + FORM + "/orders"],
    "payments": [ANN + KEY + FORM + "/payments", ANN + "--json '{\"order\": {\"id\": 7}}' /orders"],
    "forms": [SESSION + FORM + "-d token=$TOKEN /orders"],
    "checkout": [SESSION + FORM + "/checkout"],
    "watched": [ANN + KEY + FORM + "/orders", ":8081/idem/status", "-u op:secret :8081/idem/admin"],
    "signed": ["SIGNED --headers Idempotency-Key /orders"],
    "signed-page": ["SIGNED /orders"],
    "page": [SESSION + KEY + FORM + "/orders", "/idem.js", SESSION + FORM + "-d token=$TOKEN /checkout"],
    "annotated": [ANN + "--json '{\"id\": 7, \"amount\": 1}' /orders"],
    "transfers": [ANN + KEY + FORM + "/orders"],
}
UNGUARDED = ("signed-page",)  # it shows a signature alone
BACKEND = """daemon on;
pid /tmp/backend.pid;
error_log /tmp/backend.log;
events {
}
http {
    access_log off;
    server {
        listen 127.0.0.1:9000;
        location / {
            return 200 "done\\n";
        }
    }
}
"""
OPERATORS = "printf 'op:%s\\n' \"$(openssl passwd -6 secret)\" >/etc/nginx/operators"  # as a sentence of http.md has it
# Servers that an example names, on the ports that it names.
SERVERS = {
    "redis:": "redis-server --daemonize yes --dir /tmp --logfile /tmp/redis.log >/dev/null",
    "postgres:": """pg=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)
install -d -o postgres /tmp/pg
setpriv --reuid=postgres --regid=postgres --clear-groups $pg/initdb -A trust -D /tmp/pg/data >/dev/null
setpriv --reuid=postgres --regid=postgres --clear-groups $pg/pg_ctl -w -D /tmp/pg/data -o '-k /tmp' -l /tmp/pg/log start >/dev/null
psql -q -h /tmp -U postgres -c 'CREATE ROLE shop LOGIN' -c 'CREATE DATABASE shop OWNER shop'
idem migrate --store postgres://shop@localhost/shop >/dev/null""",
}
USERS = ["printf 'ann:%s\\n' \"$(openssl passwd -6 secret)\" >/etc/nginx/shop.users"]  # of a page that leads to http.md for it
WAIT = "until_there() { n=0; until curl -s -o /dev/null http://127.0.0.1:$1/; do n=$((n + 1)); [ $n -lt 600 ] || exit 1; sleep .1; done; }"


def of_pages(source):
    """(page, file, configuration, commands) of each. The commands of a page are for all of its examples."""
    for page in PAGES:
        with open(os.path.join(source, page), encoding="utf-8") as file:
            fences = list(examples.of_markdown(file.read()))
        commands = [text for kind, text in fences if kind == "sh" and text.startswith("install -d ")] or USERS
        for kind, text in fences:
            if kind != "nginx" or text.startswith("# backend.conf"):
                continue
            named = NAMED.match(text)
            assert named, f"{page}: the first line of an nginx example must name its file, as # /etc/nginx/conf.d/NAME.conf: {text[:80]}"
            yield page, named.group(1), text, commands


def name_of(path):
    return os.path.basename(path).removesuffix(".conf")


def curl(words):
    """A request as a command of sh that prints its status."""
    where = re.search(r"(?:^| )(:\d+)?(/\S*)$", words)
    url = f"http://127.0.0.1{where[1] or ':8080'}{where[2]}"
    options = words[:where.start()]
    if options.startswith("SIGNED"):
        return (f"idem sign --key-id shop-1 --secret-file /etc/nginx/idem.keys -H 'Idempotency-Key: k-1' {options[6:]} -d item=7 "
                f"'{url}' | curl -s -o /tmp/answer -w '%{{http_code}}' -H @- -d item=7 '{url}'")
    token = "TOKEN=$(curl -s -b session=8f1c2a -X POST http://127.0.0.1:8080/token | sed 's/.*\"token\":\"\\([^\"]*\\).*/\\1/'); "
    return f"{token if '$TOKEN' in words else ''}curl -s -o /tmp/answer -w '%{{http_code}}' {options} '{url}'"


def script(path, text, commands, load=""):
    """For sh in the other system. Each request prints its status, and what it got where that is not 200. `load`: commands
    that make nginx load the module, where no package has done so."""
    lines = ["set -e", "cd /", WAIT, f"printf %s {shlex.quote(BACKEND)} >/tmp/backend.conf", "nginx -c /tmp/backend.conf", "until_there 9000",
             "rm -f /etc/nginx/sites-enabled/default"]
    lines += [server for scheme, server in SERVERS.items() if scheme in text]
    if load and path != "/etc/nginx/nginx.conf":
        lines.append(load)
    lines += [OPERATORS, f"printf %s {shlex.quote(text)} >{path}", *commands,
              "nginx -t >/tmp/checked 2>&1 || { cat /tmp/checked; exit 1; }", "nginx",
              "until_there 8080", "idem doctor --nginx /etc/nginx/nginx.conf || :"]
    for words in REQUESTS[name_of(path)]:
        lines += [f"status=$({curl(words)}); echo \"got $status\"; [ \"$status\" = 200 ] || cat /tmp/answer /var/log/nginx/error.log"]
    return "\n".join(lines) + "\n"


def verdict(path, printed):
    """None, or what is wrong: a response, or a finding of doctor's about the caller, the backend or the guard."""
    wanted = len(REQUESTS[name_of(path)])
    unsafe = r"^\S+ +.*: (?:scope|upstream): .*" + ("" if name_of(path) in UNGUARDED else r"|^unsafe .*: guards: .*")
    if re.findall(r"^got (.*)$", printed, re.M) != ["200"] * wanted:
        return f"{path}: wanted {wanted} times 200, got:\n{printed}"
    found = re.findall(unsafe, printed, re.M)
    return f"{path}: idem doctor: " + "\n".join(found) if found else None
