"""What happens in a case's own process: build the program, ask, check the answers, run it for real.

Every stage sends one record. A prediction comes before the program is run, as it does for a user.
"""

from __future__ import annotations

import re
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from benchmarks.breadth.case import Case, Program
from benchmarks.breadth.odd_inputs.case import BrokenPromiseError, Kind, OddInput

import gobrrr
from gobrrr.timeline.errors import DefectError, GobrrrError, UserCodeError

DEVICE = "H100-SXM"
# What a hint is when the case gives none and gobrrr's sentence asks for one.
ADVISED_SIZE_HINT = 16
PREDICTIONS = ("forward, eager", "forward, compiled", "training, eager", "training, compiled")
TRUTHS = ("forward here", "training here")
STAGES = (*PREDICTIONS, *TRUTHS)

Record = dict[str, Any]
Say = Callable[[str, Record | None], None]

_PATH = re.compile(r"(?<![\w.])(?:/[\w.+@-]+){2,}/([\w.+-]+)")


def without_paths(text: str, limit: int = 400) -> str:
    """The text with every absolute path shortened to its last part."""
    return _PATH.sub(r"\1", text)[:limit]


def peak_memory_bytes(*, reset: bool = False) -> int | None:
    """The most memory this process has held since the last reset; ``None`` where not known."""
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        status = Path("/proc/self/status").read_text()
    except OSError:
        return None
    lines = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    return int(lines["VmHWM"].split()[0]) * 1024


def describe_error(error: BaseException) -> Record:
    """Which kind of failure it was, its sentence, and gobrrr's last frames under it."""
    if isinstance(error, DefectError):
        outcome = "internal error"
    elif isinstance(error, UserCodeError):
        outcome = "blamed on the program"
    elif isinstance(error, GobrrrError):
        outcome = "refused"
    else:
        outcome = "internal error"
    record: Record = {
        "outcome": outcome,
        "error": type(error).__name__,
        "sentence": without_paths(str(error)),
    }
    cause = error.__cause__ or error.__context__
    if cause is not None:
        record["cause"] = without_paths(f"{type(cause).__name__}: {cause}", 300)
    if outcome != "refused":
        deepest = cause if cause is not None else error
        frames = traceback.extract_tb(deepest.__traceback__)
        record["frames"] = [
            f"{without_paths(frame.filename)}:{frame.lineno} {frame.name}" for frame in frames[-4:]
        ]
    return record


def broken_invariants(diagnosis: gobrrr.Diagnosis) -> list[str]:
    """What does not hold of a diagnosis, a sentence each."""
    step, found = diagnosis.step_s, []
    leaves = sum(diagnosis.leaves.values())
    split = diagnosis.split
    parts = (split.compute_s, split.memory_s, split.overhead_s, split.unmodelled_s)
    for name, total in (("leaves", leaves), ("split", sum(parts))):
        if abs(total - step) > 1e-6 * step + 1e-12:
            found.append(f"the {name} sum to {total} s, the step takes {step} s")
    negative = [name for name, value in diagnosis.leaves.items() if value < 0]
    if negative:
        found.append(f"negative: {', '.join(negative)}")
    if diagnosis.speed_of_light_s is not None and diagnosis.speed_of_light_s > step * (1 + 1e-9):
        found.append(f"speed of light {diagnosis.speed_of_light_s} s, step {step} s")
    if diagnosis.mfu is not None and not 0 <= diagnosis.mfu <= 1:
        found.append(f"MFU {diagnosis.mfu}")
    modelled = diagnosis.coverage.modelled_time_fraction
    if modelled is not None and not 0 <= modelled <= 1 + 1e-9:
        found.append(f"modelled fraction {modelled}")
    for what, look in (("check()", diagnosis.check), ("the report", diagnosis.__str__)):
        try:
            look()
        except Exception as error:
            found.append(f"{what} raises {type(error).__name__}: {without_paths(str(error), 150)}")
    return found


def describe_diagnosis(diagnosis: gobrrr.Diagnosis) -> Record:
    """What the result file keeps of an answer."""
    return {
        "step_s": diagnosis.step_s,
        "modelled_fraction": diagnosis.coverage.modelled_time_fraction,
        "unmodelled": sorted({row.op for row in diagnosis.coverage.unmodelled}),
        "broken": broken_invariants(diagnosis),
    }


def _predict(work: Any, compile: bool, size_hint: int | None) -> Record:
    try:
        diagnosis = gobrrr.predict(work, DEVICE, compile=compile, size_hint=size_hint)
    except Exception as error:
        return describe_error(error)
    return {
        "outcome": "predicted",
        **describe_diagnosis(diagnosis),
        "host_bound": bool(diagnosis.source.get("host_bound")),
    }


def _hinted(work: Any, compile: bool, size_hint: int | None) -> Record:
    """A prediction; where its refusal advises a size hint, the one with it."""
    record = _predict(work, compile, size_hint)
    advised = "size_hint" in record.get("sentence", "") or "size-hint" in record.get("sentence", "")
    if record["outcome"] == "refused" and size_hint is None and advised:
        without = record["sentence"]
        record = _predict(work, compile, ADVISED_SIZE_HINT)
        record |= {"size_hint": ADVISED_SIZE_HINT, "without_hint": without}
    elif size_hint is not None:
        record["size_hint"] = size_hint
    return record


def _measured(ask: Callable[[], Record]) -> Record:
    before = peak_memory_bytes(reset=True)
    started, used = time.perf_counter(), time.process_time()
    record = ask()
    record["seconds"] = round(time.perf_counter() - started, 3)
    record["cpu_seconds"] = round(time.process_time() - used, 3)
    after = peak_memory_bytes()
    if before is not None and after is not None:
        record["memory_bytes"] = max(after - before, 0)
    return record


def workload_of(program: Program, trains: bool, *, set_mode: bool) -> Any:
    """The forward or the training step of a program; ``None`` if it has none.

    ``set_mode`` puts the model into evaluation or training; otherwise it stays as it was built.
    """
    if program.step is not None:
        return None if trains else program.step
    if not trains:
        if set_mode:
            program.model.eval()
        return gobrrr.Workload(program.model, program.inputs)
    if program.loss is None:
        return None
    if set_mode:
        program.model.train()
    if program.make_optimizer is not None:
        optimizer = program.make_optimizer(program.model)
    else:
        wanted = [p for p in program.model.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(wanted, lr=1e-4)
    return gobrrr.Workload(program.model, program.inputs, program.loss, optimizer)


def _run_here(work: Any) -> Record:
    started = time.perf_counter()
    try:
        work.step() if isinstance(work, gobrrr.Workload) else work()
    except Exception as error:
        sentence = without_paths(f"{type(error).__name__}: {error}", 200)
        return {"outcome": "fails in PyTorch", "sentence": sentence}
    return {"outcome": "runs", "step_s": round(time.perf_counter() - started, 6)}


def ask_about_program(case: Case, stages: tuple[str, ...], say: Say) -> None:
    """Build the program, then do the wanted stages in order, each announced and then told."""
    torch.manual_seed(0)
    say("build", None)
    try:
        program = case.build()
    except Exception as error:
        sentence = without_paths(f"{type(error).__name__}: {error}", 200)
        say("build", {"outcome": "fails in PyTorch", "sentence": sentence})
        return
    say("build", {"outcome": "runs"})
    is_architecture = case.kind == "architecture"
    for stage in stages:
        what, how = stage.replace(" here", ", here").split(", ")
        say(stage, None)
        try:
            work = workload_of(program, what == "training", set_mode=is_architecture)
        except Exception as error:
            sentence = without_paths(f"{type(error).__name__}: {error}", 200)
            say(stage, {"outcome": "fails in PyTorch", "sentence": sentence})
            continue
        if work is None:
            say(stage, {"outcome": "not asked"})
        elif how == "here":
            say(stage, _run_here(work))
        else:
            say(stage, _measured(lambda w=work, h=how: _hinted(w, h == "compiled", case.size_hint)))


def ask_odd_input(question: OddInput, stages: tuple[str, ...], say: Say) -> None:
    """Ask an odd input; its record names the kind of answer that came."""
    for stage in stages:
        torch.manual_seed(0)
        say(stage, None)
        say(stage, _measured(lambda: _odd_answer(question)))


def _odd_answer(question: OddInput) -> Record:
    try:
        answer = question.ask()
    except BrokenPromiseError as error:
        return {"outcome": "broken promise", "sentence": str(error)}
    except (SystemExit, KeyboardInterrupt) as error:
        return {"outcome": Kind.ENDED.value, "error": type(error).__name__}
    except Exception as error:
        record = describe_error(error)
        kinds = {"refused": Kind.BAD_INPUT, "blamed on the program": Kind.USER_ERROR}
        if record["outcome"] in kinds:
            record["outcome"] = kinds[record["outcome"]].value
        return record
    diagnoses = answer if isinstance(answer, list) else [answer]
    broken = [sentence for one in diagnoses for sentence in broken_invariants(one)]
    first = describe_diagnosis(diagnoses[0])
    return {"outcome": Kind.NUMBER.value, **first, "broken": broken}
