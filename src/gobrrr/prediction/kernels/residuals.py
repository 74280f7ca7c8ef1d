"""How far measured times of ops lay from this model's, by device and class of op.

``residual_table`` holds, for each device and class that was measured, the 10th and the 90th
percentile of measured over predicted on the rows that constants were fitted on; how often such an
interval holds the rows that nobody fitted is in the result file of
benchmarks/prediction_kernels. A device without measurements of a class, but with the constants of a
measured one of its architecture, gets the band of devices left out one by one (``RELATED``: spread
within a device and between devices). Where constants are another architecture's,
the band is that of devices which were predicted with each other's (``BORROWED``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import log, sqrt
from statistics import median

from gobrrr.devices.datasheet import find_datasheet
from gobrrr.prediction.kernels.coefficients import family_of
from gobrrr.prediction.kernels.residual_table import BORROWED, MEASURED, RELATED, SOURCE
from gobrrr.prediction.kernels.walks.element_walks import crosses_rows
from gobrrr.timeline.ops import OpCall
from gobrrr.timeline.quantities import percent
from gobrrr.work.formulas.linear_algebra import FACTORISATIONS
from gobrrr.work.formulas.pointwise_table import POINTWISE

PRODUCT_16, PRODUCT_32 = "products in 16 bits", "products in float32"
BATCHED_32, CONVOLUTION_32 = "batched products in float32", "convolutions in float32"
ATTENTION, NORM, SOFTMAX = "fused attention", "layer norm", "softmax"
STREAM, FACTORISATION, OTHER = "element-wise ops", "factorisations", "other ops"

# Copies that read and write along the same rows are streams as element-wise ops are.
_COPIES = frozenset({"clone", "copy_", "copy", "_to_copy", "contiguous"})


@dataclass(frozen=True, slots=True)
class ErrorBand:
    """Where 8 of 10 measured times lay, as multiples of the predicted one.

    ``source``: what says so, as a clause; it names the relatives of a device without measurements.
    ``own``: whether enough measurements of this device and kind of step are behind it; where not,
    a report says where it comes from.
    """

    low: float
    high: float
    source: str
    own: bool = True


def class_of(call: OpCall, compute_dtype: str) -> str:
    """The class of an op whose residuals are kept together."""
    name = call.name.partition("::")[2]
    exact = compute_dtype in ("float32", "float64")
    if "attention" in name:
        return ATTENTION
    if name in ("bmm", "baddbmm") and exact:
        return BATCHED_32
    if name in ("mm", "addmm", "bmm", "baddbmm", "linear", "matmul"):
        return PRODUCT_32 if exact else PRODUCT_16
    if "convolution" in name and exact:
        return CONVOLUTION_32
    if "layer_norm" in name or "rms_norm" in name:
        return NORM
    if "softmax" in name:
        return SOFTMAX
    if name in FACTORISATIONS:
        return FACTORISATION
    return STREAM if _is_stream(call, name) else OTHER


def _is_stream(call: OpCall, name: str) -> bool:
    """Whether an op goes over its tensors once, as those do that were measured.

    A result of an input's shape does not say so: a scan, a sort or a flip has one too.
    """
    if name.removesuffix("_") not in POINTWISE and name not in _COPIES:
        return False
    if crosses_rows(call):
        return False
    shapes = [tensor.shape for tensor in call.tensors]
    return not call.outputs or call.outputs[0].shape in shapes


# Times that no constant is from (tests/prediction/kernels/test_factorisations.py), on GPUs that are
# mostly not named where they were published.
_PUBLISHED = ErrorBand(
    0.5,
    2.0,
    "published times of Cholesky and QR, which lie within a factor of two, taken for all",
    own=False,
)


# A class with this share of a step's time is named if it was not measured on the device.
_LARGE = 0.1
# Devices of timed steps: benchmarks/results/prediction_traces_* and prediction_rtx4090_*.
_OF_STEPS = ("H100-SXM", "MI300X", "RTX-4090")


def unmeasured(device: str, kind: str) -> str | None:
    """The notice about a GPU on which no prediction was ever compared with a time.

    ``device``: key of the data sheet; ``kind``: PyTorch's device type. ``None`` for measured ones
    and for processors.
    """
    if kind == "cpu" or device in MEASURED or device in _OF_STEPS:
        return None
    if kind in ("cuda", "hip"):
        return (
            f"{device} is known only from its data sheet: no prediction for it has been checked "
            "against a measurement."
        )
    return (
        f"{device} is known only from its data sheet, and the model was made for CUDA kernels: no "
        "prediction for it has been checked against a measurement."
    )


def band_of_class(device: str, kind: str) -> ErrorBand | None:
    """The band of a class on a device, of its relatives if it was not measured there.

    ``device``: key of the data sheet. ``None`` for a class that no device was measured for.
    """
    if kind == FACTORISATION:
        return _PUBLISHED
    own = MEASURED.get(device, {}).get(kind)
    if own is not None:
        return ErrorBand(own[0], own[1], f"{kind} on {device}, {SOURCE}")
    relatives = {key: rows[kind] for key, rows in MEASURED.items() if kind in rows}
    if not relatives:
        return None
    names = ", ".join(sorted(relatives))
    family = family_of(find_datasheet(device))
    borrowed = BORROWED.get(kind)
    if borrowed is not None and family not in {family_of(find_datasheet(key)) for key in relatives}:
        return ErrorBand(
            borrowed[0],
            borrowed[1],
            f"no times of {kind} were measured on {device} or its architecture: errors on {names}, "
            f"each predicted with the constants of another device, {SOURCE}",
            own=False,
        )
    related = RELATED.get(kind)
    if related is None:
        return None
    return ErrorBand(
        related[0],
        related[1],
        f"no times of {kind} were measured on {device}: errors on {names}, each predicted as if it "
        f"had not been measured, {SOURCE}",
        own=False,
    )


def widening(device: str, measured: str) -> float:
    """How much wider, as a factor of its logarithm, a band is for a device that it is not of.

    That of ``RELATED`` (devices of one architecture) or ``BORROWED`` over that of a measured
    device, in the median of the classes: at least 1.

    Args:
        device: key of the data sheet of what was not measured.
        measured: of the device that the band is of.
    """
    family = family_of(find_datasheet(device))
    akin = family is not None and family == family_of(find_datasheet(measured))
    ratios = []
    for kind, (low, high, _) in (RELATED if akin else BORROWED).items():
        own = [log(rows[kind][1] / rows[kind][0]) for rows in MEASURED.values() if kind in rows]
        ratios.append(log(high / low) / median(own))
    return max(1.0, median(ratios))


def band_of_step(device: str, parts: Iterable[tuple[str, float]]) -> ErrorBand | None:
    """The band of a step from the times of its ops, as (class, seconds).

    Errors of one class go together (one constant of the model is wrong for all of them), those of
    different classes do not: means add up by their share of the time, half-widths as the root of
    the sum of squares. ``None`` where a class that takes part has no band. The source is that of
    the class with most of the time, and names the others that carry a tenth of it or more and were
    not measured on the device.
    """
    seconds: dict[str, float] = {}
    for kind, time_s in parts:
        seconds[kind] = seconds.get(kind, 0.0) + time_s
    total_s = sum(seconds.values())
    if total_s <= 0:
        return None
    middle = squares = 0.0
    source = ""
    missing: list[str] = []
    own = True
    for kind, time_s in sorted(seconds.items(), key=lambda item: -item[1]):
        band = band_of_class(device, kind)
        if band is None:
            return None
        share = time_s / total_s
        middle += share * (band.low + band.high) / 2
        squares += (share * (band.high - band.low) / 2) ** 2
        if not band.own and share >= _LARGE:
            own = False
            if source:
                # That of the first class says it already.
                missing.append(f"{kind} ({percent(share)} of the time)")
        source = source or band.source
    if missing:
        source += f"; not measured on {device}: {', '.join(missing)}"
    half = sqrt(squares)
    # What a class is told wrong by is in its band; an interval holds what it is an interval of.
    low, high = min(1.0, middle - half), max(1.0, middle + half)
    return ErrorBand(max(0.0, low), high, source, own=own)
