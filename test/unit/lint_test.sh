#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Each check finds what it is there for, in a made-up tree and a made-up build, and nothing where there is nothing.
# shellcheck disable=SC2016 # documents have backquotes
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

# words INSTEAD FILES WORD...: each file of its own folder has each word, one per line; all are looked at together.
word_files=()
words()
{
	local instead=$1 files=$2 file word n
	shift 2

	for file in $files; do
		n=0 file=$file${#word_files[@]}.c
		word_files+=("$file")
		mkdir -p "$tmp/$(dirname "$file")"
		printf '%s (x);\n' "$@" >"$tmp/$file"
		for word in "$@"; do
			n=$((n + 1))
			echo "$file:$n: $word; use $instead" >>"$tmp/wanted"
		done
	done
}

words 'snprintf() or memcpy()' apps/a strcpy strcat strncpy strncat stpcpy
words 'snprintf()' test/a sprintf vsprintf
words 'strtoul()' apps/a atoi atol atoll atof
words 'strchr()' apps/a strtok strtok_r
words 'fgets()' apps/a gets
words 'getrandom()' apps/a rand srand random srandom drand48
words 'stdatomic.h' dataplane/a volatile
words 'a bounded buffer' control/a alloca system popen
words 'an error code' "lib/base/a lib/remote/a" exit _exit abort quick_exit
words 'an error code' "dataplane/engine/tx/a dataplane/nic/a" exit _exit quick_exit
words 'weir_reason()' "lib/ipc/a lib/client/a lib/stream/a lib/message/a lib/remote/a lib/group/a" printf fprintf vfprintf puts fputs putchar perror
words 'a counter' "dataplane/engine/tx/a dataplane/nic/a" printf fprintf puts perror
(cd "$tmp" && python3 "$scripts/lint_tokens.py" "${word_files[@]}") >"$tmp/out"
while read -r wanted; do
	grep -qF "$wanted" "$tmp/out" || { echo "FAILED: not found: $wanted"; failed=1; }
done <"$tmp/wanted"
[ "$(wc -l <"$tmp/out")" -eq "$(wc -l <"$tmp/wanted")" ] || { echo "FAILED: more is found: $(cat "$tmp/out")"; failed=1; }
cat >"$tmp/apps/a.c" <<'C'
/* strcpy(a); sprintf(b); */ // system("x");
const char *s = "volatile, \"atoi(x)\"";
__asm__ __volatile__("" ::: "memory");
int my_atoi(int x), random_seed;
void f(void) { exit(printf("x")); }
C
(cd "$tmp" && python3 "$scripts/lint_tokens.py" apps/a.c) >"$tmp/out" || { echo "FAILED: $(cat "$tmp/out")"; failed=1; }

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

prose test/a.sh 'fail "answer 7 is none"' "1: 'is none' in a string"
prose test/a.sh $'exit\n[ -d x ] || fail \'x is no directory\'' "2: 'is no' in a string"
prose test/a.sh $'# 7 is no array, Who? "is none"\nfail "there is no room" # is none' NONE
prose lib/meson.build $'a = 1 # x\n# What tests share.\n' "2: 'What' in a comment"
prose lib/meson.build "error('x is none')" "1: 'is none' in a string"
prose docs/man/a.1.in $'.TH A\nRate;\n.B none\nis no limit' "4: 'is no' in a man page"
prose docs/man/a.1.in $'.PP\nIt waits. Who\nwaits is woken.' "2: 'Who' in a man page"
prose docs/man/a.1.in $'there is no room, 7 is no longer up;\n.B none\nmeans so' NONE

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

# whole CHECK...: what lint.sh says of these in a tree of its own.
whole()
{
	bash "$tmp/whole/scripts/lint.sh" "$@" >"$tmp/out" 2>&1
}

# says PATTERN WHAT: a line of the last output.
says()
{
	grep -q -- "$1" "$tmp/out" || { echo "FAILED: $2 is not found: $(cat "$tmp/out")"; failed=1; }
}

mkdir -p "$tmp/whole/scripts" "$tmp/whole/.ci" "$tmp"/whole/{lib/include/weir,dataplane,control,apps,test}
cp "$scripts"/lint*.{sh,py} "$tmp/whole/scripts/"
cp "$scripts/../.clang-format" "$scripts/../.shellcheckrc" "$tmp/whole/"
spdx='SPDX-License-Identifier: BSD-3-Clause'
header=$tmp/whole/lib/include/weir
printf '#!/bin/bash\n# %s\nexit 0\n' "$spdx" >"$tmp/whole/.ci/run"
printf '/* %s */\n#ifndef GOOD_H\n#define GOOD_H\n#include <stdint.h>\nstruct good {\n\tuint32_t a, b;\n};\n#endif\n' "$spdx" >"$header/good.h"
cp "$header/good.h" "$tmp/whole/apps/a.h"
printf 'text\n' >"$tmp/whole/README.md"
whole format spdx whitespace shellcheck headers || { echo "FAILED: nothing is wrong with this tree: $(cat "$tmp/out")"; failed=1; }

# format, spdx and whitespace: a file per rule
printf '/* %s */\nint  f (void);\n' "$spdx" >"$tmp/whole/apps/format.c"
printf 'int a;\n' >"$tmp/whole/control/spdx.c"
printf '\n\n\n/* %s */\nint a;\n' "$spdx" >"$tmp/whole/control/late.c"
printf '#!/bin/bash\nexit 0\n' >"$tmp/whole/scripts/spdx.sh"
printf 'a \n' >"$tmp/whole/blank.md"
printf 'a\t\nb\n' >"$tmp/whole/tab.md"
printf 'a\r\nb\n' >"$tmp/whole/return.md"
printf 'a' >"$tmp/whole/open.md"
printf 'a\n\n' >"$tmp/whole/empty.md"
whole format && { echo "FAILED: format is content"; failed=1; }
says '^apps/format.c: [1-9][0-9]* places differ from .clang-format' "a file of another format"
whole spdx && { echo "FAILED: spdx is content"; failed=1; }
for file in control/spdx.c control/late.c scripts/spdx.sh; do says "^$file: no SPDX line" "$file"; done
[ "$(wc -l <"$tmp/out")" -eq 3 ] || { echo "FAILED: more than three lack the line: $(cat "$tmp/out")"; failed=1; }
whole whitespace && { echo "FAILED: whitespace is content"; failed=1; }
says '^blank.md:1: blanks at the end' "a blank"
says '^tab.md:1: blanks at the end' "a tab"
says '^return.md:1: a carriage return' "a carriage return"
says '^open.md: no newline at the end' "an open line"
says '^empty.md: empty line at the end' "an empty line"
[ "$(wc -l <"$tmp/out")" -eq 5 ] || { echo "FAILED: whitespace finds more: $(cat "$tmp/out")"; failed=1; }

# headers: not alone, with padding, only of C; and shellcheck
printf '#!/bin/bash\n# %s\ncat $1\n' "$spdx" >"$tmp/whole/scripts/word.sh"
whole shellcheck && { echo "FAILED: shellcheck is content"; failed=1; }
says 'word.sh line 3' "a word that is split"
printf 'size_t bytes(void);\n' >"$header/alone.h"
printf 'struct padded {\n\tchar a;\n\tint b;\n};\n' >"$header/padded.h"
printf 'int take(int new);\n' >"$header/plus.h"
printf 'int take(auto a);\n' >"$header/lambda.hpp"
whole headers && { echo "FAILED: headers are content"; failed=1; }
says 'alone.h:1:.*size_t' "a header that needs another one"
says 'padded.h:3:.*padding' "padding"
says 'plus.h:1:.*error' "a header that C++ refuses"
says 'lambda.hpp:1:.*error' "a header of C++ that C++17 refuses"

# docs: a tree without a fault, then one with a fault of each kind
mkdir -p "$tmp/paper"/{docs,test/unit,lib}
ln -s "$scripts/../lib/include" "$tmp/paper/lib/include"
page()
{
	python3 -c 'import sys; sys.path.insert(0, sys.argv[1]); import lint_docs
for pair in lint_docs.PROGRAMS: print(*pair)' "$scripts"
}
page >"$tmp/programs"
[ -s "$tmp/programs" ] || { echo "FAILED: no programs with man pages"; failed=1; }
while read -r program manual; do
	mkdir -p "$tmp/paper/build"/{"$(dirname "$program")","$(dirname "$manual")"}
		printf '#!/bin/sh\n[ "$1" = --help ] && echo "  -h, --help  options; -m and --no-pci are of DPDK"\n' >"$tmp/paper/build/$program"
	chmod +x "$tmp/paper/build/$program"
	printf '.TH X 1\n.BR \\-h ", " \\-\\-help\n' >"$tmp/paper/build/$manual"
done <"$tmp/programs"
printf '/* as unit/a.c, test/unit/a.c */\nvoid test_one_thing(void); // weir/weir.h\n' >"$tmp/paper/test/unit/a.c"
printf '/* "of a.c */ const char *s = "/* of test/b.c */";\n' >"$tmp/paper/test/unit/b.h"
printf 'See [a](docs/a.md#part), `docs/a.md` and `scripts/NAME.sh`.\n' >"$tmp/paper/README.md"
printf '[coverage](coverage.md)\n```c\n#include <weir/weir.h>\n\nint f(void);\n```\n```cpp\nnamespace a { int g(); }\n```\n' >"$tmp/paper/docs/a.md"
printf '| `test/unit/a.c` (one, one thing) |\n' >"$tmp/paper/docs/coverage.md"
(cd "$tmp/paper" && python3 "$scripts/lint_docs.py" build) >"$tmp/out" || { echo "FAILED: these documents are right: $(cat "$tmp/out")"; failed=1; }
printf 'See [b](docs/b.md) and `lib/nowhere.c`.\n' >>"$tmp/paper/README.md"
printf '/* as test/b.c */\n' >>"$tmp/paper/test/unit/a.c"
printf '/*\n * Of the engine (docs/a.md,\n * engine/b.c).\n */\n' >"$tmp/paper/test/m.pml"
printf '[c](c.md), `control/nowhere`\n```c\nint f(void) { return g; }\n```\n```cpp\nint g() { return h; }\n```\n' >>"$tmp/paper/docs/a.md"
printf '| `test/unit/a.c` (other thing), `test/unit/b.c` (one) |\n' >>"$tmp/paper/docs/coverage.md"
{
	read -r more manual_more
	read -r less manual_less
	read -r gone _
} <"$tmp/programs"
printf '.B \\-\\-extra\n' >>"$tmp/paper/build/$manual_more"
printf '#!/bin/sh\necho "-h, --help, --quick"\n' >"$tmp/paper/build/$less"
rm "$tmp/paper/build/$gone"
(cd "$tmp/paper" && python3 "$scripts/lint_docs.py" build) >"$tmp/out" && { echo "FAILED: docs is content"; failed=1; }
says '^README.md: names lib/nowhere.c, which is not there' "a path in README.md"
says '^docs/a.md: names control/nowhere, which is not there' "a path in a document"
says '^README.md: links to docs/b.md, which is not there' "a link of README.md"
says '^docs/a.md: links to c.md, which is not there' "a link of a document"
says "^docs/coverage.md: names the test 'other thing', which is not in test/unit/a.c" "a test that is not there"
says "^docs/coverage.md: names the test 'one', which is not in test/unit/b.c" "a test of a file that is not there"
says '^test/unit/a.c: names test/b.c, which is not there' "a file that a comment names"
says '^test/m.pml: names engine/b.c, which is not there' "a file that a model names"
says '^docs/a.md: sample 3 does not compile' "a wrong sample"
says '^docs/a.md: sample 4 does not compile' "a wrong sample of C++"
says "^$manual_more: has --extra, which --help lacks" "an option that $more lacks"
says "^$manual_less: lacks --quick, which --help has" "an option that a page lacks"
says "^build/$gone: not there" "a program that was not built"
grep -v '^ ' "$tmp/out" | grep -cE '^(README.md|docs/|build/|test/).*: (names|links|sample|has|lacks|not there)' >"$tmp/count"
[ "$(cat "$tmp/count")" -eq 14 ] || { echo "FAILED: docs finds other than 14 places: $(cat "$tmp/out")"; failed=1; }

# man pages: head, default and variable of an option come from --help; an option in one of both only is an error
cat >"$tmp/program" <<'EOF'
#!/bin/sh
[ "$1" = --help ] && cat <<'HELP'
Usage: program
  -h, --help                   this text
  --level low|high             what is
                               told [low] ($LEVEL)
  -n COUNT[,COUNT]             number [1]
  --long-option-with-a-value SIZE[,SIZE...]
                               bytes

Exit codes: 0.
HELP
exit 0
EOF
chmod +x "$tmp/program"
manual()
{
	printf '%s\n' "$@" >"$tmp/page.in"
	python3 "$scripts/man_options.py" "$tmp/page.in" "$tmp/program" >"$tmp/out" 2>&1
}
manual .SH @level 'More to tell.' @help @-n @long-option-with-a-value .SH || { echo "FAILED: this page is right: $(cat "$tmp/out")"; failed=1; }
cat >"$tmp/expected" <<'EOF'
.SH
.TP
\fB\-\-level\fR \fBlow\fR|\fBhigh\fR
More to tell.
[low, $LEVEL]
.TP
\fB\-h\fR, \fB\-\-help\fR
this text
.TP
\fB\-n\fR \fICOUNT\fR[,\fICOUNT\fR]
number
[1]
.TP
\fB\-\-long\-option\-with\-a\-value\fR \fISIZE\fR[,\fISIZE\fR...]
bytes
.SH
EOF
diff "$tmp/expected" "$tmp/out" || { echo "FAILED: the page is another one"; failed=1; }
manual @level @help @level @-n @other && { echo "FAILED: a wrong page is taken"; failed=1; }
says 'page.in:3: twice: @level' "an option twice"
says 'page.in:5: not in --help: @other' "an option that the program lacks"
says 'page.in: lacks @long-option-with-a-value, which --help has' "an option that the page lacks"

# layering LIBRARY-FLAGS: what lint.sh says of a weir-perf that is linked with them.
layering()
{
	mkdir -p "$tmp/build/lib/shuffle" "$tmp/build/apps/perf" "$tmp/build/apps/run" "$tmp/build/control"
	echo 'int main(void) { return 0; }' >"$tmp/main.c"
	gcc -o "$tmp/build/lib/libweir.so.1" "$tmp/main.c"
	cp "$tmp/build/lib/libweir.so.1" "$tmp/build/lib/shuffle/libweir-shuffle.so.1"
	cp "$tmp/build/lib/libweir.so.1" "$tmp/build/apps/weirctl"
	cp "$tmp/build/lib/libweir.so.1" "$tmp/build/apps/run/weir-run"
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
