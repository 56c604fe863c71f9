#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Public services: found by name alone from another node, gone with their program, data plane or node,
# still there while a control is dead; a name on two nodes.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"
weir_node_timeout=3
two_nodes --idle adaptive

# expect NODE SERVICE LINE...: what a program on that node finds, in the end.
found() {
	local node=$1 service=$2
	shift 2
	[ "$(services "$node" find "$service")" = "$(printf '%s\n' "$@" | sed '/^$/d')" ]
}
expect() {
	await found "$@" || fail "on $1: $2 is '$(services "$1" find "$2")', not '${*:3}'"
}
# within MS NODE SERVICE LINE...: the same; it is told if a machine with nothing else to do takes that long.
within() {
	local begin ms=$1
	shift
	begin=$(now_ms)
	expect "$@"
	[ $(($(now_ms) - begin)) -lt "$ms" ] || echo "$2 took $(($(now_ms) - begin)) ms on $1"
}
offer() {
	serve "$1" services "$2" offer "${@:3}"
}

# from nowhere to found, and connected to by name alone
expect A kv ""
services A ask kv >"$weir_tmp/out" && fail "connected to what nobody offers"
grep -q "refused.*no node that is up offers the service kv" "$weir_tmp/out" || fail "$(cat "$weir_tmp/out")"
offer kv-B B kv log
within 1000 A kv "2 10.77.0.2:kv"
expect A log "2 10.77.0.2:log"
expect B kv "2 10.77.0.2:kv here"
[ "$(services A ask kv)" = 2 ] || fail "A asked: $(services A ask kv)"
shows A services 'length == 2 and .[0].name == "kv" and .[0].node == 2
	and .[0].port == "10.77.0.2" and .[0].self == false and (.[0].since | fromdate) > now - 60' ||
	fail "show services on A: $(weirctl --instance A --json show services)"
shows B services 'all(.self and .program == "services" and .session >= 0)' ||
	fail "show services on B: $(weirctl --instance B --json show services)"
weirctl --instance B show services | has "^kv  *2  *10.77.0.2  *services" || fail "$(weirctl --instance B show services)"
services B offer kv >"$weir_tmp/out" && fail "a name was given twice"
grep -q "taken on this node" "$weir_tmp/out" || fail "$(cat "$weir_tmp/out")"

# a tool that offers, and one that finds it
run perf weir-perf --instance B --public
await grep -q . "$weir_tmp/perf.log" || die "weir-perf doesn't serve"
expect A perf "2 10.77.0.2:perf"
weir-perf --instance A service:perf -t lat -n 100 --no-calibrate --json 2>&1 | jq -e '.results[0].errors == 0' >/dev/null ||
	fail "weir-perf by name"
stop perf

# on two nodes: this one first, then the other
offer kv-A A kv
expect B kv "2 10.77.0.2:kv here" "1 10.77.0.1:kv"
expect A kv "1 10.77.0.1:kv here" "2 10.77.0.2:kv"
[ "$(services A ask kv 3 | sort -u)" = 1 ] || fail "A did not ask itself"
# one that takes nobody: the next
kill -STOP "${weir_pid[kv-A]}"
stop kv-A KILL
within 1000 B kv "2 10.77.0.2:kv here"
within 1000 A kv "2 10.77.0.2:kv"
[ "$(services A ask kv)" = 2 ] || fail "A did not ask the other"

# drained: nobody is sent there
weirctl --instance B set drain.self on >/dev/null
within 1000 A kv ""
weirctl --instance B set drain.self off >/dev/null
within 1000 A kv "2 10.77.0.2:kv"

# without controls what was known last holds; a new one hears what has changed meanwhile
stop control-A KILL
stop control-B KILL
found A kv "2 10.77.0.2:kv" || fail "forgotten without control"
[ "$(services A ask kv)" = 2 ] || fail "cannot connect without control"
stop kv-B KILL
offer log-B B log
control A 1
control B 2
within 3000 A kv ""
within 1000 A log "2 10.77.0.2:log"

# the data plane dies, and with it what it offered
stop dataplane-B KILL
within 1000 A log ""
[ "$(weirctl --instance A --json show services)" = "[]" ] || fail "left: $(weirctl --instance A show services)"
again B --idle adaptive
up B
offer new-B B log kv
expect A log "2 10.77.0.2:log"
stop control-A TERM
stop dataplane-A KILL
within 3000 B kv "2 10.77.0.2:kv here"
