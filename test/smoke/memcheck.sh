#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Programs of users under valgrind's memcheck, which finds nothing to report in the library: they adopt memory, call
# collectively, and use the memory of others, mapped and of another node.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"
PATH=$WEIR_BUILD/apps/examples:$PATH

command -v valgrind >/dev/null || skip "valgrind is not installed"

# on INSTANCE NAME COMMAND...: in the background under memcheck.
on() {
	WEIR_INSTANCE=$1 run "$2" valgrind -q --error-exitcode=99 --leak-check=full --errors-for-leak-kinds=definite "${@:3}"
}
# ends NAME [PATTERN]: by itself, without an error, and with a line of that form.
ends() {
	wait "${weir_pid[$1]}" || fail "$1: $(tail -n 30 "$weir_tmp/$1.log")"
	unset "weir_pid[$1]"
	[ $# -lt 2 ] || grep -qE "$2" "$weir_tmp/$1.log" || fail "$1 does not say '$2': $(tail -n 3 "$weir_tmp/$1.log")"
}

two_nodes_memif
on B adopted example-adopted
await shows B listeners 'any(.[]; .service == "pictures")'
on A sender example-adopted node:2:pictures 5
ends sender
await grep -q '^picture 5: 1048576 bytes' "$weir_tmp/adopted.log" || fail "pictures: $(tail -n 30 "$weir_tmp/adopted.log")"
stop adopted || fail "adopted: exit code $?: $(tail -n 30 "$weir_tmp/adopted.log")"

# both NAME NODE NODE PATTERN COMMAND...: one on each, to the end.
both() {
	on "$2" "$1-1" "${@:5}"
	on "$3" "$1-2" "${@:5}"
	ends "$1-1" "$4"
	ends "$1-2" "$4"
}
both mapped A A '^rank [01] of 2: 200 inserts of all' example-remote_hash mapped 2 100
both apart A B '^rank [01] of 2: 200 inserts of all' example-remote_hash apart 2 100
on A dies example-remote_hash loss 3 100 50 # and the others go on without it
both loss A B '^rank [01] of 2: 1 lost, [1-9][0-9]* inserts of all' example-remote_hash loss 3 100
both group A B '^rank [01] of 2: pi is 3.14' example-group pi 2 1000
