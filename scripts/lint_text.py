#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""lint_text.py spdx|whitespace|prose FILE ...: rules that hold for text, whatever its language.

Prints FILE[:LINE]: what. Exits 1 if there was anything to print.
"""
import re
import sys

SPDX = b"SPDX-License-Identifier: BSD-3-Clause"

COLUMNS = 100

# (kind of text, regular expression, what to do); blanks and line ends count as one blank
PROSE = [
    ("comment", r"^\.\.\.", "a comment that continues another one; make it a sentence"),
    ("comment", r"\b[Ss]o (?:many|much|long)\b", "name the quantity and its unit"),
    ("comment", r"(?:^|[.!?] )(?:What|Who|Whose|Those)\b", "begin the sentence with a noun"),
    ("string", r"(?<!there )\bis (?:no(?! longer| more)|none)\b", "say what is invalid and what is expected"),
]
LEXEMES = re.compile(
    r"(?P<comment>//[^\n]*(?:\n[ \t]*//[^\n]*)*|/\*.*?\*/)|"
    r'(?P<string>(?:"(?:\\.|[^"\\\n])*"\s*)+)|'
    r"'(?:\\.|[^'\\\n])*'", re.DOTALL)
# Of shell scripts and meson files: a string ends on its line.
SCRIPT = re.compile(
    r"(?P<comment>^[ \t]*#[^\n]*(?:\n[ \t]*#[^\n]*)*|(?<=\s)#[^\n]*)|"
    r"(?P<string>\"(?:\\.|[^\"\\\n])*\"|'[^'\n]*')", re.MULTILINE)


def spdx(path, data):
    if SPDX not in b"\n".join(data.split(b"\n")[:3]):
        yield "", "no SPDX line in the first three"


def whitespace(path, data):
    for number, line in enumerate(data.split(b"\n"), 1):
        if re.search(rb"[ \t]$", line):
            yield f":{number}", "blanks at the end"
        if b"\r" in line:
            yield f":{number}", "a carriage return"
    if data and not data.endswith(b"\n"):
        yield "", "no newline at the end"
    if data.endswith(b"\n\n"):
        yield "", "empty line at the end"


def prose_of_code(text, lexemes, kinds):
    for lexeme in lexemes.finditer(text):
        kind, body = lexeme.lastgroup, lexeme.group(0)
        if kind == "comment":
            body = re.sub(r"^[ \t]*(?:/?\*+/?|//|#)|\*/$", " ", body, flags=re.M)
        elif kind == "string":
            body = re.sub(r'"\s*"', "", body)
        body = " ".join(body.split())
        for where, pattern, advice in PROSE:
            m = re.search(pattern, body) if where == kind and kind in kinds else None
            if m:
                line = text.count("\n", 0, lexeme.start()) + 1
                yield f":{line}", f"'{m.group(0).lstrip('.!? ') or m.group(0)}' in a {kind}; {advice}"


# The source of a man page is all text; each line may begin a sentence.
def prose_of_manual(text):
    for _, pattern, advice in PROSE:
        for m in re.finditer(pattern.replace(" ", r"\s"), text, re.M):
            word = " ".join(m.group(0).split()).lstrip(".!? ")
            line = text.count("\n", 0, m.end()) + 1
            yield f":{line}", f"'{word}' in a man page; {advice}"


# Tables, code and the targets of links may be longer.
def prose_of_document(text):
    code = False
    for number, line in enumerate(text.split("\n"), 1):
        fence = line.lstrip().startswith("```")
        code ^= fence
        width = len(re.sub(r"\]\([^)\s]*\)", "]", line))
        if width > COLUMNS and " " in line.strip() and not (code or fence or line.startswith("|")):
            yield f":{number}", f"{width} columns; wrap documents at {COLUMNS}"


def prose(path, data):
    text = data.decode("utf-8", "replace")
    if path.endswith(".md"):
        yield from prose_of_document(text)
    elif re.search(r"\.[1-8]\.in$", path):
        yield from prose_of_manual(text)
    elif path.endswith((".c", ".h", ".cpp", ".hpp")):
        yield from prose_of_code(text, LEXEMES, ("comment", "string"))
    else: # of shell scripts the messages
        yield from prose_of_code(text, SCRIPT, ("string", "comment") if "meson" in path else ("string",))


def main():
    check = {"spdx": spdx, "whitespace": whitespace, "prose": prose}[sys.argv[1]]
    bad = 0
    for path in sys.argv[2:]:
        with open(path, "rb") as f:
            for where, what in check(path, f.read()):
                print(f"{path}{where}: {what}")
                bad = 1
    return bad


if __name__ == "__main__":
    sys.exit(main())
