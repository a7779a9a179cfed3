#!/usr/bin/env python3
"""The installed files are hardened: the test checks the built files, and the flags with which they were compiled.
Prints TAP.

    hardening_test.py BUILD
"""
import contextlib
import json
import os
import shlex
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import hardening  # pylint: disable=wrong-import-position
import plain  # pylint: disable=wrong-import-position
from installed import from_build  # pylint: disable=wrong-import-position
from plain import check, test  # pylint: disable=wrong-import-position

BUILD = sys.argv.pop(1)
# One source of each installed part; the build decides whether the nginx module is one.
PARTS = {"the library": "src/core/claim.c", "idem": "src/cli/run/command_run.c", "the consumer": "src/queue/consumer.c",
         "its program": "src/cli/main.c", "the module": "src/nginx/ngx_http_idem_module.c"}


@contextlib.contextmanager
def made():
    with tempfile.TemporaryDirectory() as root:
        yield from_build(BUILD, root)


def is_code(path):
    with open(path, "rb") as file:
        return file.read(8)[:4] == b"\x7fELF" or path.endswith(".a")


def commands():
    with open(BUILD + "/compile_commands.json", encoding="utf-8") as file:
        return {os.path.normpath(os.path.join(row["directory"], row["file"])): row for row in json.load(file)}


def compiled(source):
    """Returns the words and the directory of its compilation; None if this build lacks the file."""
    for path, row in commands().items():
        if path.endswith("/" + source):
            words = shlex.split(row["command"])
            return [word for i, word in enumerate(words) if word not in ("-o", "-c", "-MD", "-MQ", "-MF")
                    and words[i - 1] not in ("-o", "-MQ", "-MF")], row["directory"]
    return None, None


@test
def every_file_with_code_lacks_nothing(installed):
    paths = [os.path.join(installed.destdir, name) for name in sorted(installed.files)]
    paths = [path for path in paths if not os.path.islink(path) and is_code(path)]
    names = {os.path.basename(path).split(".")[0] for path in paths}
    check({"idem", "libidem"} <= names, names)
    check(any(path.endswith(".a") for path in paths) and any(".so" in path for path in paths), paths)
    found = {os.path.basename(path): hardening.lacks(path) for path in paths}
    check(not any(found.values()), found)


@test
def every_part_is_compiled_with_the_third_level_of_checks(_):
    """The macro as the compiler sees it, whatever came before it on the command line."""
    for part, source in PARTS.items():
        words, folder = compiled(source)
        if words is None:
            check(part == "the module", part)
            continue
        level = plain.run(*words, "-E", "-dM", cwd=folder).split("#define __USE_FORTIFY_LEVEL ")[1].split("\n")[0]
        check(level == "3", f"{part}: {level}")


@test
def a_level_that_a_distribution_gives_is_raised_without_a_warning(_):
    words, folder = compiled(PARTS["the library"])
    flags = next(at for at, word in enumerate(words) if word.startswith("-"))  # before it the compiler, perhaps with ccache
    words.insert(flags, "-D_FORTIFY_SOURCE=2")
    printed = plain.run(*words, "-Werror", "-fsyntax-only", cwd=folder)
    check(printed == "", printed)
    printed = plain.run(*words, "-E", "-dM", cwd=folder)
    check("#define __USE_FORTIFY_LEVEL 3\n" in printed, "level 2")


@test
def without_optimisation_there_is_no_warning(_):
    words, folder = compiled(PARTS["the library"])
    printed = plain.run(*words, "-O0", "-Werror", "-fsyntax-only", cwd=folder)
    check(printed == "", printed)


@test
def every_source_of_ours_is_compiled_with_each_flag(_):
    """The machine code shows some of the flags only in functions that need them."""
    wanted = {"-fstack-protector-strong", "-fstack-clash-protection"} | \
        ({"-fcf-protection=full"} if hardening.X86 else set())
    bare = [path for path, row in commands().items() if "/src/" in path and wanted - set(shlex.split(row["command"]))]
    check(not bare, bare[:5])


plain.main(made)
