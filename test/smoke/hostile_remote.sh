#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A program with the key of others' memory that writes wrong operations, and one that forges keys: on the host of the
# memory, and from another one. No byte beside that memory changes, and users of the owner's other memory go on.
# timeout: 300
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"
# shellcheck source=test/smoke/_hostile.sh
. "$(dirname "$0")/_hostile.sh"

hostile_nodes
for node in A B; do
	serve "memory-$node" keeper "$node" export "$weir_tmp/key-$node"
	chmod 644 "$weir_tmp/key-$node"
done
# friends of memory at their own node, and of that at the other
run friend-1 keeper A use "$weir_tmp/key-A.friends" 0
run friend-2 keeper A use "$weir_tmp/key-B.friends" 1
run friend-3 keeper B use "$weir_tmp/key-B.friends" 2
for who in friend-1 friend-2 friend-3; do
	await grep -q received "$weir_tmp/$who.log" || die "$who: $(last_line $who)"
done
# each memory is attacked by another user: the first one has used up its share of main's time
for node in A B; do
	user=$attacker
	[ $node = A ] || user=$small
	export HOSTILE_KEY=$weir_tmp/key-$node
	for mode in cells guesses; do
		attack $mode "$user" node:1:victim
		go_on friend-1 friend-2 friend-3
		others_go_on
		attack_ends || continue
		if [ $mode = cells ]; then
			[ "$(count cells)" -gt 10 ] || fail "few operations: $(log_of hostile)"
			[ "$(count 'sessions ended')" -gt 0 ] || fail "none of them was found to be wrong: $(log_of hostile)"
		else
			grep -q 'guesses refused' "$weir_tmp/hostile.log" || fail "no key was tried: $(log_of hostile)"
		fi
		for who in memory-A memory-B friend-1 friend-2 friend-3; do
			if grep wrong "$weir_tmp/$who.log"; then fail "$who, seed $seed"; fi
			has_ended "${weir_pid[$who]}" && die "$who ended during $mode, seed $seed: $(last_line $who)"
		done
		# what the attacker opened ends with it: the friends remain
		await shows "$node" exports '([.[] | .openers] | add) == '"$([ $node = A ] && echo 1 || echo 2)" ||
			fail "openers stay: $(weirctl --instance $node --json show exports)"
	done
done
