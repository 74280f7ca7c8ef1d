"""Hooks of ours are in no copy and in no file of the module that has them."""

from __future__ import annotations

import contextlib
import copy
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from gobrrr.observe.module_hooks import watch_module  # noqa: E402

STATE = torch.nn.Module.__getstate__


class SaysWhatToSave(torch.nn.Linear):  # type: ignore[misc]
    """Saves all that it holds, hooks too."""

    def __getstate__(self) -> dict[str, Any]:
        return copy.copy(self.__dict__)


def double(module: Any, args: Any, result: Any) -> Any:
    """A hook of the user's."""
    return 2 * result


def test_what_is_saved_and_copied_is_as_without_us() -> None:
    net, x = torch.nn.Linear(4, 4), torch.randn(2, 4)
    net.register_forward_hook(double)
    plain, expected = pickle.dumps(net), net(x)
    seen: list[str] = []
    undo = watch_module(net, lambda *_: seen.append("before"), lambda *_: seen.append("after"))
    assert pickle.dumps(net) == plain
    for twin in (copy.deepcopy(net), copy.copy(net), pickle.loads(pickle.dumps(net))):
        assert torch.equal(twin(x), expected)
    assert not seen
    assert torch.equal(net(x), expected) and seen == ["before", "after"]
    undo()
    undo()
    net(x)
    assert len(seen) == 2
    assert torch.nn.Module.__getstate__ is STATE


def test_a_file_loads_where_there_is_no_gobrrr(tmp_path: Path) -> None:
    net = torch.nn.utils.skip_init(SaysWhatToSave, 4, 4)
    undo = watch_module(net, lambda *_: None, lambda *_: None)
    try:
        saved = pickle.dumps(net)
    finally:
        undo()
    assert b"gobrrr" not in saved
    (tmp_path / "net").write_bytes(saved)
    # Its package too, which is not on the path where pytest alone is started.
    names = [__name__, __name__.partition(".")[0]]
    load = (
        "import pickle, sys, torch; sys.modules['gobrrr'] = None\n"
        "class SaysWhatToSave(torch.nn.Linear): pass\n"
        f"sys.modules.update(dict.fromkeys({names}, sys.modules['__main__']))\n"
        "net = pickle.load(open('net', 'rb')); print(net(torch.ones(1, 4)).shape)"
    )
    done = subprocess.run(
        [sys.executable, "-c", load], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == "torch.Size([1, 4])", done.stderr


def test_after_a_call_that_raises_it_is_told_too() -> None:
    seen: list[str] = []
    undo = watch_module(net := torch.nn.Linear(4, 4), after=lambda *_: seen.append("after"))
    with contextlib.suppress(RuntimeError):
        net(torch.ones(2, 3))
    undo()
    assert seen == ["after"]


def test_what_comes_and_goes_in_a_call_that_raises_changes_no_table_that_torch_reads() -> None:
    net, x, seen = torch.nn.Linear(4, 4), torch.ones(2, 4), []

    def first(*_: Any) -> None:
        undo()
        later.append(watch_module(net, lambda *_: None, lambda *_: seen.append("later")))

    later: list[Any] = []
    undo = watch_module(net, after=first)
    with pytest.raises(RuntimeError, match="shapes"):
        net(torch.ones(2, 3))
    net(x)
    assert seen == ["later"]
    undo = later.pop()
    last = watch_module(net, after=lambda *_: (undo(), last()))
    with pytest.raises(RuntimeError, match="shapes"):
        net(torch.ones(2, 3))
    assert len(net._forward_hooks) == 1 and b"gobrrr" not in pickle.dumps(net)
    net(x)
    assert not net._forward_hooks and torch.nn.Module.__getstate__ is STATE


def test_torchscript_compiles_the_hooks_of_others_alone() -> None:
    net, x, seen = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()), torch.ones(2, 4), []
    plain = torch.jit.script(net)
    undo = watch_module(net[0], lambda *_: seen.append("before"), lambda *_: seen.append("after"))
    scripted = torch.jit.script(net)
    assert torch.equal(scripted(x), plain(x)) and not seen
    assert torch.equal(net(x), plain(x)) and seen == ["before", "after"]
    net[0].register_forward_hook(double)
    with pytest.raises(Exception, match="double"):
        # Without types torch takes none.
        torch.jit.script(net)
    net(x)
    assert len(seen) == 4
    create = torch.jit._recursive.create_script_module
    undo()
    assert torch.jit._recursive.create_script_module is not create


def test_a_module_of_torchscript_leaves_nothing() -> None:
    with pytest.raises(RuntimeError, match="not supported"):
        watch_module(torch.jit.script(torch.nn.Linear(4, 4)), after=lambda *_: None)
    assert torch.nn.Module.__getstate__ is STATE


def test_a_hook_leaves_a_module_without_a_result() -> None:
    class Trainer(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> None:
            undo()

    trainer = Trainer()
    undo = watch_module(trainer, after=lambda *_: None)
    trainer(torch.ones(2))
    assert not trainer._forward_hooks


def test_a_programs_hook_that_raises_is_what_the_program_sees() -> None:
    class StopEarlyError(Exception):
        pass

    def raises(*_: Any) -> None:
        raise StopEarlyError

    net = torch.nn.Linear(2, 2)
    net.register_forward_hook(raises)
    undo = watch_module(net, after=lambda *_: undo())
    net.register_forward_hook(lambda *_: None)
    with pytest.raises(StopEarlyError):
        net(torch.ones(1, 2))
