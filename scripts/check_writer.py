#!/usr/bin/env python3
"""Checks text written by scalify-hlo against XLA's own reader and printer.

usage: check_writer.py OUT

OUT is a folder made by `corpus --write OUT DIR...`: rewritten modules and
index.txt, which names their sources. For each module that XLA reads from its
source, XLA must read the rewritten text and print the same module from both.
Needs jaxlib (0.10.2).
"""
import difflib
import gzip
import os
import re
import sys

from jaxlib import _hlo


def load(path):
    data = open(path, "rb").read()
    if path.endswith(".gz"):
        data = gzip.decompress(data)
    return data.decode()


def canonical(text, elided):
    options = _hlo.HloPrintOptions()
    options.print_metadata = True
    options.print_large_constants = True
    printed = _hlo.hlo_module_from_text(text).to_string(options)
    if elided:
        # XLA makes up the values of elided constants, anew on each reading.
        printed = re.sub(r" constant\(\{.*?\}\)(?=,|$)", " constant()", printed, flags=re.M)
    # A negative zero is printed as -0 but read back as 0.
    return re.sub(r"(?<![\w.])-0(?![\w.])", "0", printed)


def main():
    out = sys.argv[1]
    rows = [l.rstrip("\n").split("\t") for l in open(os.path.join(out, "index.txt"))]
    same = refused = different = skipped = 0
    for number, source in rows:
        try:
            text = load(source)
            elided = "constant({...})" in text
            want = canonical(text, elided)
        except Exception:  # XLA does not read the source.
            skipped += 1
            continue
        try:
            have = canonical(load(os.path.join(out, number + ".hlo.txt")), elided)
        except Exception as e:
            refused += 1
            if refused <= 20:
                print("REFUSED", number, source, str(e)[:400])
            continue
        if want == have:
            same += 1
            continue
        different += 1
        if different <= 20:
            diff = difflib.unified_diff(want.splitlines(), have.splitlines(), n=0, lineterm="")
            lines = [l[:300] for l in list(diff)[2:8]]
            print("DIFFERENT", number, source, *lines, sep="\n  ")
    print(f"same {same}, different {different}, refused {refused}, source not read by XLA {skipped}")
    sys.exit(1 if different or refused else 0)


main()
