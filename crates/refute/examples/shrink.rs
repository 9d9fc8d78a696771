//! Prints how sizes of a pair shrink: `shrink BASE DIST`.
#![allow(clippy::print_stdout)]
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let read = |p: &str| scalify_hlo::parse(&std::fs::read_to_string(p).unwrap_or_default());
    let (Ok(b), Ok(d)) = (read(&a[1]), read(&a[2])) else { return };
    let p = scalify_prove::problem::setup(&b, &d, &scalify_claim::Claim::default());
    let Some(r) = scalify_refute::shrink::shrink(&b, &d, &p) else { return println!("nothing") };
    for (m, s) in [(&b, &r.base), (&d, &r.dist)] {
        if a.len() > 3 {
            let mut by: std::collections::BTreeMap<String, (f64, usize)> = Default::default();
            for i in &s.instrs {
                let t = &s.shapes[i.shape.0 as usize];
                if let Some(x) = t.as_array() {
                    let e = by.entry(t.to_string()).or_default();
                    e.0 += x.dims.iter().map(|&d| d as f64).product::<f64>();
                    e.1 += 1;
                }
            }
            let mut v: Vec<_> = by.into_iter().collect();
            v.sort_by(|a, b| b.1.0.total_cmp(&a.1.0));
            for x in v.iter().take(8) {
                println!("{x:?}");
            }
        }
        for &q in m.comp(m.entry).instrs.iter().take(60).filter(|_| a.len() < 4) {
            println!("{:40} {} -> {}", m.name_of(q), m.shape(q), s.shape(q));
        }
    }
}
