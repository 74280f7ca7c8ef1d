"""Every cause, in the order in which causes of equal weight are told."""

from __future__ import annotations

from gobrrr.causes.cause import Cause
from gobrrr.causes.started_workers import STARTED_WORKERS

CAUSES: tuple[Cause, ...] = (STARTED_WORKERS,)
