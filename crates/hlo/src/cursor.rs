//! Position in the text and the small tokens of the grammar. Knows no HLO.

use crate::error::ParseError;
use std::borrow::Cow;

/// Result with a boxed error: the good path stays small.
pub(crate) type R<T> = Result<T, Box<ParseError>>;

/// Deepest nesting of tuples, literals and inline computations.
pub(crate) const MAX_DEPTH: u32 = 200;

const IDENT: u8 = 1;
const SPACE: u8 = 2;
const START: u8 = 4;

static CLASS: [u8; 256] = {
    let mut t = [0u8; 256];
    let mut i = 0;
    while i < 256 {
        let c = i as u8;
        if c.is_ascii_alphanumeric() || c == b'_' || c == b'.' || c == b'-' {
            t[i] |= IDENT;
        }
        if c.is_ascii_alphabetic() || c == b'_' {
            t[i] |= START;
        }
        if c == b' ' || c == b'\t' || c == b'\n' || c == b'\r' {
            t[i] |= SPACE;
        }
        i += 1;
    }
    t
};

pub(crate) struct Cursor<'a> {
    pub(crate) text: &'a str,
    b: &'a [u8],
    pub(crate) pos: usize,
    depth: u32,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Cursor { text, b: text.as_bytes(), pos: 0, depth: 0 }
    }

    #[cold]
    pub(crate) fn fail<T>(&self, start: usize, end: usize, message: impl Into<String>) -> R<T> {
        Err(Box::new(ParseError::new(self.text, start, end, message.into())))
    }

    /// "unexpected X, expected `what`" at the current position.
    #[cold]
    pub(crate) fn expected<T>(&self, what: impl Into<String>) -> R<T> {
        let start = self.pos;
        let mut end = start;
        while self.at(end).is_some_and(|c| CLASS[c as usize] & IDENT != 0) {
            end += 1;
        }
        if end == start {
            end = self.text[start.min(self.text.len())..]
                .chars()
                .next()
                .map_or(start, |c| start + c.len_utf8());
        }
        let message = if self.b[start.min(self.b.len())..].starts_with(b"/*") {
            "the comment that starts here is not closed".to_owned()
        } else if end == start {
            "unexpected end of the text".to_owned()
        } else {
            let seen: String = self.text[start..end].chars().take(40).collect();
            format!("unexpected `{}`", seen.escape_debug())
        };
        let mut e = ParseError::new(self.text, start, end, message);
        e.expected = Some(what.into());
        Err(Box::new(e))
    }

    /// Goes one level down; `leave` must follow unless an error is returned.
    pub(crate) fn enter(&mut self, cost: u32) -> R<()> {
        if self.depth + cost > MAX_DEPTH {
            return self.fail(self.pos, self.pos + 1, "nested too deeply");
        }
        self.depth += cost;
        Ok(())
    }

    pub(crate) fn leave(&mut self, cost: u32) {
        self.depth -= cost;
    }

    #[inline(always)]
    pub(crate) fn at(&self, i: usize) -> Option<u8> {
        self.b.get(i).copied()
    }

    /// Byte at the position, 0 at the end.
    #[inline(always)]
    pub(crate) fn peek(&self) -> u8 {
        self.b.get(self.pos).copied().unwrap_or(0)
    }

    #[inline(always)]
    pub(crate) fn peek_at(&self, n: usize) -> u8 {
        self.b.get(self.pos + n).copied().unwrap_or(0)
    }

    pub(crate) fn at_end(&self) -> bool {
        self.pos >= self.b.len()
    }

    #[inline(always)]
    pub(crate) fn slice(&self, start: usize, end: usize) -> &'a str {
        self.text.get(start..end).unwrap_or("")
    }

    /// Skips white space and comments.
    #[inline(always)]
    pub(crate) fn ws(&mut self) {
        while let Some(&c) = self.b.get(self.pos) {
            if CLASS[c as usize] & SPACE != 0 {
                self.pos += 1;
            } else if c == b'/' {
                let before = self.pos;
                self.comment();
                if self.pos == before {
                    return;
                }
            } else {
                return;
            }
        }
    }

    /// Skips one comment; does not move if there is none or it is not closed.
    fn comment(&mut self) {
        match self.at(self.pos + 1) {
            Some(b'*') => {
                let body = &self.b[self.pos + 2..];
                if let Some(i) = memchr::memmem::find(body, b"*/") {
                    self.pos += i + 4;
                }
            }
            Some(b'/') => {
                let rest = &self.b[self.pos..];
                self.pos += memchr::memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
            }
            _ => {}
        }
    }

    /// Skips white space, then takes `c` if it is next.
    #[inline(always)]
    pub(crate) fn eat(&mut self, c: u8) -> bool {
        self.ws();
        let hit = self.peek() == c && !self.at_end();
        self.pos += hit as usize;
        hit
    }

    #[inline(always)]
    pub(crate) fn expect(&mut self, c: u8, what: &str) -> R<()> {
        if self.eat(c) { Ok(()) } else { self.expected(what) }
    }

    /// Takes `s` if it is next (no white space skipped, no word border).
    pub(crate) fn eat_str(&mut self, s: &str) -> bool {
        let hit = self.b[self.pos.min(self.b.len())..].starts_with(s.as_bytes());
        if hit {
            self.pos += s.len();
        }
        hit
    }

    /// Skips white space, then takes the word `s` if it is next.
    pub(crate) fn eat_word(&mut self, s: &str) -> bool {
        self.ws();
        let hit =
            self.b[self.pos..].starts_with(s.as_bytes()) && !self.is_ident(self.pos + s.len());
        if hit {
            self.pos += s.len();
        }
        hit
    }

    #[inline(always)]
    pub(crate) fn is_ident(&self, i: usize) -> bool {
        self.at(i).is_some_and(|c| CLASS[c as usize] & IDENT != 0)
    }

    /// End of the run of identifier bytes at `i`.
    #[inline(always)]
    pub(crate) fn ident_end(&self, mut i: usize) -> usize {
        while let Some(&c) = self.b.get(i) {
            if CLASS[c as usize] & IDENT == 0 {
                break;
            }
            i += 1;
        }
        i
    }

    /// `[a-zA-Z_][a-zA-Z0-9_.-]*`, empty if none is next.
    #[inline(always)]
    pub(crate) fn ident_opt(&mut self) -> &'a str {
        self.ws();
        if CLASS[self.peek() as usize] & START == 0 {
            return "";
        }
        let start = self.pos;
        self.pos = self.ident_end(start + 1);
        self.slice(start, self.pos)
    }

    #[inline(always)]
    pub(crate) fn ident(&mut self, what: &str) -> R<&'a str> {
        let s = self.ident_opt();
        if s.is_empty() { self.expected(what) } else { Ok(s) }
    }

    /// A name with or without `%`.
    #[inline(always)]
    pub(crate) fn name(&mut self, what: &str) -> R<&'a str> {
        self.ws();
        if self.peek() == b'%' {
            self.pos += 1;
            if CLASS[self.peek() as usize] & START == 0 {
                return self.expected(what);
            }
        }
        self.ident(what)
    }

    /// Decimal integer with optional minus.
    #[inline(always)]
    pub(crate) fn int(&mut self, what: &str) -> R<i64> {
        self.ws();
        let start = self.pos;
        let neg = self.peek() == b'-';
        let mut i = start + neg as usize;
        let digits = i;
        let mut v: i64 = 0;
        let mut over = false;
        while let Some(c) = self.at(i).filter(u8::is_ascii_digit) {
            let d = (c - b'0') as i64;
            match v.checked_mul(10).and_then(|v| v.checked_sub(d)) {
                Some(n) => v = n,
                None => over = true,
            }
            i += 1;
        }
        if i == digits {
            return self.expected(what);
        }
        let v = if neg { Some(v) } else { v.checked_neg() };
        match v {
            Some(v) if !over => {
                self.pos = i;
                Ok(v)
            }
            _ => self.fail(start, i, "integer does not fit in 64 bits"),
        }
    }

    pub(crate) fn bool(&mut self) -> R<bool> {
        let start = self.pos;
        match self.ident_opt() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => {
                self.pos = start;
                self.ws();
                self.expected("`true` or `false`")
            }
        }
    }

    /// End of the string that starts at `i` (which holds the quote), past
    /// its closing quote.
    #[inline]
    pub(crate) fn string_end(&self, i: usize) -> Option<usize> {
        let q = self.at(i)?;
        let mut j = i + 1;
        loop {
            let rest = self.b.get(j..)?;
            let k = memchr::memchr2(q, b'\\', rest)?;
            if rest[k] == q {
                return Some(j + k + 1);
            }
            j += k + 2;
        }
    }

    /// Skips a quoted string and returns what is between the quotes, raw.
    pub(crate) fn string_raw(&mut self, what: &str) -> R<&'a str> {
        self.ws();
        if !matches!(self.peek(), b'"' | b'\'') {
            return self.expected(what);
        }
        let Some(end) = self.string_end(self.pos) else {
            return self.fail(self.pos, self.pos + 1, "the string that starts here is not closed");
        };
        let s = self.slice(self.pos + 1, end - 1);
        self.pos = end;
        Ok(s)
    }

    /// A quoted string, unescaped.
    pub(crate) fn string(&mut self, what: &str) -> R<Cow<'a, str>> {
        self.ws();
        let start = self.pos;
        let raw = self.string_raw(what)?;
        match crate::escape::unescape(raw) {
            Ok(s) => Ok(s),
            Err(at) => {
                let at = start + 1 + at;
                self.fail(at, (at + 2).min(self.pos), "unknown escape in a string")
            }
        }
    }

    /// End of the brace group that starts at `i`, past its `}`; strings
    /// count as one piece.
    #[inline]
    pub(crate) fn braces_end(&self, i: usize) -> Option<usize> {
        let mut depth = 0usize;
        let mut j = i;
        loop {
            match self.at(j)? {
                b'{' => depth += 1,
                b'}' => {
                    depth -= 1;
                    if depth == 0 {
                        return Some(j + 1);
                    }
                }
                b'"' => {
                    j = self.string_end(j)?;
                    continue;
                }
                _ => {}
            }
            j += 1;
        }
    }

    /// Takes a brace group and returns it with its braces.
    pub(crate) fn braces(&mut self, what: &str) -> R<&'a str> {
        self.ws();
        if self.peek() != b'{' {
            return self.expected(what);
        }
        let start = self.pos;
        match self.braces_end(start) {
            Some(end) => {
                self.pos = end;
                Ok(self.slice(start, end))
            }
            None => self.fail(start, start + 1, "the brace that opens here is not closed"),
        }
    }

    /// Takes any attribute value: words, brackets of all kinds and strings up
    /// to a comma, white space or closing bracket outside all of them.
    pub(crate) fn raw_value(&mut self) -> R<&'a str> {
        self.ws();
        let start = self.pos;
        let mut depth = 0usize;
        loop {
            match self.at(self.pos) {
                None | Some(b',' | b' ' | b'\t' | b'\n' | b'\r' | b'}' | b')' | b']')
                    if depth == 0 =>
                {
                    break;
                }
                None => return self.fail(start, start + 1, "this value is not closed"),
                Some(b'{' | b'(' | b'[') => depth += 1,
                Some(b'}' | b')' | b']') => depth -= 1,
                Some(b'"') => {
                    let Some(end) = self.string_end(self.pos) else {
                        return self.fail(
                            self.pos,
                            self.pos + 1,
                            "the string that starts here is not closed",
                        );
                    };
                    self.pos = end;
                    continue;
                }
                _ => {}
            }
            self.pos += 1;
        }
        if self.pos == start { self.expected("a value") } else { Ok(self.slice(start, self.pos)) }
    }

    /// `open item (, item)* close`, possibly empty.
    pub(crate) fn list(
        &mut self,
        open: u8,
        close: u8,
        what: &str,
        mut item: impl FnMut(&mut Self) -> R<()>,
    ) -> R<()> {
        self.expect(open, what)?;
        if self.eat(close) {
            return Ok(());
        }
        loop {
            item(self)?;
            if self.eat(b',') {
                continue;
            }
            if self.eat(close) {
                return Ok(());
            }
            return self.expected(format!("`,` or `{}`", close as char));
        }
    }

    /// `{1,2,3}`.
    pub(crate) fn ints<E: Extend<i64>>(&mut self, open: u8, close: u8, out: &mut E) -> R<()> {
        let what = match open {
            b'{' => "`{` and a list of integers",
            b'[' => "`[` and a list of integers",
            _ => "a list of integers",
        };
        self.list(open, close, what, |c| {
            let v = c.int("an integer")?;
            out.extend(std::iter::once(v));
            Ok(())
        })
    }
}
