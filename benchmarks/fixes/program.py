"""What the benchmark knows of a program: where it is, its flaw, and what mends that."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Program:
    """One program of a set.

    Attributes:
        name: of the function, or of the script in ``scripts/`` without ``.py``.
        flaw: what is wrong with it; empty where nothing is.
        fixed_by: names of fixes that mend it, any of which counts; empty if there is no flaw.
        kind: ``function`` or ``script``.
        mended: name of the function or script that does the same without the flaw.
        threads: of torch.
        file: where the function is, beside the set's list of programs.
        only_user: only the program's author can make the change, so that there is nothing to
            verify: it counts if it is ranked first and names a line that is marked ``# flaw``.
    """

    name: str
    flaw: str = ""
    fixed_by: tuple[str, ...] = ()
    kind: str = "function"
    mended: str = ""
    threads: int = 1
    file: str = "programs.py"
    only_user: bool = False
