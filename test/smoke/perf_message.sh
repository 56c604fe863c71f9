#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# weir-perf with the message model: messages and requests of one and many threads, of several programs,
# to a program on the same node; every byte looked at.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

# perf JQ ARGUMENT...: a run without errors of which JQ holds. A request may time out (1/3 s)
# for want of a CPU: tried again.
perf() {
	local expression=$1 try code
	shift
	for ((try = 0; try < 5; try++)); do
		weir-perf --instance A "$@" --no-calibrate --json >"$weir_tmp/result.json" 2>"$weir_tmp/perf.log"
		code=$?
		jq -e '.results[0] | .timeouts > 0 and .errors == .timeouts' "$weir_tmp/result.json" >/dev/null 2>&1 || break
	done
	[ "$code" = 0 ] || {
		fail "weir-perf $*: exit $code, $(last_line perf) $(jq -c '.results[0]' "$weir_tmp/result.json")"
		return
	}
	jq -e ".results[0] | .errors == 0 and ($expression)" "$weir_tmp/result.json" >/dev/null ||
		fail "weir-perf $*: $(jq -c '.results[0]' "$weir_tmp/result.json")"
}

two_nodes
server B
run server-A weir-perf --instance A --service near
await grep -q . "$weir_tmp/server-A.log" || die "weir-perf on A doesn't serve"
perf '.count == 20000 and .verified and .payload_bytes == 20000 * 64' node:2 -t message -n 20000 --verify
perf '.count == 10001 and .verified and .shares.count == 16' node:2 -t message -n 10001 --threads 16 -s 500 --verify
perf '.count == 20 and .verified' node:2 -t message -n 20 -s 2m --verify
perf '.count == 0 + 1000 and .payload_bytes == 0' node:2 -t message -n 1000 -s 0
perf '.count == 2000 and .verified and .timeouts == 0 and .lat_us.p50 > 0' node:2 -t request -n 2000 --verify
perf '.count == 2000 and .verified and .shares.count == 100 and .lat_us.p99 > 0' node:2 -t request -n 2000 --threads 100 --verify
perf '.count == 4000 and .shares.count == 2' node:2 -t message -n 4000 --programs 2 --threads 4
perf '.count == 2000 and .verified' node:1:near -t message -n 2000 --threads 4 --verify
perf '.msgs_per_s < 2500' node:2 -t message --rate 2k -D 0.3 --threads 2
for wrong in "--connections 2" "--loop" "--threads 20 -n 10" "--threads 257"; do
	# shellcheck disable=SC2086
	weir-perf --instance A node:2 -t message $wrong >/dev/null 2>&1
	[ $? = 2 ] || fail "$wrong was not refused"
done
weirctl --instance A wait connections:0 --timeout "$patience" >/dev/null || fail "connections remain"
