# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# shellcheck disable=SC2154 # variables of bench.sh and _init.sh
# Figures of the set `connections` about what connections and programs take from each other. Sourced by
# bench_connections.sh.

# A rate of 100 MB/s, whatever the size of the messages, with two engines.
limit_figure()
{
	local size

	wanted conn_limit_100m || return 0
	weir_lcores='0@0,1@0,2@1' two_nodes_memif
	server B
	weirctl --instance A set program.weir-perf.rate 100M >/dev/null || die "a rate can't be set"
	for size in 64 1024 8192 65536 1048576; do
		weir-perf --instance A node:2 -t bw -s "$size" -D 3 --no-calibrate --json 2>"$weir_tmp/perf.log" |
			jq '.results[0].bytes_per_s / 1e6 - 100 | fabs'
	done | sort -n | tail -n 1 |
		record conn_limit_100m "MB/s off 100, at most" '<=' 5 any "weir-perf -t bw -s 64 ... 1048576 -D 3, weirctl set program.weir-perf.rate 100M"
	stop_all
}

# One stalled consumer among 1,000 connections.
stalled_figure()
{
	wanted conn_stalled || return 0
	two_nodes_memif "" --idle adaptive
	run drain probe B drain d
	run server-B weir-perf --instance B --cpu 1
	await grep -q . "$weir_tmp/server-B.log" || die "weir-perf doesn't serve"
	await grep -q ready "$weir_tmp/drain.log" || die "probe doesn't listen"
	run hold probe A hold node:2:d 998
	await grep -q holding "$weir_tmp/hold.log" || die "998 connections were not made: $(log_of hold)"
	take_away()
	{
		local name
		for name in sink send; do
			[ -z "${weir_pid[$name]:-}" ] || stop "$name" KILL
		done
	}
	bring_back()
	{
		: >"$weir_tmp/sink.log"
		run sink probe B sink s
		await grep -q ready "$weir_tmp/sink.log" || die "probe doesn't listen"
		run send probe A send node:2:s 100000000 3
		await grep -q 'received 1' "$weir_tmp/sink.log" || die "nothing arrives at the consumer"
		kill -STOP "${weir_pid[sink]}"
		sleep 0.5
	}
	# shellcheck disable=SC2034 # of pair()
	target=95 pair conn_stalled "a stalled consumer" --instance A node:2 --cpu 0
	take_away
	stop_all
}

# held N: bytes that both data planes hold with N idle connections, of which there can be no more.
held()
{
	two_nodes_memif "" --idle adaptive --max-connections "$1"
	run echo probe B echo e
	await grep -q ready "$weir_tmp/echo.log" || die "probe doesn't listen"
	probe A many node:2:e 1 5000 >"$weir_tmp/many.log" || die "no traffic: $(cat "$weir_tmp/many.log")"
	weirctl --instance A wait connections:0 --timeout 10 || die "a connection remains"
	weirctl --instance B wait connections:0 --timeout 10 || die "a connection remains"
	run hold probe A hold node:2:e "$1"
	await grep -q "holding $1\$" "$weir_tmp/hold.log" || die "$1 connections were not made: $(log_of hold)"
	sleep 1
	echo $(($(memory_kib dataplane-A dataplane-B) * 1024)) >"$weir_tmp/held"
	rm -f "$weir_tmp"/echo.log "$weir_tmp"/hold.log
	stop_all
}

conn_memory_figure()
{
	local few

	wanted conn_memory || return 0
	held 1000
	few=$(cat "$weir_tmp/held")
	held 10000
	awk -v few="$few" -v many="$(cat "$weir_tmp/held")" 'BEGIN { print (many - few) / 9000 }' |
		record conn_memory "bytes for an idle connection more, both ends" '<=' 1024 any "PSS and hugepages of both data planes, --max-connections 1000 and 10000, filled"
}

# What the second to the 64th small program cost, each, beside a weir-nicperf that waits.
programs_memory_figure()
{
	local i before after bare
	local -a names=()

	wanted conn_programs_memory || return 0
	before=$(memory_kib)
	# it takes the memory that it needs, and no more is set aside for it
	WEIR_EAL=--no-telemetry nicperf_exec="exec" run nicperf nicperf 1 "net_memif0,id=0,bsize=4224,socket=$weir_memif,role=server" net_memif0,ip=10.82.0.2/24 --listen --port "$(free_port)"
	sleep 2
	bare=$(($(memory_kib nicperf) - before))
	stop nicperf
	two_nodes_memif "" --idle adaptive
	run echo probe B echo e
	await grep -q ready "$weir_tmp/echo.log" || die "probe doesn't listen"
	export PROBE_ARENA=$((2 << 20))
	for ((i = 1; i <= 64; i++)); do
		run "hold$i" probe A hold node:2:e 1
		await grep -q holding "$weir_tmp/hold$i.log" || die "program $i: $(log_of "hold$i")"
		names+=("hold$i")
		[ "$i" != 1 ] || { sleep 1; before=$(memory_kib dataplane-A dataplane-B echo hold1); }
	done
	sleep 1
	after=$(memory_kib dataplane-A dataplane-B echo "${names[@]}")
	unset PROBE_ARENA
	echo "a weir-nicperf that waits: $bare KiB; a program more: $(((after - before) / 63)) KiB"
	awk -v more="$(((after - before) / 63))" -v bare="$bare" 'BEGIN { print more / bare }' |
		record conn_programs_memory "of an idle weir-nicperf for a program more" '<=' 0.1 any "63 programs with arenas of 2 MiB, all processes and hugepages"
	stop_all
}

# All of N programs send.
all_send()
{
	[ "$(weirctl --instance A --json show connections | jq '[.[] | select(.state == "open" and .by_primitive.ring > 0)] | length')" = "$1" ]
}

# load N PACE: N programs send, a message every PACE us each; cycles that A's engine is busy for one. Main shares
# its CPU: what it does to attach them is over before.
load()
{
	local i before after

	for ((i = 1; i <= $1; i++)); do
		run "send$i" probe A send node:2:d 100000000 "$i" "$2"
	done
	await all_send "$1" || die "$1 programs do not send: $(weirctl --instance A show sessions)"
	sleep 1
	before=$(weirctl --instance A --json show engines)
	sleep 4
	after=$(weirctl --instance A --json show engines)
	for ((i = 1; i <= $1; i++)); do
		stop "send$i" KILL
	done
	jq -n --argjson a "$before" --argjson b "$after" '($b[0].busy_cycles - $a[0].busy_cycles) / ($b[0].tx_messages - $a[0].tx_messages)'
}

programs_cycles_figure()
{
	local n one times=$((runs < 5 ? 5 : runs))

	wanted conn_programs_cycles || return 0
	two_nodes_memif "" --idle poll
	run drain probe B drain d
	await grep -q ready "$weir_tmp/drain.log" || die "probe doesn't listen"
	for ((n = 0; n < times; n++)); do
		load 1 50 >"$weir_tmp/one"
		one=$(cat "$weir_tmp/one")
		load 8 400 >"$weir_tmp/eight"
		load 64 3200 >"$weir_tmp/many"
		echo "busy cycles a message: 1 program $one, 8 $(cat "$weir_tmp/eight"), 64 $(cat "$weir_tmp/many")" >&2
		awk -v one="$one" -v many="$(cat "$weir_tmp/many")" 'BEGIN { print 100 * (many / one - 1) }'
	done >"$weir_tmp/more"
	sort -g "$weir_tmp/more" | tail -n 1 |
		record conn_programs_cycles "% more busy cycles a message, 64 programs, the worst of $times runs" '<=' 10 worst \
			"probe send, 20,000 messages/s in all"
	stop_all
}

set_shares()
{
	limit_figure
	stalled_figure
	conn_memory_figure
	programs_memory_figure
	programs_cycles_figure
}
