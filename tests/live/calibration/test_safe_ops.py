"""No operator may kill the process of a user whose step is calibrated."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

HERE = Path(__file__).parent


def run_checked(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A process whose heap is checked, and filled with rubbish, where the system can do it."""
    checks = {"MALLOC_CHECK_": "3", "MALLOC_PERTURB_": "165", "OMP_NUM_THREADS": "1"}
    if Path("/lib/x86_64-linux-gnu/libc_malloc_debug.so.0").exists():
        checks["LD_PRELOAD"] = "libc_malloc_debug.so.0"
    return subprocess.run(
        [sys.executable, *arguments], env={**os.environ, **checks},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


def test_every_operator_of_the_list_runs_on_one_element() -> None:
    from gobrrr.live.calibration.safe_ops import SAFE_OPS

    done = run_checked(str(HERE / "safe_ops_proof.py"))
    assert done.returncode == 0, done.stderr[-500:]
    found = json.loads(done.stdout)
    assert found["raised"] == []
    here = {f"aten::{name}" for name in SAFE_OPS if hasattr(torch.ops.aten, name)}
    assert here - set(found["proved"]) == set()


CALIBRATE = """
import os, torch, warnings
import numpy as np
from gobrrr.live.calibration.fixed_cost import calibrate_fixed_costs
from gobrrr.observe.op_recorder import OpRecorder
from gobrrr.live.profiles.profile import ProfilerCost

warnings.simplefilter("ignore")

def calibrate(step):
    step()
    recorder = OpRecorder()
    with recorder:
        step()
    wanted = np.ones(len(recorder.ops), bool)
    return recorder.ops, calibrate_fixed_costs(recorder.ops, wanted, ProfilerCost(100.0, 100.0))
"""


def calibrated(tmp_path: Path, program: str) -> Any:
    script = tmp_path / "program.py"
    script.write_text(CALIBRATE + program)
    done = run_checked(str(script))
    assert done.returncode == 0, done.stderr[-800:]
    return json.loads(done.stdout)


def test_a_custom_operator_is_never_called_with_other_sizes(tmp_path: Path) -> None:
    found = calibrated(tmp_path, '''
import json
@torch.library.custom_op("mine::fragile", mutates_args=())
def fragile(x: torch.Tensor, heads: int) -> torch.Tensor:
    if tuple(x.shape) != (6, 8):
        os.abort()
    return x * heads
x = torch.randn(6, 8)
ops, fixed = calibrate(lambda: fragile(x + 1, 4) + 1)
place = [op.call.name for op in ops].index("mine::fragile")
print(json.dumps([fixed.time_ns[place], fixed.estimated, fixed.stand_ins]))
''')  # fmt: skip
    time_ns, estimated, stand_ins = found
    assert time_ns > 0
    assert estimated == 1
    assert stand_ins == {"mine::fragile": "aten::add"}


def test_nor_is_one_of_pytorch_that_is_not_on_the_list(tmp_path: Path) -> None:
    # Kernels that abort unless they get what the program gave; ``erf`` is on the list, but not
    # with a kernel of the program's own.
    found = calibrated(tmp_path, '''
import json
library = torch.library.Library("aten", "IMPL")
def only(name, shape, result):
    def kernel(x, *rest):
        if tuple(x.shape) != shape:
            os.abort()
        return torch.empty(result)
    library.impl(name, kernel, "CPU")
only("glu", (4, 6), (4, 3))
only("im2col", (1, 3, 6, 6), (1, 27, 16))
only("pixel_shuffle", (1, 4, 3, 3), (1, 1, 6, 6))
only("_pdist_forward", (5, 3), (10,))
only("erf", (4, 6), (4, 6))
x, image = torch.randn(4, 6), torch.randn(1, 3, 6, 6)
def step():
    with torch.no_grad():
        torch.nn.functional.glu(x), torch.nn.functional.unfold(image, 3), torch.erf(x)
        torch.pixel_shuffle(torch.randn(1, 4, 3, 3), 2), torch.pdist(torch.randn(5, 3))
ops, fixed = calibrate(step)
print(json.dumps([sorted(op.call.name for op in ops), fixed.stand_ins, list(fixed.time_ns)]))
''')  # fmt: skip
    recorded, stand_ins, times = found
    fragile = {"aten::glu", "aten::im2col", "aten::pixel_shuffle", "aten::_pdist_forward",
               "aten::erf"}  # fmt: skip
    assert fragile <= set(recorded)
    assert set(stand_ins) == fragile
    assert all(time > 0 for time in times)


def test_the_programs_modes_and_generators_see_nothing_of_it(tmp_path: Path) -> None:
    found = calibrated(tmp_path, '''
import json
from torch.utils._python_dispatch import TorchDispatchMode
from torch.overrides import TorchFunctionMode
seen = []
class Dispatch(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        seen.append(str(func))
        return func(*args, **(kwargs or {}))
class Function(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        seen.append(str(func))
        return func(*args, **(kwargs or {}))
x = torch.randn(8, 8, requires_grad=True)
step = lambda: torch.nn.functional.dropout(x @ x).sum().backward()
recorder = OpRecorder()
with recorder:
    step()
state = torch.get_rng_state()
packed = []
with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(1) or t, lambda t: t):
    with Dispatch(), Function(), torch.autocast("cpu", dtype=torch.bfloat16):
        del seen[:]
        wanted = np.ones(len(recorder.ops), bool)
        calibrate_fixed_costs(recorder.ops, wanted, ProfilerCost(100.0, 100.0))
        calls = list(seen)
print(json.dumps([calls, packed, torch.equal(state, torch.get_rng_state())]))
''')  # fmt: skip
    seen, packed, same = found
    assert seen == []
    assert packed == []
    assert same


def test_recurrent_layers_survive(tmp_path: Path) -> None:
    found = calibrated(tmp_path, '''
import itertools, json
stand_ins = {}
for kind, layers, first, trains in itertools.product(
    ("LSTM", "GRU", "RNN"), (1, 2), (True, False), (True, False)
):
    model = getattr(torch.nn, kind)(24, 40, layers, batch_first=first)
    x = torch.randn(3, 5, 24)
    def step():
        with torch.set_grad_enabled(trains):
            out = model(x)[0].sum()
            if trains:
                out.backward()
    ops, fixed = calibrate(step)
    assert np.isfinite(fixed.time_ns).all() and (fixed.time_ns >= 0).all()
    stand_ins |= fixed.stand_ins
print(json.dumps(stand_ins))
''')  # fmt: skip
    assert found.get("aten::mkldnn_rnn_layer") == "aten::addmm" or not found
