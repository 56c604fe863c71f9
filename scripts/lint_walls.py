#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""lint_walls.py: folders of the product keep to themselves. Works on the tree in the current folder.

Complains of: an include of a header that its folder does not expose; a folder that uses one it may not know; folders
that include each other; DPDK or verbs where they do not belong; more than 20 .c files in a folder; a file named after
its folder. Exits 1 if there was anything to print.
"""
import os
import re
import sys

ANY = "*"
# Folder -> (headers that others may include, folders whose headers it may include). Subfolders belong to it.
WALLS = {
    "lib/include": (ANY, ""),
    "lib/base": (ANY, "lib/ipc"),
    "lib/ipc": (ANY, "lib/include"),
    "lib/client": (ANY, "lib/include lib/ipc lib/base"),
    "lib/stream":
        ("channel_progress.h conn.h ctrl_slots.h listen.h model.h parts.h reconnect.h remote.h rx_queue.h send.h",
         "lib/include lib/ipc lib/client lib/base"),
    "lib/message": ("message.h", "lib/include lib/ipc lib/client lib/stream lib/base"),
    "lib/group": ("board.h public.h", "lib/include lib/ipc lib/client lib/stream lib/base"),
    "lib/remote": ("public.h window.h", "lib/include lib/ipc lib/client lib/stream lib/base"),
    "lib/window": ("", "lib/include lib/ipc lib/client lib/group lib/remote lib/base"),
    "lib/buffer": ("", "lib/include lib/ipc lib/client lib/remote lib/base"),
    "lib/objects": ("", "lib/include lib/ipc lib/client lib/base"),
    "lib/invoke": ("", "lib/include lib/ipc lib/client lib/group lib/message lib/base"),
    "lib/shuffle": ("format/record.h", "lib/include lib/ipc lib/base"),
    "dataplane/capture": ("capture.h", "lib/ipc"),
    "dataplane/nic": ("nic.h qp_orders.h", "lib/ipc"),
    "dataplane/nic/inject": ("fault.h impair.h", "dataplane/nic lib/base lib/ipc"),
    "dataplane/nic/roce": ("roce.h", "dataplane/nic lib/base lib/ipc"),
    "dataplane/nic/verbs": ("verbs.h", "dataplane/nic lib/base lib/ipc"),
    "dataplane/nic/roce_port":
        ("roce_port.h", "dataplane/nic dataplane/nic/roce dataplane/nic/inject dataplane/capture dataplane/lcore lib/base lib/ipc"),
    "dataplane/engine": ("engine.h", "dataplane/nic lib/base lib/ipc lib/include"),
    "dataplane/lcore": ("loop.h clock.h idle.h spsc.h", "dataplane/engine dataplane/nic lib/base lib/ipc"),
    "dataplane/broker":
        ("broker.h users.h rate.h arena.h segment.h", "dataplane/engine dataplane/nic dataplane/capture lib/base lib/ipc lib/include"),
    "dataplane/daemon":
        ("options.h nic_config.h eal_setup.h memory.h munmap_guard.h",
         "dataplane/lcore dataplane/engine dataplane/broker dataplane/capture dataplane/nic dataplane/nic/inject "
         "dataplane/nic/roce_port dataplane/nic/verbs lib/base lib/ipc lib/include"),
    "dataplane/tools": (ANY, "dataplane/daemon dataplane/lcore dataplane/nic apps/perf lib/base lib/ipc"),
    "control/membership": (ANY, "lib/base lib/ipc lib/include"),
    "control/transport":
        ("conn.h listener.h message.h local_peer.h stream.h stream_bev.h stream_tls.h", "control/membership lib/base lib/ipc"),
    "control/metrics": ("metrics.h", "control/transport lib/base lib/ipc"),
    "control/cluster":
        ("control.h options.h", "control/membership control/transport control/metrics lib/base lib/ipc"),
    "control/etcd": ("etcd.h", "control/cluster control/membership lib/base lib/ipc"),
    "control/daemon": ("", "control/cluster control/etcd control/membership control/metrics control/transport lib/base lib/ipc"),
    "apps/pki": ("pki.h", "lib/base"),
    "apps/weirctl": ("", "apps/pki lib/ipc lib/base lib/include"),
    "apps/perf": ("calibrate.h histogram.h", "lib/include lib/ipc lib/base"),
    "apps/hex": ("", "lib/include lib/ipc lib/base"),
    "apps/lend": ("lend.h", "lib/include lib/ipc lib/base"),
    "apps/run": ("run.h", "lib/ipc lib/base"),
    "apps/shuffle": ("", "lib/include lib/shuffle lib/ipc lib/base"),
    "apps/examples": ("", "lib/include"),
}
DPDK = "dataplane/lcore dataplane/daemon dataplane/nic/roce_port dataplane/tools".split()
VERBS = ["dataplane/nic/verbs"]
ROOTS = ["dataplane", "lib", "lib/include", "control", "apps", "apps/perf", "dataplane/tools"]
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]*)', re.M)
FILES_MAX = 20

def sources():
    for top in ("lib", "dataplane", "control", "apps"):
        for folder, _, names in os.walk(top):
            for name in names:
                if name.endswith((".c", ".h", ".cpp", ".hpp")):
                    yield os.path.join(folder, name)

def wall_of(path):
    inside = [w for w in WALLS if path.startswith(w + "/")]
    return max(inside, key=len) if inside else None

def target(path, name, known):
    """The file of ours that an include is of; None: not ours, or generated."""
    for folder in [os.path.dirname(path), wall_of(path) or "."] + ROOTS:
        found = os.path.normpath(os.path.join(folder, name))
        if found in known:
            return found
    return None

def check_include(path, line, mark, name, known, arrows):
    at = f"{path}:{line}: includes {name};"
    wall = wall_of(path)
    if mark == "<" and name.startswith("rte_") and wall not in DPDK:
        return f"{at} DPDK belongs to {', '.join(DPDK)}"
    if mark == "<" and name.startswith(("infiniband/", "rdma/")) and wall not in VERBS:
        return f"{at} verbs stay behind nic.h"
    to = target(path, name, known)
    if not to:
        made = name.endswith(".pb-c.h")
        return None if mark == "<" or made else f"{at} there is no such file, or no folder of its"
    other = wall_of(to)
    if os.path.dirname(to) != os.path.dirname(path):
        arrows.setdefault(os.path.dirname(path), set()).add(os.path.dirname(to))
    if other == wall:
        return None
    exposed, _ = WALLS[other]
    if exposed != ANY and os.path.relpath(to, other) not in exposed.split():
        return f"{at} it is private to {other}, which exposes {exposed or 'nothing'}"
    if other not in WALLS[wall][1].split():
        return f"{at} {wall} does not know {other}"
    return None

def cycles(arrows):
    def walk(folder, way):
        for to in sorted(arrows.get(folder, ())):
            if to in way:
                ring = way[way.index(to):]
                if to == min(ring):
                    yield ring
            elif len(way) < 12:
                yield from walk(to, way + [to])
    seen = set()
    for start in sorted(arrows):
        for ring in walk(start, [start]):
            if frozenset(ring) not in seen:
                seen.add(frozenset(ring))
                yield f"{ring[0]}: includes itself by way of {', '.join(ring[1:])}"

def check_files(known):
    counts = {}
    for path in known:
        folder, name = os.path.split(path)
        last = os.path.basename(folder)
        if name.endswith(".c"):
            counts[folder] = counts.get(folder, 0) + 1
        if any(name.startswith(word + "_") for word in {last, last.rstrip("s")}):
            yield f"{path}: repeats the name of its folder"
        if not wall_of(path):
            yield f"{path}: in no folder that lint_walls.py knows"
    for folder, n in sorted(counts.items()):
        if n > FILES_MAX:
            yield f"{folder}: {n} .c files; more than {FILES_MAX} need a further folder"

def main():
    known, arrows, found = set(sources()), {}, []
    for path in sorted(p for p in known if wall_of(p)):
        with open(path, encoding="utf-8", errors="replace") as f:
            text = f.read()
        for m in INCLUDE.finditer(text):
            line = text.count("\n", 0, m.start(2)) + 1
            found.append(check_include(path, line, m.group(1), m.group(2), known, arrows))
    found = [f for f in found if f] + list(check_files(known)) + list(cycles(arrows))
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0

if __name__ == "__main__":
    sys.exit(main())
