#!/usr/bin/env python3
"""The table of src/base/visible.c against Unicode's own data, in the version that Python has.

    unicode.py VISIBLE.C
"""
import re
import sys
import unicodedata

with open(sys.argv[1], encoding="utf-8") as file:
    table = re.search(r"hidden\[\] = \{(.*?)\n\};", file.read(), re.S)[1]
ranges = [(int(first, 16), int(last, 16)) for first, last in re.findall(r"\{0x(\w+), 0x(\w+)\}", table)]
hidden = {c for first, last in ranges for c in range(first, last + 1)}
category = {c: unicodedata.category(chr(c)) for c in range(0x110000)}
wanted = {c for c, kind in category.items() if kind in ("Cf", "Zl", "Zp")}


def report(n, wrong, name):
    for c in sorted(wrong):
        print(f"# U+{c:04X} {category[c]}")
    print(f"{'not ok' if wrong else 'ok'} {n} - {name}")


report(1, wanted - hidden, "every_format_character_and_separator_is_in_the_table")
# Python's Unicode may be older than the table's: what it does not know yet is Cn.
report(2, {c for c in hidden - wanted if category[c] != "Cn"}, "nothing_else_is_in_the_table")
report(3, {ranges[i][0] for i in range(1, len(ranges)) if ranges[i][0] <= ranges[i - 1][1] + 1},
       "the_table_is_in_order_and_its_ranges_do_not_touch")
print("1..3")
