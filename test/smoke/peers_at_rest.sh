#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# 64 data planes on a bridge, at rest: all see all, nobody takes anybody for lost, none has a link. Then one of them talks
# to all others, one after the other, with room for 16 links.
# timeout: 900
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

[ "$(id -u)" -eq 0 ] || skip "a bridge needs root"
export WEIR_BUILD CLUSTER_NODE_TIMEOUT=$weir_node_timeout CLUSTER_OPTIONS="--links 16"
cat >"$weir_tmp/rest" <<'END'
#!/usr/bin/env bash
set -e
read -ra all <<<"$WEIR_CLUSTER"
up() { weirctl --instance "$1" --json show nodes | jq '[.[] | select(.state == "up")] | length'; }
counter() { weirctl --instance n0 --json show counters | jq ".[] | select(.name == \"broker.$1\") | .value"; }
sleep 10
for name in "${all[@]}"; do
	[ "$(up "$name")" = "${#all[@]}" ] || { echo "$name sees $(up "$name") nodes"; exit 1; }
	[ "$(weirctl --instance "$name" --json show qps | jq length)" = 0 ] || { echo "$name has links at rest"; exit 1; }
done
echo "${#all[@]} nodes at rest"
for ((i = 1; i < ${#all[@]}; i++)); do
	weir-perf --instance "n$i" >/dev/null 2>&1 &
	server=$!
	weir-perf --instance n0 "node:$i" -t lat -s 64 -n 20 --wait sleep --no-calibrate --verify --patience 60 --json |
		jq -e '.results[0] | .errors == 0 and .verified' >/dev/null || { echo "node $i"; exit 1; }
	kill $server
	wait $server || true
done
[ "$(weirctl --instance n0 --json show qps | jq length)" -le 32 ] || { echo "more links than there may be"; exit 1; }
[ "$(counter links_evicted)" -ge $((${#all[@]} - 17)) ] || { echo "$(counter links_evicted) links made room"; exit 1; }
echo "$(counter links_up) links, $(counter links_evicted) of them made room"
END
chmod +x "$weir_tmp/rest"
"$weir_root/scripts/cluster.sh" 64 --fabric bridge --join --memory 48 --report "$weir_tmp/report" -- "$weir_tmp/rest" >"$weir_tmp/said" 2>"$weir_tmp/cluster.log" ||
	fail "$(tail -n 3 "$weir_tmp/said"); $(tail -n 3 "$weir_tmp/cluster.log")"
jq -e '.nodes == 64 and .nodes_down == 0 and .failed == []' "$weir_tmp/report" >/dev/null || fail "the cluster: $(jq -c 'del(.switch)' "$weir_tmp/report")"
cat "$weir_tmp/said"
jq -r '"up after \(.up_s) s, \(.memory_mib) MiB"' "$weir_tmp/report"
