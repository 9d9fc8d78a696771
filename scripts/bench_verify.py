"""Times `scalify verify` on two HLO texts against XLA's own parser on the
same texts, in one run, alternating; prints medians and the ratio.

usage: bench_verify.py SCALIFY BASE DIST [OPTION...] [--runs N]
"""

import gzip
import statistics
import subprocess
import sys
import tempfile
import time


def text(path):
    data = open(path, "rb").read()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def main():
    args = sys.argv[1:]
    runs = 7
    if "--runs" in args:
        k = args.index("--runs")
        runs = int(args[k + 1])
        del args[k : k + 2]
    binary, base, dist, *options = args
    from jaxlib import _hlo

    texts = [text(base).decode(), text(dist).decode()]
    files = []
    for t in texts:
        f = tempfile.NamedTemporaryFile("w", suffix=".hlo.txt", delete=False)
        f.write(t)
        f.close()
        files.append(f.name)
    ours, xla = [], []
    code = None
    for _ in range(runs + 1):
        t = time.perf_counter()
        code = subprocess.run(
            [binary, "verify", "--quiet", *files, *options], stdout=subprocess.DEVNULL
        ).returncode
        ours.append(time.perf_counter() - t)
        t = time.perf_counter()
        for x in texts:
            _hlo.hlo_module_from_text(x)
        xla.append(time.perf_counter() - t)
    a, b = statistics.median(ours[1:]), statistics.median(xla[1:])
    n = sum(x.count(" = ") for x in texts)
    print(f"exit code {code}, {n} instructions, {runs} runs after one warm-up")
    print(f"scalify verify, whole process  {a * 1e3:8.1f} ms  {a / n * 1e6:6.2f} us/instruction")
    print(f"XLA parses the two texts       {b * 1e3:8.1f} ms  {b / n * 1e6:6.2f} us/instruction")
    print(f"ratio                          {a / b:8.2f}")


if __name__ == "__main__":
    main()
