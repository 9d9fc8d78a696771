//! Reads short printed forms; every step may fail and none panics.

pub(crate) struct Scan<'a> {
    rest: &'a str,
}

impl<'a> Scan<'a> {
    pub(crate) fn new(s: &'a str) -> Self {
        Scan { rest: s.trim() }
    }

    /// Takes `token`, white space around it ignored.
    pub(crate) fn try_eat(&mut self, token: &str) -> bool {
        match self.rest.trim_start().strip_prefix(token) {
            Some(r) => {
                self.rest = r.trim_start();
                true
            }
            None => false,
        }
    }

    pub(crate) fn eat(&mut self, token: &str) -> Option<()> {
        self.try_eat(token).then_some(())
    }

    fn take(&mut self, keep: impl Fn(char) -> bool) -> &'a str {
        let s = self.rest.trim_start();
        let end = s.find(|c| !keep(c)).unwrap_or(s.len());
        self.rest = &s[end..];
        &s[..end]
    }

    /// A word of letters, digits, `_`, `-`, `.`; may be empty.
    pub(crate) fn word(&mut self) -> &'a str {
        self.take(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
    }

    /// Everything up to the next space, comma or closing bracket.
    pub(crate) fn value(&mut self) -> &'a str {
        self.take(|c| !c.is_whitespace() && !matches!(c, ',' | '}' | ')' | ']'))
    }

    pub(crate) fn int(&mut self) -> Option<i64> {
        self.take(|c| c.is_ascii_digit() || c == '-').parse().ok()
    }

    pub(crate) fn float(&mut self) -> Option<f64> {
        self.value().parse().ok()
    }

    /// `{1,2}` with the given brackets.
    pub(crate) fn ints(&mut self, open: &str, close: &str) -> Option<Vec<i64>> {
        self.eat(open)?;
        let mut out = Vec::new();
        while !self.try_eat(close) {
            out.push(self.int()?);
            self.try_eat(",");
        }
        Some(out)
    }

    /// A string in double or single quotes.
    pub(crate) fn string(&mut self) -> Option<String> {
        let s = self.rest.trim_start();
        let quote = s.chars().next().filter(|c| matches!(c, '"' | '\''))?;
        let mut out = String::new();
        let mut escaped = false;
        for (i, c) in s.char_indices().skip(1) {
            match c {
                _ if escaped => {
                    out.push(c);
                    escaped = false;
                }
                '\\' => escaped = true,
                _ if c == quote => {
                    self.rest = &s[i + 1..];
                    return Some(out);
                }
                _ => out.push(c),
            }
        }
        None
    }

    /// Text inside a balanced pair of brackets.
    pub(crate) fn balanced(&mut self, open: char, close: char) -> Option<&'a str> {
        let s = self.rest.trim_start().strip_prefix(open)?;
        let mut depth = 1usize;
        for (i, c) in s.char_indices() {
            if c == open {
                depth += 1;
            } else if c == close {
                depth -= 1;
                if depth == 0 {
                    self.rest = &s[i + close.len_utf8()..];
                    return Some(&s[..i]);
                }
            }
        }
        None
    }

    /// True if nothing is left.
    pub(crate) fn done(&self) -> bool {
        self.rest.trim().is_empty()
    }
}
