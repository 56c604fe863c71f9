#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SIGSTOP and SIGKILL of members of a group with a window: holders and waiters of its lock, a member within a put of
# 16 MiB, some in a fence or a wait for a notice, rank 0 on whose part all work, controls, data planes. Two members on
# each of two nodes keep books: in the part are at least the completed operations, at most those begun. Nobody waits for
# ever.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"
# shellcheck source=test/smoke/_rma_kill.sh
. "$(dirname "$0")/_rma_kill.sh"

two_nodes
all=(window-0 window-1 window-2 window-3)
others() { printf '%s\n' "${all[@]}" | grep -v "^$1$"; }
lines() { grep -c "$2" "$weir_tmp/$1.log"; }
said_more() { [ "$(lines "$1" "$2")" -gt "$3" ]; }
# says_again NAME TEXT: it says that from now on.
says_again() { await said_more "$1" "$2" "$(lines "$1" "$2")" || die "$1 does not say '$2': $(last_line "$1")"; }
errors_at() { errors_of "$1" | cut -d ' ' -f 2; }

# dies WHEN NAME ERRNO...: by SIGKILL; all others hear of it, and with another one the group forms again.
dies() {
	local when=$1 victim=$2 who
	local -A before=()
	for who in $(others "$victim"); do before[$who]=$(errors_at "$who"); done
	slain "$victim"
	rm -f "$dir"/hold-* "$dir"/fill-*
	for who in $(others "$victim"); do
		await failed_with "$who" "${before[$who]}" "-104 -116" || fail "$when: $who: $errno, expected -104 (ECONNRESET) or -116 (ESTALE): $(last_line "$who")"
	done
	again_work "$victim"
	moved "$when" "${all[@]}"
}
# How often the others have got the lock of a member that was dead.
others_repaired() {
	local each
	for each in $(others "$1"); do cat "$weir_tmp/$each.log"; done | grep -c repaired
}
# A member waits, longer than any does while nobody keeps the lock.
one_waits() { shows B exports "any(.waiters >= 1 and .waits_ms > 150)"; }
# keeps NAME: has the lock from now on, and another member waits for it; it does not if it was the last of a round.
keeps() {
	local try said
	for try in {1..100}; do
		said=$(lines "$1" held)
		touch "$dir/hold-${1#*-}"
		await said_more "$1" held "$said" || die "$1 does not lock: $(last_line "$1")"
		for _ in {1..10}; do
			read -rt 0.05 <> <(:)
			! one_waits || return 0
		done
		rm "$dir/hold-${1#*-}"
		moved "$1 holds the lock, $try" "$1"
	done
	die "nobody waits for $1: $(weirctl --instance B --json show exports)"
}

work window-0 B 4
work window-1 B 4
work window-2 A 4
work window-3 A 4
moved "all at work" "${all[@]}"

# ---- stopped ----
calm=$(errors_of "${all[@]}")
for who in window-1 window-2; do
	freeze "$who"
	read -rt 0.3 <> <(:)
	thaw "$who"
	moved "$who was stopped" "${all[@]}"
done
[ "$(errors_of "${all[@]}")" = "$calm" ] || fail "a member that was stopped hurts others: $(errors_of "${all[@]}"), before $calm"

# ---- holder, waiter ----
for who in window-1 window-2; do
	keeps "$who"
	repaired=$(others_repaired "$who")
	dies "$who held the lock" "$who"
	[ "$(others_repaired "$who")" -gt "$repaired" ] || fail "nobody has learnt that $who held the lock"
	keeps "$who"
	dies "window-3 beside the lock of $who" window-3
done

# ---- origin, target, within a put ----
for who in window-1 window-2 window-1 window-2; do
	touch "$dir/fill-${who#*-}"
	says_again "$who" filled
	dies "$who was within a put" "$who"
done
touch "$dir/fill-2"
says_again window-2 filled
dies "the target was killed within a put" window-0

# ---- in a fence ----
for still in window-1 window-3; do
	touch "$dir/fences"
	for who in "${all[@]}"; do says_again "$who" fenced; done
	freeze "$still"
	read -rt 0.3 <> <(:) # the others come to the fence
	declare -A before=()
	for who in "${all[@]}"; do before[$who]=$(errors_at "$who"); done
	slain window-2
	for who in $(others window-2 | grep -v "$still"); do
		await failed_with "$who" "${before[$who]}" "-104 -116" || fail "$who waits in a fence: $errno, $(last_line "$who")"
	done
	thaw "$still"
	await failed_with "$still" "${before[$still]}" "-104 -116" || fail "$still waits in a fence: $errno, $(last_line "$still")"
	rm "$dir/fences"
	again_work window-2
	moved "a member was killed in a fence" "${all[@]}"
done

# ---- while all wait for a notice of anybody ----
for victim in window-1 window-2; do
	declare -A said=()
	for who in "${all[@]}"; do said[$who]=$(lines "$who" awaits); done
	touch "$dir/notices"
	for who in "${all[@]}"; do await said_more "$who" awaits "${said[$who]}" || die "$who waits for no notice: $(last_line "$who")"; done
	rm "$dir/notices"
	dies "all waited for a notice" "$victim"
done

# ---- controls ----
controls_start_again

# ---- data planes ----
for node in A B; do
	declare -A before=()
	for who in "${all[@]}"; do before[$who]=$(errors_at "$who"); done
	slain "dataplane-$node"
	for who in "${all[@]}"; do
		case $node-$who in
		A-window-[23] | B-window-[01]) may="-19" ;;
		*) may="-112 -104 -116" ;;
		esac
		await failed_with "$who" "${before[$who]}" "$may" || fail "$who: $errno, expected one of $may: $(last_line "$who")"
	done
	again "$node"
	up A B
	moved "after the end of $node's data plane" "${all[@]}"
done

# ---- the end ----
await said_more window-0 compared 0 || fail "rank 0 has compared nothing"
ends "${all[@]}"
