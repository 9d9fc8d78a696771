"""Acceptance of our HLO protos by XLA.

usage: check_proto.py FOLDER [AGREE]

Every .pb and .pb.gz below FOLDER is read and written back by the example
`agree` of scalify-hlo-proto (AGREE: its path, default
target/release/examples/agree). XLA (jaxlib) then parses the original and the
rewritten file and prints both; the prints must be equal, with source frames
written out because XLA numbers its tables anew, and computations sorted
because XLA orders them by id. Replica groups in the iota form of 2025, which
XLA has since dropped (it reads them as empty), are counted apart.
Needs jaxlib.
"""

import difflib
import gzip
import os
import re
import subprocess
import sys
import tempfile

import jaxlib._hlo as hlo


def files(root):
    for folder, _, names in sorted(os.walk(root)):
        for name in sorted(names):
            if name.endswith((".pb", ".pb.gz")):
                yield os.path.join(folder, name)


def first_field(data):
    """Payload of a leading length-delimited field 1, or None."""
    if data[:1] != b"\x0a":
        return None
    size = shift = 0
    at = 1
    while True:
        byte = data[at]
        at += 1
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return data[at : at + size]


def module(data):
    for _ in range(3):
        try:
            return hlo.HloModule.from_serialized_hlo_module_proto(data)
        except RuntimeError as e:
            error, data = e, first_field(data)
            if data is None:
                break
    raise error


def text(data):
    options = hlo.HloPrintOptions()
    options.print_metadata = True
    options.print_large_constants = True
    blocks = re.split(r"\n\n+", resolve(module(data).to_string(options)).strip())
    return "\n\n".join(sorted(blocks))


def resolve(print_):
    """The print with the tables of source frames written into their uses."""
    tables = {}
    for title in ("FileNames", "FunctionNames", "FileLocations", "StackFrames"):
        m = re.search(rf"^{title}\n((?:\d+ .*\n)*)", print_, re.M)
        if m is None:
            return print_
        rows = (line.split(" ", 1) for line in m[1].splitlines())
        tables[title] = {int(k): v for k, v in rows}
        print_ = print_[: m.start()] + print_[m.end() :]
    for title, key, table in (
        ("FileLocations", "file_name_id", "FileNames"),
        ("FileLocations", "function_name_id", "FunctionNames"),
        ("StackFrames", "file_location_id", "FileLocations"),
    ):
        of = lambda m: f"{key}={tables[table].get(int(m[1]), m[1])}"
        for k, row in tables[title].items():
            tables[title][k] = re.sub(rf"\b{key}=(\d+)", of, row)

    def frame(m):
        out, at = [], int(m[1])
        while at in tables["StackFrames"] and len(out) < 100:
            row = tables["StackFrames"][at]
            out.append(row)
            parent = re.search(r"parent_frame_id=(\d+)", row)
            at = int(parent[1]) - 1 if parent else 0
        rows = (re.sub(r" ?parent_frame_id=\d+", "", row) for row in out)
        return "frames=[" + " < ".join(rows) + "]"

    return re.sub(r"\bstack_frame_id=(\d+)", frame, print_)


def same_but_old_groups(want, got):
    """True if lines differ only where XLA lost the groups."""
    a, b = want.splitlines(), got.splitlines()
    strip = lambda line: re.sub(r"replica_groups=[^ ]*", "replica_groups={},", line)
    return len(a) == len(b) and all(
        x == y or ("replica_groups={}," in x and x == strip(y)) for x, y in zip(a, b)
    )


def main():
    root = sys.argv[1]
    agree = sys.argv[2] if len(sys.argv) > 2 else "target/release/examples/agree"
    equal = skipped = old = 0
    failures = []
    paths = list(files(root))
    with tempfile.TemporaryDirectory() as tmp:
        args = [agree, "-o", tmp]
        for i, path in enumerate(paths):
            with open(path, "rb") as f:
                data = f.read()
            if data[:2] == b"\x1f\x8b":
                data = gzip.decompress(data)
            plain = os.path.join(tmp, f"{i}.in")
            with open(plain, "wb") as f:
                f.write(data)
            args += [plain, "-"]
        print(subprocess.run(args, stdout=subprocess.PIPE, text=True, check=True).stdout.strip())
        for i, path in enumerate(paths):
            try:
                want = text(open(os.path.join(tmp, f"{i}.in"), "rb").read())
            except RuntimeError as e:
                skipped += 1
                print(f"XLA refuses the original {path}: {str(e)[:100]}")
                continue
            try:
                got = text(open(os.path.join(tmp, f"{i}.pb"), "rb").read())
            except (OSError, RuntimeError) as e:
                failures.append((path, str(e)[:300]))
                continue
            if want == got:
                equal += 1
            elif same_but_old_groups(want, got):
                old += 1
            else:
                lines = difflib.unified_diff(want.splitlines(), got.splitlines(), n=0, lineterm="")
                failures.append((path, "\n".join(l[:400] for l in list(lines)[:8])))
    for path, what in failures[:20]:
        print(f"{path}: {what}")
    print(f"{equal} equal, {old} equal but for old replica groups, {len(failures)} differ, {skipped} not readable by XLA")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
