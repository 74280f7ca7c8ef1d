"""What is said of a step on a processor beside its times."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from gobrrr.attribution.cpu import OtherKernel
from gobrrr.attribution.cpu_attributed import _notices
from gobrrr.devices.ceilings import Ceilings


def notices(recorded: tuple[object, ...], others: tuple[object, ...], matched: float) -> list[str]:
    analysis = SimpleNamespace(
        capture=SimpleNamespace(
            recorded=recorded,
            matched_fraction=matched,
            timeline=SimpleNamespace(host=SimpleNamespace(kind=np.empty(0, np.uint8))),
        ),
        result=SimpleNamespace(other_kernels=others),
        fixed=SimpleNamespace(estimated=0),
    )
    measured = SimpleNamespace(notices=[], load_notices=[])
    return _notices(cast("Any", measured), cast("Any", analysis), Ceilings("a processor", {}, ()))


def test_a_step_without_ops_is_said_to_have_none() -> None:
    assert notices((), (), 0.0) == ["The step ran no PyTorch op."]


def test_ops_that_other_steps_ran_are_not_forgotten() -> None:
    (said,) = notices((), (OtherKernel("aten::mm", 1.0, None, None),), 0.0)
    assert said.startswith("Only 0 % of the profiled ops match the recorded step")


@pytest.mark.parametrize(("matched", "said"), [(1.0, 0), (0.5, 1)])
def test_a_step_whose_ops_were_found_is_not_doubted(matched: float, said: int) -> None:
    assert len(notices((object(),), (), matched)) == said
