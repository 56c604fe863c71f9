# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154
# Sourced by bench.sh: the set invoke, calls of functions beside messages and requests of the same build.

# call_instructions NAME TARGET SIZE WORK WHAT: instructions of the library, counted under callgrind.
call_instructions()
{
	wanted "$1" || return 0
	test/bench/instructions.sh "$WEIR_BUILD/test/bench/call_bench" 0 "$3" "$4" |
		record "$1" "instructions $5" '<=' "$2" any "callgrind of call_bench $3, $4"
}

# ucx_messages: active messages of 8 bytes per second between two programs of this host.
ucx_messages()
{
	local pid

	UCX_TLS=posix,sysv,cma,self ucx_perftest -c 1 >"$weir_tmp/ucx.log" 2>&1 &
	pid=$!
	sleep 0.5
	UCX_TLS=posix,sysv,cma,self timeout 60 ucx_perftest localhost -c 0 -t ucp_am_bw -s 8 -n 10000000 -f -v 2>>"$weir_tmp/ucx.log" |
		awk -F , 'NF > 5 { rate = $NF } END { if (!rate) exit 1; print rate }' ||
		{ echo "invoke: ucx_perftest failed: $(tail -n 1 "$weir_tmp/ucx.log")" >&2; kill "$pid" 2>/dev/null; wait "$pid"; return 1; }
	wait "$pid"
}

# best_mode ARGUMENT...: the most calls per second of the modes that a program may choose.
best_mode()
{
	local mode

	for mode in eager full overflow; do
		steady_value .msgs_per_s --instance A node:2 -t call -s 64 -D 0.5 --cpu 0 --mode "$mode"
	done
}

# of_group NAME UNIT TARGET COMMAND...: the largest number with which a process of a group begins its line, by each run.
of_group()
{
	local name=$1 unit=$2 target=$3 try
	local -a values=()
	shift 3

	wanted "$name" || return 0
	for ((try = 0; try < runs; try++)); do
		"$@" >"$weir_tmp/group.log" 2>"$weir_tmp/group.err" ||
			{ echo "$name: $(tail -n 1 "$weir_tmp/group.err")" >&2; break; }
		values+=("$(awk '$2 > most { most = $2 } END { print most }' "$weir_tmp/group.log")")
	done
	[ "${#values[@]}" -ge "$runs" ] || values=()
	printf '%s\n' "${values[@]}" | record "$name" "$unit" '<=' "$target" any "$*"
}

# lines NAME INSTANCES THREADS: memory of an idle line, at the end that has more of it.
lines()
{
	of_group "$1" "bytes of malloc, caller or callee" 2048 \
		weir-run -n 2 -t "$3" --instances "$2" -- invoke_bench lines
}

of_groups()
{
	PATH=$WEIR_BUILD/apps/run:$WEIR_BUILD/test/bench:$PATH
	if any_wanted line_idle_bytes_local tree_cpu_32; then
		one_node --idle adaptive
		lines line_idle_bytes_local A 8
		of_group tree_cpu_32 "x CPU time of 32 single calls" 1.3 \
			weir-run -n 32 -t 1 --instances A -- invoke_bench tree 2000 "${weir_pid[dataplane-A]}"
		stop_all
	fi
	if any_wanted line_idle_bytes; then
		two_nodes_memif "" --idle adaptive
		lines line_idle_bytes A,B 16
		stop_all
	fi
}

between_nodes()
{
	local size target node=(--instance A node:2 -D 1 --cpu 0)

	any_wanted call_share_8_many call_share_8 call_share_64 call_share_256 call_eager_64 call_overflow_64 call_auto_64 call_auto_p50 \
		return_p50 return_256_eager return_256 || return 0
	two_nodes_memif "" --idle adaptive
	run server-B weir-perf --instance B --cpu 1
	await grep -q . "$weir_tmp/server-B.log" || die "weir-perf doesn't serve"
	beside call_share_8_many "x bytes/s of messages of 4 KiB" '>=' 0.6 .bytes_per_s "${node[@]}" -t call -s 8 --many -- "${node[@]}" -t message -s 4096
	for size in 8:0.45 64:0.9 256:0.98; do
		target=${size#*:} size=${size%:*}
		beside "call_share_$size" "x bytes/s of messages of 4 KiB" '>=' "$target" .bytes_per_s "${node[@]}" -t call -s "$size" -- \
			"${node[@]}" -t message -s 4096
	done
	beside call_eager_64 "x messages/s" '>=' 0.95 .msgs_per_s "${node[@]}" -t call -s 64 --mode eager -- "${node[@]}" -t message -s 64
	beside call_overflow_64 "x calls/s of eager" '>=' 0.97 .msgs_per_s "${node[@]}" -t call -s 64 --mode overflow -- \
		"${node[@]}" -t call -s 64 --mode eager
	beside_peers call_auto_64 "x calls/s of the best other mode" '>=' 0.9 .msgs_per_s best_mode -- "${node[@]}" -t call -s 64
	beside call_auto_p50 "x p50 of eager, a lone call with result" '<=' 1.05 .lat_us.p50 "${node[@]}" -t return -- \
		"${node[@]}" -t return --mode eager
	beside return_p50 "x p50 of a request" '<=' 1.05 .lat_us.p50 "${node[@]}" -t return -- "${node[@]}" -t request -s 64
	beside return_256_eager "x messages/s" '>=' 0.41 .msgs_per_s "${node[@]}" -t return -w 256 --mode eager -- "${node[@]}" -t message -s 64
	beside return_256 "x messages/s" '>=' 0.74 .msgs_per_s "${node[@]}" -t return -w 256 -- "${node[@]}" -t message -s 64
	stop_all
}

of_one_host()
{
	local node=(--instance A node:1 -D 0.5 --cpu 0)

	any_wanted return_local call_local_8_eager call_local_8 || return 0
	one_node --idle adaptive
	run server-A weir-perf --instance A --cpu 1
	await grep -q . "$weir_tmp/server-A.log" || die "weir-perf doesn't serve"
	beside return_local "x round trip of a stream" '<=' 1.15 .lat_us.p50 "${node[@]}" -t return -- "${node[@]}" -t lat -s 64
	beside_peers call_local_8_eager "x active messages/s of UCX" '>=' 1 .msgs_per_s ucx_messages -- "${node[@]}" -t call -s 8 --mode eager
	beside_peers call_local_8 "x active messages/s of UCX" '>=' 5 .msgs_per_s ucx_messages -- "${node[@]}" -t call -s 8
	stop_all
}

of_one_program()
{
	any_wanted call_inside_8 call_inside_8_many || return 0
	one_node --idle adaptive
	perf call_inside_8 "x slots" '>=' 0.42 .ratio.slots --instance A --inside -t call -s 8 -D 0.5
	perf call_inside_8_many "x slots, run_many" - 0 .ratio.slots --instance A --inside -t call -s 8 -D 0.5 --many
	stop_all
}

set_invoke()
{
	call_instructions call_packed_make 12 8 make_packed "of a packed call's caller"
	call_instructions call_packed_run 25 8 run_packed "that run a packed call"
	call_instructions call_many_run 3 8 run_many "that run a packed call, run_many"
	call_instructions call_eager_make 190 64 make_eager "of an eager call's caller"
	call_instructions call_eager_run 230 64 run_eager "that run an eager call"
	between_nodes
	of_one_host
	of_one_program
	of_groups
}
