#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# weir-perf --alltoall between three nodes: streams, messages, requests, calls and remote memory, all of it counted.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

cat >"$weir_tmp/all.sh" <<'END'
perf() {
	local expression=$1 try code
	shift
	# a request may time out (1/3 s) for want of a CPU: tried again
	for try in 1 2 3 4 5; do
		weir-perf --alltoall "$@" --no-calibrate --json >"$OUT/result.json" 2>"$OUT/perf.log"
		code=$?
		jq -es '.[0].results[0] | .timeouts > 0 and .errors == .timeouts' "$OUT/result.json" >/dev/null 2>&1 || break
		echo "try $try: requests without an answer in time"
	done
	[ "$code" = 0 ] ||
		{ echo "FAIL: weir-perf --alltoall $*: $(tail -n 1 "$OUT/perf.log")"; exit 1; }
	jq -e ".results | length > 0 and all(.errors == 0 and .verified and .shares.count == 3 and .shares.min > 0 and ($expression))" \
		"$OUT/result.json" >/dev/null ||
		{ echo "FAIL: weir-perf --alltoall $*: $(jq -c '.results[]' "$OUT/result.json")"; exit 1; }
}
# each of 3 to each of 2 others
perf '.count == 6 * 500' -t rate -n 500 --verify
perf '.count == 6 * 100 and .payload_bytes == 600 * 20000' -t bw -s 20000 -n 100 --verify
perf '.count == 6 * 200 and .timeouts == 0' -t request -n 200 --threads 4 --verify
perf '.count == 6 * 200' -t message -n 200 --threads 2 --verify
perf '.count == 6 * 2000 and .calls.run == 12000 and .calls.messages == 12000' -t call -n 2000 --mode eager --verify
perf '.count == 6 * 2000 and .calls.run == 12000 and .calls.per_message > 10' -t call -s 100 -n 2000 --mode full --many --threads 2 --verify
perf '.count == 6 * 300 and .calls.run == 1800 and .lat_us.p50 > 0' -t call -s 0,13,4096 -n 300 -w 10 --verify
perf '.count == 6 * 300 and .calls.run == 1800 and .lat_us.p50 > 0' -t call -n 300 -w 10 --wait sleep --verify
perf '.count == 6 * 301 and .calls.run == 1806 and .lat_us.p50 > 0' -t return -s 4096 -n 301 -w 10 --threads 3 --verify
perf '.count > 0 and .calls.run == .count' -t return -D 0.3 --verify
for test in put get acc fop cas; do
	perf '.count == 6 * 300 and .lat_us.p50 > 0' -t $test -n 300 --verify
done
# each with the parts of the others
for test in put get acc fop cas; do
	perf '.count == 6 * 100 and .members == 3' -t $test -n 100 --through window --verify
done
perf '.count == 6 * 100 and .payload_bytes == 600 * 3000' -t get -s 3000 -n 100 --threads 3 --through window --verify
for test in lock lockall fence pscw; do
	perf '.count == 3 * 50 and .members == 3' -t $test -n 50 --through window --verify
done
perf '.count == 3 * 50 and .payload_bytes == 150 * 3000' -t fence -s 3000 -n 50 --verify
perf '.count == 3 * 50 and .payload_bytes == 150 * 3000' -t pscw -s 3000 -n 50 --verify
perf '.count == 6 * 201 and .payload_bytes == 1206 * 3000' -t put -s 3000 -n 201 --threads 3 --target stop --verify
weir-perf --alltoall -t rate -n 500 node:1 >/dev/null 2>&1 && { echo "FAIL: an address was taken"; exit 1; }
weir-perf --alltoall -t call,return -s 8,64 -n 100 --no-calibrate | grep -c '^     600 calls run' | grep -qx 4 ||
	{ echo "FAIL: a table without the calls run"; exit 1; }
exit 0
END
OUT=$weir_tmp WEIR_BUILD=$WEIR_BUILD "$weir_root/scripts/cluster.sh" 3 -- bash "$weir_tmp/all.sh" >"$weir_tmp/cluster.log" 2>&1 ||
	fail "cluster: $(grep FAIL "$weir_tmp/cluster.log" || tail -n 3 "$weir_tmp/cluster.log")"
WEIR_CLUSTER=one weir-perf --alltoall -t rate >"$weir_tmp/one.log" 2>&1
[ $? = 2 ] || fail "a cluster of one was not refused: $(cat "$weir_tmp/one.log")"
