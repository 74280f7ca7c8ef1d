"""Random numbers: written, not read; the generator's integer work counts no FLOPs."""

from __future__ import annotations

from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.work.estimate import Work
from gobrrr.work.formulas.copies import creation_arguments, dtype_argument
from gobrrr.work.registry import add_formula, formula
from gobrrr.work.traffic import (
    account,
    arithmetic_dtype,
    broadcast,
    destinations,
    integers,
    is_float,
    need,
    tensor_at,
)
from gobrrr.work.traits import Role, describe
from gobrrr.work.weights import DIVIDE, FUNCTION, NORMAL, UNIFORM

# FLOPs and functions per element.
_IN_PLACE: dict[str, tuple[float, float]] = {
    "uniform_": (UNIFORM, 0), "normal_": (NORMAL, 1.5), "random_": (0, 0),
    "bernoulli_": (UNIFORM + 1, 0), "exponential_": (UNIFORM + FUNCTION + 2, 1),
    "geometric_": (UNIFORM + FUNCTION + 2, 1), "log_normal_": (NORMAL + FUNCTION, 2.5),
    "cauchy_": (UNIFORM + FUNCTION + 2, 1),
}  # fmt: skip
_NEW: dict[str, tuple[float, float]] = {
    "rand": (UNIFORM, 0), "rand_like": (UNIFORM, 0), "randn": (NORMAL, 1.5),
    "randn_like": (NORMAL, 1.5), "randint": (0, 0), "randint_like": (0, 0), "randperm": (0, 0),
}  # fmt: skip
# Every op that draws: its time is the generator's, on a processor whatever its bytes.
DRAWS = frozenset(_IN_PLACE) | frozenset(_NEW) | frozenset(
    ("bernoulli", "normal", "poisson", "binomial", "multinomial", "_standard_gamma",
     "_sample_dirichlet", "native_dropout", "_fused_dropout")
)  # fmt: skip


def fill_random(call: OpCall) -> Work:
    """``(self, ...)`` in place; a tensor of probabilities is read."""
    flops, special = _IN_PLACE[call.name.removeprefix("aten::")]
    x = need(call, 0)
    probabilities = tensor_at(call, 1)
    return _random([probabilities] if probabilities is not None else [], [x], flops, special, False)


def new_random(call: OpCall) -> Work | None:
    """A new tensor; of the size given where the result was not recorded."""
    flops, special = _NEW[call.name.removeprefix("aten::")]
    if call.outputs:
        return _random([], list(call.outputs), flops, special, True)
    given = destinations(call, 0)
    if given:
        # ``rand_like(self, dtype, ...)``; ``randint_like`` has its bounds before the dtype.
        at = 1 if "randint" not in call.name else len(call.args) - 5
        wanted = dtype_argument(call.args[at]) if len(call.args) > at else None
        made = TensorSpec(given[0].shape, wanted or given[0].dtype)
        return _random([], [made], flops, special, True)
    # ``rand(size, ...)``, ``randint(high, size, ...)``, ``randperm(n, ...)``.
    values, wanted = creation_arguments(call)
    sizes = next((integers(arg) for arg in values if isinstance(arg, tuple)), None)
    if call.name == "aten::randperm":
        sizes = integers(values[0])
    if sizes is None:
        return None
    default = "int64" if call.name in ("aten::randint", "aten::randperm") else "float32"
    dtype = wanted or default
    return _random([], [TensorSpec(sizes, dtype)], flops, special, True)


def _random(
    reads: list[TensorSpec], writes: list[TensorSpec], flops: float, special: float, fresh: bool
) -> Work:
    target = writes[0]
    counts = is_float(target.dtype) or not target.dtype
    return account(
        reads, writes, vector=flops * target.numel if counts else 0.0,
        special=special * target.numel if counts else 0.0,
        dtype=arithmetic_dtype(target.dtype), op_class="elementwise", fresh=fresh,
    )  # fmt: skip


add_formula(tuple(f"aten::{name}" for name in _IN_PLACE), fill_random)
add_formula(tuple(f"aten::{name}" for name in _NEW), new_random)


@formula("aten::bernoulli", "aten::normal", "aten::poisson", "aten::binomial")
def sample_like(call: OpCall) -> Work:
    """``(self, ...)``: parameters read, a sample of the same shape written."""
    inputs = call.tensors
    x = need(call, 0)
    flops, special = (NORMAL + 2, 1.5) if call.name == "aten::normal" else (UNIFORM + 1, 0.0)
    shape = broadcast([spec.shape for spec in inputs])
    out = list(call.outputs or [TensorSpec(shape, x.dtype)])
    return _random(list(inputs), out, flops, special, True)


# Marsaglia and Tsang, "A Simple Method for Generating Gamma Variables", ACM Transactions on
# Mathematical Software 26, 2000: a normal number, a uniform one, two logarithms and 10 FLOPs for a
# trial, of which at least 95 of 100 succeed.
_GAMMA = (NORMAL + UNIFORM + 2 * FUNCTION + 10, 3.5)


@formula("aten::_standard_gamma", "aten::_sample_dirichlet")
def sample_gamma(call: OpCall) -> Work:
    """``(alpha, ...)``: a sample for each; Dirichlet's are divided by the sum of their row."""
    x = need(call, 0)
    flops, special = _GAMMA
    flops += (1 + DIVIDE) if call.name.endswith("dirichlet") else 0
    return _random([x], list(call.outputs or [TensorSpec(x.shape, x.dtype)]), flops, special, True)


@formula("aten::_standard_gamma_grad", "aten::_dirichlet_grad")
def gamma_gradient(call: OpCall) -> Work:
    """Reparameterised gradients: rational functions or series of 10 terms and three functions.

    ``aten/src/ATen/native/Distributions.h``, ``standard_gamma_grad`` and ``dirichlet_grad_one``.
    """
    x = need(call, 0)
    out = list(call.outputs or [TensorSpec(x.shape, x.dtype)])
    return _random(list(call.tensors), out, 40 + 3 * FUNCTION, 3, True)


@formula("aten::native_dropout", "aten::_fused_dropout")
def native_dropout(call: OpCall) -> Work:
    """``(input, p, train)`` -> result, bool mask: a uniform number, a comparison, two products."""
    x = need(call, 0)
    out = list(call.outputs or [TensorSpec(x.shape, x.dtype), TensorSpec(x.shape, "bool")])
    return account(
        [x], out, vector=float((UNIFORM + 3) * x.numel), dtype=arithmetic_dtype(x.dtype),
        op_class="elementwise",
    )  # fmt: skip


@formula("aten::dropout", "aten::dropout_", composite=True)
def dropout(call: OpCall) -> Work:
    """As ``native_dropout`` in training, otherwise the input itself."""
    training = len(call.args) > 2 and call.args[2] is True
    if not training:
        return Work(0.0, 0.0, 0, 0, 0, arithmetic_dtype(need(call, 0).dtype), "elementwise")
    return native_dropout(call)


@formula("aten::multinomial")
def multinomial(call: OpCall) -> Work | None:
    """``(probabilities, num_samples, ...)``: cumulated, divided by the total, searched."""
    x = need(call, 0)
    count = call.args[1]
    if not call.outputs and not isinstance(count, int):
        return None
    shape = (*x.shape[:-1], count if isinstance(count, int) else 0)
    out = list(call.outputs or [TensorSpec(shape, "int64")])
    return account(
        [x], out, vector=2.0 * x.numel, dtype=arithmetic_dtype(x.dtype), op_class="other"
    )


describe(
    "native_dropout dropout bernoulli bernoulli_ rand rand_like randn randn_like uniform_ normal_",
    fusion=Role.POINTWISE,
)
describe("multinomial", passes="multinomial")
describe("randperm", passes="permutation")
describe("bernoulli native_dropout", rate="bernoulli_")
describe("rand rand_like", rate="uniform_")
describe("randn randn_like", rate="normal_")
