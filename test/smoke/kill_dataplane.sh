#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# kill -9 of a data plane: -ENODEV to its programs at once, -EHOSTDOWN to remote waiters; it comes back.
# wires: verbs,verbs verbs,roce roce,roce
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

weir_node_timeout="" # the default: the test is about it
two_nodes
serve echo-a probe A echo a
serve echo-b probe B echo b
run block-a probe A block node:2:b
run spin-a probe A spin node:2:b
run local-a probe A block node:1:a
run block-b probe B block node:1:a
run spin-b probe B spin node:1:a
for who in block-a spin-a local-a block-b spin-b; do
	await grep -q connected "$weir_tmp/$who.log" || die "$who is not connected"
done
# in_time WHO MOST: at most MOST ms after $ended, plus the time for which B starved since $waited.
in_time() {
	local at late
	read -r at _ < <(grep end "$weir_tmp/$1.log")
	echo "$1, at the other node, knew after $((at - killed)) ms"
	late=$(($(starved dataplane-B control-B) - waited))
	[ $((at - ended)) -le $(($2 + late)) ] || fail "$1: that is late, where data plane and control of B starved for $late ms"
}

waited=$(starved dataplane-B control-B)
declare -A hungry
for who in block-a spin-a local-a; do
	hungry[$who]=$(starved "$who")
done
killed=$(now_ms)
stop dataplane-A KILL
ended=$(now_ms)
for who in block-a spin-a local-a; do
	await grep -q 'end' "$weir_tmp/$who.log" || fail "$who still waits"
	read -r at _ status < <(grep end "$weir_tmp/$who.log")
	[ "$status" = -19 ] || fail "$who got $status, expected -19 (ENODEV)"
	await grep -q 'send -19' "$weir_tmp/$who.log" || fail "$who: send: $(last_line $who)"
	# 100 are promised, beside the time for which the program itself starved; the kernel tears the process down first
	late=$(($(sed -n 's/.* starved //p' "$weir_tmp/$who.log") - hungry[$who]))
	echo "$who learnt after $((at - killed)) ms, and starved for $late ms"
	[ $((at - ended)) -le $((100 + late)) ] || fail "$who: that is late, $((at - ended)) ms after the end, where it starved for $late ms"
done
for who in block-b spin-b; do
	await grep -q 'end' "$weir_tmp/$who.log" || fail "$who still waits"
	read -r at _ status < <(grep end "$weir_tmp/$who.log")
	[ "$status" = -112 ] || fail "$who got $status, expected -112 (EHOSTDOWN)"
	in_time "$who" 2000
done
await grep -q 'node 1 -112' "$weir_tmp/echo-b.log" || fail "no node-down event"
for who in block-a spin-a local-a block-b spin-b echo-a; do
	gone "${weir_pid[$who]}" || fail "$who did not end"
	unset "weir_pid[$who]"
done

# Its successor, same name and node id.
again A
up A B
weirctl --instance B wait node:1 --timeout "$patience" >/dev/null || fail "B does not see node 1 again"
probe A many node:2:b 3 10 >"$weir_tmp/again.log" 2>&1 || fail "after the restart: $(last_line again)"

# The whole node dies: the other one notices its silence alone.
serve late-a probe A echo late
run idle-b probe B block node:1:late
await grep -q connected "$weir_tmp/idle-b.log" || die "idle-b is not connected"
sleep 0.6 # nothing is under way
waited=$(starved dataplane-B control-B)
killed=$(now_ms)
kill -KILL "${weir_pid[control-A]}" "${weir_pid[dataplane-A]}"
stop control-A KILL
stop dataplane-A KILL
ended=$(now_ms)
await grep -q 'end' "$weir_tmp/idle-b.log" || fail "idle-b still waits"
read -r at _ status < <(grep end "$weir_tmp/idle-b.log")
[ "$status" = -112 ] || fail "idle-b got $status, expected -112 (EHOSTDOWN)"
in_time idle-b 2000
