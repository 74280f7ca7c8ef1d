"""``gobrrr devices``: the device here, and the data sheets that stand in for those that are not."""

from __future__ import annotations

import argparse
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from gobrrr.cli.parsing import output_path
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.files import write_atomically

if TYPE_CHECKING:
    from gobrrr.devices.ceilings import Ceiling
    from gobrrr.devices.datasheets.sheet import DeviceSheet

DESCRIPTION = """List the device here and the devices whose data sheets gobrrr has. With a name,
show every figure of that device with its source. Rates are without sparsity. A card of your own
is a file: start from the nearest one with --toml, and give it to gobrrr predict --device."""
EXAMPLES = """examples:
  gobrrr devices
  gobrrr devices H100-SXM
  gobrrr devices "NVIDIA H100 80GB HBM3"
  gobrrr devices H100-SXM --toml my-card.toml
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``gobrrr devices``."""
    parser.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="a device's key, its full name, the name that its driver reports, or the file of a "
        "card of your own",
    )
    parser.add_argument(
        "--toml",
        type=output_path,
        metavar="FILE",
        help="write the figures of NAME to a file, from which a card of your own can start",
    )


def execute(parser: argparse.ArgumentParser, arguments: list[str]) -> int:
    """Prints the list, or one sheet."""
    parsed = parser.parse_args(arguments)
    if parsed.toml is not None:
        if parsed.name is None:
            raise InputError("--toml writes one device: give its name")
        _write_toml(parsed.name, parsed.toml)
    elif parsed.name is None:
        _list_all()
    else:
        _show_one(parsed.name)
    return 0


def _list_all() -> None:
    from gobrrr.devices.backends import identify
    from gobrrr.devices.datasheet import all_datasheets
    from gobrrr.reports.plain_table import plain_lines
    from gobrrr.reports.tables import Column, Row, TextTable
    from gobrrr.timeline.names import plain_name
    from gobrrr.timeline.quantities import si

    here = identify()
    cores = f", {here.cores} cores" if here.cores else ""
    memory = f", {si(here.memory_bytes, 'B')}" if here.memory_bytes else ""
    print(f"Here: {plain_name(here.name)} ({here.kind}{cores}{memory})\n")
    names = ("data sheets", "bf16 matrix", "fp32 vector", "memory")
    rows = []
    for sheet in all_datasheets():
        matrix, vector = sheet.matrix.get("bfloat16"), sheet.vector.get("float32")
        cells = (
            sheet.key,
            si(matrix.value if matrix else None, "FLOP/s"),
            si(vector.value if vector else None, "FLOP/s"),
            si(sheet.memory_bytes_per_s.value, "B/s"),
        )
        rows.append(Row(cells))
    columns = tuple(Column(name, number=i > 0) for i, name in enumerate(names))
    print("\n".join(plain_lines(TextTable("", columns, tuple(rows)))))


def _write_toml(name: str, path: Path) -> None:
    from gobrrr.devices.datasheet import named_datasheet
    from gobrrr.devices.datasheets.sheet_file import sheet_as_toml

    sheet = named_datasheet(name)
    try:
        write_atomically(path, sheet_as_toml(sheet, f"my-{sheet.key}").encode())
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error


def _show_one(name: str) -> None:
    from gobrrr.devices.datasheet import ceilings_of_sheet, named_datasheet
    from gobrrr.prediction.kernels.target import clock_gain
    from gobrrr.reports.plain_table import ceiling_lines
    from gobrrr.reports.terminal import options_for
    from gobrrr.timeline.quantities import si

    sheet = named_datasheet(name)
    parts = [f"{sheet.name} ({sheet.architecture}, {sheet.kind})"]
    if sheet.memory_bytes is not None:
        parts.append(si(sheet.memory_bytes.value, "B"))
    print(", ".join(parts))
    rows = [*ceilings_of_sheet(sheet).rows.values(), *_of_the_board(sheet)]
    # Sources are long and mostly the same: each is written once, under a number.
    numbers: dict[str, int] = {}
    for row in rows:
        numbers.setdefault(row.source, len(numbers) + 1)
    for line in ceiling_lines(rows, lambda row: f"[{numbers[row.source]}]"):
        print(line)
    notes = [sheet.note] if sheet.note else []
    if clock_gain(sheet) != 1.0:
        notes.append(
            f"Predictions multiply its matrix and vector rates by {clock_gain(sheet):.2f}: GeForce "
            "cards run at higher clocks than their data sheets assume."
        )
    columns = options_for(sys.stdout).width
    for note in notes:
        print(textwrap.fill(note, columns, initial_indent="  ", subsequent_indent="  "))
    print("sources")
    for source, number in numbers.items():
        print(
            textwrap.fill(
                source, columns, initial_indent=f"  [{number}] ", subsequent_indent="      ",
                # An address stays whole, however long: it is there to be copied.
                break_long_words=False, break_on_hyphens=False,
            )
        )  # fmt: skip


def _of_the_board(sheet: DeviceSheet) -> list[Ceiling]:
    """Its clocks and its power, as lines like those of its ceilings; those that are stated."""
    from gobrrr.devices.ceilings import Ceiling

    stated = (
        ("board.power", sheet.board_power_w, "W"),
        ("board.clock", sheet.clock_hz, "Hz"),
        ("board.clock.matrix", sheet.matrix_clock_hz, "Hz"),
        ("board.clock.base", sheet.base_clock_hz, "Hz"),
    )
    return [
        Ceiling(name, figure.value, unit, "datasheet", figure.source)
        for name, figure, unit in stated
        if figure is not None
    ]
