#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Two nodes over a wire (WEIR_WIRE) with IPv6 addresses, then in a VLAN, then both: sizes around the path
# MTU, contents verified, each end in turn driving; the peer named by its address too.
# wires: verbs,roce
: "${WEIR_WIRE:=verbs,roce}"
if [ -z "${WEIR_WIRE_NET:-}" ]; then
	for net in six vlan six,vlan; do
		WEIR_WIRE_NET=$net "$0" || exit
	done
	exit 0
fi
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/../../smoke/_init.sh"

export WEIR_WIRE
two_nodes
server A
server B
# a peer by its own address
peer="10.77.0.2"
[[ $WEIR_WIRE_NET == *six* ]] && peer="[fd00:77::2]"
for size in 0 1 1023 1024 1025 100003; do
	for end in "A $peer" "B node:1"; do
		# shellcheck disable=SC2086
		measured '.verified == true' --instance $end -t lat -s "$size" -n 20 --no-calibrate --verify
	done
done
shows A ports '.[0] | .rx_frames > 0 and .link == "up"' || fail "show ports: $(weirctl --instance A --json show ports)"
