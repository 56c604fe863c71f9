#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Datagram connections: to another node, over a network that loses, doubles and reorders, between
# programs of one node; what weirctl says of them; how they end.
# wires: verbs,roce
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

weir_spec=""
# send FROM ADDRESS COUNT PACE LEAST: at least LEAST must arrive. A slow receiver loses some: tried again.
send() {
	local try
	for ((try = 0; try < 5; try++)); do
		send_once "$@"
		tail -n 1 "$weir_tmp/sink.log" | awk -v least="$5" '/^closed/ { exit !($6 >= least) }' && return
	done
	fail "$2: of $3 sent: $(last_line sink)"
}
send_once() {
	local lines
	lines=$(grep -c '^closed' "$weir_tmp/sink.log")
	datagrams "$1" send "$2" "$3" "$4" >"$weir_tmp/send.log" 2>&1 || fail "$2: $(last_line send)"
	await sh -c "[ \$(grep -c '^closed' $weir_tmp/sink.log) -gt $lines ]" || fail "$2: the sink saw no end"
	grep -q WRONG "$weir_tmp/sink.log" && fail "$2: $(grep -m 1 WRONG "$weir_tmp/sink.log")"
	tail -n 1 "$weir_tmp/sink.log" | awk '{ exit !($2 == 0 && $8 == $4) }' || fail "$2: of $3 sent: $(last_line sink)"
}

[ -n "${WEIR_WIRE:-}" ] || weir_spec=,loss=1,dup=5,reorder=5,seed=7
two_nodes
serve sink datagrams B sink s
send A node:2:s 20000 50 15000
send B node:2:s 2000 0 2000
if [ -z "${WEIR_WIRE:-}" ]; then
	weirctl --instance B --json show counters >"$weir_tmp/counters.json"
	jq -e 'map(select(.name | test("datagrams_doubled$"))) | map(.value) | add > 100' "$weir_tmp/counters.json" >/dev/null ||
		fail "no datagram was doubled: the impairment does not work"
fi
run stay datagrams A stay node:2:s
await grep -q connected "$weir_tmp/stay.log" || die "no connection"
shows A connections 'any(.transport == "ud" and .state == "open" and .dropped == 0)' ||
	fail "weirctl: $(weirctl --instance A --json show connections | jq -c .)"
stop sink KILL
await grep -q 'end -104' "$weir_tmp/stay.log" || fail "the peer's death: $(last_line stay)"
weirctl --instance A wait connections:0 --timeout "$patience" || fail "connections remain"
exit $weir_failed
