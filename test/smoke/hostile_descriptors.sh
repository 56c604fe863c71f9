#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Descriptors that take long to close, sent along with whatever a data plane or a peer reads; those of a session, filled, shut
# down and made to block; shared memory whose inode is locked. Nobody is held. Again as on a kernel that hands descriptors over.
# timeout: 600
# wires: verbs,roce
# wired: 900
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"
# shellcheck source=test/smoke/_hostile.sh
. "$(dirname "$0")/_hostile.sh"

# one MODE USER
one() {
	attack "$1" "$2" node:1:victim
	not_held dataplane-A echo-a
	others_go_on
	# a hold that never was one has shown nothing
	[ "$1" != inode ] || attack_reaches 1 'inodes held (segment)'
	attack_ends || return
	[ -n "${attacker_waits:-}" ] || [ "$(count '[a-z-]* unanswered')" = 0 ] || fail "main didn't answer during $attacking: $(last_line hostile)"
}

hostile_nodes
[ -z "${WEIR_WIRE:-}" ] || attacker_waits=yes # the emulated machine may take longer than the attacker's second
for mode in linger linger-session linger-memory bells inode; do
	one $mode $attacker
done
one linger-session $stranger
[ -z "${WEIR_WIRE:-}" ] || exit 0 # older kernels differ in the host alone
for name in send local-send sink local-sink echo-a echo-b control-A control-B dataplane-A dataplane-B; do stop $name; done
older_kernel true || skip "system calls can't be filtered here"
# there the threads that close for a user wait, and with them what that user asks for
attacker_waits=yes weir_under=older_kernel
hostile_nodes
for mode in linger linger-session bells; do
	one $mode $attacker
done
