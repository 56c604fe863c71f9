# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# shellcheck disable=SC2154,SC2034 # variables of _init.sh, and for the tests
# Shared by tests of hostile programs: two nodes and their users, an attack, and traffic that goes on beside it. Sourced after _init.sh.

# User ids: the attacker; one with at most one session; one that may not attach; an honest one; one with 64 MiB.
attacker=64001 limited=64003 stranger=64009 honest=64002 small=64004
seed=${SEED:-$RANDOM}
echo "seed $seed"

[ -z "${WEIR_WIRE:-}" ] || patience=240 # seconds: there the machine is an emulated one

# victims: two pairs that send and check every byte, and an echo service on each node.
victims() {
	serve sink probe B sink s
	serve local-sink probe A sink l
	serve echo-a ${weir_under:+"$weir_under"} probe A echo victim
	serve echo-b ${weir_under:+"$weir_under"} probe B echo victim
	run send probe A send node:2:s 100000000 3 50
	run local-send probe A send node:1:l 100000000 4 50
	await grep -q 'received 10000' "$weir_tmp/sink.log" || die "nothing arrives: $(last_line sink)"
}

# go_on NAME...: these sinks still receive, and only correct messages.
go_on() {
	local who n
	for who in "$@"; do
		n=$(grep -c received "$weir_tmp/$who.log")
		await received_more "$who" "$n" || fail "$who receives nothing any more beside ${attacking:-hostile programs}: $(last_line "$who")"
		if grep -q wrong "$weir_tmp/$who.log"; then fail "$who: $(grep wrong "$weir_tmp/$who.log")"; fi
	done
}

# all_well NAME...: these programs go on without an error; then they are stopped.
all_well() {
	local who
	go_on "$@"
	for who in "$@"; do
		has_ended "${weir_pid[$who]}" && die "$who ended during $attacking, seed $seed: $(last_line "$who")"
		if grep wrong "$weir_tmp/$who.log"; then fail "$who, seed $seed"; fi
	done
	for who in "$@"; do stop "$who"; done
}

# hostile_nodes [DATAPLANE-OPTION...]: with programs on both that are attacked, and two pairs that send and check.
hostile_nodes() {
	[ "$(id -u)" = 0 ] || skip "other users are needed: run as root"
	two_nodes --allow "user:$attacker" --allow "user:$honest" --allow "user:$limited" --allow "user:$small" \
		--max-sessions 96 --user-limit "$limited:sessions=1" --user-limit "$small:memory=64M" "$@"
	chmod 755 "$weir_tmp" "$WEIR_RUN_DIR" "$WEIR_RUN_DIR"/*
	mkdir -p "$weir_tmp/gcov"
	chmod 1777 "$weir_tmp/gcov"
	copy_programs probe
	victims
}

# honestly ARGUMENT...: probe, as another user than the attacker.
honestly() {
	PROBE_ARENA=$((2 << 20)) timeout 20 setpriv --reuid $honest --regid $honest --clear-groups \
		env GCOV_PREFIX="$weir_tmp/gcov" LD_LIBRARY_PATH="$weir_tmp/program" "$weir_tmp/program/probe" "$@" >"$weir_tmp/honest.log" 2>&1
}

# attack MODE[:PROCESSES] USER ADDRESS: from now on, until attack_ends.
attack() {
	attacking="$1 by $2 against $3"
	: >"$weir_tmp/hostile.log"
	HOSTILE_UID=$2 run hostile hostile A "$1" 300 "$seed" "$3"
	read -rt 0.7 <> <(:) || true
}

received_more() { # WHO COUNT
	[ "$(grep -c received "$weir_tmp/$1.log")" -gt "$2" ]
}

# Beside the attack other users attach, connect, send and receive, and daemons answer.
others_go_on() {
	local node
	go_on sink local-sink
	for node in 1 2; do
		await honestly A many node:$node:victim 2 3 || fail "node:$node:victim beside $attacking: $(log_of honest)"
	done
	await weirctl --instance A show sessions || fail "the data plane doesn't answer beside $attacking"
}

# The last line of the attacker is in hostile.log. With attacker_waits=yes it may go without answers itself.
attack_ends() {
	local who code
	stop hostile
	code=$?
	last_line hostile
	[ "$code" != 77 ] || { echo "SKIP: $attacking: $(last_line hostile)"; return 1; }
	[ "$code" = 0 ] || [ -n "${attacker_waits:-}" ] || fail "after $attacking, seed $seed: exit code $code: $(last_line hostile)"
	for who in send local-send sink local-sink echo-a echo-b; do
		has_ended "${weir_pid[$who]}" && die "$who ended during $attacking, seed $seed: $(last_line $who)"
	done
	if grep -h wrong "$weir_tmp"/{sink,local-sink}.log; then fail "wrong messages during $attacking"; fi
	return 0
}

# count WHAT: how often hostile has counted that, as its last line says.
count() {
	sed -n "s/^hostile: .*[:,] $1 \\([0-9]*\\).*/\\1/p" "$weir_tmp/hostile.log" | tail -n 1 | grep . || echo 0
}

# attack_reaches COUNT WHAT...: waits until the attacker has counted that, all WHAT together. The time that it takes
# depends on its share of the CPUs.
attack_reaches() {
	await reached "$@" || fail "$attacking, seed $seed: not $*: $(last_line hostile)"
}

reached() {
	local sum=0 what
	has_ended "${weir_pid[hostile]}" && return # attack_ends says how
	for what in "${@:2}"; do sum=$((sum + $(count "$what"))); done
	[ "$sum" -ge "$1" ]
}

# not_held NAME...: no thread of these data planes or programs was held by a system call for long: attacks
# hold for two seconds, again and again. stops.py subtracts the time of other processes; without tracefs this is not tested.
# Nor in an emulated machine: its host may stop all of it, which nothing in that machine tells apart from a hold, and tracing
# locked up its kernel (soft lockups of both CPUs, in two of four runs).
not_held() {
	local -a pids=()
	local name code
	[ -z "${WEIR_WIRE:-}" ] || return 0
	for name in "$@"; do pids+=("${weir_pid[$name]}"); done
	timeout 180 "$weir_root/scripts/stops.py" 1.5 "${pids[@]}" >"$weir_tmp/stops" 2>"$weir_tmp/stops.log"
	code=$?
	[ "$code" != 77 ] || { echo "not tested: $(log_of stops)"; return 0; }
	[ "$code" = 0 ] || { fail "stops.py: $(log_of stops)"; return 0; }
	echo "longest stop beside $attacking: $(jq -c 'max_by(.ms)' "$weir_tmp/stops")"
	jq -e 'all(.[]; .ms < 200)' "$weir_tmp/stops" >/dev/null || fail "$attacking holds $*: $(cat "$weir_tmp/stops")"
}

declare -A rows_before=() # NODE-WHAT -> how many weirctl shows
rows() { # NODE WHAT
	weirctl --instance "$1" --json show "$2" | jq length
}

# Counts connections, exports and sessions of both nodes; no_rows_left: there are no more than then.
count_rows() {
	local node what
	for node in A B; do
		for what in connections exports sessions; do rows_before[$node-$what]=$(rows $node $what); done
	done
}
no_rows_left() {
	local node what
	for node in A B; do
		for what in connections exports sessions; do
			await shows $node $what "length == ${rows_before[$node-$what]}" || fail "$what of node $node are left: $(weirctl --instance $node show $what)"
		done
	done
}
