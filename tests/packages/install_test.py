#!/usr/bin/env python3
"""`make install`, from a copy of the source into a directory of its own, like a packager: PREFIX is the final place,
DESTDIR the temporary one. Prints TAP.

    install_test.py SOURCE
"""
import contextlib
import os
import re
import shutil
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import plain  # pylint: disable=wrong-import-position
from installed import Installed, files_of  # pylint: disable=wrong-import-position
from plain import check, test  # pylint: disable=wrong-import-position

SOURCE = sys.argv.pop(1)
PREFIX = "/opt/idem"
SMALL = """#include <idem.h>
#include <stdio.h>
#include <string.h>
int main(void) {
    puts(idem_version());
    return strcmp(idem_version(), IDEM_VERSION);
}
"""


class Made:
    """The result of `make install` in a copy of the source."""

    def __init__(self, root):
        self.folder, copy, destdir = root + "/work", root + "/source", root + "/destdir"
        os.mkdir(self.folder)
        shutil.copytree(SOURCE, copy, symlinks=True, ignore=shutil.ignore_patterns(".git", "build", "build-*"))
        before = files_of(copy)
        env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
        # Optimised little, because only this test uses it.
        plain.run("make", "install", f"BUILD={root}/build", "PREFIX=" + PREFIX, "DESTDIR=" + destdir, cwd=copy,
                  env={**env, "CFLAGS": "-O0 -g0", "CC_LD": "mold"})
        self.beside = files_of(copy) - before
        self.installed = Installed(destdir, PREFIX)
        with open(self.folder + "/small.c", "w", encoding="utf-8") as file:
            file.write(SMALL)

    def sh(self, command):
        done = self.installed.sh(command, self.folder)
        check(done.returncode == 0, done.stdout)


@contextlib.contextmanager
def make():
    with tempfile.TemporaryDirectory() as root:
        yield Made(root)


@test
def header_libraries_manuals_completion_and_idem_are_there(made):
    libraries = os.path.relpath(made.installed.libraries, made.installed.destdir)
    wanted = [libraries + name for name in ("/libidem.so", "/libidem.so.0.1", "/libidem.a", "/pkgconfig/idem.pc")]
    wanted += [PREFIX[1:] + name for name in (
        "/include/idem.h", "/bin/idem", "/share/man/man1/idem.1", "/share/man/man3/libidem.3",
        "/share/man/man5/idem.conf.5", "/share/bash-completion/completions/idem", "/share/doc/idem/README.md",
        "/share/doc/idem/start.md", "/share/doc/idem/options.md", "/share/doc/idem/http.md", "/share/doc/idem/queue.md")]
    lost = [name for name in wanted if name not in made.installed.files]
    check(not lost, lost)


@test
def nothing_is_put_anywhere_else(made):
    stray = [name for name in made.installed.files
             if not name.startswith(PREFIX[1:] + "/") or "test" in os.path.basename(name) or
             (name.endswith(".h") and not name.endswith("/include/idem.h"))]
    check(not stray, stray)


@test
def nothing_is_written_beside_the_sources(made):
    check(not made.beside, sorted(made.beside))


@test
def a_program_links_with_what_pkg_config_says(made):
    made.sh("cc -o small small.c $(pkg-config --cflags --libs idem) && ./small && "
            "readelf -d small | grep -F libidem.so.0.1")


def documented_libraries():
    """Returns the LD_LIBRARY_PATH that packages.md recommends for systems where ldconfig does not search."""
    with open(SOURCE + "/docs/packages.md", encoding="utf-8") as file:
        said = re.search(r"`(pkg-config [^`]+)`[^.]*`ldconfig`[^.]*`LD_LIBRARY_PATH`",
                         file.read().replace("/etc/ld.so.conf.d", ""))
    check(said, "packages.md does not name it")
    return said.group(1)


@test
def a_program_finds_the_library_as_packages_md_says(made):
    made.sh("cc -o small small.c $(pkg-config --cflags --libs idem) && env -u LD_LIBRARY_PATH idem --version && "
            f"! env -u LD_LIBRARY_PATH ./small && LD_LIBRARY_PATH=$({documented_libraries()}) ./small")


@test
def a_program_links_with_the_static_library(made):
    made.sh("cc -o small small.c $(pkg-config --cflags idem) "
            "$(pkg-config --static --libs idem | sed 's/-lidem/-l:libidem.a/') && "
            "! readelf -d small | grep -F libidem.so && env -u LD_LIBRARY_PATH ./small")


@test
def idem_and_pkg_config_say_the_same_version(made):
    made.sh('[ "idem $(pkg-config --modversion idem)" = "$(idem --version)" ]')


plain.main(make)
