#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# weir-roce-peer at both ends over memif: every test as client and as server, without and with frames lost;
# bad input in one line. Against the programs that it is made for: test/rxe/tests/foreign.sh.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"
PATH=$WEIR_BUILD/dataplane/tools:$WEIR_BUILD/test/tools:$PATH

connected=(rc_pingpong srq_pingpong send_bw send_lat write_bw write_lat read_bw read_lat)
datagrams=(ud_pingpong ud_send_bw ud_send_lat)
runs=()
for size in 1 4095 4097 65536 1048579; do
	for name in "${connected[@]}"; do
		runs+=("$name:$size")
	done
done
for size in 1 1023 1024; do
	for name in "${datagrams[@]}"; do
		runs+=("$name:$size")
	done
done
runs+=(atomic_bw atomic_lat cas_bw cas_lat)

# peer NAME CPU ROLE ADDRESS RUNS ARGUMENT...
peer() {
	local name=$1 cpu=$2 role=$3 address=$4 list=$5
	shift 5
	# shellcheck disable=SC2046
	run "$name" weir-roce-peer --lcores "0@$cpu" --no-pci --in-memory $(eal_memory) \
		--vdev "net_memif0,id=0,bsize=4224,socket=$weir_memif,role=$role" -- \
		--nic "roce:net_memif0,ip=10.81.0.$address/24,timeout=4000000$spec" --port "$port" -t "$list" "$@"
}

# both COUNT RUN...: both ends, all runs.
both() {
	local count=$1 list name lines
	shift
	list=$(IFS=, && echo "$*")
	port=$(free_port)
	rm -f "$weir_tmp"/{listen,connect}.log
	peer listen 0 server 2 "$list" -n "$count" --listen
	peer connect 1 client 1 "$list" -n "$count" --connect 127.0.0.1
	for name in connect listen; do
		# it is no wait but all the work
		patience=300 gone "${weir_pid[$name]}" || die "$name does not end: $(log_of $name)"
		stop $name || die "$name: $(log_of $name)"
		lines=$(grep -c "^[a-z].* $count " "$weir_tmp/$name.log")
		[ "$lines" = $# ] || fail "$name: $lines of $# runs: $(log_of $name)"
	done
}

spec=
both 100 "${runs[@]}"
# every byte was verified
awk '$1 == "rc_pingpong" && $2 > 1 && $5 != $2 * $3 {print; bad = 1} END {exit bad}' "$weir_tmp/connect.log" || fail "not all was verified"
spec=,loss=1,dup=1,reorder=1
both 50 "${connected[@]/%/:9000}" atomic_bw cas_lat

# Bad input: exit code, one line, with a remedy.
bad() {
	refused "$1" "^weir-roce-peer: .*$2" weir-roce-peer "${@:3}"
}
nic=(--nic "roce:net_ring0,ip=10.81.0.1/24")
bad 2 "no --nic"
bad 2 "invalid value 'fly' for -t " -- "${nic[@]}" --listen -t fly
bad 3 "no DPDK port 'net_ring7'" --no-pci --in-memory --no-huge -m 128 -- --nic roce:net_ring7,ip=10.81.0.1/24 --listen -t send_bw
bad 3 "no memory for" --no-pci --in-memory --no-huge -m 64 --vdev net_ring0 -- "${nic[@]}" --listen -t send_bw:2m
