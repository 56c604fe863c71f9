#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# bench.sh SET [--runs N] [--json FILE] [--only NAME,...] [--against BUILD] [--seconds N] [--list] [--install]: measures
# what a set promises and prints which targets hold. --install: for the set peers, installs the other message layers
# from Debian. --seconds: how long ctl_alltoall lasts, by default 600. --against: each figure of this build (WEIR_BUILD)
# and of another build directory, in turn; the ratios of N pairs must not be worse than 3 %.
# An unsteady run (the machine measured before and after differs by more than 20 %) is repeated, at most 30
# tries; no run is discarded for being slow. Exit: 0 all met, 1 some missed, 2 usage, 3 some not measured.
set -u
cd "$(dirname "$0")/.." || exit 1
# shellcheck source=scripts/deps.sh
. scripts/deps.sh

TRIES=30
# Rates that the line between the CPUs does not limit, as messages per memcpy of 64 KiB: jq's, of a result.
PER_COPY='.msgs_per_s * 65536 / 1e9 / .calibration.copy_gbps'
SETS=(foundation nics connections control hostile onesided invoke hex shuffle peers)
usage="bench.sh ${SETS[*]} [--runs N] [--json FILE] [--only NAME,...] [--against BUILD] [--seconds N] [--list] [--install]"
set_name="" runs=5 seconds=600 json="" only="" against="" list=0 install=0

wrong()
{
	echo "bench.sh: $1; usage: $usage" >&2
	exit 2
}

while [ $# -gt 0 ]; do
	case "$1" in
	--runs) runs=${2:-}; [[ $runs =~ ^[1-9][0-9]?$ ]] || wrong "invalid value '$runs' for --runs (expected 1 to 99)"; shift ;;
	--json) json=${2:-}; [ -n "$json" ] || wrong "--json needs a file"; shift ;;
	--only) only=,${2:-},; shift ;;
	--against)
		[ -x "${2:-}/dataplane/weir-dataplane" ] || wrong "no build in '${2:-}' for --against (expected a directory as build/release)"
		against=$(realpath "$2")
		shift
		;;
	--seconds) seconds=${2:-}; [[ $seconds =~ ^[1-9][0-9]{0,4}$ ]] || wrong "invalid value '$seconds' for --seconds (expected 1 to 99999)"; shift ;;
	--list) list=1 ;;
	--install) install=1 ;;
	-h | --help) echo "$usage"; exit 0 ;;
	-*) wrong "unknown option '$1'" ;;
	*)
		[[ -z $set_name && " ${SETS[*]} " == *" $1 "* ]] || wrong "unknown set '$1'"
		set_name=$1
		;;
	esac
	shift || wrong "a value is missing"
done
[ -n "$set_name" ] || wrong "no set named"
[ -z "$json" ] || : >"$json" || wrong "$json can't be written"
[ -z "$json" ] || json=$(realpath "$json")

# With WEIR_BUILD set, what lies there is measured as it is.
if [ "$list" = 0 ] && [ -z "${WEIR_BUILD:-}" ]; then
	[ -n "${WEIR_NO_DEPS:-}" ] || install_deps || exit 3
	[ -f build/release/build.ninja ] || meson setup build/release --buildtype=release >/dev/null
	ninja -C build/release >/dev/null || { echo "bench.sh: the build failed; see scripts/test.sh" >&2; exit 1; }
fi
# shellcheck source=test/smoke/_init.sh
. test/smoke/_init.sh
weir_node_timeout="" # the usual one
# shellcheck source=scripts/bench_connections.sh
. scripts/bench_connections.sh
# shellcheck source=scripts/bench_control.sh
. scripts/bench_control.sh
# shellcheck source=scripts/bench_hostile.sh
. scripts/bench_hostile.sh
# shellcheck source=scripts/bench_onesided.sh
. scripts/bench_onesided.sh
# shellcheck source=scripts/bench_invoke.sh
. scripts/bench_invoke.sh
# shellcheck source=scripts/bench_hex.sh
. scripts/bench_hex.sh
# shellcheck source=scripts/bench_shuffle.sh
. scripts/bench_shuffle.sh
# shellcheck source=scripts/bench_peers.sh
. scripts/bench_peers.sh
if [ "$install" = 1 ] && [ "$list" = 0 ]; then
	mapfile -t missing < <(packages_missing "${PEER_PACKAGES[@]}")
	[ "${#missing[@]}" = 0 ] || patiently fetch_and_install "${missing[@]}" || exit 3
fi
if [ "$list" = 0 ] && [ "$(id -u)" -eq 0 ]; then
	scripts/setup_hugepages.sh --save >"$weir_tmp/hugepages"
	undo "scripts/setup_hugepages.sh --restore '$weir_tmp/hugepages' >/dev/null"
	scripts/setup_hugepages.sh --2m 1024 >/dev/null || echo "without hugepages: figures will be worse"
fi
figures=$weir_tmp/figures.json
: >"$figures"

# Whether a figure is wanted; with --list only its name is printed.
wanted()
{
	[ -z "$only" ] || [[ $only == *,$1,* ]] || return 1
	[ "$list" = 0 ] || { echo "$1"; return 1; }
}

# Whether any of these is; so that nodes aren't started for nothing.
any_wanted()
{
	local name

	if [ "$list" = 1 ]; then
		for name in "$@"; do
			wanted "$name"
		done
		return 1
	fi
	for name in "$@"; do
		wanted "$name" && return 0
	done
	return 1
}

# record NAME UNIT OP TARGET HOW COMMAND: runs as JSON numbers on stdin. HOW: steady runs, pairs in turn, any
# runs, or the worst of several figures. OP "-": no target, told only.
record()
{
	jq -cs --arg name "$1" --arg unit "$2" --arg op "$3" --arg target "$4" --arg how "$5" \
		--arg command "$6" '
		def median: sort | if length == 0 then null elif length % 2 == 1 then .[length / 2 | floor]
			else (.[length / 2 - 1] + .[length / 2]) / 2 end;
		{name: $name, value: median, unit: $unit, op: $op,
		 target: (if $op == "-" then null else ($target | tonumber) end),
		 met: (median as $v | if $v == null then null elif $op == "-" then true
			elif $op == "<=" then $v <= ($target | tonumber) else $v >= ($target | tonumber) end),
		 how: (if median == null then "not measured" else $how end), runs: .,
		 command: $command}' >>"$figures"
	tail -n 1 "$figures" | jq -r '"\(if .met == null then "not measured" elif .met then "ok" else "MISSED" end)  \(.name): \(.value) \(.unit)"'
}

# perf NAME UNIT OP TARGET JQ ARGUMENT...: one figure from runs of weir-perf. JQ: the value from a result.
perf()
{
	local expression=$5

	figure weir-perf "$1" "$2" "$3" "$4" ".results[0] | $expression" "${@:6}"
}

# figure PROGRAM NAME UNIT OP TARGET JQ ARGUMENT...: one figure from runs of a program that prints results
# with labels as weir-perf does. JQ: the value from all it printed.
figure()
{
	local program=$1 name=$2 unit=$3 op=$4 target=$5 expression=$6 try
	local -a steady=()
	shift 6

	wanted "$name" || return 0
	for ((try = 0; try < TRIES && ${#steady[@]} < runs; try++)); do
		if ! "$program" "$@" --json >"$weir_tmp/result.json" 2>"$weir_tmp/perf.log"; then
			echo "$name: $program failed: $(tail -n 1 "$weir_tmp/perf.log")" >&2
			break
		fi
		jq -e 'all(.results[].calibration.label; . == "steady")' "$weir_tmp/result.json" >/dev/null || continue
		steady+=("$(jq "$expression" "$weir_tmp/result.json")")
	done
	[ "${#steady[@]}" -ge "$runs" ] || steady=()
	printf '%s\n' "${steady[@]}" | record "$name" "$unit" "$op" "$target" steady "$program $*"
}

# Ends what runs, so that the next nodes have the machine for themselves: programs first.
stop_all()
{
	local name kind

	stop_programs
	for kind in control dataplane; do
		for name in "${!weir_pid[@]}"; do
			[[ $name != $kind-* ]] || stop "$name"
		done
	done
}

stop_programs()
{
	local name

	for name in "${!weir_pid[@]}"; do
		case "$name" in dataplane-* | control-*) ;; *) stop "$name" ;; esac
	done
}

# Clock ticks that processes have run.
ticks()
{
	local pid sum=0 line

	for pid in "$@"; do
		line=$(cat "/proc/$pid/stat" 2>/dev/null) || continue
		line=${line##*) }
		# shellcheck disable=SC2086
		set -- $line
		sum=$((sum + ${12} + ${13}))
	done
	echo "$sum"
}

# KiB that the processes named hold: PSS, and hugepages in use on the machine.
memory_kib()
{
	local name sum=0

	for name in "$@"; do
		sum=$((sum + $(awk '/^Pss:/ { print $2 }' "/proc/${weir_pid[$name]}/smaps_rollup")))
	done
	awk -v sum="$sum" '/^HugePages_Total/ { t = $2 } /^HugePages_Free/ { f = $2 } /^Hugepagesize/ { s = $2 }
		END { print sum + (t - f) * s }' /proc/meminfo
}

local_figures()
{
	local size

	for size in 8 64; do
		wanted "local_instr_$size" && test/bench/instructions.sh "$WEIR_BUILD/test/bench/local_bench" 0 "$size" |
			record "local_instr_$size" "instructions of weir_send() and weir_recv() of $size B, with 22 of a loop" \
				'<=' $((size == 8 ? 180 : 215)) any "callgrind of local_bench $size"
	done
	any_wanted local_rtt_8 local_rtt_64 local_rate_64 local_rate_64_many local_bw_64k || return 0
	one_node --idle adaptive
	run server-A weir-perf --instance A --cpu 1
	await grep -q . "$weir_tmp/server-A.log" || die "weir-perf doesn't serve"
	perf local_rtt_8 "x line, mean" '<=' 1.35 '.ratio.mean_line' --instance A node:1 -t lat -s 8 -D 0.5 --cpu 0
	perf local_rtt_64 "x line, mean" '<=' 1.4 '.ratio.mean_line' --instance A node:1 -t lat -s 64 -D 0.5 --cpu 0
	perf local_rate_64 "x slots" '>=' 0.85 '.ratio.slots' --instance A node:1 -t rate -s 64 -D 0.5 --cpu 0
	perf local_rate_64_many "x slots, batches of 32" '>=' 1.2 '.ratio.slots' --instance A node:1 -t rate -s 64 -D 0.5 --cpu 0 --batch 32
	perf local_bw_64k "x memcpy" '>=' 0.47 '.ratio.copy' --instance A node:1 -t bw -s 64k -D 0.5 --cpu 0
	stop_all
}

loop_figures()
{
	wanted loop_instr_64 && test/bench/instructions.sh "$WEIR_BUILD/test/bench/loop_bench" |
		record loop_instr_64 "instructions of a lone message but for the programs'" '<=' 1500 any \
			"callgrind of loop_bench 64"
	any_wanted loop_rtt_64 loop_rate_64 || return 0
	one_node --idle adaptive
	perf loop_rtt_64 "lines above 2, mean" '<=' 4 '.ratio.mean_line - 2' \
		--instance A --loop -t lat -s 64 -D 0.5 --cpu 1
	perf loop_rate_64 "x slots" '>=' 0.55 '.ratio.slots' --instance A --loop -t rate -s 64 -D 0.5 --cpu 1
	stop_all
}

memif_figures()
{
	any_wanted memif_rtt_64 memif_rate_64 memif_bw_64k || return 0
	two_nodes_memif "" --idle adaptive
	run server-B weir-perf --instance B --cpu 1
	await grep -q . "$weir_tmp/server-B.log" || die "weir-perf doesn't serve"
	perf memif_rtt_64 "x chain of 4, p50" '<=' 1.6 '.ratio.p50_chain4' --instance A node:2 -t lat -s 64 -D 1 --cpu 0
	perf memif_rate_64 "per memcpy of 64 KiB" '>=' 6.8 "$PER_COPY" --instance A node:2 -t rate -s 64 -D 1 --cpu 0
	perf memif_bw_64k "x memcpy" '>=' 0.0625 '.ratio.copy' --instance A node:2 -t bw -s 64k -D 1 --cpu 0
	stop_all
}

# idle NAME: CPU of the nodes A and B over 30 s while a program on each is blocked in wait.
idle_share()
{
	local name=$1 node before after begin end value
	local -A ticks_of=()
	shift

	run echo probe B echo e
	await grep -q ready "$weir_tmp/echo.log" || die "probe doesn't listen"
	run block probe A block node:2:e
	await grep -q . "$weir_tmp/block.log" || die "probe doesn't connect"
	sleep 3 # what has just been set up comes to rest
	begin=$(now_ms)
	for node in A B; do
		ticks_of[$node]=$(ticks "${weir_pid[dataplane-$node]}" "${weir_pid[control-$node]}")
	done
	sleep 30
	end=$(now_ms)
	for node in A B; do
		before=${ticks_of[$node]}
		after=$(ticks "${weir_pid[dataplane-$node]}" "${weir_pid[control-$node]}")
		awk -v t="$((after - before))" -v hz="$(getconf CLK_TCK)" -v ms="$((end - begin))" \
			'BEGIN { print 100 * t / hz * 1000 / ms }'
	done | sort -n | tail -n 1 >"$weir_tmp/share"
	value=$(cat "$weir_tmp/share")
	echo "$value" | record "$name" "% of a core, the busier node" '<=' 2 any "utime+stime over 30 s, two programs blocked"
}

idle_figures()
{
	if any_wanted idle_memif first_memif; then
		two_nodes_memif "" --idle adaptive
		wanted idle_memif && idle_share idle_memif
		stop_programs
		server B
		perf first_memif "us, p50 of first messages after 100 ms of rest" '-' 0 '.lat_us.p50' \
			--instance A node:2 -t lat -s 64 -n 20 --pause 100 --wait sleep
		stop_all
	fi
	if any_wanted idle_veth first_veth; then
		two_nodes_veth 1500 "" --idle adaptive
		wanted idle_veth && idle_share idle_veth
		stop_programs
		server B
		perf first_veth "us, p50 of first messages after 100 ms of rest" '-' 0 '.lat_us.p50' \
			--instance A node:2 -t lat -s 64 -n 20 --pause 100 --wait sleep
		stop_all
	fi
}

# memory_of NAME NODE INSTANCE DAEMON...: what 1,000 idle connections from A to a program there hold beyond one. First
# one connection carries as much as setting up 1,000 does: frames of a port are memory of the port, whoever used them first.
memory_of()
{
	local name=$1 node=$2 instance=$3 n one many
	shift 3

	run echo probe "$instance" echo e
	await grep -q ready "$weir_tmp/echo.log" || die "probe doesn't listen"
	probe A many "node:$node:e" 1 5000 >"$weir_tmp/many.log" || die "no traffic: $(log_of many)"
	run hold probe A hold "node:$node:e" 1000 1
	for n in 1 1000; do
		await grep -q "holding $n\$" "$weir_tmp/hold.log" || die "$n connections were not made: $(log_of hold)"
		sleep 1
		many=$(memory_kib "$@" echo hold)
		[ "$n" = 1 ] && one=$many && kill -USR1 "${weir_pid[hold]}"
	done
	awk -v k="$((many - one))" 'BEGIN { print k / 1024 }' |
		record "$name" "MiB for 999 idle connections more" '<=' 4 any "PSS of all processes and hugepages in use"
	rm -f "$weir_tmp"/echo.log "$weir_tmp"/hold.log
	stop_all
}

memory_figures()
{
	if wanted memory_1000; then
		two_nodes_memif "" --idle adaptive
		memory_of memory_1000 2 B dataplane-A dataplane-B control-A control-B
	fi
	if wanted memory_1000_local; then
		one_node --idle adaptive
		memory_of memory_1000_local 1 A dataplane-A control-A
	fi
}

# pair NAME WHAT ARGUMENT...: a rate of weir-perf, divided by the rate without. The functions take_away and
# bring_back do that to what is compared. 10 pairs of steady runs.
pair()
{
	local name=$1 what=$2 try first second a b
	local -a ratios=()
	shift 2

	for ((try = 0; try < 100 && ${#ratios[@]} < 10; try++)); do
		take_away
		read -r first a < <(rate_of "$@")
		bring_back
		read -r second b < <(rate_of "$@")
		if [ "$a" != steady ] || [ "$b" != steady ] || [ "$first" = 0 ]; then continue; fi
		ratios+=("$(awk -v a="$first" -v b="$second" 'BEGIN { print 100 * b / a }')")
	done
	[ "${#ratios[@]}" -ge 10 ] || ratios=()
	printf '%s\n' "${ratios[@]}" | record "$name" "% of the rate without $what" '>=' "$target" paired "weir-perf $*"
}

rate_of()
{
	if weir-perf "$@" -t rate -s 64 -D 0.3 --json >"$weir_tmp/result.json" 2>"$weir_tmp/perf.log"; then
		jq -r '.results[0] | "\(.msgs_per_s) \(.calibration.label)"' "$weir_tmp/result.json"
	else
		echo "0 failed"
	fi
}

# What a hostile program costs others: on the way to another node and to a local peer.
hostile_figures()
{
	local target

	any_wanted hostile_remote hostile_local || return 0
	two_nodes_memif "" --idle adaptive
	run echo-a probe A echo victim
	run echo-b probe B echo victim
	run server-A weir-perf --instance A --cpu 1
	run server-B weir-perf --instance B --cpu 1
	for name in server-A server-B echo-a echo-b; do
		await grep -q . "$weir_tmp/$name.log" || die "$name doesn't serve"
	done
	for name in remote:2 local:1; do
		wanted "hostile_${name%:*}" || continue
		target=90
		[ "${name%:*}" != remote ] || target=95
		run hostile hostile A all 600 7 "node:${name#*:}:victim"
		# it takes CPU time as any program does: the rate without it is that beside one that computes
		run computing awk 'BEGIN { for (;;); }'
		take_away() { kill -STOP "${weir_pid[hostile]}" && kill -CONT "${weir_pid[computing]}"; }
		bring_back() { kill -STOP "${weir_pid[computing]}" && kill -CONT "${weir_pid[hostile]}"; }
		bring_back
		pair "hostile_${name%:*}" "a hostile program, beside one that computes" --instance A "node:${name#*:}" --cpu 0
		kill -CONT "${weir_pid[computing]}"
		stop computing
		stop hostile
	done
	stop_all
}

# One busy connection beside 10,000 idle ones.
fairness_figures()
{
	local target=95

	wanted fair_10000 || return 0
	two_nodes_memif "" --idle adaptive --session-connections 16384
	run echo-b probe B echo e
	run server-B weir-perf --instance B --cpu 1
	await grep -q . "$weir_tmp/server-B.log" || die "weir-perf doesn't serve"
	take_away() { [ -z "${weir_pid[hold]:-}" ] || stop hold; }
	bring_back()
	{
		: >"$weir_tmp/hold.log"
		run hold probe A hold node:2:e 10000
		await grep -q holding "$weir_tmp/hold.log" || die "10,000 connections were not made: $(log_of hold)"
	}
	pair fair_10000 "10,000 idle connections" --instance A node:2 --cpu 0
	stop_all
}

# Ten million messages of all sizes through a bad link: all arrive, once, in order, unchanged.
lossy_figures()
{
	wanted lossy_10m || return 0
	two_nodes_memif ",loss=1,dup=1,reorder=1,seed=11" --idle adaptive
	server B
	if weir-perf --instance A node:2 -t mix -n "${WEIR_LOSSY:-10000000}" --large 1000 --verify --seed 4 --no-calibrate \
		--patience 60 --json >"$weir_tmp/result.json" 2>"$weir_tmp/perf.log"; then
		jq '.results[0] | .count - .errors' "$weir_tmp/result.json"
	else
		tail -n 1 "$weir_tmp/perf.log" >&2
		jq '.results[0] // empty | .count - .errors' "$weir_tmp/result.json" 2>/dev/null | grep . || echo 0
	fi | record lossy_10m "messages, every byte verified" '>=' "${WEIR_LOSSY:-10000000}" any \
		"weir-perf -t mix -n ${WEIR_LOSSY:-10000000} --large 1000 --verify over loss=1,dup=1,reorder=1"
	stop_all
}

set_foundation()
{
	local_figures
	loop_figures
	memif_figures
	idle_figures
	memory_figures
	hostile_figures
	fairness_figures
	lossy_figures
}

# ---- nics: the NIC layer alone ----

# nicperf CPU VDEV SPEC ARGUMENT...: with nicperf_exec="exec" instead of the shell that calls it.
nicperf()
{
	local cpu=$1 vdev=$2 spec=$3
	shift 3

	# shellcheck disable=SC2046
	${nicperf_exec:-} "$WEIR_BUILD/dataplane/tools/weir-nicperf" --lcores "0@$cpu" --no-pci --in-memory $(eal_memory) --vdev "$vdev" \
		-- --nic "roce:$spec" "$@"
}

# Both ends on one core.
nicperf_loop()
{
	nicperf 0 net_ring0 net_ring0,ip=10.82.0.1/24 "$@"
}

# A core each; nic_spec: more of the SPEC, memif_options: of the vdev, at both ends.
nicperf_two()
{
	local memif=net_memif0,id=0,bsize=4224,socket=$weir_memif-nic${memif_options:-} port code
	port=$(free_port)

	nicperf_exec="exec" run nicperf-listen nicperf 1 "$memif,role=server" "net_memif0,ip=10.82.0.2/24${nic_spec:-}" --listen --port "$port"
	nicperf 0 "$memif,role=client" "net_memif0,ip=10.82.0.1/24${nic_spec:-}" --connect 127.0.0.1 --port "$port" "$@"
	code=$?
	gone "${weir_pid[nicperf-listen]}"
	stop nicperf-listen
	return "$code"
}

# Throughput with 1 % of the frames lost at each end, as a share of that without, runs in turn.
loss_figure()
{
	local try whole
	local -a ratios=()

	wanted nic_loss_4k || return 0
	for ((try = 0; try < TRIES && ${#ratios[@]} < runs; try++)); do
		nicperf_two -t write -s 4096 -D 1 --no-calibrate --json >"$weir_tmp/whole.json" 2>"$weir_tmp/perf.log" || break
		nic_spec=,loss=1 nicperf_two -t write -s 4096 -D 1 --no-calibrate --json >"$weir_tmp/lossy.json" 2>"$weir_tmp/perf.log" || break
		whole=$(jq '.results[0].msgs_per_s' "$weir_tmp/whole.json")
		ratios+=("$(jq --argjson whole "$whole" '100 * .results[0].msgs_per_s / $whole' "$weir_tmp/lossy.json")")
	done
	[ "${#ratios[@]}" -ge "$runs" ] || { ratios=(); tail -n 1 "$weir_tmp/perf.log" >&2; }
	printf '%s\n' "${ratios[@]}" |
		record nic_loss_4k "% of the lossless rate" '>=' 30 any "weir-nicperf -t write -s 4096, loss=1 at both ends"
}

# in_machine KIND SECONDS: pairs of runs of test/rxe/bench.sh in $weir_tmp/verbs; SECONDS for all but these, and for each.
in_machine()
{
	WEIR_NO_DEPS=1 WEIR_RXE_TIMEOUT=$(($2 * (2 + runs))) "$PWD/test/rxe/run.sh" "$PWD/test/rxe/bench.sh" "$1" "$runs" \
		>"$weir_tmp/verbs" 2>"$weir_tmp/perf.log" || tail -n 1 "$weir_tmp/perf.log" >&2
}

# verbs NAME PAIR UNIT OP TARGET COMMAND: the ratios of these pairs.
verbs()
{
	wanted "$1" && awk -v pair="$2" '$1 == pair { print $2 / $3 }' "$weir_tmp/verbs" | record "$1" "$3" "$4" "$5" paired "$6"
}

# The verbs driver beside perftest on the same Soft-RoCE device, in the virtual machine: runs in turn, and
# the ratio of each pair.
verbs_figures()
{
	any_wanted nic_verbs_lat nic_verbs_bw || return 0
	in_machine nic 30
	verbs nic_verbs_lat lat "x ib_write_lat, medians, 64 B on rxe" '<=' 1.15 "weir-nicperf --nic verbs:rxe0 -t lat -s 64"
	verbs nic_verbs_bw bw "x ib_write_bw, 64 KiB on rxe" '>=' 0.9 "weir-nicperf --nic verbs:rxe0 -t write -s 65536 --list 1"
}

# Instructions of a 64-byte WRITE at both ends, and the ICRC's share of them, which valgrind sees without AVX-512.
instruction_figures()
{
	local writes=20000 counts

	any_wanted nic_instr_64 nic_instr_icrc || return 0
	counts=$(valgrind --tool=callgrind --callgrind-out-file="$weir_tmp/callgrind" --toggle-collect=rounds \
		"$WEIR_BUILD/test/bench/roce_bench" 64 32 1 $writes >"$weir_tmp/perf.log" 2>&1 &&
		callgrind_annotate --threshold=100 "$weir_tmp/callgrind" 2>/dev/null |
		awk -v n=$writes '{ gsub(",", ""); sub(/\([0-9. ]*%\)/, "") }
			/PROGRAM TOTALS/ { all = $1 } /crc/ && $1 ~ /^[0-9]+$/ { crc += $1 }
			END { if (all) print all / n, 100 * crc / all }')
	wanted nic_instr_64 && echo "${counts% *}" |
		record nic_instr_64 "instructions a WRITE, both ends" '-' 0 any "callgrind of roce_bench 64 32 1 $writes"
	wanted nic_instr_icrc && echo "${counts#* }" |
		record nic_instr_icrc "% of those in CRC functions" '-' 0 any "callgrind of roce_bench 64 32 1 $writes"
}

# p99 of small WRITEs beside a large stream to the same peer, and without it.
nic_beside_figure()
{
	local try idle beside segments
	local -a over=()

	wanted nic_beside_64 || return 0
	for ((try = 0; try < TRIES && ${#over[@]} < runs; try++)); do
		nicperf_two -t write -s 16m -D 0.5 --depth 4 --list 1 --no-calibrate --json >"$weir_tmp/bulk.json" 2>"$weir_tmp/perf.log" || break
		segments=$(jq '2 * 65536 / .results[0].bytes_per_s * 1e6' "$weir_tmp/bulk.json")
		nicperf_two -t lat -s 64 -D 1 --no-calibrate --json >"$weir_tmp/idle.json" 2>"$weir_tmp/perf.log" || break
		nicperf_two -t lat -s 64 -D 1 --beside 16m --no-calibrate --json >"$weir_tmp/beside.json" 2>"$weir_tmp/perf.log" || break
		idle=$(jq '.results[0].lat_us.p99' "$weir_tmp/idle.json")
		beside=$(jq '.results[0].lat_us.p99' "$weir_tmp/beside.json")
		over+=("$(awk -v a="$idle" -v b="$beside" -v s="$segments" 'BEGIN { print b - a - s }')")
	done
	[ "${#over[@]}" -ge "$runs" ] || { over=(); tail -n 1 "$weir_tmp/perf.log" >&2; }
	printf '%s\n' "${over[@]}" | record nic_beside_64 "us of p99 above idle p99 and two segments" '<=' 0 any \
		"weir-nicperf -t lat -s 64 --beside 16m"
}

# The same through the data planes: six processes on two CPUs.
beside_figure()
{
	local try idle beside segments
	local -a over=()

	wanted nic_beside_programs || return 0
	two_nodes_memif "" --idle adaptive
	for name in perf bulk; do
		run "server-$name" weir-perf --instance B --service "$name" --cpu 1
		await grep -q . "$weir_tmp/server-$name.log" || die "weir-perf doesn't serve"
	done
	for ((try = 0; try < TRIES && ${#over[@]} < runs; try++)); do
		# the time of two segments of 64 KiB at the rate that the stream has alone
		weir-perf --instance A node:2:bulk -t bw -s 16m -D 1 --no-calibrate --json >"$weir_tmp/bulk.json" 2>"$weir_tmp/perf.log" || break
		segments=$(jq '2 * 65536 / .results[0].bytes_per_s * 1e6' "$weir_tmp/bulk.json")
		idle=$(p99_of) || break
		run stream weir-perf --instance A node:2:bulk -t bw -s 16m -D 4 --no-calibrate
		sleep 0.5
		beside=$(p99_of) || break
		gone "${weir_pid[stream]}"
		stop stream
		over+=("$(awk -v a="$idle" -v b="$beside" -v s="$segments" 'BEGIN { print b - a - s }')")
	done
	[ "${#over[@]}" -ge "$runs" ] || { over=(); tail -n 1 "$weir_tmp/perf.log" >&2; }
	printf '%s\n' "${over[@]}" | record nic_beside_programs "us of p99 above idle p99 and two segments" '-' 0 any \
		"weir-perf -t lat -s 64 beside -t bw -s 16m"
	stop_all
}

p99_of()
{
	weir-perf --instance A node:2:perf -t lat -s 64 -D 2 --no-calibrate --json >"$weir_tmp/result.json" 2>"$weir_tmp/perf.log" &&
		jq '.results[0].lat_us.p99' "$weir_tmp/result.json"
}

set_nics()
{
	local rate='.results[0].msgs_per_s / 1e6' copy='.results[0] | .bytes_per_s / 1e9 / .calibration.copy_gbps'
	local per_copy=".results[0] | $PER_COPY"
	local half='def p50(t): [.results[] | select(.test == t)][0].lat_us.p50; '

	figure nicperf_loop nic_write_64 "per memcpy of 64 KiB, one core" '>=' 8.2 "$per_copy" -t write -s 64 -D 0.5
	figure nicperf_loop nic_read_64 "per memcpy of 64 KiB, one core" '>=' 4.1 "$per_copy" -t read -s 64 -D 0.5
	figure nicperf_loop nic_write_64k "x memcpy, one core" '>=' 0.125 "$copy" -t write -s 64k -D 0.5
	figure nicperf_loop nic_qps_16 "M/s, 16 QPs, one thread" '-' 0 "$rate" -t write -s 64 -D 0.5 -q 16
	figure nicperf_loop nic_shared_2 "M/s, 2 threads share a QP" '-' 0 "$rate" -t write -s 64 -D 0.5 -q 2 --shared
	# in a long ring the frames' lines have left the other core's cache when they are written again
	memif_options=,rsize=13 figure nicperf_two nic_memif_64 "per memcpy of 64 KiB; memif ring of 8,192, tx depth 512" '>=' 9.6 "$per_copy" -t write -s 64 -D 0.5 --depth 512
	figure nicperf_two nic_memif_64_1k "M/s, ring of 1,024, tx depth 128" '-' 0 "$rate" -t write -s 64 -D 0.5
	figure nicperf_two nic_memif_64k "x memcpy" '>=' 0.146 "$copy" -t write -s 65536 -D 0.5
	figure nicperf_two nic_memif_lat "x bare frames, p50" '<=' 1.9 "$half"'p50("lat") / p50("bare")' -t lat,bare -s 64 -D 0.5
	loss_figure
	nic_beside_figure
	beside_figure
	instruction_figures
	verbs_figures
}

# value_of BUILD NAME: a figure as another bench.sh with that build records it.
value_of()
{
	WEIR_BUILD=$1 WEIR_NO_DEPS=1 scripts/bench.sh "$set_name" --only "$2" --runs 1 --json "$weir_tmp/one.json" >"$weir_tmp/perf.log" 2>&1
	jq -ce --arg name "$2" '.[] | select(.name == $name and .value != null)' "$weir_tmp/one.json" && return
	echo "$2 of $1: $(tail -n 1 "$weir_tmp/perf.log")" >&2
	return 1
}

# better OP UNIT: '<=' or '>=', also of a figure without a target: rates and times say it. Else '-'.
better()
{
	case "$1 $2" in
	"- GB/s"* | "- M/s"*) echo '>=' ;;
	"- us"* | "- ms"* | "- s "* | "- instructions"*) echo '<=' ;;
	*) echo "$1" ;;
	esac
}

# compare NAME: the value of this build divided by that of --against, in turn. Counts of faults may be 0, and
# differences less: equal, unless one of both is more.
compare()
{
	local n new="" old op unit target
	local -a ratios=()

	for ((n = 0; n < runs; n++)); do
		new=$(value_of "$WEIR_BUILD" "$1") || break
		old=$(value_of "$against" "$1") || break
		ratios+=("$(jq -n --argjson new "$new" --argjson old "$old" '[$new.value, 0] as $n | [$old.value, 0] |
			if max > 0 then ($n | max) / max elif ($n | max) > 0 then infinite else 1 end')")
	done
	[ "${#ratios[@]}" = "$runs" ] || ratios=()
	unit=$(jq -r .unit <<<"${new:-"{}"}")
	op=$(better "$(jq -r .op <<<"${new:-"{}"}")" "$unit") target=0.97
	[ "$op" != '<=' ] || target=1.03
	printf '%s\n' "${ratios[@]}" | record "$1" "x that of $against: $unit" "$op" "$target" paired \
		"scripts/bench.sh $set_name --only $1, in turn with WEIR_BUILD=$against"
}

if [ "$list" = 0 ] && [ -n "$against" ]; then
	list=1
	mapfile -t names < <("set_$set_name")
	list=0
	for name in "${names[@]}"; do
		compare "$name"
	done
else
	"set_$set_name"
fi
[ "$list" = 0 ] || exit 0
[ -z "$json" ] || jq -s . "$figures" >"$json"
echo
jq -r '[.name, (if .value == null then "-" else (.value * 1000 | round / 1000 | tostring) end), .unit, .op,
	(.target // "-" | tostring), (if .met == null then "not measured" elif .met then "met" else "MISSED" end), .how] | @tsv' "$figures" |
	awk -F '\t' 'BEGIN { printf "%-22s %10s %-3s %10s  %-12s %-6s  %s\n", "figure", "value", "", "target", "", "runs", "unit" }
		{ printf "%-22s %10s %-3s %10s  %-12s %-6s  %s\n", $1, $2, $4, $5, $6, $7, $3 }'
# shellcheck disable=SC2034 # a target that is missed is no failure of a process
weir_logs=no
if jq -es 'any(.met == false)' "$figures" >/dev/null; then
	exit 1
fi
jq -es 'length > 0 and all(.met != null)' "$figures" >/dev/null || exit 3
