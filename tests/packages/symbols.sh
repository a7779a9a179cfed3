#!/bin/sh
# Both libraries export the functions of idem.h and nothing else, and contain nothing else.
# symbols.sh SHARED STATIC HEADER OBJECTS (the archive from which both are made)
set -u
n=0
report() {
    n=$((n + 1))
    if [ "$1" = 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; fi
}
# same EXPORTED NAME: compares the exported names with the declared ones
same() {
    [ "$1" = "$declared" ]
    equal=$?
    [ $equal = 0 ] || { echo "# exported:" $1; echo "# declared:" $declared; }
    report $equal "$2"
}
declared=$(grep -v typedef "$3" | grep -oE '\bidem_[a-z0-9_]+\(' | tr -d '(' | sort -u)
same "$(nm -D --defined-only "$1" | sed -n 's/.* T \(.*\)@@IDEM_.*/\1/p' | sort)" \
    "the_shared_library_exports_what_the_header_declares"
others=$(nm -D --defined-only "$1" | grep -v '@@IDEM_' | grep -v ' A IDEM_')
[ -z "$others" ]
report $? "every_exported_symbol_has_a_version"
# The sanitizers' own symbols (__odr_asan.idem_open) do not count.
same "$(nm -g --defined-only "$2" | sed -n 's/^[0-9a-f]* [A-Z] //p' | grep -v '^__' | sort)" \
    "the_static_library_has_no_other_global_name"
# The linker takes the objects from an archive that the declared functions need.
map=$(mktemp)
trap 'rm -f "$map"' EXIT
# shellcheck disable=SC2046
ld -r $(printf ' -u %s' $declared) -o /dev/null -Map "$map" "$4"
linked=$?
ar t "$4" | sed 's|.*/||' | sort >"$map.all"
unused=$(grep -oE '[^/( ]+\.c\.o' "$map" | sort -u | comm -13 - "$map.all")
rm -f "$map.all"
[ -z "$unused" ] || echo "# no C program can reach:" $unused
[ "$linked" = 0 ] && [ -z "$unused" ]
report $? "the_library_contains_only_what_a_program_can_call"
echo "1..$n"
