#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# bench.sh RUNS, inside the machine: the verbs driver beside perftest, two processes each, on the same
# rxe, in turn. A line per pair of runs: "lat OURS THEIRS", half a round trip of 64-byte WRITEs in us,
# median; "bw OURS THEIRS", bytes per second of 64 KiB WRITEs.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/../smoke/_init.sh"
PATH=$WEIR_BUILD/dataplane/tools:$WEIR_BUILD/test/tools:$PATH

client() {
	taskset -c 0 "$@" 127.0.0.1 >"$weir_tmp/client.log"
}

# theirs FIELD TOOL ARGUMENT...: FIELD of the printed row.
theirs() {
	local field=$1 port
	port=$(free_port)
	run theirs taskset -c 1 "${@:2}" -d rxe0 -x 1 -F -p "$port"
	await client "${@:2}" -d rxe0 -x 1 -F -p "$port" || die "$2: $(log_of theirs)"
	gone "${weir_pid[theirs]}" || fail "$2 does not end"
	stop theirs
	awk -v field="$field" '/^ *[0-9]/ { print $field; found = 1 } END { exit !found }' "$weir_tmp/client.log" ||
		die "$2: $(cat "$weir_tmp/client.log")"
}

# nicperf CPU ARGUMENT...: takes the place of the shell.
nicperf() {
	exec weir-nicperf --lcores "0@$1" --no-pci --in-memory -m 96 -- --nic verbs:rxe0 --no-calibrate --json "${@:2}"
}

# ours FIELD ARGUMENT...: that field of the first result.
ours() {
	local port
	port=$(free_port)
	run ours nicperf 1 --listen --port "$port"
	(nicperf 0 --connect 127.0.0.1 --port "$port" "${@:2}") >"$weir_tmp/ours.json" 2>"$weir_tmp/client.log" ||
		die "weir-nicperf: $(log_of client)"
	gone "${weir_pid[ours]}" || fail "weir-nicperf does not end"
	stop ours
	jq ".results[0] | $1" "$weir_tmp/ours.json"
}

ip link add vethA mtu 1500 type veth peer name vethB mtu 1500 || die "cannot make a veth pair"
undo "ip link del vethA"
ip link set vethA up && ip link set vethB up && ip addr add 10.77.0.1/24 dev vethA
rdma link add rxe0 type rxe netdev vethA || skip "no kernel with Soft-RoCE; run it by test/rxe/run.sh"
undo "rdma link del rxe0"
for ((i = 0; i < $1; i++)); do
	our=$(ours .lat_us.p50 -t lat -s 64 -n 3000) && their=$(theirs 5 ib_write_lat -s 64 -n 3000) || exit 1
	echo "lat $our $their"
	# as theirs: a work request at a time; their MB has 2^20 bytes
	our=$(ours .bytes_per_s -t write -s 65536 -n 600 --list 1) && their=$(theirs 4 ib_write_bw -s 65536 -n 600) || exit 1
	echo "bw $our $(awk -v mb="$their" 'BEGIN { print mb * 1048576 }')"
done
