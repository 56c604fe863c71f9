#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# weir-run: a group on two nodes of this machine; what its processes find, whole lines of output, input for process 0,
# exit codes, and that nothing is left behind, however it ends.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"
PATH=$WEIR_BUILD/apps/run:$WEIR_BUILD/apps/examples:$PATH

# each COMMAND: weir-run of three processes of a shell; output in out and err.
each() {
	timeout "$patience" weir-run -n 3 sh -c "$1" >"$weir_tmp/out" 2>"$weir_tmp/err" </dev/null
}
# exits CODE COMMAND: as each(), whose processes say their pids: all have ended.
exits() {
	local code=$1 got pid
	each "$2"
	got=$?
	[ $got = "$code" ] || fail "exit $got instead of $code: $2: $(cat "$weir_tmp/err")"
	[ "$(grep -c pid "$weir_tmp/out")" -ge 3 ] || fail "not all have started: $2: $(cat "$weir_tmp/out")"
	while read -r pid; do
		gone "$pid" || fail "$pid goes on: $2"
	done < <(sed -n 's/.*pid //p' "$weir_tmp/out")
}
# starts NAME COMMAND: weir-run of two processes in the background, until both say "up" and their pids.
starts() {
	: >"$weir_tmp/$1.log"
	run "$1" weir-run -n 2 sh -c "$2"
	await eval "[ \$(grep -c 'up [0-9]' '$weir_tmp/$1.log') = 2 ]" || die "$1 does not start: $(log_of "$1")"
}
# ended NAME: the processes of starts() have.
ended() {
	local pid
	while read -r pid; do
		gone "$pid" || fail "$1: $pid goes on"
	done < <(sed -n 's/.*up //p' "$weir_tmp/$1.log")
}
# lines FILE: sorted, as one line.
lines() {
	sort "$weir_tmp/$1" | tr '\n' ';'
}

# ---- usage ----
refused 2 'n is missing' weir-run true
refused 2 'no program' weir-run -n 1
refused 2 'from 1 to 1024' weir-run -n 0 true
refused 2 'from 1 to 1024' weir-run -n 2 -t 2000 true
refused 2 'names of 1 to 31' weir-run -n 2 --instances A,../B true
refused 2 'more instances' weir-run -n 1 --instances A,B true
refused 2 "'7x' for .WEIR_THREADS" env WEIR_THREADS=7x weir-run -n 1 true
refused 127 "cannot start 'no-such-program': No such file" weir-run -n 3 no-such-program
refused 126 'Permission denied' weir-run -n 3 /
refused 1 'open files' bash -c 'ulimit -n 20; exec weir-run -n 64 true'
weir-run -n 2 -- true || fail "behind --: exit $?"

# ---- what a process finds ----
# shellcheck disable=SC2016
show='echo "$WEIR_GROUP_RANK/$WEIR_GROUP_SIZE $WEIR_INSTANCE ${WEIR_THREADS:-none} $WEIR_GROUP $WEIR_GROUP_SECRET"'
for i in 1 2; do
	weir-run -n 5 -t 2 --instances A,B sh -c "$show" >"$weir_tmp/found-$i" || fail "exit $?"
	[ "$(sort "$weir_tmp/found-$i" | cut -d' ' -f1-4 | tr '\n' ';')" = "0: 0/5 A 2;1: 1/5 A 2;2: 2/5 A 2;3: 3/5 B 2;4: 4/5 B 2;" ] ||
		fail "found: $(lines "found-$i")"
	[ "$(cut -d' ' -f5,6 "$weir_tmp/found-$i" | sort -u | wc -l)" = 1 ] || fail "no common name and secret: $(lines "found-$i")"
done
for field in 5 6; do
	[ "$(cut -d' ' -f$field "$weir_tmp"/found-[12] | sort -u | wc -l)" = 2 ] || fail "two runs share a name or secret: $(lines found-1)"
done
[ "$(cut -d' ' -f6 "$weir_tmp/found-1" | head -n 1 | tr -d '\n' | wc -c)" = 32 ] || fail "no secret of 128 bits: $(lines found-1)"
WEIR_INSTANCE=B WEIR_THREADS=3 weir-run -n 1 sh -c "$show" | has '^0: 0/1 B 3 ' || fail "its own variables are not defaults"

# CPUs: each its own, as far as they suffice
cpus=$(nproc)
# shellcheck disable=SC2016
where='while read -r key list; do [ "$key" != Cpus_allowed_list: ] || echo "$list"; done </proc/self/status'
all=$(bash -c "$where")
weir-run -n "$cpus" -t 1 bash -c "$where" | sed 's/.*: //' >"$weir_tmp/pinned"
[ "$(sort -u "$weir_tmp/pinned" | grep -cE '^[0-9]+$')" = "$cpus" ] || fail "not one CPU for each: $(lines pinned)"
weir-run -n "$((cpus + 1))" -t 1 bash -c "$where" | sed 's/.*: //' >"$weir_tmp/free"
[ "$(sort -u "$weir_tmp/free")" = "$all" ] || fail "not all CPUs for all: $(lines free)"
weir-run -n 1 bash -c "$where" | has "^0: $all\$" || fail "one process has not all CPUs"

# ---- output and input ----
# shellcheck disable=SC2016
each 'echo out; printf "%s" "last $WEIR_GROUP_RANK" >&2' || fail "exit $?"
[ "$(lines out)" = "0: out;1: out;2: out;" ] || fail "standard output: $(lines out)"
[ "$(lines err)" = "0: last 0;1: last 1;2: last 2;" ] || fail "standard error: $(lines err)"
# whole lines, though all write at the same time into a pipe that is read late
# shellcheck disable=SC2016
weir-run -n 3 sh -c 'yes "$WEIR_GROUP_RANK is one line" | head -n 100000' | { sleep 1; sort | uniq -c; } >"$weir_tmp/many"
[ "$(sed 's/^ *//' "$weir_tmp/many" | tr '\n' ';')" = "100000 0: 0 is one line;100000 1: 1 is one line;100000 2: 2 is one line;" ] ||
	fail "lines are lost or torn: $(head -n 5 "$weir_tmp/many")"
# a long line is cut, and nothing of it lost
each 'head -c 100000 /dev/zero | tr "\0" x' || fail "exit $?"
[ "$(awk 'length($0) > 4095' "$weir_tmp/out" | wc -l)" = 0 ] || fail "a line has more than 4096 bytes"
[ "$(tr -d -c x <"$weir_tmp/out" | wc -c)" = 300000 ] || fail "a part of a long line is lost"
# input, much and slowly read, for process 0
# shellcheck disable=SC2016
seq 100000 | weir-run -n 2 sh -c 'sleep 0.2; cat; echo end' >"$weir_tmp/fed" || fail "exit $?"
sed -n 's/^0: //p' "$weir_tmp/fed" | head -n -1 | cmp -s - <(seq 100000) || fail "input of process 0"
[ "$(grep -v '^0: ' "$weir_tmp/fed")" = "1: end" ] || fail "input of process 1: $(grep -vc '^0: ' "$weir_tmp/fed") lines"
yes | timeout "$patience" weir-run -n 2 true
[ "${PIPESTATUS[1]}" = 0 ] || fail "input that nobody reads"
# a reader that ends
timeout "$patience" weir-run -n 2 yes 2>"$weir_tmp/err" | head -n 3 >"$weir_tmp/out"
[ "${PIPESTATUS[0]}" = 1 ] || fail "nobody reads, and it goes on: $(cat "$weir_tmp/err")"
grep -q 'cannot write standard output: Broken pipe; ' "$weir_tmp/err" || fail "it does not say why: $(cat "$weir_tmp/err")"

# ---- the end ----
# shellcheck disable=SC2016
{
	exits 0 'echo "pid $$"'
	exits 7 'echo "pid $$"; sleep 0.3; test $WEIR_GROUP_RANK != 1 || exit 7; exec sleep 300'
	grep -q '^weir-run: process 1 ended with exit code 7; ' "$weir_tmp/err" || fail "it does not say which: $(cat "$weir_tmp/err")"
	exits 139 'echo "pid $$"; sleep 0.3; test $WEIR_GROUP_RANK != 2 || kill -SEGV $$; exec sleep 300'
	grep -q '^weir-run: process 2 was ended by signal 11 (Segmentation fault); ' "$weir_tmp/err" ||
		fail "it does not name the signal: $(cat "$weir_tmp/err")"
	# the first that fails, not the last
	exits 3 'trap "exit 4" TERM; echo "pid $$"; sleep 0.3; test $WEIR_GROUP_RANK != 0 || exit 3; while :; do sleep 0.1; done'
	# those who do not listen, and children of all
	exits 5 'trap "" TERM; sleep 300 & echo "pid $!"; echo "pid $$"; sleep 0.3; test $WEIR_GROUP_RANK != 0 || exit 5; while :; do sleep 0.1; done'

	# signals
	for signal in INT QUIT; do
		starts asked 'trap "echo by INT; exit 0" INT; trap "echo by QUIT; exit 0" QUIT; echo "up $$"; while :; do sleep 0.1; done'
		stop asked $signal || fail "after SIG$signal: exit $?"
		[ "$(grep -c "by $signal" "$weir_tmp/asked.log")" = 2 ] || fail "SIG$signal is not passed on: $(log_of asked)"
		ended asked
	done
	starts told 'echo "up $$"; exec sleep 300'
	stop told TERM
	[ $? = 143 ] || fail "after SIGTERM: exit $?"
	ended told
	starts left 'trap "exit 6" TERM; trap "exit 8" HUP; echo "up $$"; while :; do sleep 0.1; done'
	stop left HUP
	[ $? = 6 ] || fail "after SIGHUP: $(log_of left)"
	ended left
	trap '' HUP # as nohup(1); both are up, so it has set its own handlers
	starts kept 'echo "up $$"; exec sleep 300'
	trap - HUP
	grep -q '^SigIgn:.*[13579bdf]$' "/proc/${weir_pid[kept]}/status" || fail "SIGHUP ends it under nohup"
	stop kept TERM
	ended kept
	starts shot 'echo "up $$"; exec sleep 300'
	stop shot KILL
	ended shot
}

# ---- a group ----
two_nodes_memif
weir-run -n 5 --instances A,B example-group 100000 >"$weir_tmp/group" 2>"$weir_tmp/err" || fail "a group: exit $?: $(cat "$weir_tmp/err")"
for rank in 0 1 2 3 4; do
	grep -q "^$rank: rank $rank of 5: pi is 3.14159265" "$weir_tmp/group" || fail "rank $rank: $(lines group)"
done
# two at the same time do not meet
weir-run -n 3 --instances B example-group 100000 >"$weir_tmp/beside" 2>&1 &
weir-run -n 3 --instances A example-group 100000 >"$weir_tmp/group" 2>&1 || fail "one of two groups: $(lines group)"
wait $! || fail "the other one of two groups: $(lines beside)"
[ "$(grep -c 'of 3: pi is' "$weir_tmp/group")" = 3 ] || fail "one of two groups: $(lines group)"
# a member that dies ends all
# shellcheck disable=SC2016
weir-run -n 3 --instances A sh -c 'test $WEIR_GROUP_RANK != 2 || exit 9; exec example-group 100000' >"$weir_tmp/out" 2>"$weir_tmp/err"
[ $? = 9 ] || fail "a member that dies: $(cat "$weir_tmp/err")"
# without a launcher
refused 1 'WEIR_GROUP is not set; start the program by weir-run' env WEIR_INSTANCE=A example-group 100000
exit $weir_failed
