#!/bin/sh
# The demonstration of `make run-command`: a command that is done once, however often it is repeated. The store is a
# directory that is removed again.
set -eu
idem=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export IDEM_STORE="lmdb:$folder/store"

show() {
    echo "\$ $*"
    "$@"
    echo
}

cat >"$folder/charge" <<'END'
#!/bin/sh
echo "charged 42.00 EUR, receipt $(od -An -N4 -tx4 /dev/urandom | tr -d ' ')"
echo "one more line in the ledger" >>"$LEDGER"
END
chmod +x "$folder/charge"
export LEDGER="$folder/ledger"

echo "The first time, the command runs:"
show "$idem" run --key order-4711 -- "$folder/charge"
echo "The second time it does not; its output and exit status are given again:"
show "$idem" run --key order-4711 -- "$folder/charge"
echo "The ledger has $(wc -l <"$LEDGER" | tr -d ' ') line. What the store remembers:"
show "$idem" list
