# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# shellcheck disable=SC2154 # variables of bench.sh and _init.sh
# The set `control` of bench.sh: what the control plane costs and how fast it is. Sourced by it.

# The first message to a node that nobody has connected to: link, queue pairs, connection, there and back. A data
# plane that starts again has no links.
first_message_figure()
{
	local try

	wanted ctl_first_message || return 0
	for ((try = 0; try < 2 * runs + 1; try++)); do
		two_nodes_memif "" --idle adaptive >&2
		run echo probe B echo e
		await grep -q ready "$weir_tmp/echo.log" || die "probe doesn't listen"
		probe A first node:2:e >"$weir_tmp/first.log" || die "no first message: $(log_of first)"
		sed -n 's/.* first \(.*\) us/\1/p' "$weir_tmp/first.log" | awk '{ print $1 / 1000 }'
		rm -f "$weir_tmp/echo.log"
		stop_all >&2
	done | record ctl_first_message "ms, p50, first message to a node and back" '<=' 5 any "probe A first node:2:e, nodes just started"
}

setups_figure()
{
	local try

	wanted ctl_setups || return 0
	two_nodes_memif "" --idle adaptive
	run echo probe B echo e
	await grep -q ready "$weir_tmp/echo.log" || die "probe doesn't listen"
	for ((try = 0; try < runs; try++)); do
		probe A setups node:2:e 2 16 | sed -n 's/.* setups //p'
	done | record ctl_setups "connections/s set up and closed" '>=' 1000 any "probe A setups node:2:e 2 16"
	stop_all
}

# rate_for SECONDS: "RATE LABEL" of a run of weir-perf; every message counted. It tells of itself in $weir_tmp/perf.log
# from 0.3 s after its start on.
rate_for()
{
	if weir-perf --instance A node:2 --cpu 0 -t rate -s 64 -D "$1" --stats-period 0.3 --json >"$weir_tmp/result.json" 2>"$weir_tmp/perf.log"; then
		jq -r '.results[0] | if .errors == 0 then "\(.msgs_per_s) \(.calibration.label)" else "0 failed" end' "$weir_tmp/result.json"
	else
		echo "0 failed"
	fi
}

restart_controls()
{
	kill -KILL "${weir_pid[control-A]}" "${weir_pid[control-B]}"
	wait "${weir_pid[control-A]}" "${weir_pid[control-B]}" 2>/dev/null
	control A 1
	control B 2
}

# rate_and COMMAND: a second's rate, COMMAND called when the messages flow.
rate_and()
{
	local pid

	rm -f "$weir_tmp/perf.log"
	rate_for 1 >"$weir_tmp/rate" &
	pid=$!
	await grep -q "sent [0-9.]*[1-9]" "$weir_tmp/perf.log" || die "no traffic: $(tail -n 1 "$weir_tmp/perf.log")"
	"$1"
	wait "$pid"
}

# Programs that wait, spin and speak with others of their node while their data plane is killed: the last to know.
death_figure()
{
	local try

	wanted ctl_death || return 0
	for ((try = 0; try < 2 * runs + 1; try++)); do
		test/smoke/kill_dataplane.sh 2>&1 | sed -n 's/.* learnt after \(.*\) ms/\1/p' | sort -n | tail -n 1
	done | record ctl_death "ms until the last of three programs knows that its data plane was killed" '<=' 100 any "test/smoke/kill_dataplane.sh"
}

# Half of the runs with both controls killed and started again in their middle.
restart_figure()
{
	local try first second a b lost=0 end=$((SECONDS + 900))
	local -a ratios=()

	any_wanted ctl_restart ctl_restart_lost || return 0
	two_nodes_memif "" --idle adaptive
	server B
	for ((try = 0; try < 100 && ${#ratios[@]} < 30 && SECONDS < end; try++)); do
		rate_and true
		read -r first a <"$weir_tmp/rate"
		rate_and restart_controls
		read -r second b <"$weir_tmp/rate"
		up A B
		if [ "$b" = failed ]; then
			tail -n 1 "$weir_tmp/perf.log" >&2
			lost=$((lost + 1))
		fi
		if [ "$a" != steady ] || [ "$b" != steady ]; then continue; fi
		ratios+=("$(awk -v a="$first" -v b="$second" 'BEGIN { print b / a }')")
	done
	[ "${#ratios[@]}" -ge 30 ] || ratios=()
	if wanted ctl_restart; then
		printf '%s\n' "${ratios[@]}" | record ctl_restart "of the rate without, both controls killed and started in each run" \
			'>=' 0.97 paired "weir-perf -t rate -s 64 -D 1, 30 pairs"
	fi
	if wanted ctl_restart_lost; then
		echo "$lost" | record ctl_restart_lost "runs of $try with a restart in which a message was lost or wrong" '<=' 0 any "those of ctl_restart"
	fi
	stop_all
}

# Control stands still while a connection that was there before carries messages: the least that was sent in a fifth of a second.
stopped_figure()
{
	local pid

	wanted ctl_stopped || return 0
	two_nodes_memif "" --idle adaptive
	server B
	weir-perf --instance A node:2 --cpu 0 -t rate -s 64 -D 10 --stats-period 0.2 --no-calibrate --json >"$weir_tmp/result.json" 2>"$weir_tmp/perf.log" &
	pid=$!
	await grep -q "sent [0-9.]*[1-9]" "$weir_tmp/perf.log" || die "no traffic: $(tail -n 1 "$weir_tmp/perf.log")"
	kill -STOP "${weir_pid[control-A]}" "${weir_pid[control-B]}"
	: >"$weir_tmp/least"
	if wait "$pid" && jq -e '.results[0].errors == 0' "$weir_tmp/result.json" >/dev/null; then
		sed -n '2,$s|.*: sent \([0-9.]*\) M/s.*|\1|p' "$weir_tmp/perf.log" | sort -n | head -n 1 >"$weir_tmp/least"
	else
		tail -n 1 "$weir_tmp/perf.log" >&2
	fi
	record ctl_stopped "M/s, the least in a fifth of a second of ten with control under SIGSTOP" '>=' 0.001 any \
		"weir-perf -t rate -s 64 -D 10 --stats-period 0.2" <"$weir_tmp/least"
	kill -CONT "${weir_pid[control-A]}" "${weir_pid[control-B]}"
	stop_all
}

# 32 nodes, all processes started at once, ids not given: from the first start to each that sees all.
cold_figures()
{
	local source try

	for source in join etcd; do
		wanted "ctl_cold_$source" || continue
		[ "$source" = join ] || command -v etcd >/dev/null || echo "ctl_cold_etcd: etcd is missing" >&2
		for ((try = 0; try < runs && try < 3; try++)); do
			"$weir_root/scripts/cluster.sh" 32 "--$source" --auto --report "$weir_tmp/cluster.json" -- true 2>"$weir_tmp/perf.log" ||
				{ tail -n 1 "$weir_tmp/perf.log" >&2; break; }
			jq .up_s "$weir_tmp/cluster.json"
		done | record "ctl_cold_$source" "s until 32 nodes started at once see each other" '<=' 10 any "cluster.sh 32 --$source --auto"
	done
}

# Nobody is taken for lost where 97 processes share the CPUs, nor is a message.
alltoall_lost_figure()
{
	local logs down=""

	wanted ctl_alltoall || return 0
	logs=$(mktemp -d "${TMPDIR:-/tmp}/weir-alltoall.XXXXXX")
	if "$weir_root/scripts/cluster.sh" 32 --join --report "$weir_tmp/cluster.json" --logs "$logs" -- weir-perf --alltoall -t rate -s 64 -D "$seconds" \
		--wait sleep --no-calibrate --verify --json >"$weir_tmp/result.json" 2>"$weir_tmp/perf.log" &&
		jq -e '.results[0] | .errors == 0 and .shares.min > 0' "$weir_tmp/result.json" >/dev/null; then
		down=$(jq .nodes_down "$weir_tmp/cluster.json")
	else
		tail -n 1 "$weir_tmp/perf.log" >&2
	fi
	if [ "$down" = 0 ]; then rm -r "$logs"; else echo "ctl_alltoall: logs and core dumps are in $logs" >&2; fi
	echo "$down" | record ctl_alltoall "nodes taken for lost in $seconds s, 32 nodes, all to all" '<=' 0 any \
		"cluster.sh 32 --join -- weir-perf --alltoall -t rate -s 64 -D $seconds --wait sleep"
}

# What controls cost at rest, % of a CPU each: as part of 32 nodes, and 100 of them alone.
control_share()
{
	local seconds=20 before after

	before=$(ticks "$@")
	sleep "$seconds"
	after=$(ticks "$@")
	awk -v t="$((after - before))" -v hz="$(getconf CLK_TCK)" -v s="$seconds" -v n="$#" 'BEGIN { print 100 * t / hz / s / n }'
}

idle_nodes_figure()
{
	wanted ctl_idle_32 || return 0
	export -f control_share ticks
	# shellcheck disable=SC2016 # cluster.sh's variables
	"$weir_root/scripts/cluster.sh" 32 --join --auto -- bash -c 'sleep 5; control_share $(cat "$WEIR_RUN_DIR"/n*/control.pid)' 2>"$weir_tmp/perf.log" |
		record ctl_idle_32 "% of a CPU, each control of 32 nodes at rest" '<=' 0.5 any "cluster.sh 32 --join; utime+stime of weir-control over 20 s"
}

idle_controls_figure()
{
	local i port pids=()

	wanted ctl_idle_100 || return 0
	port=$(free_port)
	for ((i = 0; i < 100; i++)); do
		while (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do
			port=$((port + 1))
		done
		[ "$i" -gt 0 ] || seed=127.0.0.1:$port
		run "control-c$i" weir-control --instance "c$i" --node auto --listen "127.0.0.1:$port" --join "$seed"
		pids+=("${weir_pid[control-c$i]}")
		port=$((port + 1))
	done
	sleep 15
	control_share "${pids[@]}" |
		record ctl_idle_100 "% of a CPU, each of 100 controls without data planes at rest" '-' 0 any "weir-control --join; utime+stime over 20 s"
	stop_all
}

# What membership costs and how long it takes among 16 to 1,024 nodes, in virtual time.
membership_figures()
{
	local n name command="test-membership --figures --clusters 4" names=(ctl_messages ctl_suspect ctl_dead ctl_know)
	local -A told=([messages]="messages a second of a node" [suspect]="s until a death is suspected" [dead]="s until it is declared" [know]="s until all know")
	local -A field=([messages]=messages_per_s [suspect]=suspect_s [dead]=dead_s [know]=all_know_s)

	for n in 16 32 64 128 256 512 1024; do
		names+=("ctl_messages_$n" "ctl_suspect_$n" "ctl_dead_$n" "ctl_know_$n")
	done
	any_wanted "${names[@]}" || return 0
	"$WEIR_BUILD/test/sim/test-membership" --figures --json --clusters 4 >"$weir_tmp/membership.json" || : >"$weir_tmp/membership.json"
	for name in messages suspect dead know; do
		for n in 16 32 64 128 256 512 1024; do
			wanted "ctl_${name}_$n" || continue
			jq --argjson n "$n" ".[] | select(.nodes == \$n) | .${field[$name]}" "$weir_tmp/membership.json" |
				record "ctl_${name}_$n" "${told[$name]}, $n nodes" '-' 0 any "$command"
		done
	done
	for name in messages suspect dead; do
		wanted "ctl_$name" || continue
		jq "(.[-1].${field[$name]} / .[0].${field[$name]})" "$weir_tmp/membership.json" |
			record "ctl_$name" "x that of 16 nodes, 1,024: ${told[$name]}" '<=' 1.25 any "$command"
	done
	wanted ctl_know || return 0
	jq '(.[-1].all_know_s / .[0].all_know_s) / ((.[-1].nodes | log2) / (.[0].nodes | log2))' "$weir_tmp/membership.json" |
		record ctl_know "x what log n allows beyond 16 nodes, 1,024: ${told[know]}" '<=' 1 any "$command"
}

set_control()
{
	cold_figures
	first_message_figure
	setups_figure
	death_figure
	restart_figure
	stopped_figure
	idle_nodes_figure
	idle_controls_figure
	membership_figures
	alltoall_lost_figure
}
