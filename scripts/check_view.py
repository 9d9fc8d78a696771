"""Drives pages of `scalify view` in a headless Chromium: open, search, open a
group, select in step, colour, move the pass slider, restore from the address.
No console message may appear. Screenshots are kept in OUT.

usage: check_view.py SCALIFY OUT
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import browser

ROOT = Path(__file__).resolve().parent.parent
LAYER = ROOT / "examples/llama_layer"

DUMP = """
import os, sys
os.environ["XLA_FLAGS"] = f"--xla_dump_to={sys.argv[1]} --xla_dump_hlo_pass_re=.*"
import jax, jax.numpy as jnp
def f(x, w):
    for _ in range(2):
        x = jax.nn.softmax((x @ w).T.T + 0.0, axis=-1)
    return x.sum()
jax.jit(jax.grad(f, argnums=1)).lower(jnp.ones((8, 16)), jnp.ones((16, 16))).compile()
"""


def main():
    scalify, out = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)

    def view(page, *args):
        r = subprocess.run([scalify, "view", *args, "-o", out / page], cwd=ROOT, capture_output=True, text=True)
        assert r.returncode == 0, r.stderr
        return out / page

    d = browser.start()

    def js(code, *args):
        return d.execute_script(code, *args)

    def shot(name):
        time.sleep(0.25)
        d.save_screenshot(str(out / f"{name}.png"))

    def quiet(what):
        log = [l for l in d.get_log("browser") if "favicon" not in l["message"]]
        assert not log, f"{what}: console says {log}"

    def until(code, what):
        end = time.time() + 8
        while not js(code):
            assert time.time() < end, f"{what}: not after 8 s"
            time.sleep(0.03)

    try:
        # One module, op_names and calls.
        page = view("one.html", LAYER / "shard_map.hlo.txt")
        browser.open_page(d, page)
        n = js("return scalify.views[0].g.n")
        text = (LAYER / "shard_map.hlo.txt").read_text()
        written = sum(1 for l in text.splitlines() if l.startswith("  ") and " = " in l)
        assert n == written, f"{n} instructions on the page, {written} in the file"
        shot("1_opened")
        # Search by name, opcode, source line, regular expression.
        from selenium.webdriver.common.keys import Keys

        box = d.find_element("id", "search")
        for query, expected in [
            ("op:all-reduce", text.count(" all-reduce(")),
            ("model.py:43", None),
            ("/^psum/", None),
            ("no such thing", 0),
            ("/(/", 0),
        ]:
            box.clear()
            box.send_keys(query)
            found = js("return scalify.results.length")
            assert (found == expected) if expected is not None else found > 0, (query, found, expected)
        box.clear()
        box.send_keys("op:all-reduce", Keys.ENTER)
        until("return scalify.views[0].selected >= 0", "search selects")
        op = js("const v = scalify.views[0]; return v.g.op(v.selected)")
        assert op == "all-reduce", op
        assert js("const v = scalify.views[0]; return v.scene.nodeBox.has(v.selected)"), "the hit is not visible"
        panel = d.find_element("id", "panel").text
        assert "1 group of devices" in panel and "model.py:43" in panel, panel
        assert "psum" in panel and "Operands" in panel and "Users" in panel, panel
        shot("2_collective")
        # Opening and closing by a click on the canvas.
        js("const v = scalify.views[0]; scalify.select(v, -1); v.open.clear(); v.rebuild(); v.fit()")
        time.sleep(0.1)
        call = js("""const v = scalify.views[0];
          const b = v.scene.boxes.filter((b) => v.canOpen(b)).sort((a, c) => c.w * c.h - a.w * a.h)[0];
          const r = v.canvas.getBoundingClientRect();
          return [(b.x + b.w / 2 - v.cam.x) * v.cam.s + r.left, (b.y + b.h / 2 - v.cam.y) * v.cam.s + r.top, v.scene.boxes.length]""")
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(d).move_by_offset(int(call[0]), int(call[1])).double_click().perform()
        ActionChains(d).move_by_offset(-int(call[0]), -int(call[1])).perform()
        until(f"return scalify.views[0].scene.boxes.length > {call[2]}", "a double click opens")
        # Boxes do not overlap, edges point down.
        bad = js("""const s = scalify.views[0].scene; let bad = 0;
          for (const b of [s.root, ...s.boxes]) { if (!b.layout) continue;
            for (let i = 0; i < b.kids.length; i++) for (let j = 0; j < i; j++) { const p = b.kids[i], q = b.kids[j];
              if (p.x < q.x + q.w - 1 && q.x < p.x + p.w - 1 && p.y < q.y + q.h - 1 && q.y < p.y + p.h - 1) bad++; }
            const r = b.layout.routes;
            for (let k = 0; k < r.length; k += 4 + Math.max(r[k + 3], 0)) {
              const a = b.kids[b.layout.places[r[k]]], z = b.kids[b.layout.places[r[k + 1]]];
              if (a.y + a.h > z.y) bad++; } }
          return bad""")
        assert bad == 0, f"{bad} boxes overlap or edges point up"
        # Neighbourhood and paths.
        js("const v = scalify.views[0]; scalify.select(v, v.g.find('psum.10'), true); scalify.neighbourhood(v, v.selected, 2)")
        assert js("return scalify.views[0].focusNodes.length") > 3
        js("document.activeElement.blur(); scalify.unfocus(scalify.views[0])")
        quiet("one module")

        # Two modules in step.
        page = view("pair.html", LAYER / "base.hlo.txt", LAYER / "shard_map_wrong.hlo.txt")
        browser.open_page(d, page)
        assert js("return scalify.overlayName") == "verdict"
        guilty = js("return scalify.views[1].g.names[scalify.relations.guilty]")
        assert guilty == "dot_general.17", guilty
        shot("3_in_step")
        js("const v = scalify.views[0]; scalify.select(v, v.g.find('dot_general.14'), true)")
        partner = js("const v = scalify.views[1]; return v.partners.map((i) => v.g.op(i))")
        # The product of row-sharded operands is whole only after the sum.
        assert partner == ["all-reduce"], partner
        assert js("const v = scalify.views[1]; return v.partners.every((p) => v.scene.rep(p) !== null)")
        js("scalify.setOverlay('relation')")
        assert "sharded over tp" in d.find_element("id", "legend").text, d.find_element("id", "legend").text
        # The address holds the state.
        until("return location.hash.includes('o=relation')", "the address is written")
        fragment = js("return location.hash")
        camera = js("return scalify.views[0].cam.s")
        browser.open_page(d, page, fragment)
        assert js("const v = scalify.views[0]; return v.g.names[v.selected]") == "dot_general.14"
        assert js("return scalify.overlayName") == "relation"
        assert abs(js("return scalify.views[0].cam.s") - camera) < 0.01
        quiet("two modules")

        # Numbers, dark.
        numbers = out / "numbers.json"
        names = js("return scalify.views[1].g.names")
        numbers.write_text(json.dumps({m: {"error": 2.0 ** -(k % 40), "origin": "introduced" if k % 7 == 0 else "inherited"}
                                       for k, m in enumerate(names)}))
        page = view("numbers.html", LAYER / "shard_map.hlo.txt", "--numbers", numbers)
        browser.open_page(d, page, "#t=dark&o=error")
        assert js("return scalify.views[0].overlay.log") is True
        assert js("return getComputedStyle(document.body).backgroundColor") == "rgb(20, 24, 30)"
        js("scalify.setOverlay('origin')")
        assert "inherited" in d.find_element("id", "legend").text
        js("scalify.setOverlay('error')")
        shot("4_numbers_dark")
        quiet("numbers")

        # Cost and time of a profile.
        traces = ROOT / "tests/traces"
        report = out / "profile.json"
        args = [scalify, "profile", traces / "mlp.hlo.txt", "--trace", traces / "mlp.trace.json.gz"]
        run = subprocess.run([*args, "--json", "--html", out / "profile.html"], cwd=ROOT, capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        report.write_text(run.stdout)
        rows = {r["instruction"]: r for r in json.loads(run.stdout)["instructions"]}
        page = view("profiled.html", traces / "mlp.hlo.txt", "--numbers", report)
        browser.open_page(d, page, "#o=seconds")
        value = js("const v = scalify.views[0]; return v.overlay.values[v.g.find('dot.1')]")
        assert value == rows["dot.1"]["seconds"] and js("return scalify.overlayName") == "seconds"
        js("scalify.setOverlay('bound')")
        assert "compute" in d.find_element("id", "legend").text
        quiet("profile as colours")

        # Pages without scripts: nothing loaded, nothing wider than the window.
        base, wrong = (LAYER / f"{x}.hlo.txt" for x in ["base", "shard_map_wrong"])
        subprocess.run([scalify, "diff", base, wrong, "--html", out / "diff.html", "--quiet"], cwd=ROOT, timeout=100)
        for name, dark in [("profile", False), ("profile", True), ("diff", False), ("diff", True)]:
            scheme = "dark" if dark else "light"
            d.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
            d.get((out / f"{name}.html").resolve().as_uri())
            assert js("return document.documentElement.scrollWidth <= innerWidth"), name
            light = js("return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).every((x) => Number(x) > 200)")
            assert light != dark, (name, scheme)
            assert js("return performance.getEntriesByType('resource').length") == 0
            quiet(f"{name}, {scheme}")
            shot(f"6_{name}_{scheme}")
            if name == "profile":
                marks = js("return [...document.querySelectorAll('svg.chart title')].map((t) => t.textContent)")
                timed = [r for r in rows.values() if r["seconds"] and r["intensity"] and r["collective"] is None]
                assert len(marks) == len(timed), (len(marks), len(timed))
                inside = js("const s = document.querySelector('svg.chart').viewBox.baseVal; return [...document.querySelectorAll('svg.chart circle, svg.chart rect')].every((m) => { const b = m.getBBox(); return b.x >= -30 && b.y >= -30 && b.x + b.width <= s.width + 30 && b.y + b.height <= s.height + 30; })")
                assert inside
            else:
                answer = d.find_element("class name", "answer").text
                assert answer.startswith("The first operation at fault is %"), answer
        d.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})

        # Passes of a dump.
        dump = out / "dump"
        subprocess.run([sys.executable, "-c", DUMP, dump], check=True, capture_output=True, env={**os.environ, "JAX_PLATFORMS": "cpu"})
        page = view("passes.html", dump, "--module-name", "jit_f")
        browser.open_page(d, page)
        count = js("return scalify.facts.passes.length")
        assert count > 3, count
        js("const s = document.getElementById('pass'); s.value = arguments[0]; s.dispatchEvent(new Event('input'))", count - 1)
        until(f"return scalify.pass === {count - 1} && scalify.changes !== null", "the slider moves")
        until("return document.getElementById('passname').textContent.includes('new')", "the pass is named")
        assert js("return scalify.views[0].g.n") > 0 and js("return scalify.overlayName") == "changed by this pass"
        js("document.body.dispatchEvent(new KeyboardEvent('keydown', {key: '[', bubbles: true}))")
        until(f"return scalify.pass === {count - 2}", "keys move the slider")
        shot("5_passes")
        quiet("passes")
    finally:
        d.quit()
    print(f"view: 8 pages, {count} passes; screenshots in {out}")


if __name__ == "__main__":
    main()
