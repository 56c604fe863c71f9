#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Data planes are killed, or stopped, under traffic and restarted: programs go on, every message is accounted for.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

two_nodes
run sink-a survivor A sink s
run sink-b survivor B sink s
await 10 grep -q ready "$weir_tmp/sink-a.log"
await 10 grep -q ready "$weir_tmp/sink-b.log"
run out survivor A send node:2:s 1
run in survivor B send node:1:s 2
run within survivor A send node:1:s 3

# life NAME: which one it is in.
life() {
	grep -c opened "$weir_tmp/$1.log"
}
# lives OUT IN WITHIN: so many each, at least.
lives() {
	[ "$(life out)" -ge "$1" ] && [ "$(life in)" -ge "$2" ] && [ "$(life within)" -ge "$3" ]
}

# files PROGRAM: descriptors that it has.
files() {
	find "/proc/${weir_pid[$1]}/fd" -type l | wc -l
}

await 10 lives 1 1 1 || die "they don't connect"
files=""
out=1 in=1 within=1
for end in "A KILL" "B KILL" "A TERM"; do
	read -r node signal <<<"$end"
	read -rt 0.5 <> <(:) || true # of traffic
	stop "dataplane-$node" "$signal"
	read -rt 0.3 <> <(:) || true
	again "$node"
	up A B
	out=$((out + 1)) in=$((in + 1))
	[ "$node" = B ] || within=$((within + 1))
	await 20 lives "$out" "$in" "$within" || die "after $node: lives $(life out) $(life in) $(life within), expected $out $in $within"
	files=${files:-$(files out)/$(files sink-a)}
done
read -rt 0.5 <> <(:) || true
[ "$(files out)/$(files sink-a)" = "$files" ] || fail "descriptors: $files before, $(files out)/$(files sink-a) now"
for who in out in within; do
	stop "$who" || fail "$who: $(tail -n 1 "$weir_tmp/$who.log")"
done
final="who 1 life $out |who 2 life $in |who 3 life $within "
ended() {
	[ "$(cat "$weir_tmp"/sink-?.log | grep -cE "$final")" = 3 ]
}
await 5 ended || fail "receivers don't see the last ends"

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
