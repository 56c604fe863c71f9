#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# plot.sh FILE DIR: plots of what `bench.sh connections|control|onesided|peers --json FILE` measured, as SVG in DIR, which exists
# (those of the documents: docs/performance). Nothing is written anywhere else, or before both are known to be good.
# Exit: 0, 2 usage, 3 gnuplot is missing, or DIR can't be written to.
set -u -o pipefail
file=${1:-} dir=${2:-}
usage()
{
	echo "plot.sh: $1; usage: plot.sh FILE DIR, FILE of bench.sh connections, control, onesided or peers --json" >&2
	exit 2
}
for tool in jq gnuplot; do
	command -v $tool >/dev/null || { echo "plot.sh: $tool is missing; run scripts/test.sh once as root" >&2; exit 3; }
done
[ $# = 2 ] || usage "$# arguments instead of 2"
[ -r "$file" ] || usage "cannot read '$file'"
jq -e 'type == "array" and any(.[]; (.name | type) == "string" and has("value"))' "$file" >/dev/null 2>&1 ||
	usage "'$file' holds no figures"
[ -d "$dir" ] || usage "invalid DIR '$dir' (expected a directory)"
[ -w "$dir" ] || { echo "plot.sh: cannot write to $dir; choose another" >&2; exit 3; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

# series PREFIX: lines "NUMBER VALUE" of the figures PREFIX_NUMBER that were measured.
series()
{
	jq -r --arg prefix "$1_" '.[] | select(.value != null and (.name | startswith($prefix)))
		| (.name | ltrimstr($prefix)) as $n | select($n | test("^[0-9]+$")) | "\($n) \(.value)"' "$file" | sort -n >"$work/$1"
	[ -s "$work/$1" ]
}

# draw NAME XLABEL YLABEL KEY LINES: an SVG of gnuplot's plot LINES. Variable: axes, the logarithmic ones [x].
draw()
{
	local least=0

	[ "${axes:-x}" = x ] || least='*'
	gnuplot <<END && echo "$dir/$1.svg"
set terminal svg size 560,320 font 'sans,12' background 'white'
set output '$dir/$1.svg'
set xlabel '$2'
set ylabel '$3'
set logscale ${axes:-x}
set yrange [$least:*]
set grid
set key $4
plot $5
END
	sed -i 's/[[:space:]]*$//' "$dir/$1.svg"
}

# plot NAME XLABEL YLABEL SERIES TITLE [SERIES TITLE ...]: what of the series there is.
plot()
{
	local name=$1 x=$2 y=$3 lines=""
	shift 3

	while [ $# -gt 0 ]; do
		series "$1" && lines+="${lines:+, }'$work/$1' using 1:2 with linespoints linewidth 2 title '$2'"
		shift 2
	done
	[ -n "$lines" ] || return 0
	draw "$name" "$x" "$y" bottom "$lines"
}

# plot_layers WHERE: throughput over the size of messages, a line per message layer.
plot_layers()
{
	local layer lines=""

	for layer in $(jq -r '[.[] | .layers // empty | keys[]] | unique[]' "$file"); do
		jq -r --arg prefix "peers_$1_bw_" --arg layer "$layer" '{"4k": 4, "64k": 64, "1m": 1024, "16m": 16384} as $kib | .[]
			| select(.name | startswith($prefix)) | select(.layers[$layer])
			| "\($kib[.name | ltrimstr($prefix)]) \(.layers[$layer])"' "$file" | sort -n >"$work/$layer"
		[ ! -s "$work/$layer" ] ||
			lines+="${lines:+, }'$work/$layer' using 1:2 with linespoints linewidth $([ "$layer" = weir ] && echo 4 || echo 1.5) title '$layer'"
	done
	[ -z "$lines" ] || draw "peers_$1" 'KiB per message' "GB/s, $2" top "$lines"
}

# notified WHERE: what tells the other end of bytes, and its answer.
notified()
{
	axes=xy plot "notified_$1" bytes "µs, there and an answer back, $2" "os_model_$1_notify" 'put with a notice' "os_model_$1_message" message \
		"os_model_$1_flag" 'put, flush, put of a flag' "os_model_$1_pscw" 'post, start, complete, wait'
}

plot reads connections 'GB/s, READs of 64 KiB' conn_read Weir conn_qps 'a queue pair each' conn_shared 'threads share one under a lock'
plot alltoall nodes 'M/s of 64 B, all together' conn_alltoall Weir
plot membership nodes 'seconds after a node died' ctl_suspect 'first suspicion' ctl_dead 'declared dead' ctl_know 'known to all'
axes=xy plot onesided 'bytes, puts before a flush, or programs' 'µs, operation and flush, two nodes' os_model_remote_put put os_model_remote_get get \
	os_model_remote_acc sums os_model_remote_flush 'puts of 8 B and a flush' os_model_remote_lock 'lock, by programs'
axes=xy plot pscw 'bytes' 'µs, a ring of post, start, put, complete, wait' os_model_host_pscw 'two members of a host' \
	os_model_remote_pscw 'of two nodes'
plot partners partners 'µs, 16 members of a host' os_model_host_post post os_model_host_start start os_model_host_complete complete \
	os_model_host_wait wait
plot members members µs os_model_host_fence 'fence on a host' os_model_remote_fence 'on two nodes' \
	os_model_host_wlock 'lock, half of them ask' os_model_remote_wlock 'between two nodes'
notified host 'one host'
notified remote 'two nodes'
plot overlap 'bytes' 'of a put, hidden by computation' os_overlap Weir
plot_layers host 'two programs of a host'
plot_layers nodes 'two nodes'
