//! The examples of `docs/SPEC.md` parse and mean the same.

use scalify_claim::{FileFormat, Selector, parse_spec_file};

fn block<'a>(doc: &'a str, lang: &str) -> &'a str {
    let start = doc.find(&format!("```{lang}\n")).unwrap() + lang.len() + 4;
    let end = doc[start..].find("```").unwrap();
    &doc[start..start + end]
}

#[test]
fn examples_agree() {
    let doc = include_str!("../../../docs/SPEC.md");
    let t = parse_spec_file(block(doc, "toml"), Some(FileFormat::Toml)).unwrap();
    let j = parse_spec_file(block(doc, "json"), Some(FileFormat::Json)).unwrap();
    assert_eq!(t, j);
    assert_eq!(t.inputs.len(), 3);
    let wo = t.input_spec(7, &["params['layers'][31]['wo']"]).unwrap();
    assert_eq!(wo.to_string(), "P('tp', None)");
    assert_eq!(t.pairs[0].1, Selector::Name("args[0]".into()));
}
