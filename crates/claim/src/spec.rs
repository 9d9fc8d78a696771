//! Partition specs in JAX's notation.

use crate::cursor::{Cursor, ParseError, Res};
use std::fmt;

/// Which mesh axes split each dimension of an array: JAX's `PartitionSpec`.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct PartitionSpec {
    /// Mesh axes per dimension, major first; empty: not split. Dimensions
    /// after the last entry are not split.
    pub dims: Vec<Vec<String>>,
}

impl PartitionSpec {
    /// Parses `P()`, `P(None, "tp")`, `P(('dp','tp'), None)`, with
    /// `PartitionSpec` or `jax.sharding.PartitionSpec` for `P` too.
    ///
    /// # Errors
    /// What was expected and where.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let mut c = Cursor::new(text);
        let spec = Self::read(&mut c)?;
        c.end()?;
        Ok(spec)
    }

    /// True if `text` begins like a spec.
    pub(crate) fn begins(text: &str) -> bool {
        let word = Cursor::new(text).word().unwrap_or("");
        matches!(word.rsplit('.').next(), Some("P" | "PartitionSpec"))
    }

    pub(crate) fn read(c: &mut Cursor<'_>) -> Res<Self> {
        c.space();
        if !Self::begins(c.rest()) {
            return c.fail("a partition spec such as `P(None, \"tp\")`");
        }
        c.word();
        let dims = c.list("(", ")", entry)?;
        Ok(PartitionSpec { dims })
    }

    /// Replicated: no dimension is split.
    pub fn is_replicated(&self) -> bool {
        self.dims.iter().all(Vec::is_empty)
    }
}

fn entry(c: &mut Cursor<'_>) -> Res<Vec<String>> {
    if c.at_quote() {
        return Ok(vec![c.quoted("a mesh axis")?]);
    }
    if c.peek("(") {
        return c.list("(", ")", |c| c.quoted("a mesh axis"));
    }
    if c.peek("[") {
        return c.list("[", "]", |c| c.quoted("a mesh axis"));
    }
    let at = c.at;
    match c.word() {
        Some("None") => Ok(Vec::new()),
        word => {
            c.at = at;
            match word {
                Some(w) if w.ends_with("UNCONSTRAINED") => {
                    c.fail("a definite layout (UNCONSTRAINED leaves it open)")
                }
                Some("unreduced" | "reduced") => {
                    c.fail("dimensions only (partial values cannot be declared)")
                }
                _ => c.fail("`None`, an axis in quotes, or a tuple of them"),
            }
        }
    }
}

fn name(f: &mut fmt::Formatter<'_>, s: &str) -> fmt::Result {
    write!(f, "'{}'", s.replace('\\', "\\\\").replace('\'', "\\'"))
}

impl fmt::Display for PartitionSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("P(")?;
        for (i, dim) in self.dims.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            match dim.as_slice() {
                [] => f.write_str("None")?,
                [one] => name(f, one)?,
                many => {
                    for (k, a) in many.iter().enumerate() {
                        f.write_str(if k == 0 { "(" } else { ", " })?;
                        name(f, a)?;
                    }
                    f.write_str(")")?;
                }
            }
        }
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notations() {
        let d = |s: &str| PartitionSpec::parse(s).unwrap().to_string();
        assert_eq!(d("P()"), "P()");
        assert_eq!(d(" P( None ,\"tp\" ) "), "P(None, 'tp')");
        assert_eq!(d("PartitionSpec(('dp','tp'), None,)"), "P(('dp', 'tp'), None)");
        assert_eq!(d("jax.sharding.PartitionSpec('x')"), "P('x')");
        assert_eq!(d("P(('x',), ())"), "P('x', None)");
        assert_eq!(d(r"P('a\'b')"), r"P('a\'b')");
    }

    #[test]
    fn refuses() {
        let e = |s: &str| PartitionSpec::parse(s).unwrap_err();
        assert_eq!(e("P(None \"tp\")").at, 7);
        assert_eq!(e("P(tp)").at, 2);
        assert!(e("P(tp)").to_string().contains("in quotes"));
        assert_eq!(e("Q()").at, 0);
        assert_eq!(e("P()x").at, 3);
        assert!(e("P('a'").to_string().contains("found the end"));
        assert!(e("P(P.UNCONSTRAINED)").to_string().contains("definite"));
        assert!(e("P('x', unreduced={'y'})").to_string().contains("partial"));
    }
}
