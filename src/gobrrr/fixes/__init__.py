"""Changes that make a step faster: one file each, all of them listed in ``FIXES``."""

from __future__ import annotations

from gobrrr.fixes.facts import Facts
from gobrrr.fixes.fix import Fix, Prospect, RuledOut

FIXES: tuple[Fix, ...] = ()

__all__ = ["FIXES", "Facts", "Fix", "Prospect", "RuledOut"]
