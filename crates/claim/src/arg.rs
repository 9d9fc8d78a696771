//! The claim and its command-line strings.

use crate::cursor::{Cursor, ParseError};
use crate::mesh::Mesh;
use crate::port::Port;
use crate::spec::PartitionSpec;
use std::fmt;

/// Names an input or output.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Selector {
    /// `#3`: position in the flattened list, from 0.
    Index(usize),
    /// Parameter name or argument path; `*` stands for any text.
    Name(String),
}

/// `NAME in [LO, HI]`: an integer input lies in an inclusive range.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Assume {
    /// Which input.
    pub selector: Selector,
    /// Least value.
    pub lo: i64,
    /// Greatest value, not below `lo`.
    pub hi: i64,
}

/// What the user declares about the two programs. Everything is optional;
/// what is not declared comes from annotations or inference. Of several
/// entries for one value the last one counts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Claim {
    /// Device mesh.
    pub mesh: Option<Mesh>,
    /// Layouts of inputs.
    pub inputs: Vec<(Selector, PartitionSpec)>,
    /// Layouts of outputs.
    pub outputs: Vec<(Selector, PartitionSpec)>,
    /// Ranges of integer inputs.
    pub assume: Vec<Assume>,
    /// Baseline input and the distributed input that stands for it.
    pub pairs: Vec<(Selector, Selector)>,
    /// Inputs of a pipeline's stages and the outputs of other stages that they
    /// take.
    pub links: Vec<(Port, Port)>,
    /// Outputs of stages that are the outputs of the pipeline, in order.
    pub results: Vec<Port>,
    /// Both programs are what one device of many runs, and take the device's
    /// own inputs; else that is told from the collectives of the first.
    pub per_device: bool,
}

impl Selector {
    /// Parses `#3` or a name.
    ///
    /// # Errors
    /// An empty text or a bad number after `#`.
    pub fn parse(text: &str) -> Result<Selector, ParseError> {
        let t = text.trim();
        match t.strip_prefix('#') {
            Some(n) => match n.parse() {
                Ok(i) => Ok(Selector::Index(i)),
                Err(_) => {
                    let at = text.find('#').unwrap_or(0) + 1;
                    Err(ParseError::new(text, at, "a position from 0 after `#`"))
                }
            },
            None if t.is_empty() => Err(ParseError::new(text, 0, "`#N` or a name")),
            None => Ok(Selector::Name(t.to_string())),
        }
    }

    /// True if it selects the value at `index` that is known as any of
    /// `names`.
    pub fn matches(&self, index: usize, names: &[&str]) -> bool {
        match self {
            Selector::Index(i) => *i == index,
            Selector::Name(p) => names.iter().any(|n| glob(p, n)),
        }
    }
}

/// `*` matches any text, every other character itself.
fn glob(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or("");
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for p in parts {
        match rest.find(p) {
            Some(i) => rest = rest.get(i + p.len()..).unwrap_or(""),
            None => return false,
        }
    }
    rest.ends_with(last)
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Selector::Index(i) => write!(f, "#{i}"),
            Selector::Name(n) => f.write_str(n),
        }
    }
}

fn moved(e: ParseError, text: &str, by: usize) -> ParseError {
    ParseError::new(text, e.at + by, e.expected)
}

/// `SELECTOR=SPEC`, split at the first `=` that a spec follows.
fn layout(text: &str) -> Result<(Selector, PartitionSpec), ParseError> {
    let split = text
        .match_indices('=')
        .map(|m| m.0)
        .find(|i| PartitionSpec::begins(text.get(i + 1..).unwrap_or("")))
        .or_else(|| text.find('='));
    let Some(i) = split else {
        return Err(ParseError::new(text, text.len(), "`=` and a partition spec after the name"));
    };
    let name = text.get(..i).unwrap_or("");
    let spec = text.get(i + 1..).unwrap_or("");
    let selector = Selector::parse(name).map_err(|e| moved(e, text, 0))?;
    let spec = PartitionSpec::parse(spec).map_err(|e| moved(e, text, i + 1))?;
    Ok((selector, spec))
}

impl Assume {
    /// Parses `NAME in [LO, HI]`.
    ///
    /// # Errors
    /// What was expected and where.
    pub fn parse(text: &str) -> Result<Assume, ParseError> {
        let Some(i) = text.rfind(" in ") else {
            return Err(ParseError::new(text, text.len(), "`NAME in [LO, HI]`"));
        };
        let selector =
            Selector::parse(text.get(..i).unwrap_or("")).map_err(|e| moved(e, text, 0))?;
        let mut c = Cursor::new(text);
        c.at = i + 4;
        let at = c.at;
        let v = c.list("[", "]", Cursor::int)?;
        c.end()?;
        let [lo, hi] = v.as_slice() else {
            return Err(ParseError::new(text, at, "two bounds `[LO, HI]`"));
        };
        if lo > hi {
            return Err(ParseError::new(text, at, "a lower bound that is not above the upper one"));
        }
        Ok(Assume { selector, lo: *lo, hi: *hi })
    }
}

impl Claim {
    /// Adds `--in` `SELECTOR=SPEC`.
    ///
    /// # Errors
    /// What was expected and where.
    pub fn add_input(&mut self, text: &str) -> Result<(), ParseError> {
        self.inputs.push(layout(text)?);
        Ok(())
    }

    /// Adds `--out` `SELECTOR=SPEC`.
    ///
    /// # Errors
    /// What was expected and where.
    pub fn add_output(&mut self, text: &str) -> Result<(), ParseError> {
        self.outputs.push(layout(text)?);
        Ok(())
    }

    /// Adds `--assume` `NAME in [LO, HI]`.
    ///
    /// # Errors
    /// What was expected and where.
    pub fn add_assume(&mut self, text: &str) -> Result<(), ParseError> {
        self.assume.push(Assume::parse(text)?);
        Ok(())
    }

    /// Adds `--pair` `BASE=DIST`, split at the first `=`.
    ///
    /// # Errors
    /// What was expected and where.
    pub fn add_pair(&mut self, text: &str) -> Result<(), ParseError> {
        let Some((b, d)) = text.split_once('=') else {
            return Err(ParseError::new(text, text.len(), "`=` and the distributed input"));
        };
        let base = Selector::parse(b).map_err(|e| moved(e, text, 0))?;
        let dist = Selector::parse(d).map_err(|e| moved(e, text, b.len() + 1))?;
        self.pairs.push((base, dist));
        Ok(())
    }

    /// Takes over `other`; its entries come after and so override.
    pub fn extend(&mut self, other: Claim) {
        self.mesh = other.mesh.or(self.mesh.take());
        self.inputs.extend(other.inputs);
        self.outputs.extend(other.outputs);
        self.assume.extend(other.assume);
        self.pairs.extend(other.pairs);
        self.links.extend(other.links);
        self.results.extend(other.results);
        self.per_device |= other.per_device;
    }

    /// The declared layout of the input at `index` known as `names`.
    pub fn input_spec(&self, index: usize, names: &[&str]) -> Option<&PartitionSpec> {
        last(&self.inputs, index, names)
    }

    /// The declared layout of the output at `index` known as `names`.
    pub fn output_spec(&self, index: usize, names: &[&str]) -> Option<&PartitionSpec> {
        last(&self.outputs, index, names)
    }
}

fn last<'a>(
    list: &'a [(Selector, PartitionSpec)],
    index: usize,
    names: &[&str],
) -> Option<&'a PartitionSpec> {
    list.iter().rev().find(|(s, _)| s.matches(index, names)).map(|(_, p)| p)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings() {
        let mut c = Claim::default();
        c.add_input("#0=P(None,\"tp\")").unwrap();
        c.add_input("P_[0]['a=b']=P('tp')").unwrap();
        c.add_output(" #1 = PartitionSpec()").unwrap();
        c.add_assume("tokens in [0, 31_999]").unwrap();
        c.add_assume("#2 in [-1,1]").unwrap();
        c.add_pair("x=args.x").unwrap();
        assert_eq!(c.inputs[0].0, Selector::Index(0));
        assert_eq!(c.inputs[1].0, Selector::Name("P_[0]['a=b']".into()));
        assert_eq!(c.outputs[0].0, Selector::Index(1));
        assert_eq!(
            c.assume[0],
            Assume { selector: Selector::Name("tokens".into()), lo: 0, hi: 31999 }
        );
        assert_eq!(c.pairs[0].1, Selector::Name("args.x".into()));
        assert_eq!(c.input_spec(0, &["w"]).unwrap().to_string(), "P(None, 'tp')");
        c.add_input("*=P()").unwrap();
        assert!(c.input_spec(0, &["w"]).unwrap().is_replicated());
    }

    #[test]
    fn errors_point_into_the_string() {
        let mut c = Claim::default();
        let e = c.add_input("#0=P(None tp)").unwrap_err();
        assert_eq!((e.at, e.expected.as_str()), (10, "`,` or `)`"));
        assert_eq!(c.add_input("x=Q()").unwrap_err().at, 2);
        assert_eq!(c.add_input("x").unwrap_err().at, 1);
        assert_eq!(c.add_input("#x=P()").unwrap_err().at, 1);
        assert_eq!(c.add_input("=P()").unwrap_err().at, 0);
        assert!(c.add_assume("x in [3, 1]").unwrap_err().expected.contains("not above"));
        assert!(c.add_assume("x in [3]").unwrap_err().expected.contains("two bounds"));
        assert!(c.add_assume("x [3]").is_err());
        assert!(c.add_pair("x").is_err());
        assert!(c.inputs.is_empty() && c.assume.is_empty());
    }

    #[test]
    fn globs() {
        let m = |p: &str, t: &str| Selector::Name(p.into()).matches(9, &[t]);
        assert!(m("layers[*].wq", "layers[12].wq"));
        assert!(!m("layers[*].wq", "layers[12].wk"));
        assert!(m("*", "") && m("a*b*c", "abbc") && !m("a*b*c", "acb"));
        assert!(m("x", "x") && !m("x", "xy") && !m("ab*ba", "aba"));
        assert!(Selector::Index(9).matches(9, &[]));
    }
}
