"""``gobrrr predict``: what a step, a recorded trace or one op costs on a device not here."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gobrrr.cli.parsing import add_report_options, positive, require_torch
from gobrrr.timeline.errors import InputError

if TYPE_CHECKING:
    from gobrrr.diagnosis.schema import Diagnosis
    from gobrrr.pipeline.predict import PredictOptions

DESCRIPTION = """Predict a step on any device, from a machine without it.

Nothing is computed: shapes are followed through forward, backward and optimizer, and
each operator is costed from the device's data sheet. With a trace, its measured kernels
are carried to another device."""
EXAMPLES = """examples:
  gobrrr predict bench.py:make_step --device H100-SXM --device MI300X
  gobrrr predict bench.py:make_step --device H100-SXM --compile
  gobrrr predict --trace h100.json.gz --device MI300X
  gobrrr predict --op "mm(4096x4096, 4096x4096, bf16)" --device all
"""
ALL = "all"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``gobrrr predict``."""
    parser.add_argument(
        "target", nargs="?", metavar="FILE.py:FUNCTION",
        help="makes the step, as for gobrrr run; it may build on the meta device",
    )  # fmt: skip
    group = parser.add_argument_group("what, and where")
    group.add_argument("--op", metavar="OP", help="one op, like mm(4096x4096, 4096x4096, bf16)")
    group.add_argument("--trace", metavar="FILE", help="a recorded trace, carried to the device")
    group.add_argument(
        "--device", action="append", default=[], metavar="NAME",
        help="of gobrrr devices, cpu for this processor (not with --trace), or all; may be given "
        "several times",
    )  # fmt: skip
    group.add_argument(
        "--ceilings", metavar="FILE", help="with --trace: of the device that was traced"
    )
    group = parser.add_argument_group("how the step runs there")
    group.add_argument("--compile", action="store_true", help="what torch.compile would make of it")
    group.add_argument("--autocast", metavar="fp16|bf16", help="under autocast")
    group.add_argument("--inference-mode", action="store_true", help="under torch.inference_mode()")
    group.add_argument("--channels-last", action="store_true", help="in that memory format")
    group.add_argument(
        "--size-hint", type=positive, metavar="N", help="an example of sizes that depend on data"
    )
    add_report_options(parser)


def execute(parser: argparse.ArgumentParser, arguments: list[str]) -> int:
    """Predicts; a report for one device, a table for several."""
    parsed = parser.parse_args(arguments)
    given = [name for name in ("target", "op", "trace") if getattr(parsed, name) is not None]
    if len(given) != 1:
        raise InputError(
            "give one thing to predict: FILE.py:FUNCTION, --op or --trace (see gobrrr predict "
            "--help)"
        )
    if not parsed.device:
        raise InputError("on which device? --device NAME (gobrrr devices lists them)")
    _refuse_what_has_no_effect(parsed)
    devices = _devices(parsed.device)
    if parsed.trace is not None:
        return _trace(parsed, devices)
    require_torch("gobrrr predict")
    if parsed.op is not None:
        return _op(parsed, devices)
    return _step(parsed, devices)


def _refuse_what_has_no_effect(parsed: argparse.Namespace) -> None:
    """An option that would be read by nobody is not ignored in silence."""
    if parsed.ceilings is not None and parsed.trace is None:
        raise InputError("--ceilings is of the device that was traced: it goes with --trace")
    how = {
        "--compile": parsed.compile,
        "--autocast": parsed.autocast is not None,
        "--inference-mode": parsed.inference_mode,
        "--channels-last": parsed.channels_last,
        "--size-hint": parsed.size_hint is not None,
    }
    given = [option for option, is_given in how.items() if is_given]
    if parsed.trace is not None and given:
        raise InputError(
            f"{' and '.join(given)} would have no effect: a trace is carried as it was recorded; "
            "record it anew that way, or predict FILE.py:FUNCTION"
        )
    reports_one = len(parsed.device) == 1 and ALL not in parsed.device and parsed.op is None
    if not reports_one and not _files(parsed):
        tables = {"--top": parsed.top is not None, "--by": bool(parsed.by)}
        unread = [option for option, is_given in tables.items() if is_given]
        if unread:
            raise InputError(
                f"{' and '.join(unread)} would have no effect on the table of devices: name one "
                "device, or a file for the reports (--html, --json, ...)"
            )
    # An op runs without gradients and has no model to lay out anew.
    of_steps = [option for option in given if option in ("--inference-mode", "--channels-last")]
    if parsed.op is not None and of_steps:
        raise InputError(
            f"{' and '.join(of_steps)} would have no effect on one op: it goes with "
            "FILE.py:FUNCTION"
        )


def _devices(names: Sequence[str]) -> list[str]:
    """Keys of the devices; a wrong name is said before anything else is done."""
    from gobrrr.devices.datasheet import all_datasheets
    from gobrrr.models.target import HERE, target_device

    if ALL in names:
        return [sheet.key for sheet in all_datasheets() if sheet.kind != "cpu"]
    found = [name if name == HERE else target_device(name).key for name in names]
    return list(dict.fromkeys(found))


def _options(parsed: argparse.Namespace) -> PredictOptions:
    from gobrrr.pipeline.predict import PredictOptions, dtype_name

    return PredictOptions(
        compile=parsed.compile,
        autocast=dtype_name(parsed.autocast),
        inference_mode=parsed.inference_mode,
        channels_last=parsed.channels_last,
        size_hint=parsed.size_hint,
    )


def _step(parsed: argparse.Namespace, devices: list[str]) -> int:
    from gobrrr.pipeline.predict import predict_function
    from gobrrr.prediction.memory import refuse_too_large

    name = Path(parsed.target).name
    found = predict_function(parsed.target, devices, _options(parsed), name=name)
    fitting = refuse_too_large(*found)
    if len(found) == 1:
        _report(found[0], parsed)
        return 0
    _one_file_each(parsed, fitting)
    _print_table(found)
    return 0


def _op(parsed: argparse.Namespace, devices: list[str]) -> int:
    from gobrrr.capture.op_text import call_of, parse_op
    from gobrrr.pipeline.predict import predict_op
    from gobrrr.prediction.costs import NoPathError
    from gobrrr.reports.prediction_table import op_table, refusals
    from gobrrr.reports.terminal import options_for

    written = parse_op(parsed.op)
    make = call_of(written)
    found: list[Diagnosis] = []
    refused: list[tuple[str, str]] = []
    for device in devices:
        try:
            found += predict_op(make, [device], _options(parsed), name=parsed.op, tf32=written.tf32)
        except NoPathError as error:
            # One device without a path for the dtype does not hide the others.
            if len(devices) == 1:
                raise
            refused.append((device, str(error)))
    if len(devices) == 1 and _files(parsed):
        _report(found[0], parsed)
        return 0
    _one_file_each(parsed, found)
    width = options_for(sys.stdout).width
    sys.stdout.write((op_table(found, width) if found else "") + refusals(refused, width))
    if not found:
        raise InputError(f"none of the {len(devices)} devices can run {parsed.op}")
    return 0


def _trace(parsed: argparse.Namespace, devices: list[str]) -> int:
    from gobrrr.cli.ceilings import read_ceilings
    from gobrrr.pipeline.carry import carry_trace

    ceilings = None if parsed.ceilings is None else read_ceilings(parsed.ceilings)
    found = [carry_trace(parsed.trace, device, ceilings=ceilings) for device in devices]
    for device, diagnosis in zip(devices, found):
        diagnosis.source.setdefault("device", device)
    if len(found) == 1:
        _report(found[0], parsed)
        return 0
    _one_file_each(parsed, found)
    _print_table(found)
    return 0


def _print_table(found: Sequence[Diagnosis]) -> None:
    from gobrrr.reports.prediction_table import prediction_table
    from gobrrr.reports.terminal import options_for

    sys.stdout.write(prediction_table(found, options_for(sys.stdout).width))


def _files(parsed: argparse.Namespace) -> list[str]:
    """The report options that were given a file to write."""
    from gobrrr import reports

    return [form.option for form in reports.FORMATS if getattr(parsed, form.option) is not None]


def _report(diagnosis: Diagnosis, parsed: argparse.Namespace) -> None:
    from gobrrr.cli.output import show, write_files

    write_files(diagnosis, parsed)
    show(diagnosis, parsed)


def _one_file_each(parsed: argparse.Namespace, found: Sequence[Diagnosis]) -> None:
    """With several devices each report has a file of its own: ``d.json``, ``d-H100-SXM.json``."""
    from gobrrr import reports
    from gobrrr.cli.output import write_files

    for diagnosis in found:
        renamed = argparse.Namespace(**vars(parsed))
        for form in reports.FORMATS:
            path = getattr(parsed, form.option)
            if path is not None:
                device = str(diagnosis.source["device"])
                setattr(renamed, form.option, path.with_stem(f"{path.stem}-{device}"))
        write_files(diagnosis, renamed)
