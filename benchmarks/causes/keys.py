"""What the benchmark knows of a program: what makes it slow, where, and what an answer says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import tomllib

HERE = Path(__file__).resolve().parent
KEYS = HERE / "keys.toml"


@dataclass(frozen=True)
class Key:
    """One program, as ``keys.toml`` describes it.

    Attributes:
        name: the folder in ``programs/``.
        cause: identifier of the flaw; ``aliases`` are other names of the same.
        lines: of program.py, any of which may be named; ``holds`` is what stands on them.
        words: any of which has to stand in the answer; ``remedy`` likewise.
        wrong: what an answer must not advise or claim.
        fix: the fix of ``gobrrr fix`` that applies the remedy; empty if only sound.py confirms it.
        ranks: processes.
        env: variables of the process.
        needs: packages that are not gobrrr's own needs.
        condition: what of the machine it takes, in words.
        without: flags of the processor none of which may be there.
    """

    name: str
    cause: str
    aliases: tuple[str, ...]
    lines: tuple[int, ...]
    holds: tuple[str, ...]
    words: tuple[str, ...]
    remedy: tuple[str, ...]
    wrong: tuple[str, ...]
    fix: str
    ranks: int
    env: Mapping[str, str]
    needs: tuple[str, ...] = ()
    condition: str = ""
    without: tuple[str, ...] = field(default=())
    note: str = ""

    @property
    def names(self) -> frozenset[str]:
        """The cause and its aliases."""
        return frozenset((self.cause, *self.aliases))

    def script(self, which: str) -> Path:
        """Of ``program`` or ``sound``."""
        return HERE / "programs" / self.name / f"{which}.py"


def read_keys(path: Path = KEYS) -> dict[str, Key]:
    """All programs by name, in order."""
    found = tomllib.loads(path.read_text())
    return {name: _key(name, row) for name, row in found.items() if name != "not_run"}


def not_run(path: Path = KEYS) -> list[dict[str, str]]:
    """Causes that cannot be shown on a processor: ``name``, ``cause`` and ``why``."""
    rows: list[dict[str, str]] = tomllib.loads(path.read_text()).get("not_run", [])
    return rows


def _key(name: str, row: Mapping[str, object]) -> Key:
    return Key(name=name, **{k: tuple(v) if isinstance(v, list) else v for k, v in row.items()})  # type: ignore[arg-type]
