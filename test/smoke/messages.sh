#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Messages and requests between two nodes: many threads, all sizes, closing, a peer that is killed.
# wires: verbs,roce
# wired: 600
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

# ask NAME ARGUMENT...: courier on A says "end 0".
ask() {
	courier A "$@" >"$weir_tmp/$1.log" 2>&1
	grep -q 'end 0' "$weir_tmp/$1.log" || fail "$*: $(last_line "$1")"
}

# alone NAME ARGUMENT...: the same, and until its link has ended over there: the next one's is another.
alone() {
	ask "$@"
	await eval "[ \$(grep -c created '$weir_tmp/serve.log') = \$(grep -c lost '$weir_tmp/serve.log') ]" ||
		fail "$*: its link does not end: $(log_of serve)"
}

few=1 # on a wire the machine is an emulated one: that many times fewer
[ -z "${WEIR_WIRE:-}" ] || few=20
two_nodes
courier A leave 2 >"$weir_tmp/nobody.log" 2>&1 && fail "connected to nobody"
grep -q 'onnection refused' "$weir_tmp/nobody.log" || fail "nobody: $(last_line nobody)"
serve serve courier B serve
alone leave 2
alone note 2 1 $((50000 / few)) 64
alone note 2 4 $((20000 / few)) 200
alone ask 2 1 $((2000 / few)) 64
alone ask 2 4 $((1000 / few)) 3000
alone large 2 3000000
# a handler that takes long is named, and others are handled meanwhile
run block courier A block 2
await sh -c "weirctl --instance B --json show sessions | jq -e '.[0].handling_ms >= 1000'" ||
	fail "nobody says that a handler takes long: $(weirctl --instance B show sessions)"
ask ask 2 3 100 64
grep -q 'end 0' "$weir_tmp/block.log" && fail "the handler has returned before it was told to"
ask wake 2
await grep -q 'end 0' "$weir_tmp/block.log" || fail "the handler doesn't return: $(log_of block)"
await sh -c "weirctl --instance B --json show sessions | jq -e '.[0].handling_ms == 0'" || fail "a handler that returned is still named"
await sh -c "[ \$(grep -c 'lost 1 0' $weir_tmp/serve.log) = 7 ]" ||
	fail "links did not end in order: $(cat "$weir_tmp/serve.log")"
courier A leave 9 >"$weir_tmp/unknown.log" 2>&1 && fail "connected to a node that is not there"
grep -q 'No route to host' "$weir_tmp/unknown.log" || fail "unknown: $(last_line unknown)"
# the examples
PATH=$WEIR_BUILD/apps/examples:$PATH
WEIR_INSTANCE=B run example example-message
await sh -c "WEIR_INSTANCE=A example-message 2 'good day' | grep -q 'GOOD DAY'" || fail "example-message"
WEIR_INSTANCE=B run loop example-message_loop
await sh -c "WEIR_INSTANCE=A example-message_loop 2 abc 'good day' | tr '\\n' ' ' | grep -q 'cba yad doog'" || fail "example-message_loop"
WEIR_INSTANCE=B run readings example-message-protobuf
await sh -c "WEIR_INSTANCE=A example-message-protobuf 2 1000 | grep -q '000 readings arrived'" || fail "example-message-protobuf"
# the program over there is killed, and comes back
run keep courier A keep 2
await grep -q 'asked 0' "$weir_tmp/keep.log"
stop serve KILL
await grep -q 'lost 2 -' "$weir_tmp/keep.log" || fail "the loss was not told: $(tail -n 3 "$weir_tmp/keep.log")"
run again courier B serve
await sh -c "[ \$(grep -c 'created 2' $weir_tmp/keep.log) = 2 ]" || fail "not connected again: $(tail -n 3 "$weir_tmp/keep.log")"
await sh -c "tail -n 1 $weir_tmp/keep.log | grep -q 'asked 0'" || fail "no answers after the restart"
