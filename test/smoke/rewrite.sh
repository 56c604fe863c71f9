#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Programs that write the memory of their messages while these are on the way, small ones, ring-sized and bulk, to
# this node and to the other: their connections live, others' messages arrive as they were, and no frame has a wrong ICRC.
# REWRITE_SECONDS=60 for a longer look.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

seconds=${REWRITE_SECONDS:-4}
seed=${SEED:-$RANDOM}
echo "seed $seed"
two_nodes
run sink probe B sink s
run local-sink probe A sink l
run back-sink probe A sink b
run drain-a probe A drain d
run drain-b probe B drain d
for who in sink local-sink back-sink drain-a drain-b; do
	await grep -q ready "$weir_tmp/$who.log"
done
run send probe A send node:2:s 100000000 3 20
run local-send probe A send node:1:l 100000000 4 20
run back-send probe B send node:1:b 100000000 5 20
for who in send local-send back-send; do
	await grep -q connected "$weir_tmp/$who.log"
done

counters() { # INSTANCE: frames that have to do with what this is about
	weirctl --instance "$1" --json show counters | jq -c '[.[] | select(.name | test("nic.(drop_bad_icrc|drop_bad_request|naks_received|retransmits|timeouts)$")) | {(.name): .value}] | add'
}
before=$(counters A)$(counters B)
run small hostile A rewrite "$seconds" "$seed" node:2:d
run remote probe A rewrite node:2:d "$seconds"
run local probe A rewrite node:1:d "$seconds"
for who in small remote local; do
	gone "${weir_pid[$who]}" || die "$who does not end"
done
for who in remote local; do
	grep -q 'end 0 after' "$weir_tmp/$who.log" || fail "$who: its own connection suffered: $(tail -n 1 "$weir_tmp/$who.log")"
	echo "$who: $(tail -n 1 "$weir_tmp/$who.log")"
done
grep -q ' rounds' "$weir_tmp/small.log" || fail "small: $(tail -n 1 "$weir_tmp/small.log")"
echo "before $before after $(counters A)$(counters B)"
for node in A B; do
	counters $node | jq -e '."nic.drop_bad_icrc" == 0 and ."nic.drop_bad_request" == 0' >/dev/null || fail "frames of $node's peer were spoilt: $(counters $node)"
	weirctl --instance $node --json show qps | jq -e 'all(.state == "RTS")' >/dev/null || fail "a QP of $node has failed: $(weirctl --instance $node show qps)"
	weirctl --instance $node --json show counters | jq -e 'map(select(.name == "broker.links_failed"))[0].value == 0' >/dev/null || fail "a link of $node failed"
done
for who in sink local-sink back-sink; do
	n=$(grep -c received "$weir_tmp/$who.log")
	more() { [ "$(grep -c received "$weir_tmp/$who.log")" -gt "$n" ]; }
	await more || fail "$who receives nothing any more: $(tail -n 1 "$weir_tmp/$who.log")"
	if grep -q wrong "$weir_tmp/$who.log"; then fail "$who: $(grep wrong "$weir_tmp/$who.log")"; fi
done
