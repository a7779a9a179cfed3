"""Waiting for a condition, for tests in Python: they never wait for time."""
import time

LIMIT = 120  # seconds; only a failure reaches it


def patient(url):
    """Returns the URL of a store with timeouts this long: a server that gets no processor for a while must not count
    as away."""
    return url + ("&" if "?" in url else "?") + f"timeout={LIMIT}s&connect_timeout={LIMIT}s"


def until(what, condition, step=0.05):
    """Polls the condition until it is true, and returns its value. The intervals grow, up to `step` seconds, because
    some conditions are expensive."""
    end, pause = time.monotonic() + LIMIT, min(step, 0.002)
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {LIMIT} s")
        time.sleep(pause)  # sleep: the step of a poll
        pause = min(1.5 * pause, step)
