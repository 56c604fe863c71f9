#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# More of everything than leaves room for others: who attaches without end, holes, keys, segments, memory, slots, lines of the
# log. Others attach, connect and go on meanwhile; each is bounded where it is said to be.
# timeout: 600
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"
# shellcheck source=test/smoke/_hostile.sh
. "$(dirname "$0")/_hostile.sh"

hostile_nodes
for user in $attacker $stranger $limited; do
	attack attach "$user" node:1:victim
	others_go_on
	attack_ends
done
for mode in knock stale; do
	attack $mode $attacker node:2:victim
	others_go_on
	attack_ends
done

attack holes $attacker node:2:victim
others_go_on
attack_reaches 1 'sessions ended'
attack_ends
grep -q 'session [0-9]* .*hole' "$weir_tmp/dataplane-A.log" || fail "no line tells of who makes holes"

# all keys; then somebody attaches, and a link is made
attack keys:64 $attacker node:1:victim
others_go_on
attack_ends
# regions of hundreds of MiB, made and freed by main
attack regions $attacker node:1:victim
others_go_on
attack_reaches 1 'MiB of regions'
attack_ends
# a server, whose segments a crowd takes, has room for others
attack segments $attacker node:1:victim
others_go_on
attack_ends

attack memory $small node:1:victim
others_go_on
attack_reaches 32769 'KiB adopted' 'KiB of segments' 'KiB of arenas'
attack_ends
kib=0
for what in adopted 'of segments' 'of arenas'; do kib=$((kib + $(count "KiB $what"))); done
[ "$kib" -le 65536 ] || fail "a user with memory=64M got $kib KiB: $(last_line hostile)"

# lines of operators beside a flood of others
attack log $attacker node:1:victim
for n in 1 2 3 4 5; do
	: >"$weir_tmp/mine.log"
	run mine probe A echo "mine$n"
	await grep -q ready "$weir_tmp/mine.log" || fail "nobody attaches beside $attacking"
	mine() { id=$(weirctl --instance A --json show sessions | jq -e "[.[] | select(.pid == ${weir_pid[mine]})][0].session"); }
	await mine || { fail "mine isn't among the sessions: $(weirctl --instance A show sessions)"; break; }
	weirctl --instance A evict "session.$id" --reason "by hand $n" >/dev/null || fail "session $id can't be evicted"
	stop mine
	await grep -q "evicted: by hand $n" "$weir_tmp/dataplane-A.log" || { fail "no line tells of eviction $n"; break; }
done
others_go_on
attack_reaches 1 violations
attack_ends
