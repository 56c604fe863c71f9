#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# weir-perf with remote memory: puts of one and many threads, of several programs, between nodes and on one;
# the program whose memory it is sleeps or is stopped; every byte that lies there in the end looked at.
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
perf '.count == 20000 and .verified and .msgs_per_s > 0 and .lat_us.p50 > 0 and .payload_bytes == 160000 and .ports.tx_bytes > 160000' \
	--instance A node:2 -t put -s 8 -n 20000 --verify
for apart in "" --apart; do # shellcheck disable=SC2086
	perf '.count == 20000 and .verified and .ports.tx_bytes == 0' --instance A node:1:near -t put -s 8 -n 20000 --verify $apart
done
perf '.count == 500 and .verified' --instance A node:2 -t put -s 0,1,7,33,932,933,9000,1m -n 500 --verify
for apart in "" --apart; do
	for to in node:2 node:1:near; do # shellcheck disable=SC2086
		perf '.count == 5000 and .verified and .lat_us.p50 > 0' --instance A $to -t get,acc,fop,cas -n 5000 --verify $apart
	done
done
# the target answers each notified put; its memory is looked at, too
for apart in "" --apart; do
	for to in node:2 node:1:near; do # shellcheck disable=SC2086
		perf '.count == 2000 and .lat_us.p50 > 0' --instance A $to -t lock -n 2000 $apart
		perf '.count == 5000 and .verified and .lat_us.p50 > 0' --instance A $to -t notify,signal -s 0,8,2000 -n 5000 --verify $apart
		perf '.count == 1000 and .verified' --instance A $to -t put,get -s 64,4096,64k --layout 8:24 -n 1000 --verify $apart
	done
done
perf '.count > 0 and .lat_us.p50 > 0' --instance A node:2 -t notify -D 0.4 --programs 2 --wait sleep
perf '.count == 300 and .verified' --instance A node:2 -t put,get -s 3000,300000 --layout 1000:1k -n 300 --verify
perf '.count == 2000 and .shares.count == 8 and .shares.min > 0' --instance A node:2 -t lock -n 2000 --threads 8
# programs contend for the lock of the first one's memory
run locks weir-perf --instance A node:2 -t lock -D 600 --programs 3 --threads 2 --no-calibrate
await shows B exports '[.[] | select(.program == "weir-perf-target") | .openers] | sort == [1, 1, 6]' ||
	fail "they do not share a lock: $(weirctl --instance B show exports)"
await shows B exports 'any(.[]; .waiters > 0)' || fail "nobody waits for the lock: $(weirctl --instance B show exports)"
stop locks INT
await shows B exports 'length == 0' || fail "an export stays: $(weirctl --instance B show exports)"
for apart in "" --apart; do
	for to in node:2 node:1:near; do # shellcheck disable=SC2086
		perf '.count == 3000 and .shares.count == 3 and .shares.min > 0' --instance A $to -t lock -n 3000 --programs 3 $apart
	done
done
perf '.count == 300 and .verified' --instance A node:2 -t get -s 0,1,7,933,9000,1m -n 300 --verify
perf '.count == 300 and .verified' --instance A node:2 -t acc -s 8,64,920,8000 -n 300 --verify
for of in "int8 sum" "uint16 bxor" "int32 max" "uint64 replace" "float sum" "double prod" "bool lxor" "byte bor"; do
	perf '.count == 300 and .verified' --instance A node:2 -t acc -s 8,800 -n 300 --type "${of% *}" --op "${of#* }" --verify
done
for to in node:2 node:1:near "node:1:near --apart"; do
	for of in "long_double sum" "float_complex prod" "double_complex sum" "long_double_complex replace" "int16_at maxloc" "long_double_at minloc"; do
		# shellcheck disable=SC2086
		perf '.count == 300 and .verified' --instance A $to -t acc,fop -n 300 --type "${of% *}" --op "${of#* }" --verify
	done
	# shellcheck disable=SC2086
	perf '.count == 300 and .verified' --instance A $to -t acc -s 64,1280 --layout 16:48 -n 300 --type double_at --op maxloc --verify
done
perf '.count == 300 and .verified and .payload_bytes == 600' --instance A node:2 -t fop -n 300 --type int16 --verify
perf '.count == 4000 and .verified and .shares.count == 4' --instance A node:2 -t get,fop -n 4000 --threads 4 --verify
perf '.count == 10001 and .verified and .shares.count == 8' --instance A node:2 -t put -s 100 -n 10001 --threads 8 --verify
perf '.count == 10000 and .shares.count == 2' --instance A node:2 -t put -n 10000 --programs 2 --threads 3 --wait sleep
perf '.count == 1000 and .verified' --instance A node:2 -t put -n 1000 -w 7 --verify
perf '.count > 0 and .duration_s > 0.1' --instance A node:2 -t put -s 8 -D 0.4

# a program that is stopped takes no part, and goes on when its memory is looked at
run puts weir-perf --instance A node:2 -t put -s 8 -D 600 --target stop --no-calibrate
await target_stopped || fail "no program is stopped: $(weirctl --instance B show sessions)"
await shows B exports 'any(.[]; .puts > 1000 and .program == "weir-perf-target" and .openers > 0)' || fail "exports: $(weirctl --instance B show exports)"
shows B connections 'any(.[]; .kind == "memory" and .export != null and .transport == "rc")' || fail "connections: $(weirctl --instance B show connections)"
stop puts INT
await shows B exports 'length == 0' || fail "an export stays: $(weirctl --instance B show exports)"
perf '.count == 20000 and .verified' --instance A node:2 -t put -s 64 -n 20000 --target stop --verify
perf '.count == 20000 and .verified' --instance A node:1:near -t put -s 64 -n 20000 --target stop --apart --verify
weir-perf --instance A node:2 -t put -n 200 -s 16m --threads 200 >"$weir_tmp/large.log" 2>&1 && fail "more memory than a session may have"
grep -q 'exports no memory: .*; see what the server' "$weir_tmp/large.log" || fail "too much memory: $(last_line large)"
perf '.count == 100 and .verified' --instance A node:2 -t put -n 100 --verify

# an operator ends the export: the run fails, the server serves
run puts weir-perf --instance A node:2 -t put -s 8 -D 600 --no-calibrate
await shows B exports 'any(.[]; .puts > 1000)' || fail "exports: $(weirctl --instance B show exports)"
weirctl --instance B evict "export.$(weirctl --instance B --json show exports | jq '.[0].export')" || fail "evict"
await has_ended "${weir_pid[puts]}" || fail "puts go on without their export"
log_of puts | has 'export was revoked' || fail "it says $(last_line puts)"
perf '.count == 100 and .verified' --instance A node:2 -t put -n 100 --verify
for wrong in "--connections 2" "--loop" "-b" "--rate 5" "--flags RC" "--transport tcp" "--threads 257" "--target hang"; do
	# shellcheck disable=SC2086
	weir-perf --instance A node:2 -t put $wrong >/dev/null 2>&1
	[ $? = 2 ] || fail "$wrong was not refused"
done
for wrong in "put --layout 8:7" "put --layout 0:8" "put --layout 8" "acc --layout 4:16" "fop --layout 8:16" "acc --type double_at" "acc --type long_double -s 24" "cas --type int32" "acc --type float --op land" "put --type int8" "acc --type float -s 6" "put -s 12 --layout 8:16" "signal --threads 2"; do
	# shellcheck disable=SC2086
	weir-perf --instance A node:2 -t $wrong >/dev/null 2>&1
	[ $? = 2 ] || fail "-t $wrong was not refused"
done
weir-perf --instance A node:2 -t lat --target stop >/dev/null 2>&1 && fail "--target goes with -t lat"
weirctl --instance A wait connections:0 --timeout "$patience" >/dev/null || fail "connections remain"
