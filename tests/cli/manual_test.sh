#!/bin/sh
# The help, the manual and the completion say the same. Prints TAP.
#
# usage: manual_test.sh idem.1 idem.bash, with IDEM_EXE in the environment
set -u
manual=$1
completion=$2
n=0

is() { # name, what is missing (nothing: ok)
    n=$((n + 1))
    if [ -z "$2" ]; then
        echo "ok $n - $1"
    else
        echo "not ok $n - $1"
        echo "$2" | sed 's/^/# missing or wrong: /'
    fi
}

skip() {
    n=$((n + 1))
    echo "ok $n - $1 # SKIP $2"
}

commands="run gateway consume dead show list settle forget stats doctor eval canon id token sign verify migrate"

# The flags of a command in its help, one per line. The help is read once, because the test uses them often.
for c in $commands; do
    eval "flags_$c=\$(\"\$IDEM_EXE\" help $c |
        sed -n 's/^  \(-[a-zA-Z], \)\{0,1\}\(--[a-z0-9-]*\).*/\2/p')"
done
flags() {
    eval "printf '%s\n' \"\$flags_$1\""
}

missing=
for c in $commands; do
    [ "$(flags "$c" | wc -l)" -ge 1 ] || missing="$missing help of $c"
done
is "every_command_has_a_help_with_its_flags" "$missing"

# mdoc writes --flag as "Fl -flag", or in a list of flags as "-flag".
text=$(sed 's/^\.It //' "$manual")
missing=
for c in $commands; do
    for flag in $(flags "$c"); do
        echo "$text" | grep -q -e "Fl -*${flag#-}\( \|\$\)" -e ", ${flag#-}\( \|\$\)" ||
            missing="$missing $c:$flag"
    done
done
is "every_flag_is_in_the_manual" "$missing"

missing=
in_manual=$(sed -n 's/.*Fl \(-[a-z][a-z0-9-]*\).*/-\1/p' "$manual" | sort -u)
for flag in $in_manual; do
    found=
    for c in $commands; do
        flags "$c" | grep -qx -e "$flag" && found=yes
    done
    [ -n "$found" ] || [ "$flag" = --version ] || missing="$missing $flag"
done
is "the_manual_has_no_flag_that_is_not_there" "$missing"

# Calls the completion like bash.
offers() {
    bash -c '. "$1"; shift; COMP_WORDS=(idem "$@"); COMP_CWORD=$#; _idem
             printf "%s\n" "${COMPREPLY[@]}"' - "$completion" "$@"
}

missing=
for c in $commands; do
    [ "$(offers "$c" -- | sort)" = "$(flags "$c" | sort)" ] || missing="$missing $c"
done
is "the_completion_offers_exactly_the_flags_of_each_command" "$missing"

missing=
for c in $commands; do
    offers "" | grep -qx "$c" || missing="$missing $c"
    "$IDEM_EXE" help | grep -q "^  $c " || missing="$missing help:$c"
    grep -q "^\.Cm $c\$" "$manual" || missing="$missing manual:$c"
done
is "every_command_is_in_help_manual_and_completion" "$missing"

missing=
for pair in mode:replay recover:rerun on-failure:keep preset:payment on-store-error:open; do
    offers run "--${pair%:*}" "" | grep -qx "${pair#*:}" || missing="$missing $pair"
done
is "the_completion_knows_the_words_of_a_flag" "$missing"

missing=
for status in 64 65 66 69 70 71 74 75 76 77 78; do
    "$IDEM_EXE" help run | grep -q "  $status  " || missing="$missing help:$status"
    grep -q "^\.It $status\$" "$manual" || missing="$missing manual:$status"
done
is "every_exit_status_is_in_help_and_manual" "$missing"

missing=
example=report@2026-11-15T20:00:00Z
for c in show settle forget; do
    "$IDEM_EXE" help "$c" | grep -q "idem $c .*$example" || missing="$missing help:$c"
done
grep -q "^\$ idem show $example\$" "$manual" || missing="$missing manual"
is "help_and_manual_say_how_a_scheduled_run_is_named" "$missing"

missing=
"$IDEM_EXE" help eval | grep -q -e "-- '-#a'" || missing="$missing help"
grep -q "^\$ idem eval .*-\\\\- '-#a'\$" "$manual" || missing="$missing manual"
is "help_and_manual_say_how_an_expression_that_begins_with_a_dash_is_written" "$missing"

is "help_is_at_most_90_columns_wide" \
    "$(for c in $commands; do "$IDEM_EXE" help "$c"; done | awk 'length > 90')"

if command -v mandoc >/dev/null; then
    is "the_manual_is_clean_mdoc" "$(mandoc -Tlint -Wwarning "$manual" 2>&1)"
else
    skip "the_manual_is_clean_mdoc" "no mandoc"
fi
echo "1..$n"
