#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The checks of layers and words find what they are there for, in a made-up tree and a made-up build.
set -u

scripts=$(cd "$(dirname "$0")/../../scripts" && pwd)
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
failed=0

# finds FILE LINE PATTERN: a file with that line is complained about in these words; without it, not.
finds()
{
	mkdir -p "$tmp/$(dirname "$1")"
	printf '%s\n' "$2" >"$tmp/$1"
	if (cd "$tmp" && python3 "$scripts/lint_tokens.py" "$1") | grep -q "^$1:1: $3"; then
		:
	else
		echo "FAILED: '$2' in $1 is not found"
		failed=1
	fi
	printf '#include <stdio.h>\n' >"$tmp/$1"
	if ! (cd "$tmp" && python3 "$scripts/lint_tokens.py" "$1"); then
		echo "FAILED: nothing is wrong with $1"
		failed=1
	fi
}

finds lib/client/a.c '#include <rte_eal.h>' 'includes rte_eal.h'
finds apps/a.c '#include <rte_eal.h>' 'includes rte_eal.h'
finds control/a.c '#  include <rte_eal.h>' 'includes rte_eal.h'
finds dataplane/engine/a.c '#include <rte_eal.h>' 'includes rte_eal.h'
finds dataplane/broker_a.c '#include <rte_eal.h>' 'includes rte_eal.h'
finds dataplane/nic/roce/requester.c '#include <rte_mbuf.h>' 'includes rte_mbuf.h'
finds dataplane/a.c '#include <infiniband/verbs.h>' 'includes infiniband/verbs.h'
finds lib/stream/a.c '#include "../../dataplane/engine/engine.h"' 'includes dataplane/engine/engine.h'
finds lib/common/a.h '#include "client/internal.h"' 'includes client/internal.h'
finds dataplane/a.c '#include "../control/control.h"' 'includes control/control.h'
finds apps/a.c '#include "../dataplane/broker.h"' 'includes dataplane/broker.h'
finds lib/client/a.c 'abort();' 'abort'
finds control/a.c 'strcpy(a, b);' 'strcpy'

# layering LIBRARY-FLAGS: what lint.sh says of a weir-perf that is linked with them.
layering()
{
	mkdir -p "$tmp/build/lib" "$tmp/build/apps/perf" "$tmp/build/control"
	echo 'int main(void) { return 0; }' >"$tmp/main.c"
	gcc -o "$tmp/build/lib/libweir.so.1" "$tmp/main.c"
	cp "$tmp/build/lib/libweir.so.1" "$tmp/build/apps/weirctl"
	cp "$tmp/build/lib/libweir.so.1" "$tmp/build/control/weir-control"
	gcc -o "$tmp/build/apps/perf/weir-perf" -Wl,--no-as-needed "$tmp/main.c" "$@"
	"$scripts/lint.sh" --build "$tmp/build" layering >"$tmp/out" 2>&1
}

layering || { echo "FAILED: nothing is wrong with this build: $(cat "$tmp/out")"; failed=1; }
layering -lm && { echo "FAILED: a library too many is not found"; failed=1; }
grep -q 'weir-perf: needs libm' "$tmp/out" || { echo "FAILED: it doesn't name the library: $(cat "$tmp/out")"; failed=1; }
rm "$tmp/build/apps/weirctl"
"$scripts/lint.sh" --build "$tmp/build" layering >"$tmp/out" 2>&1 && { echo "FAILED: a missing program is not found"; failed=1; }
exit "$failed"
