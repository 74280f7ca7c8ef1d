"""FLOPs that one evaluation of a function counts: the only place where they are stated.

The convention of the Livermore loops (F. H. McMahon, "The Livermore Fortran Kernels", UCRL-53745,
1986), printed as "normalized floating-point operations" in Hennessy and Patterson, *Computer
Architecture: A Quantitative Approach*, 1st ed. 1990, section 2.2: add, subtract, compare, multiply
count 1; divide and square root 4; exponential, sine and their like 8. Real kernels spend more
(SLEEF's float32 ``exp`` is a polynomial of degree 5 beside range reduction, ``erf`` more), so time
at the roof from these weights is a lower bound, which a roof must be.
"""

from __future__ import annotations

from collections.abc import Iterable

BASIC = 1
DIVIDE = 4
SQUARE_ROOT = 4
FUNCTION = 8
# Two functions and a multiplication: exp(y * log(x)).
POWER = 2 * FUNCTION + 1
# Series or recurrences of tens of terms (Lanczos gamma, Bessel): counted as two functions.
SPECIAL_FUNCTION = 2 * FUNCTION

# Philox-4x32-10, PyTorch's generator, is integer work; what is float is the scaling of the bits
# to [0, 1): one multiplication and one addition. A normal number by Box-Muller takes, for each
# pair, log, sqrt, sin, cos: half of that each, and two multiplications.
UNIFORM = 2 * BASIC
NORMAL = UNIFORM + (3 * FUNCTION + SQUARE_ROOT) / 2 + 2 * BASIC

WEIGHTS: dict[str, float] = {
    "div": DIVIDE, "sqrt": SQUARE_ROOT, "rsqrt": DIVIDE + SQUARE_ROOT, "exp": FUNCTION,
    "log": FUNCTION, "sin": FUNCTION, "tan": FUNCTION, "tanh": FUNCTION, "erf": FUNCTION,
    "pow": POWER, "atan2": DIVIDE + FUNCTION, "gamma": SPECIAL_FUNCTION,
}  # fmt: skip

# Functions that processors approximate by a polynomial or a table, in units of one ``exp``. Not
# division and square root, which have instructions of their own: on two cores of a Zen 4, exp ran
# at 8.1 G/s, division at 13 G/s.
TRANSCENDENTALS: dict[str, int] = {
    "exp": 1, "log": 1, "sin": 1, "tan": 1, "tanh": 1, "erf": 1, "atan2": 1, "pow": 2, "gamma": 2,
}  # fmt: skip


def transcendentals_in(functions: Iterable[str]) -> int:
    """Evaluations of a transcendental among these functions."""
    return sum(TRANSCENDENTALS.get(name, 0) for name in functions)
