#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A member of a group that spoils what the members of its host share for windows: lines of fences, words of locks and
# epochs, rings of notices. Its group's calls end, and sessions stay; windows of another group on the same nodes are right all the while.
# timeout: 300
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"
# shellcheck source=test/smoke/_hostile.sh
. "$(dirname "$0")/_hostile.sh"

hostile_nodes
count_rows
# three with a window of their own; two with whom the attacker makes windows, one of which is on its host
run meet-1 member A window beside 3
run meet-2 member A window beside 3
run meet-3 member B window beside 3
run bear-1 member A snared snare 3
run bear-2 member B snared snare 3
members="meet-1 meet-2 meet-3 bear-1 bear-2"
for who in meet-1 meet-2 meet-3; do
	await grep -q received "$weir_tmp/$who.log" || die "$who: $(last_line "$who")"
done
attack window $attacker node:1
# shellcheck disable=SC2086
for _ in 1 2 3; do
	go_on $members
	others_go_on
done
for what in 'windows made' 'words of fences' 'words of locks' 'words of rings' 'false notices' 'calls out of turn'; do
	attack_reaches 1 "$what"
done
attack_ends
# shellcheck disable=SC2086
all_well $members
no_rows_left
