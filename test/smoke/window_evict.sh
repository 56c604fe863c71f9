#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# An operator ends the export of a member's part of a window, or the member's session: operations on that part, and calls
# that wait for its lock, return -ESTALE or -ECONNRESET on its host and on the other one. Those on other parts go on.
# Exports have the window's name.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

two_nodes
# part NAME FIELD: of the row of the export that the program has on B for its window.
part() { weirctl --instance B --json show exports | jq -r ".[] | select(.pid == ${weir_pid[$1]} and .name != \"\") | .$2"; }
received() { grep -c received "$weir_tmp/$1.log"; }
received_more() { [ "$(received "$1")" -gt "$2" ]; }
# go_on NAME...: each works on what is left.
go_on() {
	local who
	for who in "$@"; do
		await received_more "$who" "$(received "$who")" || fail "$who does not go on: $(last_line "$who")"
	done
}
# ended RANK RC NAME...: each has been told so.
ended() {
	local rank=$1 rc=$2 who
	shift 2
	for who in "$@"; do
		await grep -qE "^member $rank: -($rc)$" "$weir_tmp/$who.log" || fail "$who: member $rank has ended: $(last_line "$who")"
	done
}

run member-0 member B endure books 3 0
run member-1 member A endure books 3 1
run member-2 member B endure books 3 2
for who in member-{0,1,2}; do await grep -q received "$weir_tmp/$who.log" || die "$who does not work: $(last_line "$who")"; done
shows B exports 'map(select(.name == "books" and .program == "member" and .state == "open")) | length == 2' ||
	fail "the parts on B: $(weirctl --instance B show exports)"
shows A exports 'map(select(.name == "books")) | length == 1' || fail "the part on A: $(weirctl --instance A show exports)"

weirctl --instance B evict "export.$(part member-0 export)" || fail "no export is evicted"
ended 0 116 member-{0,1,2} # ESTALE
[ "$(part member-0 state)" = evicted ] || fail "it is '$(part member-0 state)', not evicted"
go_on member-{0,1,2}
weirctl --instance B evict "session.$(part member-2 session)" || fail "no session is evicted"
ended 2 '104|116' member-{0,1}
gone "${weir_pid[member-2]}" || fail "member-2 goes on without a session: $(last_line member-2)"
log_of member-2 | has 'session: .*evicted by an operator' || fail "it was told $(last_line member-2)"
go_on member-{0,1}
for who in member-{0,1,2}; do
	! grep wrong "$weir_tmp/$who.log" || fail "$who"
done

# holder and waiter on both nodes
for what in export session; do
	for holder in A B; do
		for taker in A B; do
			name=$what-$holder-$taker
			run "memory-$name" locker B window "$name" 0
			run "holder-$name" locker "$holder" window "$name" 1
			run "taker-$name" locker "$taker" window "$name" 2
			await grep -q 'held 0' "$weir_tmp/holder-$name.log" || die "no lock: $(last_line "holder-$name")"
			await shows B exports "any(.name == \"$name\" and .waiters == 1)" || fail "nobody waits: $(weirctl --instance B show exports)"
			weirctl --instance B evict "$what.$(part "memory-$name" "$what")" || fail "no $what is evicted"
			await grep -qE 'held -(104|116)' "$weir_tmp/taker-$name.log" || fail "$name: the waiter got $(last_line "taker-$name")"
			stop "holder-$name"
			stop "memory-$name"
		done
	done
done
exit $weir_failed
