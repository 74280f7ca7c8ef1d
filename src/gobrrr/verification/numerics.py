"""Whether a changed step still computes what the original does, judged against a reference.

Original and changed run from the same parameters, inputs and seeds; both are compared with a
reference in float64 (where the model cannot run in it: with the original itself, whose error is
then zero). The changed step may be as far from the reference as the original is, plus the
tolerance. Nothing compared is a failure, and so is a value that is not finite.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gobrrr.fixes.fix import RANDOMNESS, Fix
from gobrrr.verification.evaluation import Evaluation, Expected, call_name, is_finite

# Of bfloat16, whose rounding alone is 0.2 % of a value, a layer keeps about this much.
TOLERANCE = 2e-2
# A gradient has gone through two passes and sums that cancel: it may be this many times as far off.
GRADIENT_SLACK = 3.0
# A tensor far smaller than its kind is measured against this part of its kind's size: the gradient
# of a key's bias is exactly zero, and what is computed of it is rounding.
FLOOR = 0.1
# A training step must move the parameters about as far, and about there.
LEAST_COSINE, MOST_STRETCH = 0.5, 2.0
NOTHING_COMPARED = "nothing could be compared: the step left no tensor"
_OTHER_ELEMENTS = (
    "the step draws random numbers that cannot be matched: the change hands them to other elements"
)
_OTHER_CHOICES = (
    "with the change it chooses other integers (tokens, indices) than without, as it does where "
    "rounding decides between values that are nearly equal; what is computed up to there agrees"
)


@dataclass(frozen=True)
class Numerics:
    """The outcome of a comparison.

    Attributes:
        verdict: ``passed``, ``failed`` or ``incomparable``.
        reason: one sentence.
        compared: how many tensors and losses were compared.
        reference: what they were compared with.
        error: the largest relative L2 error of the changed step.
        original_error: the largest relative L2 error of the original.
        worst: name of the tensor with the largest error.
        largest_difference: largest absolute difference from the reference in any element.
        tolerance: what was asked for.
        not_compared: names that only one side has.
        steps: training steps whose losses were compared.
    """

    verdict: str
    reason: str
    compared: int = 0
    reference: str = ""
    error: float | None = None
    original_error: float | None = None
    worst: str = ""
    largest_difference: float | None = None
    tolerance: float = TOLERANCE
    not_compared: tuple[str, ...] = ()
    steps: int = 0

    @property
    def passed(self) -> bool:
        """Whether something was compared, and agreed."""
        return self.verdict == "passed"

    def as_record(self) -> dict[str, Any]:
        """Plain values for a report."""
        known = {
            "verdict": self.verdict, "reason": self.reason, "compared": self.compared,
            "reference": self.reference, "error": self.error,
            "original_error": self.original_error, "worst": self.worst,
            "largest_difference": self.largest_difference, "tolerance": self.tolerance,
            "not_compared": ", ".join(self.not_compared[:10]), "steps": self.steps,
        }  # fmt: skip
        return {key: value for key, value in known.items() if value not in ("", None, 0)}


def compare(
    expected: Expected,
    changed: Evaluation,
    tolerance: float = TOLERANCE,
    fixes: Sequence[Fix] = (),
) -> Numerics:
    """Judge the changed step. Fails closed: see the module.

    Of a step that draws random numbers errors say nothing where one of ``fixes`` may hand them to
    other elements (a layout in which memory is filled in another order).
    """
    steps = len(changed.losses)
    if expected.original.draws and expected.original.random_after != changed.random_after:
        return Numerics(
            "incomparable",
            "the step draws random numbers, and with the change it draws different ones",
            tolerance=tolerance,
        )
    told = _until_given_others(expected, changed)
    diverged = told is not None
    if told is not None:
        expected, changed = told
    rows, apart, refused = _rows(expected, changed)
    choices = [row for row in rows if row.name in expected.original.integers]
    chosen = {name for name in apart if name in expected.original.integers | changed.integers}
    if chosen or any(row.excess(tolerance) > 1.0 for row in choices):
        diverged = True
        rows = [row for row in rows if row not in choices]
    if refused:
        return Numerics("failed", refused, reference=expected.name, tolerance=tolerance)
    if not rows and not diverged:
        return Numerics("failed", NOTHING_COMPARED, reference=expected.name, tolerance=tolerance)
    if not rows:
        return Numerics(
            "incomparable", _OTHER_CHOICES, reference=expected.name, tolerance=tolerance
        )
    worst = max(rows, key=lambda row: row.excess(tolerance))
    known: dict[str, Any] = {
        "compared": len(rows),
        "reference": expected.name,
        "error": max(row.error for row in rows),
        "original_error": max(row.original_error for row in rows),
        "worst": worst.name,
        "largest_difference": max(row.largest for row in rows),
        "tolerance": tolerance,
        "not_compared": apart,
        "steps": steps,
    }
    drifted = _drift(expected, changed)
    reorders = any(RANDOMNESS in fix.may_change for fix in fixes)
    unmatched = reorders and expected.original.draws
    if unmatched and (worst.excess(tolerance) > 1.0 or drifted) and math.isfinite(worst.error):
        return Numerics("incomparable", _OTHER_ELEMENTS, **known)
    if worst.excess(tolerance) > 1.0:
        row = worst
        return Numerics(
            "failed",
            f"{row.name} has a relative error of {row.error:.2g} against {expected.name}, without "
            f"the change {row.original_error:.2g}: more than {row.slack * tolerance:g} apart",
            **known,
        )
    if drifted:
        return Numerics("failed", drifted, **known)
    if diverged:
        return Numerics("incomparable", _OTHER_CHOICES, **known)
    return Numerics(
        "passed",
        f"{_counted(len(rows))}: largest relative error {known['error']:.2g}, "
        f"without the change {known['original_error']:.2g}",
        **known,
    )


def _until_given_others(
    expected: Expected, changed: Evaluation
) -> tuple[Expected, Evaluation] | None:
    """Without the outputs of calls that came after the first that was given other integers.

    ``None`` where each was given the same. What a call chooses the next one may be given: two runs
    of greedy decoding whose tokens part compute different things from there on.
    """
    pairs = zip(expected.original.given, changed.given)
    parted = next((n for n, (one, other) in enumerate(pairs, 1) if one != other), None)
    if parted is None:
        return None

    def before(evaluation: Evaluation) -> Evaluation:
        calls = tuple(call_name(number) for number in range(1, parted))
        kept = {name: t for name, t in evaluation.outputs.items() if name.startswith(calls)}
        return replace(evaluation, outputs=kept)

    original, reference = before(expected.original), before(expected.reference)
    return replace(expected, original=original, reference=reference), before(changed)


def _counted(compared: int) -> str:
    return "1 tensor agrees" if compared == 1 else f"{compared} tensors and losses agree"


@dataclass(frozen=True, slots=True)
class _Row:
    name: str
    error: float
    original_error: float
    largest: float
    slack: float = 1.0

    def excess(self, tolerance: float) -> float:
        """How far beyond what is allowed, in units of the tolerance; NaN counts as beyond."""
        over = (self.error - self.original_error) / (self.slack * tolerance)
        return over if over == over else math.inf


def _stays(original: Evaluation, name: str) -> bool:
    """Whether training leaves a parameter as it is: then no one reads its gradient."""
    moved = original.moved.get(name)
    return moved is not None and not bool(moved.any())


def _rows(expected: Expected, changed: Evaluation) -> tuple[list[_Row], tuple[str, ...], str]:
    """Compared rows, names that only one side has, and a reason to refuse at once."""
    rows: list[_Row] = []
    apart: list[str] = []
    for kind, of in (("", "outputs"), ("the gradient of ", "gradients")):
        original = {k: v for k, v in getattr(expected.original, of).items() if v is not None}
        reference = getattr(expected.reference, of)
        new = {k: v for k, v in getattr(changed, of).items() if v is not None}
        slack = GRADIENT_SLACK if of == "gradients" else 1.0
        floor = FLOOR * _rms(original.values())
        for name in original.keys() - new.keys():
            if of == "gradients" and not _stays(expected.original, name):
                return [], (), f"{kind}{name} is missing with the change"
        missing = sorted(original.keys() ^ new.keys())
        apart += [kind + name for name in missing]
        measures = original.keys() - expected.original.integers
        if of == "outputs" and measures and not (original.keys() & new.keys()):
            return [], (), "the changed step returns none of the original's outputs"
        for name in sorted(original.keys() & new.keys()):
            a, b = original[name], new[name]
            if a.shape != b.shape and not kind and name in expected.original.integers:
                apart.append(name)
                continue
            if a.shape != b.shape:
                return (
                    [],
                    (),
                    (
                        f"{kind}{name} has shape {tuple(b.shape)} with the change, "
                        f"was {tuple(a.shape)}"
                    ),
                )
            r = reference.get(name)
            r = a if r is None or r.shape != a.shape else r
            a, b, r, trouble = _masked(a, b, r)
            if trouble:
                return [], (), f"{kind}{name} holds {trouble}"
            new_error, largest = relative_error(b, r, floor)
            rows.append(
                _Row(kind + name, new_error, relative_error(a, r, floor)[0], largest, slack)
            )
    refused = _loss_rows(expected, changed, rows)
    return rows, tuple(apart), refused


def _masked(a: Any, b: Any, r: Any) -> tuple[Any, Any, Any, str]:
    """Without the infinities that all have in the same place (a mask's); or what is wrong."""
    import torch

    if is_finite(a) and is_finite(b) and is_finite(r):
        return a, b, r, ""
    if bool(torch.isnan(a).any()):
        return a, b, r, "NaN already without the change"
    infinite = torch.isinf(a)
    same = bool((b[infinite] == a[infinite]).all()) and bool(torch.isfinite(b[~infinite]).all())
    if not same:
        return a, b, r, "NaN or Inf where the original is finite"
    if bool(infinite.all()):
        return a, b, r, "no finite value, also without the change"
    a, b = a[~infinite], b[~infinite]
    r = r[~infinite]
    return a, b, (r if is_finite(r) else a), ""


def _loss_rows(expected: Expected, changed: Evaluation, rows: list[_Row]) -> str:
    wanted, got = expected.original.losses, changed.losses
    if len(wanted) != len(got):
        return f"{len(got)} losses with the change, {len(wanted)} without"
    references = expected.reference.losses
    if len(references) != len(wanted):
        references = wanted
    for number, (a, b, r) in enumerate(zip(wanted, got, references), 1):
        if not math.isfinite(b):
            return f"the loss of step {number} is {b} with the change"
        size = max(abs(r), 1e-12)
        rows.append(_Row(f"the loss of step {number}", abs(b - r) / size, abs(a - r) / size,
                         abs(b - r)))  # fmt: skip
    return ""


def _drift(expected: Expected, changed: Evaluation) -> str:
    """Why the steps no longer train the same; empty if they do.

    Not judged against the tolerance: where a gradient is rounding, Adam's first steps move a
    parameter by its sign alone.
    """
    names = [n for n, t in expected.original.moved.items()
             if n in changed.moved and changed.moved[n].shape == t.shape]  # fmt: skip
    dot = own = new = 0.0
    for name in names:
        a, b = expected.original.moved[name], changed.moved[name]
        dot, own, new = (
            dot + float((a * b).sum()),
            own + float((a * a).sum()),
            new + float((b * b).sum()),
        )
    if not names or own == 0.0:
        return ""
    if not math.isfinite(new) or new == 0.0:
        return "the optimizer no longer moves the parameters" if new == 0.0 else (
            "the parameters are not finite after the steps"
        )  # fmt: skip
    stretch = math.sqrt(new / own)
    cosine = dot / math.sqrt(own * new)
    if cosine < LEAST_COSINE or not 1 / MOST_STRETCH <= stretch <= MOST_STRETCH:
        return (
            f"the parameters are updated differently: {stretch:.2g} times as far over the steps, "
            f"with a cosine similarity of {cosine:.2g} to the original update"
        )
    return ""


def relative_error(value: Any, reference: Any, floor: float = 0.0) -> tuple[float, float]:
    """(||value - reference||_2 / ||reference||_2, largest absolute difference).

    ``floor`` is the least root mean square that the reference counts with. Two empty tensors, and
    two that are zero throughout, agree.
    """
    a, r = _wide(value), _wide(reference)
    if r.numel() == 0:
        return 0.0, 0.0
    difference = (a - r).abs()
    size = max(float(r.abs().pow(2).sum()) ** 0.5, floor * math.sqrt(r.numel()))
    away = float(difference.pow(2).sum()) ** 0.5
    largest = float(difference.max())
    if away == 0.0:
        return 0.0, 0.0
    return (away / size if size > 0 else math.inf), largest


def _wide(tensor: Any) -> Any:
    import torch

    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def _rms(tensors: Any) -> float:
    squares, elements = 0.0, 0
    for tensor in tensors:
        if tensor.is_floating_point() or tensor.is_complex():
            squares += float(_wide(tensor).abs().pow(2).sum())
            elements += tensor.numel()
    return math.sqrt(squares / elements) if elements and math.isfinite(squares) else 0.0
