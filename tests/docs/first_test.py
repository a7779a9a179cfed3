#!/usr/bin/env python3
"""The commands with which README begins: `make run` and `make run-command`, as the Makefile starts them after the
build. Prints TAP.

    first_test.py SOURCE IDEM SHOP
"""
import contextlib
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import plain  # pylint: disable=wrong-import-position
import ports  # pylint: disable=wrong-import-position
from plain import check, test  # pylint: disable=wrong-import-position

SOURCE, IDEM, SHOP = sys.argv[1:4]
del sys.argv[1:4]


@test
def make_run_orders_once_replays_and_refuses_another_order(_):
    said = plain.run(SOURCE + "/examples/shop/run.sh", IDEM, SHOP,
                     env={**os.environ, "RUN_ONCE": "1", "RUN_PORT": str(ports.free_port()),
                          "RUN_SHOP_PORT": str(ports.free_port())})
    check("The shop has 1 order." in said and "Idempotent-Replayed: true" in said and "422" in said, said)


@test
def make_run_command_runs_once_and_replays(_):
    said = plain.run(SOURCE + "/examples/once.sh", IDEM)
    check("The ledger has 1 line." in said and said.count("charged 42.00 EUR, receipt ") == 2, said)


plain.main(contextlib.nullcontext)
