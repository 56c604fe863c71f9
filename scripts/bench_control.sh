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
		await 10 grep -q ready "$weir_tmp/echo.log" || die "probe doesn't listen"
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
	await 10 grep -q ready "$weir_tmp/echo.log" || die "probe doesn't listen"
	for ((try = 0; try < runs; try++)); do
		probe A setups node:2:e 2 16 | sed -n 's/.* setups //p'
	done | record ctl_setups "connections/s set up and closed" '>=' 1000 any "probe A setups node:2:e 2 16"
	stop_all
}

# rate_for SECONDS: "RATE LABEL" of a run of weir-perf; every message counted.
rate_for()
{
	if weir-perf --instance A node:2 --cpu 0 -t rate -s 64 -D "$1" --json >"$weir_tmp/result.json" 2>"$weir_tmp/perf.log"; then
		jq -r '.results[0] | if .errors == 0 then "\(.msgs_per_s) \(.calibration.label)" else "0 failed" end' "$weir_tmp/result.json"
	else
		echo "0 failed"
	fi
}

restart_controls()
{
	sleep 0.5
	stop control-A KILL
	stop control-B KILL
	control A 1
	control B 2
}

# Half of the runs with both controls killed and started again in their middle.
restart_figure()
{
	local try first second a b pid
	local -a ratios=()

	wanted ctl_restart || return 0
	two_nodes_memif "" --idle adaptive
	server B
	for ((try = 0; try < 100 && ${#ratios[@]} < 30; try++)); do
		read -r first a < <(rate_for 1)
		rate_for 1 >"$weir_tmp/second" &
		pid=$!
		restart_controls
		wait "$pid"
		read -r second b <"$weir_tmp/second"
		up A B
		[ "$b" != failed ] || die "traffic ended with control: $(tail -n 1 "$weir_tmp/perf.log")"
		if [ "$a" != "$b" ] || [ "$a" = mixed ] || [ "$first" = 0 ]; then continue; fi
		ratios+=("$(awk -v a="$first" -v b="$second" 'BEGIN { print b / a }')")
	done
	[ "${#ratios[@]}" -ge 30 ] || ratios=()
	printf '%s\n' "${ratios[@]}" | record ctl_restart "of the rate without, both controls killed and started in each run" '>=' 0.97 paired "weir-perf -t rate -s 64 -D 1, 30 pairs"
	stop_all
}

# Control stands still for a whole run: the least of ten seconds.
stopped_figure()
{
	local try

	wanted ctl_stopped || return 0
	two_nodes_memif "" --idle adaptive
	server B
	rate_for 1 >/dev/null # the link is there
	kill -STOP "${weir_pid[control-A]}" "${weir_pid[control-B]}"
	for ((try = 0; try < 10; try++)); do
		rate_for 1
	done | awk '{ print $1 / 1e6 }' | sort -n | head -n 1 |
		record ctl_stopped "M/s, the least of ten runs with control under SIGSTOP" '>=' 0.001 any "weir-perf -t rate -s 64 -D 1"
	kill -CONT "${weir_pid[control-A]}" "${weir_pid[control-B]}"
	stop_all
}

set_control()
{
	first_message_figure
	setups_figure
	restart_figure
	stopped_figure
}
