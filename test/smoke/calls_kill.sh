#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SIGKILL at random of processes of two nodes that call each other, with results, nested results, syncs and calls of all: in
# rounds, each with a new group, of which some members die while all call. Of the survivors each future and sync ends, no call
# between them fails, and as many results arrive as were given.
#   KILL_SECONDS  how long [60]
#   KILL_SEED     who dies, and when [a random one, which is told]
# timeout: 400
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

seconds=${KILL_SECONDS:-60}
seed=${KILL_SEED:-$((RANDOM * 32768 + RANDOM))}
echo "seed $seed"
RANDOM=$seed

two_nodes
size=5

says() { await grep -q "^$2" "$weir_tmp/$1.log" || die "$1 does not say '$2': $(log_of "$1")"; }
# count VERB RANK OF: what that member says of rank OF.
count() { sed -n "s/^$1 $3 //p" "$weir_tmp/member-$2.log"; }

# one_round NUMBER
one_round() {
	local rank other victims=() alive=()
	for ((rank = 0; rank < size; rank++)); do
		: >"$weir_tmp/member-$rank.log"
		run "member-$rank" call_kill "$([ $((rank % 2)) = 0 ] && echo A || echo B)" "kill-$1" $size $rank
	done
	for ((rank = 0; rank < size; rank++)); do says "member-$rank" calling; done
	for ((rank = 0; rank < size; rank++)); do
		if [ $((RANDOM % 2)) = 0 ] && [ ${#victims[@]} -lt $((size - 2)) ]; then
			victims+=("$rank")
		else
			alive+=("$rank")
		fi
	done
	[ ${#victims[@]} -gt 0 ] || victims=("${alive[0]}") alive=("${alive[@]:1}")
	for rank in "${victims[@]}"; do
		read -rt "0.$((RANDOM % 5))$((RANDOM % 10))" <> <(:)
		! has_ended "${weir_pid[member-$rank]}" || fail "round $1: $rank has ended before: $(log_of "member-$rank")"
		stop "member-$rank" KILL 2>>"$weir_tmp/stop.log" # the shell tells of it
	done
	read -rt "0.$((RANDOM % 10))" <> <(:)
	for rank in "${alive[@]}"; do kill -TERM "${weir_pid[member-$rank]}"; done
	for rank in "${alive[@]}"; do says "member-$rank" idle; done
	for rank in "${alive[@]}"; do stop "member-$rank" USR1 || fail "round $1: $rank: exit $?: $(log_of "member-$rank")"; done
	for rank in "${alive[@]}"; do
		for other in "${alive[@]}"; do
			! grep -qx "lost $other" "$weir_tmp/member-$rank.log" ||
				fail "round $1, killed ${victims[*]}: calls of $rank to $other have failed"
			[ "$(count gave "$other" "$rank")" = "$(count got "$rank" "$other")" ] ||
				fail "round $1, killed ${victims[*]}: $rank got $(count got "$rank" "$other") results of $other, which gave $(count gave "$other" "$rank")"
			[ "$(count got "$rank" "$other")" -gt 0 ] || fail "round $1: $rank got nothing of $other"
		done
		for other in "${victims[@]}"; do
			grep -qx "lost $other" "$weir_tmp/member-$rank.log" || fail "round $1: $rank has not learnt of the end of $other"
		done
	done
	killed=$((killed + ${#victims[@]}))
}

read_uptime
end=$((now + seconds))
killed=0
for ((round = 1; now < end && weir_failed == 0; round++)); do
	one_round "$round"
	read_uptime
done
echo "$((round - 1)) rounds, $killed killed"
for node in A B; do
	await shows "$node" connections 'length == 0' || fail "connections are left: $(weirctl --instance "$node" show connections)"
done
exit "$weir_failed"
