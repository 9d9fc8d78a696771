//! A checker for the part of JSON Schema that the report's schema uses.

use serde_json::Value;

/// Where `value` breaks `schema`; empty if it fits.
pub(crate) fn errors(schema: &Value, value: &Value) -> Vec<String> {
    let mut out = Vec::new();
    check(schema, schema, value, "$", &mut out);
    out
}

fn check(root: &Value, schema: &Value, v: &Value, at: &str, out: &mut Vec<String>) {
    let known = [
        "$schema",
        "$id",
        "$defs",
        "$ref",
        "title",
        "description",
        "type",
        "enum",
        "const",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "anyOf",
        "minimum",
    ];
    let keys = schema.as_object().expect("a schema is an object");
    for k in keys.keys() {
        assert!(known.contains(&k.as_str()), "keyword `{k}` is not checked");
    }
    if let Some(r) = schema["$ref"].as_str() {
        let target = root.pointer(r.strip_prefix('#').unwrap()).expect("the target of $ref");
        check(root, target, v, at, out);
    }
    if let Some(any) = schema["anyOf"].as_array() {
        let fits = |s: &Value| {
            let mut e = Vec::new();
            check(root, s, v, at, &mut e);
            e.is_empty()
        };
        if !any.iter().any(fits) {
            out.push(format!("{at}: fits no alternative"));
        }
    }
    let kind = match v {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let is = |t: &Value| t == kind || (t == "number" && kind == "integer");
    match &schema["type"] {
        Value::Null => {}
        Value::Array(a) if a.iter().any(is) => {}
        t if is(t) => {}
        t => out.push(format!("{at}: {kind} is not {t}")),
    }
    if schema["enum"].as_array().is_some_and(|e| !e.contains(v)) {
        out.push(format!("{at}: {v} is not in the enum"));
    }
    if keys.contains_key("const") && schema["const"] != *v {
        out.push(format!("{at}: {v} is not the constant"));
    }
    if let (Some(min), Some(n)) = (schema["minimum"].as_f64(), v.as_f64())
        && n < min
    {
        out.push(format!("{at}: {n} is below {min}"));
    }
    if let Value::Object(o) = v {
        for r in schema["required"].as_array().into_iter().flatten() {
            if !o.contains_key(r.as_str().unwrap()) {
                out.push(format!("{at}: {r} is missing"));
            }
        }
        for (k, x) in o {
            match schema["properties"].get(k) {
                Some(s) => check(root, s, x, &format!("{at}.{k}"), out),
                None if schema["additionalProperties"] == Value::Bool(false) => {
                    out.push(format!("{at}: `{k}` is not described"));
                }
                None => {}
            }
        }
    }
    if let (Value::Array(a), true) = (v, schema["items"].is_object()) {
        for (i, x) in a.iter().enumerate() {
            check(root, &schema["items"], x, &format!("{at}[{i}]"), out);
        }
    }
}
