# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154
# Sourced by bench.sh: the set shuffle, records between 32 threads of 8 processes, beside the same by TCP; jobs of
# map tasks.

shuffle_rounds=$((2 * runs))
# Bytes that each thread sends, by the size of records: seconds of TCP.
declare -A shuffle_bytes=([64]=8M [256]=32M [1K]=64M [64K]=256M)
# jq: the cost of communication (s of CPU) of a transport in a round, and of the better TCP.
SHUFFLE_COST='def cost(t): t.cpu_all_s - .none.cpu_all_s; def tcp: [cost(.thread), cost(.process)] | min;'

# rounds KIND TRANSPORTS OPTION...: lines of shuffle_cost.sh. KIND cluster: on 8 nodes with a switch; host: on one node that
# runs, A.
rounds()
{
	local kind=$1 transports=$2
	shift 2

	if [ "$kind" = host ]; then
		SHUFFLE_DAEMONS="${weir_pid[dataplane-A]} ${weir_pid[control-A]}" \
			test/bench/shuffle_cost.sh "$shuffle_rounds" A "$transports" "$@" 2>"$weir_tmp/perf.log"
	else
		CLUSTER_OPTIONS="--arena 64M" "$weir_root/scripts/cluster.sh" 8 -- \
			"$weir_root/test/bench/shuffle_cost.sh" "$shuffle_rounds" n0,n1,n2,n3,n4,n5,n6,n7 "$transports" "$@" 2>"$weir_tmp/perf.log"
	fi || { tail -n 1 "$weir_tmp/perf.log" >&2; return 1; }
}

# cost NAME KIND TARGET SIZE OPTION...: the change of the cost of communication against the better TCP, in percent; and
# elapsed time beside it, NAME_time.
cost()
{
	local name=$1 kind=$2 target=$3 size=$4 command
	shift 4

	any_wanted "$name" "${name}_time" || return 0
	command="shuffle_cost.sh, 8 processes, $kind: weir-shuffle-cost --record $size $*, in turn with --transport tcp and none"
	rounds "$kind" "weir thread process none" --record "$size" --bytes "${shuffle_bytes[$size]}" "$@" >"$weir_tmp/rounds" || : >"$weir_tmp/rounds"
	! wanted "$name" || jq "$SHUFFLE_COST"'100 * (cost(.weir) / tcp - 1)' "$weir_tmp/rounds" |
		record "$name" "% CPU time of communication against TCP, $size B" '<=' "$target" paired "$command"
	! wanted "${name}_time" || jq '.weir.elapsed_s / ([.thread.elapsed_s, .process.elapsed_s] | min)' "$weir_tmp/rounds" |
		record "${name}_time" "x time that TCP takes, $size B" - 0 paired "$command"
}

# Records per second of 8 nodes, each leaving at once, beside messages of the same nodes, in turn.
shuffle_rate()
{
	local try records messages
	local -a ratios=()

	wanted shuffle_rate_64 || return 0
	for ((try = 0; try < shuffle_rounds; try++)); do
		records=$(shuffle_rounds=1 rounds cluster weir --record 64 --bytes 32M --prompt | jq .weir.records_per_s) || break
		messages=$(alltoall_run 8) || break
		ratios+=("$(awk -v a="$records" -v b="${messages% *}" 'BEGIN { print a / b / 1e6 }')")
	done
	[ "${#ratios[@]}" -ge "$shuffle_rounds" ] || ratios=()
	printf '%s\n' "${ratios[@]}" | record shuffle_rate_64 "x messages/s of 8 nodes to each other" '>=' 0.8 paired \
		"weir-shuffle-cost --record 64 --prompt, in turn with weir-perf --alltoall -t rate -s 64"
}

# CPU of 32 blocked threads on one host, programs and daemons.
shuffle_idle()
{
	wanted shuffle_idle || return 0
	shuffle_rounds=1 rounds host weir --idle 20 | jq '100 * .weir.cpu_s / .weir.elapsed_s' |
		record shuffle_idle "% of a CPU, 32 threads that wait for records" '<=' 2 any "weir-shuffle-cost --idle 20, 8 processes of 4 threads"
}

# Blocks above 8 KiB that were read where they arrived.
shuffle_placed()
{
	wanted shuffle_placed || return 0
	shuffle_rounds=$runs rounds cluster weir --record 1K --bytes 64M | jq '100 * .weir.placed / .weir.blocks' |
		record shuffle_placed "% of blocks of 64 KiB that were not copied" '>=' 95 any "weir-shuffle-cost --record 1K on 8 nodes"
}

# The rate with many partitions, divided by that with few, in as much memory.
shuffle_many()
{
	local try many few
	local -a ratios=()

	wanted shuffle_many || return 0
	for ((try = 0; try < shuffle_rounds; try++)); do
		many=$(shuffle_rounds=1 rounds host weir --record 64 --bytes 64M --partitions 65536 --memory 64M | jq .weir.records_per_s) || break
		few=$(shuffle_rounds=1 rounds host weir --record 64 --bytes 64M --partitions 32 --memory 64M | jq .weir.records_per_s) || break
		ratios+=("$(awk -v a="$many" -v b="$few" 'BEGIN { print a / b }')")
	done
	[ "${#ratios[@]}" -ge "$shuffle_rounds" ] || ratios=()
	printf '%s\n' "${ratios[@]}" | record shuffle_many "x rate with 32 partitions, 65,536 in 64 MiB" '>=' 0.7 paired \
		"weir-shuffle-cost --partitions 65536 --memory 64M, in turn with --partitions 32"
}

# KiB of anonymous memory that a program holds at most: its peak in a run of weir-shuffle-cost, sampled. The arena is memory
# of the data plane, and does not count.
peak_of()
{
	local pid child kib most=0

	"$@" >"$weir_tmp/peak.log" 2>&1 &
	pid=$!
	while ! has_ended "$pid"; do
		# shellcheck disable=SC2013 # numbers
		for child in $(cat "/proc/$pid/task/$pid/children"); do
			kib=$(awk '/^Anonymous:/ { print $2 }' "/proc/$child/smaps_rollup" 2>/dev/null)
			[ "${kib:-0}" -le "$most" ] || most=$kib
		done
		sleep 0.1
	done
	wait "$pid" || { tail -n 1 "$weir_tmp/peak.log" >&2; return 1; }
	echo "$most"
}

# Peak memory of the largest of 8 processes whose consumers are ten times slower than their producers, with a bound of
# 64 MiB; the worse of both, with spilling and without.
shuffle_memory()
{
	local directory kib base
	local -a slow=(weir-run -n 8 -t 4 --instances A -- weir-shuffle-cost -t 4 --record 1K --memory 64M)

	wanted shuffle_memory || return 0
	mkdir -p "$weir_tmp/spill"
	base=$(peak_of "${slow[@]}" --bytes 1K) || return
	for directory in "" "$weir_tmp/spill"; do
		kib=$(peak_of "${slow[@]}" --slow 20 --bytes 64M ${directory:+--spill "$directory"}) || return
		awk -v a="$kib" -v b="$base" 'BEGIN { print 100 * (a - b) / 65536 }'
	done | sort -g | tail -n 1 |
		record shuffle_memory "% of --memory, peak of a process less its arena" '<=' 110 any "weir-shuffle-cost --record 1K --memory 64M --slow 20, with --spill and without"
}

# elapsed PROGRAM PROCESSES OPTION...: seconds that a job takes, by Weir on node A; its result is in job.json.
elapsed()
{
	local program=$1 processes=$2
	shift 2

	rm -rf "$weir_tmp/output"
	timeout 600 weir-run -n "$processes" -t 2 --instances A -- "$program" -t 2 --json "$@" "$weir_tmp/output" >"$weir_tmp/job" 2>"$weir_tmp/perf.log" ||
		{ echo "$program $*: $(head -n 1 "$weir_tmp/perf.log")" >&2; return 1; }
	sed -n 's/^0: {/{/p' "$weir_tmp/job" >"$weir_tmp/job.json"
	jq -e .elapsed_s "$weir_tmp/job.json"
}

# Seconds that GNU sort takes, with as much memory and two threads.
gnu_sort()
{
	local begin

	begin=$(now_ms)
	LC_ALL=C sort -S 512M --parallel=2 -T "$weir_tmp/spill" -o "$weir_tmp/sorted" "$weir_tmp/lines" || return
	awk -v ms="$(($(now_ms) - begin))" 'BEGIN { print ms / 1000 }'
}

# weir_sort MEMORY: seconds, without those of the check.
weir_sort()
{
	elapsed weir-sort 2 --memory "$1" --spill "$weir_tmp/spill" sort "$weir_tmp/lines" || return
	weir-sort check "$weir_tmp/output" --like "$weir_tmp/lines" >"$weir_tmp/perf.log" 2>&1 ||
		{ echo "weir-sort: $(tail -n 1 "$weir_tmp/perf.log")" >&2; return 1; }
}

# 2 GiB of lines, in 512 MiB for both processes with their arenas.
shuffle_sort()
{
	any_wanted shuffle_sort shuffle_spill || return 0
	mkdir -p "$weir_tmp/spill"
	weir-sort gen 21474836 "$weir_tmp/lines" || return
	in_turn shuffle_sort "x as fast as GNU sort, 2 GiB in 512 MiB" '>=' 1.5 gnu_sort -- weir_sort 192M
	in_turn shuffle_spill "x time with memory for all" '<=' 1.6 weir_sort 192M -- weir_sort 4G
	rm -rf "$weir_tmp/lines" "$weir_tmp/sorted" "$weir_tmp/output"
}

# words_of FILE SAME: 60 MB of words, of which SAME percent are one.
words_of()
{
	awk -v same="$2" 'BEGIN { srand(1); for (i = 0; i < 8000000; i++) {
		n = int(2000000 * rand())
		if (100 * rand() < same) { print "same"; continue }
		for (w = ""; n >= 1 || w == ""; n = int(n / 20)) w = w substr("abcdefghijklmnoprstu", 1 + n % 20, 1)
		print w
	} }' >"$1"
}

# Half of all words are one, and the partitions are read in 8 parts; by as many words of which none is frequent.
shuffle_skew()
{
	wanted shuffle_skew || return 0
	words_of "$weir_tmp/skewed" 50
	words_of "$weir_tmp/even" 0
	in_turn shuffle_skew "x time with even keys, half of all words are one, 8 parts" '<=' 1.3 \
		elapsed weir-count 4 --combine no --parts 8 "$weir_tmp/skewed" -- elapsed weir-count 4 --combine no --parts 8 "$weir_tmp/even"
	rm -f "$weir_tmp/skewed" "$weir_tmp/even"
}

# codec NAME: bytes and seconds of a count of words on 8 nodes.
codec()
{
	rm -rf "$weir_tmp/output"
	timeout 300 "$weir_root/scripts/cluster.sh" 8 -- weir-run -n 8 -t 4 --instances n0,n1,n2,n3,n4,n5,n6,n7 -- \
		weir-count -t 4 --combine no --codec "$1" --json "$weir_tmp/text" "$weir_tmp/output" 2>"$weir_tmp/perf.log" |
		sed -n 's/^0: {/{/p' | jq -r '"\(.sent_bytes) \(.elapsed_s)"'
}

# The same with LZ4 and without.
shuffle_lz4()
{
	local try with without
	local -a bytes=() times=()

	any_wanted shuffle_lz4 shuffle_lz4_time || return 0
	words_of "$weir_tmp/text" 5
	for ((try = 0; try < runs; try++)); do
		with=$(codec lz4)
		without=$(codec none)
		if [ -z "$with" ] || [ -z "$without" ]; then
			tail -n 1 "$weir_tmp/perf.log" >&2
			break
		fi
		bytes+=("$(awk -v a="${with% *}" -v b="${without% *}" 'BEGIN { print a / b }')")
		times+=("$(awk -v a="${with#* }" -v b="${without#* }" 'BEGIN { print a / b }')")
	done
	[ "${#bytes[@]}" -ge "$runs" ] || bytes=() times=()
	! wanted shuffle_lz4 || printf '%s\n' "${bytes[@]}" |
		record shuffle_lz4 "x bytes without LZ4, words" '<=' 0.5 paired "weir-count --combine no --codec lz4 on 8 nodes, in turn with none"
	! wanted shuffle_lz4_time || printf '%s\n' "${times[@]}" |
		record shuffle_lz4_time "x time without LZ4" '<=' 1 paired "weir-count --combine no --codec lz4 on 8 nodes, in turn with none"
	rm -f "$weir_tmp/text"
}

set_shuffle()
{
	local size kind of

	PATH=$WEIR_BUILD/apps/shuffle:$WEIR_BUILD/apps/run:$PATH
	for size in 64:-85 256:-85 1K:-75; do
		of=${size%:*}
		cost "shuffle_cost_${of,,}" cluster "${size#*:}" "$of" --prompt
	done
	# in software, each byte between nodes is copied and checked several times
	cost shuffle_cost_64k cluster -30 64K
	shuffle_rate
	shuffle_placed
	shuffle_lz4
	kind=host
	if any_wanted shuffle_host_{64,256,1k,64k}{,_time} shuffle_idle shuffle_many shuffle_memory shuffle_sort shuffle_spill shuffle_skew; then
		one_node --idle adaptive
		for size in 64 256 1K; do
			cost "shuffle_host_${size,,}" "$kind" -85 "$size" --prompt
		done
		cost shuffle_host_64k "$kind" -85 64K
		shuffle_idle
		shuffle_many
		shuffle_memory
		shuffle_sort
		shuffle_skew
		stop_all
	fi
}
