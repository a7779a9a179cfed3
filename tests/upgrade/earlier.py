"""The programs of the release before this one, built from the repository's own history: of the commit named in the
file `previous`. Built once, unoptimised, in a directory of the build.
"""
import fcntl
import os
import shutil
import subprocess
import tarfile

import plain

HERE = os.path.dirname(os.path.abspath(__file__))
TARGETS = ["src/cli/idem", "src/http/ngx_http_idem_module.so"]


def commit():
    with open(HERE + "/previous", encoding="ascii") as file:
        return file.read().strip()


def unpack(source, name, folder):
    known = subprocess.run(["git", "-C", source, "cat-file", "-e", name + "^{commit}"], stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, check=False).returncode == 0
    if not known:
        raise plain.Skip(f"the repository's history does not go back to {name[:12]}")
    with subprocess.Popen(["git", "-C", source, "archive", name], stdout=subprocess.PIPE) as archive:
        with tarfile.open(fileobj=archive.stdout, mode="r|") as tar:
            tar.extractall(folder)


def build(source, folder):
    """Builds idem, and the module if this build has one; returns the directory."""
    if not shutil.which("git"):
        raise plain.Skip("there is no git to ask for the release before this one")
    name = commit()
    place = os.path.join(folder, name[:12])
    os.makedirs(place, exist_ok=True)
    with open(place + "/lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(place + "/built"):
            for part in ("/source", "/build"):
                shutil.rmtree(place + part, ignore_errors=True)
            unpack(source, name, place + "/source")
            plain.run("meson", "setup", place + "/build", place + "/source", "--buildtype=plain",
                      env={**os.environ, "CC": "gcc", "CC_LD": "mold", "CFLAGS": "-O0 -g0"})
            there = plain.run("ninja", "-C", place + "/build", "-t", "targets", "all")
            plain.run("ninja", "-C", place + "/build", *(t for t in TARGETS if f"\n{t}:" in "\n" + there))
            with open(place + "/built", "w", encoding="ascii"):
                pass
    return place + "/build/src/cli/idem"
