"""What the recorded programs of one set say together. Sets are never averaged with each other."""

from __future__ import annotations

from statistics import median
from typing import Any

from benchmarks.fixes.again import MODES, outcome

TOLD = ("faster", "same", "slower")


def summary(programs: list[dict[str, Any]], fitted: bool, known: str) -> dict[str, Any]:
    """Ranks, wins, losses and ties, and prediction errors of one set's programs."""
    good = [p for p in programs if "error" not in p]
    flawed = [p for p in good if p["flaw"]]
    sound = [p for p in good if not p["flaw"]]
    rows = [r for p in good for r in p["fixes"] if r["saved"] is not None]
    return {
        "programs": len(programs),
        "fixes_and_constants_were_fitted_with_these_in_sight": fitted,
        "known_to_those_who_write_fixes": known,
        "errors": {p["name"]: p["error"] for p in programs if "error" in p},
        "with_a_known_flaw": len(flawed),
        "ranked_first": sum(p["rank"] == 1 for p in flawed),
        "ranked_first_and_verified": sum(p["rank"] == 1 and p["verified"] for p in flawed),
        "mended": sum(is_mended(p) for p in flawed),
        "missed": [p["name"] for p in flawed if not is_mended(p)],
        "without_a_flaw": len(sound),
        "without_a_flaw_given_a_win": [p["name"] for p in sound if p["best"]],
        "too_noisy": [p["name"] for p in good if p["quiet"] is False],
        "best_against_original": _outcomes(good, None),
        "best_against_compile": {
            mode: _outcomes(good, f"compile {mode}")
            for mode in MODES
        },
        "best_against_every_compile_mode": _against_all(good),
        "search_and_timing_again": _again_errors(good),
        "prediction_error": _errors([r for r in rows if r["verdict"] in TOLD]),
        "prediction_error_noisy_too": _errors(
            [r for r in rows if r["verdict"] in (*TOLD, "incomparable")]
        ),
    }  # fmt: skip


def is_mended(program: dict[str, Any]) -> bool:
    """Whether the flaw's fix is ranked first, and verified or, being the user's, at its line."""
    if program["rank"] != 1:
        return False
    return bool(program["verified"] or (program["only_user"] and program["line_named"]))


def _ratios(program: dict[str, Any]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = (program.get("again") or {}).get("ratios", {})
    return found


def _outcomes(programs: list[dict[str, Any]], other: str | None) -> dict[str, list[str]]:
    """Names by outcome. Without a verified set the program is left as it is: its ratio is 1."""
    named: dict[str, list[str]] = {"win": [], "tie": [], "loss": []}
    for program in programs:
        ratios = _ratios(program)
        if not ratios or (other is not None and other not in ratios):
            continue
        best = ratios.get("best") if program["best"] else {"median": 1.0}
        result = outcome(best, ratios[other] if other is not None else None)
        if result != "none":
            named[result].append(program["name"])
    return named


def _against_all(programs: list[dict[str, Any]]) -> dict[str, list[str]]:
    """The best set against the fastest of all modes."""
    named: dict[str, list[str]] = {"win": [], "tie": [], "loss": []}
    for program in programs:
        ratios = _ratios(program)
        modes = [r for label, r in ratios.items() if label.startswith("compile")]
        best = ratios.get("best") if program["best"] else {"median": 1.0}
        if best is None or not modes:
            continue
        fastest = max(modes, key=lambda r: r["median"])
        named[outcome(best, fastest)].append(program["name"])
    return named


def _again_errors(programs: list[dict[str, Any]]) -> dict[str, Any]:
    """How far the search's speedup of the best set lies from the other timer's."""
    pairs = {
        p["name"]: p["best_speedup"] / _ratios(p)["best"]["median"]
        for p in programs
        if p["best"] and "best" in _ratios(p)
    }
    off = sorted(abs(ratio - 1.0) for ratio in pairs.values())
    return {
        "n": len(off),
        "median": median(off) if off else None,
        "worst": off[-1] if off else None,
        "told_over_timed_again": pairs,
    }


def _errors(rows: list[dict[str, Any]]) -> dict[str, float] | None:
    """|predicted - measured saving| in parts of the step, over tried fixes.

    Beside it how wide the intervals are, and how far off it would be to predict no saving at all.
    """
    if not rows:
        return None
    errors = sorted(abs(r["expected"] - r["saved"]) for r in rows)
    inside = [r["low"] <= r["saved"] <= r["high"] for r in rows]
    widths = sorted(r["high"] - r["low"] for r in rows)
    return {
        "n": len(errors),
        "median": median(errors),
        "within_10_percent": sum(e <= 0.10 for e in errors) / len(errors),
        "within_25_percent": sum(e <= 0.25 for e in errors) / len(errors),
        "p90": errors[int(0.9 * (len(errors) - 1))],
        "worst": errors[-1],
        "inside_low_to_high": sum(inside) / len(inside),
        "median_width": median(widths),
        "p90_width": widths[int(0.9 * (len(widths) - 1))],
        "median_of_no_saving": median(abs(r["saved"]) for r in rows),
    }
