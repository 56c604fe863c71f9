#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Two nodes over a veth pair: RoCEv2 that tcpdump sees and tshark names, immediates too.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

command -v tshark >/dev/null || skip "tshark is not installed"
two_nodes_veth 1500
run tcpdump ip netns exec "$weir_ns_a" tcpdump -i vethA -U -w "$weir_tmp/wire.pcap" -c 4000 udp port 4791
await grep -q listening "$weir_tmp/tcpdump.log" || die "tcpdump does not listen"
server B
for size in 64 4000 100000; do
	weir-perf --instance A node:2 -t lat -s $size -n 100 --verify >"$weir_tmp/perf.log" 2>&1 || fail "size $size: $(tail -n 2 "$weir_tmp/perf.log")"
done
written() { # as much as three sizes make
	[ "$(stat -c %s "$weir_tmp/wire.pcap")" -ge 300000 ]
}
await written || fail "tcpdump writes nothing: $(log_of tcpdump)"
stop tcpdump INT
tshark -r "$weir_tmp/wire.pcap" -T fields -e infiniband.bth.opcode -e infiniband.immdt -e udp.dstport >"$weir_tmp/decoded.log" 2>/dev/null
awk '{print $1}' "$weir_tmp/decoded.log" | sort -n | uniq -c >"$weir_tmp/opcodes.log"
[ "$(awk '$1 == ""' "$weir_tmp/decoded.log" | wc -l)" = 0 ] || fail "frames without a transport header"
# RC: 6 write first, 7 middle, 8 last, 9 last with immediate, 10 write only, 11 write only with immediate, 17 acknowledge
for opcode in 6 7 8 11 17; do
	grep -q " $opcode\$" "$weir_tmp/opcodes.log" || fail "opcode $opcode was not seen: $(tr '\n' ';' <"$weir_tmp/opcodes.log")"
done
awk -F'\t' '($1 == 9 || $1 == 11) && $2 == "" {bad = 1} END {exit bad}' "$weir_tmp/decoded.log" || fail "an immediate that tshark does not show"
tshark -r "$weir_tmp/wire.pcap" -c 200 >"$weir_tmp/names.log" 2>/dev/null
grep -q 'RRoCE.*RDMA Write' "$weir_tmp/names.log" || fail "tshark does not call it RRoCE"
