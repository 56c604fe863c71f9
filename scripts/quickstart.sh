#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Weir in one command: builds it, starts two nodes on this machine, joined by memif, measures messages
# between a program on each, and puts everything back as it was.
set -u
cd "$(dirname "$0")/.." || exit 1
# shellcheck source=scripts/deps.sh
. scripts/deps.sh

[ $# -eq 0 ] || { echo "quickstart.sh: '$1' is not understood; run it without arguments" >&2; exit 2; }
[ -n "${WEIR_NO_DEPS:-}" ] || install_deps run || exit 3

echo "building in build/release"
log=$(mktemp) || exit 1
if ! { [ -f build/release/build.ninja ] || meson setup build/release --buildtype=release; } >"$log" 2>&1 ||
	! ninja -C build/release dataplane/weir-dataplane control/weir-control apps/weirctl \
		apps/perf/weir-perf >>"$log" 2>&1; then
	tail -n 40 "$log"
	rm -f "$log"
	echo "quickstart.sh: the build failed; its last lines are above" >&2
	exit 1
fi
rm -f "$log"

WEIR_BUILD=$PWD/build/release
# shellcheck source=test/smoke/_init.sh
. test/smoke/_init.sh
weir_node_timeout="" # the usual one
if [ "$(id -u)" -eq 0 ]; then
	scripts/setup_hugepages.sh --save >"$weir_tmp/hugepages"
	undo "scripts/setup_hugepages.sh --restore '$weir_tmp/hugepages'"
	scripts/setup_hugepages.sh --2m 400 || echo "going on without hugepages"
fi

echo "starting two nodes: A (10.77.0.1) and B (10.77.0.2), each a data plane and a control process"
two_nodes_memif
weirctl --instance A wait node:2 --timeout "$patience" || die "node A does not see node B"
weirctl --instance A show nodes
server B
echo
weir-perf --instance A 10.77.0.2 -t lat,rate,bw || die "weir-perf failed; see above"
echo
weirctl --instance A show ports
echo "stopping everything"
