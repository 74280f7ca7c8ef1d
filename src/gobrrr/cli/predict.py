"""``gobrrr predict``: what a step, a recorded trace or one op costs on a device not here."""

from __future__ import annotations

import argparse
import gzip
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gobrrr.cli.parsing import (
    add_host_overhead,
    add_report_options,
    output_path,
    positive,
    require_torch,
    without_arguments,
)
from gobrrr.cli.predict_checks import (
    ALL,
    files_of,
    refuse_diagnosis,
    refuse_what_has_no_effect,
)
from gobrrr.cli.run import Target, refuse_launchers, split_target
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.function_names import which_function

if TYPE_CHECKING:
    from gobrrr.diagnosis.schema import Diagnosis
    from gobrrr.prediction.against import AgainstRow
    from gobrrr.prediction.options import PredictOptions

DESCRIPTION = """Predict the time of a step on any device, from a machine without it.

The step is captured with tensors that have shapes but no data, through forward, backward
and optimizer; each operator's time follows from the device's data sheet. A script runs
that way from its start to the end of a step, as gobrrr run finds steps; what follows a
script is its own, but where no --device stands before it, gobrrr takes its options from
there. With --trace, measured kernel times are scaled to the other device."""
EXAMPLES = """examples:
  gobrrr predict train.py --device H100-SXM --device MI300X
  gobrrr predict --device H100-SXM train.py --batch 32
  gobrrr predict bench.py:make_step --device H100-SXM
  gobrrr predict bench.py:make_step --device H100-SXM --compile
  gobrrr predict bench.py:make_step --device H100-SXM --mesh dp=8
  gobrrr predict bench.py:make_step --device H100-SXM --mesh fsdp=16 \\
      --hosts 2 --link 8x400Gb
  gobrrr predict --trace h100.json.gz --device MI300X
  gobrrr predict --op "mm(4096x4096, 4096x4096, bf16)" --device all
  gobrrr predict --against times.csv --device H100-SXM
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``gobrrr predict``."""
    parser.usage = (
        "gobrrr predict [options] SCRIPT [options, its arguments]\n"
        "       gobrrr predict [options] -m MODULE [options, its arguments]\n"
        "       gobrrr predict [options] FILE.py:FUNCTION [options]\n"
        "       gobrrr predict [options] --op OP | --trace FILE | --against CSV"
    )
    group = parser.add_argument_group("what to predict, and for which device")
    group.add_argument("--op", metavar="OP", help="one op, such as mm(4096x4096, 4096x4096, bf16)")
    group.add_argument(
        "--against", metavar="CSV",
        help="measured times to compare predictions with; columns: op or program; s, ms or us; "
        "and device, where rows are of several",
    )  # fmt: skip
    group.add_argument("--trace", metavar="FILE", help="a recorded trace, scaled to the device")
    group.add_argument(
        "--device", action="append", default=[], metavar="NAME",
        help="a name that gobrrr devices lists, the file of a card of your own (my-card.toml), cpu "
        "for this CPU (not with --trace), or all; may be repeated",
    )  # fmt: skip
    group.add_argument(
        "--ceilings", metavar="FILE", help="with --trace: the traced device's ceilings"
    )
    group.add_argument(
        "--explain", action="store_true",
        help="show how the longest ops are computed, and which parts are least certain",
    )  # fmt: skip
    group = parser.add_argument_group("how the step runs there")
    group.add_argument("--compile", action="store_true", help="under torch.compile")
    group.add_argument(
        "--compile-mode", metavar="MODE",
        help="under torch.compile(mode=MODE): default, or reduce-overhead (CUDA graphs)",
    )  # fmt: skip
    group.add_argument("--autocast", metavar="fp16|bf16", help="under autocast")
    group.add_argument("--inference-mode", action="store_true", help="under torch.inference_mode()")
    group.add_argument("--channels-last", action="store_true", help="in channels-last layout")
    group.add_argument(
        "--size-hint", type=positive, metavar="N", help="a value for sizes that depend on data"
    )
    group.add_argument(
        "--threads", type=positive, metavar="N",
        help="torch.set_num_threads(N) before the program; --device cpu is of as many",
    )  # fmt: skip
    add_host_overhead(group)
    group = parser.add_argument_group("on several devices")
    group.add_argument(
        "--mesh", metavar="DIM=N,...",
        help="dp=N (DDP), fsdp=N (FSDP2), tp=N (tensor parallelism), pp=N (pipeline); reports the "
        "step of one rank",
    )  # fmt: skip
    group.add_argument(
        "--hosts", type=positive, default=1, metavar="N", help="number of hosts (default 1)"
    )
    group.add_argument(
        "--link", metavar="RATE[,LATENCY]",
        help="network bandwidth of one host, all its adapters together: 400Gb, 8x400Gb, 50GB; and "
        "the latency of a message between hosts, added to NCCL's own per hop: 400Gb,20us "
        "(default: 0)",
    )  # fmt: skip
    group.add_argument(
        "--microbatches", type=positive, metavar="N",
        help="microbatches of a pipeline's step, each the program's batch (default: 4 per stage)",
    )  # fmt: skip
    group.add_argument(
        "--schedule", metavar="NAME", help="pipeline schedule: 1f1b (default), gpipe, interleaved"
    )
    group.add_argument(
        "--perfetto", type=output_path, metavar="PATH",
        help="write the predicted step with its streams, for ui.perfetto.dev",
    )  # fmt: skip
    add_report_options(parser)


def execute(parser: argparse.ArgumentParser, arguments: list[str]) -> int:
    """Predicts; a report for one device, a table for several."""
    parsed = parse(parser, arguments)
    parsed.given = arguments
    given = [
        name for name in ("target", "op", "trace", "against") if getattr(parsed, name) is not None
    ]
    if len(given) != 1:
        raise InputError(
            "give one thing to predict: a script, FILE.py:FUNCTION, --op, --trace or --against "
            "(see gobrrr predict --help)"
        )
    if parsed.against is not None:
        require_torch("gobrrr predict --against")
        return _against(parsed)
    if not parsed.device:
        raise InputError("give the device: --device NAME (gobrrr devices lists the names)")
    refuse_what_has_no_effect(parsed)
    devices = _devices(parsed.device)
    if parsed.trace is not None:
        return _trace(parsed, devices)
    require_torch("gobrrr predict")
    from gobrrr.live.script_run import set_threads

    set_threads(parsed.threads)
    if parsed.op is not None:
        return _op(parsed, devices)
    return _step(parsed, devices)


def parse(parser: argparse.ArgumentParser, arguments: list[str]) -> argparse.Namespace:
    """The options, with ``target``: the script, module or function to predict, or ``None``.

    As for ``gobrrr run`` what follows a script is its own; where no device stands before it, what
    gobrrr knows of that is gobrrr's.
    """
    own, target = split_target(parser, arguments)
    if target is not None and target.name.endswith(".py:"):
        raise InputError(which_function(target.name[:-1]))
    if target is not None and target.kind == "script" and target.name.endswith(".json"):
        refuse_diagnosis(target.name)
    if target is None or target.kind == "function":
        parsed = parser.parse_args(own)
    else:
        refuse_launchers(target)
        # ``--`` begins what is the script's alone.
        at = target.argv.index("--") if "--" in target.argv else len(target.argv)
        parsed = parser.parse_args(own)
        if not parsed.device:
            parsed, rest = parser.parse_known_args([*own, *target.argv[:at]])
            target = replace(target, argv=(*rest, *target.argv[at + 1 :]))
    parsed.target = target
    return parsed


def _devices(names: Sequence[str]) -> list[str]:
    """Keys of the devices; a wrong name is said before anything else is done."""
    from gobrrr.devices.datasheet import HERE, all_datasheets, named_datasheet

    if ALL in names:
        return [sheet.key for sheet in all_datasheets() if sheet.kind != "cpu"]
    found = [name if name == HERE else named_datasheet(name).key for name in names]
    return list(dict.fromkeys(found))


def _options(parsed: argparse.Namespace) -> PredictOptions:
    from gobrrr.prediction.options import PredictOptions, dtype_name, mesh_options

    compiled = parsed.compile if parsed.compile_mode is None else parsed.compile_mode
    return PredictOptions(
        compile=compiled,
        autocast=dtype_name(parsed.autocast),
        inference_mode=parsed.inference_mode,
        channels_last=parsed.channels_last,
        size_hint=parsed.size_hint,
        mesh=mesh_options(
            parsed.mesh,
            parsed.hosts,
            parsed.link,
            compiled=compiled,
            microbatches=parsed.microbatches,
            schedule=parsed.schedule,
        ),
        host_overhead=parsed.host_overhead,
    )


def _step(parsed: argparse.Namespace, devices: list[str]) -> int:
    from gobrrr.live.script import load_module, load_script
    from gobrrr.pipeline.predict import predict_function, predict_made
    from gobrrr.prediction.script_graph import ScriptProgram
    from gobrrr.prediction.step.memory import refuse_too_large
    from gobrrr.reports.mesh_tables import mesh_text
    from gobrrr.reports.perfetto import trace_of
    from gobrrr.reports.prediction_table import one_reason
    from gobrrr.timeline.files import write_output

    target: Target = parsed.target
    name = Path(target.name).name if target.kind != "module" else target.name
    refused: list[tuple[str, str]] = []
    several = refused if len(devices) > 1 else None
    if target.kind == "function":
        without_arguments(target.name)
        found = predict_function(target.name, devices, _options(parsed), name=name, refused=several)
    else:
        load = load_module if target.kind == "module" else load_script
        program = ScriptProgram(load(target.name), name, target.argv)
        found = predict_made(program, devices, _options(parsed), name=name, refused=several)
    if not found:
        raise InputError(
            f"none of the {len(devices)} devices can run the step: {one_reason(refused)}"
        )
    try:
        fitting = refuse_too_large(*found)
    except InputError as error:
        raise InputError(f"{error} {one_reason(refused)}".rstrip()) from None
    if len(devices) == 1:
        _report(found[0], parsed)
        sys.stdout.write(mesh_text(found[0]))
        if parsed.perfetto is not None:
            data = trace_of(found[0])
            packed = parsed.perfetto.suffix == ".gz"
            write_output(parsed.perfetto, gzip.compress(data, 6) if packed else data)
            print(f"Saved: {parsed.perfetto} (open it in https://ui.perfetto.dev)")
    else:
        _one_file_each(parsed, fitting)
        _print_table(found, refused)
        _print_next(fitting[0], parsed)
    _explain(parsed, fitting)
    return 0


def _op(parsed: argparse.Namespace, devices: list[str]) -> int:
    from gobrrr.pipeline.predict import predict_made
    from gobrrr.prediction.op_text import call_of, parse_op
    from gobrrr.reports.prediction_table import op_table, refusals
    from gobrrr.reports.terminal import options_for

    written = parse_op(parsed.op)
    make = call_of(written)
    options = replace(_options(parsed), tf32=written.tf32)
    # One device without a path for the dtype does not hide the others.
    refused: list[tuple[str, str]] = []
    found = predict_made(
        make, devices, options, name=parsed.op, refused=refused if len(devices) > 1 else None
    )
    if len(devices) == 1 and files_of(parsed):
        _report(found[0], parsed)
        _explain(parsed, found)
        return 0
    _one_file_each(parsed, found)
    width = options_for(sys.stdout).width
    sys.stdout.write((op_table(found, width) if found else "") + refusals(refused, width))
    if not found:
        raise InputError(f"none of the {len(devices)} devices can run {parsed.op}")
    _explain(parsed, found)
    return 0


def _against(parsed: argparse.Namespace) -> int:
    from gobrrr.diagnosis.writing import encode
    from gobrrr.prediction.against import read_measured, scored, scored_row
    from gobrrr.prediction.step.costs import NoPathError
    from gobrrr.reports.against_table import against_text
    from gobrrr.reports.terminal import options_for
    from gobrrr.timeline.files import write_output

    if parsed.explain or parsed.ceilings is not None or parsed.top is not None or parsed.by:
        raise InputError(
            "--explain, --ceilings, --top and --by would have no effect: the rows that are "
            "furthest off are explained; --against goes with --device, --json and how steps run"
        )
    if [name for name in files_of(parsed) if name != "json"]:
        raise InputError("--against writes no report of one step: --json FILE has all rows")
    if len(parsed.device) > 1 or ALL in parsed.device:
        raise InputError("--against takes one --device; a column device names others")
    rows = read_measured(Path(parsed.against))
    given = _devices(parsed.device)
    found: list[AgainstRow] = []
    refused: list[str] = []
    for row in rows:
        where = f"{parsed.against}, line {row.line}"
        if not row.device and not given:
            raise InputError(f"{where}: on which device? --device NAME, or a column device")
        try:
            devices = _devices([row.device]) if row.device else given
            predicted = _one_row(row.op, row.program, devices, parsed)
        except NoPathError as error:
            refused.append(f"{where}: {error}")
            continue
        except InputError as error:
            raise InputError(f"{where}: {error}") from error
        found.append(scored_row(row, predicted))
    result = scored(found, refused)
    if parsed.json is not None:
        write_output(parsed.json, encode(result))
    sys.stdout.write(against_text(result, options_for(sys.stdout).width))
    if not found:
        raise InputError(f"no row of {parsed.against} can run on its device")
    return 0


def _one_row(
    op: str, program: str, devices: Sequence[str], parsed: argparse.Namespace
) -> Diagnosis:
    from gobrrr.pipeline.predict import predict_function, predict_made
    from gobrrr.prediction.op_text import call_of, parse_op

    if program:
        without_arguments(program)
        found = predict_function(program, devices, _options(parsed), name=Path(program).name)
    else:
        written = parse_op(op)
        options = replace(_options(parsed), tf32=written.tf32)
        found = predict_made(call_of(written), devices, options, name=op)
    return found[0]


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
    _print_next(found[0], parsed)
    return 0


def _print_table(found: Sequence[Diagnosis], refused: Sequence[tuple[str, str]] = ()) -> None:
    from gobrrr.reports.prediction_table import prediction_table
    from gobrrr.reports.terminal import options_for

    sys.stdout.write(prediction_table(found, options_for(sys.stdout).width, refused))


def _print_next(found: Diagnosis, parsed: argparse.Namespace) -> None:
    """The same for one of several devices, of which there is a report then."""
    device, rest = str(found.source["device"]), _without_devices(parsed.given, parsed.device)
    print(f"Next: {shlex.join(['gobrrr', 'predict', '--device', device, *rest])}")


def _without_devices(arguments: Sequence[str], names: Sequence[str]) -> list[str]:
    """The arguments but for the options that name devices; a script has arguments of its own."""
    kept: list[str] = []
    left = list(names)
    words = iter(arguments)
    for word in words:
        option, equals, name = word.partition("=")
        # argparse takes a part of an option's name too.
        if left and len(option) > 2 and "--device".startswith(option):
            left.remove(name if equals else next(words))
        else:
            kept.append(word)
    return kept


def _explain(parsed: argparse.Namespace, found: Sequence[Diagnosis]) -> None:
    from gobrrr.reports.prediction_table import explanation
    from gobrrr.reports.terminal import options_for

    if parsed.explain:
        width = options_for(sys.stdout).width
        sys.stdout.write("".join(explanation(each, width) for each in found))


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
