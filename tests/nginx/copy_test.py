#!/usr/bin/env python3
"""How often the body of a response is copied on its way to the store, and back."""
import os
import sys

sys.dont_write_bytecode = True
# pylint: disable=wrong-import-position
from rig import *
from tap import *

COUNTER = os.environ.get("IDEM_COPY_COUNTER", "")
MARK, SIZE = b"copied? ", 1 << 18
CONF = guard("/whole", "idem replay; proxy_buffers 64 16k; proxy_buffer_size 16k;")


def copies(own):
    """Returns how many times the body was copied since the last call. A turn's count is written when the turn ends,
    which may be after the client has the response."""
    own.turn()
    path = own.folder + "/count"
    with open(path, "r+", encoding="ascii") as file:
        number = sum(map(int, file.read().split()))
        file.truncate(0)
    return number / SIZE


@test
def a_body_is_copied_three_times_to_the_store_and_twice_back(_):
    if not COUNTER or sanitizers():
        raise Skip("IDEM_COPY_COUNTER names no library, or it cannot be loaded together with a sanitizer")
    with Rig(CONF, workers=1, start=False) as own:
        own.environment = lambda: dict(os.environ, LD_PRELOAD=COUNTER, IDEM_COPY_COUNT=own.folder + "/count")
        own.start()
        own.backend.script("/whole", {"body": MARK * (SIZE // len(MARK))})
        key = fresh()
        first = status(own.post("/whole", key), 200)
        there = copies(own)
        replay_of(first, own.post("/whole", key))
        back = copies(own)
        print(f"# {there:.2f} there, {back:.2f} back")
        eq(len(first.body), SIZE)
        check(0.9 < there < 3.2, f"{there:.2f} copies on the way to the store")
        check(0.9 < back < 2.2, f"{back:.2f} copies on the way back")


if __name__ == "__main__":
    main(CONF)
