#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Two nodes over a wire (WEIR_WIRE) whose packets have a DSCP, which either driver is told by the same option: all
# packets of connections of each end have it, in requests and answers.
# wires: verbs,roce
: "${WEIR_WIRE:=verbs,roce}"
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/../../smoke/_init.sh"

command -v tcpdump >/dev/null || skip "tcpdump is not installed"
export WEIR_WIRE
weir_spec=,dscp=46
two_nodes
server A
server B
run tcpdump tcpdump -i vethB -s 64 -U -w "$weir_tmp/wire.pcap" udp port 4791
await grep -q listening "$weir_tmp/tcpdump.log" || die "tcpdump does not listen: $(last_line tcpdump)"
measured '.verified == true' --instance A node:2 -t lat -s 64,5000 -n 20 --no-calibrate --verify
measured '.verified == true' --instance B node:1 -t lat -s 64,5000 -n 20 --no-calibrate --verify
stop tcpdump INT

# packets FILTER: how many there are.
packets() {
	tcpdump -nn -r "$weir_tmp/wire.pcap" "$1" 2>/dev/null | wc -l
}

for end in 1 2; do
	[ "$(packets "src 10.77.0.$end and ip[1] & 0xfc == 184")" -ge 40 ] ||
		fail "packets of end $end with DSCP 46: $(packets "src 10.77.0.$end and ip[1] & 0xfc == 184")"
	[ "$(packets "src 10.77.0.$end and ip[1] & 0xfc != 184")" = 0 ] ||
		fail "packets of end $end without DSCP 46: $(packets "src 10.77.0.$end and ip[1] & 0xfc != 184")"
done
exit $weir_failed
