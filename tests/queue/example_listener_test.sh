#!/bin/sh
# The example of a listener places each order once. Prints TAP. The store does not wait for the disk: an outcome that
# cannot be stored for longer than a lease is an unknown one, and its order is placed again.
set -u
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# expect NUMBER NAME: compares the listener's output with the expected one.
expect() {
    "$listener" "lmdb:$folder/messages?sync=off" >"$folder/got" 2>&1
    if diff "$folder/want" "$folder/got" >"$folder/diff"; then
        echo "ok $1 - $2"
    else
        sed 's/^/# /' "$folder/diff"
        echo "not ok $1 - $2"
    fi
}

listener=$1
cat >"$folder/want" <<END
placed order-1, attempt 1
placed order-2, attempt 2
dead letter B3: the key came back with another message under it
dead letter B3: the key came back with another message under it
2 orders
END
expect 1 each_order_is_placed_once
sed -i '/^placed/d; s/^2 orders/0 orders/' "$folder/want"
expect 2 none_is_placed_again
echo 1..2
