"""A Prometheus that reads a gateway every second, with the example alerts of contrib/prometheus.

The alerts fire at once: another test (idem.rules.test.yml) covers how long a state has to last.
"""
import json
import os
import re
import shutil
import subprocess
import urllib.request

from rig import LIMIT, follow_parent, free_ports

RULES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../contrib/prometheus/idem.rules.yml")
CONFIG = """
global: { scrape_interval: 1s, evaluation_interval: 1s }
rule_files: [ rules.yml ]
scrape_configs:
  - job_name: idem
    metrics_path: /status
    static_configs: [ { targets: [ "127.0.0.1:%d" ] } ]
"""


class Prometheus:
    """Runs on a free port, in a directory of its own."""

    def __init__(self, folder, port):
        self.folder, self.port = folder, free_ports(1)[0]
        os.mkdir(folder)
        with open(RULES, encoding="utf-8") as file:
            rules = re.sub(r"^( +for:) \S+$", r"\1 0s", file.read(), flags=re.M)
        for name, text in (("rules.yml", rules), ("prometheus.yml", CONFIG % port)):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)
        assert shutil.which("prometheus"), "there is no prometheus (Debian: prometheus)"
        with open(os.path.join(folder, "log"), "wb") as log:
            self.process = subprocess.Popen(["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data",
                                             f"--web.listen-address=127.0.0.1:{self.port}"], cwd=folder, stdout=log, stderr=log,
                                            preexec_fn=follow_parent)

    def value(self, name):
        """Returns the value with which an alert fires; 0: it does not fire. None: Prometheus does not respond."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/alerts", timeout=LIMIT) as answer:
                alerts = json.load(answer)["data"]["alerts"]
        except OSError:
            return None
        return sum(float(alert["value"]) for alert in alerts if alert["labels"]["alertname"] == name and alert["state"] == "firing")

    def stop(self):
        self.process.terminate()
        self.process.wait(LIMIT)
