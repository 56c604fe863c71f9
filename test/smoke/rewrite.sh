#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Programs that write the memory of their messages while these are on the way, small ones, ring-sized and bulk, to
# this node and to the other: their connections live, others' messages arrive as they were, and no frame has a wrong ICRC.
# REWRITE_SECONDS=60 for a longer look.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"
# shellcheck source=test/smoke/_hostile.sh
. "$(dirname "$0")/_hostile.sh"

seconds=${REWRITE_SECONDS:-4}
two_nodes
serve sink probe B sink s
serve local-sink probe A sink l
serve back-sink probe A sink b
serve drain-a probe A drain d
serve drain-b probe B drain d
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
	grep -q 'end 0 after' "$weir_tmp/$who.log" || fail "$who: its own connection suffered: $(last_line $who)"
	echo "$who: $(last_line $who)"
done
grep -q ' rounds' "$weir_tmp/small.log" || fail "small: $(last_line small)"
echo "before $before after $(counters A)$(counters B)"
for node in A B; do
	counters $node | jq -e '."nic.drop_bad_icrc" == 0 and ."nic.drop_bad_request" == 0' >/dev/null || fail "frames of $node's peer were spoilt: $(counters $node)"
	shows $node qps 'all(.state == "RTS")' || fail "a QP of $node has failed: $(weirctl --instance $node show qps)"
	shows $node counters 'map(select(.name == "broker.links_failed"))[0].value == 0' || fail "a link of $node failed"
done
go_on sink local-sink back-sink
