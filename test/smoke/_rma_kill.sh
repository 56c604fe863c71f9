# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# shellcheck disable=SC2154,SC2034 # variables of _init.sh, and for the tests
# Shared by tests that kill and stop workers of rma_kill, which keep books. Sourced after _init.sh.

dir=$weir_tmp/work
mkdir "$dir"
declare -A worker=() # NAME -> its arguments

# work NAME INSTANCE [GROUP-SIZE]: a worker; NAME is its book, ROLE-SLOT.
work() {
	worker[$1]="$2 ${1%-*} $dir ${1#*-} ${3:-}"
	# shellcheck disable=SC2086
	run "$1" rma_kill ${worker[$1]}
}
again_work() {
	# shellcheck disable=SC2086
	run "$1" rma_kill ${worker[$1]}
}

# book NAME: sets begun, completed, errors, errno; 0 before the worker has made its book.
book() {
	read -r begun completed errors errno < <(rma_kill - book "$dir" "$1") ||
		begun=0 completed=0 errors=0 errno=0
}
beyond() { book "$1" && [ "$completed" -gt "$2" ]; }
# moved WHEN NAME...: until each has completed something that it began after now.
moved() {
	local when=$1 name
	local -A at=()
	shift
	for name in "$@"; do
		book "$name"
		at[$name]=$begun
	done
	for name in "$@"; do
		await beyond "$name" "${at[$name]}" || die "$when: $name gets nowhere: $begun begun, $completed completed, ${at[$name]} before; $(last_line "$name")"
	done
}
errors_of() {
	local name
	for name in "$@"; do
		book "$name"
		echo "$name $errors"
	done
}
failed_with() { book "$1" && [ "$errors" -gt "$2" ] && [[ " $3 " == *" $errno "* ]]; }
# stopped NAME: SIGSTOP has reached it.
is_stopped() { grep -q '^State:[[:space:]]T' "/proc/$1/status"; }
freeze() {
	kill -STOP "${weir_pid[$1]}"
	await is_stopped "${weir_pid[$1]}" || die "$1 does not stop"
}
thaw() { kill -CONT "${weir_pid[$1]}"; }
# slain NAME: by SIGKILL; the shell tells of it.
slain() {
	! has_ended "${weir_pid[$1]}" || fail "$1 had ended before: $(last_line "$1")"
	stop "$1" KILL 2>>"$weir_tmp/stop.log"
}
# Both controls are killed and start again: those in `all` go on without an error.
controls_start_again() {
	local calm
	calm=$(errors_of "${all[@]}")
	slain control-A
	slain control-B
	moved "without controls" "${all[@]}"
	control A 1
	control B 2
	up A B
	moved "with new controls" "${all[@]}"
	[ "$(errors_of "${all[@]}")" = "$calm" ] || fail "the end of a control was noticed: $(errors_of "${all[@]}"), before $calm"
}
# ends NAME...: in order; the books agree, and nothing is left.
ends() {
	local who node
	for who in "$@"; do
		stop "$who" || fail "$who: $(grep -v compared "$weir_tmp/$who.log" | tail -n 3)"
	done
	rma_kill - check "$dir" || fail "the books do not agree"
	for node in A B; do
		await shows "$node" exports 'length == 0' || fail "exports are left: $(weirctl --instance "$node" show exports)"
		await shows "$node" connections 'length == 0' || fail "connections are left: $(weirctl --instance "$node" show connections)"
	done
}
