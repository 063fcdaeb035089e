#!/usr/bin/env python3
"""Writes the tables that quote bench/results/*.json: between the two marks in every document that has them.

bench_table.py            rewrites the documents
bench_table.py --check    fails when a document says something else than the receipts (a test)
bench_table.py --print F  shows the table of the receipts F...
"""
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENTS = {"docs/performance.md": True, "README.md": False}  # whether it must have the marks
BEGIN, END = "<!-- bench/results: begin -->", "<!-- bench/results: end -->"
HEAD = ["model", "test", "threads", "tern, tokens/s", "of bandwidth", "other, tokens/s", "ratio", "wanted"]


def wanted():
    """Receipt name -> (decode, prefill) as bench/rows.tsv has them, '-' where nothing is."""
    rows = [line.split("\t") for line in (ROOT / "bench/rows.tsv").read_text().splitlines() if not line.startswith("#")]
    return {row[0]: (row[5], row[6]) for row in rows}


def speed(samples):
    return f"{samples['median_ts']:.3g} ({min(samples['samples_ts']):.3g}-{max(samples['samples_ts']):.3g})"


def goal(row, targets, compared):
    """What the issue asks of a row: a ratio, or the share of the bandwidth of one with nothing beside it."""
    if row["n_busy"] > 0:
        return "40% of undisturbed"
    target = targets[0] if row["n_gen"] > 0 else targets[1]
    if target == "-":
        return ""
    return target if compared else f"{float(target):.0%}"


def undisturbed(row, rows):
    same = [r for r in rows if r["n_busy"] == 0 and all(r[k] == row[k] for k in ("n_gen", "n_prompt", "n_depth", "n_threads"))]
    return f"{row['median_ts'] / same[0]['median_ts']:.0%}" if same else ""


def lines_of(name, receipt, targets):
    for row in receipt["rows"]:
        compared = row.get("compared")
        if row["n_busy"] > 0:
            ratio = undisturbed(row, receipt["rows"])
        else:
            ratio = f"{row['ratio']:.2f}" if compared else ""
        if row["contended"]:
            ratio = f"{ratio} contended".strip()
        yield [name, row["test"], str(row["n_threads"]), speed(row),
               f"{row['of_bandwidth']:.0%}" if "of_bandwidth" in row else "",
               speed(compared) if compared else "", ratio, goal(row, targets, compared)]


def scaling(receipt):
    """"tg128 1.8x": how much faster than one thread the most threads are, row by row."""
    most = max((row["n_threads"] for row in receipt["rows"]), default=1)
    one = {row["test"]: row["median_ts"] for row in receipt["rows"] if row["n_threads"] == 1}
    return [f"{row['test']} {row['median_ts'] / one[row['test']]:.2f}x" for row in receipt["rows"]
            if row["n_threads"] == most > 1 and row["test"] in one and row["n_busy"] == 0]


def facts(name, receipt):
    memory, host = receipt["memory"], receipt["host"]
    expected = memory["file"] + memory["kv"] + memory["state"]
    loads = ", ".join(f"{load['median_s']:.2f} s with {load['n_threads']}" for load in receipt["loads"])
    reads = ", ".join(f"{b['bytes_per_s'] / 1e9:.1f} with {b['n_threads']}" for b in receipt["bandwidth"]["by_threads"])
    load = receipt["load"]
    text = (f"{name}: peak memory {memory['peak_resident'] / 1e9:.2f} GB, {memory['peak_resident'] / expected:.0%} of file, KV and "
            f"state; loads in {loads} threads; memory reads GB/s {reads} threads; others used {load['before']['busy_cores']:.2f} and "
            f"{load['after']['busy_cores']:.2f} cores; {receipt['commit']} on {receipt['device']} ({host['cpu']})")
    if "compared" in receipt:
        text += f", in turns with {receipt['compared']['library']} on {receipt['compared']['file']}"
    scale = scaling(receipt)
    return text + (f"; scaling {', '.join(scale)}" if scale else "")


def table(paths):
    targets, rows, notes = wanted(), [], []
    for path in sorted(paths):
        receipt = json.loads(path.read_text())
        rows += lines_of(path.stem, receipt, targets.get(path.stem, ("-", "-")))
        notes.append("* " + facts(path.stem, receipt))
    if not rows:
        return "No receipts yet: `make bench` on a quiet machine."
    out = ["| " + " | ".join(cells) + " |" for cells in [HEAD, ["---"] * len(HEAD), *rows]]
    return "\n".join([*out, "", *notes])


def main(arguments):
    if arguments[:1] == ["--print"]:
        print(table([pathlib.Path(a) for a in arguments[1:]]))
        return 0
    wrong = []
    text = table((ROOT / "bench/results").glob("*.json"))
    for name, needed in DOCUMENTS.items():
        path = ROOT / name
        before = path.read_text()
        if BEGIN not in before or END not in before:
            if needed:
                wrong.append(f"{name} lacks the marks {BEGIN} and {END}")
            continue
        start, end = before.index(BEGIN) + len(BEGIN), before.index(END)
        after = before[:start] + "\n" + text + "\n" + before[end:]
        if after == before:
            continue
        if arguments == ["--check"]:
            wrong.append(f"{name} differs from bench/results: run scripts/bench_table.py")
        else:
            path.write_text(after)
    print("\n".join(wrong) if wrong else "benchmarks: the documents say what the receipts say")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
