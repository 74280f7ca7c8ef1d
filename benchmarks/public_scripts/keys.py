"""What is true of each script, as ``keys.toml`` says it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tomllib

HERE = Path(__file__).resolve().parent
KEYS = HERE / "keys.toml"
OPTIMIZER, CALL, EXPLICIT = "optimizer", "call", "explicit"


@dataclass(frozen=True)
class Key:
    """One script.

    Attributes:
        name: of its file in ``scripts/``.
        project: the public repository in whose style it is, with the path of the file there, and
            the commit that was looked at, where that is known.
        step: what ends a step: the optimizer, a call of the model, or a mark by hand.
        optimizer_steps: steps of optimizers in one step that is to be told; 0: it has none.
        marks: marks of the own clock in one step that is to be told.
        micro_batches: forward and backward passes in one step of the optimizer.
        varying: lengths differ by more than noise, so that means are compared.
        needs: packages.
    """

    name: str
    project: str
    path: str
    step: str
    optimizer_steps: int
    marks: int
    micro_batches: int
    varying: bool
    needs: tuple[str, ...]
    commit: str = ""
    note: str = ""

    @property
    def script(self) -> Path:
        return HERE / "scripts" / f"{self.name}.py"


def read_keys(path: Path = KEYS) -> dict[str, Key]:
    """All scripts by name, in order."""
    found = tomllib.loads(path.read_text())
    return {
        name: Key(name=name, **{**row, "needs": tuple(row["needs"])}) for name, row in found.items()
    }
