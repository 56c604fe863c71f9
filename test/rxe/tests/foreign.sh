#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Programs that Weir did not write, on kernel Soft-RoCE, with weir-roce-peer on the roce driver at the other
# end of the wire: rdma-core's ping-pongs and perftest, each as client and as server, sizes around the path MTU.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/../../smoke/_init.sh"
PATH=$WEIR_BUILD/dataplane/tools:$WEIR_BUILD/test/tools:$PATH

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
# loses its TCP connection. What perftest makes of a clock that an emulator keeps is no matter (-F), and an answer may
# take two seconds (-u). RUN: as -t of weir-roce-peer has it, and behind a blank options that only their end needs.
theirs() {
	local run=${1%% *} port=$2 size="" command option
	local test=${run%%[:+]*}
	local -a more=() perf=(-F -u 19 -x "$gid")

	[[ $run != *:* ]] || { size=${run#*:} && size=${size%%+*}; }
	[[ $1 != *' '* ]] || read -ra more <<<"${1#* }"
	for option in $(tr + ' ' <<<"${run#"${run%%+*}"}"); do
		case "$option" in
		reversed) more+=(--reversed) ;;
		?) more+=("-$option") ;;
		*) more+=("-${option:0:1}" "${option:1}") ;;
		esac
	done
	shift 2
	case "$test" in
	*_pingpong) command=("ibv_$test" -g "$gid" -c -s "$size") ;;
	ud_send_*) command=("ib_${test#ud_}" "${perf[@]}" -c UD ${size:+-s "$size"}) ;;
	cas_*) command=("ib_atomic_${test#cas_}" "${perf[@]}" -A CMP_AND_SWAP) ;;
	atomic_*) command=("ib_$test" "${perf[@]}") ;;
	*) command=("ib_$test" "${perf[@]}" ${size:+-s "$size"}) ;;
	esac
	[[ $run == *+D* ]] || more+=(-n "$count") # a time instead
	(ulimit -t 30 && exec "${command[@]}" "${more[@]}" -d rxeA -p "$port" "$@" >>"$weir_tmp/theirs.log" 2>&1) || {
		echo "exit $? of ${command[*]} ${more[*]} $*"
		return 1
	}
}

# ours NAME ARGUMENT...: weir-roce-peer, for all runs.
ours() {
	local name=$1 run list=""
	shift
	for run in "${runs[@]}"; do list+=,${run%% *}; done
	# shellcheck disable=SC2046
	run "$name" weir-roce-peer --lcores 0@1 --no-pci --in-memory $(eal_memory) --vdev "$wire_vdev" -- --nic "$wire_spec" \
		-n "$count" --patience 40 --port "$port" -t "${list#,}" "$@"
}

# start ROLE NAME: ours with all runs; sets port, and host, which theirs ask.
start() {
	port=$(free_port) host=
	if [ "$1" = --connect ]; then
		ours "$2" --connect 127.0.0.1
		return
	fi
	host=127.0.0.1
	ours "$2" --listen
	await grep -q verified "$weir_tmp/$2.log" || die "weir-roce-peer does not come up"
}

# face ROLE NAME: all runs; what there is to look at was looked at.
face() {
	start "$1" "$2"
	for i in "${!runs[@]}"; do
		theirs "${runs[i]}" $((port + i)) ${host:+"$host"} && continue
		gone "${weir_pid[$2]}" # it says why
		die "$(tail -n 40 "$weir_tmp/theirs.log") $(log_of "$2")"
	done
	gone "${weir_pid[$2]}" || fail "$2 does not end"
	stop "$2" || fail "$2: $(log_of "$2")"
	awk -v "runs=$(IFS=, && echo "${runs[*]}")" -v "role=$1" '
		BEGIN {n = split(runs, run, ",")}
		/^[a-z].* [0-9]+$/ {
			k++
			acts = (role == "--connect") != (run[k] ~ /reversed/)
			blind = run[k] !~ /\+b/ && (run[k] ~ /^read/ ? !acts : run[k] ~ /^(ud_)?(send|write)_bw/ && acts)
			if ($5 == 0 && !blind) {print "not verified: " $0; bad = 1}
		}
		END {if (k != n) {print k " of " n " runs"; bad = 1} exit bad}' "$weir_tmp/$2.log" || fail "$2: $(log_of "$2")"
}

for role in --listen --connect; do face "$role" "plain$role"; done

# perftest's options: those that both ends must know, and behind a blank those that are theirs alone
count=5
runs=(send_bw:1025+b "send_bw:1025+q4 -e" send_bw:1025+reversed write_bw:1025+q4+b write_bw:1025+reversed
	"read_bw:1025+q4 -o 1" "read_bw:1025+b -e" read_bw:1025+reversed "atomic_bw+q4+b -o 1" cas_bw+reversed write_lat+D2
	send_bw:1025+D2+b)
for role in --listen --connect; do face "$role" "options$role"; done
runs=(ud_send_bw+a send_bw+a)
face --listen sizes-listen
runs=(ud_send_lat+a write_bw+a)
face --connect sizes-connect

# found by -c: in a message there is something else at the begin of a page
! grep -i 'invalid data' "$weir_tmp/theirs.log" || fail "not what was sent"
