#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Data planes are killed, or stopped, under traffic and restarted: programs go on, every message is accounted for.
# wires: verbs,roce
# wired: 600
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

two_nodes
serve sink-a survivor A sink s
serve sink-b survivor B sink s
run out survivor A send node:2:s 1
run in survivor B send node:1:s 2
run within survivor A send node:1:s 3

# life NAME [WHAT]: which one it is in, which is its last one that WHAT was said of.
life() {
	sed -n "s/^${2:-opened} life //p" "$weir_tmp/$1.log" | tail -n 1
}
# lives OUT IN WITHIN: at least in these, and a hundred messages have come.
lives() {
	[ "$(life out)" -ge "$1" ] && [ "$(life in)" -ge "$2" ] && [ "$(life within)" -ge "$3" ] && flow
}
flow() {
	local who
	for who in out in within; do
		[ "$(life $who flowing)" = "$(life $who)" ] || return
	done
}

# Descriptors of two that live through all of it.
files() {
	find "/proc/${weir_pid[out]}/fd" "/proc/${weir_pid[sink-a]}/fd" -type l | wc -l
}

await lives 1 1 1 || die "they don't connect"
files=""
out=1 in=1 within=1
for end in "A KILL" "B KILL" "A TERM"; do
	read -r node signal <<<"$end"
	stop "dataplane-$node" "$signal"
	read -rt 0.3 <> <(:) || true
	again "$node"
	up A B
	out=$((out + 1)) in=$((in + 1))
	[ "$node" = B ] || within=$((within + 1))
	await lives "$out" "$in" "$within" || die "after $node: lives $(life out) $(life in) $(life within), expected $out $in $within"
	files=${files:-$(files)}
done
# one that is being made or closed just now is no leak
no_more_files() {
	[ "$(files)" -le "$files" ]
}
await no_more_files || fail "descriptors: $files before, $(files) now"
out=$(life out) in=$(life in) within=$(life within)
for who in out in within; do
	stop "$who" || fail "$who: $(last_line $who)"
done
final="who 1 life $out |who 2 life $in |who 3 life $within "
ended() {
	[ "$(cat "$weir_tmp"/sink-?.log | grep -cE "$final")" = 3 ]
}
await ended || fail "receivers don't see the last ends"

# What was accepted is complete or has failed; what is complete was received, nothing twice or torn.
cat "$weir_tmp"/{out,in,within,sink-a,sink-b}.log | awk '
	$5 == "accepted" { accepted[$2, $4] = $6; complete[$2, $4] = $8; failed[$2, $4] = $10; n++ }
	$5 == "received" { received[$2, $4] += $6; wrong += $8; times[$2, $4]++ }
	END {
		for (k in accepted) {
			split(k, id, SUBSEP)
			what = sprintf("who %s life %s: accepted %d complete %d failed %d received %d", id[1], id[2], accepted[k], complete[k], failed[k], received[k])
			print what
			if (accepted[k] != complete[k] + failed[k] || received[k] < complete[k] || received[k] > accepted[k] || times[k] > 1)
				bad = bad "\n" what
			total += received[k]
		}
		if (wrong) bad = bad "\n" wrong " messages that were not the next one"
		if (n < 10 || total < 1000) bad = bad "\nonly " n " accounts, " total " messages"
		if (bad) { print "BAD:" bad; exit 1 }
	}' >"$weir_tmp/accounts.log" || fail "$(sed -n '/BAD/,$p' "$weir_tmp/accounts.log")"
