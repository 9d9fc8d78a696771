//! Terms as text in index notation, for explanations.

use crate::lin::{BOUND_SLOT, FIRST_ATOM, LinId, OWN_SLOT};
use crate::store::{Op, Ref, Store, Val};
use std::fmt::Write;

impl Store {
    /// A value in index notation, to a depth; deeper terms print as `C12[..]`.
    pub fn show(&self, v: &Val, depth: u32) -> String {
        let mut s = String::new();
        if v.coef != crate::Coef::ONE {
            let _ = write!(s, "{}*", self.coefs.get(v.coef));
        }
        self.show_ref(&v.r, depth, &mut s);
        s
    }

    fn show_lin(&self, l: LinId) -> String {
        let f = self.lins.get(l);
        let mut s = String::new();
        for &(c, a) in &f.terms {
            if c < 0 {
                s.push('-');
            } else if !s.is_empty() {
                s.push('+');
            }
            if c.abs() != 1 {
                let _ = write!(s, "{}*", c.abs());
            }
            if a >= FIRST_ATOM {
                let n = a - FIRST_ATOM;
                let _ = match &self.lins.atom(a).kind {
                    crate::AtomKind::Device => write!(s, "d{n}"),
                    crate::AtomKind::Local => write!(s, "i{n}"),
                    crate::AtomKind::Table { axes, tab } => {
                        let x: Vec<String> =
                            axes.iter().map(|a| format!("i{}", a - FIRST_ATOM)).collect();
                        write!(s, "t{n}({};{:?})", x.join(","), &tab[..tab.len().min(16)])
                    }
                };
            } else if a >= BOUND_SLOT {
                let _ = write!(s, "k{}", a - BOUND_SLOT);
            } else if a >= OWN_SLOT {
                let _ = write!(s, "o{}", a - OWN_SLOT);
            } else {
                let _ = write!(s, "f{a}");
            }
        }
        if f.c0 != 0 || s.is_empty() {
            let _ = write!(s, "{}{}", if s.is_empty() || f.c0 < 0 { "" } else { "+" }, f.c0);
        }
        s
    }

    fn show_ref(&self, r: &Ref, depth: u32, out: &mut String) {
        let c = self.class(r.class);
        let name = match c.op {
            Op::One => "1".to_owned(),
            Op::Iota => "iota".to_owned(),
            Op::Param(i) => format!("P{i}"),
            Op::Const(i) => format!("const{i}"),
            Op::Arr(i) => format!("A{i}"),
            Op::Add => "add".to_owned(),
            Op::Prod => "prod".to_owned(),
            Op::Sum => format!("sum<{}>", sizes(&c.bound)),
            Op::Max => "max".to_owned(),
            Op::MaxR => format!("max<{}>", sizes(&c.bound)),
            Op::And => "and".to_owned(),
            Op::AndR => format!("and<{}>", sizes(&c.bound)),
            Op::Ew(s) => self.sym_text(s).to_owned(),
            Op::Opq(s) => format!("{}<{}>", self.sym_text(s), sizes(&c.bound)),
            Op::Pcs => format!("concat<{}>", sizes(&c.bound)),
        };
        if depth == 0 && !c.args.is_empty() {
            let _ = write!(out, "C{}", r.class.0);
        } else {
            out.push_str(&name);
            if !c.args.is_empty() {
                out.push('(');
                for (i, a) in c.args.iter().enumerate() {
                    if i > 0 {
                        out.push_str(", ");
                    }
                    if i == 12 {
                        let _ = write!(out, "... {} more", c.args.len() - i);
                        break;
                    }
                    if a.coef != crate::Coef::ONE {
                        let _ = write!(out, "{}*", self.coefs.get(a.coef));
                    }
                    self.show_ref(&a.r, depth - 1, out);
                    if a.pow != 1 {
                        let _ = write!(out, "^{}", a.pow);
                    }
                }
                out.push(')');
            }
        }
        if !r.m.is_empty() {
            let m: Vec<String> = r.m.iter().map(|&l| self.show_lin(l)).collect();
            let _ = write!(out, "[{}]", m.join(","));
        }
    }
}

fn sizes(b: &[i64]) -> String {
    b.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}
