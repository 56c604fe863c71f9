#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# weir-perf with calls: between two nodes, two programs of a node and threads of one program, in each mode, of one and
# many threads and programs; the number of messages, and every byte looked at.
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
for to in node:2 node:1:near --inside; do
	for mode in auto eager full overflow; do
		perf '.count == 3000 and .verified and .calls.run == 3000 and .calls.messages <= 3000 and .payload_bytes == 3000 * .size' \
			--instance A $to -t call -s 0,8,100,4096 -n 3000 --mode $mode --verify
		perf '.count == 3000 and .verified and .calls.run == 3000' --instance A $to -t call -s 8,13 -n 3000 --mode $mode --many --verify
		# each call has an answer; those of the own program count, too
		perf '.count == 100 and .verified and .lat_us.p50 > 0' --instance A $to -t call -n 100 -w 1 --mode $mode --verify
		perf '.count == 1000 and .verified and .calls.run >= 1000 and .lat_us.p50 > 0' \
			--instance A $to -t return -s 0,64,4096 -n 1000 -w 100 --mode $mode --verify
	done
	perf '.calls.messages == 3000 and .calls.per_message == 1' --instance A $to -t call -n 3000 --mode eager
	# the clock is looked at every 64 calls
	perf '.calls.per_message > 30' --instance A $to -t call -s 8 -n 3000 --mode full
	perf '.count > 0 and .msgs_per_s > 0 and .calls.run == .count' --instance A $to -t call -s 8,64 -D 0.3 --many
	perf '.count > 0 and .calls.run == .count and .calls.messages >= .count' --instance A $to -t return -D 0.3
	perf '.count > 0 and .calls.run == .count and .shares.count == 3' --instance A $to -t call -D 0.3 --threads 3 --wait sleep
	perf '.count == 1001 and .verified and .shares.count == 4 and .lat_us.p50 > 0' \
		--instance A $to -t call,return -n 1001 --threads 4 -w 30 --verify --wait sleep
done
perf '.count == 2000 and .verified and .shares.count == 2 and .calls.run == 2000 and .calls.messages > 0' \
	--instance A node:2 -t call -n 2000 --programs 2 --threads 2 --verify
perf '.ports.tx_bytes == 0' --instance A node:1:near -t call -n 1000

# a driver that ends within a run costs the next one nothing
for to in node:2 node:1:near; do
	for signal in INT KILL; do
		run calls weir-perf --instance A $to -t call -D 600 --no-calibrate
		await shows A connections 'any(.[]; .bytes > 100000)' || fail "no calls: $(weirctl --instance A show connections)"
		stop calls $signal
		perf '.count == 1000 and .verified' --instance A $to -t call -n 1000 --verify
	done
done
for wrong in "call -s 4097" "call --threads 65" "call -b" "call --rate 5" "call --connections 2" "call --inside" "lat --many" "lat --mode full"; do
	# shellcheck disable=SC2086
	refused 2 . weir-perf --instance A node:2 -t $wrong
done
weirctl --instance A wait connections:0 --timeout "$patience" >/dev/null || fail "connections remain"
