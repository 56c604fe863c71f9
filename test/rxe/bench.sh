#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# bench.sh nic|remote RUNS, inside the machine: ours beside perftest on the same rxe devices, in turn. A line per pair of
# runs, "KIND OURS THEIRS". nic: the verbs driver, two processes each: "lat", half a round trip of 64-byte WRITEs in us,
# median; "bw", bytes per second of 64 KiB WRITEs. remote: two data planes; "put" and "get" of 64 KiB, bytes per second,
# beside ib_write_bw and ib_read_bw.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/../smoke/_init.sh"
PATH=$WEIR_BUILD/dataplane/tools:$WEIR_BUILD/test/tools:$PATH

# gid DEVICE: the index of its IPv4 address.
gid() {
	basename "$(grep -ls ':ffff:0a4d:' "/sys/class/infiniband/$1/ports/1/gids/"* | head -n 1)"
}

client() {
	taskset -c 0 "$@" 127.0.0.1 >"$weir_tmp/client.log"
}

# theirs FIELD TOOL ARGUMENT...: FIELD of the printed row, between the devices $from and $to.
theirs() {
	local field=$1 port
	port=$(free_port)
	run theirs taskset -c 1 "${@:2}" -d "$to" -x "$(gid "$to")" -F -p "$port"
	await client "${@:2}" -d "$from" -x "$(gid "$from")" -F -p "$port" || die "$2: $(log_of theirs)"
	gone "${weir_pid[theirs]}" || fail "$2 does not end"
	stop theirs
	awk -v field="$field" '/^ *[0-9]/ { print $field; found = 1 } END { exit !found }' "$weir_tmp/client.log" ||
		die "$2: $(cat "$weir_tmp/client.log")"
}

# their_bytes TOOL: what it moves per second, 64 KiB at a time; a MB has 2^20 bytes there.
their_bytes() {
	theirs 4 "$1" -s 65536 -n 600 | awk '{ print $1 * 1048576; found = 1 } END { exit !found }'
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

bench_nic() {
	local our their i from=rxe0 to=rxe0

	ip link add vethA mtu 1500 type veth peer name vethB mtu 1500 || die "cannot make a veth pair"
	undo "ip link del vethA"
	ip link set vethA up && ip link set vethB up && ip addr add 10.77.0.1/24 dev vethA
	rdma link add rxe0 type rxe netdev vethA || skip "no kernel with Soft-RoCE; run it by test/rxe/run.sh"
	undo "rdma link del rxe0"
	for ((i = 0; i < $1; i++)); do
		our=$(ours .lat_us.p50 -t lat -s 64 -n 3000) && their=$(theirs 5 ib_write_lat -s 64 -n 3000) || exit 1
		echo "lat $our $their"
		# as theirs: a work request at a time
		our=$(ours .bytes_per_s -t write -s 65536 -n 600 --list 1) && their=$(their_bytes ib_write_bw) || exit 1
		echo "bw $our $their"
	done
}

# our_bytes TEST: the rate of the operations that have one flush, half of them.
our_bytes() {
	weir-perf --instance A node:2 -t "$1" -s 64k -n 1200 --cpu 0 --no-calibrate --json 2>"$weir_tmp/perf.log" |
		jq -e '.results[0].bytes_per_s' || die "weir-perf -t $1: $(last_line perf)"
}

bench_remote() {
	local our their i test from=rxeA to=rxeB

	: "${WEIR_EAL:=-m 32}" # hugepages take their time under emulation
	# at rest they leave the CPUs to perftest
	WEIR_WIRE=verbs,verbs two_nodes --idle adaptive
	run server-B weir-perf --instance B --cpu 1
	await grep -q . "$weir_tmp/server-B.log" || die "weir-perf on B doesn't serve: $(log_of server-B)"
	for ((i = 0; i < $1; i++)); do
		for test in put:write get:read; do
			our=$(our_bytes "${test%:*}") && their=$(their_bytes "ib_${test#*:}_bw") || exit 1
			echo "${test%:*} $our $their"
		done
	done
}

case "$1" in
nic | remote) "bench_$1" "$2" ;;
*) die "usage: bench.sh nic|remote RUNS" ;;
esac
