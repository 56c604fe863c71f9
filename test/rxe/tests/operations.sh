#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The NIC layer of two ends of a wire, each kind of end with each: every operation in every size around
# the path MTU, each end asking in turn, every byte looked at; then with 1 % of the frames lost each way.
# timeout: 200
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/../../smoke/_init.sh"
PATH=$WEIR_BUILD/dataplane/tools:$PATH
wire_mtu=1500

# nicperf NAME CPU VDEV SPEC ARGUMENT...: takes the place of the shell.
nicperf() {
	local name=$1 cpu=$2 vdev=$3 spec=$4
	shift 4
	# shellcheck disable=SC2046
	exec weir-nicperf --lcores "0@$cpu" --no-pci --in-memory $(eal_memory) ${vdev:+--vdev "$vdev"} \
		-- --nic "$spec" --no-calibrate --json "$@" >"$weir_tmp/$name.json" 2>"$weir_tmp/$name.log"
}

# verify ROUNDS MOST: at most MOST datagrams may have been sent again.
verify() {
	local port begin
	port=$(free_port)
	begin=$(now_ms)
	nicperf listen 1 "${vdev[B]}" "${spec[B]}" --listen --port "$port" &
	weir_pid[listen]=$!
	(nicperf ask 0 "${vdev[A]}" "${spec[A]}" --connect 127.0.0.1 --port "$port" -t verify -n "$1") ||
		fail "$wire: $(log_of ask); $(log_of listen)"
	gone "${weir_pid[listen]}" 20 || fail "$wire: the listening process does not end"
	stop listen || fail "$wire: $(log_of listen)"
	jq -e ".test_info.mtu == 1024 and .results[0].count >= 230 * $1 and .results[0].repeated <= $2" "$weir_tmp/ask.json" >/dev/null ||
		fail "$wire: $(cat "$weir_tmp/ask.json")"
	# nobody but the roce driver invalidates keys of regions: each SEND_INV to verbs is left out
	echo "$wire$3: $(jq -c '.results[0] | {count, repeated, not_offered}' "$weir_tmp/ask.json") in $(($(now_ms) - begin)) ms"
}

declare -A vdev spec
for wire in verbs,verbs verbs,roce roce,verbs roce,roce; do
	ip link add vethA mtu $wire_mtu type veth peer name vethB mtu $wire_mtu || die "cannot make a veth pair"
	wire_end A 1 "${wire%,*}"
	vdev[A]=$wire_vdev spec[A]=$wire_spec,timeout=10000
	wire_end B 2 "${wire#*,}"
	vdev[B]=$wire_vdev spec[B]=$wire_spec,timeout=10000
	verify 2 0 ""
	for end in A B; do
		tc qdisc add dev "veth$end" root netem loss 1% limit 10000 || die "no netem"
	done
	verify 2 20 ", 1 % lost"
	for end in A B; do
		tc -s qdisc show dev "veth$end" | grep -q 'dropped [1-9]' || fail "$wire: nothing was lost at $end: the test tests nothing"
		rdma link del "rxe$end" 2>/dev/null
	done
	ip link del vethA
done
