//! Cases of which only the partitioner's record is kept: `base.input.hlo.txt`
//! and, per partitioner, `<name>.post_spmd.hlo.txt` with `<name>.io.json`.

use crate::{Case, Kept, MeshJson, Value};
use anyhow::Context;
use serde::Deserialize;
use std::path::Path;

/// `<name>.io.json`.
#[derive(Clone, Debug, Deserialize)]
struct Io {
    mesh: Option<MeshJson>,
    /// Axis sizes by name, in order (MaxText).
    mesh_axes: Option<Axes>,
    inputs: Option<Vec<Place>>,
    outputs: Option<Vec<Place>>,
    kept_var_idx: Option<Vec<usize>>,
}

#[derive(Clone, Debug, Deserialize)]
struct Place {
    #[serde(default)]
    path: String,
    spec: Option<String>,
}

/// A JSON object of numbers, in its order.
#[derive(Clone, Debug)]
struct Axes(Vec<(String, i64)>);

impl<'de> Deserialize<'de> for Axes {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> serde::de::Visitor<'de> for Pairs {
            type Value = Axes;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object of axis sizes")
            }
            fn visit_map<M: serde::de::MapAccess<'de>>(self, mut m: M) -> Result<Axes, M::Error> {
                let mut out = Vec::new();
                while let Some(e) = m.next_entry()? {
                    out.push(e);
                }
                Ok(Axes(out))
            }
        }
        d.deserialize_map(Pairs)
    }
}

/// Reads the case that a partitioner recorded in a folder. Both modules are
/// right by construction.
///
/// # Errors
/// If the record is missing, not of this form, or says that it failed.
pub fn read(dir: &Path, partitioner: &str) -> anyhow::Result<Case> {
    let path = dir.join(format!("{partitioner}.io.json"));
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let io: Io = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
    let values = |v: Option<Vec<Place>>| -> anyhow::Result<Vec<Value>> {
        let list = v.with_context(|| format!("{}: no inputs or outputs", path.display()))?;
        list.into_iter()
            .map(|p| {
                let spec = p.spec.as_deref().map(parse).transpose()?;
                Ok(Value { name: p.path, spec, range: None })
            })
            .collect()
    };
    let (inputs, outputs) = (values(io.inputs)?, values(io.outputs)?);
    let kept = io.kept_var_idx.unwrap_or_else(|| (0..inputs.len()).collect());
    let mesh = match (io.mesh, io.mesh_axes) {
        (Some(m), _) => m,
        (None, Some(a)) => {
            let (axes, shape) = a.0.into_iter().unzip();
            MeshJson { axes, shape }
        }
        (None, None) => anyhow::bail!("{}: no mesh", path.display()),
    };
    Ok(Case {
        name: dir.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default(),
        family: String::new(),
        parallelism: partitioner.to_owned(),
        mesh,
        inputs,
        outputs,
        expected: "equivalent".to_owned(),
        bug: None,
        kept_inputs: Some(Kept { base: kept.clone(), dist: kept }),
    })
}

/// The text of a partition spec, e.g. `P('x', None, ('y', 'z'))`.
fn parse(text: &str) -> anyhow::Result<Vec<Option<Vec<String>>>> {
    let inner = text
        .trim()
        .strip_prefix("P(")
        .and_then(|t| t.strip_suffix(')'))
        .with_context(|| format!("expected P(...), found {text}"))?;
    let mut out = Vec::new();
    let mut group: Option<Vec<String>> = None;
    for part in inner.split_inclusive([',', '(', ')']) {
        let (word, end) = match part.char_indices().last() {
            Some((i, c)) if matches!(c, ',' | '(' | ')') => (part[..i].trim(), c),
            _ => (part.trim(), ','),
        };
        let name = word.trim_matches(['\'', '"']);
        match (&mut group, name) {
            (_, "") => {}
            (Some(g), n) => g.push(n.to_owned()),
            (None, "None") => out.push(None),
            (None, n) => out.push(Some(vec![n.to_owned()])),
        }
        match end {
            '(' => group = Some(Vec::new()),
            ')' => out.push(group.take()),
            _ => {}
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn specs_of_axes_and_tuples() {
        let s = |x: &str| x.to_owned();
        assert_eq!(parse("P()").unwrap(), vec![]);
        assert_eq!(parse("P('x',)").unwrap(), vec![Some(vec![s("x")])]);
        assert_eq!(
            parse("P(('x', 'y'), None, 'z')").unwrap(),
            vec![Some(vec![s("x"), s("y")]), None, Some(vec![s("z")])]
        );
        assert!(parse("x").is_err());
    }
}
