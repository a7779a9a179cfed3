"""Finds the examples of a page: fences of Markdown, EXAMPLES of a manual, the comment that opens
the header.

An example is a kind and its text. The kinds are c, ini, nginx, js and console, and man for commands of
which no output is shown.
"""
import re

ELSEWHERE = ("sql", "mysql")  # tests/tx/docs_test.py runs these
SHOWN = ("", "sh")  # drawings; and examples that shown.py checks, but mostly does not run


def name_of(text):
    """Returns a name for a line of TAP, where # has a meaning."""
    return re.sub(r"[^A-Za-z0-9 ._/-]", " ", text)[:70]


def of_markdown(text):
    for found in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.S | re.M):
        yield found.group(1), found.group(2)


def prose(text):
    """Returns everything but the fences."""
    return re.sub(r"^```\w*\n.*?^```$", "", text, flags=re.S | re.M)


def unfenced(text):
    """Returns examples that the other functions would miss: indented instead of fenced."""
    return re.findall(r"(?<=\n\n)    \S.*", prose(text))


def anchors(text):
    """Yields the targets of links (after #), as GitHub makes them: a repeated title gets a number."""
    seen = {}
    for title in re.findall(r"^#+ (.*)$", prose(text), re.M):
        name = re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
        seen[name] = seen.get(name, 0) + 1
        yield name if seen[name] == 1 else f"{name}-{seen[name] - 1}"


def mdoc_plain(text):
    for escape, plain in (("\\-", "-"), ("\\&", ""), ("\\(dq", '"'), ("\\e", "\\")):
        text = text.replace(escape, plain)
    return text


def mdoc_kind(text):
    if text.startswith("#include"):
        return "c"
    return "ini" if text.startswith("[") else "man"


def of_mdoc(text):
    section = re.search(r"^\.Sh EXAMPLES\n(.*?)(?=^\.Sh |\Z)", text, re.S | re.M)
    found = r"^\.Dl (.*?\n)|^\.Bd -literal.*?\n(.*?)^\.Ed$"
    for line, block in re.findall(found, section.group(1) if section else "", re.S | re.M):
        example = mdoc_plain(line or block)
        yield mdoc_kind(example), example


# The code around the example of the header, which the reader has to write.
AROUND = """#include <err.h>
#include <idem.h>

%s
static enum idem_result place_order(struct idem_run *run, void *order) {
    (void)run;
    (void)order;
    return IDEM_RESULT_DONE;
}

int main(void) {
    void *order = NULL;
%s
    return 0;
}
"""


def of_header(text):
    comment = text[:text.index("*/")]
    code = "".join(line[len(" *     "):] + "\n" if line != " *" else "\n"
                   for line in comment.splitlines() if re.match(r" \*(     .*)?$", line)).strip()
    policy, body = code.split("};\n", 1)
    yield "c", AROUND % (policy + "};\n", body.replace("{ ... }", "{ default: break; }"))


def of_page(path, text):
    if path.endswith(".md"):
        return of_markdown(text)
    return of_header(text) if path.endswith(".h") else of_mdoc(text)
