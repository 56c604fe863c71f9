#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""stops.py SECONDS PID...: how long system calls have held main and the engines of data planes.

Prints JSON: per thread the longest stop in ms and its call. A stop is the time that a thread spends in a system call
other than its own waits, or blocked outside of calls (page faults, and work of the kernel after a call such as closing
received descriptors), minus the time for which it was ready to run while others had its CPU. Needs tracefs and root;
exit code 77 without them.
"""
import json, os, re, sys, time

TRACING = "/sys/kernel/tracing"
YIELD = 24
OUTSIDE = "behind a call, or a page fault"
WAITS = {7, 23, 35, 230, 232, 270, 271, 281, 441, YIELD}  # poll, select, nanosleep, epoll_wait and their kin
NAMES = {0: "read", 1: "write", 3: "close", 9: "mmap", 10: "mprotect", 11: "munmap", 16: "ioctl", 17: "pread", 18: "pwrite",
    28: "madvise", 44: "sendto", 45: "recvfrom", 46: "sendmsg", 47: "recvmsg", 48: "shutdown", 77: "ftruncate",
    202: "futex", 233: "epoll_ctl", 285: "fallocate", 288: "accept4", 319: "memfd_create", 324: "membarrier"}
LINE = re.compile(r"-(\d+)\s+(?:\(\s*\S+\)\s+)?\[\d+\]\s+\S+\s+(\d+\.\d+): (\w+): (.*)")


def threads(pids):
    """TID -> name, of main and the engines; other threads may be held."""
    found = {}
    for pid in pids:
        for task in os.listdir(f"/proc/{pid}/task"):
            name = open(f"/proc/{pid}/task/{task}/comm").read().strip()
            if task == pid or name.startswith("rte-worker"):
                found[int(task)] = "main" if task == pid else "engine"
    return found


def call_of(tid):
    """The call in which it sleeps, -1 if it sleeps in none, None if it runs."""
    try:
        word = open(f"/proc/{tid}/syscall").read().split()[0]
        return int(word) if word != "running" else None
    except (OSError, ValueError, IndexError):
        return None


class Thread:
    def __init__(self, begin, call):
        self.call, self.since, self.starved = call if call != -1 else None, begin, 0.0
        self.off, self.blocked, self.woken = begin if call is not None else None, True, None
        self.longest, self.what = 0.0, "none"

    def stop(self, length, call):
        if length > self.longest:
            self.longest, self.what = length, call

    def enter(self, now, call):
        self.call, self.since, self.starved = call, now, 0.0

    def leave(self, now):
        if self.call is not None and self.call not in WAITS:
            self.stop(now - self.since - self.starved, NAMES.get(self.call, f"call {self.call}"))
        self.call = None

    def switched_off(self, now, state):
        self.off, self.blocked, self.woken = now, not state.startswith("R"), None

    def switched_on(self, now):
        if self.off is None:
            return
        ready = (self.woken or now) if self.blocked else self.off
        self.starved += now - ready
        if self.blocked and self.call is None:
            self.stop(ready - self.off, OUTSIDE)
        self.off = None

    def end(self, now):
        if self.off is not None and self.call is None:
            self.switched_on(now)
        self.leave(now)


def trace(instance, tids, length):
    def put(name, text):
        with open(f"{instance}/{name}", "w") as f:
            f.write(text)

    begin = time.monotonic()
    calls = {tid: call_of(tid) for tid in tids} # before any event
    put("trace_clock", "mono")
    put("buffer_size_kb", "32768")
    put("set_event_pid", " ".join(map(str, tids)))
    for event in ("sys_enter", "sys_exit"):
        put(f"events/raw_syscalls/{event}/filter", f"id != {YIELD}")
        put(f"events/raw_syscalls/{event}/enable", "1")
    for event in ("sched_switch", "sched_waking"):
        put(f"events/sched/{event}/enable", "1")
    time.sleep(length)
    put("tracing_on", "0")
    end = time.monotonic()
    found = {tid: Thread(begin, calls[tid]) for tid in tids}
    with open(f"{instance}/trace", errors="replace") as f:
        for line in f:
            take(found, line)
    for thread in found.values():
        thread.end(end)
    return found


def field(line, name):
    return line.partition(name)[2].partition(" ")[0]


def take(found, line):
    head, _, rest = line.partition(": sched_switch: ")
    if rest: # by far the most
        thread = found.get(int(field(rest, "prev_pid=")))
        state = field(rest, "prev_state=")
        # who yields or is put aside outside of calls isn't held
        if thread and (state[0] != "R" or thread.call is not None):
            thread.switched_off(float(head.rpartition(" ")[2]), state)
        thread = found.get(int(field(rest, "next_pid=")))
        if thread and thread.off is not None:
            thread.switched_on(float(head.rpartition(" ")[2]))
        return
    m = LINE.search(line)
    if not m:
        return
    pid, now, event, rest = int(m[1]), float(m[2]), m[3], m[4]
    if event == "sched_waking":
        pid = int(field(rest, " pid="))
        if pid in found and found[pid].woken is None:
            found[pid].woken = now
    elif pid in found and event == "sys_enter":
        found[pid].enter(now, int(rest.split()[1]))
    elif pid in found and event == "sys_exit":
        found[pid].leave(now)


def main():
    names = threads(sys.argv[2:])
    instance = f"{TRACING}/instances/weir-{os.getpid()}"
    if not os.path.isdir(f"{TRACING}/events/raw_syscalls"):
        os.system(f"mount -t tracefs none {TRACING} 2>/dev/null")
    try:
        os.mkdir(instance)
    except OSError as e:
        print(f"stops.py: no tracing of system calls: {e}", file=sys.stderr)
        return 77
    try:
        found = trace(instance, names, float(sys.argv[1]))
    finally:
        os.rmdir(instance)
    print(json.dumps([{"thread": names[tid], "tid": tid, "ms": round(t.longest * 1000, 3), "in": t.what}
        for tid, t in found.items()]))
    return 0


sys.exit(main())
