#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Daemons under SIGSTOP, under traffic that is accounted for. For half of the node timeout: nobody is lost, no
# connection ends. Control for long: suspicion. A data plane for long: traffic waits and goes on; for more than
# 10 s, or with its control: the node is down, what waits ends once, and after SIGCONT all is as before.
# lane: control
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"
# shellcheck source=test/smoke/_books.sh
. "$(dirname "$0")/_books.sh"

node_name=([1]=A [2]=B)
weir_node_timeout=3

each() # SIGNAL NAME...
{
	local signal=$1 name
	shift
	for name in "$@"; do
		kill "-$signal" "${weir_pid[$name]}"
	done
}

# still SECONDS MOST NAME...: a stop that the machine has made longer than MOST says nothing: what it does is none
# of the test's, and it is made once more.
still()
{
	local seconds=$1 most=$2 begin try took
	shift 2
	for ((try = 0; try < 5; try++)); do
		begin=$(now_ms)
		each STOP "$@"
		pause "$seconds"
		each CONT "$@"
		took=$(($(now_ms) - begin))
		works "after $* stood still for $took ms"
		[ "$took" -gt "$most" ] || break
		forget
	done
	[ "$try" -lt 5 ] || echo "$*: five stops of $seconds s took more than $most ms each, which says nothing"
	calm "$* stood still for $took ms"
}

briefly() # NAME...: half of the node timeout
{
	still 1.5 2000 "$@"
}

peers 1=10.77.0.1 2=10.77.0.2
for n in 1 2; do
	memif_plane "${node_name[$n]}" "$n" "" "${small_node[@]}"
	control "${node_name[$n]}" "$n"
done
up A B
start_programs
works "at the beginning"
briefly dataplane-A
briefly control-B
briefly dataplane-B control-B
briefly control-A control-B
briefly dataplane-A dataplane-B
briefly dataplane-A control-A dataplane-B control-B

# control for long
each STOP control-A
await state_is B 1 suspect || fail "a silent control is not suspect: $(weirctl --instance B show nodes)"
works "while control A stands still"
pause 4
works "while control A stands still for long"
each CONT control-A
await state_is B 1 up || fail "control A is back, and node 1 is not up: $(weirctl --instance B show nodes)"
calm "control A stood still"

# a receiver, and a data plane whose control lives
each STOP receiver-B
pause 1.5
each CONT receiver-B
still 3 6000 dataplane-A

# until others give it up
lost() # UNTIL-SECONDS NAME...
{
	local most=$1 begin before waited
	shift
	before=$(node_downs B)
	waited=$(starved dataplane-B control-B)
	begin=$(now_ms)
	each STOP "$@"
	await eval "[ \$(node_downs B) -gt $before ]" || fail "$* stand still, and nobody is lost"
	[ $(($(now_ms) - begin)) -le $((most * 1000 + $(starved dataplane-B control-B) - waited)) ] ||
		fail "$* stood still for $(($(now_ms) - begin)) ms until the node was down"
	pause 1
	each CONT "$@"
	await state_is B 1 up || fail "$* are back, and node 1 is not up: $(weirctl --instance B show nodes)"
	works "after $* stood still for long"
}
lost 10 dataplane-A control-A
lost 20 dataplane-A
stop_programs
check_logs
check_books
