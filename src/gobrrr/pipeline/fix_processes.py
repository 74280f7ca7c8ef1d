"""Programs that are tried in processes of their own: ``file.py:function``, scripts, modules."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gobrrr.attribution.cpu_run import Progress, silent
from gobrrr.capture.function_names import require_function
from gobrrr.capture.script import load_module, load_script
from gobrrr.devices.ceilings import Ceilings
from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.fixes.facts import Facts
from gobrrr.fixes.fix import Fix
from gobrrr.pipeline.fix_child import NO_INPUT, Answer, Spec
from gobrrr.pipeline.live import load_ceilings
from gobrrr.timeline.errors import InputError, UserCodeError
from gobrrr.timeline.quantities import whole_seconds
from gobrrr.verification.functions import FunctionTrials
from gobrrr.verification.processes import STEADY, joined_environment, merged_environment
from gobrrr.verification.scripts import (
    ScriptNull,
    ScriptTarget,
    measure_script_null,
    verify_script,
)
from gobrrr.verification.timing import Null
from gobrrr.verification.trial import Trial

# A program that takes this long to start and be diagnosed cannot be tried in minutes.
MOST_DIAGNOSIS_S = 900.0


def diagnose_in_child(spec: Spec, fixes: Sequence[Fix]) -> tuple[Diagnosis, Facts]:
    """Diagnosis and facts of a program with fixes, from a process of its own.

    Its standard input is closed; what it prints is shown if it fails.
    Raises InputError or UserCodeError with what the child says.
    """
    environment = joined_environment([fix.environment for fix in fixes])
    with tempfile.TemporaryDirectory(prefix="gobrrr-") as folder:
        spec_path, answer_path = Path(folder) / "spec.json", Path(folder) / "answer.json"
        spec_path.write_bytes(msgspec.json.encode(spec))
        printed_path = Path(folder) / "printed.txt"
        with printed_path.open("wb") as printed:
            try:
                ended = subprocess.run(
                    [sys.executable, "-m", "gobrrr.pipeline.fix_child", str(spec_path),
                     str(answer_path)],
                    stdin=subprocess.DEVNULL, stdout=printed, stderr=subprocess.STDOUT,
                    env={**os.environ, **STEADY, **merged_environment(environment)},
                    timeout=MOST_DIAGNOSIS_S, check=False,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                raise InputError(
                    f"{spec.target} was not diagnosed within "
                    f"{whole_seconds(MOST_DIAGNOSIS_S)}: give it less to do before its first steps"
                ) from None
        text = printed_path.read_text(errors="replace")
        if not answer_path.exists():
            raise UserCodeError(_how_it_ended(spec.target, ended.returncode, text))
        answer = msgspec.json.decode(answer_path.read_bytes(), type=Answer)
    if answer.diagnosis is None or answer.facts is None:
        if answer.by_user:
            sys.stderr.write(text)
            raise UserCodeError(answer.error)
        raise InputError(answer.error)
    return answer.diagnosis, answer.facts


def _how_it_ended(target: str, code: int, printed: str) -> str:
    lines = [line for line in printed.splitlines() if line.strip()]
    said = f": {lines[-1][:300]}" if lines else ""
    if "EOFError" in said:
        said += NO_INPUT
    return f"{target} ended its process with code {code} before it could be diagnosed{said}"


class FunctionBench:
    """``file.py:function``: built anew in each process."""

    least_trial_s = 2.0

    def __init__(
        self,
        target: str,
        tolerance: float,
        memory_limit: int | None = None,
        ceilings: Ceilings | None = None,
    ) -> None:
        path, _, name = target.rpartition(":")
        if not path or not name or not Path(path).is_file():
            raise InputError(f"{target}: give file.py:function, with a file that exists")
        # Before anything of the file has run, or torch was waited for.
        require_function(path, name)
        self._target = target
        self._tolerance = tolerance
        self._ceilings = ceilings
        self._trials = FunctionTrials(target, memory_limit_bytes=memory_limit)

    def can_apply(self, fix: Fix) -> str:
        """What a workload or an environment can take."""
        if fix.apply is not None or fix.environment:
            return ""
        return "applies to scripts: gobrrr fix train.py"

    def diagnose(self, fixes: Sequence[Fix], progress: Progress) -> tuple[Diagnosis, Facts]:
        """In a process of its own."""
        if self._ceilings is None:
            # Here, where progress is shown; the child finds them cached.
            self._ceilings = load_ceilings(refresh=False, progress=progress)
        progress(_doing(fixes), 0, 0)
        names = [fix.name for fix in fixes]
        spec = Spec(kind="function", target=self._target, fixes=names)
        return diagnose_in_child(spec, fixes)

    def measure_null(self, budget_s: float) -> Null:
        """Two copies in a process of their own."""
        return self._trials.measure_null(budget_s)

    def verify(
        self, fixes: Sequence[Fix], null: Null, light_s: float | None, budget_s: float,
        limit_s: float,
    ) -> Trial:  # fmt: skip
        """In that process, or in two if variables have to be set at their start."""
        return self._trials.verify(
            fixes, speed_of_light_s=light_s, tolerance=self._tolerance, budget_s=budget_s,
            limit_s=limit_s,
        )  # fmt: skip

    def close(self) -> None:
        """Ends the process."""
        self._trials.close()


class ScriptBench:
    """An unmodified script or module: fresh processes with and without fixes."""

    # Starting the processes is part of it.
    least_trial_s = 10.0

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        tolerance: float,
        memory_limit: int | None = None,
        *,
        is_module: bool = False,
    ) -> None:
        # Bad input is refused before anything of the script has run.
        (load_module if is_module else load_script)(name)
        self._target = ScriptTarget(
            name, tuple(argv), is_module=is_module, memory_limit_bytes=memory_limit
        )
        self._tolerance = tolerance
        self._measured = False
        self._null: ScriptNull | None = None
        self._progress: Progress = silent

    def can_apply(self, fix: Fix) -> str:
        """What can be installed before a script runs."""
        if fix.in_script is not None or fix.environment:
            return ""
        return "needs the model and its inputs: gobrrr fix file.py:function"

    def diagnose(self, fixes: Sequence[Fix], progress: Progress) -> tuple[Diagnosis, Facts]:
        """In a process of its own, up to the end of the measured steps."""
        self._progress = progress
        if not self._measured:
            load_ceilings(refresh=False, progress=progress)
            self._measured = True
        progress(_doing(fixes), 0, 0)
        spec = Spec(
            kind="module" if self._target.is_module else "script", target=self._target.name,
            argv=list(self._target.argv), fixes=[fix.name for fix in fixes],
        )  # fmt: skip
        return diagnose_in_child(spec, fixes)

    def measure_null(self, budget_s: float) -> Null:
        """Two plain runs in turns. Raises InputError with the reason if they do not work out."""
        self._null = measure_script_null(self._target, budget_s=budget_s, tolerance=self._tolerance)
        if self._null.null is None:
            raise InputError(self._null.trouble)
        if self._null.not_deterministic:
            # Known now; what it means for each fix is said with its trial.
            self._progress("two plain runs differ, so that no fix can be compared", 0, 0)
        return self._null.null

    def verify(
        self, fixes: Sequence[Fix], null: Null, light_s: float | None, budget_s: float,
        limit_s: float,
    ) -> Trial:  # fmt: skip
        """Runs with and without, in turns."""
        return verify_script(
            self._target, fixes, null=self._null, speed_of_light_s=light_s,
            tolerance=self._tolerance, budget_s=budget_s, limit_s=limit_s,
        )  # fmt: skip

    def close(self) -> None:
        """Nothing lives on between trials."""


def _doing(fixes: Sequence[Fix]) -> str:
    names = " + ".join(fix.name for fix in fixes)
    return f"diagnosing with {names}" if names else "diagnosing"
