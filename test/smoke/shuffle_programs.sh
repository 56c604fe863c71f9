#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# weir-sort, weir-count, weir-join and weir-shuffle-cost: alone without a data plane, by TCP and by Weir between processes,
# against sort, uniq and join; a process that is killed ends the others; bad input.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"
PATH=$WEIR_BUILD/apps/shuffle:$WEIR_BUILD/apps/run:$PATH
export LC_ALL=C
cd "$weir_tmp" || die "no temporary directory"

refused 2 'see --help' weir-sort
refused 2 'see --help' weir-sort sort a
refused 2 'invalid number of lines' weir-sort gen many a
refused 1 'cannot write' weir-sort gen 1 missing/a
refused 1 'cannot read' weir-sort check missing
refused 1 'cannot read' weir-sort --transport none sort missing out
refused 1 '100 bytes' weir-sort --transport none sort /proc/self/exe out
refused 2 'expected FILE and DIR' weir-count a
refused 1 'cannot read' weir-count --transport none missing out
refused 2 'expected two FILEs' weir-join a b
refused 2 'expected weir|tcp|none' weir-shuffle-cost --transport udp
refused 2 'from 16 to 16M' weir-shuffle-cost --record 8
refused 1 'start' weir-shuffle-cost --instance none

# ---- inputs, and what is to come out ----

weir-sort gen 20K lines
weir-sort --same 50 gen 5K same
refused 1 'is not in order' weir-sort check lines
refused 1 'not the lines of --like' weir-sort --unordered check lines --like same
head -c 150 lines >short
refused 1 'behind its last line' weir-sort --unordered check short
awk 'BEGIN { srand(4); for (i = 0; i < 30000; i++) { n = int(1 / (0.001 + rand())); printf "%s%s", i % 7 ? " Word" : "\n", substr("abcdefghijklm", 1 + n % 11, 1 + n % 5) } }' >text
tr -cs '[:alpha:]' '\n' <text | tr '[:upper:]' '[:lower:]' | grep . | sort | uniq -c >words
awk 'BEGIN { srand(5); for (i = 0; i < 5000; i++) print i "\tk" int(1 / (0.0005 + rand())) "\tleft " i }' >left
awk 'BEGIN { srand(6); for (i = 0; i < 400; i++) print "k" int(1000 * rand()) "\tright " i "\tx" }' >right
join -t "$(printf '\t')" -1 2 -2 1 <(sort -t "$(printf '\t')" -k 2,2 left) <(sort -t "$(printf '\t')" -k 1,1 right) | sort >pairs
[ -s pairs ] || die "nothing to join"
printf 'one column\n' >narrow

# all NAME STARTER... -- OPTION...: each program, by a starter or none.
all() {
	local name=$1 input
	local -a by=()
	shift
	while [ "$1" != -- ]; do
		by+=("$1")
		shift
	done
	shift
	for input in lines same; do
		rm -rf out
		timeout "$patience" "${by[@]}" weir-sort -t 2 "$@" --split 100K --block 8K sort "$input" out >log 2>&1 || fail "$name: sort $input: $(cat log)"
		weir-sort check out --like "$input" >log 2>&1 || fail "$name: sort $input: $(cat log)"
	done
	rm -rf out
	timeout "$patience" "${by[@]}" weir-count -t 2 "$@" --split 20K text out >log 2>&1 || fail "$name: count: $(cat log)"
	sort -k 2 out/part-* | cmp - words || fail "$name: other words than uniq -c"
	rm -rf out
	timeout "$patience" "${by[@]}" weir-join -t 2 "$@" --split 10K -1 2 left right out >log 2>&1 || fail "$name: join: $(cat log)"
	sort out/part-* | cmp - pairs || fail "$name: other lines than join"
	timeout "$patience" "${by[@]}" weir-join -t 2 "$@" -1 2 narrow right out >log 2>&1 && fail "$name: a line without the column is joined"
	grep -q 'less than 2 columns' log || fail "$name: no reason: $(cat log)"
}

# costs NAME PROCESSES STARTER... -- OPTION...: records of all sizes. Few processes: a user attaches about once per second.
costs() {
	local name=$1 processes=$2 how
	local -a by=()
	shift 2
	while [ "$1" != -- ]; do
		by+=("$1")
		shift
	done
	shift
	for how in '--record 64 --prompt --bytes 100K' '--record 20K --prompt --bytes 1M' '--record 100K --bytes 4M' '--partitions 100 --bytes 100K'; do
		# shellcheck disable=SC2086
		timeout "$patience" "${by[@]}" weir-shuffle-cost -t 2 "$@" $how --json >log 2>&1 || fail "$name $how: $(cat log)"
		sed 's/^0: //' log | jq -e --argjson n "$processes" '.processes == $n and .threads == 2 and .elapsed_s > 0' >/dev/null || fail "$name $how: $(cat log)"
	done
}

all "none, alone" -- --transport none
costs "none, alone" 1 -- --transport none
all "TCP, alone" -- --transport tcp
costs "TCP, alone" 1 -- --transport tcp

one_node
export WEIR_INSTANCE=A
for kind in thread process; do
	all "TCP, $kind" weir-run -n 3 -- --transport tcp --sockets $kind
	costs "TCP, $kind" 2 weir-run -n 2 -- --transport tcp --sockets $kind
done
all "Weir, alone" --
all Weir weir-run -n 3 --
costs Weir 2 weir-run -n 2 --

# each process without a transport has its own parts
rm -rf out
weir-run -n 3 weir-sort -t 2 --transport none sort lines out >log 2>&1 || fail "none: $(cat log)"
[ "$(find out -name 'part-*-of-*' | wc -l)" = 18 ] || fail "not 3 times 6 parts: $(ls out)"
weir-sort --unordered check out --like lines >log 2>&1 || fail "none: $(cat log)"

# member RANK NAME COMMAND...: a process of a group that nobody looks after.
member() {
	WEIR_GROUP=shuffle-$$ WEIR_GROUP_SIZE=2 WEIR_GROUP_RANK=$1 run "$2" "${@:3}"
}
member 1 rank-1 weir-shuffle-cost --transport tcp --prompt --bytes 100G
member 0 rank-0 weir-shuffle-cost --transport tcp --prompt --bytes 100G
# has_threads NAME
has_threads() {
	local -a all=("/proc/${weir_pid[$1]}/task/"*)
	[ "${#all[@]}" -ge 5 ]
}
await has_threads rank-0 || die "no threads: $(log_of rank-0)"
stop rank-1 KILL
gone "${weir_pid[rank-0]}" || fail "0 goes on without 1"
stop rank-0
[ $? = 1 ] || fail "0 without 1: not exit 1"
grep -qE '^weir-shuffle-cost: .*(process 1|member 1|rank 1)' "$weir_tmp/rank-0.log" || fail "0 does not name 1: $(log_of rank-0)"
exit "$weir_failed"
