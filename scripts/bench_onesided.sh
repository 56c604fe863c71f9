# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154
# Sourced by bench.sh: the set onesided, operations on memory of other programs beside messages of the same build.

# in_turn NAME UNIT OP TARGET COMMAND... -- COMMAND...: the number that a command prints divided by that of another, in
# turn, as many pairs as --runs says. A command that prints nothing was unsteady. Of a caller, if set: measured_by, the
# command that these are arguments of, and measured_called, its name in the record.
in_turn()
{
	local name=$1 unit=$2 op=$3 target=$4 try first second called=${measured_called:-}
	local -a one=() ratios=()
	shift 4

	wanted "$name" || return 0
	while [ "$1" != -- ]; do
		one+=("$1")
		shift
	done
	shift
	for ((try = 0; try < 100 && ${#ratios[@]} < runs; try++)); do
		first=$("${measured_by[@]}" "${one[@]}") || break
		second=$("${measured_by[@]}" "$@") || break
		if [ -z "$first" ] || [ -z "$second" ]; then continue; fi
		ratios+=("$(awk -v a="$first" -v b="$second" 'BEGIN { print a / b }')")
	done
	[ "${#ratios[@]}" -ge "$runs" ] || ratios=()
	printf '%s\n' "${ratios[@]}" | record "$name" "$unit" "$op" "$target" paired "$called${one[*]}, in turn with $called$*"
}

# beside NAME UNIT OP TARGET JQ ARGUMENT... -- ARGUMENT...: in_turn of steady runs of weir-perf. JQ: the value from a
# result.
beside()
{
	local -a measured_by=(steady_value "$5")
	local measured_called="weir-perf "

	in_turn "${@:1:4}" "${@:6}"
}

# steady_value JQ ARGUMENT...: the value of a run, or nothing if it was unsteady.
steady_value()
{
	local expression=$1
	shift

	if ! weir-perf "$@" --json >"$weir_tmp/result.json" 2>"$weir_tmp/perf.log"; then
		echo "weir-perf $*: $(tail -n 1 "$weir_tmp/perf.log")" >&2
		return 1
	fi
	jq -r ".results[0] | select(.calibration.label == \"steady\") | $expression" "$weir_tmp/result.json"
}

# small_gets TEST: p99 of gets of 8 bytes while another program does TEST with 16 MiB.
small_gets()
{
	local pid

	weir-perf --instance A node:2 -t "$1" -s 16m -D 5 >"$weir_tmp/load.log" 2>&1 &
	pid=$!
	sleep 1
	steady_value .lat_us.p99 --instance A node:2 -t get -s 8 -D 1 --cpu 0
	kill "$pid" 2>/dev/null
	wait "$pid"
}

# beside_load NAME UNIT OP TARGET: small gets beside large puts, divided by those beside large messages, in turn.
beside_load()
{
	local try first second
	local -a ratios=()

	wanted "$1" || return 0
	for ((try = 0; try < 100 && ${#ratios[@]} < runs; try++)); do
		first=$(small_gets put)
		second=$(small_gets bw)
		if [ -z "$first" ] || [ -z "$second" ]; then continue; fi
		ratios+=("$(awk -v a="$first" -v b="$second" 'BEGIN { print a / b }')")
	done
	[ "${#ratios[@]}" -ge "$runs" ] || ratios=()
	printf '%s\n' "${ratios[@]}" | record "$1" "$2" "$3" "$4" paired "weir-perf -t get -s 8 beside -t put -s 16m, in turn with beside -t bw"
}

# Compiles rma-LAYER into $weir_tmp for each MPI that is there; sets layers.
build_rma()
{
	local layer flags

	layers=()
	for layer in openmpi mpich; do
		flags=$(peer_flags "$layer")
		# shellcheck disable=SC2086
		if [ -n "$flags" ] && cc -std=gnu11 -O2 -o "$weir_tmp/rma-$layer" test/bench/rma_mpi.c $flags 2>"$weir_tmp/cc.log"; then
			layers+=("$layer")
		else
			echo "onesided: $layer is missing; --install installs ${PEER_PACKAGES[*]}" >&2
		fi
	done
}

# rma LAYER OPERATION [BYTES]: microseconds of an operation on 8 or so many bytes and its flush, or of an epoch.
rma()
{
	local -a launch=(mpirun.mpich -np 2) env=()

	if [ "$1" = openmpi ]; then
		env=(OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1)
		launch=(mpirun.openmpi --oversubscribe -np 2)
	fi
	env "${env[@]}" timeout 60 "${launch[@]}" "$weir_tmp/rma-$1" "$2" "${3:-8}" 0.5 2>"$weir_tmp/rma.log" | jq -e .us ||
		{ echo "onesided: $1 failed: $(tail -n 1 "$weir_tmp/rma.log")" >&2; return 1; }
}

# ucx_puts: puts of 8 bytes per second, one flush at the end.
ucx_puts()
{
	local pid

	UCX_TLS=posix,sysv,cma,self ucx_perftest -c 1 >"$weir_tmp/ucx.log" 2>&1 &
	pid=$!
	sleep 0.5
	UCX_TLS=posix,sysv,cma,self timeout 60 ucx_perftest localhost -c 0 -t ucp_put_bw -s 8 -n 50000000 -f -v 2>>"$weir_tmp/ucx.log" |
		awk -F , 'NF > 5 { rate = $NF } END { if (!rate) exit 1; print rate }' ||
		{ echo "onesided: ucx_perftest failed: $(tail -n 1 "$weir_tmp/ucx.log")" >&2; kill "$pid" 2>/dev/null; wait "$pid"; return 1; }
	wait "$pid"
}

# beside_peers NAME UNIT OP TARGET JQ PEER -- ARGUMENT...: the value of weir-perf divided by that of a peer, in turn.
# PEER: a command that prints one value per peer, of which the best is the least for '<=', else the largest.
beside_peers()
{
	local name=$1 unit=$2 op=$3 target=$4 expression=$5 peer=$6 try own best
	local -a ratios=()

	shift 7
	wanted "$name" || return 0
	for ((try = 0; try < 100 && ${#ratios[@]} < runs; try++)); do
		own=$(steady_value "$expression" "$@") || break
		best=$($peer | sort -g | if [ "$op" = '<=' ]; then head -n 1; else tail -n 1; fi)
		[ -n "$best" ] || break
		[ -z "$own" ] || ratios+=("$(awk -v a="$own" -v b="$best" 'BEGIN { print a / b }')")
	done
	[ "${#ratios[@]}" -ge "$runs" ] || ratios=()
	printf '%s\n' "${ratios[@]}" | record "$name" "$unit" "$op" "$target" paired "weir-perf $*, in turn with $peer"
}

# beside_copy NAME SIZE TARGET: the rate of mapped puts divided by that of memcpy() between such memory, in turn.
beside_copy()
{
	local try own bare
	local -a ratios=()

	wanted "$1" || return 0
	for ((try = 0; try < 100 && ${#ratios[@]} < runs; try++)); do
		own=$(steady_value '.bytes_per_s / 1e9' --instance A node:1 -t put -s "$2" -D 0.5 --cpu 0) || break
		bare=$(taskset -c 0 copy_bench "$2" 0.25) || break
		[ -z "$own" ] || ratios+=("$(awk -v a="$own" -v b="$bare" 'BEGIN { print a / b }')")
	done
	[ "${#ratios[@]}" -ge "$runs" ] || ratios=()
	printf '%s\n' "${ratios[@]}" | record "$1" "x memcpy between such memory: mapped puts of $2 B" '>=' "$3" paired \
		"weir-perf -t put -s $2, in turn with copy_bench $2 0.25"
}

# all_rma OPERATION [BYTES]: rma of each layer.
all_rma()
{
	local layer

	for layer in "${layers[@]}"; do rma "$layer" "$@"; done
}

# sum_1k: sums of 1,024 doubles through a window, the better of those by the program and those by the engine.
sum_1k()
{
	local by program engine
	local -a run=(--instance A node:1 -t acc --type double -s 8192 --through window -D 0.5 --cpu 0)

	program=$(steady_value .lat_us.mean "${run[@]}") || return 1
	engine=$(steady_value .lat_us.mean "${run[@]}" --by-engine) || return 1
	for by in "$program" "$engine"; do [ -z "$by" ] || echo "$by"; done | sort -g | head -n 1
}

# sums_beside_peers NAME UNIT TARGET: the time of sum_1k divided by that of the best MPI, in turn.
sums_beside_peers()
{
	local try own best
	local -a ratios=()

	wanted "$1" || return 0
	for ((try = 0; try < 100 && ${#ratios[@]} < runs; try++)); do
		best=$(all_rma sum 8192 | sort -g | head -n 1)
		[ -n "$best" ] || break
		own=$(sum_1k) || break
		[ -z "$own" ] || ratios+=("$(awk -v a="$own" -v b="$best" 'BEGIN { print a / b }')")
	done
	[ "${#ratios[@]}" -ge "$runs" ] || ratios=()
	printf '%s\n' "${ratios[@]}" | record "$1" "$2" '<=' "$3" paired \
		"weir-perf -t acc --type double -s 8192 --through window, with and without --by-engine, in turn with all_rma sum 8192"
}

# stencil WAY WAY: of two programs of one host, the time that rows by the first way take, divided by that of the second.
stencil()
{
	local i table=stencil-$RANDOM

	for i in 0 1; do
		WEIR_INSTANCE=A run "stencil-$i" taskset -c "$i" example-window_stencil "$table" 2 64 20000
	done
	for i in 0 1; do
		wait "${weir_pid[stencil-$i]}" || die "window_stencil: $(last_line "stencil-$i")"
	done
	cat "$weir_tmp"/stencil-[01].log | awk -v one="$1" -v two="$2" '
		$0 ~ "^halo by " one ": " { a = $(NF - 3) } $0 ~ "^halo by " two ": " { b = $(NF - 3) } END { if (a && b) print a / b }'
	rm "$weir_tmp"/stencil-[01].log
}

# stencils NAME WAY TARGET: rows by notices beside another way.
stencils()
{
	local n

	wanted "$1" || return 0
	for ((n = 0; n < runs; n++)); do stencil "$2" notices; done |
		record "$1" "x by $2: rows by notices, two programs of the host" '>=' "$3" any "example-window_stencil NAME 2 64 20000"
}

# example_us PROGRAM NAME ARGUMENT...: microseconds of a step of two programs of one host.
example_us()
{
	local i

	for i in 0 1; do
		WEIR_INSTANCE=A run "example-$i" taskset -c "$i" "$@"
	done
	for i in 0 1; do
		wait "${weir_pid[example-$i]}" || die "$1: $(last_line "example-$i")"
	done
	sed -n 's/^.*: \([0-9.]*\) us a step$/\1/p' "$weir_tmp"/example-[01].log | head -n 1
	rm "$weir_tmp"/example-[01].log
}

# by_messages NAME WHAT PROGRAM ARGUMENT...: the time that its version by messages takes, divided by that by puts, in
# turn.
by_messages()
{
	local name=$1 what=$2 program=$3 table=example-$RANDOM n
	shift 3

	wanted "$name" || return 0
	for ((n = 0; n < runs; n++)); do
		awk -v a="$(example_us "$program" --by messages "$table" 2 "$@")" -v b="$(example_us "$program" "$table" 2 "$@")" \
			'BEGIN { if (a && b) print a / b }'
	done | record "$name" "x by messages: $what by puts, two programs of the host" - 0 paired "$program NAME 2 $*"
}

# Windows of two programs of the same host, beside MPI's; and notices beside messages.
mapped_windows()
{
	local kind
	local -a size layers=() window=(--instance A node:1 -D 0.5 --cpu 0)

	any_wanted os_window_{put,get,acc,fop,cas}_8 os_acc_1k_double os_lock os_lock_put os_lock_all os_fence_2 os_pscw_2 \
		os_window_notify_8 os_stencil_{messages,fence} os_fft os_dsde os_cg || return 0
	build_rma
	one_node --idle adaptive
	run server-A weir-perf --instance A --cpu 1
	await grep -q . "$weir_tmp/server-A.log" || die "weir-perf doesn't serve"
	for kind in put get acc fop cas; do
		size=(-s 8)
		case "$kind" in fop | cas) size=() ;; esac
		beside_peers "os_window_${kind}_8" "x the best MPI: $kind of 8 B and flush through a window" '<=' 0.5 .lat_us.mean "all_rma $kind" -- \
			"${window[@]}" -t "$kind" --through window "${size[@]}"
	done
	sums_beside_peers os_acc_1k_double "x the best MPI: sum of 1,024 doubles and flush through a window" 0.8
	beside_peers os_lock "x the best MPI: exclusive lock and unlock, free" '<=' 0.5 .lat_us.mean "all_rma lock" -- \
		"${window[@]}" -t lock --through window
	beside_peers os_lock_put "x the best MPI: exclusive lock, put of 8 B, unlock" '<=' 0.5 .lat_us.mean "all_rma lock_put" -- \
		"${window[@]}" -t lock -s 8 --through window
	beside_peers os_lock_all "x the best MPI: lock_all and unlock_all" '<=' 0.5 .lat_us.mean "all_rma lock_all" -- \
		"${window[@]}" -t lockall
	beside_peers os_fence_2 "x the best MPI: fence of two programs" '<=' 0.7 .lat_us.mean "all_rma fence" -- "${window[@]}" -t fence
	beside_peers os_pscw_2 "x the best MPI: post, start, complete, wait of two programs, both ways" '<=' 0.7 .lat_us.mean "all_rma pscw" -- \
		"${window[@]}" -t pscw
	beside os_window_notify_8 "x round trip of 8 B on the host, mean: notified ping-pong with watches" '<=' 1.25 .lat_us.mean \
		"${window[@]}" -t notify -s 8 --through window -- "${window[@]}" -t lat -s 8
	stop_programs
	stencils os_stencil_messages messages 1.1
	stencils os_stencil_fence fence 1.5
	by_messages os_fft "Fourier transforms of 64^3 in slabs" example-window_fft 64 10
	by_messages os_dsde "sparse exchanges of 64 messages" example-window_sparse 64 500
	by_messages os_cg "conjugate gradients of 8^4" example-window_lattice 8 3
	stop_all
}

# Windows of two nodes beside messages; programs that contend for a window's lock; its recovery; halos.
far_windows()
{
	local kind
	local -a window=(--instance A node:2 -D 1 --cpu 0)

	any_wanted os_window_rnotify_p50 os_rfence_p50 os_rfence_mean os_window_lock_32 os_window_lock_32_readers os_window_recover \
		os_window_recover_far || return 0
	two_nodes_memif "" --idle adaptive
	run server-B weir-perf --instance B --cpu 1
	await grep -q . "$weir_tmp/server-B.log" || die "weir-perf doesn't serve"
	beside os_window_rnotify_p50 "x round trip of 64 B, p50: notified ping-pong of 8 B with watches" '<=' 1.1 .lat_us.p50 \
		"${window[@]}" -t notify -s 8 --through window -- "${window[@]}" -t lat -s 64
	beside os_rfence_p50 "x round trip of 64 B, p50: fence of two nodes" '<=' 0.85 .lat_us.p50 \
		"${window[@]}" -t fence -- "${window[@]}" -t lat -s 64
	# of two members one may stay ahead: its fences take more and less than one way in turn
	beside os_rfence_mean "x round trip of 64 B, mean: fence of two nodes" - 0 .lat_us.mean \
		"${window[@]}" -t fence -- "${window[@]}" -t lat -s 64
	perf os_window_lock_32 "x the mean: least count of 32 programs that contend for a window's lock" '>=' 0.33 '.shares.min / .shares.mean' \
		--instance A node:2 -t lock --through window --programs 32 -D 10 --cpu 0
	perf os_window_lock_32_readers "x the mean: least count of 32 programs, half of which lock shared" '>=' 0.33 \
		'.shares.min / .shares.mean' --instance A node:2 -t lock --through window --programs 32 --readers 16 -D 10 --cpu 0
	stop_programs
	! wanted os_window_recover ||
		window_recover B B | record os_window_recover "ms from the SIGKILL of the holder of a window's lock to the next holder, one host" \
			'<=' 100 any "locker INSTANCE window"
	! wanted os_window_recover_far ||
		window_recover B A | record os_window_recover_far "ms likewise, the holder on the other node" '<=' 1000 any "locker INSTANCE window"
	stop_all
}

# What fences do between hosts: the barrier of their leaders alone, in virtual time. Messages of a leader, beyond
# log2 of the hosts, rounded up: the worst of 2 to 32 hosts. Its time, a + b log2 n in times of a message: b and R².
fence_steps()
{
	local command="test-collectives --figures" steps=$weir_tmp/barriers

	any_wanted os_fence_signals os_fence_virtual os_fence_virtual_fit || return 0
	"$WEIR_BUILD/test/sim/test-collectives" --figures >"$steps" || : >"$steps"
	! wanted os_fence_signals || awk '$1 > 1 && $1 <= 32 {
			for (due = 0; 2 ^ due < $1; due++)
				;
			off = $2 > due ? $2 - due : due - $2
			if (off > most) most = off
			n++
		}
		END { if (n == 31) print most + 0 }' "$steps" |
		record os_fence_signals "more or fewer than log2 of the hosts, rounded up: signals of a leader per fence, worst of 2 to 32" '<=' 0 any "$command"
	awk '$1 > 1 && 2 ^ int(log($1) / log(2) + 0.5) == $1 {
			x = log($1) / log(2)
			n++; sx += x; sy += $3; sxx += x * x; sxy += x * $3; syy += $3 * $3
		}
		END { if (n == 10) {
			b = (n * sxy - sx * sy) / (n * sxx - sx * sx)
			print b, (n * sxy - sx * sy) ^ 2 / ((n * sxx - sx * sx) * (n * syy - sy * sy))
		} }' "$steps" >"$weir_tmp/fit"
	! wanted os_fence_virtual || cut -d ' ' -f 1 "$weir_tmp/fit" |
		record os_fence_virtual "one-way signals per doubling of the hosts, 2 to 1,024: a fence" '<=' 1.1 any "$command"
	! wanted os_fence_virtual_fit || cut -d ' ' -f 2 "$weir_tmp/fit" |
		record os_fence_virtual_fit "R² of a + b log2 n: likewise" '>=' 0.99 any "$command"
}

# run_fences DIR: in a cluster: all its nodes fence. Prints µs of a fence, and µs of CPU per member and fence, of its
# program and its data plane, while all fence.
run_fences()
{
	local perf before after pids

	weir-perf --alltoall -t fence -D 12 --stats-period 0.2 --no-calibrate --json >"$1/result.json" 2>"$1/perf.log" &
	perf=$!
	until grep -q 'M/s, [1-9]' "$1/perf.log" || ! kill -0 "$perf"; do sleep 0.1; done 2>/dev/null
	sleep 1
	pids="$(cat "/proc/$perf/task/$perf/children" "$WEIR_RUN_DIR"/n*/dataplane.pid)"
	# shellcheck disable=SC2086
	before=$(ticks $pids)
	sleep 5
	# shellcheck disable=SC2086
	after=$(ticks $pids)
	kill -0 "$perf" 2>/dev/null && wait "$perf" &&
		jq -r --argjson ticks "$((after - before))" --argjson hz "$(getconf CLK_TCK)" \
			'.results[0] | "\(.lat_us.mean) \(1e6 * $ticks / $hz / 5 / .msgs_per_s)"' "$1/result.json"
}

# A fence of 32 nodes, whose 97 processes take turns on the CPUs: told, not judged.
fence_nodes()
{
	local n

	any_wanted os_fence_32 os_fence_32_cpu || return 0
	export -f run_fences ticks
	for ((n = 0; n < runs; n++)); do
		"$weir_root/scripts/cluster.sh" 32 -- bash -c "run_fences '$weir_tmp'" 2>"$weir_tmp/cluster.log" || tail -n 1 "$weir_tmp/cluster.log" >&2
	done >"$weir_tmp/fences"
	cut -d ' ' -f 1 "$weir_tmp/fences" | record os_fence_32 "us: a fence of 32 nodes, 97 processes on $(nproc) CPUs" - 0 any \
		"cluster.sh 32 -- weir-perf --alltoall -t fence"
	cut -d ' ' -f 2 "$weir_tmp/fences" | record os_fence_32_cpu "us: CPU time of a fence of 32 nodes per member, its program and its data plane" - 0 any \
		"utime+stime over 5 s of the same"
}

# Bytes that the library allocates for a window at a member, of 1,024 members and of 32; the worst kind.
memory_figure()
{
	wanted os_memory_p || return 0
	"$WEIR_BUILD/test/unit/window_memory_test" 2>"$weir_tmp/memory.log" |
		awk '$1 == "memory" { bytes[$2, $3] = $4; kinds[$2] }
			END { for (k in kinds) if (bytes[k, 32]) { r = bytes[k, 1024] / bytes[k, 32]; if (r > most) most = r }
				if (most) print most }' |
		record os_memory_p "x with 32 members: bytes of a window at one of 1,024, on hosts of 8" '<=' 1.25 any window_memory_test
}

# Operations on memory of the same host that is mapped.
mapped_onesided()
{
	local kind
	local -a size layers=()

	any_wanted os_put_8 os_get_8 os_acc_8 os_fop_8 os_cas_8 os_put_rate_8 os_put_64k os_put_1m \
		"${host_models[@]}" || return 0
	build_rma
	one_node --idle adaptive
	run server-A weir-perf --instance A --cpu 1
	await grep -q . "$weir_tmp/server-A.log" || die "weir-perf doesn't serve"
	for kind in put get acc fop cas; do
		size=(-s 8)
		case "$kind" in fop | cas) size=() ;; esac
		beside_peers "os_${kind}_8" "x the best MPI: $kind of 8 B and flush, mapped" '<=' 0.5 .lat_us.mean "all_rma $kind" -- \
			--instance A node:1 -t "$kind" "${size[@]}" -D 0.5 --cpu 0
	done
	beside_peers os_put_rate_8 "x UCX: puts of 8 B, mapped" '>=' 1.0 .msgs_per_s ucx_puts -- \
		--instance A node:1 -t put -s 8 -D 0.5 --cpu 0
	beside_copy os_put_64k 65536 0.95
	beside_copy os_put_1m 1048576 0.9
	models host --instance A node:1 --cpu 0
	stop_all
}

# recover NEXT HOLDER: ms from the SIGKILL of a program on HOLDER, with a lock of memory on B, to the lock of one on
# NEXT.
recover()
{
	local i at memory=memory-$1$2 holder taker

	run "$memory" locker B export "$weir_tmp/key"
	await grep -q ready "$weir_tmp/$memory.log" || die "no export"
	for ((i = 0; i < runs; i++)); do
		holder=holder-$1$2$i taker=taker-$1$2$i
		run "$holder" locker "$2" hold "$weir_tmp/key" exclusive
		await grep -q held "$weir_tmp/$holder.log" || die "no lock"
		run "$taker" locker "$1" take "$weir_tmp/key" exclusive
		await sh -c "weirctl --instance B --json show exports | jq -e '.[0].waiters == 1'" || die "nobody waits"
		at=$(now_ms)
		kill -KILL "${weir_pid[$holder]}"
		await grep -q 'held -130' "$weir_tmp/$taker.log" || die "the lock of a dead program stays"
		awk -v at="$at" '/held/ { print $1 - at }' "$weir_tmp/$taker.log"
	done
	stop "$memory"
}

# window_recover NEXT HOLDER: the same for the lock of a member on B of a window, each time of another one.
window_recover()
{
	local i at name member holder taker

	for ((i = 0; i < runs; i++)); do
		name=window-$1$2-$i member=member-$1$2$i holder=wholder-$1$2$i taker=wtaker-$1$2$i
		run "$member" locker B window "$name" 0
		run "$holder" locker "$2" window "$name" 1
		run "$taker" locker "$1" window "$name" 2
		await grep -q held "$weir_tmp/$holder.log" || die "no lock: $(last_line "$holder")"
		await sh -c "weirctl --instance B --json show exports | jq -e 'any(.[]; .waiters == 1)'" || die "nobody waits"
		at=$(now_ms)
		kill -KILL "${weir_pid[$holder]}"
		await grep -q 'held -130' "$weir_tmp/$taker.log" || die "the lock of a dead program stays"
		awk -v at="$at" '/held/ { print $1 - at }' "$weir_tmp/$taker.log"
		stop "$member"
	done
}

# hash_rate NODE NODE: inserts per second of a table of two members on these nodes, of both together.
hash_rate()
{
	local i table=table-$RANDOM

	WEIR_INSTANCE=$1 run hash-1 example-remote_hash "$table" 2 200000
	WEIR_INSTANCE=$2 run hash-2 example-remote_hash "$table" 2 200000
	for i in 1 2; do
		wait "${weir_pid[hash-$i]}" || die "remote_hash: $(last_line "hash-$i")"
	done
	sed -n 's/.*, \([0-9]*\) per second$/\1/p' "$weir_tmp/hash-1.log"
}

# The best that a table over MPI's windows can do: each of two members swaps, and needs nothing else.
all_rma_hash()
{
	all_rma cas | jq -r '2000000 / .'
}

# The same over requests: half of the inserts are a member's own and cost nothing, and neither member slows the other.
request_hash()
{
	steady_value '4 * .msgs_per_s' --instance A node:2 -t request -s 16 -D 1 --cpu 0
}

# hash NAME UNIT TARGET PEER NODE NODE: the rate of inserts divided by that of the peer, in turn.
hash()
{
	local name=$1 unit=$2 target=$3 peer=$4 try own best
	local -a ratios=()

	shift 4
	wanted "$name" || return 0
	for ((try = 0; try < 30 && ${#ratios[@]} < runs; try++)); do
		own=$(hash_rate "$@")
		best=$($peer | sort -g | tail -n 1)
		[ -z "$own" ] || [ -z "$best" ] || ratios+=("$(awk -v a="$own" -v b="$best" 'BEGIN { print a / b }')")
	done
	[ "${#ratios[@]}" -ge "$runs" ] || ratios=()
	printf '%s\n' "${ratios[@]}" | record "$name" "$unit" '>=' "$target" paired "example-remote_hash table 2 200000, in turn with $peer"
}

# The NIC layer alone, as the set nics measures it.
nic_writes() { memif_options=,rsize=13 nicperf_two -t write -s 64 -D 0.5 --depth 512 "$@"; }
nic_reads() { nicperf_loop -t read -s 64 -D 0.5 "$@"; }
nic_bytes() { nicperf_two -t write -s 65536 -D 0.5 "$@"; }

# beside_nic NAME UNIT TARGET JQ NIC ARGUMENT...: the value of weir-perf divided by that of the NIC layer, in turn. Of
# the latter also runs count that seem unsteady: its other end polls while the machine is calibrated.
beside_nic()
{
	local name=$1 unit=$2 target=$3 expression=$4 nic=$5 try own bare
	local -a ratios=()
	shift 5

	wanted "$name" || return 0
	for ((try = 0; try < 100 && ${#ratios[@]} < runs; try++)); do
		own=$(steady_value "$expression" "$@") || break
		bare=$($nic --json 2>"$weir_tmp/perf.log" | jq -r ".results[0] | $expression")
		[ -z "$own" ] || [ -z "$bare" ] || ratios+=("$(awk -v a="$own" -v b="$bare" 'BEGIN { print a / b }')")
	done
	[ "${#ratios[@]}" -ge "$runs" ] || ratios=()
	printf '%s\n' "${ratios[@]}" | record "$name" "$unit" '>=' "$target" paired "weir-perf $*, in turn with $nic"
}

# One way of a notified put of 64 KiB, without its answer, divided by that of a message, in turn.
notified_64k()
{
	local try large small message
	local -a ratios=()

	wanted os_rnotify_64k || return 0
	for ((try = 0; try < 100 && ${#ratios[@]} < runs; try++)); do
		large=$(steady_value .lat_us.p50 --instance A node:2 -t notify -s 64k -D 1 --cpu 0) || break
		small=$(steady_value .lat_us.p50 --instance A node:2 -t notify -s 8 -D 0.5 --cpu 0) || break
		message=$(steady_value .lat_us.p50 --instance A node:2 -t lat -s 64k -D 1 --cpu 0) || break
		if [ -z "$large" ] || [ -z "$small" ] || [ -z "$message" ]; then continue; fi
		ratios+=("$(awk -v l="$large" -v s="$small" -v m="$message" 'BEGIN { print (l - s / 2) / (m / 2) }')")
	done
	[ "${#ratios[@]}" -ge "$runs" ] || ratios=()
	printf '%s\n' "${ratios[@]}" | record os_rnotify_64k "x a message of 64 KiB, p50: notified put, one way" '<=' 1.2 paired \
		"weir-perf -t notify -s 64k, less half of -s 8, in turn with -t lat -s 64k"
}

# point X JQ ARGUMENT...: adds a line "X MICROSECONDS" to $weir_tmp/points, if a run has that value.
point()
{
	local x=$1 expression=$2
	shift 2

	weir-perf "$@" --json 2>"$weir_tmp/perf.log" |
		jq -r --argjson n "$x" ".results[0] | $expression | select(. > 0) | \"\\(\$n) \\(.)\"" >>"$weir_tmp/points"
}

# fit NAME WHAT PER SCALE COMMAND: tells the points, and a line a + b n through them by least squares of relative errors:
# a in µs, b in ns per SCALE of n, which PER names; SCALE log2: a + b log2 n. '%' in WHAT and COMMAND is n.
fit()
{
	local name=$1 what=$2 per=$3 n us form="a + b n"

	[ "$4" != log2 ] || form="a + b log2 n"
	while read -r n us; do
		echo "$us" | record "${name}_$n" "us: ${what/\%/$n}" - 0 any "${5/\%/$n}"
	done <"$weir_tmp/points"
	awk -v scale="$4" '{ n = scale == "log2" ? log($1) / log(2) : $1 / scale
			x = 1 / $2; y = n / $2; xx += x * x; yy += y * y; xy += x * y; sx += x; sy += y }
		END { d = xx * yy - xy * xy; if (d > 0) print (sx * yy - sy * xy) / d, 1000 * (sy * xx - sx * xy) / d }' \
		"$weir_tmp/points" >"$weir_tmp/line"
	cut -d ' ' -f 1 "$weir_tmp/line" | record "${name}_a" "us: ${what/\%/n} is $form" - 0 any "a line through ${name}_N"
	cut -d ' ' -f 2 "$weir_tmp/line" | record "${name}_b" "ns per $per: ${what/\%/n} is $form" - 0 any "a line through ${name}_N"
}

# What models() fits, of mapped memory and between two nodes: nothing is mapped there that lock_all could lock at once.
remote_models=(os_model_remote_{put,get,acc,flush,lock,wlock,fence,pscw,notify,flag,message,partners,post,start,complete,wait}_{a,b})
host_models=("${remote_models[@]/remote/host}" os_model_host_lockall_{a,b})

# partner_models WHERE ARGUMENT...: post, start, complete and wait of 16 members by the number of their partners, all
# four and each alone. The members take turns on the CPUs, so start and wait have what the others do.
partner_models()
{
	local where=$1 call n
	shift

	any_wanted "os_model_${where}_"{partners,post,start,complete,wait}_{a,b} || return 0
	for n in 1 2 4 8; do
		weir-perf "$@" -t pscw --programs 8 --partners "$n" -D 1 --json 2>"$weir_tmp/perf.log" |
			jq -r --argjson n "$n" '.results[0] | {partners: .lat_us.mean} + .calls_us | to_entries[] |
				select(.value > 0) | "\(.key) \($n) \(.value)"'
	done >"$weir_tmp/calls"
	for call in partners post start complete wait; do
		awk -v call="$call" '$1 == call { print $2, $3 }' "$weir_tmp/calls" >"$weir_tmp/points"
		fit "os_model_${where}_$call" "${call/partners/post, start, complete, wait}, % partners among 16 members" partner 1 \
			"weir-perf $* -t pscw --programs 8 --partners %"
	done
}

# models WHERE ARGUMENT...: what operations cost: each with its flush by its size, puts by their number before one flush,
# a lock and its release by the number of programs that ask for it. Through windows: that by the members, half of which
# ask; fences by the members; lock_all by the parts of its host that it locks, the CPU time of eight programs on one CPU;
# post and start by partners; by size rings of post and start, and puts with a notice or a flag behind them, with their
# answer. Beside these a message with an answer of 8 bytes.
models()
{
	local where=$1 name test n small
	shift

	for test in put get acc flush lock wlock fence lockall pscw notify flag message; do
		name=os_model_${where}_$test
		[ "$where $test" != "remote lockall" ] || continue
		any_wanted "${name}_a" "${name}_b" || continue
		: >"$weir_tmp/points"
		case "$test" in
		flush)
			for n in 1 2 4 8 16 32 64 128; do
				point "$n" "1e6 * $n / .msgs_per_s" "$@" -t put -s 8 --window "$n" -D 0.4
			done
			fit "$name" "% puts of 8 B and a flush" put 1 "weir-perf $* -t put -s 8 --window %"
			;;
		lock)
			for n in 1 2 4 8 16 32; do
				point "$n" .lat_us.mean "$@" -t lock --programs "$n" -D 1
			done
			fit "$name" "lock and unlock, % programs" program 1 "weir-perf $* -t lock --programs %"
			;;
		wlock)
			# a program and its target are two members
			for n in 2 4 8 16; do
				point "$n" .lat_us.mean "$@" -t lock --through window --programs $((n / 2)) -D 1
			done
			fit "$name" "lock and unlock of a window's part, half of % members" member 1 "weir-perf $* -t lock --through window --programs %/2"
			;;
		fence)
			for n in 2 4 8 16; do
				point "$n" .lat_us.mean "$@" -t fence --programs $((n / 2)) -D 1
			done
			fit "$name" "fence of % members" doubling log2 "weir-perf $* -t fence --programs %/2"
			;;
		lockall)
			for n in 2 3 5 9; do
				point "$n" '1e6 / .msgs_per_s' "$@" -t lockall --programs 8 --partners $((n - 1)) -D 1
			done
			fit "$name" "lock_all and unlock_all of % parts of the host, CPU time" part 1 \
				"weir-perf $* -t lockall --programs 8 --partners %-1"
			;;
		pscw | notify | flag)
			for n in 8 64 512 4096 32768 262144 1048576; do
				point "$n" .lat_us.mean "$@" -t "$test" -s "$n" --through window -D 0.4
			done
			fit "$name" "$test of % B through a window" KiB 1024 "weir-perf $* -t $test -s % --through window"
			;;
		message)
			for n in 8 64 512 4096 32768 262144 1048576; do
				small=$(weir-perf "$@" -t lat -s 8 -D 0.4 --no-calibrate --json 2>"$weir_tmp/perf.log" | jq '.results[0].lat_us.mean')
				[ -z "$small" ] || point "$n" "(.lat_us.mean + $small) / 2" "$@" -t lat -s "$n" -D 0.4
			done
			fit "$name" "a message of % B, and one of 8 B back" KiB 1024 "weir-perf $* -t lat, half of -s % and half of -s 8"
			;;
		*)
			for n in 8 64 512 4096 32768 262144 1048576; do
				point "$n" .lat_us.mean "$@" -t "$test" -s "$n" -D 0.4
			done
			fit "$name" "$test of % B and flush" KiB 1024 "weir-perf $* -t $test -s %"
			;;
		esac
	done
	partner_models "$where" "$@"
}

# Two data planes on Soft-RoCE beside perftest on the same devices, in the virtual machine.
verbs_onesided()
{
	any_wanted os_verbs_put_64k os_verbs_get_64k || return 0
	in_machine remote 60
	verbs os_verbs_put_64k put "x ib_write_bw, puts of 64 KiB between two nodes on rxe" '>=' 0.9 "weir-perf node:2 -t put -s 64k -n 1200"
	verbs os_verbs_get_64k get "x ib_read_bw, gets of 64 KiB between two nodes on rxe" '>=' 0.85 "weir-perf node:2 -t get -s 64k -n 1200"
}

# Computation between put and flush.
overlap_figures()
{
	local size name

	any_wanted os_overlap_{4096,16384,65536,262144,1048576,4194304} || return 0
	run memory overlap B export "$weir_tmp/key"
	await grep -q ready "$weir_tmp/memory.log" || die "no export: $(last_line memory)"
	for size in 4096 16384 65536 262144 1048576 4194304; do
		name=os_overlap_$size
		wanted "$name" || continue
		taskset -c 0 overlap A put "$weir_tmp/key" "$size" 2 | jq .hidden |
			record "$name" "of a put of $size B is hidden by computation" \
				"$([ "$size" -gt 65536 ] && echo '>=' || echo -)" 0.9 any "overlap A put KEY $size 2"
	done
	stop memory
}

set_onesided()
{
	local -a layers=()

	PATH=$WEIR_BUILD/apps/examples:$WEIR_BUILD/test/bench:$PATH
	wanted os_put_instr && test/bench/instructions.sh "$WEIR_BUILD/test/bench/engine_bench" 0 8 |
		record os_put_instr "instructions of both engines per put of 8 B, 32 per turn" '<=' 220 any \
			"callgrind of engine_bench 8 32 0 1 20000 put"
	mapped_onesided
	mapped_windows
	far_windows
	fence_steps
	fence_nodes
	memory_figure
	verbs_onesided
	if any_wanted os_apart_8 os_notify_8; then
		one_node --idle adaptive
		run server-A weir-perf --instance A --cpu 1
		await grep -q . "$weir_tmp/server-A.log" || die "weir-perf doesn't serve"
		# the engine has CPU 0 for itself: the target's program sleeps
		beside os_apart_8 "x round trip of 8 B on the host, mean: put and flush" '<=' 1.5 .lat_us.mean \
			--instance A node:1 -t put -s 8 --apart -D 1 --cpu 1 -- --instance A node:1 -t lat -s 8 -D 0.5 --cpu 0
		beside os_notify_8 "x round trip of 8 B on the host, mean: notified ping-pong through the engine" '<=' 1.25 .lat_us.mean \
			--instance A node:1 -t notify -s 8 --apart -D 1 --cpu 0 -- --instance A node:1 -t lat -s 8 -D 0.5 --cpu 0
		stop_all
	fi
	if any_wanted os_hash_local; then
		build_rma
		one_node --idle adaptive
		hash os_hash_local "x two members that swap over the best MPI: inserts into a table, mapped" 2 all_rma_hash A A
		stop_all
	fi
	if any_wanted os_hash_remote; then
		two_nodes_memif "" --idle adaptive
		run server-B weir-perf --instance B --cpu 1
		await grep -q . "$weir_tmp/server-B.log" || die "weir-perf doesn't serve"
		hash os_hash_remote "x two members that ask by requests: inserts into a table of two nodes" 5 request_hash A B
		stop_all
	fi
	if any_wanted os_recover os_recover_far; then
		two_nodes_memif "" --idle adaptive
		recover B B | record os_recover "ms from the SIGKILL of a lock's holder to the next holder, one host" '<=' 100 any "locker"
		recover B A | record os_recover_far "ms likewise, the holder on the other node" '<=' 1000 any "locker"
		stop_all
	fi
	any_wanted os_rput_p50 os_rget_p50 os_rfop_p50 os_rlock_p50 os_lock_32 os_rnotify_p50 os_rnotify_64k os_racc_rate_8 \
		os_rput_rate_8 os_rput_rate_8_nic os_rfop_rate_8 os_rstride os_stopped os_rput_1m os_rget_1m os_rget_rate_8 os_rsmall_beside \
		"${remote_models[@]}" os_overlap_{4096,16384,65536,262144,1048576,4194304} || return 0
	two_nodes_memif "" --idle adaptive
	run server-B weir-perf --instance B --cpu 1
	await grep -q . "$weir_tmp/server-B.log" || die "weir-perf doesn't serve"
	beside os_rput_p50 "x round trip of 64 B, p50: put of 8 B and flush" '<=' 0.75 .lat_us.p50 \
		--instance A node:2 -t put -s 8 -D 1 --cpu 0 -- --instance A node:2 -t lat -s 64 -D 1 --cpu 0
	beside os_rget_p50 "x round trip of 64 B, p50: get of 8 B" '<=' 0.75 .lat_us.p50 \
		--instance A node:2 -t get -s 8 -D 1 --cpu 0 -- --instance A node:2 -t lat -s 64 -D 1 --cpu 0
	beside os_rfop_p50 "x round trip of 64 B, p50: fetch and add" '<=' 0.8 .lat_us.p50 \
		--instance A node:2 -t fop -D 1 --cpu 0 -- --instance A node:2 -t lat -s 64 -D 1 --cpu 0
	beside os_rlock_p50 "x round trip of 64 B, p50: lock and unlock, free" '<=' 0.85 .lat_us.p50 \
		--instance A node:2 -t lock -D 1 --cpu 0 -- --instance A node:2 -t lat -s 64 -D 1 --cpu 0
	perf os_lock_32 "x the mean: least count of 32 programs that contend for one lock" '>=' 0.33 '.shares.min / .shares.mean' \
		--instance A node:2 -t lock --programs 32 -D 10 --cpu 0
	beside os_rnotify_p50 "x round trip of 64 B, p50: notified ping-pong of 8 B" '<=' 1.1 .lat_us.p50 \
		--instance A node:2 -t notify -s 8 -D 1 --cpu 0 -- --instance A node:2 -t lat -s 64 -D 1 --cpu 0
	beside os_racc_rate_8 "x puts of 8 B: sums of one int64" '>=' 0.9 .msgs_per_s \
		--instance A node:2 -t acc -s 8 -D 1 --cpu 0 -- --instance A node:2 -t put -s 8 -D 1 --cpu 0
	beside os_rput_rate_8 "x messages of 8 B: puts of 8 B" '>=' 1.0 .msgs_per_s \
		--instance A node:2 -t put -s 8 -D 1 --cpu 0 -- --instance A node:2 -t rate -s 8 -D 0.5 --cpu 0
	beside os_rstride "x puts of 4 KiB: as 512 pieces of 8 B, 64 B apart" '>=' 0.5 .msgs_per_s \
		--instance A node:2 -t put -s 4096 --layout 8:64 -D 1 --cpu 0 -- --instance A node:2 -t put -s 4096 -D 1 --cpu 0
	beside os_stopped "x the rate while it sleeps: puts of 8 B, their target's program stopped" '>=' 0.95 .msgs_per_s \
		--instance A node:2 -t put -s 8 -D 1 --cpu 0 --target stop -- --instance A node:2 -t put -s 8 -D 1 --cpu 0
	notified_64k
	beside_nic os_rput_rate_8_nic "x WRITEs of 64 B of the NIC layer: puts of 8 B" 0.85 .msgs_per_s nic_writes \
		--instance A node:2 -t put -s 8 -D 1 --cpu 0
	beside_nic os_rfop_rate_8 "x WRITEs of 64 B of the NIC layer: fetch-adds, 128 under way" 0.3 .msgs_per_s nic_writes \
		--instance A node:2 -t fop -D 1 --cpu 0
	beside_nic os_rget_rate_8 "x READs of 64 B of the NIC layer: gets of 8 B, 128 under way" 0.6 .msgs_per_s nic_reads \
		--instance A node:2 -t get -s 8 -D 1 --cpu 0
	beside_nic os_rput_1m "x WRITEs of 64 KiB of the NIC layer: puts of 1 MiB" 0.6 .bytes_per_s nic_bytes \
		--instance A node:2 -t put -s 1m -D 1 --cpu 0
	beside_nic os_rget_1m "x WRITEs of 64 KiB of the NIC layer: gets of 1 MiB" 0.5 .bytes_per_s nic_bytes \
		--instance A node:2 -t get -s 1m -D 1 --cpu 0
	beside_load os_rsmall_beside "x the same beside messages: p99 of gets of 8 B beside puts of 16 MiB" '<=' 1.1
	models remote --instance A node:2 --cpu 0
	overlap_figures
	stop_all
}
