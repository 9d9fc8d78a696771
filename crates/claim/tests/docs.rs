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

#[test]
fn example_of_a_pipeline() {
    let doc = include_str!("../../../docs/SPEC.md");
    let at = doc.find("results = [").unwrap();
    let end = doc[at..].find("```").unwrap();
    let c = parse_spec_file(&doc[at..at + end], Some(FileFormat::Toml)).unwrap();
    let texts: Vec<String> = c.links.iter().map(|(a, b)| format!("{a}={b}")).collect();
    assert_eq!(texts, ["1:h=0:#0", "1:mask=0:#1"]);
    assert_eq!(c.results.iter().map(ToString::to_string).collect::<Vec<_>>(), ["1:#0"]);
    let json = r#"{"link": {"1:h": "0:#0", "1:mask": "0:#1"}, "results": ["1:#0"]}"#;
    assert_eq!(parse_spec_file(json, Some(FileFormat::Json)).unwrap(), c);
    for (text, words) in [
        ("[link]\n\"h\" = \"0:#0\"", "the number of a stage"),
        ("[link]\n\"1:h\" = \"0:h\"", "outputs have no names"),
        ("results = [\"#0\"]", "the number of a stage"),
    ] {
        let e = parse_spec_file(text, Some(FileFormat::Toml)).unwrap_err();
        assert!(e.message.contains(words), "{e}");
    }
}
