#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""doxygen_filter.py HEADER: a public header as doxygen reads it, on standard output.

The headers have plain comments. One on lines of its own describes the declaration below it, or the
whole file if an empty line follows. One behind code describes the declaration before it.
"""
import re
import sys

COMMENT = re.compile(r"^(?P<before>[^\n]*?)/\*(?P<text>.*?)\*/(?P<after>[^\n]*\n(?:[ \t]*\n)?)", re.M | re.S)


def marked(match):
    before, text, after = match.group("before", "text", "after")
    if "SPDX-" in text or text.startswith(" ----"):
        return match.group()
    text = text.replace("::", "\\::")
    if before.strip():
        return f"{before}/**<{text}*/{after}"
    of_file = match.string.startswith("#ifndef", match.end())
    if of_file or after.count("\n") > 1:
        text = text if text.startswith("\n") else "\n *" + text
        return f"{before}/** @file{'' if of_file else chr(10) + ' * @details'}{text}*/{after}"
    return f"{before}/**{text}*/{after}"


with open(sys.argv[1], encoding="utf-8") as f:
    sys.stdout.write(COMMENT.sub(marked, f.read()))
