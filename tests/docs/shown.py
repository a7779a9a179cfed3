"""Commands that a page shows without their output: ```sh fences, and commands within a sentence.

Each command of a fence begins with a word that is known here. The flags of `idem` are looked up in
its help, make's targets in the Makefile, and packages, units and examples must exist. Commands that
need no server also run: `idem run` and `idem list` in a store of the page's own, `idem sign` with the
secrets that the page has made, and `idem migrate --print`.
"""
import os
import re
import shlex

import examples

FLAG = re.compile(r"^  (?:(-[a-zA-Z]), )?(--[a-z0-9-]+)", re.M)
ENDS = {"|", ";", "&", "&&", "||", "(", ")"}
# Words of the shell and the system; `happened` is the reader's program, and configure nginx's.
FOREIGN = ("curl", "export", "grep", "install", "mkdir", "nginx", "openssl", "printf", "tail", "umask", "wc", "./configure", "./happened")


def words_of(text):
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    return list(lexer)


def commands(text):
    """Yields each simple command of a fence, as words, without its redirections."""
    for line in text.replace("\\\n", " ").splitlines():
        line = re.sub(r"^[\d*]+( +[\d*]+){4} +", "", line)  # of a crontab
        words = []
        for word in words_of(line) + [";"]:
            if word not in ENDS:
                words.append(word)
            elif words:
                at = next((at for at, one in enumerate(words) if one[0] in "<>"), None)
                yield words[:at]
                words = []


def in_sentences(text):
    """Yields `idem COMMAND ...` from the text; `idem MODE` is nginx's directive."""
    for span in re.findall(r"`(idem [^`]+)`", examples.prose(text)):
        words = span.split()
        if words[1].strip(";") not in ("off", "lock", "reject", "replay"):
            yield words


class Shown:
    def __init__(self, installed, source, folder):
        self.installed, self.source, self.folder, self.helps = installed, source, folder, {}

    def read(self, path):
        with open(os.path.join(self.source, path), encoding="utf-8") as file:
            return file.read()

    def help(self, command):
        if command not in self.helps:
            done = self.installed.sh(f"idem help {shlex.quote(command)}", self.folder)
            self.helps[command] = done.stdout if done.returncode == 0 else ""
        return self.helps[command]

    def idem(self, words):
        """Returns the faults of idem COMMAND --flag..., up to a lone --."""
        command, words = words[1], words[2:]
        known = self.help(command)
        if not known:
            return [f"there is no idem {command}"]
        flags = {flag for pair in FLAG.findall(known) for flag in pair}
        said = {word.split("=")[0] for word in words[:words.index("--") if "--" in words else None]
                if re.match(r"--?[a-z]", word, re.I)}
        wrong = [f"idem {command} does not know {flag}" for flag in sorted(said - flags)]
        under = re.match(r"usage: idem \w+ (\w+(?:\|\w+)+)", known)
        lost = set(words[0].split("|")) - set(under.group(1).split("|")) if under and words else ()
        return wrong + [f"there is no idem {command} {word}" for word in lost]

    def make(self, words):
        targets = re.findall(r"^([a-z-]+):", self.read("Makefile"), re.M) + ["modules"]  # nginx's
        return [f"there is no make {word}" for word in words[1:] if "=" not in word and word not in targets]

    def apt(self, words):
        """Idem's own packages are those of debian/control; others are Debian's nginx."""
        ours = re.findall(r"^Package: (\S+)", self.read("debian/control"), re.M)
        names = [re.sub(r"^\./dist/(.*)_\*\.deb$", r"\1", word) for word in words[2:]]
        return [f"no package {name}" for name in names if name not in ours + ["nginx", "nginx-light"]]

    def unit(self, words):
        units = [re.sub(r"@.*?(\.\w+)?$", r"@\1", word) for word in words if "@" in word]
        there = os.listdir(os.path.join(self.source, "contrib/systemd"))
        return [f"no unit {unit}" for unit in units
                if unit not in there and unit + ".service" not in there]

    def copy(self, words):
        name = re.sub("^/usr/share/doc/idem/examples/", "contrib/examples/", words[1])
        return [] if os.path.exists(os.path.join(self.source, name)) else [f"no example {words[1]}"]

    def wrong(self, words):
        known = {"idem": self.idem, "make": self.make, "apt-get": self.apt, "systemctl": self.unit,
                 "cp": self.copy}
        if words[0] in known:
            return known[words[0]](words)
        return [] if words[0] in FOREIGN else [f"{words[0]} is not known to {os.path.basename(__file__)}"]

    def runnable(self, words):
        """Returns the command with the page's own store, if it needs no server; otherwise None."""
        if words[0] != "idem" or words[1] not in ("run", "list", "sign", "migrate") or \
                (words[1] == "migrate" and "--print" not in words):
            return None
        command = " ".join(shlex.quote(word) for word in words)
        return command if words[1] == "migrate" else re.sub(r" --store \S+", "", command)

    def check(self, page, report):
        for kind, text in examples.of_page(page.path, page.text):
            for words in commands(text) if kind == "sh" else ():
                name = f"{page.name}: {examples.name_of(' '.join(words))}"
                wrong = self.wrong(words)
                report(not wrong, name + " is there", "\n".join(wrong))
                command = self.runnable(words)
                if command and not wrong:
                    page.stage(command)
                    done = self.installed.sh(command, self.folder)
                    report(done.returncode == 0, name + " runs",
                           f"status {done.returncode}\n{done.stdout}")
        wrong = [line for words in in_sentences(page.text) for line in self.idem(words)]
        report(not wrong, f"{page.name}: commands in its sentences have the flags they show",
               "\n".join(wrong))
