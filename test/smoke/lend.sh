#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# weir-lend: memory of B for programs of both nodes, within its quota; it comes back when a program gives it back,
# and when one is killed. A loan that an operator evicts, and the end of weir-lend, reach the program that has it.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"
PATH=$WEIR_BUILD/apps/lend:$PATH

# lent N: B has that many exports.
lent() { shows B exports "length == $1"; }
# borrow NAME INSTANCE BYTES: has it until something ends that.
borrow() {
	run "$1" borrower "$2" 2 "$3" "$weir_tmp/key-$1"
	await grep -q "has $3" "$weir_tmp/$1.log" || die "$1 has no memory: $(last_line "$1")"
}

two_nodes
refused 2 'bytes' weir-lend --instance B
refused 2 'expected' weir-lend --instance B --bytes 1
borrower A 2 4096 - >"$weir_tmp/none.log" 2>&1 && fail "memory without weir-lend"
grep -q 'node 2 lends no memory; start weir-lend' "$weir_tmp/none.log" || fail "not told: $(last_line none)"
serve lend weir-lend --instance B --bytes 8M
await shows A services 'any(.[]; .name == "weir.lend")' || fail "nobody sees the service: $(weirctl --instance A show services)"
for instance in A B; do
	borrower "$instance" 2 100000 - || fail "$instance: exit $?"
done
await lent 0 || fail "not given back: $(weirctl --instance B show exports)"

# one that asks again and again ends, and nobody waits for it
timeout 20 borrower A 2 0 flood >"$weir_tmp/flood.log" 2>&1 || fail "flood: $(last_line flood)"
borrower B 2 4096 - || fail "beside a flood: exit $?"
await lent 0 || fail "a flood has memory: $(weirctl --instance B show exports)"

# the quota
borrow first A 5000000
lent 1 || fail "no loan is shown: $(weirctl --instance B show exports)"
borrower A 2 5000000 - >"$weir_tmp/more.log" 2>&1 && fail "more than the quota"
grep -q 'node 2 lends no 5000000 bytes: .* of 8388608 bytes are lent' "$weir_tmp/more.log" || fail "not told: $(last_line more)"
borrower B 2 2000000 - || fail "less than what is left: exit $?"
# a program that is killed leaves nothing behind
stop first KILL
await lent 0 || fail "a dead program has memory: $(weirctl --instance B show exports)"
# it counts what is pinned: pages of 2 MiB, or of 4 KiB where these would exceed it
borrow huge A $((2 << 20 | 4096))
borrow other A $((2 << 20 | 4096))
borrower A 2 4096 - >"$weir_tmp/more.log" 2>&1 && fail "more is pinned than the quota"
grep -q 'node 2 lends no 4096 bytes: 8388608 of 8388608 bytes are lent' "$weir_tmp/more.log" || fail "not told: $(last_line more)"
stop huge KILL
stop other KILL
await lent 0 || fail "dead programs have memory: $(weirctl --instance B show exports)"
borrow small A 4096
borrower B 2 8000000 - || fail "large pages would exceed the quota: exit $?"
stop small KILL
await lent 0 || fail "a dead program has memory: $(weirctl --instance B show exports)"
borrow second A 8000000
weirctl --instance B evict "export.$(weirctl --instance B --json show exports | jq '.[0].export')" >/dev/null || fail "not evicted"
await grep -q 'use: Stale' "$weir_tmp/second.log" || fail "the loan goes on: $(last_line second)"
wait "${weir_pid[second]}"
unset "weir_pid[second]"
# weir-lend takes everything back at its end
borrow third A 8000000
stop lend || fail "weir-lend: exit $?"
await grep -qE 'use: (Stale|Connection reset)' "$weir_tmp/third.log" || fail "the loan goes on: $(last_line third)"
await lent 0 || fail "exports are left"
shows A nodes 'length == 2 and all(.state == "up")' || fail "a node is not up"
