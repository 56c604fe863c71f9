#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""man_options.py PAGE PROGRAM [WORD...]: a man page whose table of options is that of the program.

In PAGE a line @NAME (@-x for an option that is a letter only) begins what the page tells of an option. Its head,
with letter and argument, and behind the text the default and the environment variable in brackets come from
`PROGRAM --help`, and from `PROGRAM WORD --help` of each WORD; so does the text itself where PAGE has none. Each
option must stand in PAGE once. Prints the page; exits 1 if an option is missing, unknown or there twice.
"""
import re
import subprocess
import sys

NOTES = re.compile(r"((?: \[[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*\])?)((?: \(\$[A-Z_]+\))?)$")
HEAD_WIDTH = 30  # of a line of --help, before the text of the option


def options_of(help_text):
    """Yields head and text of each option."""
    head = text = None
    for line in help_text.splitlines():
        if line.startswith("  -"):
            if head:
                yield head, text
            alone = len(line) <= HEAD_WIDTH or line[HEAD_WIDTH] != " "
            head, text = (line.strip(), "") if alone else (line[:HEAD_WIDTH].strip(), line[HEAD_WIDTH:].strip())
        elif head and line.startswith(" " * (HEAD_WIDTH + 1)):
            text = f"{text} {line.strip()}".strip()
        elif head:
            yield head, text
            head = None
    if head:
        yield head, text


def key_of(head):
    long = re.search(r"--([a-z][\w-]*)", head)
    return long[1] if long else head.split(" ")[0]


def roff(text):
    return text.replace("\\", "\\e").replace("-", "\\-")


def head_in_roff(head):
    """Names and words to type in bold, what stands for a value in italics."""
    words = head.split(" ")
    out = []
    for word in words:
        if word.startswith("-"):
            out.append(re.sub(r"^(--?[\w-]+)", lambda m: rf"\fB{roff(m[1])}\fR", word))
        elif re.fullmatch(r"[a-z|]+", word):
            out.append(re.sub(r"[a-z]+", r"\\fB\g<0>\\fR", word))
        else:
            out.append(re.sub(r"[A-Z][A-Z-]*", lambda m: rf"\fI{roff(m[0])}\fR", word))
    return " ".join(out)


def table_of(program, words):
    table = {}
    for word in [None] + words:
        command = [program] + ([word] if word else []) + ["--help"]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        for head, text in options_of(told):
            initial, env = NOTES.search(text).groups()
            text = text[:len(text) - len(initial) - len(env)]
            notes = ", ".join(filter(None, [initial.strip()[1:-1], env.strip()[1:-1]]))
            table.setdefault(key_of(head), (head, text, notes))
    return table


def main():
    page, program, *words = sys.argv[1:]
    table = table_of(program, words)
    wrong, out, seen, notes, empty = [], [], set(), "", None

    def finish():
        nonlocal notes, empty
        if empty:
            out.append(roff(empty))
        if notes:
            out.append(f"[{roff(notes)}]")
        notes, empty = "", None

    with open(page, encoding="utf-8") as f:
        lines = f.read().splitlines()
    for number, line in enumerate(lines, 1):
        if not line.startswith("@"):
            if line.startswith((".SH", ".SS", ".TP", ".PP")):
                finish()
            else:
                empty = None
            out.append(line)
            continue
        finish()
        key = line[1:]
        if key not in table or key in seen:
            wrong.append(f"{page}:{number}: {'twice' if key in seen else 'not in --help'}: {line}")
            continue
        seen.add(key)
        head, empty, notes = table[key]
        out += [".TP", head_in_roff(head)]
    finish()
    wrong += [f"{page}: lacks @{key}, which --help has" for key in table if key not in seen]
    if wrong:
        print("\n".join(wrong), file=sys.stderr)
        return 1
    print("\n".join(out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
