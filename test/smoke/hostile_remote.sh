#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A program with the key of others' memory that writes wrong operations, and one that forges keys: on the host of the
# memory, and from another one. No byte beside that memory changes, and users of the owner's other memory go on. One that
# maps memory writes nothing that is read-only; its holes end that export, and neither the owner nor others. Floods of locks,
# opens and fetches leave room for them.
# timeout: 450
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
	for mode in cells guesses map locks opens fetches; do
		attack $mode "$user" node:1:victim
		go_on friend-1 friend-2 friend-3
		others_go_on
		holes=no
		if [ $mode$node = mapA ]; then
			# where holes are filled again, nobody notices them
			grep -q 'userfaultfd: ' "$weir_tmp/dataplane-A.log" || holes=seen
			[ $holes = no ] || await grep -q renewed "$weir_tmp/memory-A.log" ||
				has_ended "${weir_pid[hostile]}" || fail "no export ended, or its owner makes no other memory: $(last_line memory-A)"
		fi
		attack_ends || continue
		if [ $mode = cells ]; then
			[ "$(count cells)" -gt 10 ] || fail "few operations: $(log_of hostile)"
			[ "$(count 'sessions ended')" -gt 0 ] || fail "none of them was found to be wrong: $(log_of hostile)"
		elif [ $mode = locks ] || [ $mode = opens ] || [ $mode = fetches ]; then
			case $mode in
				locks) what='asked for a lock' ;;
				opens) what='opened memory' ;;
				*) what='asked for bytes' ;;
			esac
			[ "$(count "$what")" -gt 100 ] || fail "few $mode: $(log_of hostile)"
			[ "$(count 'sessions ended')" = 0 ] || fail "nothing was wrong, and its session has ended: $(log_of hostile)"
		elif [ $mode = guesses ]; then
			grep -q 'guesses refused' "$weir_tmp/hostile.log" || fail "no key was tried: $(log_of hostile)"
		elif [ $node = B ]; then
			if grep -q 'mappings' "$weir_tmp/hostile.log"; then fail "memory of another host was mapped: $(log_of hostile)"; fi
			grep -q 'map refused (EKEYREJECTED)' "$weir_tmp/hostile.log" || fail "nothing was asked for: $(log_of hostile)"
		else
			[ "$(count 'read-only mappings')" -gt 0 ] || fail "nothing was mapped: $(log_of hostile)"
			[ "$(count 'writable mappings')" -gt 0 ] || fail "nothing was mapped for writing: $(log_of hostile)"
			if grep -q 'holes refused' "$weir_tmp/hostile.log"; then fail "no holes were made: $(log_of hostile)"; fi
			if [ $holes = no ]; then
				echo "not tested: holes are filled again, and nobody notices"
			else
				[ "$(count 'exports ended by holes')" -gt 0 ] || fail "no export ended: $(log_of hostile)"
			fi
		fi
		for who in memory-A memory-B friend-1 friend-2 friend-3; do
			if grep wrong "$weir_tmp/$who.log"; then fail "$who, seed $seed"; fi
			has_ended "${weir_pid[$who]}" && die "$who ended during $mode, seed $seed: $(last_line $who)"
		done
		# what the attacker opened ends with it: the friends remain, and the owner itself, twice
		await shows "$node" exports '([.[] | .openers] | add) == '"$([ $node = A ] && echo 3 || echo 4)" ||
			fail "openers stay: $(weirctl --instance $node --json show exports)"
	done
done
