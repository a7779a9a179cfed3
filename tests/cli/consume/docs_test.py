#!/usr/bin/env python3
"""Runs the examples of `idem consume` and `idem dead` in the documents and the help: every line of a ```sh fence, with
the test's own broker, endpoint and store. A consumer must handle a message and exit on request. Prints TAP.

IDEM_SOURCE is the directory of the documents; another run covers the examples of the other broker.
"""
import sys

sys.dont_write_bytecode = True
from endpoint import Endpoint
from frame import *
from rig import *

SOURCE = os.environ.get("IDEM_SOURCE", os.path.join(HERE, "..", "..", ".."))
SCHEME = {"rabbit": "amqp", "stream": "redis"}[brokers.kinds()[0]]


def lines_of(text):
    """Returns the commands without comments, each on one line."""
    text = re.sub(r" *\\\n *", " ", text)
    return [re.sub(r"\s+#\s.*", "", line.strip()) for line in text.splitlines()
            if re.match(r"\s*idem (consume|dead) ", line)]


def examples():
    """Yields the place of each example, and its line."""
    with open(os.path.join(SOURCE, "docs/queue.md"), encoding="utf-8") as file:
        for fence in re.findall(r"^```sh\n(.*?)^```$", file.read(), re.S | re.M):
            for line in lines_of(fence):
                yield "docs/queue.md", line
    for command in ("consume", "dead"):
        said = subprocess.run([IDEM, "help", command], stdout=subprocess.PIPE, text=True, check=True, timeout=LIMIT).stdout
        for line in lines_of(said.split("Options:")[-1]):
            yield "help " + command, line


class Example:
    def __init__(self, rig, line):
        self.rig, self.line = rig, line
        self.queue = Queue(rig, re.search(r"--queue (\S+)", line).group(1))
        for name in (self.queue.name, self.queue.dead):
            if rig.broker.count(name) is not None:
                rig.broker.delete(name)
            rig.broker.declare(name)
        self.store, self.key = rig.lmdb(), rig.key()
        self.mail = f"{rig.folder}/send-mail"
        with open(self.mail, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\ncat >>{rig.folder}/sent\n")
        os.chmod(self.mail, 0o755)

    def words(self, endpoint):
        """Returns the command with the test's own addresses."""
        line = re.sub(rf"{SCHEME}://localhost", self.rig.broker.url, self.line)
        line = line.replace("http://127.0.0.1:9000", endpoint.url.rsplit("/", 1)[0])
        check("localhost" not in line, line)
        words = shlex.split(line)
        return [IDEM, *words[1:], "--store", self.store]

    def publish(self):
        self.queue.publish_bytes(json.dumps({"orderId": self.key, "user": "u"}).encode(), {"Idempotency-Key": self.key})

    def consume(self, endpoint):
        consumer = Consumer(self.words(endpoint), self.rig.env(), self.rig.folder)
        self.rig.consumers.append(consumer)
        self.publish()
        consumer.wait_for("run done record=")
        settled(self.queue, consumer)
        sent = f"{self.rig.folder}/sent"
        if "--to " in self.line:
            eq([seen[0] for seen in endpoint.seen], [self.key], "the endpoint's requests")
        else:
            check(self.key in open(sent, encoding="utf-8").read(), "the program's input")

    def dead(self, endpoint):
        consumer = self.rig.consume(self.queue, "--on-exit", "9=dead", "--exec", "exit 9", key="#body.orderId",
                                    store=self.store)
        for _ in range(3):
            self.key = self.rig.key()
            self.publish()
        until("three letters", lambda: self.queue.dead_count() == 3)
        settled(self.queue, consumer)
        said = self.rig.idem(*self.words(endpoint)[1:])
        check(said.strip(), "there is output")
        left = 2 if " requeue " in self.line else 3
        until(f"{left} letters are left", lambda: self.queue.dead_count() == left)


def example_test(number, page, line):
    def body(rig):
        with Endpoint() as endpoint:
            example = Example(rig, line)
            (example.consume if line.startswith("idem consume") else example.dead)(endpoint)
    body.__name__ = re.sub(r"[^a-z0-9]+", "_", f"example {number} of {page} {line.split(SCHEME)[0]} runs".lower())
    test(body, alone=True)


found = [(page, line) for page, line in examples() if f" {SCHEME}://" in line]
for nth, (where, what) in enumerate(found, 1):
    example_test(nth, where, what)


@test
def the_documents_have_examples(_):
    check(len([page for page, _ in found if page == "docs/queue.md"]) >= (4 if SCHEME == "amqp" else 1), found)


if __name__ == "__main__":
    main()
