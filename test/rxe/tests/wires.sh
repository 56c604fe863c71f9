#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Two nodes over a wire (WEIR_WIRE), each end in turn driving: every size around the path MTU, contents
# verified; then with 1 % of the frames lost each way.
# wires: verbs,verbs verbs,roce roce,roce
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/../../smoke/_init.sh"

: "${WEIR_WIRE:=verbs,verbs}"
two_nodes
server A
server B
mtu=$(weirctl --instance A --json show ports | jq '.[0].mtu')
[ "$mtu" = 1024 ] || fail "path MTU $mtu"

# transfer INSTANCE ADDRESS COUNT SIZES TESTS [OPTION...]
transfer() {
	measured ".verified == true and .count >= $3" --instance "$1" "$2" -n "$3" -s "$4" -t "${@:5}" --wait sleep --no-calibrate --verify
}

both_ways() {
	transfer A node:2 "$@"
	transfer B node:1 "$@"
}

sizes=0,1,$((mtu - 1)),$mtu,$((mtu + 1))
both_ways 50 "$sizes" lat
both_ways 5 1048579 lat
both_ways 40 64,65536 rate,bw
# each primitive by itself; a READ is made by the end that receives
for way in SEND,64 READ,65536 WRITE,65536; do
	both_ways 20 "${way#*,}" lat --flags "RC,${way%,*}"
done
for node in A B; do
	for name in fetched frames_by_send bulk_messages; do
		[ "$(counter "$node" "engine.$name")" -gt 0 ] || fail "$node: counter $name is 0"
	done
done
for end in A B; do
	tc qdisc add dev "veth$end" root netem loss 1% limit 10000 || die "no netem"
done
both_ways 40 "$sizes,20000" lat
for end in A B; do
	tc -s qdisc show dev "veth$end" | grep -q 'dropped [1-9]' || fail "nothing was lost at $end: the test tests nothing"
	tc qdisc del dev "veth$end" root
done
shows A nodes 'length == 2 and all(.state == "up")' || fail "a node is not up"
shows A ports '.[0] | .rx_frames > 0 and .tx_frames > 0 and .tx_bytes > 0 and .link == "up"' ||
	fail "show ports: $(weirctl --instance A --json show ports)"
