#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# plot.sh refuses wrong arguments before it writes anything, and writes where it was told to alone.
set -u

plot=$(cd "$(dirname "$0")/../../scripts" && pwd)/plot.sh
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
failed=0
if ! command -v jq >/dev/null || ! command -v gnuplot >/dev/null; then
	echo "SKIP: jq or gnuplot is missing"
	exit 77
fi
mkdir "$tmp/here" "$tmp/out"
cd "$tmp/here" || exit 1
echo '[{"name": "conn_alltoall_2", "value": 1}, {"name": "conn_alltoall_4", "value": 2}]' >"$tmp/good.json"
echo '{"no": "figures"}' >"$tmp/other.json"

refused() { # PATTERN ARGUMENT...
	local pattern=$1
	shift
	bash "$plot" "$@" >"$tmp/said" 2>&1
	if [ $? != 2 ] || ! grep -q "^plot.sh: .*$pattern.*; usage: plot.sh FILE DIR" "$tmp/said"; then
		echo "FAILED: plot.sh $*: $(cat "$tmp/said")"
		failed=1
	fi
	if [ -n "$(find "$tmp/here" "$tmp/out" -type f)" ]; then
		echo "FAILED: plot.sh $* has written"
		failed=1
	fi
}
refused "0 arguments"
refused "1 arguments" "$tmp/good.json"
refused "3 arguments" "$tmp/good.json" "$tmp/out" more
refused "cannot read" "$tmp/none.json" "$tmp/out"
refused "holds no figures" "$tmp/other.json" "$tmp/out"
refused "expected a directory" "$tmp/good.json" "$tmp/none"
[ ! -e "$tmp/none" ] || { echo "FAILED: a directory was made"; failed=1; }
bash "$plot" "$tmp/good.json" "$tmp/out" >"$tmp/said" 2>&1 || { echo "FAILED: $(cat "$tmp/said")"; failed=1; }
[ "$(ls "$tmp/out")" = alltoall.svg ] || { echo "FAILED: it wrote $(ls "$tmp/out")"; failed=1; }
# models with points of one kind alone, and what is no point
echo '[{"name": "os_model_remote_lock_1", "value": 5}, {"name": "os_model_remote_lock_32", "value": 90}, {"name": "os_model_remote_lock_a", "value": 2}]' >"$tmp/lock.json"
rm "$tmp/out/alltoall.svg"
bash "$plot" "$tmp/lock.json" "$tmp/out" >"$tmp/said" 2>&1 || { echo "FAILED: $(cat "$tmp/said")"; failed=1; }
if [ "$(ls "$tmp/out")" != onesided.svg ] || ! grep -q 'lock, by programs' "$tmp/out/onesided.svg"; then
	echo "FAILED: no lock in $(ls "$tmp/out")"
	failed=1
fi
# windows: by size, by members and by partners
rm "$tmp/out"/*
jq -n '[("pscw", "notify", "message", "flag") as $test | ("host", "remote") as $where | (8, 64) | {name: "os_model_\($where)_\($test)_\(.)", value: .}] +
	[("fence", "wlock") as $test | (2, 4) | {name: "os_model_host_\($test)_\(.)", value: .}] +
	[(1, 2) | {name: "os_model_host_complete_\(.)", value: .}]' >"$tmp/windows.json"
bash "$plot" "$tmp/windows.json" "$tmp/out" >"$tmp/said" 2>&1 || { echo "FAILED: $(cat "$tmp/said")"; failed=1; }
[ "$(cd "$tmp/out" && echo *)" = "members.svg notified_host.svg notified_remote.svg partners.svg pscw.svg" ] ||
	{ echo "FAILED: of windows it drew $(ls "$tmp/out")"; failed=1; }
for text in 'put with a notice' 'message' 'put, flush, put of a flag' 'post, start, complete, wait'; do
	grep -q ">$text<" "$tmp/out/notified_remote.svg" || { echo "FAILED: no $text beside notices"; failed=1; }
done
exit $failed
