#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Programs that Weir did not write, on kernel Soft-RoCE, with weir-roce-peer on the roce driver at the other
# end of the wire: rdma-core's ping-pongs and perftest, each as client and as server, sizes around the path MTU.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/../../smoke/_init.sh"
PATH=$WEIR_BUILD/dataplane/tools:$PATH

count=100
runs=(send_lat:1025 write_bw:65536 read_lat:1025 srq_pingpong:1025 ud_send_bw:1024 ud_send_lat:1 atomic_bw:8 atomic_lat:8 cas_bw:8)
for size in 1 1023 1024 1025 65536; do
	runs+=("rc_pingpong:$size" "send_bw:$size" "write_lat:$size" "read_bw:$size")
	[ "$size" -gt 1024 ] || runs+=("ud_pingpong:$size")
done

wire_mtu=1500
ip link add vethA mtu 1500 type veth peer name vethB mtu 1500 || die "cannot make a veth pair"
undo "ip link del vethA"
wire_end A 1 verbs
wire_end B 2 roce
for gid in /sys/class/infiniband/rxeA/ports/1/gids/*; do
	grep -q ':ffff:0a4d:0001$' "$gid" && break
done
gid=${gid##*/}

# theirs RUN PORT [HOST]: the program, that asks HOST or is asked. It polls: what never ends runs out of CPU time, or
# loses its TCP connection. What perftest makes of a clock that an emulator keeps is no matter (-F).
theirs() {
	local test=${1%:*} size=${1#*:} port=$2 command
	shift 2
	case "$test" in
	*_pingpong) command=("ibv_$test" -g "$gid" -c -s "$size") ;;
	ud_send_*) command=("ib_${test#ud_}" -F -x "$gid" -c UD -s "$size") ;;
	cas_*) command=("ib_atomic_${test#cas_}" -F -x "$gid" -A CMP_AND_SWAP) ;;
	atomic_*) command=("ib_$test" -F -x "$gid") ;;
	*) command=("ib_$test" -F -x "$gid" -s "$size") ;;
	esac
	(ulimit -t 30 && exec "${command[@]}" -d rxeA -n "$count" -p "$port" "$@" >>"$weir_tmp/theirs.log" 2>&1) ||
		die "exit $? of ${command[*]} $*"
}

# ours NAME ARGUMENT...: weir-roce-peer, for all runs.
ours() {
	local name=$1
	shift
	# shellcheck disable=SC2046
	run "$name" weir-roce-peer --lcores 0@1 --no-pci --in-memory $(eal_memory) --vdev "$wire_vdev" -- --nic "$wire_spec" \
		-n "$count" --patience 40 --port "$port" -t "$(IFS=, && echo "${runs[*]}")" "$@"
}

for role in --listen "--connect 127.0.0.1"; do
	port=$(free_port)
	name=ours${role%% *} host=127.0.0.1
	[ "$role" = --listen ] || host=
	# shellcheck disable=SC2086
	ours "$name" $role
	[ "$role" != --listen ] || await grep -q verified "$weir_tmp/$name.log" || die "weir-roce-peer does not come up"
	for i in "${!runs[@]}"; do
		theirs "${runs[i]}" $((port + i)) ${host:+"$host"}
	done
	gone "${weir_pid[$name]}" || fail "$name does not end"
	stop "$name" || fail "$name: $(log_of "$name")"
	[ "$(grep -c "^[a-z].* $count " "$weir_tmp/$name.log")" = ${#runs[@]} ] || fail "not all runs: $(log_of "$name")"
	# where there is something to look at, it was looked at
	awk -v "role=$name" -v "count=$count" '
		$3 == count && $5 == 0 && $1 !~ (role ~ /listen/ ? "^read" : "^(ud_)?(send|write)_bw$") {print; bad = 1}
		END {exit bad}' "$weir_tmp/$name.log" || fail "$name: not verified"
done
# found by -c: in a message there is something else at the begin of a page
! grep -i 'invalid data' "$weir_tmp/theirs.log" || fail "not what was sent"
