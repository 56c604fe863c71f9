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
		case $mode in
		cells)
			attack_reaches 11 cells
			attack_reaches 11 layouts
			attack_reaches 1 'wrong pieces'
			attack_reaches 1 'sessions ended'
			;;
		guesses)
			# others open connections while it guesses, before and after
			attack_reaches 101 'guesses refused (EKEYREJECTED)'
			guesses=$(count 'guesses refused (EKEYREJECTED)')
			for number in 1 2; do
				await honestly A many node:$number:victim 2 3 || fail "node:$number:victim beside $attacking: $(log_of honest)"
			done
			attack_reaches $((guesses + 41)) 'guesses refused (EKEYREJECTED)'
			;;
		locks) attack_reaches 101 'asked for a lock' ;;
		opens) attack_reaches 101 'opened memory' ;;
		fetches) attack_reaches 101 'asked for bytes' ;;
		esac
		# where holes are filled again, nobody notices them
		noticed=yes
		if grep -q 'userfaultfd: ' "$weir_tmp/dataplane-A.log"; then noticed=no; fi
		if [ $mode$node = mapA ]; then
			attack_reaches 1 'read-only mappings'
			attack_reaches 1 'writable mappings'
			[ $noticed = no ] || attack_reaches 1 'exports ended by holes'
		elif [ $mode$node = mapB ]; then
			attack_reaches 1 'map refused (EKEYREJECTED)'
		fi
		attack_ends || continue
		case $mode$node in
		locks* | opens* | fetches*)
			[ "$(count 'sessions ended')" = 0 ] || fail "nothing was wrong, and its session has ended: $(last_line hostile)"
			;;
		mapB) if grep -q 'mappings' "$weir_tmp/hostile.log"; then fail "memory of another host was mapped: $(last_line hostile)"; fi ;;
		mapA)
			if grep -q 'holes refused' "$weir_tmp/hostile.log"; then fail "no holes were made: $(last_line hostile)"; fi
			[ $noticed = no ] || await grep -q renewed "$weir_tmp/memory-A.log" || fail "the owner makes no other memory: $(last_line memory-A)"
			[ $noticed = yes ] || echo "not tested: holes are filled again, and nobody notices"
			;;
		esac
		for who in memory-A memory-B friend-1 friend-2 friend-3; do
			if grep wrong "$weir_tmp/$who.log"; then fail "$who, seed $seed"; fi
			has_ended "${weir_pid[$who]}" && die "$who ended during $mode, seed $seed: $(last_line $who)"
		done
		# what the attacker opened ends with it: the friends remain, and the owner itself, twice
		await shows "$node" exports '([.[] | .openers] | add) == '"$([ $node = A ] && echo 3 || echo 4)" ||
			fail "openers stay: $(weirctl --instance $node --json show exports)"
	done
done
