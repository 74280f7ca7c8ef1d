"""Results as files: JSON, plots and the page, each whole or not there at all."""

from __future__ import annotations

import math
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from gobrrr.lab.experiment import FORMAT, Outcome
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PLOT_FORMATS = ("svg", "png")


def save_outcome(outcome: Outcome, path: Path) -> None:
    """Writes the outcome as JSON.

    Raises:
        InputError: the path cannot be written.
        ValueError: a number in it is not finite (JSON has none of those).
    """
    _check_finite(outcome.rows, "rows")
    _check_finite(outcome.context, "context")
    _write(
        path, msgspec.json.format(msgspec.json.encode(outcome, enc_hook=_plain), indent=1) + b"\n"
    )


def load_outcome(path: Path) -> Outcome:
    """Reads what ``save_outcome`` wrote.

    Raises:
        InputError: no such file, not such JSON, or a later format.
    """
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Outcome)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path.name} is not a result of gobrrr lab: {error}") from error
    if found.format != FORMAT:
        raise InputError(f"{path.name} has format {found.format}; this gobrrr reads {FORMAT}")
    return found


def save_plot(figure: Figure, stem: Path) -> list[Path]:
    """Writes the figure as ``<stem>.svg`` and ``<stem>.png``; returns the paths.

    Raises InputError where they cannot be written.
    """
    paths = []
    for form in PLOT_FORMATS:
        buffer = BytesIO()
        # No date inside: the same outcome gives the same file.
        metadata = {"Date": None} if form == "svg" else {}
        figure.savefig(buffer, format=form, dpi=110, metadata=metadata)
        path = stem.with_name(f"{stem.name}.{form}")
        _write(path, buffer.getvalue())
        paths.append(path)
    return paths


def make_folder(folder: Path) -> None:
    """Makes the folder of results if it is not there. Raises InputError where it cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {folder}: {error.strerror or error}") from error


def save_page(text: str, path: Path) -> None:
    """Writes a page of text. Raises InputError where it cannot be written."""
    _write(path, text.encode())


def _write(path: Path, content: bytes) -> None:
    try:
        write_atomically(path, content)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error


def _plain(value: Any) -> Any:
    """NumPy's numbers as Python's."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is no plain data")


def _check_finite(value: Any, where: str) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{where} is {value}")
    if isinstance(value, dict):
        for key, item in value.items():
            _check_finite(item, f"{where}.{key}")
    if isinstance(value, (list, tuple)):
        for position, item in enumerate(value):
            _check_finite(item, f"{where}[{position}]")
