"""A small Debian in a directory, made by debootstrap from this machine's own sources of packages.

    with root.make(folder) as system: system.sh("apt-get install ...")

Needs root, for chroot and mount. /proc is mounted for each command alone, in a namespace that ends
with it. The installation of a package starts no service in there.
"""
import contextlib
import os
import re
import shutil
import subprocess

import plain

ENTER = 'mount -t proc proc "$1/proc" && exec chroot "$1" /usr/bin/env -i ' \
        'PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 ' \
        'DEBIAN_FRONTEND=noninteractive "$PROXY" /bin/sh -ec "$2"'


def of_apt(name):
    """Returns a setting of this machine's apt, or ""."""
    said = plain.run("apt-config", "dump", "--format", "%v", name, status=None).strip()
    return "" if said == "DIRECT" else said


def mirror():
    """Returns (codename, address) of the Debian from which this machine is installed."""
    with open("/etc/os-release", encoding="utf-8") as file:
        said = re.search(r"^VERSION_CODENAME=(\w+)", file.read(), re.M)
    if not said or not shutil.which("apt-get"):
        raise plain.Skip("this is no Debian")
    rows = plain.run("apt-get", "indextargets", "--format", "$(ORIGIN) $(LABEL) $(RELEASE) $(REPO_URI)",
                     "Created-By: Packages").split("\n")
    for row in rows:
        word = row.split(" ")
        if word[:3] == ["Debian", "Debian", said.group(1)]:
            return said.group(1), word[3]
    raise plain.Skip("apt has no lists of Debian's packages (apt-get update)")


class System:
    def __init__(self, folder):
        self.folder = folder
        proxy = of_apt("Acquire::http::Proxy")
        self.env = {**os.environ, "PROXY": "http_proxy=" + proxy if proxy else "NO_PROXY_SAID=1"}

    def command(self, script, alone=False):
        """`alone`: with a loopback of its own, and with processes that end with the script."""
        spaces = ["--net", "--pid", "--fork", "--kill-child"] if alone else []
        return ["unshare", "--mount", *spaces, "sh", "-c", ("ip link set lo up && " if alone else "") + ENTER, "sh", self.folder, script]

    def sh(self, script, status=0, alone=False):
        """Runs a shell script in the system; returns its output."""
        return plain.run(*self.command(script, alone), status=status, env=self.env)

    def start(self, script, **options):
        """Starts a process in the system: the script becomes it with `exec`."""
        return subprocess.Popen(self.command(script), env=self.env, stdin=subprocess.DEVNULL, **options)

    def path(self, name):
        return self.folder + name

    def write(self, name, text, mode=0o644):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(self.path(name), mode)

    def find(self, part):
        """Returns the files and directories with this in their name, without the kernel's."""
        return set(self.sh(f"find / -xdev -path /proc -prune -o -name '*{part}*' -print").split())


def configure(system):
    """Gives the system this machine's apt settings, and prevents services from starting. The system is thrown away, so
    it needs no fsync."""
    os.unlink(system.path("/etc/apt/sources.list"))
    system.write("/etc/dpkg/dpkg.cfg.d/quick", "force-unsafe-io\n")
    for name in ("/etc/apt", "/usr/share/keyrings"):
        shutil.copytree(name, system.path(name), symlinks=False, dirs_exist_ok=True)
    for name in ("/etc/resolv.conf", "/etc/hosts"):
        shutil.copyfile(name, system.path(name))
    system.write("/usr/sbin/policy-rc.d", "#!/bin/sh\nexit 101\n", 0o755)
    system.sh("apt-get update || true")  # some of this machine's sources may not be reachable from there


@contextlib.contextmanager
def make(folder):
    if os.geteuid() != 0:
        raise plain.Skip("only root can make a Debian in a directory")
    if not shutil.which("debootstrap"):
        raise plain.Skip("debootstrap is not installed")
    name, address = mirror()
    proxy = of_apt("Acquire::http::Proxy")
    plain.run("debootstrap", "--variant=minbase", "--include=ca-certificates", name, folder, address,
              env={**os.environ, **({"http_proxy": proxy} if proxy else {})})
    system = System(folder)
    configure(system)
    try:
        yield system
    finally:
        shutil.rmtree(folder, ignore_errors=True)
