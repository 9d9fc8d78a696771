//! Device meshes.

use crate::cursor::{Cursor, ParseError, Res};
use std::fmt;

/// Largest number of devices that is accepted anywhere in this crate.
pub const MAX_DEVICES: i64 = 1 << 24;

/// Named axes over the devices, in row-major device order: the last axis is
/// the fastest.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Mesh {
    /// Axis names and sizes, major first. Names are unique and not empty,
    /// sizes at least 1, their product at most [`MAX_DEVICES`].
    pub axes: Vec<(String, i64)>,
}

impl Mesh {
    /// A mesh with checked axes.
    ///
    /// # Errors
    /// A sentence part if a name repeats or is empty, a size is below 1 or
    /// the product is above [`MAX_DEVICES`].
    pub fn new(axes: Vec<(String, i64)>) -> Result<Mesh, String> {
        let mut n = 1i64;
        for (i, (name, size)) in axes.iter().enumerate() {
            if name.is_empty() {
                return Err("a mesh axis with a name".into());
            }
            if axes.iter().take(i).any(|a| a.0 == *name) {
                return Err(format!("mesh axes with different names (`{name}` repeats)"));
            }
            if *size < 1 {
                return Err(format!("a size of at least 1 for mesh axis `{name}`"));
            }
            n = match n.checked_mul(*size).filter(|n| *n <= MAX_DEVICES) {
                Some(n) => n,
                None => return Err(format!("a mesh of at most {MAX_DEVICES} devices")),
            };
        }
        Ok(Mesh { axes })
    }

    /// Parses `dp=2,tp=4` (also `dp:2`, `'dp'=2`, with spaces).
    ///
    /// # Errors
    /// What was expected and where.
    pub fn parse(text: &str) -> Result<Mesh, ParseError> {
        let mut c = Cursor::new(text);
        let mut axes = Vec::new();
        loop {
            axes.push(axis(&mut c, &["=", ":"])?);
            if !c.eat(",") {
                break;
            }
        }
        c.end().map_err(|e| ParseError { expected: "`,` or the end".into(), ..e })?;
        Mesh::new(axes).map_err(|e| ParseError::new(text, 0, e))
    }

    /// Number of devices; 1 without axes.
    pub fn devices(&self) -> i64 {
        self.axes.iter().fold(1i64, |n, a| n.saturating_mul(a.1))
    }

    /// Position of an axis.
    pub fn axis(&self, name: &str) -> Option<usize> {
        self.axes.iter().position(|a| a.0 == name)
    }

    /// Size of an axis.
    pub fn size(&self, name: &str) -> Option<i64> {
        self.axes.iter().find(|a| a.0 == name).map(|a| a.1)
    }

    /// Device-id step of an axis: the product of the sizes after it.
    pub fn stride(&self, axis: usize) -> i64 {
        self.axes.iter().skip(axis + 1).fold(1i64, |n, a| n.saturating_mul(a.1))
    }
}

/// `name = size`, the name bare or in quotes.
pub(crate) fn axis(c: &mut Cursor<'_>, signs: &[&str]) -> Res<(String, i64)> {
    let name = if c.at_quote() {
        c.quoted("an axis name")?
    } else {
        match c.word() {
            Some(w) => w.to_string(),
            None => return c.fail("an axis name"),
        }
    };
    if !signs.iter().any(|s| c.eat(s)) {
        return c.fail(format!("`=` and the size of axis `{name}`"));
    }
    Ok((name, c.int()?))
}

impl fmt::Display for Mesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (name, size)) in self.axes.iter().enumerate() {
            write!(f, "{}{name}={size}", if i > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_and_counts() {
        let m = Mesh::parse("dp=2, tp=4").unwrap();
        assert_eq!(m.devices(), 8);
        assert_eq!((m.stride(0), m.stride(1)), (4, 1));
        assert_eq!(m.to_string(), "dp=2,tp=4");
        assert_eq!(Mesh::parse("'a b'=3").unwrap().size("a b"), Some(3));
    }

    #[test]
    fn refuses() {
        let err = |s: &str| Mesh::parse(s).unwrap_err().to_string();
        assert!(err("dp").starts_with("expected `=` and the size of axis `dp` at column 3"));
        assert!(err("dp=x").contains("a number at column 4"));
        assert!(err("dp=2 tp=4").contains("`,` or the end at column 6"));
        assert!(err("dp=2,dp=2").contains("repeats"));
        assert!(err("dp=0").contains("at least 1"));
        assert!(err("a=4096,b=4096,c=4096").contains("at most"));
        assert!(err("").contains("an axis name"));
    }
}
