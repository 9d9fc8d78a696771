//! String interning: names of instructions, computations, attributes.

use hashbrown::HashTable;
use rustc_hash::FxHasher;
use std::hash::Hasher;

/// An interned string; resolve it with [`Interner::get`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Symbol(pub u32);

/// Stores each distinct string once, in one buffer.
#[derive(Clone, Default)]
pub struct Interner {
    text: String,
    ends: Vec<u32>,
    table: HashTable<u32>,
}

impl std::fmt::Debug for Interner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Interner({} strings)", self.ends.len())
    }
}

fn hash(s: &str) -> u64 {
    let mut h = FxHasher::default();
    h.write(s.as_bytes());
    h.finish()
}

impl Interner {
    /// The symbol of `s`, new or known.
    pub fn intern(&mut self, s: &str) -> Symbol {
        let h = hash(s);
        let (text, ends) = (&self.text, &self.ends);
        let slice = |i: u32| -> &str {
            let i = i as usize;
            let from = if i == 0 { 0 } else { ends[i - 1] as usize };
            &text[from..ends[i] as usize]
        };
        if let Some(&i) = self.table.find(h, |&i| slice(i) == s) {
            return Symbol(i);
        }
        let id = self.ends.len() as u32;
        self.text.push_str(s);
        self.ends.push(self.text.len() as u32);
        let (text, ends) = (&self.text, &self.ends);
        self.table.insert_unique(h, id, |&i| {
            let i = i as usize;
            let from = if i == 0 { 0 } else { ends[i - 1] as usize };
            hash(&text[from..ends[i] as usize])
        });
        Symbol(id)
    }

    /// The symbol of `s` if it was interned before.
    pub fn lookup(&self, s: &str) -> Option<Symbol> {
        self.table.find(hash(s), |&i| self.get(Symbol(i)) == s).map(|&i| Symbol(i))
    }

    /// The text of a symbol of this interner.
    pub fn get(&self, s: Symbol) -> &str {
        let i = s.0 as usize;
        let from = if i == 0 { 0 } else { self.ends[i - 1] as usize };
        &self.text[from..self.ends[i] as usize]
    }

    /// Number of distinct strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True if nothing was interned.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_strings_share_a_symbol() {
        let mut i = Interner::default();
        let a = i.intern("dot.1");
        let b = i.intern("");
        assert_eq!(i.intern("dot.1"), a);
        assert_ne!(a, b);
        assert_eq!((i.get(a), i.get(b)), ("dot.1", ""));
        assert_eq!(i.lookup("dot.2"), None);
        for k in 0..1000 {
            i.intern(&format!("x{k}"));
        }
        assert_eq!(i.get(a), "dot.1");
        assert_eq!(i.len(), 1002);
    }
}
