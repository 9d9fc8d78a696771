//! Inputs and outputs of the stages of a pipeline.

use crate::arg::{Claim, Selector};
use crate::cursor::ParseError;
use std::fmt;

/// `STAGE:SELECTOR`: an input or output of a stage, counted from 0.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Port {
    /// Which stage.
    pub stage: usize,
    /// Which of its inputs or outputs.
    pub selector: Selector,
}

impl Port {
    /// Parses `1:#0` or `1:x`.
    ///
    /// # Errors
    /// What was expected and where.
    pub fn parse(text: &str) -> Result<Port, ParseError> {
        let expected = "the number of a stage and `:`, as in `1:#0`";
        let Some((stage, rest)) = text.split_once(':') else {
            return Err(ParseError::new(text, 0, expected));
        };
        let Ok(stage) = stage.trim().parse() else {
            return Err(ParseError::new(text, 0, expected));
        };
        let at = text.len() - rest.len();
        let selector =
            Selector::parse(rest).map_err(|e| ParseError::new(text, at + e.at, e.expected))?;
        Ok(Port { stage, selector })
    }

    /// Parses an output, which has no name: `1:#0`.
    ///
    /// # Errors
    /// What was expected and where.
    pub fn parse_output(text: &str) -> Result<Port, ParseError> {
        let p = Port::parse(text)?;
        match p.selector {
            Selector::Index(_) => Ok(p),
            Selector::Name(_) => {
                let at = text.find(':').map_or(0, |i| i + 1);
                Err(ParseError::new(text, at, "`#N`: outputs have no names"))
            }
        }
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.stage, self.selector)
    }
}

impl Claim {
    /// Adds `--link` `INPUT=OUTPUT`, split at the last `=`.
    ///
    /// # Errors
    /// What was expected and where.
    pub fn add_link(&mut self, text: &str) -> Result<(), ParseError> {
        let Some((to, from)) = text.rsplit_once('=') else {
            return Err(ParseError::new(text, text.len(), "`=` and the output, as in `1:x=0:#0`"));
        };
        let moved = |e: ParseError, by: usize| ParseError::new(text, e.at + by, e.expected);
        let to_port = Port::parse(to).map_err(|e| moved(e, 0))?;
        let from = Port::parse_output(from).map_err(|e| moved(e, to.len() + 1))?;
        self.links.push((to_port, from));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links() {
        let mut c = Claim::default();
        c.add_link("1:p['a=b']=0:#1").unwrap();
        assert_eq!(c.links[0].0.to_string(), "1:p['a=b']");
        assert_eq!(c.links[0].1, Port { stage: 0, selector: Selector::Index(1) });
        let at = |t: &str| Claim::default().add_link(t).unwrap_err().at;
        assert_eq!((at("x"), at("x=0:#0"), at("1:x=0:y"), at("1:x=0:#y")), (1, 0, 6, 7));
    }
}
