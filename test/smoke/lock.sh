#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# kill -9 of a program that holds a lock, and of one that waits: the next holder has the lock within a second, and
# learns that an exclusive one died; on the host of the memory and on the other one. weirctl names holder and waiters.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

two_nodes
key=$weir_tmp/key
run memory locker B export "$key"
await grep -q ready "$weir_tmp/memory.log" || die "no export: $(last_line memory)"

# holds WHO: it has said so.
holds() { await grep -q held "$weir_tmp/$1.log"; }
# lock JQ: of the export's row.
lock() { shows B exports ".[0] | $1"; }

round=0
for holder in A B; do
	for taker in A B; do
		for kind in exclusive shared; do
			round=$((round + 1)) expected=0 named="startswith(\"locker:\")"
			[ "$kind" = shared ] || expected=-130 # EOWNERDEAD
			[ "$holder" = B ] || named='. == "node:1"'
			run "holder$round" locker "$holder" hold "$key" "$kind"
			holds "holder$round" || die "no lock: $(last_line "holder$round")"
			run "waiter$round" locker "$holder" hold "$key" exclusive
			await lock ".lock == \"$kind\" and .holders == 1 and .waiters == 1 and (.holder | $named)" ||
				fail "not named: $(weirctl --instance B --json show exports)"
			run "taker$round" locker "$taker" take "$key" exclusive
			await lock '.waiters == 2' || fail "nobody waits: $(weirctl --instance B --json show exports)"
			stop "waiter$round" KILL
			await lock '.waiters == 1' || fail "a dead one waits"
			waited=$(starved dataplane-A dataplane-B "taker$round")
			stop "holder$round" KILL
			killed=$(now_ms)
			holds "taker$round" || fail "the lock of a program that died is held"
			read -r at _ status < <(grep held "$weir_tmp/taker$round.log")
			[ "$status" = "$expected" ] || fail "round $round: got $status, expected $expected"
			late=$(($(starved dataplane-A dataplane-B "taker$round") - waited))
			[ $((at - killed)) -le $((1000 + (late > 0 ? late : 0))) ] || fail "got it after $((at - killed)) ms, starved for $late"
			wait "${weir_pid[taker$round]}" || fail "unlock: $(last_line "taker$round")"
			unset "weir_pid[taker$round]"
			await lock '.lock == "" and .holders == 0 and .waiters == 0' || fail "the lock stays: $(weirctl --instance B --json show exports)"
		done
	done
done

# an operator ends the export: who waits hears of it
run holder locker A hold "$key" exclusive
holds holder || die "no lock: $(last_line holder)"
run waiter locker B take "$key" exclusive
await lock '.waiters == 1' || fail "nobody waits"
weirctl --instance B evict "export.$(weirctl --instance B --json show exports | jq '.[0].export')" || fail "not evicted"
await grep -q 'lock: Stale' "$weir_tmp/waiter.log" || fail "the waiter got $(last_line waiter)"
