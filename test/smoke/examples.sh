#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The programs of apps/examples, between two nodes, as their heads describe them.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"
PATH=$WEIR_BUILD/apps/run:$WEIR_BUILD/apps/examples:$PATH
weir_node_timeout=3

# on INSTANCE NAME COMMAND...: in the background.
on() {
	WEIR_INSTANCE=$1 run "${@:2}"
}
# says NAME PATTERN: in the end.
says() {
	await grep -qE "$2" "$weir_tmp/$1.log" || fail "$1 does not say '$2': $(tail -n 3 "$weir_tmp/$1.log")"
}
# from INSTANCE COMMAND...: repeated until it succeeds, since the other end may be about to listen.
from() {
	await env WEIR_INSTANCE="$1" "${@:2}" || fail "${*:2} on $1: $(WEIR_INSTANCE=$1 "${@:2}" 2>&1 | tail -n 1)"
}

two_nodes_memif

on B echo example-echo
from A example-hello node:2:echo
[ "$(WEIR_INSTANCE=A example-hello 10.77.0.2:echo greetings)" = greetings ] || fail "example-hello"
from A example-hello_stream

on B datagram example-datagram
from A example-datagram node:2:samples 100
says datagram '^received [1-9][0-9]* of [1-9]'

on B adopted example-adopted
from A example-adopted node:2:pictures 10
says adopted "^picture 10: 1048576 bytes in piece [0-3], filled with 'j'"
[ "$(grep -c '^picture' "$weir_tmp/adopted.log")" = 10 ] || fail "pictures: $(grep -c '^picture' "$weir_tmp/adopted.log")"

on B offer example-service offer clock
from A example-service call clock
[ "$(WEIR_INSTANCE=A example-service call clock)" = "node 2 answers" ] || fail "example-service call"
[ "$(WEIR_INSTANCE=A example-service find clock)" = "node 2, port 10.77.0.2:clock" ] || fail "example-service find"
[ "$(WEIR_INSTANCE=B example-service find clock)" = "node 2, port 10.77.0.2:clock, this node" ] || fail "find on B"

on B board example-remote board "$weir_tmp/key"
says board '^open'
from A example-remote post "$weir_tmp/key" 7 'from another node'
says board '^7: from another node'
from B example-remote post "$weir_tmp/key" 63 'from this host'
says board '^63: from this host'
# nobody asks the program whose memory it is
kill -STOP "${weir_pid[board]}"
WEIR_INSTANCE=A example-remote post "$weir_tmp/key" 0 'while it is stopped' || fail "example-remote post to a stopped program"
WEIR_INSTANCE=A example-remote post "$weir_tmp/key" 64 'one too far' 2>"$weir_tmp/post.log" && fail "a line beyond the board"
says post 'not within the export'
kill -CONT "${weir_pid[board]}"
says board '^0: while it is stopped'
stop board || fail "board ends with exit code $?: $(last_line board)"
WEIR_INSTANCE=A example-remote post "$weir_tmp/key" 1 'too late' 2>"$weir_tmp/post.log" && fail "a post to a board that is gone"
says post 'there is no such export'

on B log example-remote_log host "$weir_tmp/log.key"
says log '^open'
kill -STOP "${weir_pid[log]}"
on A append-A example-remote_log append "$weir_tmp/log.key" 2000
on B append-B example-remote_log append "$weir_tmp/log.key" 2000
from A example-remote_log append "$weir_tmp/log.key" 1000
for name in append-A append-B; do
	gone "${weir_pid[$name]}" || fail "$name does not end: $(last_line "$name")"
done
WEIR_INSTANCE=A example-remote_log check "$weir_tmp/log.key" >"$weir_tmp/check.log" || fail "log: $(last_line check)"
says check '^5000 records of 3 writers'
kill -CONT "${weir_pid[log]}"
stop log || fail "the log's program ends with exit code $?: $(last_line log)"

# 20 ranks on two nodes: rank 1 has children, too
mkdir "$weir_tmp/tree"
for ((rank = 0; rank < 20; rank++)); do
	if ((rank % 2)); then node=A; else node=B; fi
	on "$node" "tree-$rank" example-remote_tree "$weir_tmp/tree" "$rank" 20 50
done
for ((rank = 0; rank < 20; rank++)); do
	gone "${weir_pid[tree-$rank]}" || fail "rank $rank does not end: $(last_line "tree-$rank")"
	says "tree-$rank" "^rank $rank of 20: 50 rounds, 10500 in the last one"
done

# five programs that start at once on two nodes are one group
for i in 1 2 3 4; do
	node=A
	[ $((i % 2)) = 0 ] || node=B
	on $node "group-$i" example-group pi 5 100000
done
WEIR_INSTANCE=A example-group pi 5 100000 >"$weir_tmp/group.log" 2>&1 || fail "example-group: $(last_line group)"
says group '^rank [0-4] of 5: pi is 3.14159265'
for i in 1 2 3 4; do
	says "group-$i" '^rank [0-4] of 5: pi is 3.14159265'
done
[ "$(cat "$weir_tmp"/group*.log | grep '^rank' | sort -u | wc -l)" = 5 ] || fail "ranks: $(cat "$weir_tmp"/group*.log)"

# five programs on two nodes count words, each of which belongs to one of them
for ((i = 0; i < 3000; i++)); do echo "The word-$((i % 97)) and (the) word"; done >"$weir_tmp/text"
timeout "$patience" weir-run -n 5 --instances A,B example-words "$weir_tmp/text" >"$weir_tmp/words.log" 2>&1 || fail "example-words: $(last_line words)"
says words '^0: 18000 words, 101 different; most often: word, 6000 times'

# transmitters of three programs on two nodes, out of 4 units each
for i in 1 2; do
	node=A
	[ $((i % 2)) = 0 ] || node=B
	on $node "ring-$i" example-buffer_ring ring 3 2 500
done
WEIR_INSTANCE=A example-buffer_ring ring 3 2 500 >"$weir_tmp/ring-0.log" 2>&1 || fail "example-buffer_ring: $(last_line ring-0)"
for i in 1 2; do
	gone "${weir_pid[ring-$i]}" || fail "ring-$i does not end: $(last_line "ring-$i")"
done
for i in 0 1 2; do
	says "ring-$i" '^rank [0-2]: 1000 messages of 2 threads right, [4-8] units'
done

# a hash table in the memory of five programs on two nodes, and of three on one, who map it
for i in 1 2 3 4 5; do
	node=A
	[ $((i % 2)) = 0 ] || node=B
	on $node "hash-$i" example-remote_hash table 5 3000
done
for i in 6 7 8; do
	on A "hash-$i" example-remote_hash here 3 3000
done
for i in 1 2 3 4 5 6 7 8; do
	gone "${weir_pid[hash-$i]}" || fail "hash-$i does not end: $(last_line "hash-$i")"
	says "hash-$i" '^rank [0-4] of [35]: (15000|9000) inserts of all'
done

# a member dies amid its inserts: the others put their numbers elsewhere, on two nodes, and on one, who map it
for i in 1 2 3 4; do
	node=A
	[ $((i % 2)) = 0 ] || node=B
	on $node "loss-$i" example-remote_hash loss 5 3000
done
on B loss-dies example-remote_hash loss 5 3000 1000
for i in 6 7; do
	on A "loss-$i" example-remote_hash here 3 3000
done
on A here-dies example-remote_hash here 3 3000 1000
for i in 1 2 3 4 6 7; do
	gone "${weir_pid[loss-$i]}" || fail "loss-$i does not end: $(last_line "loss-$i")"
	says "loss-$i" '^rank [0-3] of [24]: 1 lost, [1-9][0-9]* inserts of all'
done

on A nodes example-nodes
says nodes '^this is node 1$'
says nodes '^node 2: added.* up.*; now up$'

# The peer's program ends and returns, then both data planes.
on A reconnect example-reconnect node:2:echo
says reconnect '^answer 3$'
stop echo KILL
says reconnect '^lost: '
on B echo example-echo
connections() {
	[ "$(grep -c '^connected' "$weir_tmp/reconnect.log")" -ge "$1" ] && tail -n 1 "$weir_tmp/reconnect.log" | grep -q '^answer'
}
await connections 2 || fail "no connection again after its peer's end: $(tail -n 3 "$weir_tmp/reconnect.log")"
stop dataplane-B KILL
says nodes '^node 2: down'
gone "${weir_pid[echo]}" || fail "example-echo goes on without a data plane"
memif_plane B 2
on B echo example-echo
says nodes '^node 2:.* up'
await connections 3 || fail "no connection again after its data plane's end: $(tail -n 3 "$weir_tmp/reconnect.log")"

# Told to stop, they end in order.
on B message example-message
from A example-message 2 hello
for name in echo nodes reconnect message; do
	stop $name || fail "$name ends with exit code $?: $(last_line $name)"
done
exit $weir_failed
