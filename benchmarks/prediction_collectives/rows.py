"""Measured times of collectives on the GPUs of one host, and which of them may be fitted on.

The files are those of ``kernels`` whose names begin with ``nccl``; their README says how each was
timed. Within a device, kind of collective, dtype and number of ranks the sizes are powers of two:
every other one is fitted on, the first of them turning with the number of ranks. Both dtypes of a
size are on the same side. A device without data of its own is what ``run.py`` leaves out in turn.
"""

from __future__ import annotations

import csv
import gzip
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# File name's device -> key of the data sheet.
DEVICES = {
    "a100_sxm": "A100-SXM-80GB", "h100_sxm": "H100-SXM", "h200_sxm": "H200-SXM", "b200_sxm": "B200",
    "gb200": "GB200", "l40s": "L40S", "a100_pcie": "A100-PCIe-80GB", "h100_pcie": "H100-PCIe",
    "v100_sxm": "V100-SXM2",
}  # fmt: skip
# Those that constants may be fitted on; any other is all unseen.
FITTED_ON = ("A100-SXM-80GB", "H100-SXM")
# The files' names of collectives -> the model's.
KINDS = {
    "all_gather": "all_gather", "all_reduce": "all_reduce", "alltoall": "all_to_all",
    "reduce_scatter": "reduce_scatter", "broadcast": "broadcast", "reduce": "reduce",
}  # fmt: skip
DTYPES = {"half": "float16", "int8": "int8"}


@dataclass(frozen=True, slots=True)
class Row:
    """One measured collective.

    Attributes:
        device: key of the data sheet.
        kind: name of the collective.
        dtype: of its elements.
        ranks: GPUs that take part, all of one host.
        n_bytes: as NCCL's own tests count them (the larger of the two buffers of a rank).
        measured_s: seconds.
        fitted: whether constants may be fitted on it; the others are reported.
    """

    device: str
    kind: str
    dtype: str
    ranks: int
    n_bytes: int
    measured_s: float
    fitted: bool


def is_fitted(n_bytes: int, ranks: int) -> bool:
    """Whether a size belongs to the half that constants may be fitted on."""
    return (n_bytes.bit_length() + ranks.bit_length()) % 2 == 0


def size_class(n_bytes: int) -> str:
    """What errors are reported by: latency, the way up, bandwidth."""
    if n_bytes <= 64 * 1024:
        return "to 64 KiB"
    return "to 16 MiB" if n_bytes <= 16 * 1024**2 else "over 16 MiB"


def read_rows(folder: Path) -> Iterator[Row]:
    """All rows of the folder, by file."""
    for path in sorted(folder.glob("nccl_*.csv.gz")):
        device = path.name.split(".")[0].removeprefix("nccl_")
        if device not in DEVICES:
            print(f"left out: {path.name}, a device that the benchmark has no name for",
                  file=sys.stderr)  # fmt: skip
            continue
        with gzip.open(path, "rt") as lines:
            for record in csv.DictReader(lines):
                ranks, n_bytes = int(record["num_gpus"]), int(record["bytes"])
                if record["collective"] not in KINDS:
                    continue
                fitted = DEVICES[device] in FITTED_ON and is_fitted(n_bytes, ranks)
                dtype = DTYPES.get(record["dtype"], record["dtype"])
                yield Row(
                    DEVICES[device], KINDS[record["collective"]], dtype, ranks, n_bytes,
                    float(record["ms"]) * 1e-3, fitted,
                )  # fmt: skip
