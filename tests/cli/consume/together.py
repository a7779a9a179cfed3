#!/usr/bin/env python3
"""Runs the tests of several of these programs on one broker: together.py window handler ... [TEST...]. Prints TAP."""
import importlib
import os
import sys

sys.dont_write_bytecode = True
import frame

HERE = os.path.dirname(os.path.abspath(__file__))
programs = [word for word in sys.argv[1:] if os.path.exists(f"{HERE}/{word}_test.py")]
for name in programs:
    importlib.import_module(name + "_test")
sys.argv[1:] = [word for word in sys.argv[1:] if word not in programs]
frame.main()
