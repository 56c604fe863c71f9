#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""lint_text.py spdx|whitespace FILE ...: what every text file must have, or must not.

Prints FILE[:LINE]: what. Exits 1 if there was anything to print.
"""
import re
import sys

SPDX = b"SPDX-License-Identifier: BSD-3-Clause"


def spdx(data):
    if SPDX not in b"\n".join(data.split(b"\n")[:3]):
        yield "", "no SPDX line in the first three"


def whitespace(data):
    for number, line in enumerate(data.split(b"\n"), 1):
        if re.search(rb"[ \t]$", line):
            yield f":{number}", "blanks at the end"
        if b"\r" in line:
            yield f":{number}", "a carriage return"
    if data and not data.endswith(b"\n"):
        yield "", "no newline at the end"
    if data.endswith(b"\n\n"):
        yield "", "empty line at the end"


def main():
    check = {"spdx": spdx, "whitespace": whitespace}[sys.argv[1]]
    bad = 0
    for path in sys.argv[2:]:
        with open(path, "rb") as f:
            for where, what in check(f.read()):
                print(f"{path}{where}: {what}")
                bad = 1
    return bad


if __name__ == "__main__":
    sys.exit(main())
