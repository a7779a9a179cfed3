"""The hardening of a built file, read from the file itself with readelf."""
import os
import platform
import re
import subprocess

X86 = platform.machine() == "x86_64"
ENDBR = bytes.fromhex("f30f1efa")    # the target of an indirect branch (-fcf-protection)
PROBE = bytes.fromhex("48830c2400")  # orq $0,(%rsp): probes a page of a large frame (-fstack-clash-protection)
CANARY = re.compile(rb"\x64\x48.[\x04\x0c\x14\x1c\x24\x2c\x34\x3c]\x25\x28\0\0\0", re.S)  # %fs:0x28 (-fstack-protector)
OF_OTHERS = 100                      # more than the compiler's own files and hiredis contain (13)


def readelf(*words):
    return subprocess.run(["readelf", "-W", *words], check=True, stdout=subprocess.PIPE, text=True).stdout


def code(path):
    """Returns the machine code of a file, or of the only object in an archive."""
    where = re.search(r"\] \.text +PROGBITS +\w+ (\w+) (\w+)", readelf("-S", path))
    with open(path, "rb") as file:
        data = file.read()
    begin = data.index(b"\x7fELF") + int(where[1], 16)
    return data[begin:begin + int(where[2], 16)]


def lacks_code(path, fortified):
    """Returns the protections of the compiler that the file lacks."""
    names = set(re.findall(r" UND (\w+)", readelf("-s", path)))
    wanted = {"__stack_chk_fail is not called (-fstack-protector-strong)": "__stack_chk_fail" in names}
    if fortified:
        wanted["no checked function is called (_FORTIFY_SOURCE)"] = \
            {"__memcpy_chk", "__snprintf_chk"} <= names
    if X86:
        text = code(path)
        wanted["functions do not begin with endbr64 (-fcf-protection)"] = text.count(ENDBR) > OF_OTHERS
        wanted["functions have no canary (-fstack-protector-strong)"] = len(CANARY.findall(text)) > OF_OTHERS
        wanted["large frames are not probed (-fstack-clash-protection)"] = PROBE in text
    return [what for what, there in wanted.items() if not there]


def is_marked(path):
    """Returns true if the file is marked for IBT and SHSTK; of an archive, each object."""
    notes = [part for part in readelf("-n", path).split("\nFile: ") if part.strip()]
    return bool(notes) and all("x86 feature: IBT, SHSTK" in part for part in notes)


def can_be_marked():
    """A linker keeps the mark only if every file has it: Debian 12's C runtime and hiredis do not."""
    paths = [subprocess.run(["cc", "-print-file-name=" + name], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
             for name in ("Scrt1.o", "crti.o", "libhiredis.a")]
    return all(os.path.exists(path) and is_marked(path) for path in paths)


def lacks_link(path, program):
    """Returns the protections of the linker that the file lacks."""
    segments, dynamic = readelf("-l", path), readelf("-d", path)
    stack = re.search(r"GNU_STACK(?: +0x\w+){5} (.{3})", segments)
    wanted = {
        "no GNU_RELRO": "GNU_RELRO" in segments,
        "not bound at the start (-z now)": "BIND_NOW" in dynamic and re.search(r"FLAGS_1\).*\bNOW\b", dynamic),
        "an executable stack": stack and "E" not in stack[1],
        "a segment that is written and run": not re.search(r"LOAD .* RWE ", segments),
    }
    if X86 and can_be_marked():
        wanted["no mark of control-flow protection"] = is_marked(path)
    if program:
        wanted["not position-independent"] = "DYN" in readelf("-h", path) and re.search(r"FLAGS_1\).*\bPIE\b", dynamic)
    return [what for what, there in wanted.items() if not there]


def lacks(path, fortified=True):
    """Returns the protections that a program, a library, a module or an archive lacks, in words."""
    if path.endswith(".a"):
        sections = readelf("-S", path)
        stack = re.search(r"\.note\.GNU-stack +PROGBITS(?: +\w+){4} +(.*)", sections)
        return lacks_code(path, fortified) + ([] if stack and "X" not in stack[1].split("  ")[0] else ["an executable stack"])
    return lacks_code(path, fortified) + lacks_link(path, program=".so" not in path)
