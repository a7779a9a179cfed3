"""A Redis of the test's own on a port of its own, for a user with a password: as a store that can be paused and
killed, or as a broker of streams. By its socket it asks for none."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
import ports
import redisserver

PASSWORD = "red:is@pass/word"
PASSWORD_IN_URL = "red:is%40pass%2Fword"


class Server(redisserver.Server):
    def __init__(self, folder, clock=None):
        self.port = ports.free_port()
        # It is killed, and its machine is not: what it writes need not wait for the disk.
        super().__init__(folder, "--port", str(self.port), "--bind", "127.0.0.1", "--user", "idem", "on", ">" + PASSWORD,
                         "~*", "&*", "+@all", "--appendfsync", "no", clock=clock)
        self.url = f"redis://idem:{PASSWORD_IN_URL}@127.0.0.1:{self.port}"
