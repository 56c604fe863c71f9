#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# timeout: 600
# scripts/quickstart.sh: its tables have the columns that README.md shows, and it leaves nothing behind.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

clone=$(readers_clone)

pages=$("$weir_root/scripts/setup_hugepages.sh" --save)
unset WEIR_RUN_DIR
WEIR_NO_DEPS=1 TMPDIR=$weir_tmp run quickstart "$clone/scripts/quickstart.sh"
patience=500
gone "${weir_pid[quickstart]}" || die "it takes longer than $patience s"
wait "${weir_pid[quickstart]}" || die "it fails: $(last_line quickstart)"

tr -s ' ' <"$weir_tmp/quickstart.log" >"$weir_tmp/said"
columns=0
# shellcheck disable=SC2016 # backquotes of the document
while read -r line; do
	columns=$((columns + 1))
	grep -qx "$line" "$weir_tmp/said" || fail "README.md shows other columns: $line"
done < <(sed -n '/^`scripts\/quickstart.sh`/,/^`scripts\/test.sh`/p' "$weir_root/README.md" | grep -E '^(NODE|test|PORT) ' | tr -s ' ' | sed 's/\.\.\./.*/g')
[ "$columns" = 3 ] || fail "README.md shows $columns tables"
said() {
	grep -qE -- "$1" "$weir_tmp/said" || fail "the reader does not see '$1': $2"
}
said '^ ?1 yes up - .*10\.77\.0\.1' "the table of nodes, own node"
said '^ ?2 - up none 10\.77\.0\.2 10\.77\.0\.2' "the table of nodes, the other one"
for test in lat rate bw; do said "^$test [0-9]+ [0-9]+ " "weir-perf's $test"; done
said '^net_memif0 roce 10\.77\.0\.1 [0-9a-f:]* up' "the table of ports"
said '^stopping everything' "the end"
[ -z "$(find "$weir_tmp" -mindepth 1 -name 'weir-smoke.*')" ] || fail "files remain: $(find "$weir_tmp" -mindepth 1 -name 'weir-smoke.*')"
[ "$("$weir_root/scripts/setup_hugepages.sh" --save)" = "$pages" ] || fail "it leaves other huge pages"
exit 0
