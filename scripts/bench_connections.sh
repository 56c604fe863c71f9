# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# shellcheck disable=SC2154 # variables of bench.sh and _init.sh
# The set `connections` of bench.sh: many connections, programs and nodes. Sourced by it.

# Rates between all pairs of a cluster, and what the switch costs. alltoall_run NODES: prints
# "RATE SHARE", M/s and % of a CPU. Nodes are started anew for each run.
alltoall_run()
{
	"$weir_root/scripts/cluster.sh" "$1" --report "$weir_tmp/cluster.json" -- \
		weir-perf --alltoall -t rate -s 64 -D 2 --json >"$weir_tmp/result.json" 2>"$weir_tmp/perf.log" || return 1
	jq -r --slurpfile cluster "$weir_tmp/cluster.json" \
		'"\(.results[0].msgs_per_s / 1e6) \(100 * $cluster[0].switch.cpu_share_last)"' "$weir_tmp/result.json"
}

alltoall_figures()
{
	local nodes try line two="" four="" all
	local -a rates=() shares=()

	any_wanted conn_alltoall_2 conn_alltoall_4 conn_alltoall_8 conn_alltoall_16 conn_alltoall_32 conn_alltoall || return 0
	for nodes in 2 4 8 16 32; do
		if ! wanted "conn_alltoall_$nodes" && { [[ $nodes != @(2|4|32) ]] || ! wanted conn_alltoall; }; then
			continue
		fi
		rates=() shares=()
		for ((try = 0; try < runs; try++)); do
			line=$(alltoall_run "$nodes") || { tail -n 1 "$weir_tmp/perf.log" >&2; break; }
			rates+=("${line% *}")
			shares+=("${line#* }")
		done
		all=$(printf '%s\n' "${rates[@]}")
		[ "$nodes" != 2 ] || two=$all
		[ "$nodes" != 4 ] || four=$all
		printf '%s\n' "$all" | record "conn_alltoall_$nodes" "M/s, 64 B, $nodes nodes to each other" '-' 0 any \
			"cluster.sh $nodes -- weir-perf --alltoall -t rate -s 64 -D 2"
		printf '%s\n' "${shares[@]}" | record "conn_switch_$nodes" "% of a CPU, the switch meanwhile" '-' 0 any \
			"cluster.sh $nodes: cpu_share_last of weir-switch"
	done
	wanted conn_alltoall || return 0
	paste <(printf '%s\n' "$all") <(printf '%s\n' "$two") <(printf '%s\n' "$four") |
		awk 'NF == 3 { print 100 * $1 / ($2 > $3 ? $2 : $3) }' |
		record conn_alltoall "% of the best rate of 2 or 4 nodes, with 32" '>=' 50 any \
			"conn_alltoall_32 / conn_alltoall_2 or _4, run by run"
}

# pairs NAME UNIT OP TARGET JQ FACTOR A B: ratios of B to A times FACTOR, 10 pairs of runs in turn that
# have one label. A and B: words of commands that print a result as weir-perf does.
pairs()
{
	local name=$1 unit=$2 op=$3 target=$4 expression=$5 factor=$6 try a b first second
	local -a ratios=()

	wanted "$name" || return 0
	for ((try = 0; try < 100 && ${#ratios[@]} < 10; try++)); do
		read -r first a < <(one_of_pair "$expression" "$7")
		read -r second b < <(one_of_pair "$expression" "$8")
		if [ "$a" = failed ] || [ "$b" = failed ]; then break; fi
		if [ "$a" != steady ] || [ "$b" != steady ]; then continue; fi
		ratios+=("$(awk -v a="$first" -v b="$second" -v f="$factor" 'BEGIN { print f * b / a }')")
	done
	[ "${#ratios[@]}" -ge 10 ] || ratios=()
	printf '%s\n' "${ratios[@]}" | record "$name" "$unit" "$op" "$target" paired "$8; against: $7"
}

one_of_pair()
{
	local -a words

	read -ra words <<<"$2"
	if "${words[@]}" --json >"$weir_tmp/result.json" 2>"$weir_tmp/perf.log"; then
		jq -r ".results[0] | \"\($1) \(.calibration.label)\"" "$weir_tmp/result.json"
	else
		tail -n 1 "$weir_tmp/perf.log" >&2
		echo "0 failed"
	fi
}

# The server reads out of 1 GiB, all of it adopted; room for 10,000 connections.
perf_nodes()
{
	two_nodes_memif "" --idle adaptive --session-connections 16384 --max-connections 32768 --adopt 1200M
	run server-B weir-perf --instance B --cpu 1
	await grep -q . "$weir_tmp/server-B.log" || die "weir-perf doesn't serve"
}

# 64 KiB from anywhere in the peer's memory by RDMA READ: the same load over 1 to 10,000 connections; beside it a queue
# pair for each connection, and one that threads share under a lock.
read_figures()
{
	local n rate='.results[0].bytes_per_s / 1e9'

	[[ $list = 1 || $only != *,conn_read,* ]] || only+=$(printf 'conn_read_%s,' 1 10 100 400 1000 10000)
	if any_wanted conn_read_1 conn_read_10 conn_read_100 conn_read_400 conn_read_1000 conn_read_10000 conn_read; then
		perf_nodes
		for n in 1 10 100 400 1000 10000; do
			perf "conn_read_$n" "GB/s, $n connections" '-' 0 '.bytes_per_s / 1e9' --instance A node:2 -t read \
				--connections "$n" --pick random -D 1 --cpu 0
		done
		wanted conn_read && jq -s '[.[] | select((.name | test("^conn_read_")) and .how == "steady") | .value] |
			if length == 6 then 100 * min / max else empty end' "$figures" |
			record conn_read "% of the best number's rate, at the worst" '>=' 92 steady "conn_read_1 ... conn_read_10000"
		stop_all
	fi
	for n in 1 10 100 400 1000; do
		figure nicperf_two "conn_qps_$n" "GB/s, a queue pair for each of $n connections" '-' 0 "$rate" -t read -s 65536 -D 1 -q "$n"
	done
	for n in 3 6; do
		figure nicperf_two "conn_shared_$n" "GB/s, $n threads share a queue pair" '-' 0 "$rate" -t read -s 65536 -D 1 -q "$n" --shared
	done
}

# Threads of one program and the message model.
thread_figures()
{
	local to="weir-perf --instance A node:2 -D 0.5 --cpu 0"

	any_wanted conn_threads_1 conn_threads_8 conn_threads_least conn_requests_8 conn_requests_p50_16 || return 0
	perf_nodes
	perf conn_threads_1 "per memcpy of 64 KiB, 64 B messages of a thread" '>=' 6.8 "$PER_COPY" --instance A node:2 -t message -D 0.5 --cpu 0
	pairs conn_threads_8 "% of one thread's rate, 8 threads" '>=' 90 .msgs_per_s 100 "$to -t message" "$to -t message --threads 8"
	perf conn_threads_least "% of the mean, the least of 8 threads" '>=' 50 '100 * .shares.min / .shares.mean' \
		--instance A node:2 -t message --threads 8 -D 0.5 --cpu 0
	pairs conn_requests_8 "x one thread's rate, requests of 8 threads" '>=' 4 .msgs_per_s 1 "$to -t request" "$to -t request --threads 8"
	pairs conn_requests_p50_16 "x one thread's p50 x (16 threads + 2 engines) / 2 CPUs, 16 threads" '<=' 1.5 .lat_us.p50 \
		"$(awk 'BEGIN { print 2 / 18 }')" "$to -t request" "$to -t request --threads 16"
	stop_all
}

# Structured data: protobuf-c packs into the messages and unpacks where they arrived (apps/examples/message_protobuf.c).
protobuf_figure()
{
	local try count=2000000 example=$WEIR_BUILD/apps/examples/example-message-protobuf

	wanted conn_protobuf || return 0
	perf_nodes
	WEIR_INSTANCE=B run readings taskset -c 1 "$example"
	await sh -c "WEIR_INSTANCE=A '$example' 2 1 >/dev/null 2>&1" || die "the example doesn't answer"
	for ((try = 0; try < runs; try++)); do
		WEIR_INSTANCE=A taskset -c 0 "$example" 2 "$count" >"$weir_tmp/protobuf.log" 2>&1 || { tail -n 1 "$weir_tmp/protobuf.log" >&2; break; }
		sed -n 's|.* arrived, \([0-9]*\)/s$|\1|p' "$weir_tmp/protobuf.log" | awk '{ print $1 / 1e6 }'
	done | record conn_protobuf "M/s, messages of 8 doubles by protobuf-c" '-' 0 any "example-message-protobuf 2 $count"
	stop_all
}

# All of many connections send small messages: windows are small, since all share the receive memory.
active_figure()
{
	wanted conn_active_10000 || return 0
	perf_nodes
	perf conn_active_10000 "M/s, 64 B on 10,000 connections at once" '-' 0 '.msgs_per_s / 1e6' --instance A node:2 -t rate -s 64 \
		--connections 10000 -D 3 --cpu 0
	stop_all
}

# ways: TURN, SIZE, WAY and GB/s of a run each, all in turn, $runs times.
ways()
{
	local size way bytes n

	for ((n = 0; n < runs; n++)); do
		for size in 64 1k 8k 16k 64k 256k 1m 16m; do
			bytes=$(numfmt --from=iec "${size^^}")
			for way in any ring send read write; do
				if [ "$way" = ring ] && [ "$bytes" -gt 8192 ]; then continue; fi
				if [ "$way" = send ] && [ "$bytes" -gt 1920 ]; then continue; fi
				# shellcheck disable=SC2046
				weir-perf --instance A node:2 -t bw -s "$size" -D 0.25 --cpu 0 --no-calibrate --json \
					$([ "$way" = any ] || echo --flags "${way^^}") 2>"$weir_tmp/perf.log" |
					jq -r --arg turn "$n" --arg size "$size" --arg way "$way" '.results[0] | [$turn, $size, $way, .bytes_per_s / 1e9] | @tsv'
			done
		done
	done
}

# The way that Weir chooses against each that can be forced: ratios of runs of one turn, since the machine changes
# between turns, and their medians. The worst one is the figure.
adaptive_figure()
{
	wanted conn_adaptive || return 0
	perf_nodes
	ways >"$weir_tmp/ways"
	jq -Rcn --argjson runs "$runs" '
		def median: sort | .[length / 2 | floor];
		[inputs / "\t" | {turn: .[0], size: .[1], way: .[2], rate: (.[3] | tonumber)}] | group_by(.size) | map(
			(map(select(.way == "any")) | INDEX(.turn)) as $any | group_by(.way) as $ways |
			{size: .[0].size, whole: ($ways | all(length == $runs)),
			 ways: ($ways | map({key: .[0].way, value: (map(.rate) | median)}) | from_entries),
			 ratio: ($ways | map(select(.[0].way != "any") | map(($any[.turn].rate // 0) / .rate) | median) | min)})' \
		"$weir_tmp/ways" >"$weir_tmp/table"
	jq -r '.[] | "\(.size): \(.ratio * 100 | round) % of the best, turn by turn; GB/s \(.ways | map_values(. * 100 | round / 100))"' "$weir_tmp/table"
	jq 'if length == 8 and all(.whole) then map(.ratio) | 100 * min else empty end' "$weir_tmp/table" |
		record conn_adaptive "% of the best forced way, at the worst size" '>=' 90 paired \
			"weir-perf -t bw -s 64 ... 16m, --flags RING, SEND, READ, WRITE against none, in turn"
	stop_all
}

# tcp_bulk SIZE --json: the faster one of weir-perf's TCP and iperf3's, if that is installed, as weir-perf prints it.
tcp_bulk()
{
	local other=0 most=1m # of iperf3

	weir-perf --transport tcp 127.0.0.1 -t bw -s "$1" -D 0.5 --cpu 0 --json >"$weir_tmp/tcp.json" || return 1
	if [ -n "${weir_pid[iperf]:-}" ]; then
		[ "$1" = 16m ] || most=$1
		iperf3 -c 127.0.0.1 -p 5299 -A 0,1 -t 1 -l "${most^^}" -J >"$weir_tmp/iperf.json" || return 1
		other=$(jq '.end.sum_received.bits_per_second / 8' "$weir_tmp/iperf.json")
	fi
	jq --argjson other "$other" '.results[0].bytes_per_s |= ([., $other] | max)' "$weir_tmp/tcp.json"
}

# beside_tcp KERNEL TARGET TARGET TARGET: 64 KiB, 1 MiB and 16 MiB between nodes that compute the ICRC by this kernel, ""
# the CPU's fastest, against TCP over loopback: both send out of the program's buffers.
beside_tcp()
{
	local kernel=$1 size
	shift

	any_wanted "bulk_tcp_"{64k,1m,16m}"${kernel:+_$kernel}" || return 0
	if [ -n "$kernel" ]; then WEIR_ICRC=$kernel perf_nodes; else perf_nodes; fi
	run server-tcp weir-perf --transport tcp --cpu 1
	await grep -q . "$weir_tmp/server-tcp.log" || die "weir-perf doesn't serve TCP"
	if command -v iperf3 >/dev/null; then
		run iperf iperf3 -s -B 127.0.0.1 -p 5299
		await iperf3 -c 127.0.0.1 -p 5299 -n 1 >/dev/null || die "iperf3 doesn't serve"
	fi
	for size in 64k 1m 16m; do
		pairs "bulk_tcp_$size${kernel:+_$kernel}" "x TCP over loopback, $size${kernel:+, ICRC by $kernel}" '>=' "$1" .bytes_per_s 1 \
			"tcp_bulk $size" "weir-perf --instance A node:2 -t bw -s $size --adopt -D 0.5 --cpu 0"
		shift
	done
	stop_all
}

# The targets are those of the kernel; a CPU with VPCLMULQDQ is also measured as one without.
bulk_figures()
{
	local -a goal=(1.0 0.9 0.9)

	! grep -qw vpclmulqdq /proc/cpuinfo || goal=(2.2 1.8 1.3)
	beside_tcp "" "${goal[@]}"
	beside_tcp pclmul 1.0 0.9 0.9
}

# Round trips of four processes on two CPUs, against TCP, both of whose ends spin.
tcp_latency_figure()
{
	wanted lat_tcp || return 0
	two_nodes_memif "" --idle adaptive
	run server-B weir-perf --instance B --cpu 1
	run server-tcp weir-perf --transport tcp --cpu 1
	for name in server-B server-tcp; do
		await grep -q . "$weir_tmp/$name.log" || die "$name doesn't serve"
	done
	pairs lat_tcp "x spinning TCP over loopback, round trip of 64 B, p50" '<=' 0.9 .lat_us.p50 1 \
		"weir-perf --transport tcp 127.0.0.1 -t lat -s 64 -D 0.5 --cpu 0" \
		"weir-perf --instance A node:2 -t lat -s 64 -D 0.5 --cpu 0"
	stop_all
}
# shellcheck source=scripts/bench_shares.sh
. scripts/bench_shares.sh

# One thread polls many connections of a program on its host.
poll_figure()
{
	local to="weir-perf --instance B node:2 -t rate -s 64 -D 0.5 --cpu 0"

	any_wanted poll_many poll_many_10 || return 0
	perf_nodes
	pairs poll_many_10 "% of one connection's rate, 64 B on 10 connections of one thread" '>=' 80 .msgs_per_s 100 "$to" "$to --connections 10"
	pairs poll_many "% of one connection's rate, 64 B on 100 connections of one thread" '>=' 80 .msgs_per_s 100 "$to" "$to --connections 100"
	stop_all
}

set_connections()
{
	read_figures
	poll_figure
	thread_figures
	protobuf_figure
	tcp_latency_figure
	bulk_figures
	adaptive_figure
	active_figure
	alltoall_figures
	set_shares
}
