#!/usr/bin/env python3
"""The metrics that Prometheus reads, their description in docs/metrics.md, and the alerts in contrib/prometheus.

prometheus_test.py SOURCE METRIC-TEXT
prometheus_test.py SOURCE METRIC-TEXT --print    the table for docs/metrics.md
"""
import os
import re
import subprocess
import sys

SOURCE, TEXT = sys.argv[1:3]
RULES = os.path.join(SOURCE, "contrib/prometheus")
count = failed = 0


def report(ok, name, why=""):
    global count, failed
    count += 1
    failed += not ok
    for line in () if ok else why.splitlines():
        print("# " + line)
    print(f"{'ok' if ok else 'not ok'} {count} - {name}", flush=True)


def read(path):
    with open(os.path.join(SOURCE, path), encoding="utf-8") as file:
        return file.read()


def promtool(*args, **options):
    """Runs promtool; returns its exit status and its output."""
    try:
        run = subprocess.run(["promtool", *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             timeout=300, check=False, **options)
        return run.returncode, run.stdout.decode("utf-8", "replace")
    except FileNotFoundError:
        return 127, "promtool is not there (Debian: prometheus)"


def families(text):
    """name -> type, labels, meaning"""
    found = {}
    for name, meaning, kind in re.findall(r"# HELP (\S+) (.*)\n# TYPE \S+ (\w+)\n", text):
        series = re.findall(rf"^{name}(?:_bucket)?(?:\{{(.*)\}})? ", text, re.M)
        labels = re.findall(r"(\w+)=\"", series[0]) if series else []
        found[name] = (kind, [label for label in labels if label != "le"], meaning)
    return found


def table(texts):
    both = {door: families(text) for door, text in texts.items()}
    lines = []
    for name, (kind, labels, meaning) in {**both["http"], **both["queue"]}.items():
        doors = " and ".join(word for door, word in (("http", "gateway"), ("queue", "consumer")) if name in both[door])
        lines.append(f"| `{name}` | {kind} | {', '.join(f'`{label}`' for label in labels) or '–'} | {doors} | {meaning} |")
    return lines


def sections(markdown):
    return {re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in re.findall(r"^#+ (.*)$", markdown, re.M)}


def main():
    texts = {door: subprocess.run([TEXT, door], stdout=subprocess.PIPE, check=True, timeout=300).stdout
             for door in ("http", "queue")}
    want = table({door: text.decode() for door, text in texts.items()})
    if "--print" in sys.argv:
        print("\n".join(want))
        return 0
    for door, text in texts.items():
        code, said = promtool("check", "metrics", input=text)
        report(code == 0 and said == "", f"promtool takes the text of {door}", said)
    have = [line for line in read("docs/metrics.md").splitlines() if line.startswith("| `idem_")]
    differ = [f"- {line}" for line in have if line not in want] + [f"+ {line}" for line in want if line not in have]
    report(have == want, "docs/metrics.md has the families of the code", "\n".join(differ))
    code, said = promtool("check", "rules", "idem.rules.yml", cwd=RULES)
    report(code == 0, "promtool takes the rules", said)
    code, said = promtool("test", "rules", "idem.rules.test.yml", cwd=RULES)
    report(code == 0, "each alert speaks when it should, and only then", said)
    rules, tests = read("contrib/prometheus/idem.rules.yml"), read("contrib/prometheus/idem.rules.test.yml")
    alerts = re.findall(r"- alert: (\w+)", rules)
    untested = [name for name in alerts if len(re.findall(rf"alertname: {name}$", tests, re.M)) < 2]
    report(alerts and not untested, "each alert has both tests", " ".join(untested))
    known = {line.split("`")[1] for line in want}
    unknown = {name for name in re.findall(r"\bidem_\w+", rules)} - known - {f"{name}_bucket" for name in known}
    report(not unknown, "the rules name families that there are", " ".join(sorted(unknown)))
    runbooks = re.findall(r"runbook: docs/operating\.md#([\w-]+)", rules)
    lost = set(runbooks) - sections(read("docs/operating.md"))
    report(len(runbooks) == len(alerts) == rules.count("summary:") and not lost, "each alert has a summary and a runbook that is there",
           " ".join(sorted(lost)))
    print(f"1..{count}")
    return failed != 0


sys.exit(main())
