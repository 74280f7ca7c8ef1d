"""What the rows of a result of ``run_all`` come to, part by part: ``scores`` in the same file.

    PYTHONPATH=src:. python -m benchmarks.gpu.scores FILE ...

Nothing is measured here, so that a row that cannot be scored costs no measurement. Rows of
different kinds stay apart, and every figure has its ``n``.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from difflib import SequenceMatcher
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

from gobrrr.timeline.files import write_atomically

Row = dict[str, Any]

# Told bytes of fewer are not held against DRAM's: they fit into the L2 (50 MB on an H100 or H200).
BEYOND_L2 = 64e6
# A gain of less of the step is one that it was right to rule out (``parts/fixes.py``).
WORTH = 0.05
# A spike that is off by more of the step needs a notice (``parts/spikes.py``).
OFF = 0.02
DURATION, READ, WRITTEN = "gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum"
PIPE = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"
# Why an op moves more bytes than told, where its kernels show it.
READS_MORE = {
    "aten::native_layer_norm": "reads its input twice",
    "aten::native_layer_norm_backward": "each of its kernels reads input and gradient",
    "aten::cudnn_batch_norm": "reads its input again, partly from the L2",
    "aten::cudnn_batch_norm_backward": "reads its inputs again, partly from the L2",
    "aten::mm": "tiles read their operands again",
    "aten::addmm": "tiles read their operands again",
    "aten::convolution": "adds the bias in a pass of its own",
    "aten::convolution_backward": "sums the bias's gradient in a pass of its own",
}
# Words that only one of PyTorch's profiler and Nsight Compute writes, or writes as a number.
_NOISE = {"void", "const", "true", "false", "int", "unsigned"}


def spread(values: Iterable[float]) -> dict[str, Any]:
    """How many, their median and their ends; ``None`` of none."""
    found = sorted(values)
    if not found:
        return {"n": 0, "median": None, "ends": None}
    return {"n": len(found), "median": median(found), "ends": [found[0], found[-1]]}


def name_of(kernel: str) -> str:
    """What PyTorch's profiler and Nsight Compute both call a kernel: its name, its first types."""
    text = kernel.replace("(anonymous namespace)::", "").replace("<unnamed>::", "")
    text = re.sub(r"\b\w+::", "", text)
    depth, end = 0, len(text)
    for place, sign in enumerate(text):
        depth += (sign == "<") - (sign == ">")
        if sign == "(" and depth == 0:
            end = place
            break
    words = re.findall(r"\b[A-Za-z_]\w*", text[:end])
    return " ".join(islice((word for word in words if word not in _NOISE), 3))


def joined(told: list[Row], counted: list[Row]) -> dict[int, Row]:
    """The counted kernel of each told one, by its place; both in the order in which they ran.

    A kernel that one of the two lacks leaves a gap and shifts no other.
    """
    a, b = ([name_of(row["name"]) for row in rows] for rows in (told, counted))
    blocks = SequenceMatcher(a=a, b=b, autojunk=False).get_matching_blocks()
    return {i + more: counted[j + more] for i, j, size in blocks for more in range(size)}


def _ops(kernels: list[Row]) -> Iterator[list[int]]:
    """Places of the kernels of each op that is told whole, one kernel after the other."""
    group: list[int] = []
    for place, row in enumerate(kernels):
        # Fills of libraries' workspaces, among an op's kernels, belong to no op.
        if row["op"] is None:
            continue
        if group and kernels[group[0]]["op"] != row["op"]:
            group = []
        group.append(place)
        share = sum(kernels[i]["share_of_op"] for i in group)
        if share > 0.999:
            if share < 1.001:
                yield group
            group = []


def counters(result: Row) -> Row:
    """By program: kernels as gobrrr tells them beside what Nsight Compute counted of them."""
    programs = [
        {"program": name, **_counted(program["gobrrr"]["kernels"], program["ncu"])}
        for name, program in result["programs"].items()
        if program.get("ncu") and isinstance(program["gobrrr"].get("kernels"), list)
    ]
    totals = {key: sum(row[key] for row in programs) for key in ("kernels", "counted", "joined")}
    return {"programs": programs, **totals}


def _counted(told: list[Row], counted: list[Row]) -> Row:
    # Copies and fills by the driver (other kinds) are none of Nsight Compute's kernels.
    kernels = [place for place, row in enumerate(told) if row["kind"] == 0]
    known = [row for row in counted if None not in map(row.get, (DURATION, READ, WRITTEN))]
    pairs = {kernels[i]: row for i, row in joined([told[i] for i in kernels], known).items()}
    ops = [
        _op([told[i] for i in group], [pairs[i] for i in group])
        for group in _ops(told)
        if all(i in pairs and told[i]["roof"] for i in group)
    ]
    large = [op for op in ops if op["told_bytes"] >= BEYOND_L2]
    products = [op for op in ops if op["matrix"] and op["pipe"] is not None]
    # A product reads its operands by tiles, an op of several kernels moves what one leaves for the
    # next: neither is what a stream does.
    kinds = {
        "streams": [op for op in large if not op["matrix"] and op["kernels"] == 1],
        "products": [op for op in large if op["matrix"] and op["kernels"] == 1],
        "of_several_kernels": [op for op in large if op["kernels"] > 1],
    }
    worst: dict[str, Row] = {}
    for op in sorted(large, key=lambda op: -max(op["bytes_ratio"], 1 / op["bytes_ratio"])):
        worst.setdefault(op["op"], op)
    return {
        "kernels": len(kernels), "counted": len(counted), "joined": len(pairs),
        "joined_share": len(pairs) / max(len(kernels), len(counted), 1),
        "not_joined": [name_of(told[i]["name"])[:100] for i in kernels if i not in pairs],
        "told_over_counted_s": _ratio(
            sum(told[i]["duration_ns"] for i in pairs),
            sum(row[DURATION] for row in pairs.values()),
        ),
        "whole_ops": len(ops),
        "told_over_counted_bytes": {
            kind: spread(op["bytes_ratio"] for op in found) for kind, found in kinds.items()
        },
        "worst_ops": list(worst.values())[:5],
        # Counted share of the pipes' cycles over told share of the measured ceiling. Products in
        # float32 have a ceiling without these pipes.
        "pipe_over_told": spread(
            op["pipe"] / op["matrix"] for op in products if op["dtype"] != "float32"
        ),
        "pipes_busy_in_float32": [
            op for op in products if op["dtype"] == "float32" and op["pipe"] > 0.1
        ],
    }  # fmt: skip


def _op(told: list[Row], counted: list[Row]) -> Row:
    ns = sum(row["duration_ns"] for row in told)
    # What the roof takes: an op in place reads and writes the same bytes, which counts twice.
    told_bytes = sum(row["work"]["bytes_read"] + row["work"]["bytes_written"] for row in told)
    moved = sum(row[READ] + row[WRITTEN] for row in counted)
    ratio = told_bytes / max(moved, 1.0)
    return {
        "op": told[0]["op"], "kernels": len(told),
        "kernel": name_of(max(told, key=lambda row: row["duration_ns"])["name"])[:100],
        "dtype": told[0]["work"]["compute_dtype"],
        "told_bytes": told_bytes, "counted_bytes": moved, "bytes_ratio": ratio,
        "reason": "a part stays in the L2" if ratio > 1 else READS_MORE.get(told[0]["op"]),
        "matrix": sum(row["roof"]["matrix_s"] for row in told) * 1e9 / ns,
        "pipe": None if any(row.get(PIPE) is None for row in counted) else sum(
            row[PIPE] / 100 * row[DURATION] for row in counted
        ) / sum(row[DURATION] for row in counted),
    }  # fmt: skip


def _ratio(a: float, b: float) -> float | None:
    """``None`` over 0."""
    return a / b if b else None


def live(result: Row) -> Row:
    """By program the told step over clocks of the same process; programs with a notice apart."""
    programs = {}
    for name, row in result["programs"].items():
        if "live" not in row:
            continue
        told, trace = row["live"], row.get("trace")
        events_s, step_s = median(row["events_s"]), told["step_s"]
        programs[name] = {
            "over_events": step_s / events_s,
            "over_blocks": step_s / median([*row["block_s"], row["after_s"]]),
            "leaves_over_step": sum(told["leaves"].values()) / step_s,
            "regime": told["regime"], "notices": len(told["notices"]),
            "trace": trace and {
                "over_events": trace["step_s"] / events_s, "regime": trace["regime"],
                # Of the step of each: a recording holds what recording took.
                "leaf_off": max(
                    abs(told["leaves"].get(leaf, 0.0) / step_s
                        - trace["leaves"].get(leaf, 0.0) / sum(trace["leaves"].values()))
                    for leaf in told["leaves"].keys() | trace["leaves"].keys()
                ),
            },
        }  # fmt: skip
    silent = [row for row in programs.values() if not row["notices"]]
    noticed = [row for row in programs.values() if row["notices"]]
    return {
        "programs": programs,
        "not_run": [name for name in result["programs"] if name not in programs],
        "without_notice": spread(row["over_events"] for row in silent),
        "with_notice": spread(row["over_events"] for row in noticed),
        "leaves_are_the_step": sum(
            abs(row["leaves_over_step"] - 1) < 1e-9 for row in programs.values()
        ),
        "traces_of_without_notice": spread(
            row["trace"]["over_events"] for row in silent if row["trace"]
        ),
        "traces_of_with_notice": spread(
            row["trace"]["over_events"] for row in noticed if row["trace"]
        ),
    }


def fixes(result: Row) -> Row:
    """Each predicted gain beside the one that blocks in turns showed; what was ruled out apart."""
    rows, ruled_out = [], []
    for name, program in result["programs"].items():
        told = program.get("predicted", {}).get("fixes", {})
        for fix, gains in program.get("gains", {}).items():
            if fix not in told:
                continue
            base_s, gained = median(program["timed"]["base"]), spread(gains)
            row = {
                "program": name, "fix": fix, "base_s": base_s, "measured": gained,
                "told_step_over_base": program["predicted"]["diagnosis"]["step_s"] / base_s,
            }  # fmt: skip
            said = told[fix]
            if "ruled_out" in said:
                ruled_out.append({**row, "rightly": gained["median"] <= WORTH * base_s})
                continue
            rows.append({
                **row, "low_s": said["low_s"], "expected_s": said["expected_s"],
                "high_s": said["high_s"],
                "inside": said["low_s"] <= gained["median"] <= said["high_s"],
                "width_of_base": (said["high_s"] - said["low_s"]) / base_s,
                "expected_over_measured": _ratio(said["expected_s"], gained["median"]),
            })  # fmt: skip
    ratios = [row["expected_over_measured"] for row in rows]
    return {
        "rows": rows, "ruled_out": ruled_out, "n": len(rows), "programs": len(result["programs"]),
        "inside": sum(row["inside"] for row in rows),
        "outside": [f"{row['fix']} of {row['program']}" for row in rows if not row["inside"]],
        "width_of_base": spread(row["width_of_base"] for row in rows),
        "expected_over_measured": spread(ratio for ratio in ratios if ratio is not None),
        "within_25_percent": sum(ratio is not None and 0.75 <= ratio <= 1.25 for ratio in ratios),
        "within_twice": sum(ratio is not None and 0.5 <= ratio <= 2.0 for ratio in ratios),
        "ruled_out_rightly": sum(row["rightly"] for row in ruled_out),
    }  # fmt: skip


def spikes(result: Row) -> Row:
    """What the leaf grew by beside the truth, of the spiked step, by base, kind and repetition."""
    rows = []
    for base, found in result["bases"].items():
        for kind, row in found.get("kinds", {}).items():
            # A block begins with an empty queue: its first step shows what the busy device hides
            # of all that follow, and the blocks are of a few steps.
            short = (
                base != "host"
                and row["truth_s"] == row["step_grew_s"]
                and row["truth_s"] < median(row["alone_s"])
            )
            for told in row["told"]:
                step_s = told["spiked"]["step_s"]
                rows.append({
                    "base": base, "kind": kind, "told": told["told_s"] / step_s,
                    "truth": row["truth_s"] / step_s, "off": told["off"],
                    "notices": len(told["spiked"]["notices"]),
                    "told_over_timed_step": step_s / median(row["spiked_s"]),
                    "truth_of_filling_blocks": short,
                })  # fmt: skip
    sure = [row for row in rows if not row["truth_of_filling_blocks"]]
    return {
        "rows": rows,
        "with_truth": len(sure),
        "of_filling_blocks": len(rows) - len(sure),
        "off": {
            base: spread(row["off"] for row in sure if row["base"] == base)
            for base in result["bases"]
        },
        "refuted": [
            f"{row['kind']} on {row['base']}"
            for row in sure if row["off"] > OFF and not row["notices"]
        ],
    }  # fmt: skip


def residue(result: Row) -> Row:
    """A step after what each case does over the step before, one ratio a process."""
    ratios: dict[str, list[float]] = {}
    for row in result["rows"]:
        if "before" in row:
            after, before = (median(row[when]["wall_us"]) for when in ("after", "before"))
            ratios.setdefault(row["case"], []).append(after / before)
    return {case: spread(values) for case, values in ratios.items()}


def sessions(result: Row) -> Row:
    """Steps after each session over those before the first, and what the sessions recorded."""
    found = {}
    for way, row in result.items():
        if not (medians := row.get("medians_us")):
            continue
        kernels = [each["kernels"] for each in row["rows"] if "kernels" in each]
        found[way] = {
            **spread(after / medians[0] for after in medians[1:]),
            "without_all_kernels": sum(count < max(kernels) for count in kernels),
        }
    return found


def scripts(result: Row) -> Row:
    """The step that ``gobrrr run`` told over the median step of the script alone."""
    found = {}
    for name, row in result.items():
        alone, diagnosed = row.get("alone", {}), row.get("diagnosed", {})
        clock, said = alone.get("clock"), diagnosed.get("diagnosis")
        if not clock or not said or not clock["steps_s"]:
            continue
        told_s = said["step"]["time_s"]["median"]
        found[name] = {
            "n": len(clock["steps_s"]), "told_over_alone": told_s / median(clock["steps_s"]),
            "told_over_free": told_s / clock["free_s"] if clock.get("free_s") else None,
            "ended_alike": alone["exit"] == diagnosed["exit"], "notices": len(said["notices"]),
        }  # fmt: skip
    return {"scripts": found, "not_run": [n for n in result if n not in (*found, "ceilings")]}


SCORED: dict[str, Callable[[Row], Row]] = {
    "counters": counters, "live": live, "fixes": fixes, "spikes": spikes, "residue": residue,
    "sessions": sessions, "scripts": scripts,
}  # fmt: skip


def scores(parts: Iterable[Row]) -> Row:
    """What each part comes to that has rows."""
    return {
        part["part"]: SCORED[part["part"]](part["result"])
        for part in parts
        if part["part"] in SCORED and part.get("result")
    }


def main() -> None:
    """Writes the scores of each file into it."""
    for path in map(Path, sys.argv[1:]):
        found = json.loads(path.read_bytes())
        found["scores"] = scores(found["parts"])
        text = json.dumps(found, separators=(",", ":"), allow_nan=False)
        write_atomically(path, f"{text}\n".encode())


if __name__ == "__main__":
    main()
