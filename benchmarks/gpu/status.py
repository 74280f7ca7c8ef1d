"""``docs/gpu-status.md``: what a GPU has confirmed and refuted, as ``status.toml`` has it.

Its ``[[row]]`` are those of the page. What one says of a device is told as it stands only while the
rooms of gobrrr that it is about are those that the device ran; otherwise that they have changed
since. Its ``[fact]`` are sentences of ``README.md`` beside it, on the device and PyTorch's profiler
themselves. Figures of both are read from the result files, by paths that begin with a part's name.
``python benchmarks/claims.py`` makes and checks the page.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import tomllib
from benchmarks.claims import RESULTS, ROOT, Claim, ClaimError

PAGE = ROOT / "docs" / "gpu-status.md"
README = "benchmarks/gpu/README.md"
LIST = ROOT / "benchmarks" / "gpu" / "status.toml"
VERDICTS = ("confirmed", "in part", "refuted", "open")
HEAD = """\
# What GPUs have confirmed, refuted, and not yet run

gobrrr's code for CUDA and ROCm devices is tested on recorded traces of real devices, and on a
simulated accelerator with known behaviour (`tests/simulated_device`: a program runs on CPU tensors
while a simulated clock advances, and its steps are written in the profiler's format, Python frames
included). This page lists what only a real device can confirm. It is made by
`benchmarks/gpu/status.py` from the result files of `benchmarks/gpu/run_all.py`. Where the code that
a row is about is no longer the code that the device ran, the row says so: it holds of that code.
What the device and PyTorch's profiler do by themselves is told in
[benchmarks/gpu](../benchmarks/gpu/README.md).

| claim | its test on the simulated device | what only a real device can tell | what one told |
|---|---|---|---|
"""
FOOT = """
Test files without a folder are in `tests/simulated_device`, except `test_gpu_measure.py`, which is
in `tests/devices`. Names in parentheses are parts of the runs: of `benchmarks/gpu/parts`, or of the
first run, as its result files are called.

A real device would add nothing for these, so they are not listed: a trace with Python frames gives
each kernel the line where its function begins (`test_live_lines.py`, `test_spikes.py`); a PyTorch
without the private names that recording needs still gives kernels, shapes and times, and a notice
says what is missing (`test_live_lines.py`, `tests/observe/test_private_names.py`; for ceilings
`test_gpu_measure.py`).

Tests that need a device have the marker `gpu` and are skipped without one:

```
make test ARGS="-m gpu -rs"
```
"""


@dataclass(frozen=True)
class Row:
    """One claim of gobrrr's on GPUs.

    Attributes:
        claim: what is claimed.
        test: its tests without a device.
        only: what they cannot tell, and in parentheses the part that asks a device.
        verdict: of ``VERDICTS``; what is open has nothing of the following.
        found: one sentence, with ``{name:format}`` where a figure stands.
        values: name of a figure -> its path in the result file, from the part's name on.
        file: the result file.
        rooms: of gobrrr, that the verdict is about.
    """

    claim: str
    test: str
    only: str
    verdict: str = "open"
    found: str = ""
    values: dict[str, str] = field(default_factory=dict)
    file: str = ""
    rooms: tuple[str, ...] = ()

    def told(self, result: dict[str, Any] | None = None) -> str:
        """The last column; ``result`` stands for what the file holds."""
        if self.verdict == "open":
            return "nothing yet"
        result = results(self.file) if result is None else result
        claim = _claim(self.claim, self.found, self.values, self.file, self.rooms, result)
        since = ", at sources that have changed since" if claim.stale else ""
        return (
            f"**{self.verdict}** on the {claim.device}, {claim.date}{since}: {claim.rendered()} "
            f"([file](../benchmarks/results/{self.file}))"
        )


def _claim(
    name: str, text: str, values: dict[str, str], file: str, rooms: tuple[str, ...] = (),
    result: dict[str, Any] | None = None,
) -> Claim:  # fmt: skip
    result = results(file) if result is None else result
    return Claim(name, text, values, file, (README,), "", "nothing", rooms=rooms, result=result)


@cache
def results(file: str) -> dict[str, Any]:
    """Head of a result file and, by name, what its parts found (some in files of their own)."""
    path = RESULTS / file
    whole: dict[str, Any] = json.loads(path.read_bytes())
    for part in whole.pop("parts"):
        own = path.with_suffix("") / f"{part['part']}.json"
        found = part if "result" in part else json.loads(own.read_bytes())
        whole[part["part"]] = found["result"]
    return whole


def rows() -> list[Row]:
    """Those of the list.

    Raises:
        ClaimError: one of them has an unknown verdict or key, or no file where a device told.
    """
    found = []
    for given in tomllib.loads(LIST.read_text())["row"]:
        try:
            row = Row(**{**given, "rooms": tuple(given.get("rooms", ()))})
        except TypeError as error:
            raise ClaimError(f"{LIST.name}: {error}") from error
        if row.verdict not in VERDICTS or (row.verdict == "open") != (not row.file):
            raise ClaimError(f"{row.claim}: {row.verdict} by {row.file or 'no file'}")
        found.append(row)
    return found


def facts() -> list[Claim]:
    """What the README says of device and profiler."""
    return [
        _claim(name, **given) for name, given in tomllib.loads(LIST.read_text())["fact"].items()
    ]


def page() -> str:
    """The page as the results make it."""
    lines = (f"| {row.claim} | {row.test} | {row.only} | {row.told()} |\n" for row in rows())
    return HEAD + "".join(lines) + FOOT


def problems() -> Iterator[str]:
    """Whether the page is another."""
    if not PAGE.is_file() or PAGE.read_text() != page():
        yield f"docs/{PAGE.name} is not what benchmarks/claims.py --write makes"
