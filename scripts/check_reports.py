"""Reports for machines: SARIF against the schema of OASIS, JUnit as XML,
annotations, and the script of the example workflow.

usage: check_reports.py SCALIFY [--write]    (--write: docs/example.sarif anew)
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

import jsonschema

ROOT = Path(__file__).resolve().parent.parent
LAYER = ROOT / "examples/llama_layer"


def verify(scalify, tmp, base, dist, *more):
    files = {k: tmp / f"out.{k}" for k in ["sarif", "junit", "html"]}
    args = [f"--{k}={f}" for k, f in files.items()]
    summary = tmp / "summary.md"
    summary.unlink(missing_ok=True)
    env = {**os.environ, "GITHUB_STEP_SUMMARY": str(summary)}
    r = subprocess.run([scalify, "verify", base, dist, *args, "--github", "--quiet", *more],
                       cwd=ROOT, capture_output=True, text=True, env=env)
    assert r.returncode in (0, 1, 3), r.stderr
    return r, {k: f.read_text() for k, f in files.items()}, summary.read_text()


def main():
    scalify = Path(sys.argv[1]).resolve()
    schema = json.loads((ROOT / "tests/schemas/sarif-2.1.0.schema.json").read_text())
    validator = jsonschema.Draft7Validator(schema)

    def check(sarif):
        log = json.loads(sarif)
        errors = list(validator.iter_errors(log))
        assert not errors, [e.message for e in errors[:3]]
        for r in log["runs"][0]["results"]:
            rule = log["runs"][0]["tool"]["driver"]["rules"][r["ruleIndex"]]
            assert rule["id"] == r["ruleId"]
        return log["runs"][0]["results"]

    with tempfile.TemporaryDirectory() as t:
        tmp = Path(t)
        base = "examples/llama_layer/base.hlo.txt"
        wrong = "examples/llama_layer/shard_map_wrong.hlo.txt"
        r, out, summary = verify(scalify, tmp, base, wrong)
        results = check(out["sarif"])
        assert r.returncode == 1 and len(results) == 1 and results[0]["level"] == "error"
        assert results[0]["ruleId"] == "shard/missing-all-reduce"
        place = results[0]["locations"][0]["physicalLocation"]
        source = (ROOT / place["artifactLocation"]["uri"]).read_text().splitlines()
        region = place["region"]
        code = source[region["startLine"] - 1][region["startColumn"] - 1:region["endColumn"] - 1]
        assert code.endswith('@ w["down"]'), code
        note = re.search(r"^::error file=(.*),line=(\d+),col=(\d+),title=shard/missing-all-reduce::", r.stdout, re.M)
        assert note and int(note[2]) == region["startLine"] and int(note[3]) == region["startColumn"], r.stdout
        assert "### REFUTED" in summary and "| #0 output | refuted |" in summary, summary
        suite = ET.fromstring(out["junit"]).find("testsuite")
        assert (suite.get("tests"), suite.get("failures")) == ("1", "1")
        for part in ["REFUTED", "expected", "device 3", "dim 2 / tp", "+ %repair"]:
            assert part in out["html"], part
        assert "<script" not in out["html"] and "http://" not in out["html"].replace("http-equiv", "")

        # The fingerprint survives renaming and moving of lines.
        text = (ROOT / wrong).read_text()
        moved = re.sub(r"dot_general\.(\d+)", r"product.\1", text).replace("line=39", "line=40")
        (tmp / "moved.hlo.txt").write_text(moved)
        _, again, _ = verify(scalify, tmp, base, tmp / "moved.hlo.txt")
        prints = [x[0]["partialFingerprints"] for x in (results, check(again["sarif"]))]
        assert prints[0] == prints[1], prints

        # Proved: no result. Unknown: warnings.
        r, out2, summary = verify(scalify, tmp, base, "examples/llama_layer/shard_map.hlo.txt")
        assert r.returncode == 0 and check(out2["sarif"]) == [] and "PROVED" in summary
        assert ET.fromstring(out2["junit"]).find("testsuite").get("failures") == "0"
        r, out2, _ = verify(scalify, tmp, base, wrong, "--no-refute")
        results = check(out2["sarif"])
        assert r.returncode == 3 and results and all(x["level"] == "warning" for x in results)
        assert ET.fromstring(out2["junit"]).find("testsuite").get("errors") == "1"

        # The script of the example workflow fails for the wrong model only.
        for models, expected in [({"good": "shard_map"}, 0), ({"good": "shard_map", "bad": "shard_map_wrong"}, 1), ({}, 2)]:
            folder = tmp / f"models{len(models)}"
            folder.mkdir()
            for name, dist in models.items():
                (folder / name).mkdir()
                (folder / name / "base.hlo.txt").write_text((LAYER / "base.hlo.txt").read_text())
                (folder / name / "dist.hlo.txt").write_text((LAYER / f"{dist}.hlo.txt").read_text())
            r = subprocess.run([ROOT / "examples/github/verify_models.sh", folder, tmp / "reports"], cwd=ROOT,
                               capture_output=True, text=True, env={**os.environ, "SCALIFY": str(scalify)})
            assert r.returncode == expected, (r.returncode, r.stderr)
        assert {f.name for f in (tmp / "reports").iterdir()} >= {"good.sarif", "bad.sarif", "bad.xml", "bad.html"}
        check((tmp / "reports/bad.sarif").read_text())

        example = ROOT / "docs/example.sarif"
        if "--write" in sys.argv:
            example.write_text(out["sarif"])
        shown = check(example.read_text())
        rules = [[r["ruleId"] for r in x] for x in (shown, check(out["sarif"]))]
        assert rules[0] == rules[1], "docs/example.sarif is old: run with --write"
    print("reports: SARIF fits the schema; JUnit, annotations, summary, workflow script")


if __name__ == "__main__":
    main()
