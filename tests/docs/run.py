#!/usr/bin/env python3
"""Runs the examples of the documents, each page in a directory of its own, with the files that this build installs.

C is compiled; a ```c fence whose first line is /* NAME */ also becomes a file of that name. Settings are read, and
each of their policies is used. A ```nginx fence is a whole configuration, and passes nginx -t with the module; one
whose first line is # NAME also becomes a file of that name. A ```js fence is a module that parses, and its imports
exist.

A ```console fence is a session: sh runs each line that begins with `$ `, and the lines after it must be its output,
where `...` in a line stands for any text; stdout and stderr are compared together. Each command exits with 0; the
example of a failure prints its status (`; echo "status $?"`). The commands of a manual show no output: each must
succeed, in a store of its own.

tests/tx/docs_test.py runs the ```sql and ```mysql fences. shown.py looks up commands that are only shown (```sh, and
commands in a sentence), and facts.py the numbers and names that pages repeat from the source.

    run.py SOURCE BUILD PAGE...
"""
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True  # the source may belong to another user

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import examples
import facts
import installed as installs
import shown
from ports import free_port
from waiting import until

count = failures = 0


def report(ok, name, why=""):
    global count, failures
    count += 1
    failures += not ok
    for line in () if ok else why.splitlines():
        print("# " + line)
    print(f"{'ok' if ok else 'not ok'} {count} - {name}", flush=True)


def file_write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def steps(session):
    """Splits a session into pairs of a command and the lines that must follow."""
    pairs = []
    for line in session:
        if line.startswith("$ "):
            pairs.append((line[2:], []))
        else:
            pairs[-1][1].append(line)
    return pairs


def key_of(section):
    """Returns the flags for the key of `idem run` under a policy: a comment `; --vars ...` gives the variables of its
    expressions."""
    flags = re.search(r"^; (--.*)$", section, re.M)
    return flags.group(1) if flags else "--key ini"


def processes_in(folder):
    """Returns the processes that a session has left running in the directory."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
                dead = file.read().rsplit(")", 1)[1].split()[0] in "ZX"
            if not dead and os.readlink(f"/proc/{pid}/cwd").startswith(folder) and int(pid) != os.getpid():
                found.append(int(pid))
        except OSError:
            pass
    return found


def processes_end(folder):
    """With SIGTERM, because a gateway that is killed leaves its directory in /tmp."""
    for pid in processes_in(folder):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    until("the session's processes have ended", lambda: not processes_in(folder))


def matches(want, got):
    """True if this is the output that is wanted. A slow machine lists a record seconds after it was made: then
    "2s ago" stands in the column where "now" is wanted."""
    pattern = "".join(".*" if part == "..." else re.escape(part)
                      for part in re.split(r"(\.\.\.)", "\n".join(want)))
    late = re.sub(r"\b[0-9]+s ago\b", lambda age: "now".ljust(len(age[0])), got)
    return any(re.fullmatch(pattern, text.rstrip("\n"), re.S) for text in (got, late))


class Page:
    def __init__(self, installed, path, folder):
        self.installed, self.path, self.folder = installed, path, folder
        self.name, self.numbers = os.path.basename(path), {}
        with open(path, encoding="utf-8") as file:
            self.text = file.read()
        # Other programs on this machine may use these ports.
        self.ports = {name: str(free_port()) for name in ("8080", "9000", "9100")}

    def ported(self, text):
        return re.sub(r"(?<=127\.0\.0\.1:)(8080|9000|9100)\b", lambda at: self.ports[at.group()], text)

    def number(self, kind):
        self.numbers[kind] = self.numbers.get(kind, 0) + 1
        return self.numbers[kind]

    def run_console(self, text):
        for command, want in steps(self.ported(text).splitlines()):
            # Each gateway gets a store of its own, its default without IDEM_STORE. If the tests run as root, that
            # store belongs to its workers, which may not have ended before a later command of root's.
            command = re.sub(r"^idem gateway ", r"IDEM_STORE=lmdb:$PWD/gateway \g<0>", command)
            done = self.installed.sh(command, self.folder)
            report(done.returncode == 0 and matches(want, done.stdout),
                   f"{self.name}: {examples.name_of(command)}", "wanted:\n" + "\n".join(want) +
                   f"\ngot, with status {done.returncode}:\n{done.stdout}")

    def run_c(self, text):
        """The code compiles without a warning, and a whole program links; a session may run the program."""
        number = self.number("c")
        named = re.match(r"/\* (\S+\.\w+) \*/\n", text)
        name = named.group(1) if named else f"example{number}.c"
        file_write(self.folder + "/" + name, text)
        packages = "idem sqlite3" if "<sqlite3.h>" in text else "idem"
        part = "" if "int main" in text else "-c"
        done = self.installed.sh(f"cc -std=gnu99 -Wall -Wextra -Werror {part} -o example{number} {name} "
                                 f"$(pkg-config --cflags --libs {packages})", self.folder)
        report(done.returncode == 0, f"{self.name}: C example {number} compiles", done.stdout)
        if "int main" in text and '"lmdb:./' in text:
            done = self.installed.sh(f"mkdir run{number} && cd run{number} && ../example{number} && "
                                     f"../example{number}", self.folder)
            report(done.returncode == 0, f"{self.name}: C example {number} runs", done.stdout)

    def run_ini(self, text):
        number = self.number("ini")
        file_write(f"{self.folder}/settings{number}", text)
        named = [f"--policy '{name}' {key_of(section)}" for name, section in
                 re.findall(r"^\[policy (.+)\]$((?:\n[^\[].*)*)", text, re.M)]
        for policy in ["--key ini"] + named:
            done = self.installed.sh(f"idem run --config settings{number} {policy} -- true",
                                     self.folder)
            report(done.returncode == 0,
                   f"{self.name}: settings {number} are read {examples.name_of(policy)}".strip(), done.stdout)

    def whole_nginx(self, text):
        """A file of /etc/nginx as a configuration of its own, with the files that it names. tests/docs/paste_test.py starts it where it
        belongs."""
        if "secret_file=" in text:
            file_write(self.folder + "/idem.keys", f"shop-1 hmac-sha256 hex:{'5a' * 32}\n")
            os.chmod(self.folder + "/idem.keys", 0o600)
        own = text.replace("/etc/nginx/", self.folder + "/").replace("/var/log/nginx/", "logs/")
        if text.startswith("# /etc/nginx/conf.d/"):
            own = f"load_module modules/ngx_http_idem_module.so;\nevents {{\n}}\nhttp {{\n{own}}}\n"
        return own

    def run_nginx(self, text):
        number = self.number("nginx")
        named = re.match(r"# ([^/\s]+\.conf)\n", text)
        name = named.group(1) if named else f"nginx{number}.conf"
        text = self.ported(self.whole_nginx(text))
        if "access_log" not in text:  # nginx would open the system's log, which is root's
            text = re.sub(r"^http \{", r"\g<0> access_log off;", text, flags=re.M)
        file_write(f"{self.folder}/{name}", text)
        for made in ("logs", "modules"):
            os.makedirs(f"{self.folder}/{made}", exist_ok=True)
        done = self.installed.sh(
            f"cp {self.installed.libraries}/nginx/modules/*.so modules/ && nginx -t -e stderr "
            f"-p . -c {name}" + ("" if named else " -g 'pid nginx.pid;'"), self.folder)
        report(done.returncode == 0, f"{self.name}: nginx takes configuration {number}", done.stdout)

    def run_js(self, text):
        """The script is only parsed, because it needs a page."""
        number = self.number("js")
        file_write(f"{self.folder}/example{number}.mjs", text)
        imports = re.sub(r"'\.?/idem\.js'", f"'{os.path.abspath(sys.argv[1])}/web/idem.js'",
                         "".join(re.findall(r"^import .*\n", text, re.M)))
        file_write(f"{self.folder}/imports{number}.mjs", imports)
        done = self.installed.sh(f"node --check example{number}.mjs && node imports{number}.mjs",
                                 self.folder)
        report(imports != "" and done.returncode == 0, f"{self.name}: script {number} can be read",
               done.stdout)

    def stage(self, command):
        """Prepares the programs and the vanished run that a manual's command needs."""
        self.installed.sh("rm -rf store", self.folder)
        for program in re.findall(r"(?<= )\./[\w-]+", command):
            file_write(f"{self.folder}/{program}", "#!/bin/sh\nexit 0\n")
            os.chmod(f"{self.folder}/{program}", 0o755)
        if command.startswith(("idem list", "idem settle")):
            self.installed.sh("idem run --key order-4711 --lease 100ms -- sh -c 'kill -9 $PPID'; "
                              "while [ -z \"$(idem list --state uncertain)\" ]; do sleep .02; done", self.folder)

    def run_man(self, text):
        for line in text.splitlines():
            command = re.sub(r"^\$ |^(\S+ ){4}\S+ (?=idem )", "", line)
            self.stage(command)
            done = self.installed.sh(command, self.folder)
            report(done.returncode == 0, f"{self.name}: {examples.name_of(command)}",
                   f"status {done.returncode}\n{done.stdout}")

    def run(self):
        run = {"c": self.run_c, "ini": self.run_ini, "console": self.run_console,
               "man": self.run_man, "nginx": self.run_nginx, "js": self.run_js}
        for kind, text in examples.of_page(self.path, self.text):
            if kind in run:
                run[kind](text)
            elif kind not in examples.SHOWN and kind not in examples.ELSEWHERE:
                report(False, f"{self.name}: a fence of kind {kind}",
                       "examples are c, ini, nginx, js, console, sql or mysql")

    def leads(self, link, anchor):
        path = os.path.join(os.path.dirname(self.path), link) if link else self.path
        if not os.path.exists(path) or not anchor or not path.endswith(".md"):
            return os.path.exists(path)
        with open(path, encoding="utf-8") as file:
            return anchor in examples.anchors(file.read())

    def check_markdown(self):
        lost = [link + "#" + anchor for link, anchor in
                re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", examples.prose(self.text))
                if not self.leads(link, anchor)]
        report(not lost, f"{self.name}: its links lead somewhere", "\n".join(lost))
        hidden = examples.unfenced(self.text)
        report(not hidden, f"{self.name}: its examples are fenced", "\n".join(hidden))


# The attributes of an annotation that a reader of the page may know from elsewhere.
ATTRIBUTES = """prefix key duration removeKeyWhenFinished removeKeyWhenError message type scene
    uniqueKeyPrefix keyTimeout keyPrefix expireTime allowParam paramName tokenExpression
    return-cached-result max-retry-count retry-interval-ms sourceType""".split()


def check_annotations(installed, page):
    """Each attribute has a row, and each name in the row exists."""
    rows = [line.split("|")[1:-1] for line in page.text.split("## Behaviours")[0].splitlines()
            if line.startswith("| ") and not line.startswith("| there")]
    named = " ".join(row[0] for row in rows)
    lost = [name for name in ATTRIBUTES if not re.search(rf"`{name}( = [^`]*)?`", named)]
    report(not lost, f"{page.name}: it has every attribute", " ".join(lost))
    empty = [row[0] for row in rows if len(row) != 5 or not all(cell.strip(" –") for cell in row)]
    report(not empty, f"{page.name}: each has a directive, a flag, a field and a difference",
           "\n".join(empty))
    header = open(os.path.join(sys.argv[1], "include/idem.h"), encoding="utf-8").read()
    module = open(os.path.join(sys.argv[1], "docs/http.md"), encoding="utf-8").read()
    lost = []
    flags = installed.sh("for c in run gateway token consume; do idem help $c; done", page.folder).stdout
    for _, nginx, flag, c, _ in rows:
        lost += [name for name in re.findall(r"`(idem_?\w*)", nginx)
                 if not re.search(rf"`{name}\b", module)]
        lost += [name for name in re.findall(r"--[\w-]+", flag)
                 if not re.search(rf"{name}\b(?!-)", flags)]
        lost += [name for name in re.findall(r"IDEM_\w+|(?<=\.)[a-z]\w+|idem_\w+(?=\()", c)
                 if not re.search(rf"\b{name}\b", header)]
    report(not lost, f"{page.name}: what it names is there", " ".join(lost))


def check_manual(page):
    """A reader sees each example as it stands in the source: a macro line loses its quotation marks."""
    rendered = subprocess.run(["mandoc", "-T", "utf8", "-O", "width=200", page.path], stdout=subprocess.PIPE, text=True, check=True).stdout
    rendered = re.sub(r".\x08", "", rendered)  # bold and underlined characters
    blocks = re.findall(r"^\.Dl (.*?\n)|^\.Bd -literal.*?\n(.*?)^\.Ed$", page.text, re.S | re.M)
    lines = [line.strip() for single, block in blocks for line in examples.mdoc_plain(single or block).splitlines()]
    lost = [line for line in lines if line and line not in rendered]
    report(len(lines) > 3 and not lost, f"{page.name}: its examples are rendered as they are", "\n".join(lost))


def check_problems(page):
    """Each kind of refusal has a row, with its status."""
    source = open(os.path.join(sys.argv[1], "src/http/http_problem.c"), encoding="utf-8").read()
    kinds = re.findall(r'\{"([a-z-]+)", (\d+), "[^"]*", (true|false)\}', source)
    rows = re.findall(r"^\| `([a-z-]+)` \| (\d+) \| (yes|no) \|", page.text, re.M)
    report(len(kinds) > 10 and [(kind, status, "yes" if again == "true" else "no") for kind, status, again in kinds]
           == rows, f"{page.name}: it has every refusal, in their order", f"{kinds}\n{rows}")


@contextlib.contextmanager
def shop_of(page):
    """The shop and the gateway of `make run`, on the ports of the page, where README asks its reader to run them."""
    if not page.name.startswith("README") or "make run" not in page.text:
        yield
        return
    source, build = map(os.path.abspath, sys.argv[1:3])
    environment = {**page.installed.environment(page.folder), "RUN_ONCE": "0", "RUN_PORT": page.ports["8080"],
                   "RUN_SHOP_PORT": page.ports["9000"]}
    with open(page.folder + "/shop.log", "w", encoding="utf-8") as log:
        process = subprocess.Popen([source + "/examples/shop/run.sh", "idem", build + "/examples/shop/shop"], env=environment, cwd=page.folder,
                                   stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        until("the shop is there", lambda: "Ctrl-C" in open(page.folder + "/shop.log", encoding="utf-8").read())
        yield
    finally:
        process.terminate()
        process.wait()


def page_run(installed, path):
    with tempfile.TemporaryDirectory(prefix="idem-docs.") as folder:
        os.chmod(folder, 0o755)  # a gateway's workers run as another user than root
        page, before = Page(installed, path, folder), count
        with shop_of(page):
            page.run()
        if path.endswith(".md"):
            page.check_markdown()
            shown.Shown(installed, sys.argv[1], folder).check(page, report)
            facts.Facts(sys.argv[1], report).check(page)
        else:
            report(count > before, f"{page.name}: it has examples")
        if re.search(r"\.[0-9]$", path):
            check_manual(page)
        if page.name == "annotations.md":
            check_annotations(installed, page)
        if page.name == "problems.md":
            check_problems(page)
        processes_end(folder)


def main():
    with tempfile.TemporaryDirectory(prefix="idem-docs.") as root:
        os.chmod(root, 0o755)
        installed = installs.from_build(sys.argv[2], root)
        for path in sys.argv[3:]:
            page_run(installed, path)
    print(f"1..{count}")
    return failures != 0


sys.exit(main())
