#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Remote memory over a wire (WEIR_WIRE), each end in turn driving: cells, WRITEs and READs, layouts, updates,
# notices, locks; the memory looked at in the end. Then with 1 % of the frames lost each way.
# wires: verbs,verbs verbs,roce roce,roce
# timeout: 600
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/../../smoke/_init.sh"

: "${WEIR_WIRE:=verbs,verbs}"
two_nodes
server A
server B

# operate COUNT TEST [OPTION...]: from both nodes, on memory of the other.
operate() {
	measured ".verified and .count >= $1" --instance A node:2 -n "$1" -t "${@:2}" --wait sleep --no-calibrate --verify
	measured ".verified and .count >= $1" --instance B node:1 -n "$1" -t "${@:2}" --wait sleep --no-calibrate --verify
}

operate 40 put,get -s 0,8,932,933,8192
operate 10 put,get -s 8193,65537,1m # WRITEs and READs of the NICs
operate 20 put,get -s 4096 --layout 8:24
operate 40 acc,fop,cas
operate 40 notify -s 8
measured '.count == 40' --instance A node:2 -t lock -n 40 --wait sleep --no-calibrate
for node in A B; do
	[ "$(counter "$node" engine.remote_operations)" -gt 0 ] || fail "$node has executed nothing"
done
for end in A B; do
	tc qdisc add dev "veth$end" root netem loss 1% limit 10000 || die "no netem"
done
operate 40 put,get -s 8,20000
operate 100 fop
for end in A B; do
	tc -s qdisc show dev "veth$end" | grep -q 'dropped [1-9]' || fail "nothing was lost at $end: the test tests nothing"
	tc qdisc del dev "veth$end" root
done
shows A nodes 'length == 2 and all(.state == "up")' || fail "a node is not up"
