#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# What an operator sees of a running node, in words of his own and of testpmd; impairments set and cleared while
# traffic goes on; how busy an engine is now.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

one_node --idle adaptive --user-limit 12345:sessions=3
export WEIR_INSTANCE=A
line() { # NAME: its value in the status
	weirctl --json show status | jq -r --arg name "$1" '[.[] | select(.name == $name) | .value] | join("|")'
}
has_line() { # NAME PATTERN
	line "$1" | has -E "$2" || fail "status: $1 is '$(line "$1")', not '$2'"
}
told() { # PATTERN WORD...: weirctl refuses them, in one line
	local pattern=$1
	shift
	weirctl "$@" >"$weir_tmp/told" 2>&1 && fail "weirctl $* is done"
	grep -qE "^weirctl: .*$pattern" "$weir_tmp/told" || fail "weirctl $* says '$(cat "$weir_tmp/told")'"
}

# every kind, as table and as JSON
for kind in status version config memory nodes links engines sessions users connections exports qps ports xstats counters settings services; do
	weirctl show "$kind" >"$weir_tmp/out" || fail "show $kind"
	[ -s "$weir_tmp/out" ] || fail "show $kind prints nothing"
	shows A "$kind" 'type == "array"' || fail "show $kind is not an array"
done
has_line state '^serving$'
has_line node '^1$'
await shows A status 'any(.[]; .name == "control" and .value == "connected")' || fail "no control"
await shows A status 'any(.[]; .name == "cluster" and .value == "default" and .from == "weir-control")' || fail "no cluster"
has_line uptime '^0 d 00:'
has_line "members from" 'peers file'
[ "$(line impaired)" = "" ] || fail "it says that it is impaired: $(line impaired)"
shows A version '[.[] | select(.name | startswith("weir")) | .value] | length == 3 and (unique | length) == 1' ||
	fail "versions: $(weirctl show version)"
shows A config 'any(.[]; .name == "nic" and (.value | test("net_ring0")) and .from == "set") and
	any(.[]; .name == "window" and .value == "2M" and .from == "default")' || fail "config: $(weirctl show config)"
shows A memory 'any(.[]; (.pool | test("frames of port")) and .used < .bytes and .when == "now") and
	any(.[]; .pool == "shared memory of all programs" and .used == 0)' || fail "memory: $(weirctl show memory)"
for part in 'exports of a session' 'exports of a session in main'; do
	grep -q "^ *$part  .* of that" "$weir_tmp/dataplane-A.log" || fail "the table at start does not name $part"
done
shows A ports '.[0] | (.mac | test("^([0-9a-f]{2}:){5}[0-9a-f]{2}$")) and .rx_depth > 0 and .tx_queues == 1 and
	.frames_free > 0 and .frames_free <= .frames and .frames > 1000 and .impaired == ""' || fail "ports: $(weirctl show ports)"
shows A xstats 'any(.[]; .port == "net_ring0" and .name == "rx_good_packets")' || fail "xstats: $(weirctl show xstats)"

# words of testpmd
weirctl show port stats all | has net_ring0 || fail "show port stats all"
weirctl show port xstats 0 | has rx_good_packets || fail "show port xstats 0"
told 'counters only grow.*top' clear port stats all
told 'drain self' port stop 0

# traffic, and an engine that has some to do
server A
run load weir-perf node:1 --loop -t rate -s 64 -D 600 --no-calibrate
await shows A engines '.[0].busy_percent > 20' || fail "an engine with work is not busy: $(weirctl show engines)"
shows A memory 'any(.[]; .pool == "shared memory of all programs" and .used > 1000000)' || fail "memory of programs is not counted"
shows A users 'any(.[]; .sessions == 2 and .memory > 1000000)' || fail "users: $(weirctl show users)"
shows A links 'length == 2 and all(.[]; .state == "up" and .open and .address == "10.79.0.1")' || fail "links: $(weirctl show links)"

# impairments, each with its own counter
count() {
	counter A "nic.$1"
}
for what in "loss 2 drop_impaired" "dup 2 impaired_dup" "reorder 2 impaired_reorder" "corrupt 2 impaired_corrupt" \
	"delay 20 impaired_delay" "jitter 20 impaired_jitter" "rate 2000 impaired_rate"; do
	read -r key value name <<<"$what"
	[ "$(count "$name")" = 0 ] || fail "$name counts before $key is set"
	weirctl set "port.net_ring0.$key" "$value" || fail "set port.net_ring0.$key"
	await eval "[ \$(count $name) -gt 0 ]" || fail "$key does nothing"
	shows A ports ".[0].impaired == \"$key=$value\"" || fail "$key is not shown: $(weirctl show ports)"
	shows A settings "any(.[]; .key == \"port.net_ring0.$key\" and .value == \"$value\")" || fail "no setting $key"
	has_line impaired "port net_ring0: $key=$value"
	weirctl set "port.net_ring0.$key" 0 || fail "$key can't be cleared"
	shows A ports '.[0].impaired == ""' || fail "$key stays: $(weirctl show ports)"
done
[ "$(counter A nic.drop_bad_icrc)" -gt 0 ] || fail "no corrupt frame was noticed"
[ "$(count impaired_corrupt)" -ge "$(($(counter A nic.drop_bad_icrc) + $(counter A nic.drop_bad_ip)))" ] || fail "more bad frames than corrupt ones"
grep -q 'weir-dataplane: port net_ring0 is impaired on purpose: loss=2; ' "$weir_tmp/dataplane-A.log" || fail "nothing in the log"
grep -q 'port net_ring0 is not impaired any more' "$weir_tmp/dataplane-A.log" || fail "no end in the log"
told "invalid value '101' for port.net_ring0.loss" set port.net_ring0.loss 101
told "no port 'net_ring7'; see" set port.net_ring7.loss 1
told "can't be set while the port runs; see" set port.net_ring0.mtu 1
stop load INT

# and after all that every byte arrives
serve sink probe A sink s
probe A send node:1:s 20000 11 loop >"$weir_tmp/send.log" 2>&1 || probe A send node:1:s 20000 11 >"$weir_tmp/send.log" 2>&1 ||
	fail "sender: $(last_line send)"
await grep -q 'end -108 after 20000' "$weir_tmp/sink.log" || fail "sink: $(last_line sink)"

# an engine without work is idle now, whatever it has done before
stop server-A
await shows A engines '.[0].busy_percent < 20 and .[0].busy_cycles > 0' || fail "an idle engine is busy: $(weirctl show engines)"

# it says why it stops
pid=${weir_pid[dataplane-A]}
stop dataplane-A
grep -qE "^20[0-9-]+T[0-9:.]+Z weir-dataplane: stopping on signal 15 \(SIGTERM\) sent by process $$ of user $(id -u);" \
	"$weir_tmp/dataplane-A.log" || fail "it doesn't say why it stops (pid $pid): $(last_line dataplane-A)"
grep -q 'weir-dataplane: stopped: all programs and peers have been told' "$weir_tmp/dataplane-A.log" || fail "no end: $(last_line dataplane-A)"

# docs/memory.md shows what is printed, of a machine with this much memory
timeout 60 weir-dataplane --no-huge -m 512 --no-pci --lcores 0@0,1@1 --vdev "net_memif0,role=server,socket=$weir_tmp/doc.sock,bsize=4224" -- \
	--instance doc --max-memory 12638257152 --links 1171 --nic roce:net_memif0,ip=10.91.0.1/24 >"$weir_tmp/memory.log" 2>&1 &
doc=$!
await grep -q 'segment of two threads' "$weir_tmp/memory.log" || fail "no memory is printed: $(cat "$weir_tmp/memory.log")"
kill "$doc"
wait "$doc"
grep -E ' x +[0-9]+ ' "$weir_tmp/memory.log" | grep -v 'segment of' >"$weir_tmp/pools"
sed 's/^ *//' "$weir_root/docs/memory.md" >"$weir_tmp/documented"
[ -s "$weir_tmp/pools" ] || fail "no pools are printed"
while read -r pool; do
	grep -qxF -- "$pool" "$weir_tmp/documented" || fail "docs/memory.md lacks '$pool'"
done <"$weir_tmp/pools"
exit 0
