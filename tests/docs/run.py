#!/usr/bin/env python3
"""Runs what the documents show, in a folder of its own, one page after the other.

A fence ```c whose first line is /* NAME */ is a file of that name. A fence ```console is a
session: each line that begins with `$ ` is run by sh, and what follows must be its output, where
`...` in a line stands for anything. The output of stdout and stderr is compared together. What is
run is what `meson install` installs, into a folder of its own.

    run.py BUILD PAGE...
"""
import os
import re
import subprocess
import sys
import tempfile

build, pages = os.path.abspath(sys.argv[1]), sys.argv[2:]
count = failures = 0


def report(ok, name, why=""):
    global count, failures
    count += 1
    failures += not ok
    for line in why.splitlines():
        print("# " + line)
    print(f"{'ok' if ok else 'not ok'} {count} - {name}", flush=True)


def environment(folder):
    env = dict(os.environ)
    env["PATH"] = installed + prefix + "/bin:" + env["PATH"]
    env["PKG_CONFIG_SYSROOT_DIR"] = installed
    env["PKG_CONFIG_PATH"] = libraries + "/pkgconfig"
    env["LD_LIBRARY_PATH"] = libraries
    env["IDEM_STORE"] = "lmdb:" + folder + "/store"
    env["HOME"] = folder
    return env


def steps(session):
    """Pairs of a command and the lines that must follow."""
    pairs = []
    for line in session:
        if line.startswith("$ "):
            pairs.append((line[2:], []))
        else:
            pairs[-1][1].append(line)
    return pairs


def matches(want, got):
    pattern = "".join(".*" if part == "..." else re.escape(part)
                      for part in re.split(r"(\.\.\.)", "\n".join(want)))
    return re.fullmatch(pattern, got.rstrip("\n"), re.S) is not None


def run_session(page, session, folder):
    for command, want in steps(session):
        done = subprocess.run(["sh", "-c", command], cwd=folder, env=environment(folder),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60,
                              stdin=subprocess.DEVNULL, text=True)
        ok = matches(want, done.stdout)
        name = re.sub(r"[^A-Za-z0-9 ._/-]", " ", command)[:70]
        report(ok, f"{page}: {name}",
               "" if ok else f"wanted:\n{chr(10).join(want)}\ngot:\n{done.stdout}")


def fences(text):
    for found in re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.S | re.M):
        yield found.group(1), found.group(2)


root = tempfile.TemporaryDirectory(prefix="idem-docs.")
installed = root.name
subprocess.run(["meson", "install", "-C", build, "--no-rebuild", "--quiet", "--destdir", installed],
               check=True, stdout=subprocess.DEVNULL)
header = subprocess.run(["find", installed, "-name", "idem.h"], capture_output=True, text=True,
                        check=True).stdout.strip()
prefix = header[len(installed):-len("/include/idem.h")]
pkgconfig = subprocess.run(["find", installed, "-name", "idem.pc"], capture_output=True, text=True,
                           check=True).stdout.strip()
libraries = os.path.dirname(os.path.dirname(pkgconfig))

for path in pages:
    page = os.path.basename(path)
    with tempfile.TemporaryDirectory(prefix="idem-docs.") as folder:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        for kind, body in fences(text):
            name = re.match(r"/\* (\S+\.\w+) \*/\n", body)
            if kind in ("c", "ini") and name:
                with open(folder + "/" + name.group(1), "w", encoding="utf-8") as file:
                    file.write(body)
            elif kind == "console":
                run_session(page, body.splitlines(), folder)
        lost = [link for link in re.findall(r"\]\(([^)#:]+)[^)]*\)", text)
                if not os.path.exists(os.path.join(os.path.dirname(path), link))]
        report(not lost, f"{page}: its links lead somewhere", "\n".join(lost))
print(f"1..{count}")
sys.exit(failures != 0)
