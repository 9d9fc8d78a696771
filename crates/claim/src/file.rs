//! Spec files: a claim in TOML or JSON. The format is described in
//! `docs/SPEC.md`; unknown keys are errors.

use crate::arg::{Assume, Claim, Selector};
use crate::mesh::Mesh;
use crate::port::Port;
use crate::spec::PartitionSpec;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;

/// Format of a spec file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileFormat {
    /// TOML 1.
    Toml,
    /// JSON.
    Json,
}

/// A spec file that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct SpecFileError {
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1.
    pub column: usize,
    /// What is wrong and what was expected.
    pub message: String,
}

/// Parses a spec file. Without `format`, text whose first character is `{`
/// is JSON and everything else TOML.
///
/// # Errors
/// Bad syntax, unknown or repeated keys, bad meshes and specs, with position.
pub fn parse_spec_file(text: &str, format: Option<FileFormat>) -> Result<Claim, SpecFileError> {
    let json = text.trim_start().starts_with('{');
    let format = format.unwrap_or(if json { FileFormat::Json } else { FileFormat::Toml });
    let file: SpecFile = match format {
        FileFormat::Json => serde_json::from_str(text).map_err(|e| SpecFileError {
            line: e.line(),
            column: e.column(),
            message: bare(&e.to_string()),
        })?,
        FileFormat::Toml => toml::from_str(text).map_err(|e| {
            let at = e.span().map_or(0, |s| s.start);
            let before = text.get(..at).unwrap_or("");
            let line_start = before.rfind('\n').map_or(0, |i| i + 1);
            SpecFileError {
                line: before.matches('\n').count() + 1,
                column: before.get(line_start..).unwrap_or("").chars().count() + 1,
                message: e.message().to_string(),
            }
        })?,
    };
    Ok(Claim {
        mesh: file.mesh.map(|m| m.0),
        inputs: file.inputs.0.into_iter().map(|(k, v)| (k, v.0)).collect(),
        outputs: file.outputs.0.into_iter().map(|(k, v)| (k, v.0)).collect(),
        assume: file
            .assume
            .0
            .into_iter()
            .map(|(selector, r)| Assume { selector, lo: r.0, hi: r.1 })
            .collect(),
        pairs: file.pairs.0.into_iter().map(|(k, v)| (k, v.0)).collect(),
        links: file.links.0,
        results: file.results.into_iter().map(|p| p.0).collect(),
        per_device: false,
    })
}

/// Without serde_json's " at line L column C".
fn bare(text: &str) -> String {
    text.rfind(" at line ").map_or(text, |i| text.get(..i).unwrap_or(text)).to_string()
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct SpecFile {
    mesh: Option<MeshField>,
    #[serde(default, rename = "in")]
    inputs: Entries<SpecField>,
    #[serde(default, rename = "out")]
    outputs: Entries<SpecField>,
    #[serde(default)]
    assume: Entries<RangeField>,
    #[serde(default, rename = "pair")]
    pairs: Entries<SelectorField>,
    #[serde(default, rename = "link")]
    links: Links,
    #[serde(default)]
    results: Vec<OutputField>,
}

/// `"1:x" = "0:#0"`: input and output, in file order.
#[derive(Default)]
struct Links(Vec<(Port, Port)>);

impl<'de> Deserialize<'de> for Links {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Links;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table with inputs as `1:x` as keys")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut m: A) -> Result<Self::Value, A::Error> {
                let mut out: Vec<(Port, Port)> = Vec::new();
                while let Some(k) = m.next_key::<String>()? {
                    let to = Port::parse(&k).map_err(A::Error::custom)?;
                    if out.iter().any(|l| l.0 == to) {
                        return Err(A::Error::custom(format!("the key `{k}` repeats")));
                    }
                    out.push((to, m.next_value::<OutputField>()?.0));
                }
                Ok(Links(out))
            }
        }
        d.deserialize_map(V)
    }
}

struct OutputField(Port);

impl<'de> Deserialize<'de> for OutputField {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl Visitor<'_> for V {
            type Value = OutputField;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an output such as `0:#1`")
            }
            fn visit_str<E: Error>(self, s: &str) -> Result<Self::Value, E> {
                Port::parse_output(s).map(OutputField).map_err(E::custom)
            }
        }
        d.deserialize_str(V)
    }
}

/// A table in file order.
struct Entries<T>(Vec<(Selector, T)>);

impl<T> Default for Entries<T> {
    fn default() -> Self {
        Entries(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Entries<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for V<T> {
            type Value = Entries<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table with `#N` or names as keys")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut m: A) -> Result<Self::Value, A::Error> {
                let mut out: Vec<(Selector, T)> = Vec::new();
                let mut seen = hashbrown::HashSet::<Selector, rustc_hash::FxBuildHasher>::default();
                while let Some(k) = m.next_key::<SelectorField>()? {
                    if !seen.insert(k.0.clone()) {
                        return Err(A::Error::custom(format!("the key `{}` repeats", k.0)));
                    }
                    out.push((k.0, m.next_value()?));
                }
                Ok(Entries(out))
            }
        }
        d.deserialize_map(V(PhantomData))
    }
}

struct SelectorField(Selector);

impl<'de> Deserialize<'de> for SelectorField {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl Visitor<'_> for V {
            type Value = SelectorField;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`#N` or a name")
            }
            fn visit_str<E: Error>(self, s: &str) -> Result<Self::Value, E> {
                Selector::parse(s).map(SelectorField).map_err(E::custom)
            }
        }
        d.deserialize_str(V)
    }
}

/// `"dp=2,tp=4"` or `{ axes = ["dp", "tp"], shape = [2, 4] }`.
struct MeshField(Mesh);

impl<'de> Deserialize<'de> for MeshField {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = MeshField;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mesh such as \"dp=2,tp=4\" or a table with `axes` and `shape`")
            }
            fn visit_str<E: Error>(self, s: &str) -> Result<Self::Value, E> {
                Mesh::parse(s).map(MeshField).map_err(E::custom)
            }
            fn visit_map<A: MapAccess<'de>>(self, mut m: A) -> Result<Self::Value, A::Error> {
                let (mut axes, mut shape): (Option<Vec<String>>, Option<Vec<i64>>) = (None, None);
                while let Some(k) = m.next_key::<String>()? {
                    match k.as_str() {
                        "axes" => axes = Some(m.next_value()?),
                        "shape" => shape = Some(m.next_value()?),
                        _ => return Err(A::Error::unknown_field(&k, &["axes", "shape"])),
                    }
                }
                let axes = axes.ok_or_else(|| A::Error::missing_field("axes"))?;
                let shape = shape.ok_or_else(|| A::Error::missing_field("shape"))?;
                if axes.len() != shape.len() {
                    return Err(A::Error::custom("expected as many `axes` as sizes in `shape`"));
                }
                Mesh::new(axes.into_iter().zip(shape).collect())
                    .map(MeshField)
                    .map_err(|e| A::Error::custom(format!("expected {e}")))
            }
        }
        d.deserialize_any(V)
    }
}

/// `"P(None, 'tp')"` or `[null, "tp", ["dp", "sp"]]` (`[]` for null in TOML).
struct SpecField(PartitionSpec);

impl<'de> Deserialize<'de> for SpecField {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = SpecField;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a partition spec such as \"P(None, 'tp')\" or an array")
            }
            fn visit_str<E: Error>(self, s: &str) -> Result<Self::Value, E> {
                PartitionSpec::parse(s).map(SpecField).map_err(E::custom)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut s: A) -> Result<Self::Value, A::Error> {
                let mut dims = Vec::new();
                while let Some(DimField(axes)) = s.next_element()? {
                    dims.push(axes);
                }
                Ok(SpecField(PartitionSpec { dims }))
            }
        }
        d.deserialize_any(V)
    }
}

struct DimField(Vec<String>);

impl<'de> Deserialize<'de> for DimField {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = DimField;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mesh axis, an array of mesh axes, or null")
            }
            fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
                Ok(DimField(Vec::new()))
            }
            fn visit_str<E: Error>(self, s: &str) -> Result<Self::Value, E> {
                Ok(DimField(vec![s.to_string()]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut s: A) -> Result<Self::Value, A::Error> {
                let mut axes = Vec::new();
                while let Some(a) = s.next_element::<String>()? {
                    axes.push(a);
                }
                Ok(DimField(axes))
            }
        }
        d.deserialize_any(V)
    }
}

/// `[LO, HI]`.
struct RangeField(i64, i64);

impl<'de> Deserialize<'de> for RangeField {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let v = Vec::<i64>::deserialize(d)?;
        match v.as_slice() {
            [lo, hi] if lo <= hi => Ok(RangeField(*lo, *hi)),
            [_, _] => {
                Err(D::Error::custom("expected a lower bound that is not above the upper one"))
            }
            _ => Err(D::Error::custom("expected two bounds [LO, HI]")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOML: &str = r##"
mesh = "dp=2,tp=4"
[in]
"#1" = "P(None, 'tp')"
"params.*.wq" = [[], "tp", ["dp", "tp"]]
"#0" = "P()"
[out]
"#0" = "P('dp')"
[assume]
tokens = [0, 31999]
[pair]
x = "args[0]"
"##;

    #[test]
    fn toml_and_json_agree() {
        let t = parse_spec_file(TOML, None).unwrap();
        let j = parse_spec_file(
            r##"{"mesh": {"axes": ["dp", "tp"], "shape": [2, 4]},
                "in": {"#1": "P(None, 'tp')", "params.*.wq": [null, "tp", ["dp", "tp"]], "#0": []},
                "out": {"#0": ["dp"]}, "assume": {"tokens": [0, 31999]}, "pair": {"x": "args[0]"}}"##,
            None,
        )
        .unwrap();
        assert_eq!(t, j);
        assert_eq!(t.inputs[0].0, Selector::Index(1));
        assert_eq!(t.inputs[1].1.to_string(), "P(None, 'tp', ('dp', 'tp'))");
        assert_eq!(t.mesh.unwrap().devices(), 8);
    }

    #[test]
    fn errors_have_positions() {
        let e = |s: &str| parse_spec_file(s, None).unwrap_err();
        let x = e("mesh = \"dp=2\"\nmesch = 3\n");
        assert_eq!((x.line, x.column), (2, 1));
        assert!(x.message.contains("unknown field `mesch`"), "{x}");
        let x = e("[in]\nx = \"P(tp)\"\n");
        assert_eq!((x.line, x.column), (2, 5));
        assert!(x.message.contains("expected `None`, an axis in quotes"), "{x}");
        let x = e("[in]\nx = 3\n");
        assert_eq!(x.line, 2);
        assert!(x.message.contains("partition spec"), "{x}");
        let x = e("{\"in\": {\"x\": \"P()\",\n \"x\": \"P()\"}}");
        assert_eq!(x.line, 2);
        assert!(x.message.contains("repeats"), "{x}");
        let x = e("{\"bad\": 1}");
        assert_eq!(x.line, 1);
        assert!(x.message.contains("unknown field `bad`"), "{x}");
        assert!(e("[assume]\nx = [2, 1]\n").message.contains("not above"));
        assert!(e("[in]\n\"#a\" = \"P()\"\n").message.contains("after `#`"));
        assert!(e("mesh = {axes=['a'], shape=[1,2]}").message.contains("as many"));
        assert!(e("mesh = {axes=['a'], shapes=[1]}").message.contains("shapes"));
    }
}
