"""The experiment on arithmetic intensity."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from gobrrr.devices.ceilings import Ceilings
from gobrrr.lab import intensity
from gobrrr.lab.experiment import SkipExperimentError


def test_too_few_compiled_chains_on_a_gpu_are_told_in_a_sentence() -> None:
    setting = cast(Any, SimpleNamespace(ceilings=lambda: Ceilings("a GPU", {}, ())))
    with pytest.raises(SkipExperimentError, match="within the time budget"):
        intensity._findings(setting, 1 << 20, {}, [])
