#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# weir-perf through windows: puts, gets, updates, notices, signals, locks and epochs, between nodes and on one, mapped and
# apart, of several threads and programs; every byte that lies there in the end looked at.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

# perf JQ ARGUMENT...: a run without errors of which JQ holds.
perf() {
	measured "$@" --no-calibrate
}

two_nodes
server B
run server-A weir-perf --instance A --service near
await grep -q . "$weir_tmp/server-A.log" || die "weir-perf on A doesn't serve"
for apart in "" --apart; do
	for to in node:2 node:1:near; do # shellcheck disable=SC2086
		perf '.count == 200 and .verified and .members == 2 and .lat_us.p50 > 0 and .payload_bytes == 200 * .size' \
			--instance A $to -t put,get,acc,fop,cas --through window -n 200 --verify $apart
		# shellcheck disable=SC2086
		perf '.count == 100 and .verified and .members == 2 and .lat_us.p50 > 0 and .payload_bytes == 100 * .size' \
			--instance A $to -t notify,signal,flag,lock,lockall,fence,pscw --through window -n 100 --verify $apart
		# shellcheck disable=SC2086
		perf '.count == 70 and .verified and .payload_bytes == 70 * .size' \
			--instance A $to -t lock,lockall,fence,pscw --through window -n 70 -s 8,3000 --verify $apart
	done
done
perf '.count == 100 and .verified' --instance A node:2 -t put,get --through window -s 0,1,7,933,9000,1m -n 100 --verify
perf '.count == 100 and .verified' --instance A node:1:near -t put,get --through window -s 64,64k --layout 8:24 -n 100 --verify
perf '.count == 100 and .verified' --instance A node:2 -t put --through window -n 100 -w 7 --verify
for to in node:2 node:1:near; do
	perf '.count == 50 and .verified' --instance A $to -t acc,fop --through window -n 50 --type double --verify --by-engine
	perf '.count == 70 and .verified' --instance A $to -t acc -s 8k --through window -n 70 --type double --verify --by-engine
	perf '.count == 300 and .verified and .shares.count == 3' --instance A $to -t put,fop --through window -n 300 --threads 3 --verify
	# two programs and their targets
	for test in put acc notify signal flag lockall fence pscw; do
		perf '.count == 60 and .verified and .members == 4 and .shares.count == 2 and .shares.min > 0' \
			--instance A $to -t $test --through window -n 60 --programs 2 --verify
	done
	perf '.count == 60 and .verified and .members == 6 and .shares.count == 3' \
		--instance A $to -t pscw -s 3000 -n 60 --programs 3 --partners 3 --verify
	perf '.count == 300 and .members == 6 and .shares.count == 3 and .shares.min > 0' \
		--instance A $to -t lock --through window -n 300 --programs 3 --readers 1
	perf '.count == 300 and .shares.min > 0' --instance A $to -t lock -n 300 --programs 3 --readers 1
done
perf '.count == 60 and .verified' --instance A node:1:near -t lockall -s 8 -n 60 --programs 3 --partners 3 --verify
weir-perf --instance A node:2 -t lockall -n 10 --no-calibrate --partners 1 >"$weir_tmp/parts.log" 2>&1
[ $? = 1 ] || fail "parts of another host are taken as mapped: $(log_of parts)"
grep -q 'weir-perf: .* is not mapped here; ' "$weir_tmp/parts.log" || fail "no reason: $(log_of parts)"
# by time the programs end with the first one, wherever they are
perf '.count > 0 and .lat_us.p50 > 0 and .duration_s > 0.1' --instance A node:2 -t fence,pscw -s 8 -D 0.4 --programs 2
perf '.count > 0 and (.calls_us | length == 4 and all(. > 0))' --instance A node:2 -t pscw -s 8 -D 0.4 --programs 2
perf '.count > 0 and .lat_us.p50 > 0' --instance A node:1:near -t put,notify --through window -D 0.4 --programs 2 --wait sleep

# a member that is stopped takes no part, and goes on when its memory is looked at
run puts weir-perf --instance A node:2 -t put -s 8 -D 600 --through window --target stop --no-calibrate
await target_stopped || fail "no member is stopped: $(weirctl --instance B show sessions)"
await shows B exports 'any(.[]; .puts > 100 and .program == "weir-perf-target")' || fail "exports: $(weirctl --instance B show exports)"
stop puts INT
await shows B exports 'length == 0' || fail "an export stays: $(weirctl --instance B show exports)"
perf '.count == 200 and .verified' --instance A node:2 -t put,get,acc --through window -n 200 --target stop --verify
perf '.count == 1 and .verified' --instance A node:1:near -t put,lockall --through window -s 8 -n 1 --target stop --apart --verify

# a driver that ends ends its members, which wait for it
run fences weir-perf --instance A node:2 -t fence -s 8 -D 600 --no-calibrate
await shows B exports 'any(.[]; .program == "weir-perf-target" and .puts > 5)' || fail "no window: $(weirctl --instance B show exports)"
stop fences KILL
await shows B exports 'length == 0' || fail "an export stays: $(weirctl --instance B show exports)"
perf '.count == 20 and .verified' --instance A node:2 -t fence -n 20 --verify
for wrong in "put --through door" "lat --through window" "put --by-engine --through window" "lock -s 8" "fence --threads 2" \
	"pscw --target stop" "pscw --partners 2" "lock --readers 2" "fence --connections 2" "fence -b" "lock -s 8 --through window --programs 2"; do
	# shellcheck disable=SC2086
	refused 2 . weir-perf --instance A node:2 -t $wrong
done
weirctl --instance A wait connections:0 --timeout "$patience" >/dev/null || fail "connections remain"
