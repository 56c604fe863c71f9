#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The programs of apps/examples/window, which check their results: members that map each other's parts on one host, that
# do not map them, and on two nodes, where they also do the same by messages.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"
PATH=$WEIR_BUILD/apps/examples:$PATH

# together NAME PATTERN COMMAND...: on each of $nodes, to the end; one of them says so.
together() {
	local name=$1 pattern=$2 node i=0
	shift 2
	for node in $nodes; do
		i=$((i + 1))
		WEIR_INSTANCE=$node run "$name-$i" "$@"
	done
	for ((; i > 0; i--)); do
		gone "${weir_pid[$name-$i]}" || fail "$name-$i does not end: $(last_line "$name-$i")"
		stop "$name-$i" || fail "$name-$i: exit code $?, $(last_line "$name-$i")"
	done
	cat "$weir_tmp/$name"-*.log | has -E "$pattern" || fail "$name does not say '$pattern'"
}

# everything NAME [--apart]: all programs.
everything() {
	local time=': [0-9]+\.[0-9] us a step$' name=$1 size
	shift
	size=$(wc -w <<<"$nodes")
	together "$name-stencil" '^pipeline: right$' example-window_stencil "$@" stencil "$size" 50 20
	[ "$(cat "$weir_tmp/$name"-stencil-*.log | grep -cE "^halo by .*$time")" = 4 ] || fail "stencil: $(cat "$weir_tmp/$name"-stencil-*.log)"
	together "$name-slabs" "^slabs by puts$time" example-window_fft "$@" slabs "$size" 16 3
	together "$name-pencils" "^pencils by puts$time" example-window_fft "$@" --pencils pencils "$size" 16 3
	together "$name-lattice" "^conjugate gradients by puts$time" example-window_lattice "$@" lattice "$size" 5 2
	together "$name-sparse" "^sparse exchange by puts$time" example-window_sparse "$@" sparse "$size" 7 20
	together "$name-list" "^list by exchanges$time" example-window_list "$@" list "$size" 150
	together "$name-cholesky" "^cholesky by notices$time" example-window_cholesky "$@" cholesky "$size" 9 20
}

two_nodes_memif
nodes="A A A A"
everything mapped
everything apart --apart
nodes="A B A B"
everything far
nodes="B A B" # divide unevenly what four divide evenly
together three-slabs '^slabs by puts: ' example-window_fft slabs 3 16 3
for program in "fft slabs 3 16 3" "fft --pencils pencils 3 16 3" "lattice lattice 3 5 2" "sparse sparse 3 7 20"; do
	read -r name arguments <<<"$program"
	# shellcheck disable=SC2086
	together "messages-${arguments// /}" ' by messages: ' "example-window_$name" --by messages $arguments
done

# what they do not accept
for arguments in "fft x 2 12 1" "fft x 8 4 1" "fft --by mail x 2 4 1" "lattice x 64 2 1" "sparse x 1 4 4" "cholesky x 2 4" "list x 2 0" "list --pencils x 2 4" \
	"cholesky --by messages x 2 4 4" "stencil x 4 7 1"; do
	read -r name arguments <<<"$arguments"
	# shellcheck disable=SC2086
	"example-window_$name" $arguments >"$weir_tmp/refused.log" 2>&1
	[ $? = 2 ] || fail "window_$name $arguments: $(last_line refused)"
done
exit $weir_failed
