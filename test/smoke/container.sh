#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A program in a container (own PID, IPC, network, mount namespaces, other user) needs the socket alone. One with the
# directory of the instance attaches again after a stop and a start of the daemons.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

one_node --allow user:65534
serve echo probe A echo e
chmod 755 "$weir_tmp"
chmod 755 "$WEIR_RUN_DIR" "$WEIR_RUN_DIR/A"
# The container's root: the host's libraries and programs read-only, and one bind-mounted socket.
mkdir -p "$weir_tmp/root"
copy_programs probe survivor
cat >"$weir_tmp/inside.sh" <<'IN'
set -e
root=$1 tmp=$2 what=$3
shift 3
mount --make-rprivate /
mount -t tmpfs tmpfs "$root"
mkdir -p "$root/usr" "$root/lib" "$root/lib64" "$root/bin" "$root/program" "$root/proc" "$root/weir/A" "$root/dev"
for d in usr lib lib64 bin; do mount --rbind -o ro "/$d" "$root/$d"; done
mount --bind "$tmp/program" "$root/program"
[ "$what" = A ] || touch "$root/weir/$what"
mount --bind "$tmp/run/$what" "$root/weir/$what"
mount -t proc proc "$root/proc"
exec chroot --userspec=65534:65534 "$root" /usr/bin/env -i WEIR_RUN_DIR=/weir LD_LIBRARY_PATH=/program \
	"$@"
IN
contained() { # WHAT PROGRAM WORD...: with WHAT below the run directory mounted: the directory A, or its socket
	unshare --mount --pid --ipc --net --uts --fork --kill-child bash "$weir_tmp/inside.sh" "$weir_tmp/root" "$weir_tmp" "$@"
}
contained A/session.sock /program/probe A many node:1:e 3 20 >"$weir_tmp/inside.log" 2>&1 ||
	fail "in the container: $(tail -n 3 "$weir_tmp/inside.log")"
grep -q 'end 0 after 60' "$weir_tmp/inside.log" || fail "in the container: $(last_line inside)"

# with the directory: what is made there after a stop and a start is what the container sees
serve kept unshare --mount --pid --ipc --net --uts --fork --kill-child bash "$weir_tmp/inside.sh" "$weir_tmp/root" "$weir_tmp" \
	A /program/survivor A sink kept
run send survivor A send node:1:kept 1
flows() { # LIFE
	grep -q "^flowing life $1\$" "$weir_tmp/send.log"
}
await flows 1 || fail "nothing reaches the container: $(last_line send)"
before=$(stat -c %i "$WEIR_RUN_DIR/A")
stop dataplane-A
stop control-A
[ -z "$(ls -A "$WEIR_RUN_DIR/A")" ] || fail "a stop leaves $(ls -A "$WEIR_RUN_DIR/A")"
[ "$(stat -c %i "$WEIR_RUN_DIR/A")" = "$before" ] || fail "a stop removes the directory that the container has mounted"
dataplane A 0 "net_ring0" "roce:net_ring0,ip=10.79.0.1/24" --allow user:65534
control A 1
up A
await flows 2 || fail "the container does not attach again: $(last_line send), $(last_line kept)"
# unshare(1) waits for its child, which the change of user has freed from --kill-child
kill -KILL "$(pgrep -P "${weir_pid[kept]}")"
stop kept KILL
exit 0
