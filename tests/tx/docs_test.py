#!/usr/bin/env python3
"""Runs the SQL of the documents on the servers that it is for: ```sql on PostgreSQL, ```mysql on MariaDB."""
import os
import re
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "tests"))
import sqlserver  # pylint: disable=wrong-import-position

PAGES = ["docs/sql.md", "docs/stores.md", "docs/http.md"]
SERVERS = {"sql": "postgres", "mysql": "mysql"}
# The tables that the examples use.
TABLES = ["CREATE TABLE account (id int PRIMARY KEY, balance int NOT NULL)",
          "INSERT INTO account VALUES (1, 100), (2, 0), (7, 100)",
          "CREATE TABLE vote (voter int, poll int, choice varchar(9), PRIMARY KEY (voter, poll))",
          "CREATE TABLE item (id int PRIMARY KEY, price int, version int)",
          "INSERT INTO item VALUES (7, 8, 3)",
          "CREATE TABLE orders (id int PRIMARY KEY, state varchar(20))",
          "INSERT INTO orders VALUES (7, 'unpaid')"]
# Queries after each example, with the results that they must have.
AFTER = {"sql": [("SELECT balance FROM account WHERE id = 1", "95"), ("SELECT count(*) FROM vote", "1"),
                 ("SELECT price FROM item", "9"), ("SELECT state FROM orders", "paid"),
                 ("SELECT count(*) FROM idem_tx WHERE status = 201", "2"),
                 ("SELECT outcome FROM idem_once('transfer:', 'customer 7', 'T-1', NULL)", "duplicate")],
         "mysql": [("SELECT count(*) FROM idem_tx WHERE status = 201", "1")]}

count = failed = 0


def row(good, name, why=""):
    global count, failed
    count += 1
    failed += not good
    for line in ([] if good else why.splitlines()):
        print(f"# {line}")
    print(f"{'ok' if good else 'not ok'} {count} - {name}", flush=True)


def fences(kind):
    for page in PAGES:
        with open(os.path.join(ROOT, page), encoding="utf-8") as file:
            for text in re.findall(rf"^```{kind}\n(.*?)^```$", file.read(), re.S | re.M):
                yield page, text


def run(kind, folder):
    with sqlserver.start(SERVERS[kind], folder) as server:
        server.migrate(os.environ["IDEM_EXE"])
        for text in TABLES:
            server.ask(text)
        for page, text in fences(kind):
            first = text.splitlines()[0]
            try:
                server.ask(re.sub(r"--.*", "", text))
                row(True, f"{page}: {kind}: {first}")
            except sqlserver.SqlError as error:
                row(False, f"{page}: {kind}: {first}", str(error))
        for question, answer in AFTER[kind]:
            told = server.ask(question)
            row(told == answer, f"{kind}: {question}", f"{told}, not {answer}")


with tempfile.TemporaryDirectory() as temp:
    os.chmod(temp, 0o755)
    for each in SERVERS:
        run(each, os.path.join(temp, each))
print(f"1..{count}")
sys.exit(failed != 0)
