"""Measures `scalify view` on a module of 100,000 instructions, made by
repeating the entry computation of a real one, next to dagre on parts of the
same graph.

usage: bench_view.py RUN [--n 100000] [--dagre NODE_MODULES] [--keep DIR]
RUN is the built example: cargo build --release -p scalify-view --example time
"""

import argparse
import json
import random
import re
import subprocess
import tempfile
import time
from pathlib import Path

import browser

ROOT = Path(__file__).resolve().parent.parent

DAGRE = """
const dagre = require('@dagrejs/dagre');
const { nodes, edges } = JSON.parse(require('fs').readFileSync(process.argv[2]));
const g = new dagre.graphlib.Graph();
g.setGraph({}); g.setDefaultEdgeLabel(() => ({}));
for (const n of nodes) g.setNode(n, { width: 100, height: 34 });
for (const [a, b] of edges) g.setEdge(a, b);
const t = performance.now();
dagre.layout(g);
console.log(((performance.now() - t) / 1000).toFixed(3));
"""


def repeat(n, irregular):
    """HLO text of about n instructions: the layer in a chain. `irregular`:
    at random places a copy stands between, so that few layers are equal."""
    text = (ROOT / "examples/llama_layer/base.hlo.txt").read_text()
    head, entry = text.split("\nENTRY ", 1)
    lines = entry.split("\n}")[0].split("\n")[1:]
    params = [l for l in lines if " parameter(" in l]
    body = [l for l in lines if " parameter(" not in l]
    names = {re.match(r"\s*(?:ROOT )?%(\S+) =", l).group(1) for l in body}
    x = re.match(r"\s*%(\S+) =", next(l for l in params if "parameter(0)" in l)).group(1)
    rng = random.Random(1)
    out, last = list(params), x
    while len(out) < n - head.count(" = "):
        k = len(out)

        def rename(m, last=last, k=k):
            name = m.group(1)
            return f"%{last}" if name == x else f"%{name}.r{k}" if name in names else m.group(0)

        for line in body:
            new = re.sub(r"%([\w.\-]+)", rename, line.replace("ROOT ", ""))
            out.append(new)
            if irregular and rng.random() < 0.02 and " = f32[2,32,64]" in new:
                name = re.match(r"\s*%(\S+) =", new).group(1)
                out.append(f"  %{name}.c = f32[2,32,64]{{2,1,0}} copy(%{name})")
            if "ROOT" in line:
                last = re.match(r"\s*%(\S+) =", new).group(1)
    out[-1] = out[-1].replace("  %", "  ROOT %", 1)
    return f"{head}\nENTRY {entry.splitlines()[0]}\n" + "\n".join(out) + "\n}\n"


def dagre(text, sizes, modules):
    lines = text.split("\nENTRY ", 1)[1].split("\n")[1:]
    nodes, edges = [], []
    for l in lines:
        m = re.match(r"\s*(?:ROOT )?%(\S+) = \S+ [\w\-]+\(([^)]*)\)", l)
        if m:
            nodes.append(m.group(1))
            edges += [(o, m.group(1)) for o in re.findall(r"%([\w.\-]+)", m.group(2))]
    at = {n: k for k, n in enumerate(nodes)}
    for size in sizes:
        part = {"nodes": nodes[:size], "edges": [e for e in edges if at.get(e[1], size) < size and e[0] in at]}
        with tempfile.TemporaryDirectory() as d:
            (Path(d) / "g.json").write_text(json.dumps(part))
            (Path(d) / "run.js").write_text(DAGRE)
            try:
                r = subprocess.run(["node", f"{d}/run.js", f"{d}/g.json"], capture_output=True, text=True,
                                   timeout=90, env={"NODE_PATH": modules, "PATH": "/usr/bin:/bin:/usr/local/bin"})
                print(f"dagre, {size} instructions: {r.stdout.strip() or r.stderr[-200:]} s")
            except subprocess.TimeoutExpired:
                print(f"dagre, {size} instructions: more than 90 s")
                return


def main():
    p = argparse.ArgumentParser()
    p.add_argument("run")
    p.add_argument("--n", type=int, default=100_000)
    p.add_argument("--dagre")
    p.add_argument("--keep")
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        folder = Path(a.keep or tmp)
        folder.mkdir(exist_ok=True)
        for irregular in [False, True]:
            kind = "irregular" if irregular else "equal layers"
            text = repeat(a.n, irregular)
            file = folder / f"big{int(irregular)}.hlo"
            file.write_text(text)
            best = None
            for _ in range(3):
                r = json.loads(subprocess.run([a.run, file], capture_output=True, text=True, check=True).stdout)
                best = r if best is None or r["layout"] < best["layout"] else best
            print(f"{kind}: {best['instructions']} instructions, {best['boxes']} boxes laid out in {best['layout']} s; "
                  f"page in {best['page']} s, {best['bytes'] / 1e6:.2f} MB")
            scalify = Path(a.run).parent.parent / "scalify"
            page = folder / f"big{int(irregular)}.html"
            t = time.time()
            subprocess.run([scalify, "view", file, "-o", page], check=True)
            print(f"  scalify view: {time.time() - t:.2f} s in all")
            d = browser.start()
            try:
                usable = min(browser.open_page(d, page) for _ in range(3))
                d.set_script_timeout(60)
                worst, paints = d.execute_async_script(PAN)
                print(f"  usable after {usable:.0f} ms; panning: {paints} frames, the longest task {worst:.1f} ms")
                worst, paints = d.execute_async_script(OPEN + PAN)
                boxes = d.execute_script("return scalify.views[0].scene.boxes.length")
                print(f"  with {boxes} boxes open: {paints} frames, the longest task {worst:.1f} ms")
            finally:
                d.quit()
        if a.dagre:
            dagre(repeat(a.n, False), [500, 1000, 2000, 4000, 8000], a.dagre)


# Moves over the whole graph at three scales; reports the longest frame.
PAN = """
const done = arguments[arguments.length - 1];
const v = scalify.views[0], root = v.scene.root;
let k = 0;
v.worst = 0;
v.draw();
const step = () => {
  if (k >= 180) { done([v.worst, k]); return; }
  v.cam.s = [0.05, 0.3, 0.9][Math.floor(k / 60)];
  const t = (k % 60) / 60;
  v.cam.x = root.x + root.w * 0.3;
  v.cam.y = root.y + root.h * t;
  k++;
  v.draw();
  requestAnimationFrame(step);
};
requestAnimationFrame(() => { v.worst = 0; step(); });
"""
# Opens groups until several thousand boxes are visible.
OPEN = """
{
  const v = scalify.views[0];
  for (let round = 0; round < 12 && v.scene.boxes.length < 4000; round++) {
    for (const b of v.scene.boxes.slice()) if (b.node < 0 && v.scene.boxes.length + v.open.size < 4000) v.open.add(b.key);
    v.scene = v.build();
  }
}
"""

if __name__ == "__main__":
    main()
