//! The program from outside: exit codes, streams, formats.

mod common;

use common::{code, err, out, root, scalify};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

struct Temp(PathBuf);

impl Temp {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("scalify-cli-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Temp(dir)
    }
    fn file(&self, name: &str, data: &[u8]) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, data).unwrap();
        path.display().to_string()
    }
    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const BASE: &str = "examples/llama_layer/base.hlo.txt";
const SHARD_MAP: &str = "examples/llama_layer/shard_map.hlo.txt";
const GSPMD: &str = "examples/llama_layer/gspmd.hlo.txt";
const WRONG: &str = "examples/llama_layer/shard_map_wrong.hlo.txt";

#[test]
fn right_programs_are_proved() {
    for dist in [SHARD_MAP, GSPMD] {
        let o = scalify(&["verify", BASE, dist]);
        assert_eq!(code(&o), 0, "{dist}: {}{}", out(&o), err(&o));
        assert!(out(&o).starts_with("PROVED"), "{}", out(&o));
        assert_eq!(err(&o), "");
    }
}

#[test]
fn wrong_program_is_not_proved_and_the_line_is_shown() {
    let o = scalify(&["verify", BASE, WRONG]);
    assert_eq!(code(&o), 1, "{}", out(&o));
    let text = out(&o);
    assert!(text.starts_with("REFUTED"), "{text}");
    // `return (...) @ w["down"]` in `mlp` is where the partial sums arise.
    assert!(text.contains("examples/jax/model.py:39"), "{text}");
}

#[test]
fn json_says_the_same() {
    let o = scalify(&["verify", BASE, SHARD_MAP, "--json"]);
    assert_eq!(code(&o), 0);
    let v: serde_json::Value = serde_json::from_slice(&o.stdout).unwrap();
    assert_eq!(v["schema_version"], 1);
    assert_eq!(v["verdict"], "proved");
    assert_eq!(v["mesh"][0], serde_json::json!({"axis": "tp", "size": 4}));
    assert_eq!(v["outputs"].as_array().unwrap().len(), 1);
    let o = scalify(&["verify", BASE, WRONG, "--json"]);
    let v: serde_json::Value = serde_json::from_slice(&o.stdout).unwrap();
    assert_ne!(v["verdict"], "proved");
    let all = v["frontier"].as_array().unwrap();
    let guilty = all.iter().any(|f| f["source"]["line"] == 39);
    assert!(guilty, "{all:?}");
}

#[test]
fn quiet_prints_two_lines_and_colour_is_on_request() {
    let o = scalify(&["verify", BASE, SHARD_MAP, "-q"]);
    assert_eq!(out(&o).lines().count(), 2);
    assert!(!out(&o).contains('\x1b'));
    let o = scalify(&["verify", BASE, SHARD_MAP, "-q", "--color", "always"]);
    assert!(out(&o).starts_with("\x1b[1;32mPROVED\x1b[0m"));
}

#[test]
fn bad_usage_and_input_end_with_2() {
    let t = Temp::new("bad");
    let binary = t.file("x.bin", &[0xff, 0xfe, 0, 1, 2, 0x80]);
    let empty = t.file("empty", b"");
    let spec = t.file("s.toml", b"mesh = \"tp=4\"\n[in]\nx = \"P(tp)\"\n");
    let other = t.file("k.json", b"{\"inputs\": {}}");
    let cases: &[(&[&str], &str)] = &[
        (&[], "Usage"),
        (&["verify", BASE], "required arguments"),
        (&["frobnicate"], "unrecognized subcommand"),
        (&["verify", BASE, "/does/not/exist"], "/does/not/exist: cannot open"),
        (&["verify", "/", BASE], "/: "),
        (&["inspect", &binary], "x.bin"),
        (&["inspect", &empty], "empty"),
        (&["verify", BASE, SHARD_MAP, "--mesh", "tp"], "--mesh: expected `=` and the size"),
        (
            &["verify", BASE, SHARD_MAP, "--in", "x=P(tp)"],
            "--in: expected `None`, an axis in quotes",
        ),
        (&["verify", BASE, SHARD_MAP, "--out", "#0"], "--out: expected `=` and a partition spec"),
        (&["verify", BASE, SHARD_MAP, "--assume", "x in 3"], "--assume: expected `[`"),
        (&["verify", BASE, SHARD_MAP, "--pair", "x"], "--pair: expected `=`"),
        (&["verify", BASE, SHARD_MAP, "--time-limit", "3y"], "expected the unit ms, s, m or h"),
        (&["verify", BASE, SHARD_MAP, "--memory-limit", "3x"], "expected the unit K, M, G or T"),
        (&["verify", BASE, SHARD_MAP, "--mesh", "tp=4", "--in", "x=P('dp')"], "has no axis `dp`"),
        (&["verify", BASE, SHARD_MAP, "--spec", &spec], "s.toml: line 3, column 5: expected"),
        (&["verify", BASE, SHARD_MAP, "--spec", &other], "unknown field `inputs`"),
        (&["verify", BASE, SHARD_MAP, "--explain", "nope"], "no instruction `nope`"),
        (&["convert", BASE, "/does/not/exist.txt"], "/does/not/exist.txt: cannot create"),
        (&["completions", "cmd"], "invalid value"),
    ];
    for (args, expected) in cases {
        let o = scalify(args);
        assert_eq!(code(&o), 2, "{args:?}: {}", err(&o));
        assert!(err(&o).contains(expected), "{args:?}: {}", err(&o));
        assert_eq!(out(&o), "", "{args:?}");
    }
}

#[test]
fn parse_errors_show_the_line() {
    let t = Temp::new("parse");
    let f = t.file(
        "bad.hlo",
        b"HloModule m\n\nENTRY main {\n  x = f32[4] parameter(0)\n  ROOT y = f32[4] add(x, z)\n}\n",
    );
    let o = scalify(&["inspect", &f]);
    assert_eq!(code(&o), 2);
    let text = err(&o).replace(&f, "bad.hlo");
    assert!(text.contains("bad.hlo:5:26"), "{text}");
    assert!(text.contains("ROOT y = f32[4] add(x, z)"), "{text}");
    // The other file is named if it is the bad one.
    let o = scalify(&["verify", BASE, &f]);
    assert!(err(&o).contains(&f), "{}", err(&o));
}

#[test]
fn help_and_version_end_with_0() {
    let o = scalify(&["--help"]);
    assert_eq!((code(&o), err(&o)), (0, String::new()));
    assert!(out(&o).contains("Exit codes: 0 proved, 1 refuted, 2 bad usage or input, 3 unknown"));
    let o = scalify(&["--version"]);
    assert_eq!(out(&o).trim(), format!("scalify {}", env!("CARGO_PKG_VERSION")));
}

#[test]
fn completions_name_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let o = scalify(&["completions", shell]);
        assert_eq!(code(&o), 0);
        assert!(out(&o).contains("source-root"), "{shell}");
    }
}

#[test]
fn inspect_counts() {
    let o = scalify(&["inspect", GSPMD, "--json"]);
    assert_eq!(code(&o), 0);
    let v: serde_json::Value = serde_json::from_slice(&o.stdout).unwrap();
    assert_eq!(v["num_partitions"], 4);
    assert_eq!(v["parameters"].as_array().unwrap().len(), 10);
    // `down` is [256, 64] split by rows over 4 devices.
    let down = &v["parameters"][1];
    assert_eq!(down["name"], "w['down']");
    assert_eq!(down["shape"], "f32[64,64]");
    assert_eq!(down["spec"], "P('d0')");
    // Two all-reduces of f32[2,32,64]: 2 * 2*32*64*4 bytes.
    let c = v["collectives"].as_array().unwrap();
    assert_eq!(c.len(), 1);
    assert_eq!((&c[0]["opcode"], &c[0]["count"]), (&"all-reduce".into(), &2.into()));
    assert_eq!((&c[0]["group_size"], &c[0]["bytes"]), (&4.into(), &32768.into()));
    let total: i64 = v["opcodes"].as_object().unwrap().values().filter_map(|n| n.as_i64()).sum();
    assert_eq!(v["instructions"], total);
    // The text names the same things.
    let o = scalify(&["inspect", SHARD_MAP]);
    assert!(out(&o).contains("mesh @mesh: tp=4 (4 devices)"), "{}", out(&o));
    assert!(out(&o).contains("examples/jax/model.py"));
}

#[test]
fn convert_keeps_the_module() {
    let t = Temp::new("convert");
    let (pb, txt) = (t.path("a.pb"), t.path("a.txt"));
    assert_eq!(code(&scalify(&["convert", GSPMD, &pb])), 0);
    assert_eq!(code(&scalify(&["convert", &pb, &txt])), 0);
    let direct = scalify(&["convert", GSPMD, "-"]);
    assert_eq!(std::fs::read_to_string(&txt).unwrap(), out(&direct));
    let back = scalify(&["convert", &pb, "-", "--to", "proto"]);
    assert_eq!(back.stdout, std::fs::read(&pb).unwrap());
    // Both forms verify alike.
    assert_eq!(code(&scalify(&["verify", BASE, &pb, "-q"])), 0);
}

#[test]
fn compressed_files_are_read() {
    let t = Temp::new("gzip");
    let text = std::fs::read(root().join(BASE)).unwrap();
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(&text).unwrap();
    let f = t.file("base.hlo.txt.gz", &gz.finish().unwrap());
    assert_eq!(code(&scalify(&["verify", &f, SHARD_MAP, "-q"])), 0);
    let cut = t.file("cut.gz", &std::fs::read(&f).unwrap()[..200]);
    assert_eq!(code(&scalify(&["inspect", &cut])), 2);
}

#[test]
fn a_closed_pipe_is_no_error() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_scalify"))
        .args(["completions", "zsh"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let o = child.wait_with_output().unwrap();
    assert_eq!(err(&o), "");
    assert_eq!(code(&o), 0);
}

#[test]
fn spec_file_and_options_are_taken() {
    let t = Temp::new("spec");
    let spec = t.file(
        "claim.json",
        br##"{"mesh": "tp=4", "in": {"w['down']": ["tp", null]}, "out": {"#0": []}}"##,
    );
    let o = scalify(&["verify", BASE, GSPMD, "--spec", &spec, "-q"]);
    assert_eq!(code(&o), 0, "{}{}", out(&o), err(&o));
    assert!(out(&o).contains("tp=4"), "{}", out(&o));
}

#[test]
fn explain_prints_steps() {
    let o = scalify(&["verify", BASE, SHARD_MAP, "--explain", "psum.10"]);
    assert_eq!(code(&o), 0, "{}", err(&o));
    assert!(!out(&o).trim().is_empty());
}

/// A pair too big to evaluate is drawn at reduced sizes: the page says so.
#[test]
fn the_page_draws_a_counterexample_at_reduced_sizes() {
    let t = Temp::new("reduced");
    let dot = |name: &str, k: i64| {
        format!(
            "HloModule {name}\nENTRY e {{\n  x = f32[65536,{k}] parameter(0)\n  \
             w = f32[{k},65536] parameter(1)\n  ROOT y = f32[65536,65536] dot(x, w), \
             lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}\n}}\n"
        )
    };
    let base = t.file("base.hlo", dot("base", 32768).as_bytes());
    let wrong = t.file("dist.hlo", dot("dist, num_partitions=4", 8192).as_bytes());
    let page = t.path("page.html");
    let o = scalify(&["verify", &base, &wrong, "--mesh", "tp=4", "--html", &page]);
    assert_eq!(code(&o), 1, "{}{}", out(&o), err(&o));
    let html = std::fs::read_to_string(&page).unwrap();
    assert!(html.contains("plane of the worst element, at reduced sizes"), "no heading");
    // Expected, actual and difference on each of the four devices.
    assert_eq!(html.matches("<b>device ").count(), 4);
    assert!(html.contains("class=\"heat\""), "no maps");
}
