"""What a search for fixes hands over: the diagnosis, the best set, and a way to apply it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gobrrr.diagnosis.schema import Diagnosis, Finding, Verification
from gobrrr.fixes.fix import Fix
from gobrrr.search.found import Found, snippet_of
from gobrrr.timeline.errors import GateFailure
from gobrrr.timeline.quantities import multiple
from gobrrr.verification.winner import with_fixes


@dataclass(frozen=True, repr=False)
class FixResult:
    """What ``gobrrr.fix`` found; printed, it is the report.

    Attributes:
        found: everything that was considered and tried.
        best_fixes: the fastest verified set, in the order of application; empty if nothing is
            faster than the program as it is.
        inputs: what a model of this process was tried on; empty for a program in its own.
    """

    found: Found
    best_fixes: tuple[Fix, ...]
    inputs: Any = ()

    @property
    def diagnosis(self) -> Diagnosis:
        """The program as it is, with the findings."""
        return self.found.diagnosis

    @property
    def findings(self) -> list[Finding]:
        """Every fix with a prediction, and its verification if it was tried."""
        return self.found.diagnosis.findings

    @property
    def best(self) -> Verification | None:
        """The trial of the fastest verified set."""
        return self.found.best

    @property
    def speedup(self) -> float:
        """Of the fastest verified set; 1 if there is none."""
        best = self.found.best
        return best.speedup.median if best is not None and best.speedup is not None else 1.0

    @property
    def modules(self) -> int:
        """How many modules of a script the fastest verified set came upon; 0 if not counted."""
        return (self.found.best.modules or 0) if self.found.best is not None else 0

    @property
    def compiles_by_method(self) -> bool:
        """Whether ``module.compile()`` is known to compile that module."""
        return self.found.facts.compiles_by_method

    @property
    def objects(self) -> dict[str, int]:
        """How many objects of a script each fix of that set changed, where they were counted."""
        facts = self.found.facts
        return {fix.name: fix.objects(facts) for fix in self.best_fixes if fix.objects is not None}

    @property
    def ruled_out(self) -> dict[str, str]:
        """Name of each fix that was not tried, and why."""
        return {fix.name: reason for fix, reason in self.found.ruled_out}

    @property
    def snippet(self) -> str:
        """The fastest verified set as code; empty if there is none."""
        return snippet_of(self.best_fixes)

    def __str__(self) -> str:
        return str(self.diagnosis)

    def _repr_html_(self) -> str:
        """The page of the diagnosis with its fixes in a frame, for a notebook."""
        return self.diagnosis._repr_html_()

    def __repr__(self) -> str:
        names = " + ".join(fix.name for fix in self.best_fixes)
        best = f"{names}, {multiple(self.speedup)}" if names else "nothing is faster"
        return f"<FixResult: {best}>"

    def apply(self, target: Any) -> Any:
        """The target with the best set applied: a module for a module, else a ``Workload``.

        Global settings that the fixes need (threads, precision) hold for each of its calls. The
        module's parameters are shared with what is returned.

        Raises InputError for a module where the set holds a fix of the optimizer: apply it to the
        ``Workload``.
        """
        return with_fixes(target, self.best_fixes, self.inputs)


class FixGateFailure(GateFailure):
    """No verified set of fixes is as fast as was required; ``result`` is what was found."""

    def __init__(self, result: FixResult, require: float) -> None:
        super().__init__(
            f"no verified fix reaches {require:g}x: the best is {multiple(result.speedup)}"
        )
        self.result = result
