#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Links of which nobody hears for a second return their rings, `show links` says so, and make them again under traffic; a
# data plane is killed while they are small, and another one takes its place. Every message is accounted for.
# wires: verbs,roce
# wired: 600
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

two_nodes --ring-idle 1
serve sink-a survivor A sink s
serve sink-b survivor B sink s
run out survivor A send node:2:s 1
run in survivor B send node:1:s 2

# life NAME: which one its connection is in; flowing NAME LIFE: it is in that one at least, and messages are complete.
life() {
	sed -n "s/^opened life //p" "$weir_tmp/$1.log" | tail -n 1
}
flowing() {
	[ "$(life "$1")" -ge "$2" ] && [ "$(sed -n 's/^flowing life //p' "$weir_tmp/$1.log" | tail -n 1)" = "$(life "$1")" ]
}
# memory NODE: bytes of its links' rings and stagings.
memory() {
	weirctl --instance "$1" --json show links | jq 'map(.memory) | add'
}
lines_are() { # NODE LINES
	shows "$1" links "length > 0 and all(.ring_lines == $2)"
}
smaller() { # NODE MEMORY
	[ "$(memory "$1")" -lt $(($2 / 4)) ]
}
# Programs that are stopped say nothing: no time is waited for.
rest() {
	local node
	kill -STOP "${weir_pid[out]}" "${weir_pid[in]}"
	for node in A B; do
		await lines_are "$node" 256 || die "node $node keeps its rings: $(weirctl --instance "$node" show links)"
		await smaller "$node" "$large" || die "node $node keeps memory: $large bytes, now $(memory "$node")"
	done
}
grown() { # NODE COUNT
	[ "$(counter "$1" rings_regained)" -ge "$2" ] && lines_are "$1" 4096
}
traffic() { # TIMES
	local node
	kill -CONT "${weir_pid[out]}" "${weir_pid[in]}"
	for node in A B; do
		await grown "$node" "$1" || die "node $node makes no large ring: $(weirctl --instance "$node" show links)"
	done
}

for who in out in; do await flowing $who 1 || die "$who sends nothing"; done
for node in A B; do await lines_are $node 4096 || die "node $node: $(weirctl --instance $node show links)"; done
large=$(memory A)
for ((n = 1; n <= 3; n++)); do
	rest
	traffic $n
done
rest
echo "memory of the link: $large bytes, at rest $(memory A); withdrawn $(counter A rings_withdrawn) and $(counter B rings_withdrawn) times"
for who in out in; do
	[ "$(life $who)" = 1 ] || fail "the connection of $who was lost"
done

# the peer is killed meanwhile: programs learn of it, and go on with the next one
stop dataplane-B KILL
again B --ring-idle 1
up A B
kill -CONT "${weir_pid[out]}" "${weir_pid[in]}"
for who in out in; do await flowing $who 2 || die "$who does not go on: $(last_line $who)"; done
final="who 1 life $(life out) received|who 2 life $(life in) received"
for who in out in; do
	stop $who || fail "$who: $(last_line $who)"
done
ended() {
	[ "$(cat "$weir_tmp"/sink-?.log | grep -cE "$final")" = 2 ]
}
await ended || fail "receivers don't see the last ends"

# What was accepted is complete or has failed; what is complete was received, nothing twice or torn.
cat "$weir_tmp"/{out,in,sink-a,sink-b}.log | awk '
	$5 == "accepted" { accepted[$2, $4] = $6; complete[$2, $4] = $8; failed[$2, $4] = $10 }
	$5 == "received" { received[$2, $4] += $6; wrong += $8; times[$2, $4]++ }
	END {
		for (k in accepted) {
			split(k, id, SUBSEP)
			what = sprintf("who %s life %s: accepted %d complete %d failed %d received %d", id[1], id[2], accepted[k], complete[k], failed[k], received[k])
			print what
			if (accepted[k] != complete[k] + failed[k] || received[k] < complete[k] || received[k] > accepted[k] || times[k] > 1)
				bad = bad "\n" what
			n++
		}
		if (wrong) bad = bad "\n" wrong " messages that were not the next one"
		if (n < 4) bad = bad "\nonly " n " accounts"
		if (bad) { print "BAD:" bad; exit 1 }
	}' >"$weir_tmp/accounts.log" || fail "$(sed -n '/BAD/,$p' "$weir_tmp/accounts.log")"
