#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The NIC layer of two ends of a wire, each kind of end with each: every operation in every size around
# the path MTU, each end asking in turn, every byte looked at; then with 1 % of the frames lost each way, where one
# end is our driver. Between two ends of Linux 6.1 no frame is ours, and a READ of 1 MiB whose frames were lost has
# completed with wrong bytes there.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/../../smoke/_init.sh"
PATH=$WEIR_BUILD/dataplane/tools:$WEIR_BUILD/test/tools:$PATH
wire_mtu=1500
: "${WEIR_EAL:=-m 96}" # hugepages take their time under emulation

# nicperf NAME CPU VDEV SPEC ARGUMENT...: takes the place of the shell.
nicperf() {
	local name=$1 cpu=$2 vdev=$3 spec=$4
	shift 4
	# shellcheck disable=SC2046
	exec weir-nicperf --lcores "0@$cpu" --no-pci --in-memory $(eal_memory) ${vdev:+--vdev "$vdev"} \
		-- --nic "$spec" --no-calibrate --json "$@" >"$weir_tmp/$name.json" 2>"$weir_tmp/$name.log"
}

# Loss begins when the first run has ended.
lose() {
	local end

	await grep -q '"test":"verify"' "$weir_tmp/ask.json" || return
	for end in A B; do
		tc qdisc add dev "veth$end" root netem loss 1% limit 10000 || fail "no netem"
	done
}

# said N: what the run N says. Nobody but the roce driver invalidates keys of regions: each SEND_INV to
# verbs is left out.
said() {
	jq -c ".results[$1] | {count, repeated, not_offered, duration_s}" "$weir_tmp/ask.json"
}

# Kernel rxe waits the whole time for what follows a lost frame, and goes on; our driver waits as long as an answer
# takes, and gives up after eight times of this.
declare -A vdev spec timeout=([verbs]=10000 [roce]=4000000)
for wire in verbs,verbs verbs,roce roce,verbs roce,roce; do
	begin=$(now_ms)
	wire_pair
	wire_end A 1 "${wire%,*}"
	vdev[A]=$wire_vdev spec[A]=$wire_spec,timeout=${timeout[${wire%,*}]}
	wire_end B 2 "${wire#*,}"
	vdev[B]=$wire_vdev spec[B]=$wire_spec,timeout=${timeout[${wire#*,}]}
	port=$(free_port)
	: >"$weir_tmp/ask.json"
	nicperf listen 1 "${vdev[B]}" "${spec[B]}" --listen --port "$port" &
	weir_pid[listen]=$!
	runs=verify
	[ "$wire" = verbs,verbs ] || runs+=,verify
	nicperf ask 0 "${vdev[A]}" "${spec[A]}" --connect 127.0.0.1 --port "$port" -t "$runs" -n 2 &
	weir_pid[ask]=$!
	[ "$wire" = verbs,verbs ] || lose
	gone "${weir_pid[ask]}" || fail "$wire: does not end"
	gone "${weir_pid[listen]}" || fail "$wire: the listening process does not end"
	stop ask || fail "$wire: $(log_of ask)"
	stop listen || fail "$wire: $(log_of listen)"
	jq -e --argjson runs "$(tr , '\n' <<<"$runs" | wc -l)" '.test_info.mtu == 1024 and
		(.results | length == $runs and all(.count >= 470)) and .results[0].repeated == 0 and all(.results[]; .repeated <= 20)' \
		"$weir_tmp/ask.json" >/dev/null || fail "$wire: $(cat "$weir_tmp/ask.json")"
	for end in A B; do
		[ "$wire" = verbs,verbs ] ||
			tc -s qdisc show dev "veth$end" | grep -q 'dropped [1-9]' || fail "$wire: nothing was lost at $end: the test tests nothing"
	done
	for end in A B; do
		[ ! -d "/sys/class/infiniband/rxe$end" ] || rdma link del "rxe$end"
	done
	ip link del vethA
	echo "$wire: $(said 0), 1 % lost: $(said 1), $(($(now_ms) - begin)) ms"
done
