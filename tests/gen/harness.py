"""Registry and runner of pairs: baseline, distributed program, planted errors.

A pair is a function `f(v, bug)` that returns a `Prog`; `v` holds the parameters
of one variant and `bug(id)` tells whether the error `id` is planted. Errors are
declared by the comment `# BUG[id] category: description` on the line of the
error; `# NEAR[id]` marks lines that produce the value an omission affects.
"""
import inspect
import json
import os
import re
import shutil
import time
import types
import zlib

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from jaxlib import _hlo

PAIRS = {}
_BUG = re.compile(r"#\s*BUG\[([\w,]+)\](?:\s*([\w-]+):\s*(.*))?")
_NEAR = re.compile(r"#\s*NEAR\[([\w,]+)\]")
DTYPES = {"f32": np.float32, "bf16": jnp.bfloat16, "i32": np.int32, "f16": np.float16}


class In:
    """One input: global shape, placement, and how values are drawn."""

    def __init__(self, shape, spec=P(), dtype="f32", range=None, scale=1.0, offset=0.0, positive=False):
        self.shape, self.spec, self.dtype = tuple(shape), spec, DTYPES[dtype]
        self.range, self.scale, self.offset, self.positive = range, scale, offset, positive

    def draw(self, rng):
        if self.range is not None:
            return rng.integers(self.range[0], self.range[1] + 1, self.shape).astype(self.dtype)
        a = rng.standard_normal(self.shape) * self.scale + self.offset
        return jnp.asarray(np.abs(a) if self.positive else a, jnp.float32).astype(self.dtype)


class Prog:
    """Baseline and distributed program over the same global inputs.

    `args` is a tuple of pytrees of `In`; `outs` a pytree prefix of placements.
    `dist` is the body of a shard_map unless `whole` (then a global function
    of mesh-placed arguments, made by `dist(mesh)`).
    """

    def __init__(self, mesh, args, base, dist, outs, whole=False, vma=False, manual=None, tol=1e-4):
        self.mesh, self.args, self.base, self.dist = mesh, tuple(args), base, dist
        self.outs, self.whole, self.vma, self.manual, self.tol = outs, whole, vma, manual, tol


def pair(family, parallelism, *variants):
    """Registers a pair with its variants."""

    def reg(f):
        PAIRS[f.__name__] = (f, family, parallelism, variants or ({},))
        return f

    return reg


def bugs_of(f):
    """Declared errors: id -> (category, description, lines, near lines, source)."""
    src, first = inspect.getsourcelines(f)
    out = {}
    for k, line in enumerate(src):
        m = _BUG.search(line)
        if m:
            for i in m.group(1).split(","):
                b = out.setdefault(i, [None, None, [], [], []])
                if m.group(2):
                    b[0], b[1] = m.group(2), m.group(3).strip()
                b[2].append(first + k)
                b[4].append(line.strip())
    for k, line in enumerate(src):
        m = _NEAR.search(line)
        for i in m.group(1).split(",") if m else ():
            out[i][3].append(first + k)
    return out


def cases():
    """All cases: (name, function, family, parallelism, variant, bug or None)."""
    for n, (f, fam, par, vs) in PAIRS.items():
        tag = ["" if len(vs) == 1 else f"_v{k}" for k in range(len(vs))]
        for k, v in enumerate(vs):
            yield n + tag[k], f, fam, par, v, None
        for j, b in enumerate(bugs_of(f)):
            only = [k for k, v in enumerate(vs) if b in v.get("bugs", ())]
            ok = only or [k for k, v in enumerate(vs) if b not in v.get("skip", ())]
            k = ok[j % len(ok)]
            yield f"bug__{n}{tag[k]}__{b}", f, fam, par, vs[k], b


def _is_in(x):
    return isinstance(x, In)


def _spec(p, rank):
    out = []
    for a in tuple(p) + (None,) * (rank - len(p)):
        out.append(None if a is None else [a] if isinstance(a, str) else list(a))
    return out


def _text(mod):
    o = _hlo.HloPrintOptions()
    o.print_metadata = True
    o.print_large_constants = True
    return mod.to_string(o)


def _prefix(specs, tree):
    return jax.tree.leaves(
        jax.tree.map(lambda s, t: jax.tree.map(lambda _: s, t), specs, tree, is_leaf=lambda x: isinstance(x, P)),
        is_leaf=lambda x: isinstance(x, P),
    )


def run(name, f, family, parallelism, v, bug, out, dump=None):
    """Builds, checks and writes one case; returns (ok, message)."""
    g = types.SimpleNamespace(**{k: x for k, x in v.items() if k not in ("bugs", "skip")})
    pr = f(g, lambda i: i == bug)
    axes, shape = list(pr.mesh), list(pr.mesh.values())
    ndev = int(np.prod(shape))
    mesh = Mesh(np.array(jax.devices()[:ndev]).reshape(shape), axes)
    leaves, tree = jax.tree.flatten(pr.args, is_leaf=_is_in)
    specs = jax.tree.unflatten(tree, [i.spec for i in leaves])
    seed = zlib.crc32(f.__name__.encode())
    rng = np.random.default_rng(seed)
    vals = [i.draw(rng) for i in leaves]
    avals = [jax.ShapeDtypeStruct(i.shape, i.dtype) for i in leaves]
    if pr.whole:
        dist = pr.dist(mesh)
    else:
        kw = {} if pr.manual is None else {"axis_names": set(pr.manual)}
        dist = jax.shard_map(pr.dist, mesh=mesh, in_specs=specs, out_specs=pr.outs, check_vma=pr.vma, **kw)

    def named(fn, n):
        h = lambda *a: fn(*a)
        h.__name__ = h.__qualname__ = n
        return jax.jit(h)

    jb, jd = named(pr.base, "base"), named(dist, "dist")
    argt = jax.tree.unflatten(tree, avals)
    t = time.time()
    lb, ld = jb.lower(*argt), jd.lower(*argt)
    kept = [sorted(int(i) for i in x._lowering.compile_args["kept_var_idx"]) for x in (lb, ld)]
    d = os.path.join(out, name)
    os.makedirs(d, exist_ok=True)
    for n, l in (("base", lb), ("dist", ld)):
        mod = l.compiler_ir("hlo").get_hlo_module()
        with open(os.path.join(d, n + ".hlo.txt"), "w") as o:
            o.write(_text(mod))
    want = lb.compile()(*jax.tree.unflatten(tree, vals))
    for q in os.listdir(dump) if dump else ():
        shutil.rmtree(os.path.join(dump, q)) if os.path.isdir(os.path.join(dump, q)) else os.unlink(os.path.join(dump, q))
    placed = [jax.device_put(x, NamedSharding(mesh, i.spec)) for x, i in zip(vals, leaves)]
    if pr.whole or pr.manual is not None:
        got = jd(*jax.tree.unflatten(tree, placed))
    else:
        got = ld.compile()(*jax.tree.unflatten(tree, vals))
    if dump:
        for q in os.listdir(dump):
            if "after_spmd-partitioning" in q or re.search(r"after_.*spmd-part", q):
                os.replace(os.path.join(dump, q), os.path.join(d, "dist.spmd.hlo.txt"))
    wl, wt = jax.tree.flatten(want)
    gl, gt = jax.tree.flatten(got)
    assert len(wl) == len(gl), (wt, gt)
    outs = _prefix(pr.outs, want)
    paths = [jax.tree_util.keystr(p) or "y" for p, _ in jax.tree_util.tree_leaves_with_path(want)]
    errs, bad = [], []
    for w, q, pth in zip(wl, gl, paths):
        w = np.asarray(w, np.float64)
        e = 0.0
        assert w.shape == q.shape, (pth, w.shape, q.shape)
        for s in q.addressable_shards:
            x = np.asarray(s.data, np.float64)
            y = w[s.index]
            dlt = np.abs(x - y)
            dlt = np.where(np.isnan(x) != np.isnan(y), np.inf, np.nan_to_num(dlt))
            e = max(e, float(dlt.max(initial=0.0)))
        m = float(np.abs(np.nan_to_num(w)).max(initial=0.0))
        rel = e / max(m, 1e-30)
        errs.append({"output": pth, "max_abs_err": e, "max_rel_err": rel, "baseline_max_abs": m})
        if rel > pr.tol:
            bad.append(pth)
    ipaths = [jax.tree_util.keystr(p) for p, _ in jax.tree_util.tree_leaves_with_path(pr.args, is_leaf=_is_in)]
    ins = []
    for i, pth in zip(leaves, ipaths):
        j = {"name": pth, "shape": list(i.shape), "dtype": np.dtype(i.dtype).name, "spec": _spec(i.spec, len(i.shape))}
        if i.range is not None:
            j["range"] = [int(i.range[0]), int(i.range[1])]
        ins.append(j)
    jo = [
        {"name": pth, "shape": list(w.shape), "dtype": np.dtype(w.dtype).name, "spec": _spec(s, w.ndim)}
        for pth, w, s in zip(paths, wl, outs)
    ]
    src = inspect.getsourcefile(f)
    rel = "tests/gen/" + os.path.basename(src)
    jb = None
    worst = max(e["max_rel_err"] for e in errs)
    if bug is not None:
        cat, desc, lines, near, text = bugs_of(f)[bug]
        jb = {
            "id": bug, "category": cat, "description": desc, "file": rel, "lines": lines, "source": text,
            "near_lines": near, "of": name.split("__")[1], "max_rel_err": worst, "outputs_different": bad,
        }
    ok = (not bad) if bug is None else bool(bad)
    js = {
        "name": name, "family": family, "description": (f.__doc__ or name).strip(), "parallelism": parallelism,
        "config": {k: str(x) for k, x in vars(g).items()},
        "mesh": {"axes": axes, "shape": shape, "devices": ndev,
                 "device_order": "row-major: partition id = sum(coord[i]*stride[i])"},
        "inputs": ins, "outputs": jo, "expected": "different" if bug else "equivalent", "bug": jb,
        "source": {"file": rel, "line": inspect.getsourcelines(f)[1]},
        "numeric": {"tol_rel": pr.tol, "outputs": errs, "agrees": not bad, "verdict_confirmed": ok},
        "jax": jax.__version__, "kept_inputs": {"base": kept[0], "dist": kept[1]},
    }
    p = os.path.join(d, "case.json")
    if ok:
        with open(p, "w") as o:
            json.dump(js, o, indent=1)
    elif os.path.exists(p):
        os.unlink(p)
    return ok, f"rel {worst:.1e} {time.time() - t:.1f}s {bad[:3]}"
