"""The element-wise operators of ATen as data: arity, basic operations, functions per element.

Counts follow the arithmetic that a kernel cannot avoid, with constants folded: ``silu`` is
``x / (1 + exp(-x))``, a negation, an addition, an ``exp`` and a division. What only selects or
moves data (``where``, ``masked_fill``) has no FLOPs; a comparison of floats counts 1 (``weights``).
Integer and boolean operands count no FLOPs: the formula sees to that.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Result = Literal["same", "float", "bool"]


class Pointwise(NamedTuple):
    """One operator.

    Attributes:
        arity: arguments of the widest functional schema; tensors after them are ``out=``.
        basic: additions, multiplications, comparisons of floats per element.
        functions: names in ``weights.WEIGHTS``.
        result: dtype of the result: ``same`` as the promoted inputs, at least ``float``, ``bool``.
        complex_factor: real operations per operation on complex numbers: 2 for an addition, 6 for
            a multiplication, 11 for a division by the schoolbook formula.
        rate: the operator measured on processors that does as much for each element
            (``traits.Traits``), where it is another.
    """

    arity: int
    basic: float
    functions: tuple[str, ...] = ()
    result: Result = "same"
    complex_factor: float = 2.0
    rate: str | None = None


def _rows(
    names: str,
    arity: int,
    basic: float,
    *functions: str,
    result: Result = "same",
    complex_factor: float = 2.0,
    rate: str | None = None,
) -> dict[str, Pointwise]:
    entry = Pointwise(arity, basic, functions, result, complex_factor, rate)
    return dict.fromkeys(names.split(), entry)


POINTWISE: dict[str, Pointwise] = {
    # Arithmetic. ``add`` with an alpha other than 1 has one multiplication more: see ``variant``.
    **_rows("add sub rsub _add_relu", 3, 1),
    **_rows("mul", 2, 1, complex_factor=6.0),
    **_rows("square", 1, 1, complex_factor=6.0),
    **_rows("div", 3, 0, "div", result="float", complex_factor=2.75),
    **_rows("floor_divide", 2, 1, "div"),
    **_rows("remainder fmod", 2, 3, "div"),
    **_rows("reciprocal", 1, 0, "div", result="float", complex_factor=2.75),
    **_rows("addcmul", 4, 3, complex_factor=4.0),
    **_rows("addcdiv", 4, 2, "div"),
    **_rows("lerp", 3, 3),
    **_rows("neg abs sign sgn ceil floor trunc frac", 1, 1),
    **_rows("round", 2, 1),
    **_rows("maximum minimum fmax fmin copysign heaviside nextafter", 2, 1),
    **_rows("clamp clip", 3, 2),
    **_rows("clamp_min clamp_max", 2, 1),
    **_rows("nan_to_num", 4, 3),
    **_rows("positive conj_physical _conj_physical", 1, 0),
    **_rows("deg2rad rad2deg", 1, 1, result="float"),
    **_rows("angle", 1, 0, "atan2", result="float"),
    **_rows("hypot", 2, 3, "sqrt"),
    **_rows("ldexp", 2, 1, result="float"),
    **_rows("frexp", 1, 1),
    # Functions.
    **_rows("sqrt", 1, 0, "sqrt", result="float"),
    **_rows("rsqrt", 1, 0, "rsqrt", result="float"),
    **_rows("exp exp2", 1, 0, "exp", result="float", rate="exp"),
    **_rows("expm1", 1, 1, "exp", result="float", rate="exp"),
    **_rows("log log2 log10", 1, 0, "log", result="float", rate="log"),
    **_rows("log1p", 1, 1, "log", result="float", rate="log"),
    **_rows("sin cos", 1, 0, "sin", result="float", rate="sin"),
    **_rows("asin acos", 1, 0, "sin", result="float"),
    **_rows("sinh cosh", 1, 2, "exp", "div", result="float"),
    **_rows("asinh acosh atanh", 1, 3, "sqrt", "log", result="float"),
    **_rows("tan atan", 1, 0, "tan", result="float"),
    **_rows("atan2", 2, 0, "atan2", result="float"),
    **_rows("tanh", 1, 0, "tanh", result="float"),
    **_rows("erf erfc", 1, 0, "erf", result="float", rate="erf"),
    **_rows("special_erfcx", 1, 0, "erf", result="float"),
    **_rows("erfinv lgamma digamma i0 special_i0e special_i1 special_i1e special_ndtri "
            "special_log_ndtr special_airy_ai special_bessel_j0 special_bessel_j1 "
            "special_bessel_y0 special_bessel_y1 special_modified_bessel_i0 "
            "special_modified_bessel_i1 special_modified_bessel_k0 special_modified_bessel_k1 "
            "special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1 "
            "special_spherical_bessel_j0", 1, 0, "gamma", result="float"),
    # Recurrences of as many terms as the order says, which is data.
    **_rows("polygamma mvlgamma igamma igammac special_zeta special_chebyshev_polynomial_t "
            "special_chebyshev_polynomial_u special_chebyshev_polynomial_v "
            "special_chebyshev_polynomial_w special_hermite_polynomial_h "
            "special_hermite_polynomial_he special_laguerre_polynomial_l "
            "special_legendre_polynomial_p special_shifted_chebyshev_polynomial_t "
            "special_shifted_chebyshev_polynomial_u special_shifted_chebyshev_polynomial_v "
            "special_shifted_chebyshev_polynomial_w", 2, 0, "gamma", result="float"),
    **_rows("pow", 2, 0, "pow"),
    **_rows("float_power", 2, 0, "pow", result="float"),
    **_rows("sinc", 1, 1, "sin", "div", result="float"),
    **_rows("xlogy", 2, 1, "log", result="float"),
    **_rows("special_xlog1py", 2, 2, "log", result="float"),
    **_rows("special_entr", 1, 2, "log", result="float"),
    **_rows("logaddexp logaddexp2", 2, 4, "exp", "log"),
    **_rows("logit", 2, 3, "div", "log", result="float"),
    # Comparison, logic, bits, selection.
    **_rows("eq ne lt le gt ge", 2, 1, result="bool", rate="gt"),
    **_rows("logical_and logical_or logical_xor", 2, 1, result="bool"),
    **_rows("logical_not isnan isinf isfinite isneginf isposinf signbit", 1, 1, result="bool"),
    **_rows("bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift gcd lcm "
            "__and__ __or__ __xor__ __lshift__ __rshift__ __iand__ __ior__ __ixor__", 2, 0),
    **_rows("bitwise_not", 1, 0),
    **_rows("where", 3, 0),
    **_rows("masked_fill", 3, 0, rate="where"),
    # Activations.
    **_rows("relu", 1, 1),
    **_rows("relu6 ", 1, 2),
    **_rows("threshold", 3, 1),
    **_rows("hardtanh", 3, 2),
    **_rows("leaky_relu", 2, 2),
    **_rows("rrelu", 5, 2),
    **_rows("_prelu_kernel", 2, 2),
    **_rows("hardshrink softshrink", 2, 2),
    **_rows("hardsigmoid", 1, 4),
    **_rows("hardswish", 1, 5, rate="silu"),
    **_rows("sigmoid", 1, 2, "exp", "div", result="float"),
    **_rows("silu", 1, 2, "exp", "div"),
    **_rows("gelu", 2, 4, "erf"),
    **_rows("mish", 1, 1, "exp", "log", "tanh", rate="softplus"),
    **_rows("softplus", 3, 3, "exp", "log"),
    **_rows("elu", 4, 3, "exp"),
    **_rows("celu", 2, 4, "exp"),
    **_rows("selu", 1, 3, "exp"),
    # Their gradients: the gradient arrives as an argument and is multiplied in.
    **_rows("threshold_backward", 3, 1),
    **_rows("hardtanh_backward", 4, 2),
    **_rows("leaky_relu_backward", 4, 2),
    **_rows("rrelu_with_noise_backward", 7, 1),
    **_rows("hardshrink_backward softshrink_backward", 3, 2),
    **_rows("hardsigmoid_backward", 2, 3),
    **_rows("hardswish_backward", 2, 6),
    **_rows("sigmoid_backward tanh_backward", 2, 3),
    **_rows("silu_backward", 2, 7, "exp", "div"),
    **_rows("gelu_backward", 3, 9, "erf", "exp"),
    **_rows("mish_backward", 2, 8, "exp", "log", "tanh", "div"),
    **_rows("softplus_backward", 4, 4, "exp", "div"),
    **_rows("elu_backward", 6, 5, "exp"),
    **_rows("logit_backward", 3, 2, "div"),
    **_rows("native_dropout_backward", 3, 2),
    **_rows("_masked_scale", 3, 2),
}  # fmt: skip

# Chosen instead of the entry above by an argument: see ``pointwise.variant``.
GELU_TANH = Pointwise(2, 8, ("tanh",))
GELU_TANH_BACKWARD = Pointwise(3, 17, ("tanh",))
ADD_SCALED = Pointwise(3, 2)
# What ``pow`` computes for these exponents (aten/src/ATen/native/cpu/PowKernel.cpp).
POW_OF_EXPONENT: dict[float, Pointwise] = {
    0.0: Pointwise(2, 0),
    1.0: Pointwise(2, 0),
    2.0: Pointwise(2, 1, complex_factor=6.0),
    3.0: Pointwise(2, 2, complex_factor=6.0),
    0.5: Pointwise(2, 0, ("sqrt",)),
    -0.5: Pointwise(2, 0, ("rsqrt",)),
    -1.0: Pointwise(2, 0, ("div",)),
    -2.0: Pointwise(2, 1, ("div",)),
}
