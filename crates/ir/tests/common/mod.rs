//! Compact notation for shapes and computations in tests.
#![allow(dead_code, unreachable_pub, missing_docs)]

use scalify_ir::*;

/// `f32[2,<=3,?]`, `(f32[2], token[])`, `b(f32[2])`.
pub fn shape(s: &str) -> Shape {
    let (v, rest) = parse(s.trim());
    assert!(rest.trim().is_empty(), "trailing text in shape {s:?}");
    v
}

/// Shapes separated by commas.
pub fn shapes(s: &str) -> Vec<Shape> {
    match shape(&format!("({s})")) {
        Shape::Tuple(t) => t,
        _ => unreachable!(),
    }
}

fn parse(s: &str) -> (Shape, &str) {
    if let Some(mut rest) = s.strip_prefix('(') {
        let mut out = Vec::new();
        loop {
            rest = rest.trim_start_matches([' ', ',']);
            if let Some(rest) = rest.strip_prefix(')') {
                return (Shape::Tuple(out), rest);
            }
            let (v, r) = parse(rest);
            out.push(v);
            rest = r;
        }
    }
    if let Some(rest) = s.strip_prefix("b(") {
        let (v, rest) = parse(rest);
        return (Shape::Buffer(Box::new(v)), rest.strip_prefix(')').expect("b(..)"));
    }
    let open = s.find('[').unwrap_or_else(|| panic!("shape {s:?}"));
    let close = s.find(']').expect("closing bracket");
    let (name, rest) = (&s[..open], &s[close + 1..]);
    let v = match name {
        "token" => Shape::Token,
        "opaque" => Shape::Opaque,
        _ => {
            let mut a = ArrayShape::new(DType::from_name(name).expect(name), []);
            for (i, d) in s[open + 1..close].split(',').filter(|d| !d.is_empty()).enumerate() {
                let bound = d.strip_prefix("<=");
                if bound.is_some() || d == "?" {
                    a.dynamic |= 1 << i;
                }
                a.dims.push(match d {
                    "?" => Shape::UNBOUNDED,
                    _ => bound.unwrap_or(d).parse().expect(d),
                });
            }
            Shape::Array(a)
        }
    };
    (v, rest)
}

/// A computation with the signature `f32[], f32[] -> f32[]`.
pub fn callee(m: &mut ModuleBuilder, signature: &str) -> CompId {
    let (params, result) = signature.split_once("->").expect("->");
    let name = format!("f{}", m.module().comps.len());
    let target = m.module().strings.intern("t");
    let mut b = m.computation(&name);
    let params: Vec<_> = shapes(params).into_iter().map(|s| b.parameter_of(s)).collect();
    let root = b.unchecked(
        Opcode::CustomCall,
        Attrs::CustomCall(Box::new(custom(target))),
        &params,
        &[],
        shape(result),
    );
    b.finish(root)
}

pub fn custom(target: Symbol) -> CustomCallAttrs {
    CustomCallAttrs {
        target,
        opaque: None,
        api_version: None,
        schedule: None,
        has_side_effect: false,
        operand_layouts: Vec::new(),
        aliasing: None,
        rest: None,
    }
}
