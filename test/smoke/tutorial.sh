#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# timeout: 600
# docs/tutorial.md as a reader follows it: its C programs are saved under the names in their first lines, and its
# shell blocks run in one shell, in a folder that looks like a clone. In a network of its own if root: the
# tutorial's ports are fixed.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"
# shellcheck source=test/smoke/_tutorial.sh
. "$(dirname "$0")/_tutorial.sh"

clone=$(readers_clone)

tutorial_programs "$clone"
{
	echo "set -e -o pipefail; cd '$clone'"
	# shellcheck disable=SC2016 # for the shell of the blocks
	echo 'trap "kill \$(jobs -pr) 2>/dev/null || true" EXIT'
	blocks sh | sed 's/^# block \(.*\)/echo "block \1"/'
} >"$weir_tmp/tutorial.bash"
[ "$(grep -c '^echo "block ' "$weir_tmp/tutorial.bash")" -ge 10 ] || die "the tutorial has too few shell blocks"

# All that it starts ends with it, also when the test is killed.
alone=()
if unshare --net --pid --fork --mount-proc true 2>/dev/null; then
	alone=(unshare --net --pid --fork --kill-child --mount-proc)
	sed -i '1a ip link set lo up' "$weir_tmp/tutorial.bash"
fi
unset WEIR_RUN_DIR
TMPDIR=$weir_tmp run tutorial "${alone[@]}" bash "$weir_tmp/tutorial.bash"
patience=500
gone "${weir_pid[tutorial]}" || die "the tutorial takes longer than $patience s"
wait "${weir_pid[tutorial]}" || die "a block of the tutorial failed: $(log_of tutorial | grep '^block' | tail -n 1)"

said() {
	grep -qE -- "$1" "$weir_tmp/tutorial.log" || fail "the reader does not see '$1': $2"
}
said '^ *1 +yes +up +- .*10\.77\.0\.1' "the table of nodes, own node"
said '^ *2 +- +up +none .*10\.77\.0\.2' "the table of nodes, the other one"
said '^net_memif0 .*10\.77\.0\.1' "the table of ports"
said '^lat +64 ' "weir-perf's latency"
said '^rate +64 ' "weir-perf's rate"
for line in "welcome Ada, visitor 1" "welcome Grace, visitor 2" "welcome Alan, visitor 3"; do
	said "^$line\$" "an answer of the guest book"
	grep -qx "$line" "$weir_root/docs/tutorial.md" || fail "the tutorial does not show '$line'"
done
said '^guest: .*refused' "why nobody answers"
said '^exit code 1$' "the failure of a guest without a guest book"
[ -z "$(find "$weir_tmp" -name session.sock)" ] || fail "sockets remain"
exit $weir_failed
