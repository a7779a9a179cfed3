#!/bin/sh
# The example of a listener places each order once. Prints TAP.
set -u
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$1" "lmdb:$folder/messages" >"$folder/got" 2>&1
cat >"$folder/want" <<END
placed order-1, attempt 1
placed order-2, attempt 2
dead letter B3: the key came back with another message under it
dead letter B3: the key came back with another message under it
2 orders
END
if diff "$folder/want" "$folder/got" | sed 's/^/# /' | grep .; then echo "not ok 1 - each_order_is_placed_once"; else echo "ok 1 - each_order_is_placed_once"; fi
"$1" "lmdb:$folder/messages" >"$folder/again" 2>&1
if grep -q '^0 orders$' "$folder/again"; then echo "ok 2 - none_is_placed_again"; else echo "not ok 2 - none_is_placed_again"; fi
echo 1..2
