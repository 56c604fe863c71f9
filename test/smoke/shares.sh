#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A rate holds for small, middle and large messages, with two engines, from when it is set to when it is
# taken away; weirctl shows it and refuses nonsense. How links are shared out by weight is looked at by
# test/unit/engine/share_test.c.
# wires: verbs,roce
# wired: 600
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

rate=100000000 burst=2000000 told=100M seconds=1.5 sizes='64 8192 65536 1048576' # rate: bytes a second
if [ -n "${WEIR_WIRE:-}" ]; then # there the machine is an emulated one
	rate=50000 burst=4096 told=50000,4096 seconds=6 sizes='64 1024'
	two_nodes
else
	weir_lcores='0@0,1@0,2@1' two_nodes_memif
fi
server B
measure() # NAME ARGUMENT...: bytes a second
{
	local name=$1
	shift
	weir-perf --instance A node:2 -D $seconds --no-calibrate --json "$@" >"$weir_tmp/$name.json" 2>"$weir_tmp/perf.log" ||
		fail "$name: $(last_line perf)"
	jq '.results[0].bytes_per_s | floor' "$weir_tmp/$name.json"
}
weirctl --instance A set program.weir-perf.rate $told >/dev/null || die "a rate can't be set"
for size in $sizes; do
	# the machine may be busy with something else: again before it counts
	for ((try = 0; try < 10; try++)); do
		got=$(measure "limited$size" -t bw -s "$size")
		((got < rate * 95 / 100 || got > rate * 105 / 100)) || break
	done
	echo "size $size: $got bytes/s"
	((got < rate * 95 / 100 || got > rate * 105 / 100)) || continue
	# the throughput without a rate at the same time
	weirctl --instance A set program.weir-perf.rate none >/dev/null
	most=$(measure "free$size" -t bw -s "$size")
	weirctl --instance A set program.weir-perf.rate $told >/dev/null
	if [ "$got" -lt $((rate * 95 / 100)) ] && [ "$most" -lt $((rate * 2)) ]; then
		echo "size $size: no more than $most bytes/s without a rate, which says nothing"
	else
		fail "size $size: $got bytes/s with a rate of $rate, $most without"
	fi
done

run limited weir-perf --instance A node:2 -t bw -s 65536 -D 600 --no-calibrate
shown() { # JQ
	shows A sessions "any(.[]; .name == \"weir-perf\" and ($1))"
}
await shown ".rate == $rate and .burst == $burst and .weight == 10 and .limited > 0 and .tx_bytes > $rate / 10" ||
	fail "show sessions: $(weirctl --instance A --json show sessions)"
session=$(weirctl --instance A --json show sessions | jq '.[] | select(.name == "weir-perf") | .session')
weirctl --instance A set "session.$session.weight" 30 || fail "a weight can't be set"
weirctl --instance A set "session.$session.rate" none || fail "a rate can't be taken away"
before=$(weirctl --instance A --json show sessions | jq '.[0].tx_bytes')
faster() { shown ".rate == 0 and .weight == 30 and .tx_bytes > $before + $rate * 3"; }
await faster || fail "it isn't faster without a rate: $(weirctl --instance A show sessions)"
stop limited INT
weirctl --instance A show sessions >/dev/null || fail "show sessions"
weirctl --instance A set program.weir-perf.rate fast 2>"$weir_tmp/set.log" && fail "'fast' is a rate"
grep -q "invalid value 'fast' for program.weir-perf.rate (expected bytes/s" "$weir_tmp/set.log" || fail "it says $(cat "$weir_tmp/set.log")"
weirctl --instance A set session.63.weight 5 2>/dev/null && fail "there is a session 63"
exit 0
