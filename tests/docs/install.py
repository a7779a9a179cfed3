"""`make install`, from a copy of the source into a folder of its own, as somebody who packages it
would do it: PREFIX is where it will live, DESTDIR where it is put meanwhile.
"""
import os
import re
import shutil
import subprocess

PREFIX = "/opt/idem"


def files_of(folder):
    return {os.path.relpath(os.path.join(at, name), folder)
            for at, _, names in os.walk(folder) for name in names}


class Installed:
    """What was installed, and where."""

    def __init__(self, source, root):
        self.copy, self.destdir = root + "/source", root + "/destdir"
        shutil.copytree(source, self.copy, symlinks=True,
                        ignore=shutil.ignore_patterns(".git", "build", "build-*"))
        self.before = files_of(self.copy)
        # Unoptimised: it is compiled for this test alone.
        env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
        self.made = subprocess.run(
            ["make", "install", "BUILD=" + root + "/build", "PREFIX=" + PREFIX,
             "DESTDIR=" + self.destdir], cwd=self.copy, env={**env, "CFLAGS": "-O0"},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.after = files_of(self.copy)
        self.prefix = self.destdir + PREFIX
        self.files = files_of(self.destdir)
        pc = [name for name in self.files if name.endswith("/pkgconfig/idem.pc")]
        self.libraries = os.path.join(self.destdir, os.path.dirname(os.path.dirname(pc[0]))) \
            if pc else self.prefix + "/lib"

    def environment(self, folder):
        """For somebody who has it installed, and works in `folder`."""
        env = {**os.environ, "HOME": folder, "IDEM_STORE": "lmdb:" + folder + "/store"}
        env["IDEM_AUDIT"] = folder + "/audit"
        env["IDEM_NGINX_MODULE"] = self.libraries + "/nginx/modules/ngx_http_idem_module.so"
        env["PATH"] = self.prefix + "/bin:" + env["PATH"]
        env["PKG_CONFIG_SYSROOT_DIR"] = self.destdir
        env["PKG_CONFIG_PATH"] = self.libraries + "/pkgconfig"
        env["LD_LIBRARY_PATH"] = self.libraries
        return env

    def sh(self, command, folder):
        return subprocess.run(["sh", "-c", command], cwd=folder, env=self.environment(folder),
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=60, text=True)

    def missing(self):
        libraries = os.path.relpath(self.libraries, self.destdir)
        wanted = [libraries + name for name in ("/libidem.so", "/libidem.so.0.1", "/libidem.a",
                                                "/pkgconfig/idem.pc")]
        wanted += [PREFIX[1:] + name for name in (
            "/include/idem.h", "/bin/idem", "/share/man/man1/idem.1", "/share/man/man3/libidem.3",
            "/share/man/man5/idem.conf.5", "/share/bash-completion/completions/idem",
            "/share/doc/idem/README.md", "/share/doc/idem/start.md", "/share/doc/idem/options.md",
            "/share/doc/idem/http.md", "/share/doc/idem/queue.md")]
        return [name for name in wanted if name not in self.files]

    def stray(self):
        """What is not where PREFIX says, or is nobody's business outside the project."""
        return [name for name in self.files
                if not name.startswith(PREFIX[1:] + "/") or "test" in os.path.basename(name) or
                (name.endswith(".h") and not name.endswith("/include/idem.h"))]


SMALL = """#include <idem.h>
#include <stdio.h>
#include <string.h>
int main(void) {
    puts(idem_version());
    return strcmp(idem_version(), IDEM_VERSION);
}
"""


def readme_libraries(installed):
    """What README.md wants in LD_LIBRARY_PATH where ldconfig does not look; nothing if it does not
    say."""
    with open(installed.copy + "/README.md", encoding="utf-8") as file:
        said = re.search(r"`(pkg-config [^`]+)`[^.]*`ldconfig`[^.]*`LD_LIBRARY_PATH`",
                         file.read().replace("/etc/ld.so.conf.d", ""))
    return said.group(1) if said else "echo"


def check(installed, folder, report):
    report(installed.made.returncode == 0, "make install succeeds", installed.made.stdout)
    if installed.made.returncode != 0:
        return False
    missing = installed.missing()
    report(not missing, "make install: header, libraries, manuals, completion and idem are there",
           "\n".join(missing))
    stray = installed.stray()
    report(not stray, "make install puts nothing anywhere else", "\n".join(stray))
    report(installed.before == installed.after, "make install writes nothing beside its sources",
           "\n".join(sorted(installed.after - installed.before)))
    with open(folder + "/small.c", "w", encoding="utf-8") as file:
        file.write(SMALL)
    shared = installed.sh("cc -o small small.c $(pkg-config --cflags --libs idem) && ./small && "
                          "readelf -d small | grep -F libidem.so.0.1", folder)
    report(shared.returncode == 0, "make install: a program links with what pkg-config says",
           shared.stdout)
    found = installed.sh(
        "env -u LD_LIBRARY_PATH idem --version && ! env -u LD_LIBRARY_PATH ./small && "
        f"LD_LIBRARY_PATH=$({readme_libraries(installed)}) ./small", folder)
    report(found.returncode == 0, "make install: a program finds the library as README.md says",
           found.stdout)
    static = installed.sh(
        "cc -o small small.c $(pkg-config --cflags idem) "
        "$(pkg-config --static --libs idem | sed 's/-lidem/-l:libidem.a/') && "
        "! readelf -d small | grep -F libidem.so && env -u LD_LIBRARY_PATH ./small", folder)
    report(static.returncode == 0, "make install: a program links with the static library",
           static.stdout)
    version = installed.sh("[ \"idem $(pkg-config --modversion idem)\" = \"$(idem --version)\" ]",
                           folder)
    report(version.returncode == 0, "make install: idem and pkg-config say the same version",
           version.stdout)
    return True
