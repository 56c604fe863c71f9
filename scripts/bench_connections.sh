# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# shellcheck disable=SC2154 # variables of bench.sh and _init.sh
# The set `connections` of bench.sh: many connections, programs and nodes. Sourced by it.

# Rates between all pairs of a cluster, and what the switch costs. alltoall_of NODES: prints
# "MESSAGES-PER-SECOND SHARE"; the median of its runs, nodes started anew for each.
alltoall_run()
{
	"$weir_root/scripts/cluster.sh" "$1" --report "$weir_tmp/cluster.json" -- \
		weir-perf --alltoall -t rate -s 64 -D 2 --json >"$weir_tmp/result.json" 2>"$weir_tmp/perf.log" || return 1
	jq -r --slurpfile cluster "$weir_tmp/cluster.json" \
		'"\(.results[0].msgs_per_s / 1e6) \(100 * $cluster[0].switch.cpu_share_last)"' "$weir_tmp/result.json"
}

alltoall_figures()
{
	local nodes try line two="" all
	local -a rates=() shares=()

	any_wanted conn_alltoall_2 conn_alltoall_4 conn_alltoall_8 conn_alltoall_16 conn_alltoall_32 conn_alltoall || return 0
	for nodes in 2 4 8 16 32; do
		if ! wanted "conn_alltoall_$nodes" && { [ "$nodes" != 2 ] && [ "$nodes" != 32 ] || ! wanted conn_alltoall; }; then
			continue
		fi
		rates=() shares=()
		for ((try = 0; try < runs; try++)); do
			line=$(alltoall_run "$nodes") || { tail -n 1 "$weir_tmp/perf.log" >&2; break; }
			rates+=("${line% *}")
			shares+=("${line#* }")
		done
		all=$(printf '%s\n' "${rates[@]}")
		[ "$nodes" != 2 ] || two=$all
		printf '%s\n' "$all" | record "conn_alltoall_$nodes" "M/s, 64 B, $nodes nodes to each other" '-' 0 any \
			"cluster.sh $nodes -- weir-perf --alltoall -t rate -s 64 -D 2"
		printf '%s\n' "${shares[@]}" | record "conn_switch_$nodes" "% of a CPU, the switch meanwhile" '-' 0 any \
			"cluster.sh $nodes: cpu_share_last of weir-switch"
	done
	wanted conn_alltoall || return 0
	paste <(printf '%s\n' "$all") <(printf '%s\n' "$two") | awk 'NF == 2 { print 100 * $1 / $2 }' |
		record conn_alltoall "% of the rate of 2 nodes, with 32" '>=' 60 any "conn_alltoall_32 / conn_alltoall_2, run by run"
}

set_connections()
{
	alltoall_figures
}
