//! Cursor over a short attribute text, with errors that name the place.

use std::fmt;

/// A text that does not have the expected form.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseError {
    /// The whole text that was read.
    pub input: String,
    /// Byte offset in `input` where reading stopped.
    pub at: usize,
    /// What would have been right there, e.g. "`)` or `,`"; a full sentence
    /// part if `found` makes no sense.
    pub expected: String,
}

impl ParseError {
    pub(crate) fn new(input: &str, at: usize, expected: impl Into<String>) -> Self {
        ParseError { input: input.to_string(), at: at.min(input.len()), expected: expected.into() }
    }

    /// Character column (from 1) of the error.
    pub fn column(&self) -> usize {
        self.input.get(..self.at).map_or(self.at, |s| s.chars().count()) + 1
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {} at column {}", self.expected, self.column())?;
        match self.input.get(self.at..).and_then(|s| s.chars().next()) {
            Some(c) => write!(f, ", found `{}`", c.escape_debug())?,
            None => f.write_str(", found the end")?,
        }
        // At most 60 characters around the place.
        let before: Vec<char> = self.input.get(..self.at).unwrap_or("").chars().collect();
        let head = before.len().saturating_sub(30);
        let cut: String = before.iter().skip(head).collect();
        let rest: Vec<char> = self.input.get(self.at..).unwrap_or("").chars().take(31).collect();
        let tail: String = rest.iter().take(30).collect();
        let (l, r) = (if head > 0 { ".." } else { "" }, if rest.len() > 30 { ".." } else { "" });
        write!(f, " in `{l}{}{}{r}`", cut.escape_debug(), tail.escape_debug())
    }
}

impl std::error::Error for ParseError {}

/// Result of a parse step.
pub(crate) type Res<T> = Result<T, ParseError>;

pub(crate) struct Cursor<'a> {
    text: &'a str,
    pub(crate) at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Cursor { text, at: 0 }
    }

    pub(crate) fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or("")
    }

    pub(crate) fn space(&mut self) {
        let r = self.rest();
        self.at += r.len() - r.trim_start().len();
    }

    pub(crate) fn fail<T>(&self, expected: impl Into<String>) -> Res<T> {
        Err(ParseError::new(self.text, self.at, expected))
    }

    /// Skips space, then takes `s` if it stands here.
    pub(crate) fn eat(&mut self, s: &str) -> bool {
        self.space();
        let hit = self.rest().starts_with(s);
        if hit {
            self.at += s.len();
        }
        hit
    }

    pub(crate) fn peek(&mut self, s: &str) -> bool {
        self.space();
        self.rest().starts_with(s)
    }

    pub(crate) fn expect(&mut self, s: &str) -> Res<()> {
        if self.eat(s) { Ok(()) } else { self.fail(format!("`{s}`")) }
    }

    pub(crate) fn end(&mut self) -> Res<()> {
        self.space();
        if self.rest().is_empty() { Ok(()) } else { self.fail("the end") }
    }

    /// A decimal number with optional sign.
    pub(crate) fn int(&mut self) -> Res<i64> {
        self.space();
        let r = self.rest();
        let sign = usize::from(r.starts_with('-') || r.starts_with('+'));
        let digits = r.bytes().skip(sign).take_while(|b| b.is_ascii_digit() || *b == b'_').count();
        let parsed = r.get(..sign + digits).and_then(|s| s.replace('_', "").parse().ok());
        match parsed {
            Some(v) => {
                self.at += sign + digits;
                Ok(v)
            }
            None if digits > 0 => self.fail("a number of at most 64 bits"),
            None => self.fail("a number"),
        }
    }

    /// A name of letters, digits, `_`, `-`, `.`, `/`.
    pub(crate) fn word(&mut self) -> Option<&'a str> {
        self.space();
        let r = self.rest();
        let ok = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
        let n = r.find(|c| !ok(c)).unwrap_or(r.len());
        let w = r.get(..n).filter(|w| !w.is_empty())?;
        self.at += n;
        Some(w)
    }

    /// A string in `'`, `"` or `\"`; backslash escapes the next character.
    pub(crate) fn quoted(&mut self, what: &str) -> Res<String> {
        self.space();
        let quote =
            match ["\\\"", "\\'", "\"", "'"].into_iter().find(|q| self.rest().starts_with(q)) {
                Some(q) => q,
                None => return self.fail(format!("{what} in quotes")),
            };
        let start = self.at;
        self.at += quote.len();
        let mut out = String::new();
        loop {
            let r = self.rest();
            if r.starts_with(quote) {
                self.at += quote.len();
                return Ok(out);
            }
            let mut cs = r.chars();
            match (cs.next(), cs.next()) {
                (Some('\\'), Some(c)) => {
                    out.push(c);
                    self.at += 1 + c.len_utf8();
                }
                (Some(c), _) => {
                    out.push(c);
                    self.at += c.len_utf8();
                }
                (None, _) => {
                    self.at = start;
                    return self.fail(format!("a closing {quote} for the string that starts here"));
                }
            }
        }
    }

    pub(crate) fn at_quote(&mut self) -> bool {
        self.space();
        let r = self.rest();
        r.starts_with(['"', '\'']) || r.starts_with("\\\"") || r.starts_with("\\'")
    }

    /// `open item, item close`; a trailing comma is accepted.
    pub(crate) fn list<T>(
        &mut self,
        open: &str,
        close: &str,
        mut item: impl FnMut(&mut Self) -> Res<T>,
    ) -> Res<Vec<T>> {
        self.expect(open)?;
        let mut out = Vec::new();
        loop {
            if self.eat(close) {
                return Ok(out);
            }
            out.push(item(self)?);
            if !self.eat(",") && !self.peek(close) {
                return self.fail(format!("`,` or `{close}`"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_place_and_expectation() {
        let mut c = Cursor::new("[1, x]");
        let e = c.list("[", "]", Cursor::int).unwrap_err();
        assert_eq!(e.to_string(), "expected a number at column 5, found `x` in `[1, x]`");
        let e = Cursor::new("'ab").quoted("a name").unwrap_err();
        assert_eq!(e.at, 0);
        let e = Cursor::new("99999999999999999999").int().unwrap_err();
        assert!(e.expected.contains("64 bits"));
    }

    #[test]
    fn quotes_may_be_escaped() {
        assert_eq!(Cursor::new(r#"\"tp\""#).quoted("a").unwrap(), "tp");
        assert_eq!(Cursor::new(r"'a\'b'").quoted("a").unwrap(), "a'b");
        assert_eq!(Cursor::new("\"é'\"").quoted("a").unwrap(), "é'");
    }
}
