#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""lint_docs.py BUILD: documents against what is there.

Paths that docs/*.md and README.md name exist, and so do the tests that coverage.md names in files of tests, and files
that comments of C, C++ and models name. Samples of both compile. Man pages and --help of the programs in BUILD name the
same options. Prints FILE: what. Exits 1 if there was anything to print.
"""
import glob
import os
import re
import subprocess
import sys

from lint_text import LEXEMES

PATH = re.compile(r"`((?:lib|dataplane|control|apps|test|scripts|docs|\.ci)/[\w./@-]*)`")
# In a comment: with a suffix, since words such as test/compare are no paths.
FILE = re.compile(r"(?<![\w./<-])(?:[\w-]+/)+[\w.-]*\.(?:cpp|hpp|c|h|pml|sh|py|md|json|proto|patch)\b")
TESTS = re.compile(r"`(test/[\w/]+\.c)` \(([^)]*)\)")
SAMPLE = re.compile(r"^```(c|cpp)\n(.*?)^```", re.M | re.S)
COMPILERS = {"c": ["gcc", "-std=gnu11", "-x", "c"], "cpp": ["g++", "-std=c++17", "-x", "c++"]}
LINK = re.compile(r"\]\(([\w./-]+)(?:#[\w-]+)?\)")
OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z0-9-]*|-[a-zA-Z])(?![\w-])")
# Of DPDK, not ours.
EAL = {"-l", "-m", "-f", "-a", "--no-huge", "--in-memory", "--file-prefix", "--lcores", "--vdev",
       "--no-pci", "--log-level", "--huge-unlink", "--single-file-segments"}
PROGRAMS = [("dataplane/weir-dataplane", "docs/weir-dataplane.8"), ("control/weir-control", "docs/weir-control.8"),
            ("apps/weirctl", "docs/weirctl.1"), ("apps/perf/weir-perf", "docs/weir-perf.1"),
            ("apps/hex/weir-hex", "docs/weir-hex.6"), ("apps/lend/weir-lend", "docs/weir-lend.1"),
            ("apps/run/weir-run", "docs/weir-run.1"),
            ("apps/shuffle/weir-sort", "docs/weir-sort.1"), ("apps/shuffle/weir-count", "docs/weir-count.1"),
            ("apps/shuffle/weir-join", "docs/weir-join.1"), ("apps/shuffle/weir-shuffle-cost", "docs/weir-shuffle-cost.1"),
            ("dataplane/tools/weir-nicperf", "docs/weir-nicperf.1"),
            ("test/tools/weir-roce-peer", "test/tools/weir-roce-peer.1"),
            ("test/tools/weir-switch", "test/tools/weir-switch.1")]


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def missing_tests():
    """Of `FILE` (one name, another): test_one_name and test_another are in the file."""
    for path, names in TESTS.findall(read("docs/coverage.md")):
        text = read(path) if os.path.exists(path) else ""
        for name in names.split(","):
            if not re.search(rf"\btest_\w*{'_'.join(name.split())}", text):
                yield f"docs/coverage.md: names the test '{name.strip()}', which is not in {path}"


def missing_paths():
    for doc in ["README.md"] + sorted(glob.glob("docs/*.md")):
        text = read(doc)
        for path in sorted(set(PATH.findall(text))):
            if "NAME" not in path and not os.path.exists(path):
                yield f"{doc}: names {path}, which is not there"
        for link in sorted(set(LINK.findall(text))):
            if not os.path.exists(os.path.join(os.path.dirname(doc), link)):
                yield f"{doc}: links to {link}, which is not there"


def comments_of(source):
    return " ".join(m.group("comment") or "" for m in LEXEMES.finditer(read(source)))


def missing_files():
    """A comment names a file from the root, from its module or folder, or as #include has it."""
    for top in ("lib", "dataplane", "control", "apps", "test"):
        for folder, _, names in sorted(os.walk(top)):
            roots = ("", top, folder, "lib", "lib/include")
            for source in sorted(os.path.join(folder, name) for name in names if name.endswith((".c", ".h", ".cpp", ".hpp", ".pml"))):
                for path in sorted(set(FILE.findall(comments_of(source)))):
                    if not any(os.path.exists(os.path.join(root, path)) for root in roots):
                        yield f"{source}: names {path}, which is not there"


def options_of_man(page):
    text = read(page)
    text = re.sub(r"\\f[A-Z]|^\.[A-Z]+ ", " ", text.replace("\\-", "-"), flags=re.M)
    return set(OPTION.findall(text.replace('"', " ")))


def different_options(build):
    for program, page in PROGRAMS:
        path, manual = os.path.join(build, program), os.path.join(build, page)
        lacking = [file for file in (path, manual) if not os.path.exists(file)]
        if lacking:
            yield f"{lacking[0]}: not there; build first: scripts/test.sh"
            continue
        told = subprocess.run([path, "--help"], capture_output=True, text=True, check=True).stdout
        told, written = set(OPTION.findall(told)) - EAL, options_of_man(manual) - EAL
        for option in sorted(told - written):
            yield f"{page}: lacks {option}, which --help has"
        for option in sorted(written - told):
            yield f"{page}: has {option}, which --help lacks"


def broken_samples():
    for doc in ["README.md"] + sorted(glob.glob("docs/*.md")):
        for number, (language, sample) in enumerate(SAMPLE.findall(read(doc)), 1):
            gcc = subprocess.run(COMPILERS[language] + ["-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-Ilib/include", "-"],
                                 input=sample, capture_output=True, text=True)
            if gcc.returncode:
                yield f"{doc}: sample {number} does not compile: {gcc.stderr.strip()}"


def main():
    found = [*missing_paths(), *missing_tests(), *missing_files(), *broken_samples(), *different_options(sys.argv[1])]
    print("\n".join(found), end="\n" if found else "")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
