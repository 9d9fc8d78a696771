//! Whole rendered messages.

use scalify_hlo::parse;

fn render(text: &str) -> String {
    parse(text).map_or_else(|e| e.render("a.hlo", text, false), |_| "read".to_owned())
}

#[test]
fn a_second_definition_shows_both_places() {
    let text = "HloModule m\nENTRY e {\n  x = f32[4] parameter(0)\n  x = f32[4] negate(x)\n}\n";
    let want = "\
error: instruction `x` is defined twice
 --> a.hlo:4:3
  |
4 |   x = f32[4] negate(x)
  |   ^
  |
note: the first definition is here
 --> a.hlo:3:3
  |
3 |   x = f32[4] parameter(0)
  |   -----------------------";
    assert_eq!(render(text), want);
}

#[test]
fn a_long_line_is_cut_around_the_place() {
    let many = "/**/ ".repeat(200_000);
    let text = format!("HloModule m\nENTRY e {{\n  {many}x = f32[4] what(0) {many}\n}}\n");
    let out = render(&text);
    assert!(out.contains("unknown opcode `what`"), "{out}");
    assert!(out.len() < 2_000, "{}", out.len());
}

#[test]
fn the_end_of_the_text_has_a_place() {
    let out = render("HloModule m\nENTRY e {\n  x = f32[4] parameter(0)\n");
    assert!(out.contains("unexpected end of the text"), "{out}");
    assert!(out.contains("a.hlo:4:1"), "{out}");
}
