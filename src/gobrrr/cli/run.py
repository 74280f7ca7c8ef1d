"""``gobrrr run``: a script, a module or a function, diagnosed while it runs."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from gobrrr import reports
from gobrrr.cli.launcher import run_launcher
from gobrrr.cli.lost_device import Ending
from gobrrr.cli.parsing import (
    add_report_options,
    flags_with_value,
    function_target,
    given_options,
    natural,
    options_among,
    output_path,
    positive,
    require_torch,
    without_arguments,
)
from gobrrr.cli.progress import Progress
from gobrrr.timeline.errors import InputError, UserCodeError

if TYPE_CHECKING:
    from gobrrr.diagnosis.schema import Diagnosis
    from gobrrr.live.script import ScriptExit

DESCRIPTION = """Run a PyTorch program unmodified and report where the time of its steps goes.

gobrrr's options go before the script; everything after it belongs to the script.
With file.py:function they may go on either side."""
EXAMPLES = """examples:
  gobrrr run train.py --epochs 3
  gobrrr run --json d.json --stop train.py
  gobrrr run -m package.train --config small.yaml
  gobrrr run bench.py:make_step --top 20
  gobrrr run --nproc-per-node 2 train.py
  torchrun --nproc-per-node 8 -m gobrrr run --json d.json train.py

A training step ends where an optimizer's step returns. Without an optimizer, a step
is one call of the outermost module. "with gobrrr.step():" around the body of the
script's loop marks the steps explicitly, and --step says which of them is meant.
"""

NPROC = "--nproc-per-node"
# What Python says of ``from . import x`` in a script.
_NO_PARENT = "attempted relative import with no known parent package"


@dataclass(frozen=True, slots=True)
class Target:
    """What to run: ``kind`` is ``script``, ``module`` or ``function``."""

    kind: Literal["script", "module", "function"]
    name: str
    argv: tuple[str, ...] = ()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``gobrrr run``; the target is taken apart by ``split_target``."""
    parser.usage = (
        "gobrrr run [options] SCRIPT [its arguments]\n"
        "       gobrrr run [options] -m MODULE [its arguments]\n"
        "       gobrrr run [options] FILE.py:FUNCTION [options]"
    )
    group = parser.add_argument_group("measuring")
    group.add_argument("--steps", type=positive, metavar="N", help="number of steps to time")
    group.add_argument(
        "--warmup", type=natural, metavar="N", help="number of steps to skip before measuring"
    )
    group.add_argument(
        "--step",
        default="",
        metavar="WHAT",
        help='what ends a step: "optimizer", "call" (of the outermost module), or a module, by its '
        "class or variable",
    )
    group.add_argument("--stop", action="store_true", help="end the script once it is diagnosed")
    group.add_argument("--threads", type=positive, metavar="N", help="torch.set_num_threads(N)")
    group.add_argument(
        "--batch-test",
        action=argparse.BooleanOptionalAction,
        help="run the batch-doubling test (default: only if it takes seconds)",
    )
    group.add_argument(
        "--compare-compiled",
        action="store_true",
        help="also compile the forward pass, and report the kernels that torch.compile makes",
    )
    group.add_argument(
        "--refresh-ceilings", action="store_true", help="measure this machine's ceilings again"
    )
    group.add_argument(
        "--perfetto",
        type=output_path,
        metavar="PATH",
        help="write the profiled steps of all ranks on one clock, for ui.perfetto.dev",
    )
    group.add_argument("--quiet", action="store_true", help="no progress on stderr")
    group.add_argument(
        NPROC,
        type=positive,
        metavar="N",
        help="start N processes with torchrun, and write one report of all",
    )
    add_report_options(parser)


def split_target(
    parser: argparse.ArgumentParser, arguments: Sequence[str]
) -> tuple[list[str], Target | None]:
    """Gobrrr's own options, those of ``parser``, and the target with what is its own."""
    takes_value = flags_with_value(parser)
    own: list[str] = []
    i = 0
    while i < len(arguments):
        token = arguments[i]
        if token == "--" and i + 1 < len(arguments):
            return own, _target(arguments[i + 1], arguments[i + 2 :], own)
        if token == "-m":
            if i + 1 == len(arguments):
                raise InputError("-m needs a module: gobrrr run -m package.train")
            return own, Target("module", arguments[i + 1], tuple(arguments[i + 2 :]))
        if token.startswith("-m") and not token.startswith("--"):
            return own, Target("module", token[2:], tuple(arguments[i + 1 :]))
        if not token.startswith("-"):
            return own, _target(token, arguments[i + 1 :], own)
        own.append(token)
        if token in takes_value and i + 1 < len(arguments):
            i += 1
            own.append(arguments[i])
        i += 1
    return own, None


# Programs that start a script in processes of their own, by the name of the file or module.
_LAUNCHERS = frozenset(
    {"torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate", "deepspeed",
     "accelerate.commands.launch", "mpirun"}
)  # fmt: skip


def refuse_launchers(target: Target) -> None:
    """A launcher trains nothing itself: its workers are other processes, which gobrrr has to be in.

    Raises:
        InputError: the target is one; says how to put gobrrr behind it.
    """
    name = Path(target.name).name if target.kind == "script" else target.name
    if target.kind == "function" or name not in _LAUNCHERS:
        return
    start = f"python -m {name}" if target.kind == "module" else name
    raise InputError(
        f"{name} starts your script in other processes, where gobrrr would not run: put gobrrr "
        f"after it, as in `{start} [its options] -m gobrrr run SCRIPT [its arguments]`"
    )


def _target(name: str, rest: Sequence[str], own: list[str]) -> Target:
    if function_target(name) is not None:
        own.extend(rest)
        return Target("function", name)
    return Target("script", name, tuple(rest))


def execute(parser: argparse.ArgumentParser, arguments: list[str]) -> int:
    """Runs the target; reports as soon as it is measured. Exit codes: see ``timeline.errors``."""
    own, target = split_target(parser, arguments)
    parsed = parser.parse_args(own)
    if target is None:
        raise InputError("nothing to run: gobrrr run SCRIPT (see gobrrr run --help)")
    refuse_launchers(target)
    require_torch("gobrrr run")
    if parsed.nproc_per_node is not None:
        return _run_job(parsed.nproc_per_node, own, target)
    progress = Progress(None if parsed.quiet else sys.stderr)
    if parsed.step and target.kind == "function":
        raise InputError("--step needs a script: a step of a function is one call of it")
    if parsed.compare_compiled and target.kind != "function":
        raise InputError("--compare-compiled needs a function: gobrrr run bench.py:make_step")
    from gobrrr.live.launcher import job_size

    if target.kind == "function" and job_size(os.environ) > 1:
        raise InputError(
            "a function is measured in one process; for a job of several ranks give the script: "
            "gobrrr run SCRIPT"
        )
    try:
        given = given_options(parser, own)
        if target.kind == "function":
            return _run_function(target, parsed, progress, given)
        meant = meant_command(parser, own, target)
        return _run_script(target, parsed, progress, meant, given)
    finally:
        progress.end()


def command_line(target: Target) -> str:
    """The target as it stands behind gobrrr's options, quoted for a shell."""
    module = ["-m"] if target.kind == "module" else []
    return shlex.join([*module, target.name, *target.argv])


def meant_command(parser: argparse.ArgumentParser, own: Sequence[str], target: Target) -> str:
    """The command with its options before the script; empty if none of ours stand behind it."""
    text = ""
    if target.kind == "script":
        with contextlib.suppress(OSError, UnicodeDecodeError):
            text = Path(target.name).read_text()
    ours, rest = options_among(parser, target.argv, text)
    program = command_line(replace(target, argv=tuple(rest)))
    return f"{shlex.join(['gobrrr', 'run', *own, *ours])} {program}" if ours else ""


def job_command(processes: int, own: Sequence[str], target: Target) -> list[str]:
    """What starts a job of this many processes on this machine, each under ``gobrrr run``.

    Raises:
        InputError: a function was given, which one process measures.
    """
    if target.kind == "function":
        raise InputError(f"{NPROC} needs a script: {target.name} is measured in one process")
    given: list[str] = []
    tokens = iter(own)
    for token in tokens:
        if token == NPROC:
            next(tokens, None)
        elif not token.startswith(f"{NPROC}="):
            given.append(token)
    module = ["-m"] if target.kind == "module" else ["--"]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", NPROC]
    run = [str(processes), "-m", "gobrrr", "run", *given, *module, target.name, *target.argv]
    return [*launcher, *run]


def _run_job(processes: int, own: Sequence[str], target: Target) -> int:
    from gobrrr.devices.cpu.identity import identify_processor
    from gobrrr.jobs.rank_limit import refuse_too_many_ranks
    from gobrrr.measure.load import usable_processors

    command = job_command(processes, own, target)
    refuse_too_many_ranks(
        processes,
        processors=usable_processors(),
        memory_bytes=identify_processor().memory_bytes,
    )
    return run_launcher(command)


def _run_function(
    target: Target, parsed: argparse.Namespace, progress: Progress, given: dict[str, str]
) -> int:
    from gobrrr.cli.output import show, write_files
    from gobrrr.live.script_run import set_threads
    from gobrrr.pipeline.live import diagnose
    from gobrrr.timeline.workload import load_function

    set_threads(parsed.threads)
    without_arguments(target.name)
    diagnosis = diagnose(
        load_function(target.name),
        steps=parsed.steps,
        warmup=parsed.warmup,
        batch_test=parsed.batch_test,
        compare_compiled=parsed.compare_compiled,
        # Nothing runs after us in this process that could miss the state.
        restore=False,
        refresh_ceilings=parsed.refresh_ceilings,
        name=Path(target.name).name,
        progress=progress,
    )
    progress.end()
    _with_next(diagnosis, target, given)
    write_files(diagnosis, parsed)
    show(diagnosis, parsed)
    return 0


def _with_next(diagnosis: Diagnosis, target: Target, given: dict[str, str]) -> None:
    """Adds what only the command line knows of the next command: what was given, and the time."""
    diagnosis.source |= {"command": command_line(target), "options": given}
    if diagnosis.untried is not None:
        from gobrrr.pipeline.fix import BUDGET_S
        from gobrrr.search.program_bench import LEAST_SCRIPT_TRIAL_S
        from gobrrr.search.search import usual_time_s
        from gobrrr.search.workload_bench import LEAST_TRIAL_S

        least_s = LEAST_TRIAL_S if target.kind == "function" else LEAST_SCRIPT_TRIAL_S
        diagnosis.untried.time_s = usual_time_s(len(diagnosis.untried.fixes), least_s, BUDGET_S)


def _files_of_rank(parsed: argparse.Namespace, rank: int) -> argparse.Namespace:
    """What a rank beside the first one writes: its own diagnosis, ``d.rank1.json``, and no page."""
    own = argparse.Namespace(**vars(parsed))
    for form in reports.FORMATS:
        path = getattr(parsed, form.option)
        # Beside /dev/stdout there is no place.
        keep = path is not None and form.option == "json" and path.parent != Path("/dev")
        setattr(own, form.option, path.with_suffix(f".rank{rank}{path.suffix}") if keep else None)
    return own


def _with_paths(
    parsed: argparse.Namespace, change: Callable[[Path], Path | None]
) -> argparse.Namespace:
    """The arguments with each path to write changed."""
    own = argparse.Namespace(**vars(parsed))
    for option in (*(form.option for form in reports.FORMATS), "perfetto"):
        path = getattr(parsed, option)
        setattr(own, option, None if path is None else change(path))
    return own


def _as_module(target: Target, ended: ScriptExit) -> str:
    """What to try with a script that is a part of a package, if that is why it raised."""
    from gobrrr.live.script import module_of

    if target.kind != "script" or _NO_PARENT not in str(ended.error):
        return ""
    root, name = module_of(Path(target.name))
    there = "" if root == Path.cwd() else f", in {root}"
    command = shlex.join(["gobrrr", "run", "-m", name, *target.argv])
    return f"; it is a part of a package: try{there} {command}"


def _run_script(
    target: Target, parsed: argparse.Namespace, progress: Progress, meant: str,
    given: dict[str, str],
) -> int:  # fmt: skip
    from gobrrr.live.launcher import job_size, rank_of
    from gobrrr.pipeline.script import diagnose_script

    trouble: list[InputError] = []
    # The script may put another stream in its place.
    stream = sys.stdout

    rank = rank_of(os.environ)
    if rank:
        progress = Progress(None)
        parsed = _files_of_rank(parsed, rank)
    # The script may change into another folder.
    places = _with_paths(parsed, Path.absolute)

    def write_now(diagnosis: Diagnosis, shown: bool) -> None:
        # Long before the script ends, and whatever becomes of it.
        from gobrrr.cli.output import show_now, write_files

        saved = parsed
        _with_next(diagnosis, target, given)
        try:
            write_files(diagnosis, places)
        except InputError as error:
            trouble.append(error)
            saved = _with_paths(parsed, lambda path: None)
        if shown:
            progress.end()
            show_now(diagnosis, saved, stream)

    ending = Ending()
    outcome = diagnose_script(
        target.name,
        list(target.argv),
        is_module=target.kind == "module",
        steps=parsed.steps,
        warmup=parsed.warmup,
        stop=parsed.stop,
        threads=parsed.threads,
        step=parsed.step,
        refresh_ceilings=parsed.refresh_ceilings,
        perfetto=places.perfetto,
        progress=progress,
        on_diagnosis=write_now,
    )
    progress.end()
    if outcome.diagnosis is not None and not rank and outcome.ran_on:
        from gobrrr.cli.output import show_again

        show_again(outcome.diagnosis, parsed, stream)
    ended_badly = outcome.exit.interrupted or outcome.exit.raised or outcome.exit.code
    for error in trouble if ended_badly else ():
        Progress(sys.stderr).say(str(error))
    if outcome.exit.interrupted:
        raise KeyboardInterrupt
    if outcome.exit.raised:
        raised = UserCodeError(f"{target.name} raised, see above{_as_module(target, outcome.exit)}")
        ending.without_device(raised.exit_code)
        raise raised
    if outcome.exit.code:
        # As argparse and click leave after a wrong option.
        if outcome.exit.code == 2 and outcome.diagnosis is None and meant:
            progress.say(f"gobrrr's options go before the script: {meant}")
        elif outcome.diagnosis is None and outcome.problem:
            progress.say(outcome.problem)
        return outcome.exit.code
    if outcome.diagnosis is None and not rank:
        problem = outcome.problem or "the script ended before it could be diagnosed"
        if outcome.too_few_steps:
            problem += " With --warmup 1 --steps 2 about 12 are enough (2 timed, 8 profiled)."
        if job_size(os.environ) == 1:
            raise InputError(problem)
        # A launcher that sees another exit code than the script's ends the ranks that still run.
        Progress(sys.stderr).say(f"no diagnosis of the job; rank 0: {problem}")
    if trouble:
        if not rank:
            raise trouble[0]
        # As above; the job's diagnosis is that of rank 0.
        Progress(sys.stderr).say(f"rank {rank}: {trouble[0]}")
    return 0
