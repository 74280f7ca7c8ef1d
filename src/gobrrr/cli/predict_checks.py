"""Options of ``gobrrr predict`` that do not go together."""

from __future__ import annotations

import argparse

from gobrrr.timeline.errors import InputError

ALL = "all"


def refuse_what_has_no_effect(parsed: argparse.Namespace) -> None:
    """An option that would be read by nobody is not ignored in silence."""
    if parsed.ceilings is not None and parsed.trace is None:
        raise InputError("--ceilings describes the device that was traced: it goes with --trace")
    if parsed.trace is not None and parsed.explain:
        raise InputError(
            "--explain would have no effect: a trace keeps its measured kernels; it goes with a "
            "step or --op"
        )
    how = {
        "--compile": parsed.compile,
        "--compile-mode": parsed.compile_mode is not None,
        "--autocast": parsed.autocast is not None,
        "--inference-mode": parsed.inference_mode,
        "--channels-last": parsed.channels_last,
        "--size-hint": parsed.size_hint is not None,
        "--threads": parsed.threads is not None,
    }
    given = [option for option, is_given in how.items() if is_given]
    on_several = {
        "--mesh": parsed.mesh, "--link": parsed.link, "--microbatches": parsed.microbatches,
        "--schedule": parsed.schedule, "--perfetto": parsed.perfetto,
        "--host-overhead": parsed.host_overhead,
    }  # fmt: skip
    wished = [option for option, value in on_several.items() if value is not None]
    if parsed.target is None and (wished or parsed.hosts != 1):
        raise InputError(
            f"{(wished or ['--hosts'])[0]} applies to a step: it goes with a script or "
            "FILE.py:FUNCTION"
        )
    if parsed.trace is not None and given:
        raise InputError(
            f"{' and '.join(given)} would have no effect: a trace is scaled as it was recorded; "
            "record it again that way, or predict the program"
        )
    reports_one = len(parsed.device) == 1 and ALL not in parsed.device and parsed.op is None
    if parsed.perfetto is not None and not reports_one:
        raise InputError("--perfetto writes the step on one device: give one --device")
    if not reports_one and not files_of(parsed):
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


def refuse_diagnosis(path: str) -> None:
    """A saved diagnosis is not predicted: says what it lacks, and what to predict in its place.

    Raises InputError.
    """
    from gobrrr.diagnosis.storage import load

    source = load(path).source
    name = str(source.get("name", ""))
    what = {"trace": f"--trace {name}", "module": f"-m {name}"}.get(str(source.get("kind")), name)
    raise InputError(
        f"{path} holds the shapes and times of ops, but neither their other arguments nor their "
        "order and memory, which a prediction needs: predict the program itself (gobrrr predict "
        f"{what} --device NAME), which needs no data and no device"
    )


def files_of(parsed: argparse.Namespace) -> list[str]:
    """The report options that were given a file to write."""
    from gobrrr import reports

    return [form.option for form in reports.FORMATS if getattr(parsed, form.option) is not None]
