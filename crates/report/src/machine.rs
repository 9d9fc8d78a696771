//! Reports for other machines: SARIF 2.1.0, GitHub annotations and step
//! summary, JUnit. All are made from the JSON report (`docs/JSON.md`).

use serde_json::{Value, json};
use std::fmt::Write;

/// Findings listed at most.
const MAX_FINDINGS: usize = 10;

/// What a team has to look at.
struct Finding<'a> {
    code: &'a str,
    refuted: bool,
    message: String,
    instruction: &'a str,
    source: Option<&'a Value>,
    frames: &'a [Value],
    /// Facts that survive renaming and moving of lines.
    structure: String,
    rank: usize,
}

fn text<'a>(v: &'a Value, key: &str) -> &'a str {
    v.get(key).and_then(Value::as_str).unwrap_or("")
}

fn list<'a>(v: &'a Value, key: &str) -> &'a [Value] {
    v.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn findings(report: &Value) -> Vec<Finding<'_>> {
    let verdict = text(report, "verdict");
    if verdict == "proved" {
        return Vec::new();
    }
    let refuted = verdict == "refuted";
    let (frontier, repairs) = (list(report, "frontier"), list(report, "repairs"));
    let mut out = Vec::new();
    let structure = |item: Option<&Value>, code: &str, source: Option<&Value>| {
        let mut s = format!("{code}|");
        if let Some(i) = item {
            let _ = write!(s, "{} {}|", text(i, "opcode"), text(i, "shape"));
            for o in list(i, "operands") {
                let _ = write!(s, "{} {},", text(o, "opcode"), text(o, "shape"));
            }
        }
        if let Some(f) = source {
            let _ = write!(s, "|{}|{}", text(f, "file"), text(f, "function"));
        }
        s
    };
    if let Some(r) = repairs.first() {
        let source = r.get("source").filter(|s| !s.is_null());
        let item = frontier.iter().find(|f| text(f, "instruction") == text(r, "instruction"));
        let code = text(r, "code");
        out.push(Finding {
            code,
            refuted,
            message: format!("{}; {}", describe(code), text(r, "sentence")),
            instruction: text(r, "instruction"),
            source,
            frames: item.map_or(&[], |i| list(i, "frames")),
            structure: structure(item, code, source),
            rank: 1,
        });
    }
    // Of a refuted program the first finding is the fault; the others only
    // follow from it.
    let rest = if refuted { 1 } else { MAX_FINDINGS };
    for item in frontier.iter().take(rest.saturating_sub(out.len())) {
        let source = item.get("source").filter(|s| !s.is_null());
        let code = text(item, "code");
        let mut message = format!("%{}: {}", text(item, "instruction"), text(item, "reason"));
        if let Some(e) = item.get("expected").and_then(Value::as_str) {
            let _ = write!(message, "; expected {e}");
        }
        out.push(Finding {
            code,
            refuted,
            message,
            instruction: text(item, "instruction"),
            source,
            frames: list(item, "frames"),
            structure: structure(Some(item), code, source),
            rank: out.len() + 1,
        });
    }
    if out.is_empty() {
        let message = match report.get("counterexample") {
            Some(c) if !c.is_null() => "the outputs differ on the counterexample".to_owned(),
            _ => "not proved".to_owned(),
        };
        let code = if refuted { "differs" } else { "unknown" };
        out.push(Finding {
            code,
            refuted,
            message,
            instruction: "",
            source: None,
            frames: &[],
            structure: code.to_owned(),
            rank: 1,
        });
    }
    out
}

/// A path as a relative or `file:` URI.
fn uri(path: &str) -> String {
    let mut out = String::new();
    let path = path.strip_prefix("./").unwrap_or(path);
    if path.starts_with('/') {
        out.push_str("file://");
    }
    for b in path.bytes() {
        match b {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' | b'~' => {
                out.push(char::from(b));
            }
            b'\\' => out.push('/'),
            b => {
                let _ = write!(out, "%{b:02X}");
            }
        }
    }
    out
}

/// FNV-1a, 64 bits, in hexadecimal: the same on every machine and version.
fn fingerprint(s: &str) -> String {
    let hash = s
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}")
}

fn physical(f: &Value) -> Value {
    let mut region = serde_json::Map::new();
    if let Some(l) = f.get("line").and_then(Value::as_u64) {
        region.insert("startLine".into(), json!(l));
        // The report counts columns from 0.
        if let Some(c) = f.get("column").and_then(Value::as_u64) {
            region.insert("startColumn".into(), json!(c + 1));
        }
        if let (Some(c), true) =
            (f.get("end_column").and_then(Value::as_u64), region.contains_key("startColumn"))
        {
            region.insert("endColumn".into(), json!(c + 1));
        }
    }
    let mut v = json!({"artifactLocation": {"uri": uri(text(f, "file"))}});
    if !region.is_empty() {
        v["region"] = Value::Object(region);
    }
    v
}

/// What a rule means, in a sentence.
fn describe(code: &str) -> String {
    let known = match code {
        "missing-all-reduce" => {
            "Partial sums are used without an all-reduce over the mesh axes they are split over"
        }
        "unrelated" | "unknown" => {
            "A value of the distributed program could not be related to the baseline"
        }
        "differs" => "The outputs of the two programs differ on a counterexample",
        "duplicate-collective" => "A collective is applied once more than it should",
        "missing-all-gather" => "A device's block is used where the whole value is needed",
        "missing-collective-permute" => "A value does not travel along the ring with the others",
        "wrong-kind-collective" => "A collective of another kind is needed here",
        "misplaced-all-reduce" => "The all-reduce belongs before or behind other operations",
        "wrong-group" => "A collective runs over other devices than it should",
        "wrong-reducer" => "Devices or elements are combined by another operation than they should",
        "wrong-permute" => "Blocks are sent to other devices than they should",
        "wrong-mesh-axis" => "The coordinate of the device on another mesh axis is taken",
        "wrong-dimension" => {
            "An operation or a collective runs along another dimension than it should"
        }
        "axis-split" => "The blocks of the devices do not make up the whole dimension",
        "wrong-offset" => {
            "A slice, an update, an index or a window starts elsewhere than it should"
        }
        "wrong-mask" => "Other elements are masked than should be",
        "stale-slice" => "An old block, or that of another device, is used or kept",
        "precision" => "The programs compute the same function, but round it differently",
        "duplicated-operand" => "A bias or residual is summed once per device",
        "wrong-operand" => "Another value is used than should be",
        "missing-operand" => "An input is not used where it should be",
        "missing-factor" => "A sum lacks the factor that its terms have",
        "missing-operation" => "An operation of the baseline is missing",
        "extra-operation" => "An operation that the baseline does not have",
        "wrong-trip-count" => "A loop takes another number of steps than it should",
        "wrong-layout" => "A value is laid out over the mesh in another way than its users assume",
        "wrong-scale" => "A value is a multiple of the baseline's value",
        "not-lifted" => "An operation is not understood by the prover",
        "missing-precondition" => {
            "The programs agree only for inputs in a range that was not declared"
        }
        _ => "",
    };
    if known.is_empty() {
        let words = code.replace('-', " ");
        format!("The distributed program differs from the baseline: {words}")
    } else {
        known.to_owned()
    }
}

/// The report as SARIF 2.1.0, pretty-printed with a final newline. Rule ids
/// are `shard/` and the code of the kind of fault; fingerprints are made of
/// opcodes, shapes, file and function, not of names and lines. REFUTED gives
/// one error, UNKNOWN warnings in order of suspicion, PROVED no result.
///
/// # Errors
/// None in practice; an error of the JSON writer is passed on.
pub fn sarif(report: &Value) -> Result<String, serde_json::Error> {
    let found = findings(report);
    let mut codes: Vec<&str> = found.iter().map(|f| f.code).collect();
    codes.sort_unstable();
    codes.dedup();
    let rules: Vec<Value> = codes
        .iter()
        .map(|c| {
            let d = describe(c);
            json!({
                "id": format!("shard/{c}"),
                "shortDescription": {"text": d},
                "fullDescription": {"text": format!("{d}.")},
                "defaultConfiguration": {"level": "error"},
                "properties": {"tags": ["correctness", "sharding"], "precision": "high"},
            })
        })
        .collect();
    let dist = report.get("dist").cloned().unwrap_or_default();
    let mut seen: Vec<(String, usize)> = Vec::new();
    let results: Vec<Value> = found
        .iter()
        .map(|f| {
            let source = f.source.or(f.frames.first());
            let place = source.map_or_else(
                || json!({"artifactLocation": {"uri": uri(text(&dist, "file"))}}),
                physical,
            );
            let mut location = json!({"physicalLocation": place});
            if !f.instruction.is_empty() {
                location["logicalLocations"] = json!([{
                    "name": f.instruction,
                    "fullyQualifiedName": format!("{}/{}", text(&dist, "module"), f.instruction),
                    "kind": "instruction",
                }]);
            }
            let print = fingerprint(&f.structure);
            // Equal structures are told apart by their order.
            let nth = match seen.iter_mut().find(|s| s.0 == print) {
                Some(s) => {
                    s.1 += 1;
                    s.1
                }
                None => {
                    seen.push((print.clone(), 1));
                    1
                }
            };
            let called: Vec<Value> = (f.frames.iter().skip(1).take(8))
                .map(|x| {
                    json!({
                        "physicalLocation": physical(x),
                        "message": {"text": format!("called from {}", text(x, "function"))},
                    })
                })
                .collect();
            let mut r = json!({
                "ruleId": format!("shard/{}", f.code),
                "ruleIndex": codes.iter().position(|c| *c == f.code),
                "level": if f.refuted { "error" } else { "warning" },
                "message": {"text": f.message},
                "locations": [location],
                "partialFingerprints": {"structure/v1": format!("{print}:{nth}")},
                "rank": (100.0 / f.rank as f64),
                "properties": {"verdict": text(report, "verdict"), "baseline": text(&report["base"], "file"), "distributed": text(&dist, "file")},
            });
            if !called.is_empty() {
                r["relatedLocations"] = Value::Array(called);
            }
            r
        })
        .collect();
    let tool = report.get("tool").cloned().unwrap_or_default();
    let log = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "scalify",
                "version": text(&tool, "version"),
                "rules": rules,
            }},
            "columnKind": "utf16CodeUnits",
            "invocations": [{"executionSuccessful": true}],
            "results": results,
        }],
    });
    let mut t = serde_json::to_string_pretty(&log)?;
    t.push('\n');
    Ok(t)
}

/// Text of a workflow command: its data or, with `property`, a property.
fn command(t: &str, property: bool) -> String {
    let t = t.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
    if property { t.replace(':', "%3A").replace(',', "%2C") } else { t }
}

/// Workflow commands that annotate source lines on GitHub, one per line.
pub fn annotations(report: &Value) -> String {
    let mut out = String::new();
    let found = findings(report);
    for f in &found {
        let kind = if f.refuted { "error" } else { "warning" };
        let mut props = Vec::new();
        if let Some(s) = f.source.or(f.frames.first()) {
            let file = text(s, "file");
            props.push(format!("file={}", command(file.strip_prefix("./").unwrap_or(file), true)));
            if let Some(l) = s.get("line").and_then(Value::as_u64) {
                props.push(format!("line={l}"));
                if let Some(c) = s.get("column").and_then(Value::as_u64) {
                    props.push(format!("col={}", c + 1));
                }
            }
        }
        props.push(format!("title={}", command(&format!("shard/{}", f.code), true)));
        let _ = writeln!(out, "::{kind} {}::{}", props.join(","), command(&f.message, false));
    }
    if found.is_empty() {
        let _ = writeln!(
            out,
            "::notice title=scalify::{}",
            command(
                &format!("PROVED ({}): {}", text(report, "grade"), text(&report["dist"], "file")),
                false
            )
        );
    }
    out
}

/// A cell of a Markdown table.
fn cell(t: &str) -> String {
    t.replace('\\', "\\\\").replace('|', "\\|").replace('<', "&lt;").replace(['\n', '\r'], " ")
}

/// The report as Markdown, for a step summary.
pub fn markdown(report: &Value) -> String {
    let verdict = text(report, "verdict").to_uppercase();
    let grade = report.get("grade").and_then(Value::as_str);
    let mut out = format!(
        "### {verdict}{} `{}`\n\nagainst `{}`\n\n",
        grade.map(|g| format!(" ({g})")).unwrap_or_default(),
        text(&report["dist"], "file").replace('`', "'"),
        text(&report["base"], "file").replace('`', "'"),
    );
    for f in findings(report) {
        let at = f.source.or(f.frames.first()).map(|s| {
            let line = s.get("line").and_then(Value::as_u64);
            format!("`{}{}` ", text(s, "file"), line.map(|l| format!(":{l}")).unwrap_or_default())
        });
        let _ =
            writeln!(out, "- **shard/{}** {}{}", f.code, at.unwrap_or_default(), cell(&f.message));
    }
    let outputs = list(report, "outputs");
    if !outputs.is_empty() {
        out.push_str("\n| output | verdict | shape | relation |\n|---|---|---|---|\n");
    }
    for o in outputs.iter().take(100) {
        let relation = o.get("relation").map(|r| text(r, "text")).unwrap_or("");
        let reason = if relation.is_empty() { text(o, "reason") } else { relation };
        let _ = writeln!(
            out,
            "| #{} {} | {} | {} | {} |",
            o["index"],
            cell(text(o, "name")),
            text(o, "verdict"),
            cell(text(o, "shape")),
            cell(reason)
        );
    }
    if outputs.len() > 100 {
        let _ = writeln!(out, "| … {} more | | | |", outputs.len() - 100);
    }
    let assumptions = list(report, "assumptions");
    if !assumptions.is_empty() {
        out.push_str("\nAssumptions:\n\n");
    }
    for a in assumptions.iter().take(50) {
        let _ = writeln!(out, "- {}", cell(text(a, "text")));
    }
    out
}

/// Text for XML: characters that XML 1.0 forbids are replaced.
fn xml(t: &str) -> String {
    let mut out = String::with_capacity(t.len());
    for c in t.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\t' | '\n' | '\r' => out.push(' '),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// The report as JUnit XML: a test case per output. A refuted output is a
/// failure, one that is not proved an error.
pub fn junit(report: &Value) -> String {
    let outputs = list(report, "outputs");
    let (mut cases, mut failures, mut errors) = (String::new(), 0, 0);
    let class = xml(text(&report["dist"], "file"));
    let verdict = text(report, "verdict");
    let first = findings(report).into_iter().next().map(|f| f.message).unwrap_or_default();
    let mut case = |name: &str, state: &str, reason: &str| {
        let _ = write!(cases, "    <testcase classname=\"{class}\" name=\"{}\"", xml(name));
        let tag = match state {
            "proved" => {
                cases.push_str("/>\n");
                return;
            }
            "refuted" => {
                failures += 1;
                "failure"
            }
            _ => {
                errors += 1;
                "error"
            }
        };
        let _ =
            writeln!(cases, "><{tag} type=\"{state}\" message=\"{}\"/></testcase>", xml(reason));
    };
    for o in outputs {
        let reason = o.get("reason").and_then(Value::as_str).unwrap_or(&first);
        case(&format!("#{} {}", o["index"], text(o, "name")), text(o, "verdict"), reason);
    }
    let open = outputs.iter().all(|o| text(o, "verdict") == "proved");
    if outputs.is_empty() || (open && verdict != "proved") {
        case("verdict", verdict, &first);
    }
    let total = cases.lines().count();
    let seconds = report["stats"]["seconds"].as_f64().unwrap_or(0.0);
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"scalify\" tests=\"{total}\" failures=\"{failures}\" errors=\"{errors}\" skipped=\"0\" time=\"{seconds:.3}\">\n{cases}  </testsuite>\n</testsuites>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes() {
        assert_eq!(command("50%\na:b,c", false), "50%25%0Aa:b,c");
        assert_eq!(command("a:b,c", true), "a%3Ab%2Cc");
        assert_eq!(xml("a<b>&\"\u{1}"), "a&lt;b&gt;&amp;&quot;\u{fffd}");
        assert_eq!(uri("./my model.py"), "my%20model.py");
        assert_eq!(uri("/x/y.py"), "file:///x/y.py");
        // Test vector of the FNV reference.
        assert_eq!(fingerprint("a"), "af63dc4c8601ec8c");
    }
}
