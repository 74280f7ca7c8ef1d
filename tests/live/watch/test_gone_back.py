"""Whether backward passes go through what modules in eval mode gave."""

from __future__ import annotations

import threading
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


class Odd:
    """A result that says nothing of itself."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


class Net(torch.nn.Module):
    def __init__(self, wrap: Any = lambda y: y) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.wrap = wrap

    def forward(self, x: Any) -> Any:
        return self.wrap(self.linear(x))


def known(net: Any, uses: Any) -> list[bool | None]:
    """What is known after a call that is discovered and one that is hooked."""
    from gobrrr.live.watch.call_watch import CallWatch

    watch = CallWatch()
    watch.take(threading.get_ident())
    found = []
    undo = watch.discover()
    try:
        uses(net)
        found.append(watch.program.gone_back.through(watch.take(threading.get_ident())[0][0].key))
        watch.settle()
        undo()
        uses(net)
        found.append(watch.program.gone_back.through(watch.take(threading.get_ident())[0][0].key))
    finally:
        undo()
        watch.remove()
    return found


def attacks(net: Any) -> None:
    x = torch.randn(2, 4, requires_grad=True)
    given = net(x)
    loss = given["loss"][0] if isinstance(given, dict) else given
    torch.autograd.grad(loss.sum(), x)


def evaluates(net: Any) -> None:
    net(torch.randn(2, 4))


@pytest.mark.parametrize("wrap", [lambda y: y, lambda y: {"loss": [y], "step": 3}])
def test_a_backward_pass_through_a_result_is_seen(wrap: Any) -> None:
    assert known(Net(wrap).eval(), attacks) == [True, True]


def test_an_evaluation_goes_back_nowhere() -> None:
    net = Net().eval()
    assert known(net, evaluates) == [False, False]
    assert known(net.train(), evaluates) == [None, None]


def test_without_gradients_nothing_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    from gobrrr.live.watch import gone_back

    looked: list[Any] = []
    monkeypatch.setattr(gone_back, "_nodes_of", lambda result: looked.append(result) or [])

    def quiet(net: Any) -> None:
        with torch.no_grad():
            evaluates(net)

    assert known(Net().eval(), quiet) == [None, None]
    assert looked == []
    assert known(Net().eval(), evaluates) == [None, None]
    assert len(looked) == 1


@pytest.mark.parametrize("made", [Odd, int, str, lambda: [1, None]])
def test_what_cannot_be_told_is_unknown_and_raises_nothing(made: Any) -> None:
    assert known(Net(lambda y: made()).eval(), evaluates) == [None, None]


def test_a_call_that_raises_is_the_user_s() -> None:
    def fails(net: Any) -> None:
        with pytest.raises(ZeroDivisionError):
            evaluates(net)

    assert known(Net(lambda y: 1 / 0).eval(), fails)[0] is None
