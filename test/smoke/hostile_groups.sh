#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Programs that join groups and break their protocol: requests that are wrong, silent or vanish, lies of members and of who
# gathers. A group whose secret they lack is formed again and again beside them, and nothing is left behind.
# timeout: 300
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"
# shellcheck source=test/smoke/_hostile.sh
. "$(dirname "$0")/_hostile.sh"

hostile_nodes
count_rows
# three that meet, two of them at one node; two with whom the attacker makes groups
run meet-1 member A meet beside 3
run meet-2 member B meet beside 3
run meet-3 member B meet beside 3
run bear-1 member B bear lure
run bear-2 member B bear trap
members="meet-1 meet-2 meet-3 bear-1 bear-2"
for who in $members; do
	await grep -q received "$weir_tmp/$who.log" || die "$who: $(last_line "$who")"
done
attack group $attacker service:group.beside
# shellcheck disable=SC2086
for _ in 1 2 3; do
	go_on $members
	others_go_on
done
for what in 'joins that say nothing' 'joins that vanish' hellos 'messages of a member' 'groups joined' 'false answers' \
	'joins refused (EPROTO)' 'joins refused (EACCES)'; do
	attack_reaches 1 "$what"
done
attack_ends
# shellcheck disable=SC2086
all_well $members
for node in A B; do
	await shows $node services 'all(.service | startswith("group.") | not)' ||
		fail "services of groups are left: $(weirctl --instance $node show services)"
done
no_rows_left
