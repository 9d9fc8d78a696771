"""Times `scalify verify` of a right distributed program against a wrong one
with the same baseline, alternating; prints medians of the time and of the
processor time, and the ratios.

usage: bench_fault.py SCALIFY BASE RIGHT WRONG [OPTION...] [--runs N]
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

from bench_verify import text


def plain(path, folder, name):
    data = text(path)
    path = os.path.join(folder, name)
    with open(path, "wb") as f:
        f.write(data)
    return path


def once(command, code):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    got = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if got != code:
        sys.exit(f"exit status {got}, not {code}: {' '.join(command)}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu


def main():
    args = sys.argv[1:]
    runs = 15
    if "--runs" in args:
        k = args.index("--runs")
        runs = int(args[k + 1])
        del args[k : k + 2]
    binary, base, right, wrong, *options = args
    with tempfile.TemporaryDirectory() as folder:
        base = plain(base, folder, "base.hlo.txt")
        pair = [plain(right, folder, "right.hlo.txt"), plain(wrong, folder, "wrong.hlo.txt")]
        times = ([], [])
        for _ in range(runs + 1):
            for k, dist in enumerate(pair):
                # 0 is proved, 1 refuted.
                times[k].append(once([binary, "verify", base, dist, *options], k))
    # The first run warms the caches.
    median = [[statistics.median(t[j] for t in times[k][1:]) for j in (0, 1)] for k in (0, 1)]
    for name, (wall, cpu) in zip(("right", "wrong"), median):
        print(f"{name}: {wall * 1e3:.0f} ms, processor {cpu * 1e3:.0f} ms")
    print("ratio: " + ", processor ".join(f"{median[1][j] / median[0][j]:.2f}" for j in (0, 1)))


if __name__ == "__main__":
    main()
