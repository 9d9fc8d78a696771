#!/usr/bin/env python3
"""Witnesses of refuted pairs, replayed in XLA and on our interpreter.

    python scripts/check_witness.py [--scalify PATH] [--cases DIR] [--form FORM]
        [--every N] [--keep DIR] [--least SHARE]

Refutes every `bug__*` case below DIR (every N-th), saves the witness, and runs
its `replay.py`, which uses jaxlib, and `scalify replay`. Prints for how many
the difference is there. Exit status 1 if the interpreter does not see a
difference again, if XLA does see none, or if XLA could run fewer than SHARE of
the witnesses.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))


def spec(dims):
    names = ["None" if not d else repr(d[0]) if len(d) == 1 else repr(tuple(d)) for d in dims]
    return f"P({', '.join(names)})"


def options(case):
    """Options that declare what a case says of its programs."""
    mesh, inputs = case["mesh"], case["inputs"]
    out = ["--mesh", ",".join(f"{a}={n}" for a, n in zip(mesh["axes"], mesh["shape"]))]
    every = list(range(len(inputs)))
    kept = case.get("kept_inputs") or {"base": every, "dist": every}
    for k, i in enumerate(kept["dist"]):
        if inputs[i].get("spec") is not None:
            out += ["--in", f"#{k}={spec(inputs[i]['spec'])}"]
        if i in kept["base"]:
            out += ["--pair", f"#{kept['base'].index(i)}=#{k}"]
    for k, i in enumerate(kept["base"]):
        if inputs[i].get("range"):
            out += ["--assume", "#{} in [{}, {}]".format(k, *inputs[i]["range"])]
    for k, o in enumerate(case["outputs"]):
        if o.get("spec") is not None:
            out += ["--out", f"#{k}={spec(o['spec'])}"]
    return out


def find(folder, name):
    for ending in ("", ".gz", ".zst"):
        if os.path.exists(path := os.path.join(folder, name + ending)):
            return path
    return None


def one(args, folder, out):
    """Name, what `verify`, XLA and the interpreter say, and the message."""
    name = os.path.basename(folder)
    with open(os.path.join(folder, "case.json")) as f:
        case = json.load(f)
    base, dist = find(folder, "base.hlo.txt"), find(folder, f"{args.form}.hlo.txt")
    if base is None or dist is None:
        return name, "absent", "", "", ""
    witness = os.path.join(out, name)
    command = [args.scalify, "verify", base, dist, "--quiet", "--no-repair", "--witness", witness]
    try:
        verify = subprocess.run(command + options(case), capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        return name, "timeout", "", "", ""
    if verify.returncode != 1:
        return name, "not refuted", "", "", (verify.stdout + verify.stderr).replace("\n", " ")[:300]
    run = dict(capture_output=True, text=True, timeout=300)
    try:
        xla = subprocess.run([sys.executable, os.path.join(witness, "replay.py")], **run)
        code, text = xla.returncode, (xla.stderr or xla.stdout)
    except subprocess.TimeoutExpired:
        code, text = "timeout", ""
    ours = subprocess.run([args.scalify, "replay", witness], **run).returncode
    word = {0: "there", 1: "none", 2: "refused"}.get(code, f"crash {code}")
    return name, "refuted", word, {0: "none", 1: "there"}.get(ours, "error"), text


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--scalify", default="target/debug/scalify")
    p.add_argument("--cases", default="tests/corpus/hand")
    p.add_argument("--form", default="dist", help="dist, dist.body or dist.spmd")
    p.add_argument("--every", type=int, default=1)
    p.add_argument("--jobs", type=int, default=2)
    p.add_argument("--keep", default="")
    p.add_argument("--least", type=float, default=0.9)
    args = p.parse_args()
    cases = sorted(d for d in os.listdir(args.cases) if d.startswith("bug__"))[:: args.every]
    folders = [os.path.join(args.cases, d) for d in cases]
    rows = []
    with tempfile.TemporaryDirectory() as tmp:
        out = args.keep or tmp
        with ThreadPoolExecutor(args.jobs) as pool:
            for row in pool.map(lambda d: one(args, d, out), folders):
                rows.append(row)
                name, verdict, xla, ours, text = row
                if verdict != "absent" and (verdict, xla, ours) != ("refuted", "there", "there"):
                    last = (text.strip().splitlines() or [""])[-1]
                    print(f"{name}: {verdict} {xla} {ours} {last[:240]}", flush=True)
                if len(rows) % 20 == 0:
                    print(f"{args.form}: {len(rows)} of {len(folders)}", flush=True)
    refuted = [r for r in rows if r[1] == "refuted"]
    there = sum(r[2] == "there" for r in refuted)
    again = sum(r[3] == "there" for r in refuted)
    runs = sum(r[2] in ("there", "none") for r in refuted)
    print(
        f"{args.form}: {len(rows)} cases, {len(refuted)} refuted; XLA shows the difference for {there}, "
        f"runs {runs}; the interpreter shows it for {again}"
    )
    bad = again < len(refuted) or there < runs or runs < args.least * len(refuted)
    sys.exit(1 if bad or not refuted else 0)


if __name__ == "__main__":
    main()
