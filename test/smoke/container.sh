#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A program in a container (own PID, IPC, network, mount namespaces, other user) needs the socket alone.
# shellcheck source=test/smoke/_init.sh
. "$(dirname "$0")/_init.sh"

one_node
serve echo probe A echo e
chmod 755 "$weir_tmp"
chmod 755 "$WEIR_RUN_DIR" "$WEIR_RUN_DIR/A"
chmod 666 "$WEIR_RUN_DIR/A/session.sock"
# The container's root: the host's libraries and programs read-only, and one bind-mounted socket.
mkdir -p "$weir_tmp/root"
copy_programs probe
cat >"$weir_tmp/inside.sh" <<'IN'
set -e
root=$1 tmp=$2
mount --make-rprivate /
mount -t tmpfs tmpfs "$root"
mkdir -p "$root/usr" "$root/lib" "$root/lib64" "$root/bin" "$root/program" "$root/proc" "$root/weir/A" "$root/dev"
for d in usr lib lib64 bin; do mount --rbind -o ro "/$d" "$root/$d"; done
mount --bind "$tmp/program" "$root/program"
touch "$root/weir/A/session.sock"
mount --bind "$tmp/run/A/session.sock" "$root/weir/A/session.sock"
mount -t proc proc "$root/proc"
exec chroot --userspec=65534:65534 "$root" /usr/bin/env -i WEIR_RUN_DIR=/weir LD_LIBRARY_PATH=/program \
	/program/probe A many node:1:e 3 20
IN
unshare --mount --pid --ipc --net --uts --fork bash "$weir_tmp/inside.sh" "$weir_tmp/root" "$weir_tmp" >"$weir_tmp/inside.log" 2>&1 ||
	fail "in the container: $(tail -n 3 "$weir_tmp/inside.log")"
grep -q 'end 0 after 60' "$weir_tmp/inside.log" || fail "in the container: $(last_line inside)"
