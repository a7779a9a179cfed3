#!/bin/sh
# The shared library exports what idem.h declares, and nothing else.
# symbols.sh LIBRARY HEADER
set -u
exported=$(nm -D --defined-only "$1" | sed -n 's/.* T \(.*\)@@IDEM_.*/\1/p' | sort)
declared=$(grep -v typedef "$2" | grep -oE '\bidem_[a-z_]+\(' | tr -d '(' | sort -u)
others=$(nm -D --defined-only "$1" | grep -v '@@IDEM_' | grep -v ' A IDEM_')
n=0
report() {
    n=$((n + 1))
    if [ "$1" = 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; fi
}
[ "$exported" = "$declared" ]
same=$?
[ $same = 0 ] || { echo "# exported: $exported"; echo "# declared: $declared"; }
report $same "the_library_exports_what_the_header_declares"
[ -z "$others" ]
report $? "every_exported_symbol_has_a_version"
echo "1..$n"
