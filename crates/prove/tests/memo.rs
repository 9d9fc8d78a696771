//! Proofs by lemmas: the same answer as without, for stacks of layers that are
//! equal, and no proof where one layer, one wire or one declared range is not.

use scalify_claim::{Assume, Claim, Mesh};
use scalify_ir::{InstrId, Module};
use scalify_prove::outcome::{Grade, Outcome, Verdict};
use scalify_prove::{Kept, Memo, Options, verify, verify_early};

const LAYERS: usize = 9;

/// One side of a stack; `edit` may replace the lines of a layer.
struct Stack {
    dist: bool,
    /// Devices of the distributed side, and the groups that hold one sum.
    devices: usize,
    groups: &'static str,
    /// Weights of the layers.
    weight: Vec<usize>,
    /// Which value each layer starts from: the output of layer `k - 1`, or
    /// the input.
    from: Vec<usize>,
    /// Which layer's activations each output holds.
    shown: Vec<usize>,
    /// Replaced text, per layer or for all.
    edits: Vec<(Option<usize>, &'static str, &'static str)>,
}

impl Stack {
    fn new(dist: bool) -> Self {
        Stack::of(dist, LAYERS)
    }

    fn of(dist: bool, layers: usize) -> Self {
        let all: Vec<usize> = (0..layers).collect();
        Stack {
            dist,
            devices: 2,
            groups: "{{0,1}}",
            weight: all.clone(),
            from: all.clone(),
            shown: all,
            edits: Vec::new(),
        }
    }

    fn edit(mut self, layer: Option<usize>, from: &'static str, to: &'static str) -> Self {
        self.edits.push((layer, from, to));
        self
    }

    fn module(&self) -> Module {
        let wide = if self.dist { 6 } else { 12 };
        let devices = if self.dist { self.devices } else { 1 };
        let mut params = String::from(" x0 = f32[4,8] parameter(0)\n");
        let mut layers = String::new();
        let count = self.weight.len();
        for k in 0..count {
            let p = 4 * k + 1;
            params += &format!(
                " w{k} = f32[8,{wide}] parameter({p})\n u{k} = f32[8,{wide}] parameter({})\n v{k} = f32[{wide},8] parameter({})\n i{k} = s32[] parameter({})\n",
                p + 1,
                p + 2,
                p + 3
            );
        }
        for k in 0..count {
            let sum = if self.dist {
                "r@ = f32[4,8] all-reduce(d@), channel_id=@@, replica_groups=&, use_global_device_ids=true, to_apply=add"
            } else {
                "r@ = f32[4,8] copy(d@)"
            };
            let mut text = format!(
                " a@ = f32[4,8] negate(x<)
 h@ = f32[4,{wide}] dot(a@, w#), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
 g@ = f32[4,{wide}] dot(a@, u#), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
 t@ = f32[4,{wide}] tanh(h@)
 m@ = f32[4,{wide}] multiply(t@, g@)
 c@ = f32[] constant(0.5)
 b@ = f32[4,{wide}] broadcast(c@), dimensions={{}}
 s@ = f32[4,{wide}] multiply(m@, b@)
 d@ = f32[4,8] dot(s@, v#), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
 {sum}
 n@ = s32[] copy(i#)
 q@ = f32[] convert(n@)
 e@ = f32[4,8] broadcast(q@), dimensions={{}}
 y@ = f32[4,8] add(r@, e@)
 x> = f32[4,8] add(x<, y@)
"
            );
            for (at, from, to) in &self.edits {
                if at.is_none_or(|a| a == k) && text.contains(from) {
                    text = text.replace(from, to);
                }
            }
            layers += &text
                .replace("@@", &(k + 1).to_string())
                .replace('@', &k.to_string())
                .replace('&', self.groups)
                .replace('#', &self.weight[k].to_string())
                .replace("x<", &format!("x{}", self.from[k]))
                .replace("x>", &format!("x{}", k + 1));
        }
        let shown: Vec<String> = self.shown.iter().map(|k| format!("t{k}")).collect();
        let types = vec![format!("f32[4,{wide}]"); count].join(", ");
        let text = format!(
            "HloModule m, num_partitions={devices}

add {{
 a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT r = f32[] add(a, b)
}}

ENTRY main {{
{params}{layers} ROOT out = (f32[4,8], {types}) tuple(x{count}, {})
}}
",
            shown.join(", ")
        );
        scalify_hlo::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
    }
}

fn claim() -> Claim {
    claim_of(LAYERS)
}

fn claim_of(layers: usize) -> Claim {
    let mut c = Claim { mesh: Mesh::parse("tp=2").ok(), ..Claim::default() };
    for k in 0..layers {
        c.add_input(&format!("w{k}=P(None, 'tp')")).unwrap();
        c.add_input(&format!("u{k}=P(None, 'tp')")).unwrap();
        c.add_input(&format!("v{k}=P('tp', None)")).unwrap();
        c.add_output(&format!("#{}=P(None, 'tp')", k + 1)).unwrap();
    }
    c
}

fn decide(base: &Module, dist: &Module, c: &Claim, memo: Memo) -> Outcome {
    verify(base, dist, c, &Options { memo, ..Options::default() })
}

/// Both answers, without and with lemmas.
fn both(base: &Stack, dist: &Stack, c: &Claim) -> [Outcome; 2] {
    let (b, d) = (base.module(), dist.module());
    [Memo::Never, Memo::Always].map(|m| decide(&b, &d, c, m))
}

#[test]
fn equal_layers_are_one_lemma_and_the_report_is_the_same() {
    let [whole, lemmas] = both(&Stack::new(false), &Stack::new(true), &claim());
    assert_eq!(whole.verdict, Verdict::Proved, "{:?}", whole.outputs);
    assert_eq!(whole.stats.parts, 0);
    let s = lemmas.stats;
    assert!(s.lemmas > 0 && s.lemmas + 3 < s.parts, "{s:?}");
    assert_eq!(lemmas.verdict, whole.verdict);
    assert_eq!(lemmas.grade, whole.grade);
    assert_eq!(lemmas.assumptions, whole.assumptions);
    assert_eq!(lemmas.regrouped, whole.regrouped);
    assert_eq!(lemmas.regrouped.len(), LAYERS);
    assert_eq!(lemmas.outputs, whole.outputs);
    assert_eq!(lemmas.notes, whole.notes);
    assert_eq!(lemmas.mesh, whole.mesh);
    // Fewer terms, as most layers are not lifted.
    assert!(s.classes < whole.stats.classes);
}

/// Neither way may prove the pair.
fn never(what: &str, base: &Stack, dist: &Stack, c: &Claim) {
    for (o, how) in both(base, dist, c).iter().zip(["whole", "lemmas"]) {
        assert_ne!(o.verdict, Verdict::Proved, "{what}, {how}");
    }
}

#[test]
fn one_wrong_layer_is_enough() {
    let edits: [(&str, &str, &str); 9] = [
        (
            "no sum",
            "all-reduce(d@), channel_id=@@, replica_groups=&, use_global_device_ids=true, to_apply=add",
            "copy(d@)",
        ),
        ("sum of one", "replica_groups=&", "replica_groups={{0},{1}}"),
        ("scale", "constant(0.5)", "constant(0.25)"),
        ("weight", "dot(a@, u#)", "dot(a@, w#)"),
        ("function", "tanh(h@)", "logistic(h@)"),
        ("sign", "negate(x<)", "copy(x<)"),
        ("order", "add(r@, e@)", "subtract(r@, e@)"),
        ("residual", "add(x<, y@)", "add(a@, y@)"),
        ("rounding", "copy(d@)", "reduce-precision(d@), exponent_bits=8, mantissa_bits=7"),
    ];
    for (what, from, to) in edits {
        for layer in [Some(0), Some(5), Some(LAYERS - 1), None] {
            let name = format!("{what} in {layer:?}");
            if from == "copy(d@)" {
                let base = Stack::new(false).edit(layer, from, to);
                never(&name, &base, &Stack::new(true), &claim());
            } else {
                let dist = Stack::new(true).edit(layer, from, to);
                never(&name, &Stack::new(false), &dist, &claim());
            }
        }
    }
}

#[test]
fn wires_between_layers_count() {
    // The weights of another layer, the output of the layer before the last,
    // another layer's activations as output.
    for k in [1, 4, LAYERS - 1] {
        let mut dist = Stack::new(true);
        dist.weight[k] = k - 1;
        never("weights used twice", &Stack::new(false), &dist, &claim());
        let mut dist = Stack::new(true);
        dist.weight.swap(k, k - 1);
        never("weights swapped", &Stack::new(false), &dist, &claim());
        let mut dist = Stack::new(true);
        dist.from[k] = k - 1;
        never("layer skipped", &Stack::new(false), &dist, &claim());
        let mut dist = Stack::new(true);
        dist.shown.swap(k, k - 1);
        never("outputs swapped", &Stack::new(false), &dist, &claim());
    }
    // The same order on both sides is right.
    let (mut base, mut dist) = (Stack::new(false), Stack::new(true));
    for s in [&mut base, &mut dist] {
        s.weight.rotate_left(2);
        s.shown.reverse();
    }
    for o in both(&base, &dist, &claim()) {
        assert_eq!(o.verdict, Verdict::Proved);
    }
    never("order of weights", &base, &Stack::new(true), &claim());
}

#[test]
fn layouts_of_inputs_count() {
    let mut c = claim();
    c.mesh = Mesh::parse("tp=2,dp=2").ok();
    let mut dist = Stack::new(true);
    (dist.devices, dist.groups) = (4, "{{0,2},{1,3}}");
    for o in both(&Stack::new(false), &dist, &c) {
        assert_eq!(o.verdict, Verdict::Proved, "{:?}", o.outputs);
    }
    // One layer's factor is split over the other axis: the same shapes.
    for k in [0, 4, LAYERS - 1] {
        let mut d = c.clone();
        d.add_input(&format!("u{k}=P(None, 'dp')")).unwrap();
        never("a layer's weights over another axis", &Stack::new(false), &dist, &d);
        let mut d = c.clone();
        d.add_output(&format!("#{}=P(None, 'dp')", k + 1)).unwrap();
        never("an output over another axis", &Stack::new(false), &dist, &d);
    }
}

#[test]
fn a_declared_range_holds_for_its_input_alone() {
    // Equal where the integer is not negative.
    let dist = || {
        Stack::new(true).edit(
            None,
            " n@ = s32[] copy(i#)",
            " z@ = s32[] constant(0)\n n@ = s32[] maximum(i#, z@)",
        )
    };
    let mut c = claim();
    for k in 0..LAYERS {
        c.assume.push(Assume::parse(&format!("i{k} in [0, 100]")).unwrap());
    }
    let [whole, lemmas] = both(&Stack::new(false), &dist(), &c);
    assert_eq!(whole.verdict, Verdict::Proved, "{:?}", whole.outputs);
    assert_eq!(lemmas.verdict, Verdict::Proved);
    assert!(lemmas.stats.lemmas > 0);
    assert_eq!(lemmas.assumptions, whole.assumptions);
    assert_eq!(lemmas.grade, whole.grade);
    for k in [0, 6] {
        let mut d = c.clone();
        d.assume.remove(k);
        never("a range less", &Stack::new(false), &dist(), &d);
        let mut d = c.clone();
        d.assume[k].lo = -1;
        never("a range too wide", &Stack::new(false), &dist(), &d);
    }
}

#[test]
fn unknown_constants_and_calls_are_no_two_alike() {
    // A constant that is not printed may be another in each layer.
    let hidden = |s: Stack| {
        s.edit(
            None,
            "b@ = f32[4,12] broadcast(c@), dimensions={}",
            "b@ = f32[4,12] constant({...})",
        )
    };
    let zero = |s: Stack| {
        s.edit(
            None,
            " y@ = f32[4,8] add(r@, e@)",
            " o@ = f32[4,8] constant({...})\n p@ = f32[4,8] constant({...})\n l@ = f32[4,8] subtract(o@, p@)\n k@ = f32[4,8] add(r@, e@)\n y@ = f32[4,8] add(k@, l@)",
        )
    };
    never("hidden constants", &hidden(Stack::new(false)), &Stack::new(true), &claim());
    never("their difference", &zero(Stack::new(false)), &Stack::new(true), &claim());
    // What a custom call of unknown meaning gives twice need not be the same.
    let call = |s: Stack| {
        s.edit(
            None,
            " y@ = f32[4,8] add(r@, e@)",
            " o@ = f32[4,8] custom-call(x<), custom_call_target=\"noise\"\n p@ = f32[4,8] custom-call(x<), custom_call_target=\"noise\"\n l@ = f32[4,8] subtract(o@, p@)\n k@ = f32[4,8] add(r@, e@)\n y@ = f32[4,8] add(k@, l@)",
        )
    };
    let (base, dist) = (call(Stack::new(false)), Stack::new(true));
    let [whole, lemmas] = both(&base, &dist, &claim());
    assert!(lemmas.verdict != Verdict::Proved || whole.verdict == Verdict::Proved);
}

/// Layers in which `m` and `n` are equal over finite values alone, both used
/// by the next layer.
fn near_equal(devices: usize) -> Module {
    let mut params = String::from(" x0 = f32[4,4] parameter(0)\n g = f32[4,4] parameter(1)\n");
    let mut layers = String::from(" m0 = f32[4,4] tanh(g)\n n0 = f32[4,4] negate(g)\n");
    for k in 1..=LAYERS {
        params += &format!(" p{k} = f32[4,4] parameter({})\n", k + 1);
        let j = k - 1;
        layers += &format!(
            " t{k} = f32[4,4] tanh(x{j})
 z{k} = f32[4,4] subtract(x{j}, x{j})
 m{k} = f32[4,4] add(t{k}, g)
 n{k} = f32[4,4] add(m{k}, z{k})
 a{k} = f32[4,4] negate(n{k})
 b{k} = f32[4,4] multiply(a{k}, p{k})
 c{k} = f32[4,4] logistic(b{k})
 q{k} = f32[4,4] multiply(m{j}, n{j})
 r{k} = f32[4,4] maximum(q{k}, m{j})
 x{k} = f32[4,4] add(c{k}, r{k})
"
        );
    }
    let text = format!(
        "HloModule m, num_partitions={devices}\n\nENTRY main {{\n{params}{layers} ROOT out = f32[4,4] copy(x{LAYERS})\n}}\n"
    );
    scalify_hlo::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

#[test]
fn lemmas_use_no_stronger_laws_than_the_whole_needs() {
    let c = Claim { mesh: Mesh::parse("tp=2").ok(), ..Claim::default() };
    let (base, dist) = (near_equal(1), near_equal(2));
    let [whole, lemmas] = [Memo::Never, Memo::Always].map(|m| decide(&base, &dist, &c, m));
    assert_eq!((whole.verdict, whole.grade), (Verdict::Proved, Some(Grade::Exact)));
    assert!(lemmas.stats.lemmas > 0);
    assert_eq!((lemmas.verdict, lemmas.grade), (Verdict::Proved, Some(Grade::Exact)));
    assert_eq!(lemmas.assumptions, whole.assumptions);
}

/// Layers of which each hands a value `s`, made by `wire`, to the next, and
/// `end` after the last.
fn handed_on(devices: usize, wire: &str, end: &str) -> Module {
    let mut params = String::from(" x0 = f32[4,4] parameter(0)\n");
    let mut layers = String::from(
        " zero = f32[] constant(0)\n zeros = f32[4,4] broadcast(zero), dimensions={}
 one = f32[] constant(1)\n ones = f32[4,4] broadcast(one), dimensions={}
 ninf = f32[] constant(-inf)\n low = f32[4,4] broadcast(ninf), dimensions={}
 s0 = f32[4,4] tanh(x0)\n",
    );
    for k in 1..=LAYERS {
        params += &format!(" p{k} = f32[4,4] parameter({k})\n");
        layers += &format!(
            " t@ = f32[4,4] tanh(x<)
 a@ = f32[4,4] multiply(t@, p@)
 b@ = f32[4,4] logistic(a@)
 u@ = pred[4,4] compare(b@, p@), direction=GT
{wire} c@ = f32[4,4] negate(b@)
 d@ = f32[4,4] cosine(c@)
 e@ = f32[4,4] maximum(d@, s<)
 x@ = f32[4,4] add(e@, b@)
"
        )
        .replace('@', &k.to_string())
        .replace("x<", &format!("x{}", k - 1))
        .replace("s<", &format!("s{}", k - 1));
    }
    let end = end.replace('@', &LAYERS.to_string());
    let text = format!(
        "HloModule m, num_partitions={devices}\n\nENTRY main {{\n{params}{layers}{end} ROOT out = f32[4,4] add(x{LAYERS}, z)\n}}\n"
    );
    scalify_hlo::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

#[test]
fn what_is_known_of_a_value_is_known_behind_a_cut() {
    let c = Claim { mesh: Mesh::parse("tp=2").ok(), ..Claim::default() };
    let masked = " s@ = f32[4,4] select(u@, b@, low)\n";
    let selects = " s@ = f32[4,4] convert(u@)\n";
    let cases = [
        // -inf - -inf is NaN.
        (masked, " z = f32[4,4] subtract(s@, s@)\n", " z = f32[4,4] copy(zeros)\n"),
        // 0 * -inf is NaN.
        (
            masked,
            " f = f32[4,4] convert(u@)\n z = f32[4,4] multiply(f, s@)\n",
            " z = f32[4,4] select(u@, s@, zeros)\n",
        ),
        // 0 / 0 is NaN.
        (selects, " z = f32[4,4] divide(s@, s@)\n", " z = f32[4,4] copy(ones)\n"),
    ];
    for (wire, here, there) in cases {
        let (base, dist) = (handed_on(1, wire, here), handed_on(2, wire, there));
        for m in [Memo::Never, Memo::Always] {
            let o = decide(&base, &dist, &c, m);
            assert_ne!(o.verdict, Verdict::Proved, "{here}, {m:?}: {:?}", o.assumptions);
        }
        // The same on both sides is right.
        let dist = handed_on(2, wire, here);
        assert_eq!(decide(&base, &dist, &c, Memo::Always).verdict, Verdict::Proved, "{here}");
    }
}

#[test]
fn a_lemma_assumes_nothing_of_its_cuts() {
    let c = Claim { mesh: Mesh::parse("tp=2").ok(), ..Claim::default() };
    let wire = " s@ = f32[4,4] add(b@, p@)\n";
    let (here, there) = (" z = f32[4,4] subtract(s@, s@)\n", " z = f32[4,4] copy(zeros)\n");
    let (base, dist) = (handed_on(1, wire, here), handed_on(2, wire, there));
    let [whole, lemmas] = [Memo::Never, Memo::Always].map(|m| decide(&base, &dist, &c, m));
    assert_eq!((whole.verdict, whole.grade), (Verdict::Proved, Some(Grade::UnderAssumptions)));
    // Proved as a whole, where it is known what is assumed finite.
    assert_eq!((lemmas.verdict, lemmas.grade), (whole.verdict, whole.grade));
    assert_eq!(lemmas.stats.lemmas, 0);
}

/// Splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }
}

/// What an operation of a layer reads.
#[derive(Clone, Copy)]
enum From {
    /// Value of the same layer.
    Own(usize),
    /// Value `.1` of the layer `.0` before.
    Before(usize, usize),
    /// Weight `.1`, of the layer itself or of layer `.0`.
    Weight(Option<usize>, usize),
    /// A constant or the input.
    Fixed(&'static str),
}

type Op = (&'static str, Vec<From>);

const UNARY: [&str; 6] = ["tanh", "exponential", "negate", "sine", "logistic", "abs"];
const BINARY: [&str; 5] = ["add", "multiply", "subtract", "maximum", "minimum"];
const FIXED: [&str; 4] = ["h", "g", "zeros", "low"];

fn reads(r: &mut Random, j: usize, values: usize) -> From {
    match r.below(8) {
        0 => From::Weight(None, r.below(2)),
        1 => From::Fixed(FIXED[r.below(FIXED.len())]),
        2 => From::Before(1, r.below(values)),
        3 => From::Before(2, values - 1),
        4 | 5 if j > 0 => From::Own(j - 1 - r.below(j.min(4))),
        _ => From::Before(1, values - 1),
    }
}

fn random_op(r: &mut Random, j: usize, values: usize) -> Op {
    let (one, two) = (reads(r, j, values), reads(r, j, values));
    if r.below(3) == 0 {
        (UNARY[r.below(UNARY.len())], vec![one])
    } else {
        (BINARY[r.below(BINARY.len())], vec![one, two])
    }
}

/// `sum`: with a sum over groups of one device, so that the laws of the reals
/// are tried.
fn written(devices: usize, layers: &[Vec<Op>], shown: &[(usize, usize)], sum: bool) -> Module {
    let mut params = String::from(" h = f32[4,4] parameter(0)\n g0 = f32[4,4] parameter(1)\n");
    params += if sum {
        " g = f32[4,4] all-reduce(g0), channel_id=1, replica_groups={{0},{1}}, use_global_device_ids=true, to_apply=plus\n"
    } else {
        " g = f32[4,4] copy(g0)\n"
    };
    let mut lines = String::from(
        " zero = f32[] constant(0)\n zeros = f32[4,4] broadcast(zero), dimensions={}\n ninf = f32[] constant(-inf)\n low = f32[4,4] broadcast(ninf), dimensions={}\n",
    );
    for (k, layer) in layers.iter().enumerate() {
        for i in 0..2 {
            params += &format!(" w{k}_{i} = f32[4,4] parameter({})\n", 2 + 2 * k + i);
        }
        for (j, (op, from)) in layer.iter().enumerate() {
            let name = |f: &From| match *f {
                From::Own(q) => format!("v{k}_{q}"),
                From::Before(d, q) => k.checked_sub(d).map_or("h".into(), |k| format!("v{k}_{q}")),
                From::Weight(l, i) => format!("w{}_{i}", l.unwrap_or(k)),
                From::Fixed(f) => f.to_owned(),
            };
            let from: Vec<String> = from.iter().map(name).collect();
            lines += &format!(" v{k}_{j} = f32[4,4] {op}({})\n", from.join(", "));
        }
    }
    let outs: Vec<String> = shown.iter().map(|(k, j)| format!("v{k}_{j}")).collect();
    let types = vec!["f32[4,4]"; outs.len()].join(", ");
    let text = format!(
        "HloModule m, num_partitions={devices}\n\nplus {{\n a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT r = f32[] add(a, b)\n}}\n\nENTRY main {{\n{params}{lines} ROOT out = ({types}) tuple({})\n}}\n",
        outs.join(", ")
    );
    scalify_hlo::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

#[test]
fn random_stacks_have_one_answer() {
    let c = Claim { mesh: Mesh::parse("tp=2").ok(), ..Claim::default() };
    let (mut by_lemmas, mut open) = (0, 0);
    for seed in 0..400 {
        let mut r = Random(seed);
        let (count, values) = (7 + r.below(5), 9 + r.below(7));
        let template: Vec<Op> = (0..values).map(|j| random_op(&mut r, j, values)).collect();
        let layers = vec![template; count];
        let mut shown: Vec<(usize, usize)> = vec![(count - 1, values - 1)];
        let j = r.below(values);
        shown.extend((0..count).map(|k| (k, j)));
        let (mut edited, mut other) = (layers.clone(), shown.clone());
        for _ in 0..r.below(3) {
            let (k, j) = (r.below(count), r.below(values));
            match r.below(4) {
                0 => edited[k][j] = random_op(&mut r, j, values),
                1 => {
                    let weight = From::Weight(Some(r.below(count)), r.below(2));
                    *edited[k][j].1.last_mut().expect("operands") = weight;
                }
                2 => edited[k][j].1.reverse(),
                _ => {
                    let (a, b) = (r.below(other.len()), r.below(other.len()));
                    other.swap(a, b);
                }
            }
        }
        let base = written(1, &layers, &shown, false);
        let dist = written(2, &edited, &other, seed % 2 == 1);
        let [whole, lemmas] = [Memo::Never, Memo::Always].map(|m| decide(&base, &dist, &c, m));
        assert_eq!(whole.verdict, lemmas.verdict, "seed {seed}");
        // The whole lists what is assumed of values that nothing reads.
        assert!(lemmas.grade <= whole.grade, "seed {seed}");
        assert_eq!(whole.outputs, lemmas.outputs, "seed {seed}");
        by_lemmas += usize::from(lemmas.stats.lemmas > 0);
        open += usize::from(whole.verdict != Verdict::Proved);
    }
    // Both kinds of pairs, many of each.
    assert!(by_lemmas > 80 && open > 80, "{by_lemmas} by lemmas, {open} not proved");
}

/// Layers of which both programs have more than 10,000 instructions.
const DEEP: usize = 320;

#[test]
fn an_odd_layer_of_a_deep_stack_is_found_by_lemmas() {
    let base = Stack::of(false, DEEP).module();
    let right = Stack::of(true, DEEP);
    // A layer that is not like the others, and right: lemmas go on behind it.
    let odd = Stack::of(true, DEEP).edit(
        Some(200),
        "m@ = f32[4,6] multiply(t@, g@)",
        "n2@ = f32[4,6] negate(t@)\n n3@ = f32[4,6] negate(g@)\n m@ = f32[4,6] multiply(n2@, n3@)",
    );
    let mut c = claim_of(DEEP);
    c.add_assume("#4 in [0, 3]").unwrap();
    for dist in [right.module(), odd.module()] {
        let o = decide(&base, &dist, &c, Memo::Auto);
        assert_eq!(o.verdict, Verdict::Proved, "{:?}", o.frontier);
        assert!(o.stats.lemmas > 0);
    }
    // Without its sum: the values before it are known, those behind are not.
    let wrong = Stack::of(true, DEEP)
        .edit(
            Some(200),
            "r@ = f32[4,8] all-reduce(d@), channel_id=@@, replica_groups=&, use_global_device_ids=true, to_apply=add",
            "r@ = f32[4,8] copy(d@)",
        )
        .module();
    let early = |o: Outcome, kept: &mut Kept<'_>| {
        let sum = |k: usize| {
            let name = format!("x{k}");
            let at = (0..wrong.instrs.len() as u32).map(InstrId);
            at.into_iter().find(|&i| wrong.name_of(i) == name)
        };
        let block = |kept: &mut Kept<'_>, k: usize| sum(k).and_then(|x| kept.block_of(x));
        let before: Vec<bool> = (100..=200).map(|k| block(kept, k).is_some()).collect();
        let behind: Vec<bool> = (201..DEEP).map(|k| block(kept, k).is_some()).collect();
        Some((o, before, behind))
    };
    let all = |o: Outcome, _: &mut Kept<'_>| (o, Vec::new(), Vec::new());
    let o = verify_early(&base, &wrong, &c, &Options::default(), early, all);
    let (o, before, behind) = o.unwrap();
    assert_eq!(o.verdict, Verdict::Unknown);
    assert_eq!(o.frontier[0].code, "missing-all-reduce");
    assert!(wrong.name_of(o.frontier[0].instr).starts_with("d200"));
    assert!(before.len() == 101 && before.iter().all(|&x| x), "{before:?}");
    assert!(!behind.is_empty() && behind.iter().all(|&x| !x), "{behind:?}");
    // Output 0 is the last layer's, output k + 1 what layer k multiplies.
    for x in &o.outputs {
        let proved = x.index != 0 && x.index <= 201;
        assert_eq!(x.verdict == Verdict::Proved, proved, "{}", x.index);
    }
    assert_eq!(o.frontier[0].reaches.first(), Some(&0));
    assert!(o.frontier[0].reaches[1..].iter().all(|&k| k > 201));
    // What the outputs shown as proved rest on is listed.
    let whole = decide(&base, &right.module(), &c, Memo::Auto);
    assert!(!whole.assumptions.is_empty());
    assert_eq!(o.assumptions, whole.assumptions);
}
