#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Words and includes that a folder must not use. Comments and strings don't count.

Prints FILE:LINE: what; what to use. Exits 1 if there was anything to print.
"""
import os
import re
import sys

# (folders, regular expression, what to use instead)
TOKENS = [
    (".", r"\b(strcpy|strcat|strncpy|strncat|stpcpy)\s*\(", "snprintf() or memcpy() with a checked length"),
    (".", r"\b(sprintf|vsprintf)\s*\(", "snprintf()"),
    (".", r"\b(atoi|atol|atoll|atof)\s*\(", "strtoul() and its end pointer"),
    (".", r"\b(strtok|strtok_r)\s*\(", "strchr() or strsep() on a copy"),
    (".", r"\bgets\s*\(", "fgets()"),
    (".", r"\b(rand|srand|random|srandom|drand48)\s*\(", "getrandom(), or a generator with a printed seed"),
    (".", r"\bvolatile\b", "stdatomic.h; for asm: __asm__ __volatile__"),
    (".", r"\b(alloca|system|popen)\s*\(", "a bounded buffer; posix_spawn()"),
    ("lib", r"\b(exit|_exit|abort|quick_exit)\s*\(", "an error code"),
    ("lib/ipc lib/client lib/stream lib/message lib/remote lib/group lib/window lib/buffer lib/objects",
     r"\b(printf|fprintf|vfprintf|puts|fputs|putchar|perror)\s*\(", "weir_reason()"),
    ("dataplane/engine dataplane/nic", r"\b(printf|fprintf|puts|perror)\s*\(", "a counter, or log.h off the hot path"),
    ("dataplane/engine dataplane/nic", r"\b(exit|_exit|quick_exit)\s*\(", "an error code"),
]

STRIP = re.compile(
    r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)


def blank(match):
    text = match.group(0)
    return re.sub(r"[^\n]", " ", text)


def within(path, folders):
    return any(f == "." or path.startswith(f[:-1] if f.endswith("*") else f + "/") or path == f
               for f in folders.split())


def check(path):
    found = []
    with open(path, encoding="utf-8", errors="replace") as f:
        text = f.read()
    code = STRIP.sub(blank, text).replace("__asm__ __volatile__", "").replace("asm volatile", "")
    for number, line in enumerate(code.split("\n"), 1):
        for folders, pattern, instead in TOKENS:
            m = re.search(pattern, line) if within(path, folders) else None
            if m:
                word = m.group(0).rstrip("( \t")
                found.append(f"{path}:{number}: {word}; use {instead}")
    return found


def main():
    found = [line for path in sys.argv[1:] for line in check(os.path.normpath(path))]
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
