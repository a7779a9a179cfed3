#!/usr/bin/env python3
"""idem_js: the browser's half, served by the gateway as it stands in web/."""
import hashlib
import os
import sys

sys.dont_write_bytecode = True

from rig import *
from tap import *

CONF = "location = /idem.js { idem_js; } location = /guarded.js { idem replay; idem_prefix js:; idem_js; }"
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../web/idem.js"), "rb") as source:
    TEXT = source.read()


def get(rig, path="/idem.js", method="GET", headers=()):
    return rig.post(path, method=method, body=b"", headers=headers)


@test
def it_is_the_file_that_the_module_was_built_with(rig):
    for path in ("/idem.js", "/guarded.js"):
        answer = status(get(rig, path), 200)
        eq(answer.body, TEXT)
        eq((answer.h("Content-Type"), answer.h("Cache-Control")), ("text/javascript; charset=utf-8", "no-cache"))


@test
def who_has_it_is_told_so(rig):
    etag = get(rig).h("ETag")
    eq(etag, f'"{hashlib.sha256(TEXT).hexdigest()[:16]}"')  # another text has another
    answer = status(get(rig, headers=[("If-None-Match", etag)]), 304)
    eq(answer.body, b"")
    status(get(rig, headers=[("If-None-Match", '"other"')]), 200)


@test
def head_has_the_length_and_other_methods_are_refused(rig):
    answer = status(get(rig, method="HEAD"), 200)
    eq(int(answer.h("Content-Length")), len(TEXT))
    answer = status(rig.post("/idem.js"), 405)
    eq(answer.h("Allow"), "GET, HEAD")


if __name__ == "__main__":
    main(CONF)
