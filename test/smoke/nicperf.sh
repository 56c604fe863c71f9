#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# weir-nicperf: each test, in one process on a loopback port and in two over memif; bad input in one line.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"
PATH=$WEIR_BUILD/dataplane/tools:$PATH

# nicperf NAME CPU VDEV PORT,OPTIONS ARGUMENT...: what it prints goes to NAME.json; with nicperf_exec="exec" it takes the
# place of the shell.
nicperf() {
	local name=$1 cpu=$2 vdev=$3 spec=$4
	shift 4
	# shellcheck disable=SC2046
	${nicperf_exec:-} weir-nicperf --lcores "0@$cpu" --no-pci --in-memory $(eal_memory) --vdev "$vdev" -- --nic "roce:$spec" \
		--no-calibrate "$@" >"$weir_tmp/$name.json" 2>"$weir_tmp/$name.log"
}

loop() {
	nicperf loop 0 net_ring0 net_ring0,ip=10.81.0.1/24 --json "$@"
}

# Tests that the driver offers: the others have said that it doesn't.
offered=()
for test in write read send fadd cas lat bare; do
	if loop -t $test -n 2000 -s 64; then
		offered+=("$test")
	elif ! grep -q "weir-nicperf: driver roce does not offer $test; " "$weir_tmp/loop.log"; then
		fail "loop, $test: $(log_of loop)"
	fi
done
for test in write send lat bare; do
	[[ " ${offered[*]} " == *" $test "* ]] || fail "$test is not offered"
done

# each of them: counts, sizes around the MTU and above, several QPs, threads that share one
list=$(IFS=,; echo "${offered[*]}")
loop -t "${list%,bare}" -n 500 -s 1,63,4095,4096,4097,65536 || fail "sizes: $(log_of loop)"
jq -e '.results | length > 0 and all(.count == 500 and .msgs_per_s > 0 and .duration_s > 0)' "$weir_tmp/loop.json" >/dev/null ||
	fail "sizes: $(jq -c '.results[] | select(.count != 500)' "$weir_tmp/loop.json")"
jq -e '[.results[] | select(.test == "lat")] | length == 6 and all(.lat_us.min > 0 and .lat_us.p50 <= .lat_us.p99 and .lat_us.p99 <= .lat_us.p999 and .lat_us.p999 <= .lat_us.max)' \
	"$weir_tmp/loop.json" >/dev/null || fail "latency: $(jq -c .results "$weir_tmp/loop.json")"
loop -t "$(IFS=,; echo "${offered[*]:0:${#offered[@]}-2}")" -q 16 -n 1000 || fail "16 QPs: $(log_of loop)"
jq -e '.results | all(.count == 16000)' "$weir_tmp/loop.json" >/dev/null || fail "16 QPs: $(jq -c .results "$weir_tmp/loop.json")"
loop -t write,send -q 3 --shared -n 3000 || fail "3 threads: $(log_of loop)"
jq -e '.test_info.threads == 3 and .test_info.qps == 1 and (.results | all(.count > 1000))' "$weir_tmp/loop.json" >/dev/null ||
	fail "3 threads: $(jq -c . "$weir_tmp/loop.json")"
# threads take turns for a given time; main looks at its clock however busy their lock is
loop -t write -D 0.3 -q 3 --shared || fail "3 threads for 0.3 s: $(log_of loop)"
jq -e '.results[0] | .count > 0 and .duration_s < 20' "$weir_tmp/loop.json" >/dev/null ||
	fail "3 threads for 0.3 s: $(jq -c . "$weir_tmp/loop.json")"
loop -t write -D 0.3 --depth 4 --list 4 || fail "a queue of 4: $(log_of loop)"

# every byte of every operation
loop -t verify || fail "verify: $(log_of loop)"
jq -e '.results[0] | .count == 260 and .repeated == 0 and .not_offered == 0' "$weir_tmp/loop.json" >/dev/null || fail "verify: $(cat "$weir_tmp/loop.json")"

# two processes, and again through a link that loses
port=$(free_port)
for spec in "" ,loss=1,dup=1,reorder=1; do
	memif=net_memif0,id=0,bsize=4224,socket=$weir_memif
	nicperf_exec="exec" nicperf listen 1 "$memif,role=server" "net_memif0,ip=10.81.0.2/24,timeout=4000000$spec" --listen --port "$port" &
	weir_pid[listen]=$!
	nicperf two 0 "$memif,role=client" "net_memif0,ip=10.81.0.1/24,timeout=4000000$spec" --connect 127.0.0.1 --port "$port" \
		-t "${list%,bare},verify" -s 64,65536 -n 100 --json || fail "two processes$spec: $(log_of two)"
	gone "${weir_pid[listen]}" || fail "the listening process does not end"
	stop listen || fail "the listening process: $(log_of listen)"
	jq -e '.results | length >= 6 and all(.count >= 100)' "$weir_tmp/two.json" >/dev/null ||
		fail "two processes$spec: $(jq -c .results "$weir_tmp/two.json")"
done

# a table, in perftest's words
nicperf table 0 net_ring0 net_ring0,ip=10.81.0.1/24 -t write,lat -n 100 || fail "table: $(log_of table)"
grep -q '^test .*#bytes .*#iterations .*BW peak.*BW average.*MsgRate' "$weir_tmp/table.json" || fail "table: $(cat "$weir_tmp/table.json")"
grep -q 't_min .*t_typical .*99% .*99.9% .*t_max' "$weir_tmp/table.json" || fail "table: $(cat "$weir_tmp/table.json")"

# Bad input: exit code, one line, with a remedy.
bad() {
	refused "$1" "^weir-nicperf: .*$2" weir-nicperf "${@:3}"
}
ring=roce:net_ring0,ip=10.81.0.1/24
bad 2 "no --nic"
bad 2 "unknown option '--fast'" -- --nic $ring --fast
bad 2 "invalid value 'fly' for -t " -- --nic $ring -t fly
bad 2 "invalid value '0' for -s " -- --nic $ring -s 0
bad 2 "invalid value '17m' for -s " -- --nic $ring -s 17m
bad 2 "--list is more than --depth" -- --nic $ring --depth 8
bad 2 "are for two processes" -- --nic $ring --listen --connect localhost
bad 3 "no DPDK port 'net_ring7'" --no-pci --in-memory --no-huge -m 128 -- --nic roce:net_ring7,ip=10.81.0.1/24
