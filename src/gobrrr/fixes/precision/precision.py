"""Lower precision: weights in 16 bits, TF32 and bf16 inside float32 matmuls, fp8."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from gobrrr.diagnosis.facts import Facts, OpFact
from gobrrr.diagnosis.fusion.groups import seconds_to_move
from gobrrr.fixes.changes import changed, changes_of
from gobrrr.fixes.compilation.compiled_calls import host_scale
from gobrrr.fixes.edits import AfterImports, BeforeLoop, in_16_bits, on_inputs
from gobrrr.fixes.fix import (
    MEMORY,
    NUMERICS,
    PRECISION,
    WEIGHTS,
    Considered,
    Effect,
    Fix,
    RuledOut,
    prospect_or_not,
    too_little,
)
from gobrrr.fixes.programs import as_program, with_setting
from gobrrr.fixes.scripts import before_first_call
from gobrrr.timeline.nested import map_tensors
from gobrrr.timeline.quantities import multiple, time_text
from gobrrr.timeline.workload import Workload

MATRIX_LEAVES = ("compute.matrix.roof", "compute.matrix.below")
# What a call of oneDNN costs beside MKL's, which does float32: its primitive is looked up and its
# operands are described and packed. torch 2.13, one Zen 4 core, processor time of linear, mm and
# bmm of 4x48x48 to 16x48x48 in bf16 less that in float32: 9.7 to 15 us, where ``torch.add`` of one
# element took 1.16 us. Host work, scaled as that of compiled code.
_ONEDNN_CALL_S = 14e-6
# Smaller products stay with the other libraries (``mkldnn_gemm_min_size`` in
# aten/src/ATen/native/mkldnn/Matmul.cpp).
_LEAST_MULTIPLY_ADDS = 16**3
# Instruction sets with which oneDNN can compute products of float32 operands in bf16.
_FLOAT32_AS_BF16 = frozenset(("amx_bf16", "bf16"))


def matrix_ops(facts: Facts) -> list[OpFact]:
    """The step's float32 matrix products; no factorisations, which LAPACK does in float32 alone."""
    return [
        op for op in facts.ops
        if (op.matrix_flops or 0.0) > 0 and op.dtype == "float32" and op.op_class != "other"
    ]  # fmt: skip


def calls_in_16_bits_s(facts: Facts, ops: list[OpFact]) -> float:
    """Seconds per step that calling these products in 16 bits takes more, on a processor.

    Convolutions call oneDNN in float32 too.
    """
    if facts.on_gpu:
        return 0.0
    calls = sum(
        op.count for op in ops
        if "conv" not in op.name
        and (op.matrix_flops or 0.0) > 2.0 * _LEAST_MULTIPLY_ADDS * op.count
    )  # fmt: skip
    return calls * _ONEDNN_CALL_S * host_scale(facts)


def rates_of(facts: Facts, dtype: str) -> tuple[float, float] | RuledOut:
    """FLOP/s of float32 and of ``dtype`` on the matrix unit, or why nothing is won."""
    full, low = facts.rate("matrix.float32"), facts.rate(f"matrix.{dtype}")
    if full is None or low is None:
        return RuledOut(f"this machine's rate of {dtype} matrix products is unknown")
    if low < 1.2 * full:
        return RuledOut(
            f"{dtype} matrix products run at {multiple(low / full)} the rate of float32 on this "
            "machine"
        )
    return full, low


def faster_matrices_s(ops: list[OpFact], full: float, low: float) -> tuple[float, float]:
    """(kernel seconds now, at the lower precision): the roof shrinks, what is below it does half.

    What a matrix product misses its roof by is partly packing and edges, which move fewer bytes,
    partly threads, which do not get faster.
    """
    now_s = sum(op.kernel_s for op in ops)
    after_s = 0.0
    for op in ops:
        roof_s = min(op.roof_s if op.roof_s is not None else op.kernel_s, op.kernel_s)
        after_s += roof_s * full / low + (op.kernel_s - roof_s) * 0.6
    return now_s, after_s


def _consider_storage(facts: Facts) -> Considered:
    if facts.trains:
        return RuledOut("bf16 weights lose small updates in training: use autocast")
    if not facts.modules:
        return RuledOut("gobrrr sees no module to convert: give (module, inputs)")
    if "float32" not in facts.parameter_dtypes:
        return RuledOut("no parameter is stored in float32")
    full, low = facts.rate("matrix.float32"), facts.rate("matrix.bfloat16")
    if full is None or low is None:
        return RuledOut("this machine's rate of bfloat16 matrix products is unknown")
    ops = matrix_ops(facts)
    matrix_s = sum(op.kernel_s for op in ops)
    calls_s = calls_in_16_bits_s(facts, ops)
    matrix_after_s = calls_s + sum(_stored_in_16_bits_s(facts, op, low) for op in ops)
    # Everything else moves half the bytes; vector code converts on the way.
    others = [op for op in facts.ops if op.op_class in ("elementwise", "normalisation")]
    memory_s = sum((op.roof_s or 0.0) + op.page_faults_s for op in others)
    saved_s = matrix_s - matrix_after_s + 0.5 * memory_s
    return prospect_or_not(
        facts, saved_s - 0.5 * abs(matrix_s - matrix_after_s) - 0.5 * memory_s, saved_s,
        max(matrix_s - 0.8 * matrix_after_s, 0.0) + 0.6 * memory_s,
        f"matrix products take {time_text(matrix_s)} in float32 and about "
        f"{time_text(matrix_after_s)} in bf16, at {low / full:.2g}x the rate; "
        f"{time_text(memory_s)} of elementwise memory time moves half the bytes",
    )  # fmt: skip


def _stored_in_16_bits_s(facts: Facts, op: OpFact, rate: float) -> float:
    """Kernel seconds of a product whose operands are half as large, at this FLOP/s."""
    streamed_s = seconds_to_move(facts, 0.5 * (op.bytes_moved or 0.0)) or 0.0
    roof_s = max((op.matrix_flops or 0.0) / rate, streamed_s)
    return roof_s + 0.6 * (op.below_s or 0.0)


def _store_in_bf16(module: Any) -> None:
    """Its weights in bf16; inputs are converted on the way in, results on the way out.

    So it is called as before: by a script that goes on in float32, and by who takes the winner.
    """
    import torch

    def convert(tensor: Any) -> Any:
        return tensor.to(torch.bfloat16) if tensor.is_floating_point() else tensor

    def back(tensor: Any) -> Any:
        return tensor.float() if tensor.dtype == torch.bfloat16 else tensor

    changed("bf16_storage", sum(p.dtype == torch.float32 for p in module.parameters()))
    module.to(torch.bfloat16)
    module.register_forward_pre_hook(
        lambda _, args, kwargs: (map_tensors(args, convert), map_tensors(kwargs, convert)),
        with_kwargs=True,
    )
    module.register_forward_hook(lambda _, args, result: map_tensors(result, back))


@contextmanager
def _apply_storage(work: Workload) -> Iterator[Workload]:
    program = as_program(work)
    _store_in_bf16(program.model)
    yield program


# Precision of float32 matrix products: what torch.set_float32_matmul_precision calls it, the
# ceiling it reaches, and what the hardware then computes in.
_ON_GPU = ("high", "tf32", "TF32")
_ON_CPU = ("medium", "bfloat16", "bf16")


def _consider_matmul_precision(setting: tuple[str, str, str], facts: Facts) -> Considered:
    wanted_gpu = setting is _ON_GPU
    if facts.on_gpu != wanted_gpu:
        return RuledOut(f"it applies to {'GPUs' if wanted_gpu else 'CPUs'} only")
    known = facts.instruction_sets
    if not wanted_gpu and known and _FLOAT32_AS_BF16.isdisjoint(known):
        # ONEDNN_VERBOSE=1 on a Zen 4 core, which has avx512_bf16: ``brg_matmul:avx512_core,
        # src:f32, attr-fpmath:bf16``, and results as near as those in float32.
        return RuledOut(
            "oneDNN computes float32 products in bf16 only with AMX or Arm's bf16 instructions, "
            "which this processor does not report"
        )
    nothing = too_little(facts, *MATRIX_LEAVES)
    if nothing is not None:
        return nothing
    rates = rates_of(facts, setting[1])
    if isinstance(rates, RuledOut):
        return rates
    ops = [op for op in matrix_ops(facts) if "conv" not in op.name or wanted_gpu]
    now_s, after_s = faster_matrices_s(ops, *rates)
    # Inputs stay float32: each product converts them as it reads them.
    convert_s = seconds_to_move(facts, sum(op.bytes_moved or 0.0 for op in ops)) or 0.0
    if wanted_gpu:
        convert_s = 0.0
    convert_s += calls_in_16_bits_s(facts, ops)
    saved_s = now_s - after_s - convert_s
    return prospect_or_not(
        facts, 0.3 * saved_s - convert_s, saved_s, now_s * (1 - rates[0] / rates[1]),
        f"float32 matrix products take {time_text(now_s)}; in {setting[2]} internally, at "
        f"{rates[1] / rates[0]:.2g}x the rate, {time_text(after_s)} plus "
        f"{time_text(convert_s)} to call and convert",
    )  # fmt: skip


def _matmul_precision(setting: tuple[str, str, str], name: str) -> Fix:
    @contextmanager
    def precision() -> Iterator[None]:
        import torch

        before = torch.get_float32_matmul_precision()
        changed(name, before != setting[0])
        torch.set_float32_matmul_precision(setting[0])
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)

    @contextmanager
    def apply(work: Workload) -> Iterator[Workload]:
        yield with_setting(work, precision)

    return Fix(
        name=name,
        title=f"{setting[2]} inside float32 matrix products",
        leaves=MATRIX_LEAVES,
        may_change=(NUMERICS,),
        consider=partial(_consider_matmul_precision, setting),
        snippet=f'torch.set_float32_matmul_precision("{setting[0]}")',
        apply=apply,
        in_script=precision,
        in_source=(AfterImports((f'torch.set_float32_matmul_precision("{setting[0]}")',)),),
        effect=Effect(matrix_dtype=setting[1]),
        changes_made=changes_of(name),
        claims=(PRECISION,),
        precision=setting[1],
    )


def _consider_fp8(facts: Facts) -> Considered:
    nothing = too_little(facts, *MATRIX_LEAVES)
    if nothing is not None:
        return nothing
    now = "bfloat16" if "bfloat16" in facts.parameter_dtypes else "float32"
    full, low = facts.rate(f"matrix.{now}"), facts.rate("matrix.float8_e4m3fn")
    if full is None or low is None:
        return RuledOut("no fp8 matrix rate is known for this device")
    matrix_s = facts.leaf_s(*MATRIX_LEAVES)
    saved_s = facts.leaf_s("compute.matrix.roof") * (1 - full / low)
    return prospect_or_not(
        facts, 0.0, 0.5 * saved_s, saved_s,
        f"matrix products take {time_text(matrix_s)} in {now}; fp8 has {low / full:.2g}x the rate",
    )  # fmt: skip


BF16_STORAGE = Fix(
    name="bf16_storage",
    title="Weights and activations stored in bf16",
    leaves=(*MATRIX_LEAVES, "memory.device.roof", "memory.page_faults"),
    may_change=(NUMERICS, MEMORY),
    consider=_consider_storage,
    snippet="model = model.to(torch.bfloat16)  # and its floating-point inputs",
    apply=_apply_storage,
    in_script=partial(before_first_call, _store_in_bf16),
    in_source=(
        BeforeLoop(
            (
                "{model}.to(torch.bfloat16)",
                on_inputs("t.to(torch.bfloat16) if t.is_floating_point() else t"),
                *in_16_bits("bfloat16"),
            )
        ),
    ),
    effect=Effect(bytes_left=0.5, matrix_dtype="bfloat16"),
    changes_made=changes_of("bf16_storage"),
    claims=(PRECISION, WEIGHTS),
    precision="bfloat16",
)
TF32 = _matmul_precision(_ON_GPU, "tf32")
BF16_MATMUL = _matmul_precision(_ON_CPU, "bf16_matmul")
FP8 = Fix(
    name="fp8",
    title="fp8 matrix products (torchao)",
    leaves=MATRIX_LEAVES,
    may_change=(NUMERICS, MEMORY),
    consider=_consider_fp8,
    snippet=(
        "from torchao.float8 import convert_to_float8_training\nconvert_to_float8_training(model)"
    ),
    precision="float8",
)
