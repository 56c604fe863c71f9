#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SIGSTOP and SIGKILL of holders and waiters of a lock, of programs within a put of 16 MiB, of one that has mapped memory, of
# the program whose memory it is, of the leader of a group that others join, of data planes and controls, under updates,
# puts, locks and a group of both nodes. Programs keep books that survive: at the target are at least the completed
# operations, at most those begun. Nobody waits for ever.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"
# shellcheck source=test/smoke/_rma_kill.sh
. "$(dirname "$0")/_rma_kill.sh"

two_nodes
# compared WHEN: the owner finds its memory as the books say.
compared() {
	local n
	n=$(grep -c compared "$weir_tmp/owner.log")
	kill -USR1 "${weir_pid[owner]}"
	await eval "[ \$(grep -c compared '$weir_tmp/owner.log') -gt $n ]" || die "$1: the owner says nothing"
	grep compared "$weir_tmp/owner.log" | tail -n 1 | has 'all agree' || fail "$1: $(log_of owner)"
}
# within NAME: it has begun a put that is not complete, and gets no further.
within() {
	local before
	book "$1"
	[ "$begun" -gt "$completed" ] || return 1
	before=$begun
	read -rt 0.2 <> <(:)
	book "$1"
	[ "$begun" = "$before" ] && [ "$begun" -gt "$completed" ]
}

serve owner rma_kill B own "$dir"

# ---- a lock ----
lock() { shows B exports ".[] | select(.bytes == 64) | $1"; }
says() { await grep -q "$2" "$weir_tmp/$1.log" || die "$1 has not said '$2': $(last_line "$1"), $(weirctl --instance B --json show exports)"; }
hold() { run "$1" rma_kill "$2" hold "$dir"; }

work update-0 A
for where in A B; do
	other=$([ "$where" = A ] && echo B || echo A)
	named() { [ "$1" = A ] && echo '.holder == "node:1"' || echo "(.holder | startswith(\"rma_kill:\"))"; }
	hold "holder-$where" "$where"
	says "holder-$where" 'held 0'
	hold "first-$where" "$other"
	await lock '.waiters == 1' || fail "the first does not wait"
	hold "second-$where" "$where"
	await lock '.waiters == 2' || fail "the second does not wait"
	# who is stopped keeps the lock, and others work
	freeze "holder-$where"
	moved "a holder is stopped" update-0
	lock "(.holders == 1 and .waiters == 2 and .lock == \"exclusive\" and $(named "$where"))" || fail "not named: $(weirctl --instance B --json show exports)"
	! grep -q held "$weir_tmp/first-$where.log" || fail "the lock of a program that is stopped has passed on"
	# a waiter that is stopped gets it nevertheless, and learns of it later
	freeze "first-$where"
	kill -USR1 "${weir_pid[holder-$where]}"
	thaw "holder-$where"
	says "holder-$where" 'unlocked 0'
	await lock "(.holders == 1 and .waiters == 1 and $(named "$other"))" || fail "not passed on: $(weirctl --instance B --json show exports)"
	moved "a waiter is stopped" update-0
	thaw "first-$where"
	says "first-$where" 'held 0'
	# killed while it is stopped
	freeze "first-$where"
	slain "first-$where"
	says "second-$where" 'held -130'
	# and one that never learnt that it held the lock
	hold "third-$where" "$other"
	await lock '.waiters == 1' || fail "the third does not wait"
	freeze "third-$where"
	kill -USR1 "${weir_pid[second-$where]}"
	says "second-$where" 'unlocked 0'
	await lock "(.holders == 1 and .waiters == 0 and $(named "$other"))" || fail "not passed on: $(weirctl --instance B --json show exports)"
	hold "fourth-$where" "$where"
	await lock '.waiters == 1' || fail "the fourth does not wait"
	slain "third-$where"
	says "fourth-$where" 'held -130'
	kill -USR1 "${weir_pid[fourth-$where]}"
	says "fourth-$where" 'unlocked 0'
	for who in holder second fourth; do
		gone "${weir_pid[$who-$where]}" || fail "$who-$where does not end"
		unset "weir_pid[$who-$where]"
	done
	await lock '.lock == "" and .holders == 0 and .waiters == 0' || fail "the lock stays: $(weirctl --instance B --json show exports)"
done

# ---- the leader of a group that others join ----
# followed: the leader is on node A, which has the lowest id; it is stopped, and two of B have connected.
followed() {
	local streams='map(select(.kind == "stream")) | length'
	await shows A services 'any(.[]; .name == "group.rma_kill")' || die "nobody leads: $(weirctl --instance A show services)"
	await shows A connections "$streams == 0" || fail "it is connected already: $(weirctl --instance A show connections)"
	freeze join-0
	work join-1 B 3
	work join-2 B 3
	await shows A connections "$streams == 2" || die "the leader has no followers: $(weirctl --instance A show connections)"
}
groups=(join-0 join-1 join-2)
work join-0 A 3
followed
# one whose time is over before the leader answers
rma_kill B ask "$dir" 3 >"$weir_tmp/ask.log" || fail "ask: exit $?"
grep -qx 'join -11' "$weir_tmp/ask.log" || fail "a leader is stopped: $(last_line ask), expected -11 (EAGAIN)"
thaw join-0
moved "the leader of a group was stopped" "${groups[@]}"
for who in "${groups[@]}"; do stop "$who" || fail "$who: exit $?"; done
work join-0 A 3
followed
slain join-0
work join-0 B 3
moved "the leader of a group was killed" "${groups[@]}"
stop join-0 || fail "join-0: exit $?"
work join-0 A 3

# ---- all at work ----
work update-1 B
work lock-0 A
work lock-1 B
work put-0 A
work put-1 B
work map-0 A
work map-1 B
at_a=(update-0 lock-0 put-0 map-0)
at_b=(update-1 lock-1 put-1 map-1)
all=("${at_a[@]}" "${at_b[@]}" "${groups[@]}")
moved "all at work" "${all[@]}"

# ---- origins within a put ----
calm=$(errors_of "${all[@]}")
for round in frozen 1 2; do
	for who in put-0 put-1; do
		if [ "$round" = frozen ] && [ "$who" = put-0 ]; then
			freeze dataplane-B # nothing of it completes
			await within "$who" || fail "$who is not within a put"
			slain "$who"
			thaw dataplane-B
		else
			await eval "book $who && [ \$begun -gt \$completed ]"
			slain "$who"
		fi
	done
	await shows A exports 'length == 0' || fail "the export of the dead stays: $(weirctl --instance A show exports)"
	await shows B exports 'all(.[]; .bytes != 16777216 or .rights == "write")' || fail "the export of the dead stays: $(weirctl --instance B show exports)"
	compared "origins were killed within a put"
	again_work put-0
	again_work put-1
	moved "origins were killed within a put" "${all[@]}"
done
[ "$(errors_of "${all[@]}")" = "$calm" ] || fail "a dead program hurts others: $(errors_of "${all[@]}"), before $calm"

# ---- mapped memory ----
freeze owner
moved "the owner is stopped" map-0 map-1
freeze map-1
moved "a program that has mapped memory is stopped" map-0
slain map-1
thaw owner
again_work map-1
moved "a program that had mapped memory was killed" "${all[@]}"
compared "a program that had mapped memory was killed"
[ "$(errors_of "${all[@]}")" = "$calm" ] || fail "a dead program hurts others: $(errors_of "${all[@]}"), before $calm"

# ---- the target within a put ----
for round in frozen 1; do
	declare -A before=()
	for who in "${at_a[@]}" "${at_b[@]}"; do
		book "$who"
		before[$who]=$errors
	done
	if [ "$round" = frozen ]; then
		freeze dataplane-A
		await within put-0 || fail "put-0 is not within a put"
		slain owner
		thaw dataplane-A
	else
		await eval "book put-0 && [ \$begun -gt \$completed ]"
		slain owner
	fi
	for who in "${at_a[@]}" "${at_b[@]}"; do
		await failed_with "$who" "${before[$who]}" -104 || fail "$who: $errno, expected -104 (ECONNRESET): $(last_line "$who")"
	done
	await shows B exports 'all(.[]; .bytes != 64)' || fail "the exports of the dead stay: $(weirctl --instance B show exports)"
	serve owner rma_kill B own "$dir"
	moved "the target was killed" "${all[@]}"
	compared "the target was killed"
done

# ---- controls ----
controls_start_again
compared "with new controls"

# ---- data planes ----
# plane_dies NAME ITS-PROGRAMS OTHERS: with everything under way; another takes its place.
plane_dies() {
	local who
	local -A before=()
	for who in "${all[@]}"; do
		book "$who"
		before[$who]=$errors
	done
	slain "dataplane-$1"
	for who in $2; do
		await failed_with "$who" "${before[$who]}" -19 || fail "$who: $errno, expected -19 (ENODEV): $(last_line "$who")"
	done
	for who in $3; do
		await failed_with "$who" "${before[$who]}" "-112 -104" || fail "$who: $errno, expected -112 (EHOSTDOWN): $(last_line "$who")"
	done
	again "$1"
	up A B
}
calm=$(errors_of "${at_b[@]}")
plane_dies A "${at_a[*]} join-0" "join-1 join-2"
[ "$(errors_of "${at_b[@]}")" = "$calm" ] || fail "the other node's end was noticed: $(errors_of "${at_b[@]}"), before $calm"
moved "after the end of A's data plane" "${all[@]}"
compared "after the end of A's data plane"
plane_dies B "${at_b[*]} join-1 join-2" "${at_a[*]} join-0"
moved "after the end of B's data plane" "${all[@]}"
compared "after the end of B's data plane"

# ---- the end ----
ends "${all[@]}" owner
