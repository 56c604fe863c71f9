#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# weir-perf's ways of working: many connections, several programs, out of the server's memory, over
# sockets, by its prompt.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

# perf JQ ARGUMENT...: a run without errors, and without a calibration.
perf() {
	measured "$@" --no-calibrate
}

two_nodes
run server-B weir-perf --instance B --region 16m
await grep -q . "$weir_tmp/server-B.log" || die "weir-perf on B doesn't serve"

# many connections, in turn and in any order; both directions; each message once, whole
perf '.count == 20000 and .verified' --instance A node:2 -t rate --connections 200 -n 20000 --verify
perf '.count == 5000 and .verified' --instance A node:2 -t bw -s 20000 --connections 50 -n 5000 -b --pick random --verify
perf '.count == 300 and .verified' --instance A node:2 -t bw -s 1m -n 300 --adopt --verify
perf '.count == 50000 and .errors == 0' --instance A node:2 -t rate -n 50000 --batch 32
perf '.count >= 2000 and .lat_us.p50 > 0 and .lost < 200' --instance A node:2 -t lat -n 2000 --flags UD
perf '.count == 20000 and .payload_bytes / 1024 + .lost == 20000' --instance A node:2 -t bw -s 1024 -n 20000 --flags UD --connections 3
perf '.count > 0 and .msgs_per_s > 0' --instance A node:2 -t rate -b --flags UD -D 0.3 --rate 20k
weir-perf --instance A node:2 -t bw -s 64k --flags UD -D 0.1 --no-calibrate >"$weir_tmp/large.log" 2>&1 && fail "a datagram of 64 KiB"
grep -q 'has at most [0-9]* bytes, not 65536; lower --size' "$weir_tmp/large.log" || fail "datagrams: $(last_line large)"
perf '.count == 2000 and .lat_us.p50 > 0' --instance A node:2 -t lat --connections 50 --pick random -n 2000 --verify
perf '.count == 3000 and .verified' --instance A node:2 -t mix --connections 10 -n 3000 --large 10 --verify
weirctl --instance A wait connections:0 --timeout "$patience" >/dev/null || fail "connections remain"

# programs that share the load, and say how evenly; paced
perf '.count == 8000 and .shares.count == 4 and .shares.min > 0' --instance A node:2 -t rate --programs 4 --connections 5 -n 8000
paced() { # a machine that is busy with others paces nothing: that can't last
	weir-perf --instance A node:2 -t rate --programs 2 --rate 20k -D 0.5 --no-calibrate --json >"$weir_tmp/result.json"
	jq -e '.results[0] | .errors == 0 and .msgs_per_s < 22000 and .msgs_per_s > 5000' "$weir_tmp/result.json"
}
await paced || fail "--rate 20k: $(jq -c '.results[0]' "$weir_tmp/result.json")"
weir-perf --instance A node:2 -t rate --connections 10 -n 9 >"$weir_tmp/few.log" 2>&1 && fail "fewer messages than connections"
rates() {
	weir-perf --instance A node:2 -t rate -D 1 --stats-period 0.2 --no-calibrate >"$weir_tmp/rates.log" 2>&1 ||
		fail "--stats-period: $(last_line rates)"
	[ "$(grep -c 'sent [0-9.]* M/s, [0-9]* in all; 0 errors' "$weir_tmp/rates.log")" -ge 3 ]
}
await rates || fail "no rates: $(cat "$weir_tmp/rates.log")"

# out of the server's memory, of which it gives no more than it was told; by RDMA READ of this node's engine
before=$(counter A engine.fetched_bytes)
perf '.payload_bytes == 65536000 and .verified and .ports.rx_bytes >= 65536000 and .lat_us.p50 > 0' \
	--instance A node:2 -t read -n 1000 --connections 20 --region 16m --verify
[ $(($(counter A engine.fetched_bytes) - before)) = 65536000 ] || fail "READs brought $(($(counter A engine.fetched_bytes) - before)) bytes, not 65536000"
weir-perf --instance A node:2 -t read -n 10 --region 32m >"$weir_tmp/region.log" 2>&1 && fail "a region beyond the server's"
grep -q 'lower --region' "$weir_tmp/region.log" || fail "region: $(last_line region)"

# a server outlives its data plane
stop dataplane-B KILL
again B
up A B
await grep -q '^weir-perf: the data plane is gone' "$weir_tmp/server-B.log" || fail "server: $(last_line server-B)"
twice() {
	[ "$(grep -c "serving 'perf' on instance B" "$weir_tmp/server-B.log")" = 2 ]
}
await twice || fail "the server doesn't serve again: $(last_line server-B)"
perf '.count == 1000 and .verified' --instance A node:2 -t rate -n 1000 --verify

# the same over sockets
port=$(free_port)
run server-tcp weir-perf --transport tcp --service "$port"
await grep -q . "$weir_tmp/server-tcp.log" || die "weir-perf doesn't serve TCP"
perf '.count == 1000 and .verified and .lat_us.p50 > 0' "127.0.0.1:$port" --transport tcp -t lat -n 1000 --verify
perf '.count == 200 and .verified' "127.0.0.1:$port" --transport tcp -t bw -s 1m -n 200 -b --verify
perf '.count == 20000 and .verified' "127.0.0.1:$port" --transport tcp -t rate --connections 20 -n 20000 --verify
perf '.count == 2000 and .verified' "127.0.0.1:$port" --transport tcp -t mix -n 2000 --large 10 --verify --wait sleep
perf '.count == 2000 and .shares.count == 2' "127.0.0.1:$port" --transport tcp -t rate --programs 2 -n 2000

# by the prompt; what is wrong in a pipe is said, ends it, and is the exit code
wrong() { # PATTERN LINE...
	local pattern=$1 code=0
	shift
	printf '%s\n' "$@" 'show config' | weir-perf --instance A node:2 -i >"$weir_tmp/wrong.log" 2>&1 || code=$?
	[ "$code" = 2 ] || fail "the prompt ends with $code after: $*"
	grep -q -- "$pattern" "$weir_tmp/wrong.log" || fail "the prompt lacks '$pattern': $(cat "$weir_tmp/wrong.log")"
	grep -q '^stopped: ' "$weir_tmp/wrong.log" && fail "the prompt goes on after: $*"
}
wrong "invalid value '.*' for size .*from 0 to 16m" 'set size 1000000000000'
wrong "'colour' can.t be set" 'set colour red'
wrong 'a run goes on' start 'set programs 2'
wrong "unknown or incomplete command 'jump'" jump
wrong 'seconds from 0 to 86400' 'wait long'
weir-perf --instance A node:2 -i >"$weir_tmp/prompt.log" 2>&1 <<END || fail "the prompt ended with $?"
set connections 4
set size 100
start
wait 0.5
show stats all
stop
wait
set programs 2
set count 1000
start
wait
show config
clear stats
show stats all
END
for line in 'program 0 ' 'connections 4, programs 2' ' 0 sent' '^rate'; do
	grep -q -- "$line" "$weir_tmp/prompt.log" || fail "the prompt lacks '$line': $(cat "$weir_tmp/prompt.log")"
done
[ "$(grep -c '^rate ' "$weir_tmp/prompt.log")" = 2 ] || fail "not two results: $(cat "$weir_tmp/prompt.log")"
