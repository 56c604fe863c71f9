#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Programs' own memory, adopted: sent out of and received into, to the other node and to the same; a program that dies
# with memory posted and writes on their way into it; one that misuses all of it.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

counter() { # INSTANCE NAME: over all engines
	weirctl --instance "$1" --json show counters | jq "[.[] | select(.name | endswith(\"$2\")) | .value] | add"
}

two_nodes
for node in 1 2; do
	where=$([ $node = 1 ] && echo A || echo B)
	run "placed-$node" adopter "$where" sink p$node
	await grep -q ready "$weir_tmp/placed-$node.log"
	adopter A send node:$node:p$node 3000 $node >"$weir_tmp/adopted.log" 2>&1 ||
		fail "out of adopted memory to node $node: $(tail -n 1 "$weir_tmp/adopted.log")"
	await grep -q 'end -108 after 3000' "$weir_tmp/placed-$node.log" ||
		fail "into posted memory on node $node: $(tail -n 1 "$weir_tmp/placed-$node.log")"
done
sent=$(counter A .tx_adopted) placed=$(counter B .rx_placed)
echo "of 3000 messages $sent were sent out of adopted memory, $placed came into posted memory"
# a third of them are large
{ [ "$sent" -gt 800 ] && [ "$placed" -gt 500 ]; } || fail "too few without a copy: $sent sent, $placed placed"

run echo-a probe A echo victim
run echo-b probe B echo victim
for who in echo-a echo-b; do
	await grep -q ready "$weir_tmp/$who.log"
done
run doomed adopter B sink d
await grep -q ready "$weir_tmp/doomed.log"
run sender adopter A send node:2:d 100000 9
await grep -q received "$weir_tmp/doomed.log" || fail "nothing comes: $(tail -n 1 "$weir_tmp/doomed.log")"
stop doomed KILL
gone "${weir_pid[sender]}" || fail "the sender doesn't learn that its peer died"
seed=${SEED:-$RANDOM}
echo "seed $seed"
for address in node:1:victim node:2:victim; do
	hostile A adopt 1 "$seed" $address || fail "mode adopt against $address, seed $seed"
	probe A many $address 2 3 >"$weir_tmp/many.log" 2>&1 || fail "$address afterwards: $(tail -n 1 "$weir_tmp/many.log")"
done
all_gone() { ! grep -q weir-region /proc/"${weir_pid[dataplane-A]}"/maps /proc/"${weir_pid[dataplane-B]}"/maps; }
await all_gone || fail "memory of programs that are gone is mapped still"
for node in A B; do
	weirctl --instance $node --json show qps | jq -e 'all(.state == "RTS")' >/dev/null || fail "a QP of $node has failed: $(weirctl --instance $node show qps)"
done
