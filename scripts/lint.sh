#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# lint.sh [--build DIR] [CHECK ...]: rules that a compiler doesn't know. Prints the places that break one.
# Exit: 0 clean, 1 something to fix, 2 usage, 3 a tool is missing.
set -u
cd "$(dirname "$0")/.." || exit 1

CHECKS=(format spdx whitespace prose tokens walls layering shellcheck headers docs)
build=build/release
bad=0

complain()
{
	echo "$1"
	bad=1
}

c_files()
{
	find lib dataplane control apps test \( -name '*.[ch]' -o -name '*.[ch]pp' \) -not -path '*/corpus/*' | sort
}

shell_files()
{
	{ find scripts test -name '*.sh'; echo .ci/run; } | sort
}

# Everything that people write: what git knows where this is a checkout, else all but what is built.
source_files()
{
	if [ -e .git ] && command -v git >/dev/null; then
		git ls-files --cached --others --exclude-standard
	else
		find . -type f -not -path './build*' -not -path './.git*' | sed 's|^\./||'
	fi | while read -r f; do [ -f "$f" ] && echo "$f"; done | sort
}

text_files()
{
	source_files | grep -E '(\.([chsp]|[ch]pp|sh|py|md|build|proto|map|service|txt|in|[1-8]|yml|yaml)|meson_options\.txt|\.ci/run)$' |
		grep -v /corpus/
}

lint_format()
{
	c_files | xargs -r clang-format --dry-run --Werror 2>&1 | grep -E ': (error|warning):' | cut -d: -f1 | sort | uniq -c |
		while read -r n f; do echo "$f: $n places differ from .clang-format; run: clang-format -i $f"; done | grep . && bad=1
}

lint_spdx()
{
	text_files | grep -vE '\.(md|txt)$' | xargs -r python3 scripts/lint_text.py spdx || bad=1
}

lint_whitespace()
{
	text_files | xargs -r python3 scripts/lint_text.py whitespace || bad=1
}

# Comments, messages, documents and man pages. The rules' own test breaks them.
lint_prose()
{
	text_files | grep -E '\.([ch]|[ch]pp|md|sh|build|[1-8]\.in)$|meson_options\.txt$|\.ci/run$' |
		grep -v '^test/unit/lint_test\.sh$' | xargs -r python3 scripts/lint_text.py prose || bad=1
}

lint_tokens()
{
	c_files | xargs -r python3 scripts/lint_tokens.py || bad=1
}

# Folders keep to themselves.
lint_walls()
{
	python3 scripts/lint_walls.py || bad=1
}

# $1 = file in the build, then regular expressions of the libraries that it may need.
needs_only()
{
	local f lib

	for f in "$build"/$1; do
		if [ ! -f "$f" ] || [ -L "$f" ]; then continue; fi
		seen=1
		for lib in $(readelf -d "$f" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
			grep -qE "^($2)\$" <<<"$lib" || complain "$f: needs $lib; allowed: $2"
		done
	done
	[ "${seen:-}" ] || complain "$build/$1: not there; build first: scripts/test.sh"
	seen=""
}

lint_layering()
{
	local c='libc\.so\.6|ld-linux-.*'
	local seen=""

	needs_only 'lib/libweir.so.*' "$c"
	needs_only 'lib/shuffle/libweir-shuffle.so.*' "$c|libweir\.so\..*|liblz4\.so.*|libzstd\.so.*|libxxhash\.so.*"
	needs_only apps/perf/weir-perf "$c|libedit\.so.*|libweir\.so\..*"
	needs_only apps/run/weir-run "$c|libevent_core.*"
	needs_only apps/weirctl "$c|libcrypto\.so.*|libweir\.so\..*|libjansson\.so.*|libedit\.so.*"
	needs_only control/weir-control "$c|libevent.*|libssl\.so.*|libcrypto\.so.*|libprotobuf-c\.so.*|libjansson\.so.*|libcurl\.so.*"
}

lint_shellcheck()
{
	shell_files | xargs -r shellcheck || bad=1
}

# Every public header compiles alone, in C and in C++; its structures have no padding (docs/abi.md). Those of C++ are C++17.
lint_headers()
{
	local h

	for h in lib/include/weir/*.h; do
		gcc -std=c11 -pedantic -Wall -Wextra -Wpadded -Werror -fsyntax-only -Ilib/include -x c "$h" || bad=1
		clang++ -std=c++11 -pedantic -Wall -Wextra -Werror -fsyntax-only -Ilib/include \
			-Wno-pragma-once-outside-header -x c++ "$h" || bad=1
	done
	for h in lib/include/weir/*.hpp; do
		[ ! -f "$h" ] || clang++ -std=c++17 -pedantic -Wall -Wextra -Werror -fsyntax-only -Ilib/include \
			-Wno-pragma-once-outside-header -x c++ "$h" || bad=1
	done
}

# What documents name is there, and everything is named that should be.
lint_docs()
{
	python3 scripts/lint_docs.py "$build" || bad=1
}

checks=()
while [ $# -gt 0 ]; do
	case "$1" in
	--build) build=${2:?--build needs a folder}; shift ;;
	--list) printf '%s\n' "${CHECKS[@]}"; exit 0 ;;
	-*) echo "lint.sh: unknown option '$1'; known: --build DIR, --list" >&2; exit 2 ;;
	*)
		printf '%s\n' "${CHECKS[@]}" | grep -qx -- "$1" ||
			{ echo "lint.sh: no check '$1'; known: ${CHECKS[*]}" >&2; exit 2; }
		checks+=("$1")
		;;
	esac
	shift
done
for tool in clang-format clang++ shellcheck readelf python3 gcc; do
	command -v "$tool" >/dev/null || { echo "lint.sh: $tool is missing; run scripts/test.sh once as root" >&2; exit 3; }
done
for check in "${checks[@]:-${CHECKS[@]}}"; do
	"lint_$check"
done
exit "$bad"
