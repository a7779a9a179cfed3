#!/bin/sh
# The demonstration of `make run`: a shop, a gateway in front of it, a page to buy
# on, and three requests to try.
# On a terminal, or with RUN_ONCE=0, it runs until Ctrl-C; otherwise, or with RUN_ONCE=1, it makes the
# three requests itself, fails unless there is exactly one order then, and ends.
# Everything is in a temporary directory, which is removed again.
#
# usage: run.sh IDEM SHOP; RUN_PORT and RUN_SHOP_PORT are the ports to begin with
set -eu
idem=$1
shop=$2
folder=$(mktemp -d)
chmod 755 "$folder" # root's nginx runs as another user
shop_pid=
gateway_pid=
finish() {
    trap '' INT TERM HUP
    if [ -n "$gateway_pid" ] && kill "$gateway_pid" 2>/dev/null; then
        wait "$gateway_pid" || :
    fi
    [ -z "$shop_pid" ] || kill "$shop_pid" 2>/dev/null || :
    rm -rf "$folder"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# curl's status 7 means that nothing listens there.
is_free() {
    rc=0
    curl -s -o "$folder/answer" --max-time 2 "http://127.0.0.1:$1/" || rc=$?
    [ "$rc" = 7 ]
}

wait_for() { # a URL, the process that will respond there, its name
    for _ in $(seq 1200); do # two minutes: only a failure takes so long
        ! curl -s -o "$folder/answer" --max-time 2 "$1" || return 0
        kill -0 "$2" 2>/dev/null || break
        sleep .1
    done
    echo "make run: the $3 did not start" >&2
    exit 1
}

shop_port=${RUN_SHOP_PORT:-9000}
is_free $shop_port || { echo "Port $shop_port is taken: the shop gets another."; shop_port=0; }
: >"$folder/shop" # the file exists before it is read, however late the shop begins
"$shop" $shop_port "$folder/orders.db" >"$folder/shop" &
shop_pid=$!
for _ in $(seq 1200); do
    shop_port=$(sed -n 's/^shop: .*:\([0-9]*\), .*/\1/p' "$folder/shop")
    [ -z "$shop_port" ] && kill -0 "$shop_pid" 2>/dev/null || break
    sleep .1
done
shop_url=http://127.0.0.1:$shop_port
wait_for "$shop_url/orders" "$shop_pid" shop

port=${RUN_PORT:-8080}
while ! is_free $port; do
    echo "Port $port is taken: the gateway tries the next."
    port=$((port + 1))
done
# The user: a browser has the shop's cookie, the commands below have a header.
sed "s/@SHOP@/127.0.0.1:$shop_port/" "$(dirname "$0")/gateway.conf" >"$folder/gateway.conf"
"$idem" gateway --listen 127.0.0.1:$port --upstream "$shop_url" --wait 10s \
    --scope "\$cookie_session\$http_x_user" --prefix order: --store "lmdb:$folder/idem" --workers 2 \
    --config "$folder/gateway.conf" &
gateway_pid=$!
url=http://127.0.0.1:$port/orders
wait_for "$url" "$gateway_pid" gateway

one="curl -i $url -H 'X-User: ann' -H 'Idempotency-Key: order-4711' --json '{\"item\": \"book\", \"amount\": 42}'"
other="curl -i $url -H 'X-User: ann' -H 'Idempotency-Key: order-4711' --json '{\"item\": \"book\", \"amount\": 43}'"
cat <<END

The shop is on $shop_url, the gateway before it on http://127.0.0.1:$port.

A page with a button to click twice, and a bad network:
  http://127.0.0.1:$port/

Order a book:
  $one
Do it again, as a client does that got no answer: the same order, and no second one:
  $one
The same key for something else is refused (422):
  $other

What the shop has then: curl $url
END

if [ "${RUN_ONCE:-}" = 0 ] || { [ -t 0 ] && [ -z "${RUN_ONCE:-}" ]; }; then
    echo "Ctrl-C ends both."
    wait "$gateway_pid"
    exit
fi

ask() { # a command from above, the status that it must have
    echo
    echo "\$ $1"
    eval "$1 -s" >"$folder/answer"
    cat "$folder/answer"
    read -r _ status _ <"$folder/answer"
    [ "$status" = "$2" ] || { echo "make run: that is $status, and should be $2" >&2; exit 1; }
}
ask "$one" 201
cp "$folder/answer" "$folder/first"
ask "$one" 201
if [ "$(tail -n 1 "$folder/answer")" != "$(tail -n 1 "$folder/first")" ] ||
    ! grep -qi '^Idempotent-Replayed: true' "$folder/answer"; then
    echo 'make run: the retry did not get the first answer' >&2
    exit 1
fi
ask "$other" 422
orders=$(curl -s "$shop_url/orders" | grep -o '"id"' | wc -l)
echo
echo "The shop has $orders order."
[ "$orders" = 1 ]
