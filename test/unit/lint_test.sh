#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The checks of layers, words and prose find what they are there for, in a made-up tree and a made-up build.
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

finds lib/client/a.c 'abort();' 'abort'
finds control/a.c 'strcpy(a, b);' 'strcpy'

# prose FILE TEXT PATTERN: a file of that text is complained about in these words; NONE: not at all.
prose()
{
	mkdir -p "$tmp/$(dirname "$1")"
	printf '%s\n' "$2" >"$tmp/$1"
	(cd "$tmp" && python3 "$scripts/lint_text.py" prose "$1") >"$tmp/out"
	if [ "$3" = NONE ]; then
		[ ! -s "$tmp/out" ]
	else
		grep -q "^$1:$3" "$tmp/out"
	fi || { echo "FAILED: '$2' in $1, expected $3: $(cat "$tmp/out")"; failed=1; }
}

h=lib/include/weir/a.h
prose $h '/* ... of it */' "1: '...' in a comment"
prose $h $'/*\n * ... of it\n */' "1: '...' in a comment"
prose $h $'int a;\n// it waits so long' "2: 'so long' in a comment"
prose $h $'/* at most so\n * many bytes */' "1: 'so many' in a comment"
prose $h '/* So much for that. */' "1: 'So much' in a comment"
prose $h '/* Who waits is woken. */' "1: 'Who' in a comment"
prose $h $'/*\n * It ends.\n * What was sent stays.\n */' "1: 'What' in a comment"
prose $h '/* Done? Those that wait are woken. */' "1: 'Those' in a comment"
prose $h 'char *s = "7x is no number";' "1: 'is no' in a string"
prose $h $'char *s = "7x is "\n\t"none";' "1: 'is none' in a string"
prose $h 'char *s = "there is no data plane, and 7 is no longer up"; /* A thread who waits ... */' NONE
prose $h $'char *s = "Who? so long";\nchar c = \'"\'; /* is none */' NONE

long=$(printf 'word %.0s' {1..21})end
prose README.md "$long" '1: 108 columns'
prose README.md $'```\n'"$long"$'\n```\n| '"$long |" NONE
prose README.md "a [link](docs/$(printf 'x%.0s' {1..100}).md)" NONE

# walls FILE LINE PATTERN: the same of folders; beside it lie the headers that it could include.
walls()
{
	rm -rf "$tmp/tree"
	for h in lib/ipc/slot.h lib/client/thread.h lib/client/membarrier.h dataplane/engine/engine.h dataplane/engine/conn.h \
		dataplane/broker/broker.h control/cluster/control.h dataplane/nic/nic.h; do
		mkdir -p "$tmp/tree/$(dirname $h)"
		echo >"$tmp/tree/$h"
	done
	mkdir -p "$tmp/tree/$(dirname "$1")"
	(cd "$tmp/tree" && python3 "$scripts/lint_walls.py") || { echo "FAILED: nothing is wrong without $1"; failed=1; }
	printf '%s\n' "$2" >>"$tmp/tree/$1"
	(cd "$tmp/tree" && python3 "$scripts/lint_walls.py") | grep -q "$3" || { echo "FAILED: '$2' in $1 is not found"; failed=1; }
}

walls lib/client/a.c '#include <rte_eal.h>' 'lib/client/a.c:1: includes rte_eal.h'
walls apps/perf/a.c '#include <rte_eal.h>' 'includes rte_eal.h'
walls control/cluster/a.c '#  include <rte_eal.h>' 'includes rte_eal.h'
walls dataplane/engine/tx/a.c '#include <rte_eal.h>' 'includes rte_eal.h'
walls dataplane/broker/links/a.c '#include <rte_eal.h>' 'includes rte_eal.h'
walls dataplane/nic/roce/requester.c '#include <rte_mbuf.h>' 'includes rte_mbuf.h'
walls dataplane/daemon/a.c '#include <infiniband/verbs.h>' 'includes infiniband/verbs.h'
walls lib/stream/a.c '#include "../../dataplane/engine/engine.h"' 'lib/stream does not know dataplane/engine'
walls lib/ipc/a.h '#include "client/thread.h"' 'lib/ipc does not know lib/client'
walls dataplane/daemon/a.c '#include "../../control/cluster/control.h"' 'does not know control/cluster'
walls apps/perf/a.c '#include "../../dataplane/broker/broker.h"' 'does not know dataplane/broker'
walls dataplane/broker/a.c '#include "engine/conn.h"' 'private to dataplane/engine'
walls dataplane/broker/a.c '#include "nowhere.h"' 'there is no such file'
walls dataplane/nic/nic.h '#include "nic/roce/qp.h"' 'nic.h:2: includes nic/roce/qp.h; there is no such file'
walls dataplane/engine/engine_a.c '' 'repeats the name of its folder'
walls dataplane/a.c '' 'in no folder'
# a header of the folder includes one of a subfolder that includes its own
mkdir -p "$tmp/tree/dataplane/engine/tx"
echo '#include "engine.h"' >"$tmp/tree/dataplane/engine/tx/a.h"
echo '#include "tx/a.h"' >>"$tmp/tree/dataplane/engine/engine.h"
(cd "$tmp/tree" && python3 "$scripts/lint_walls.py") | grep -q 'dataplane/engine: includes itself by way of dataplane/engine/tx' ||
	{ echo "FAILED: a cycle is not found"; failed=1; }
for i in {1..21}; do : >"$tmp/tree/lib/ipc/f$i.c"; done
(cd "$tmp/tree" && python3 "$scripts/lint_walls.py") | grep -q 'lib/ipc: 21 .c files' || { echo "FAILED: 21 files are not found"; failed=1; }

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
