#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A hostile program against the data plane and against its local peers: everybody else undisturbed.
# timeout: 300
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

PAIRS=10
TRIES=40

two_nodes_memif
run sink probe B sink s
run local-sink probe A sink l
run echo-a probe A echo victim
run echo-b probe B echo victim
for who in sink local-sink echo-a echo-b; do
	await 10 grep -q ready "$weir_tmp/$who.log"
done
run send probe A send node:2:s 100000000 3 50
run local-send probe A send node:1:l 100000000 4 50
await 20 grep -q 'received 10000' "$weir_tmp/sink.log" || die "nothing arrives"
seed=${SEED:-$RANDOM}
echo "seed $seed"
for mode in garbage cursors scribble payload punch doorbell messages segment flags descriptors requests; do
	for address in node:1:victim node:2:victim; do
		hostile A $mode 1 "$seed" $address || fail "mode $mode against $address, seed $seed"
		for who in send local-send sink local-sink; do
			gone "${weir_pid[$who]}" 0 && die "$who ended during $mode ($address): $(tail -n 1 "$weir_tmp/$who.log")"
		done
		probe A many node:1:victim 2 3 >"$weir_tmp/many.log" 2>&1 || fail "victim on A after $mode: $(tail -n 1 "$weir_tmp/many.log")"
		probe A many node:2:victim 2 3 >"$weir_tmp/many.log" 2>&1 || fail "victim on B after $mode: $(tail -n 1 "$weir_tmp/many.log")"
	done
done
for who in sink local-sink; do
	n=$(grep -c received "$weir_tmp/$who.log")
	more() { [ "$(grep -c received "$weir_tmp/$who.log")" -gt "$n" ]; }
	await 20 more || fail "$who receives nothing any more"
	if grep -q wrong "$weir_tmp/$who.log"; then fail "$who: $(grep wrong "$weir_tmp/$who.log")"; fi
done
for who in send local-send sink local-sink; do
	stop "$who"
done

# rate ADDRESS: messages a second and the label of the run.
rate() {
	if weir-perf --instance A "$1" -t rate -s 64 -D 0.3 --cpu 0 --json >"$weir_tmp/result.json" 2>"$weir_tmp/perf.log"; then
		jq -r '.results[0] | "\(.msgs_per_s) \(.calibration.label)"' "$weir_tmp/result.json"
	else
		echo "0 failed"
	fi
}

# keeps ADDRESS VICTIM: beside a program that goes through all modes a rate is at least 90 % of that without it.
# Median of pairs of one label.
keeps() {
	local alone beside a b i n=0
	: >"$weir_tmp/ratios"
	run hostile hostile A all 600 "$seed" "$2"
	for ((i = 0; i < TRIES && n < PAIRS; i++)); do
		kill -STOP "${weir_pid[hostile]}"
		read -r alone a < <(rate "$1")
		kill -CONT "${weir_pid[hostile]}"
		read -r beside b < <(rate "$1")
		if [ "$a" = failed ] || [ "$b" = failed ]; then die "weir-perf to $1: $(cat "$weir_tmp/perf.log")"; fi
		[ "$a" = "$b" ] || continue
		n=$((n + 1))
		awk -v a="$alone" -v b="$beside" 'BEGIN { printf "%.3f\n", b / a }' >>"$weir_tmp/ratios"
	done
	stop hostile
	if [ "$n" -lt "$PAIRS" ]; then
		echo "$1: not measured: only $n of $TRIES pairs had one label"
		return
	fi
	echo "$1: beside hostile programs $(sort -n "$weir_tmp/ratios" | tr '\n' ' ')"
	[ "$(sort -n "$weir_tmp/ratios" | awk '{ v[NR] = $1 } END { print ((v[NR / 2] + v[NR / 2 + 1]) / 2 >= 0.9) }')" = 1 ] ||
		fail "$1 does not keep 90 % of its rate"
}

run server-B weir-perf --instance B --cpu 1
run server-A weir-perf --instance A --cpu 1
for who in server-A server-B; do
	await 10 grep -q serving "$weir_tmp/$who.log" || die "weir-perf doesn't serve"
done
keeps node:2 node:2:victim
keeps node:1 node:1:victim
