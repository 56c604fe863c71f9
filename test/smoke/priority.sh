#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Priorities end to end: packets of each have its DSCP and VLAN priority in both directions.
# timeout: 200
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

command -v tshark >/dev/null || skip "tshark is not installed"

# messages DSCP PCP: WRITEs with an immediate, marked so, from A and to A.
messages() {
	tshark -r "$file" -Y "infiniband.bth.opcode == 11 && ip.dsfield.dscp == $1 && vlan.priority == $2" \
		-T fields -e frame.packet_flags_direction 2>"$weir_tmp/tshark.log" >"$weir_tmp/marked" ||
		fail "tshark: $(last_line tshark)"
	echo "$(grep -c 0x00000001 "$weir_tmp/marked") $(grep -c 0x00000002 "$weir_tmp/marked")"
}

# run_as PRIORITY DSCP PCP: round trips of a program with this priority, and no others, are marked so.
run_as() {
	local in out other
	file=$weir_tmp/$1.pcapng
	weirctl --instance A set program.weir-perf.priority "$1" || fail "no priority $1 for a program"
	: >"$weir_tmp/capture.log"
	run capture weirctl --instance A capture net_memif0 "$file"
	await grep -q "Ctrl-C" "$weir_tmp/capture.log" || die "no capture: $(log_of capture)"
	weir-perf --instance A node:2 -t lat -s 64 -n 500 --verify >"$weir_tmp/perf.log" 2>&1 ||
		fail "traffic with priority $1: $(last_line perf)"
	stop capture INT || fail "capture: $(log_of capture)"
	read -r in out < <(messages "$2" "$3")
	if [ "$in" -lt 400 ] || [ "$out" -lt 400 ]; then
		fail "priority $1: $in and $out messages have DSCP $2 and PCP $3"
	fi
	for other in "0 1" "8 0" "40 5"; do
		[ "$other" != "$2 $3" ] || continue
		# shellcheck disable=SC2086
		read -r in out < <(messages $other)
		[ "$((in + out))" -le 20 ] || fail "priority $1: $in and $out messages are marked $other"
	done
}

two_nodes_memif ,vlan=77,pcp=1,pcp_low=0,pcp_high=5,dscp_high=40
server B
run_as normal 0 1
run_as low 8 0
run_as high 40 5
