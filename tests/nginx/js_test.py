#!/usr/bin/env python3
"""idem_js: the browser's half, served by the gateway byte for byte as in web/."""
import hashlib
import os
import sys

sys.dont_write_bytecode = True

from rig import *
from tap import *

CONF = ("location = /idem.js { idem_js; } location = /idem-sign.js { idem_js sign; }"
        " location = /guarded.js { idem replay; idem_prefix js:; idem_js; }")
WEB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../web")
TEXTS = {}
for name in ("idem.js", "idem-sign.js"):
    with open(os.path.join(WEB, name), "rb") as source:
        TEXTS["/" + name] = source.read()


def get(rig, path="/idem.js", method="GET", headers=()):
    return rig.post(path, method=method, body=b"", headers=headers)


@test
def it_is_the_file_that_the_module_was_built_with(rig):
    for path, text in (*TEXTS.items(), ("/guarded.js", TEXTS["/idem.js"])):
        answer = status(get(rig, path), 200)
        eq(answer.body, text)
        eq((answer.h("Content-Type"), answer.h("Cache-Control")), ("text/javascript; charset=utf-8", "no-cache"))


@test
def who_has_it_is_told_so(rig):
    for path, text in TEXTS.items():
        etag = get(rig, path).h("ETag")
        eq(etag, f'"{hashlib.sha256(text).hexdigest()[:16]}"')  # the tag depends on the text
        answer = status(get(rig, path, headers=[("If-None-Match", etag)]), 304)
        eq(answer.body, b"")
        status(get(rig, path, headers=[("If-None-Match", '"other"')]), 200)


@test
def head_has_the_length_and_other_methods_are_refused(rig):
    for path, text in TEXTS.items():
        answer = status(get(rig, path, method="HEAD"), 200)
        eq(int(answer.h("Content-Length")), len(text))
        answer = status(rig.post(path), 405)
        eq(answer.h("Allow"), "GET, HEAD")


@test
def there_is_no_other_file(rig):
    for words in ("idem_js main;", "idem_js sign sign;", "idem_js; idem_js other;"):
        with Rig(f"location /x {{ {words} }}", start=False) as own:
            code, said = own.check()
            check(code != 0 and "idem_js" in said and "nginx.conf:" in said, said)
    with Rig("location /x { idem_js main; }", start=False) as own:
        check('"main" is not understood' in own.check()[1], "the word is named")


if __name__ == "__main__":
    main(CONF)
