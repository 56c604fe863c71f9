#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A hostile program against the data plane and against its local peers: everybody else undisturbed. What
# it costs their rate is a figure of scripts/bench.sh.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

two_nodes
run sink probe B sink s
run local-sink probe A sink l
run echo-a probe A echo victim
run echo-b probe B echo victim
for who in sink local-sink echo-a echo-b; do
	await grep -q ready "$weir_tmp/$who.log"
done
run send probe A send node:2:s 100000000 3 50
run local-send probe A send node:1:l 100000000 4 50
await grep -q 'received 10000' "$weir_tmp/sink.log" ||
	die "10000 messages don't arrive within 20 s: $(tail -n 1 "$weir_tmp/sink.log")"
seed=${SEED:-$RANDOM}
echo "seed $seed"
modes='garbage cursors scribble payload punch refault junk doorbell messages segment flags descriptors requests waiters'
if grep -q 'userfaultfd: ' "$weir_tmp"/*.log; then
	echo 'no userfaultfd here: holes that the kernel fills again are not tried'
	modes=${modes/ refault/}
fi
for mode in $modes; do
	for address in node:1:victim node:2:victim; do
		hostile A "$mode" 1 "$seed" $address || fail "mode $mode against $address, seed $seed"
		for who in send local-send sink local-sink; do
			has_ended "${weir_pid[$who]}" && die "$who ended during $mode ($address): $(tail -n 1 "$weir_tmp/$who.log")"
		done
		probe A many node:1:victim 2 3 >"$weir_tmp/many.log" 2>&1 || fail "victim on A after $mode: $(tail -n 1 "$weir_tmp/many.log")"
		probe A many node:2:victim 2 3 >"$weir_tmp/many.log" 2>&1 || fail "victim on B after $mode: $(tail -n 1 "$weir_tmp/many.log")"
	done
done
for who in sink local-sink; do
	n=$(grep -c received "$weir_tmp/$who.log")
	more() { [ "$(grep -c received "$weir_tmp/$who.log")" -gt "$n" ]; }
	await more || fail "$who receives nothing any more"
	if grep -q wrong "$weir_tmp/$who.log"; then fail "$who: $(grep wrong "$weir_tmp/$who.log")"; fi
done
