#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# kill -9 of a data plane: -ENODEV to its programs at once, -EHOSTDOWN to remote waiters; it comes back.
# wires: verbs,verbs verbs,roce roce,roce
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

two_nodes
run echo-a probe A echo a
run echo-b probe B echo b
await 10 grep -q ready "$weir_tmp/echo-a.log"
await 10 grep -q ready "$weir_tmp/echo-b.log"
run block-a probe A block node:2:b
run spin-a probe A spin node:2:b
run local-a probe A block node:1:a
run block-b probe B block node:1:a
run spin-b probe B spin node:1:a
for who in block-a spin-a local-a block-b spin-b; do
	await 10 grep -q connected "$weir_tmp/$who.log" || die "$who is not connected"
done
killed=$(now_ms)
stop dataplane-A KILL
for who in block-a spin-a local-a; do
	await 5 grep -q 'end' "$weir_tmp/$who.log" || fail "$who still waits"
	read -r at _ status < <(grep end "$weir_tmp/$who.log")
	[ "$status" = -19 ] || fail "$who got $status, expected -19 (ENODEV)"
	echo "$who learnt after $((at - killed)) ms" # 100 are promised: scripts/bench.sh control
	[ $((at - killed)) -le 3000 ] || fail "that is not the moment when the kernel had the process end"
	grep -q 'send -19' "$weir_tmp/$who.log" || fail "$who: send: $(tail -n 1 "$weir_tmp/$who.log")"
done
for who in block-b spin-b; do
	await 5 grep -q 'end' "$weir_tmp/$who.log" || fail "$who still waits"
	read -r at _ status < <(grep end "$weir_tmp/$who.log")
	[ "$status" = -112 ] || fail "$who got $status, expected -112 (EHOSTDOWN)"
	[ $((at - killed)) -le 2000 ] || fail "$who learnt after $((at - killed)) ms"
done
await 5 grep -q 'node 1 -112' "$weir_tmp/echo-b.log" || fail "no node-down event"
for who in block-a spin-a local-a block-b spin-b echo-a; do
	gone "${weir_pid[$who]}" 5 || fail "$who did not end"
	unset "weir_pid[$who]"
done

# Its successor, same name and node id.
again A
up A B
weirctl --instance B wait node:1 --timeout 10 >/dev/null || fail "B does not see node 1 again"
probe A many node:2:b 3 10 >"$weir_tmp/again.log" 2>&1 || fail "after the restart: $(tail -n 1 "$weir_tmp/again.log")"

# The whole node: nobody says that it is gone, but neither its control nor its data plane is heard.
run late-a probe A echo late
await 10 grep -q ready "$weir_tmp/late-a.log"
run idle-b probe B block node:1:late
await 10 grep -q connected "$weir_tmp/idle-b.log" || die "idle-b is not connected"
sleep 0.6 # nothing is under way
killed=$(now_ms)
kill -KILL "${weir_pid[control-A]}" "${weir_pid[dataplane-A]}"
stop control-A KILL
stop dataplane-A KILL
await 10 grep -q 'end' "$weir_tmp/idle-b.log" || fail "idle-b still waits"
read -r at _ status < <(grep end "$weir_tmp/idle-b.log")
[ "$status" = -112 ] || fail "idle-b got $status, expected -112 (EHOSTDOWN)"
[ $((at - killed)) -le 2000 ] || fail "idle-b learnt after $((at - killed)) ms"
