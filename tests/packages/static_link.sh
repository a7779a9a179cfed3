#!/bin/sh
# A program that is linked with the static library, with the flags of `pkg-config --static`, and that has functions
# whose names also occur inside the library.
# static_link.sh PROGRAM INCLUDE BUILD CC...
set -u
source=$1 include=$2 build=$3
shift 3
export PKG_CONFIG_PATH="$build/meson-uninstalled"
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
flags=$(pkg-config --static --libs idem) || exit 1
# The only library in the directory that is searched first, so -lidem finds it.
cp "$build/src/libidem.a" "$folder" || exit 1
n=0
report() {
    n=$((n + 1))
    if [ "$1" = 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; fi
}
# shellcheck disable=SC2086
"$@" -o "$folder/program" -I"$include" "$source" -L"$folder" $flags 2>&1 | sed 's/^/# /'
[ -x "$folder/program" ]
report $? "it_links_beside_names_of_its_own"
said=$("$folder/program" "lmdb:$folder/store") && [ "$said" = "run, then replay" ]
report $? "it_runs"
needs=$(ldd "$folder/program") && ! echo "$needs" | grep -q libidem
report $? "it_needs_no_shared_library_of_ours"
echo "1..$n"
