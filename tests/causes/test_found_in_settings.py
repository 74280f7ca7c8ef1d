"""Each cause that is found by ops, modes or compilations, on made-up facts: there, and not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fixes.facts import facts, op
from gobrrr.causes.code.recompilation import guard_of
from gobrrr.causes.naming import causes_of
from gobrrr.diagnosis.facts import IdleFact, LoaderFact, OptimizerFact
from gobrrr.observe.program_facts import (
    CompilationFact,
    NoteFact,
    ProgramFacts,
    SubnormalFact,
)
from gobrrr.timeline.ops import TensorSpec

LINE = "train.py:7 in <module>"
BY_TORCH = OptimizerFact("Adam", 80, 10_000, foreach=False)
TRAINS = {"trains": True}
WEIGHT, CAST = TensorSpec((64, 64), "float32", None, 5), TensorSpec((64, 64), "bfloat16", None, 6)


def program(**more):
    settings = {"plain_s": 10.0, "windows": 100, "notes_taken": 100, "seen_s": 10.0}
    return ProgramFacts(**(settings | more))


def product(dtype, kernel_s):
    return op("aten::mm", [(64, 64)], dtype=dtype, matrix_flops=10e9, kernel_s=kernel_s,
              source=LINE, phase="forward")  # fmt: skip


def walk(name="aten::mul_", tensors=40, phase="other", storage=None, dtype="float32", **more):
    return [
        op(name, [(16,)], reads=[(storage or i, 64)], dtype=dtype, host_s=5e-3, source=LINE,
           phase=phase, **more)
        for i in range(1, tensors + 1)
    ]  # fmt: skip


def cast():
    found = op("aten::_to_copy", kernel_s=0.2, host_s=0.1, source=LINE)
    return replace(found, call=replace(found.call, args=(WEIGHT,), outputs=(CAST,)))


def passes(number, kernel_s):
    forward = op("aten::mm", host_s=0.02, kernel_s=kernel_s, source=LINE, phase="forward")
    backward = op("aten::mm", host_s=0.02, kernel_s=kernel_s, source=LINE, phase="backward")
    adds = op("aten::add_", source=LINE, phase="backward")
    return [forward, backward, adds] * number


def compiled(*reasons, failed="", function="forward", every_s=1.0):
    found = [
        CompilationFact(function, LINE, each, 1.0, frame="0", began_s=1e9 + number * every_s)
        for number, each in enumerate(("", *reasons))
    ]
    found[-1] = replace(found[-1], failed=failed)
    return tuple(found)


def mismatch(other):
    return f"0/0: tensor 'x' size mismatch at index 0. expected 16, actual {other}"


def subnormal(share):
    return program(subnormal=(SubnormalFact("aten::mul_", LINE, share, "float32"),))


def decaying(kernel_s, roof_s):
    return [op("aten::mul_", [(1000, 1000)], vector_flops=100e6, kernel_s=kernel_s, roof_s=roof_s,
               below_s=kernel_s - roof_s, source=LINE)]  # fmt: skip


LAST = {"loaders": (LoaderFact(0, False, 16, length=16 * 24 + 1),)}
DROPPED = {"loaders": (LoaderFact(0, False, 16, length=16 * 24 + 1, drops_last=True),)}
GUARDS = [f"0/{i}: len(self.seen) == {i}    # if self.seen:" for i in range(8)]
CHECKS = [op("aten::isnan", host_s=0.1, source=LINE, phase="backward", nodes=0)]
HOST = {"overhead.python": 0.5, "overhead.dispatch": 0.3}
MANY = [op("aten::mm", count=20_000, source=LINE)]
FILLED = [op("aten::empty", writes=[(3, 2e9)], reads=[(4, 8)], host_s=0.3, source=LINE)]
FAULTS = [op("aten::mul", kernel_s=0.5, page_faults_s=0.3, source=LINE)]
CONV = [op("aten::convolution", kernel_s=0.5, varies=True, source=LINE)]
GPU = {"device_kind": "cuda"}
EMPTYING = NoteFact(LINE, "torch.cuda.memory.empty_cache", "torch.cuda.memory", "", 20, 0.2)

PRESENT = {
    "subnormal_numbers": {"ops": decaying(0.5, 0.02), "program": subnormal(0.5)},
    "slow_half_precision": {"ops": [product("float16", 0.8)], "instruction_sets": ()},
    "repeated_casts": {"ops": [cast()], "weight_storages": frozenset({5})},
    "per_tensor_loop": {"ops": walk(), **TRAINS},
    "optimizer_without_foreach": {
        "ops": walk("aten::add_", 100, "optimizer"), "optimizers": (BY_TORCH,), **TRAINS
    },
    "small_micro_batches": {"ops": passes(16, 1e-3), **TRAINS},
    "recompilation_limit": {
        "program": program(
            compilations=compiled(*GUARDS, failed="Dynamo recompile limit exceeded"),
            recompile_limit=8,
        )
    },
    "ragged_last_batch": {"program": program(compilations=compiled(mismatch(1))), **LAST},
    "recompilations": {
        "program": program(compilations=compiled(*GUARDS[:4], every_s=2.0), recompile_limit=8)
    },
    "detect_anomaly": {
        "ops": CHECKS, "leaves": HOST, "program": program(modes={"anomaly": 1.0}), **TRAINS
    },
    "profiler_left_on": {
        "ops": MANY, "leaves": HOST, "program": program(modes={"autograd_profiler": 0.99})
    },
    "deterministic_mode": {"ops": FILLED, "program": program(modes={"deterministic": 1.0})},
    "empty_cache": {"program": program(notes=(EMPTYING,)), "leaves": HOST, **GPU},
    "allocator_retries": {
        "counters": {"allocator_retries": 2.0, "driver_allocations": 5.0},
        "leaves": {"overhead.allocation": 0.4}, **GPU,
        "idle": (IdleFact("allocation", 0.4, LINE, "cudaMalloc"),),
    },
    "cudnn_benchmark": {
        "ops": CONV, "slow_s": (5.0, 6.0), **GPU,
        "program": program(flags={"cudnn_benchmark": True}),
    },
    "heap_trim": {
        "ops": FAULTS, "leaves": {"memory.page_faults": 0.3}, "environment": {}
    },
}  # fmt: skip
# What stands beside a cause without being it; several by a number.
ABSENT = {
    "subnormal_numbers": {"ops": decaying(0.5, 0.02), "program": subnormal(1e-4)},
    "subnormal_numbers, flushed": {
        "ops": decaying(0.5, 0.02),
        "program": replace(subnormal(0.5), flags={"flushes_subnormals": True}),
    },
    "subnormal_numbers, at the roof": {"ops": decaying(0.5, 0.4), "program": subnormal(0.5)},
    "slow_half_precision": {"ops": [product("float16", 0.15)], "instruction_sets": ()},
    "slow_half_precision, in float32": {
        "ops": [product("float32", 0.8)], "instruction_sets": ()
    },
    "slow_half_precision, of an unknown processor": {"ops": [product("float16", 0.8)]},
    # Units of its own, and a shape that reaches little of them.
    "slow_half_precision, units": {
        "ops": [product("bfloat16", 0.3)], "instruction_sets": ("avx512_bf16",)
    },
    # A step that trains casts what it has changed, once.
    "repeated_casts": {"ops": [cast()], "weight_storages": frozenset({5}), **TRAINS},
    # An autocast region around the forward pass of each micro-batch.
    "repeated_casts, accumulation": {
        "ops": [cast(), *passes(1, 0.01), cast(), *passes(1, 0.01)],
        "weight_storages": frozenset({5}), **TRAINS,
    },
    "repeated_casts, of an activation": {"ops": [cast()], "weight_storages": frozenset({9})},
    "per_tensor_loop, of few": {"ops": walk(tensors=8), **TRAINS},
    "per_tensor_loop, one tensor": {"ops": walk(storage=3), **TRAINS},
    "per_tensor_loop, counters": {"ops": walk(dtype="int64"), **TRAINS},
    "per_tensor_loop, in a model": {"ops": walk(module="Net.norm"), **TRAINS},
    "optimizer_without_foreach": {
        "ops": walk("aten::add_", 100, "optimizer"),
        "optimizers": (replace(BY_TORCH, foreach=None, fused=True),), **TRAINS,
    },
    "small_micro_batches, large": {"ops": passes(16, 0.5), **TRAINS},
    "small_micro_batches, of two": {"ops": passes(2, 1e-3), **TRAINS},
    # Each with an update of its own.
    "small_micro_batches, updates": {
        "ops": [*passes(1, 1e-3), op("aten::add_", phase="optimizer")] * 16, **TRAINS
    },
    "ragged_last_batch, dropped": {
        "program": program(compilations=compiled(mismatch(1))), **DROPPED
    },
    "ragged_last_batch, any size": {
        "program": program(compilations=compiled(mismatch(7))), **LAST
    },
    "recompilations": {"program": program(compilations=compiled(*GUARDS[:2]), recompile_limit=8)},
    # Evaluation, gradients, types: all while it warms up.
    "recompilations, to begin with": {
        "program": program(compilations=compiled(*GUARDS[:4]), recompile_limit=8)
    },
    # Of loaders none has batches of that size.
    "ragged_last_batch, of an evaluation": {
        "ops": [op("aten::mm", [(16, 64)])], "program": program(compilations=compiled(mismatch(4))),
        "loaders": (LoaderFact(0, False, 32, length=320),),
    },
    # A profile of a few steps; a mode for one of them.
    "modes": {
        "ops": [*CHECKS, *FILLED], "leaves": HOST,
        "program": program(modes={"anomaly": 0.3, "autograd_profiler": 0.3, "deterministic": 0.3}),
    },
    # Deterministic, and nothing that it costs.
    "deterministic_mode": {
        "ops": [product("float32", 0.8)], "program": program(modes={"deterministic": 1.0})
    },
    "deterministic_mode, memory as it is": {
        "ops": FILLED,
        "program": program(
            modes={"deterministic": 1.0}, flags={"fill_uninitialized_memory": False}
        ),
    },
    "empty_cache": {"program": program(notes=(EMPTYING,))},
    # The host waits for a device that is busy.
    "empty_cache, busy": {
        "program": program(notes=(EMPTYING,)), "leaves": {"overhead.launch": 0.02}, **GPU
    },
    # A cache that grows once.
    "allocator_retries": {
        "counters": {"driver_allocations": 0.1}, "leaves": {"overhead.allocation": 0.4}, **GPU
    },
    "allocator_retries, none": {"leaves": {"overhead.allocation": 0.4}, **GPU},
    "cudnn_benchmark": {
        "ops": [replace(CONV[0], varies=False)], "slow_s": (5.0, 6.0), **GPU,
        "program": program(flags={"cudnn_benchmark": True}),
    },
    "heap_trim": {
        "ops": FAULTS, "leaves": {"memory.page_faults": 0.05}, "environment": {}
    },
    "heap_trim, of an unknown environment": {
        "ops": FAULTS, "leaves": {"memory.page_faults": 0.3}
    },
    "heap_trim, kept": {
        "ops": FAULTS, "leaves": {"memory.page_faults": 0.3},
        "environment": {"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=4294967296"},
    },
}  # fmt: skip


@pytest.fixture(autouse=True)
def glibc(monkeypatch):
    monkeypatch.setattr("platform.libc_ver", lambda: ("glibc", "2.36"))


@pytest.mark.parametrize("name", PRESENT)
def test_it_is_told_with_a_bound(name):
    (finding,) = causes_of(facts(**PRESENT[name]))
    assert finding.fix == name
    assert finding.words and finding.remedy and finding.because.endswith(".")
    if name != "profiler_left_on":
        assert finding.sources == [LINE]
    saved = finding.of_wall or finding.prediction
    if name == "cudnn_benchmark":
        assert saved is None
        return
    low, high = (saved.low, saved.high) if finding.of_wall else (saved.low_s, saved.high_s)
    assert 0 <= low <= high <= 1.0
    assert 0 < finding.cause_share <= 1.0


@pytest.mark.parametrize("name", ABSENT)
def test_it_is_not_told_where_it_is_not(name):
    assert [finding.fix for finding in causes_of(facts(**ABSENT[name]))] == []


def test_a_saving_is_within_what_the_evidence_holds():
    """Of what subnormal numbers may cost no more than ops take beyond their roof."""
    (finding,) = causes_of(facts(**PRESENT["subnormal_numbers"]))
    assert finding.prediction.high_s == pytest.approx(0.48)
    (finding,) = causes_of(facts(**PRESENT["heap_trim"]))
    assert finding.prediction.high_s == pytest.approx(0.3)
    # What glibc's heap holds may cost more when it is kept.
    assert finding.prediction.low_s == 0.0
    (finding,) = causes_of(facts(**PRESENT["slow_half_precision"]))
    assert finding.prediction.high_s == pytest.approx(0.8 - 10e9 / 100e9)


def test_settings_of_glibc_are_told_to_programs_of_glibc(monkeypatch):
    monkeypatch.setattr("platform.libc_ver", lambda: ("", ""))
    assert causes_of(facts(**PRESENT["heap_trim"])) == []


@pytest.mark.parametrize("name", ["ragged_last_batch", "recompilation_limit"])
def test_what_is_compiled_once_saves_nothing_of_a_long_run(name):
    (finding,) = causes_of(facts(**PRESENT[name]))
    assert finding.of_wall.expected == 0.0
    assert finding.of_wall.high == finding.cause_share > 0.0
    both = {**PRESENT[name], "leaves": {"memory.page_faults": 0.15}, "environment": {}}
    told = [finding.fix for finding in causes_of(facts(FAULTS, **both))]
    large = finding.cause_share > 0.15
    assert told == ([name, "heap_trim"] if large else ["heap_trim", name])


def test_what_a_loop_over_tensors_makes_on_the_way_is_saved_with_it():
    made = walk("aten::mul")
    alone, both = (
        causes_of(facts(ops, **TRAINS))[0].prediction for ops in (walk(), [*made, *walk()])
    )
    assert both.high_s == pytest.approx(2 * alone.high_s)


def test_what_follows_the_last_backward_pass_is_no_micro_batch():
    added = op("aten::add_", host_s=1e-3, source=LINE, phase="forward")
    (finding,) = causes_of(facts([*passes(16, 1e-3), added], **TRAINS))
    assert finding.fix == "small_micro_batches" and finding.because.startswith("16 micro-batches")


def test_gradients_that_are_asked_for_one_by_one_are_no_micro_batches():
    """Of a penalty, with ``torch.autograd.grad``: the last pass alone adds to gradients."""
    asked = [each for each in passes(16, 1e-3) if each.name != "aten::add_"]
    assert causes_of(facts([*asked, *passes(1, 1e-3)], **TRAINS)) == []


def test_batches_without_a_loader_are_called_no_epoch():
    ops = [op("aten::mm", [(16, 64)])]
    (finding,) = causes_of(facts(ops, program=program(compilations=compiled(mismatch(4)))))
    assert finding.fix == "ragged_last_batch"
    assert "epoch" not in finding.because


def test_a_limit_is_told_with_function_and_guard():
    (finding,) = causes_of(facts(**PRESENT["recompilation_limit"]))
    assert f"forward ({LINE})" in finding.because
    assert "len(self.seen) == 7" in finding.because


@pytest.mark.parametrize(
    ("reason", "guard"),
    [
        (mismatch(1), "tensor 'x' size mismatch at index 0. expected 16, actual 1"),
        ("1/0: not s.a      # if len(s.a)==0:  # mp/x.py:10 in step\nUser stack", "not s.a"),
        ("", ""),
    ],
)
def test_a_guard_in_one_line(reason, guard):
    assert guard_of(reason) == guard


def test_an_allocator_without_room_is_told_what_it_did_and_what_helps():
    (found,) = causes_of(facts(**PRESENT["allocator_retries"]))
    assert "no room 2 times in a step" in found.because and "5 calls" in found.because
    assert "expandable_segments:True" in found.remedy and "out=" not in found.remedy
    assert found.prediction.high_s == pytest.approx(0.4)
    # Seen in timed steps and in none that was profiled: told, without a number.
    seen = PRESENT["allocator_retries"] | {"leaves": {}}
    (found,) = causes_of(facts(**seen))
    assert found.prediction is None
    own = program(environment={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"})
    (found,) = causes_of(facts(**PRESENT["allocator_retries"], program=own))
    assert "is set already" in found.because


def test_memory_that_empty_cache_hands_back_is_empty_caches():
    both = PRESENT["empty_cache"] | {"counters": {"driver_allocations": 9.0}}
    assert [found.fix for found in causes_of(facts(**both))] == ["empty_cache"]
