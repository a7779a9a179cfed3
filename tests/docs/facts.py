"""Numbers and names that pages repeat from the source: each is compared with its source."""
import os
import re

import examples

# Rows of run.md, each with its exit status.
EXITS = {"somebody runs it now": "CLI_BUSY", "nobody knows whether it happened": "CLI_UNCERTAIN",
         "the key was used for another command line": "CLI_MISMATCH", "it failed for good": "CLI_DEAD",
         "the store cannot be reached": "CLI_STORE"}
HEADER = re.compile(r"\bIdem(?:potency|potent)?-[A-Z][\w-]*")


class Facts:
    def __init__(self, source, report):
        self.source, self.report = source, report

    def read(self, path):
        with open(os.path.join(self.source, path), encoding="utf-8") as file:
            return file.read()

    def equal(self, name, said, meant):
        self.report(said == meant, name, f"it says {said}\nand there is {meant}")

    def exits(self, page):
        codes = dict(re.findall(r"(CLI_\w+) = (\d+)", self.read("src/cli/cli.h")))
        rows = dict(re.findall(r"^\| (?:refused: )?([^|]*?) \| (\d+)\b", page.text, re.M))
        rows.pop("done before, mode reject", None)
        self.equal(f"{page.name}: its exit statuses are those of idem run", rows,
                   {row: codes[code] for row, code in EXITS.items()})

    def release(self, page):
        source = self.read("src/nginx/ngx_http_idem_conf.c")
        meant = re.search(r"default_release\[\] = \{(.*?)\}", source, re.S).group(1)
        said = re.search(r"give the key back; default ([\d ]+),", page.text)
        self.equal(f"{page.name}: the statuses that give a key back are the module's",
                   said and said.group(1).split(), re.findall(r"\d+", meant))

    def refusals(self, page):
        meant = re.findall(r'\{"([a-z-]+)", (\d+), "', self.read("src/http/http_problem.c"))
        rows = re.findall(r"^\| (`urn:idem:[^|]*) \| (\d+) \|", page.text, re.M)
        said = [(kind, status) for row, status in rows for kind in re.findall(r"([a-z-]+)`", row)]
        self.equal(f"{page.name}: it has every refusal once, with its status", sorted(said), sorted(meant))

    def http(self, page):
        self.release(page)
        self.refusals(page)

    def room(self, page):
        source = self.read("src/metric/metric_board.h")
        meant = tuple(int(re.search(rf"#define {name} (\d+)", source).group(1)) - 1
                      for name in ("BOARD_ROUTES", "BOARD_STORES"))  # the last one stands for all others
        said = re.search(r"room for (\d+) routes and (\d+) stores", page.text)
        self.equal(f"{page.name}: there is room for as much as it says",
                   said and tuple(map(int, said.groups())), meant)

    def packages(self, page):
        control = self.read("debian/control")
        table = page.text.split("| package |")[1].split("\n\n")[0]
        said = [name for row in re.findall(r"^\| (`.*?) \|", table, re.M)
                for name in re.findall(r"`([^`]+)`", row)]
        self.equal(f"{page.name}: its packages are those of debian/control", sorted(said),
                   sorted(re.findall(r"^Package: (\S+)", control, re.M)))
        needed = re.findall(r"`((?:lib\S+|zlib\S+|nginx)-dev)`", page.text)
        lost = [name for name in needed if not re.search(rf"^ ?(Package: )?{re.escape(name)}\b",
                                                         control, re.M)]
        self.report(needed and not lost, f"{page.name}: what it is built with is in debian/control",
                    "\n".join(lost))

    def translation(self, page):
        """The page has the examples of README.md, in the same order; text may differ."""
        first = self.read("README.md")
        kinds = [[kind for kind, _ in examples.of_markdown(text)] for text in (page.text, first)]
        self.equal(f"{page.name}: it has the examples of README.md", *kinds)
        code = [[re.sub(r"\s*(#|--|/\*) .*", "", text) for kind, text in
                 examples.of_markdown(whole) if kind in ("sh", "sql", "c", "nginx")]
                for whole in (page.text, first)]
        self.equal(f"{page.name}: their code is README.md's", *code)
        names = HEADER.findall(first + self.read("docs/choose.md"))
        lost = sorted(set(HEADER.findall(page.text)) - set(names))
        self.report(not lost, f"{page.name}: its headers are those of README.md and choose.md",
                    "\n".join(lost))
        links = [set(re.findall(r"\]\((docs/[^)]+|[^):#]+)\)", text)) for text in (page.text, first)]
        lost = sorted(links[1] - links[0] - {page.name})
        self.report(not lost, f"{page.name}: it leads wherever README.md does", "\n".join(lost))

    def measured(self, page):
        """The figures are those of benchmarks.md."""
        table = page.text.split("| operations a second |")[1].split("\n\n")[0]
        said = re.findall(r"\d+(?:[.,]\d+)+", table)
        there = re.findall(r"\d+(?:\.\d+)?", self.read("docs/benchmarks.md").replace(",", ""))
        lost = [figure for figure in said if figure.replace(",", "") not in there]
        self.report(len(said) > 20 and not lost, f"{page.name}: its figures are those of benchmarks.md",
                    "\n".join(lost))

    def headers(self, page):
        """Each header named Idem... occurs in the source."""
        if not hasattr(self, "known"):
            self.known = set()
            for folder in ("src", "web"):
                for at, _, names in os.walk(os.path.join(self.source, folder)):
                    for name in names:
                        if name.endswith((".c", ".h", ".js")):
                            self.known |= set(HEADER.findall(self.read(os.path.join(at, name))))
        lost = sorted(set(HEADER.findall(page.text)) - self.known)
        self.report(not lost, f"{page.name}: its headers are there", "\n".join(lost))

    def defines(self, file, name):
        """True if a program of the tests has a test of that name."""
        path = os.path.join(self.source, "tests", file)
        if not os.path.exists(path):
            return False
        forms = (rf"^(?:TEST(?:_IN|_ALONE)?|CONTRACT)\({name}\b", rf"^@\w+.*\n(?:@.*\n)*def {name}\(", rf"^test\(async function {name}\(",
                 rf'^report \$\? "{name}"$')
        return any(re.search(form, self.read(path), re.M) for form in forms)

    def promises(self, page):
        """Each promise has a test, and each test that the page names exists."""
        rows = [row for table in re.findall(r"^\| promise \|.*\n\|[-|]+\n((?:\|.*\n)+)", page.text, re.M)
                for row in table.splitlines()]
        bare = [row for row in rows if not re.search(r"\| `[\w/.]+:\w+`(?:, `[\w/.]+:\w+`)* \|$", row)]
        self.report(len(rows) > 40 and not bare, f"{page.name}: each promise has a test", "\n".join(bare))
        lost = [f"{file}:{name}" for row in rows for file, name in re.findall(r"`([\w/.]+):(\w+)`", row.rsplit("|", 2)[1])
                if not self.defines(file, name)]
        self.report(not lost, f"{page.name}: each test that it names is there", "\n".join(lost))

    def check(self, page):
        of = {"run.md": self.exits, "http.md": self.http, "metrics.md": self.room,
              "packages.md": self.packages, "scaling.md": self.measured, "security.md": self.promises,
              "README.zh-CN.md": self.translation}
        if page.name in of:
            of[page.name](page)
        self.headers(page)
