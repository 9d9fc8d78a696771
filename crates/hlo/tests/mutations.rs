//! Broken text never panics, and what is read can be written and read again.

use scalify_hlo::{WriteOptions, parse, write};
use std::time::{Duration, Instant};

/// xorshift64*: the same sequence on every run.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545F4914F6CDD1D) >> 33) as usize % n.max(1)
    }
}

fn samples() -> Vec<String> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ok");
    let mut paths: Vec<_> =
        std::fs::read_dir(dir).map(|d| d.flatten().map(|e| e.path()).collect()).unwrap_or_default();
    paths.sort();
    paths.iter().filter_map(|p| std::fs::read_to_string(p).ok()).collect()
}

fn check(text: &str) {
    match parse(text) {
        Ok(m) => {
            let once = write(&m, &WriteOptions::default());
            match parse(&once) {
                Ok(m) => assert_eq!(write(&m, &WriteOptions::default()), once),
                Err(e) => panic!("{}\nfrom\n{text}", e.render("own output", &once, false)),
            }
        }
        Err(e) => {
            assert!(e.span.start as usize <= text.len() && e.span.end as usize <= text.len());
            assert!(text.is_char_boundary(e.span.start as usize));
            assert!(e.line >= 1 && e.column >= 1);
            assert!(!e.render("x", text, true).is_empty());
        }
    }
}

#[test]
fn every_prefix_of_every_sample() {
    for s in samples() {
        let step = s.len() / 400 + 1;
        for end in (0..s.len()).step_by(step).filter(|&i| s.is_char_boundary(i)) {
            check(&s[..end]);
        }
    }
}

#[test]
fn random_edits() {
    const PIECES: &[&str] = &[
        "{",
        "}",
        "(",
        ")",
        "[",
        "]",
        ",",
        "=",
        "\"",
        "'",
        "%",
        "#",
        "/*",
        "*/",
        "//",
        "\\",
        "-",
        "99999999999999999999",
        "-1",
        "0",
        "<=",
        "->",
        "...",
        "nan(0x",
        "\u{e9}",
        "\0",
        "ROOT ",
        "ENTRY ",
        "f32[",
        "T(",
        "mesh[",
        "?",
        "x",
        "_",
        ":",
        "metadata={",
        "calls={",
        "b(",
        "\n",
    ];
    let samples = samples();
    let mut rng = Rng(0x9E3779B97F4A7C15);
    let begin = Instant::now();
    for round in 0..12_000 {
        if begin.elapsed() > Duration::from_secs(20) {
            break;
        }
        let mut bytes = samples[round % samples.len()].clone().into_bytes();
        for _ in 0..1 + rng.below(4) {
            let at = rng.below(bytes.len());
            match rng.below(5) {
                0 => bytes[at] = rng.below(128) as u8,
                1 => {
                    let piece = PIECES[rng.below(PIECES.len())];
                    bytes.splice(at..at, piece.bytes());
                }
                2 => {
                    let end = (at + rng.below(30)).min(bytes.len());
                    bytes.drain(at..end);
                }
                3 => {
                    let end = (at + rng.below(60)).min(bytes.len());
                    let part = bytes[at..end].to_vec();
                    let to = rng.below(bytes.len());
                    bytes.splice(to..to, part);
                }
                _ => {
                    let other = samples[rng.below(samples.len())].as_bytes();
                    let from = rng.below(other.len());
                    let end = (from + rng.below(80)).min(other.len());
                    bytes.splice(at..at, other[from..end].iter().copied());
                }
            }
            if bytes.is_empty() {
                bytes.push(b' ');
            }
        }
        check(&String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn deep_nesting_is_an_error_not_a_crash() {
    for (open, head) in [
        ("(", "HloModule m\nENTRY e {\n x = "),
        ("b(", "HloModule m\nENTRY e {\n x = "),
        ("add(", "HloModule m\nENTRY e {\n x = f32[] "),
        ("f32[] negate(", "HloModule m\nENTRY e {\n x = "),
        ("x = f32[] call(), to_apply={", "HloModule m\nENTRY e {"),
        ("{", "HloModule m\nENTRY e {\n x = f32[1] constant("),
        (
            "(",
            "HloModule m\nENTRY e {\n x = f32[] custom-call(), custom_call_target=\"a\", literal=",
        ),
        ("{", "HloModule m, frontend_attributes="),
        ("{", "HloModule m\nENTRY e {\n x = f32[] parameter(0), sharding="),
    ] {
        let text = format!("{head}{}", open.repeat(100_000));
        assert!(parse(&text).is_err());
    }
}

#[test]
fn time_grows_with_size_not_its_square() {
    // 2^15 against 2^12 instructions in a chain of forward references.
    let text = |n: usize| {
        let mut s = String::from("HloModule m\nENTRY e {\n");
        for i in 0..n {
            s.push_str(&format!("  x{i} = f32[4] add(x{}, x{})\n", i + 1, i + 1));
        }
        s + &format!("  x{n} = f32[4] parameter(0)\n}}\n")
    };
    let time = |n: usize| {
        let text = text(n);
        let best = (0..3).map(|_| {
            let t = Instant::now();
            assert!(parse(&text).is_ok());
            t.elapsed()
        });
        best.min().unwrap_or_default()
    };
    // Eight times the size; a busy machine may spoil a measurement or two.
    let ratios: Vec<f64> = (0..6)
        .map(|_| time(1 << 15).as_secs_f64() / time(1 << 12).as_secs_f64().max(1e-9))
        .collect();
    assert!(ratios.iter().any(|r| *r < 30.0), "{ratios:?}");
}
