#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A node that talks to more others than it may have links, one after the other: each connection works, links that are not
# used make room for others, and all of them end in time. Memory comes back.
# timeout: 300
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

export WEIR_BUILD CLUSTER_NODE_TIMEOUT=$weir_node_timeout CLUSTER_OPTIONS="--links 6 --link-idle 3"
cat >"$weir_tmp/talk" <<'END'
#!/usr/bin/env bash
set -e
counter() { weirctl --instance n0 --json show counters | jq ".[] | select(.name == \"broker.$1\") | .value"; }
others=$(($(wc -w <<<"$WEIR_CLUSTER") - 1))
trap 'kill $(jobs -p) 2>/dev/null' EXIT
for ((i = 1; i <= others; i++)); do
	weir-perf --instance "n$i" >"$WEIR_RUN_DIR/server$i.log" 2>&1 &
done
for round in 1 2; do
	for ((i = 1; i <= others; i++)); do
		weir-perf --instance n0 "node:$i" -t lat -s 64 -n 20 --wait sleep --no-calibrate --verify --patience 30 --json |
			jq -e '.results[0] | .errors == 0 and .verified' >/dev/null || { echo "node $i, round $round"; exit 1; }
	done
done
[ "$(counter links_evicted)" -ge 10 ] || { echo "$(counter links_evicted) links made room"; exit 1; }
[ "$(counter links_failed)" = 0 ] || { echo "$(counter links_failed) links failed"; exit 1; }
for ((i = 0; i < 100; i++)); do
	[ "$(weirctl --instance n0 --json show qps | jq length)" = 0 ] && break
	sleep 0.2
done
[ "$(weirctl --instance n0 --json show qps | jq length)" = 0 ] || { echo "links stay though nothing uses them"; exit 1; }
[ "$(counter links_closed)" = "$(counter links_up)" ] || { echo "not all links were closed"; exit 1; }
echo "$(counter links_up) links, $(counter links_evicted) of them made room, all closed"
END
chmod +x "$weir_tmp/talk"
"$weir_root/scripts/cluster.sh" 12 --join --report "$weir_tmp/report" -- "$weir_tmp/talk" >"$weir_tmp/said" 2>"$weir_tmp/cluster.log" ||
	fail "$(tail -n 3 "$weir_tmp/said"); $(tail -n 3 "$weir_tmp/cluster.log")"
jq -e '.nodes == 12 and .nodes_down == 0 and .failed == []' "$weir_tmp/report" >/dev/null || fail "the cluster: $(jq -c 'del(.switch)' "$weir_tmp/report")"
cat "$weir_tmp/said"
