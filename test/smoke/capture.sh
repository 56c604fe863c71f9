#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# weirctl capture: every frame of a run is in the file once, and tshark decodes all of them, over memif and veth.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

command -v tshark >/dev/null || skip "tshark is not installed"

# port_frames INSTANCE: frames that its port has counted, both ways.
port_frames() {
	weirctl --instance "$1" --json show ports | jq '[.[] | .rx_frames + .tx_frames] | add'
}

# capturing INSTANCE PORT FILE [OPTION...]: in the background; returns when it has begun.
capturing() {
	local instance=$1
	shift
	: >"$weir_tmp/capture.log"
	run capture weirctl --instance "$instance" --json capture "$@"
	await grep -q "Ctrl-C" "$weir_tmp/capture.log" || die "no capture: $(log_of capture)"
}

# result FIELD: what weirctl said at the end.
result() {
	sed -n '/^{/,$p' "$weir_tmp/capture.log" | jq -r ".$1"
}

# decoded FILE: a line per frame: opcode (empty: none), protocols (payload may look like anything), direction, time.
decoded() {
	tshark -r "$1" -T fields -e infiniband.bth.opcode -e frame.protocols -e frame.packet_flags_direction \
		-e frame.time_epoch 2>"$weir_tmp/tshark.log" || fail "tshark on $1: $(last_line tshark)"
}

# check FILE OPCODE...: no frame that isn't RoCE or ARP, and each of these opcodes, in both directions.
check() {
	local file=$1 opcode
	shift
	decoded "$file" >"$weir_tmp/frames"
	[ "$(wc -l <"$weir_tmp/frames")" = "$(result frames)" ] ||
		fail "$file: $(wc -l <"$weir_tmp/frames") frames, weirctl said $(result frames)"
	awk -F'\t' '$1 == "" && $2 !~ /:arp$/' "$weir_tmp/frames" | head -n 3 >"$weir_tmp/odd"
	[ ! -s "$weir_tmp/odd" ] || fail "$file: frames that tshark does not decode: $(cat "$weir_tmp/odd")"
	awk -F'\t' '$1 != "" && $2 !~ /:udp:infiniband/' "$weir_tmp/frames" | head -n 3 >"$weir_tmp/odd"
	[ ! -s "$weir_tmp/odd" ] || fail "$file: not RoCEv2: $(cat "$weir_tmp/odd")"
	for opcode in "$@"; do
		awk -F'\t' -v o="$opcode" '$1 == o {n[$3]++} END {exit !(n["0x00000001"] && n["0x00000002"])}' "$weir_tmp/frames" ||
			fail "$file: opcode $opcode is not there in both directions: $(awk -F'\t' '{n[$1 " " $3]++} END {for (k in n) print n[k] ": " k}' "$weir_tmp/frames" | tr '\n' ';')"
	done
	awk -F'\t' -v now="$(date +%s)" '$4 < now - 600 || $4 > now + 5 {bad = 1} END {exit bad}' "$weir_tmp/frames" ||
		fail "$file: times that aren't now"
}

# 6 write first, 7 middle, 8 last, 10 write only, 11 write only with immediate, 17 acknowledge
two_nodes_memif
server B
weir-perf --instance A node:2 -t lat -s 64 -n 10 >"$weir_tmp/perf.log" 2>&1 || fail "no traffic: $(last_line perf)"
# captured INSTANCE PORT FILE SIZE...: round trips of these sizes. A capture without CPU for long drops frames
# and says so: it is tried again.
captured() {
	local try size file=$3
	for ((try = 0; try < 5; try++)); do
		before=$(port_frames "$1")
		capturing "$1" "$2" "$file"
		begin=$(port_frames "$1")
		for size in "${@:4}"; do
			weir-perf --instance "$1" node:2 -t lat -s "$size" -n 100 --verify >"$weir_tmp/perf.log" 2>&1 ||
				fail "size $size: $(last_line perf)"
		done
		within=$(port_frames "$1")
		stop capture INT || fail "capture: $(log_of capture)"
		after=$(port_frames "$1")
		total=$((total + $(result frames)))
		[ "$(result dropped)" != 0 ] || return
	done
	fail "$2: frames are dropped each time: $(log_of capture)"
}
total=0
captured A net_memif0 "$weir_tmp/memif.pcapng" 64 4000 20000
check "$weir_tmp/memif.pcapng" 6 7 8 11 17
# at least the frames that the port counted during the capture, at most those around it
frames=$(result frames)
((frames >= within - begin && frames <= after - before)) ||
	fail "memif: $frames frames captured, the port counted $((within - begin)) to $((after - before))"
[ "$(stat -c %a "$weir_tmp/memif.pcapng")" = 600 ] || fail "the file is readable by others"
[ "$(counter A captured_frames)" = "$total" ] || fail "$(counter A captured_frames) frames captured, not $total"

# --packets ends a capture
capturing A net_memif0 "$weir_tmp/some.pcapng" --packets 100
weir-perf --instance A node:2 -t rate -s 64 -n 100000 >"$weir_tmp/perf.log" 2>&1 || fail "rate: $(last_line perf)"
gone "${weir_pid[capture]}" || fail "capture --packets 100 does not end"
stop capture || fail "capture --packets: $(log_of capture)"
check "$weir_tmp/some.pcapng" 11
[ "$(result frames)" = 100 ] || fail "--packets 100: $(result frames) frames"

# a flood: frames written and dropped are the frames that passed
capturing A net_memif0 "$weir_tmp/flood.pcapng"
before=$(port_frames A)
weir-perf --instance A node:2 -t rate -s 64 -D 2 >"$weir_tmp/perf.log" 2>&1 || fail "rate: $(last_line perf)"
after=$(port_frames A)
stop capture INT || fail "capture of a flood: $(log_of capture)"
check "$weir_tmp/flood.pcapng" 11 17
sum=$(($(result frames) + $(result dropped)))
[ "$sum" -ge "$((after - before))" ] || fail "flood: $sum frames seen, the port counted $((after - before))"

# live into a decoder, which goes away in the middle
weirctl --instance A capture net_memif0 - 2>"$weir_tmp/live.err" | tshark -r - -c 20 >"$weir_tmp/live.log" 2>&1 &
live=$!
beside() {
	weir-perf --instance A node:2 -t lat -s 64 -n 1000 >"$weir_tmp/perf.log" 2>&1 || fail "traffic beside a pipe: $(last_line perf)"
	has_ended "$live"
}
await beside || die "it goes on when nobody reads any more: $(cat "$weir_tmp/live.err")"
wait "$live"
[ "$(grep -c RRoCE "$weir_tmp/live.log")" -ge 1 ] || fail "nothing came through the pipe: $(log_of live)"

# one at a time; a port that isn't there; a file that can't be written; a disk that is full
capturing A net_memif0 "$weir_tmp/one.pcapng" --seconds 300
weirctl --instance A capture net_memif0 "$weir_tmp/two.pcapng" 2>"$weir_tmp/err" && fail "two captures of one port"
grep -q 'weirctl: .*is being captured; ' "$weir_tmp/err" || fail "second capture: $(cat "$weir_tmp/err")"
stop capture KILL
await weirctl --instance A capture net_memif0 "$weir_tmp/two.pcapng" --seconds 0.1 || fail "a weirctl that died keeps the port"
echo precious >"$weir_tmp/kept"
weirctl --instance A capture nosuch0 "$weir_tmp/kept" 2>"$weir_tmp/err" && fail "captured a port that isn't there"
grep -q "weirctl: .*no port 'nosuch0'; there is net_memif0" "$weir_tmp/err" || fail "no such port: $(cat "$weir_tmp/err")"
[ "$(cat "$weir_tmp/kept")" = precious ] || fail "a file was emptied for a port that isn't there"
weirctl --instance A capture net_memif0 /nosuch/file 2>"$weir_tmp/err"
[ $? = 3 ] || fail "a file that can't be opened: exit code"
if mkdir "$weir_tmp/small" && mount -t tmpfs -o size=256k tmpfs "$weir_tmp/small" 2>/dev/null; then
	undo "umount '$weir_tmp/small'"
	: >"$weir_tmp/capture.log"
	run capture weirctl --instance A --json capture net_memif0 "$weir_tmp/small/full.pcapng"
	await grep -q "Ctrl-C" "$weir_tmp/capture.log" || die "no capture: $(log_of capture)"
	weir-perf --instance A node:2 -t rate -s 64 -n 20000 >"$weir_tmp/perf.log" 2>&1
	gone "${weir_pid[capture]}" || fail "capture on a full disk does not end"
	stop capture
	[ $? = 3 ] || fail "a full disk: exit code"
	grep -q 'No space left on device' "$weir_tmp/capture.log" || fail "full disk: $(log_of capture)"
	tshark -r "$weir_tmp/small/full.pcapng" >/dev/null 2>"$weir_tmp/err" || fail "a file cut short is broken: $(cat "$weir_tmp/err")"
fi
weir-perf --instance A node:2 -t lat -s 64 -n 100 --verify >"$weir_tmp/perf.log" 2>&1 || fail "after all that: $(last_line perf)"
for name in server-B control-A control-B dataplane-A dataplane-B; do
	stop "$name" || fail "$name ended with an error"
done

# without hugepages and files of DPDK, over veth
export WEIR_EAL="--no-huge --in-memory -m 256"
two_nodes_veth 1500
server B
captured A net_af_packet0 "$weir_tmp/veth.pcapng" 64 4000 100000
check "$weir_tmp/veth.pcapng" 6 7 8 11 17
