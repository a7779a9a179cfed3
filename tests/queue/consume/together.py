#!/usr/bin/env python3
"""Runs the tests of several of these programs on one broker: together.py window handler ... Prints TAP."""
import importlib
import sys

sys.dont_write_bytecode = True
import frame

for name in sys.argv[1:]:
    importlib.import_module(name + "_test")
del sys.argv[1:]
frame.main()
