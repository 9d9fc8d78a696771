#!/usr/bin/env python3
"""Speed of scalify-hlo's reader against XLA's own, on the same texts.

usage: bench_parse.py [--bin PATH] FILE...

Both read each text from memory, best of several runs, one thread. Needs
jaxlib (0.10.2) and `cargo build --release -p scalify-hlo --example bench_parse`.
"""
import argparse
import gzip
import json
import subprocess
import time

from jaxlib import _hlo


def load(path):
    data = open(path, "rb").read()
    if path.endswith(".gz"):
        data = gzip.decompress(data)
    return data.decode()


def xla_seconds(text, rounds=3):
    best = float("inf")
    for _ in range(rounds):
        begin = time.perf_counter()
        module = _hlo.hlo_module_from_text(text)
        best = min(best, time.perf_counter() - begin)
        del module
    return best


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--bin", default="target/release/examples/bench_parse")
    args.add_argument("files", nargs="+")
    args = args.parse_args()
    print(f"{'MB':>7} {'XLA MB/s':>9} {'ours MB/s':>10} {'ratio':>6}  file")
    ratios = []
    for path in args.files:
        run = [args.bin, "--json", path]
        ours = json.loads(subprocess.run(run, capture_output=True, check=True).stdout)
        xla = xla_seconds(load(path))
        mb = ours["bytes"] / 1e6
        ratios.append(xla / ours["seconds"])
        print(f"{mb:7.2f} {mb / xla:9.1f} {mb / ours['seconds']:10.1f} {ratios[-1]:6.1f}  {path}")
    print(f"lowest ratio {min(ratios):.1f}")


main()
