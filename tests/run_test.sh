#!/bin/sh
# tests/run itself, and make check, in a folder of its own with stand-ins for what it starts: whatever becomes of a
# build, the last line is the sum. Prints TAP.
#
# usage: run_test.sh TESTS, the folder of tests/run and tests/summary
set -u
tests=$1
n=0
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/tests" "$folder/tools" "$folder/bin"
cp "$tests/run" "$tests/summary" "$folder/tests"

stand_in() { # path, text
    printf '#!/bin/sh\n%s\n' "$2" >"$folder/$1"
    chmod 755 "$folder/$1"
}

# Everything is there, and every suite has one test that passes.
good() {
    rm -rf "$folder"/build*
    stand_in tools/packages :
    stand_in tests/targets :
    stand_in bin/ninja :
    # shellcheck disable=SC2016
    stand_in bin/meson 'case $1 in
setup) mkdir -p "$2" ;;
test) mkdir -p "$3/meson-logs"
    echo "<testsuites><testcase name=\"t\"/></testsuites>" >"$3/meson-logs/testlog.junit.xml"
    echo "{\"name\":\"p\",\"result\":\"OK\"}" >"$3/meson-logs/testlog.json" ;;
esac'
}

is() { # name, status, last line
    PATH=$folder/bin:$PATH "$folder/tests/run" >"$folder/out" 2>&1
    status=$?
    n=$((n + 1))
    if [ $status = "$2" ] && [ "$(tail -n 1 "$folder/out")" = "$3" ]; then
        echo "ok $n - $1"
    else
        echo "not ok $n - $1"
        echo "# status $status"
        sed 's/^/# /' "$folder/out"
    fi
}

good
is "tests_that_pass_are_added_up" 0 "4 passed, 0 failed"
good
stand_in tools/packages 'exit 69'
is "a_package_that_is_missing_ends_with_a_sum" 1 "0 passed, 1 failed"
good
stand_in bin/meson 'echo broken; exit 1'
is "a_build_that_cannot_be_set_up_ends_with_a_sum" 1 "0 passed, 1 failed"
good
# shellcheck disable=SC2016
stand_in bin/ninja 'case $2 in build-tsan) echo broken; exit 1 ;; esac'
is "a_build_that_fails_ends_with_a_sum" 1 "0 passed, 1 failed"
good
# shellcheck disable=SC2016
sed -i 's/OK/TIMEOUT/' "$folder/bin/meson"
is "a_program_that_ran_out_of_time_has_failed" 1 "4 passed, 4 failed"

# What a target needs is installed before it begins: a fresh machine has neither Node nor nginx.
good
cp "$tests/../Makefile" "$folder"
# shellcheck disable=SC2016
stand_in tools/packages 'echo "packages $*"'
stand_in bin/ninja 'echo built'
# shellcheck disable=SC2016
stand_in bin/meson 'mkdir -p build; echo "meson $1"'
n=$((n + 1))
said=$(PATH=$folder/bin:$PATH MAKEFLAGS='' make -s -C "$folder" check 2>&1 | tr '\n' ,)
case $said in
'packages build check,'*'built,meson test,') echo "ok $n - make_check_installs_what_it_needs" ;;
*) echo "not ok $n - make_check_installs_what_it_needs"; echo "# $said" ;;
esac
# Each target's groups are there, and the tests of make check need no more than those of make test.
n=$((n + 1))
lost=
# shellcheck disable=SC2013
for name in $(sed -n 's/.*tools\/packages //p' "$tests/../Makefile"); do
    grep -q "^    $name) echo" "$tests/../tools/packages" || lost="$lost $name"
done
all=" $(sed -n '/^    test)/,/;;/p' "$tests/../tools/packages" | tr -cs 'a-z0-9-' ' ') "
# shellcheck disable=SC2013
for name in $(sed -n 's/^    check) echo \(.*\) ;;/\1/p' "$tests/../tools/packages"); do
    case $all in *" $name "*) ;; *) lost="$lost $name" ;; esac
done
if [ -z "$lost" ]; then
    echo "ok $n - every_group_of_packages_is_known"
else
    echo "not ok $n - every_group_of_packages_is_known"
    echo "#$lost"
fi
echo "1..$n"
