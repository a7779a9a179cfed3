"""A Redis of the test's own on a port of its own, with a user and a password: a store that can be paused and killed,
or a broker of streams. Its socket needs no password."""
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
        # Tests kill the server, not the machine: so writes need not wait for the disk.
        super().__init__(folder, "--port", str(self.port), "--bind", "127.0.0.1", "--user", "idem", "on", ">" + PASSWORD,
                         "~*", "&*", "+@all", "--appendfsync", "no", clock=clock)
        self.url = f"redis://idem:{PASSWORD_IN_URL}@127.0.0.1:{self.port}"
