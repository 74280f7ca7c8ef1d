"""The matrix products inside contractions: linear layers and convolutions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, prod

from gobrrr.prediction.kernels.coefficients import Coefficients
from gobrrr.prediction.kernels.products import Product, item_bytes
from gobrrr.timeline.ops import VALUES_IN_ELEMENT, Arg, OpCall, TensorSpec
from gobrrr.work.estimate import Work
from gobrrr.work.formulas.contractions import groups_of, groups_used, output_mask
from gobrrr.work.formulas.convolution import COMPOSITE, LAYOUTS, by_dimension, output_shape
from gobrrr.work.formulas.linear_algebra import PRODUCTS_OF_EXPONENTIAL
from gobrrr.work.traffic import integers

_CONVOLUTIONS = {**LAYOUTS, **COMPOSITE}
# 16 bytes: what the fast loads of tensor cores take (NVIDIA's guide to matrix multiplication).
_ALIGNMENT_BYTES = 16
_CHANNEL_STEP = 16


def products_of(
    call: OpCall, work: Work, c: Coefficients, cold_bytes: float
) -> tuple[Product, ...]:
    """The products that a contraction computes, one after the other.

    Empty where the op's shapes are not known to this file. The cold bytes are divided among
    them equally.
    """
    try:
        found = _products(call, work.compute_dtype, c)
    except (LookupError, ValueError, TypeError, AttributeError, ZeroDivisionError):
        # A trace that leaves arguments out.
        return ()
    # A chain of products reads two matrices and writes one each, the op reads one and writes one.
    share = 1.5 if call.name == "aten::linalg_matrix_exp" else 1 / max(len(found), 1)
    return tuple(replace(p, cold_bytes=cold_bytes * share) for p in found)


def _products(call: OpCall, dtype: str, c: Coefficients) -> list[Product]:
    name = call.name.partition("::")[2]
    tensors = call.tensors
    if name in ("mm", "_int_mm", "_scaled_mm"):
        return [_plain(tensors[0], tensors[1], dtype)]
    if name in ("addmm", "addmm_", "_addmm_activation"):
        return [_plain(tensors[1], tensors[2], dtype)]
    if name in ("bmm",):
        return [_plain(tensors[0], tensors[1], dtype)]
    if name in ("_grouped_mm", "_scaled_grouped_mm"):
        return [_grouped(call, dtype)]
    if name in ("baddbmm", "baddbmm_"):
        return [_plain(tensors[1], tensors[2], dtype)]
    if name in ("linear", "_linear", "mkldnn_linear"):
        x, weight = tensors[0], tensors[1]
        found = _in_reals(x, prod(x.shape[:-1]), weight.shape[0], x.shape[-1], 1, dtype)
        return [replace(found, a_by_rows=True, b_by_rows=True)]
    if name in ("mv", "addmv", "addmv_"):
        # One column: bandwidth decides, in kernels of their own (gemv).
        matrix = next(spec for spec in tensors if len(spec.shape) == 2)
        m, k = matrix.shape
        return [Product(m, 1, k * _parts(matrix), 1, dtype, 0.0)]
    if name == "linalg_matrix_exp":
        return [_plain(tensors[0], tensors[0], dtype)] * PRODUCTS_OF_EXPONENTIAL
    if name == "_euclidean_dist":
        x, y = tensors[0], tensors[1]
        return [_product(x.shape[-2], y.shape[-2], x.shape[-1] + 2, prod(x.shape[:-2]), dtype)]
    if name == "matmul":
        a, b = tensors[0], tensors[1]
        if len(b.shape) == 2:
            return [_in_reals(a, prod(a.shape[:-1]), b.shape[1], a.shape[-1], 1, dtype)]
        return [_plain(a, b, dtype)]
    if call.name in _CONVOLUTIONS:
        return [convolution_of(call).forward(dtype, c)]
    if name in ("convolution_backward", "convolution_backward_overrideable"):
        return _convolution_backward(call, dtype, c)
    return []


def _parts(spec: TensorSpec) -> int:
    """Real numbers of an element."""
    return 2 if spec.dtype.startswith("complex") else 1


def _in_reals(a: TensorSpec, m: int, n: int, k: int, batch: int, dtype: str) -> Product:
    """Of m x k by k x n elements; ``a``: has their dtype.

    Complex rows ``[re, im]`` by ``[[re, im], [-im, re]]``: a complex product of m x k by k x n has
    the multiply-adds of a real one of m x 2 k by 2 k x 2 n, or of 2 m x 2 k by 2 k x n. One factor
    stands there twice, and the kernel reads it once: the smaller one is taken, and of a row or a
    column, where bandwidth decides, none.
    """
    parts = _parts(a)
    found = _product(m, n * parts if n > 1 else n, k * parts, batch, dtype)
    if parts == 1 or (m > 1 and 1 < n <= m):
        return found
    return replace(found, m=m * parts if m > 1 and n > 1 else m, n=n)


def _plain(a: TensorSpec, b: TensorSpec, dtype: str) -> Product:
    m, n = a.shape[-2], b.shape[-1]
    k = a.shape[-1] * VALUES_IN_ELEMENT.get(a.dtype, 1)
    return replace(
        _in_reals(a, m, n, k, prod(a.shape[:-2]), dtype),
        a_by_rows=a.strides is None or a.strides[-1] == 1,
        b_by_rows=b.strides is not None and b.strides[-2] == 1 and b.strides[-1] != 1,
    )


def _grouped(call: OpCall, dtype: str) -> Product:
    """One product per group that has rows, of equal sizes: the kernel runs them side by side."""
    a, b = call.tensors[:2]
    if len(a.shape) == 2 and len(b.shape) == 2:
        groups = groups_of(call) or 1
        return _product(a.shape[0], b.shape[1], -(-a.shape[1] // groups), groups, dtype)
    if len(a.shape) == 2:
        groups = max(1, groups_used(call, a.shape[0], b.shape[0]))
        return _product(-(-a.shape[0] // groups), b.shape[2], a.shape[1], groups, dtype)
    if len(b.shape) == 2:
        groups = max(1, groups_used(call, b.shape[1], a.shape[0]))
        return _product(a.shape[1], -(-b.shape[1] // groups), a.shape[2], groups, dtype)
    return _plain(a, b, dtype)


def _product(m: int, n: int, k: int, batch: int, dtype: str, fraction: float = 1.0) -> Product:
    step = int(_ALIGNMENT_BYTES / item_bytes(dtype))
    aligned = (n % step == 0 or n == 1) and k % step == 0
    return Product(m, n, k, batch, dtype, 0.0, aligned, fraction)


@dataclass(frozen=True, slots=True)
class ConvolutionShape:
    """A convolution's sizes, those of the plain one whose gradient it is if transposed.

    ``images``: batch; ``inputs``, ``outputs``: channels of one group; ``pixels_in``,
    ``pixels_out``: positions of an image; ``taps``: positions of the window; ``last``: strides
    say that channels are the fastest dimension; ``sizes_in``, ``sizes_out``, ``window``,
    ``strides``, ``dilation``: by dimension.
    """

    images: int
    inputs: int
    outputs: int
    groups: int
    pixels_in: int
    pixels_out: int
    taps: int
    transposed: bool
    channels_last: bool
    sizes_in: tuple[int, ...] = ()
    sizes_out: tuple[int, ...] = ()
    window: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()

    @property
    def depthwise(self) -> bool:
        """One input channel for each group."""
        return self.groups > 1 and self.inputs == 1

    def forward(self, dtype: str, c: Coefficients) -> Product:
        """Implicit GEMM: positions x output channels, over window positions and input channels.

        A transposed one is the gradient of the input of a plain one, and computed as that
        (``cudnn_convolution_transpose_forward``, aten/src/ATen/native/cudnn/ConvShared.cpp): each
        result sums over those positions of the window that meet an input.
        """
        k = self.padded_inputs * self.taps
        if self.transposed:
            k = max(1, ceil(k * self.pixels_in / max(self.pixels_out, 1)))
        return Product(
            self.images * self.pixels_out, self.outputs, k, self.groups,
            dtype, 0.0, self.aligned, c.convolution_fraction,
        )  # fmt: skip

    @property
    def three_by_three(self) -> bool:
        """Whether it is a dense window of 3 x 3 at stride 1, as Winograd's algorithms take.

        A trace may leave the strides out: then the sizes tell.
        """
        return (
            self.window == (3, 3)
            and not self.transposed
            and all(step == 1 for step in (*self.strides, *self.dilation))
            and all(out >= size - 2 for out, size in zip(self.sizes_out, self.sizes_in))
        )

    @property
    def padded_inputs(self) -> int:
        """Channels that a position of the window takes in the inner loop.

        Kernels of cuDNN and MIOpen step through the channels of one position at a time, 16 or more
        in a step (names of kernels in recorded steps: ``256x64_32x4_nhwc_align8``, ``bt64x64x16``).
        """
        if self.groups > 1 or self.inputs >= _CHANNEL_STEP:
            return self.inputs
        return _CHANNEL_STEP

    @property
    def aligned(self) -> bool:
        """CuDNN pads channels for its tensor cores, except where one image has few of them."""
        return self.inputs % 4 == 0 or self.inputs < 8

    def data_gradient(self, dtype: str, c: Coefficients) -> Product:
        """Of the input: positions of the input x its channels, over outputs and the window.

        An input of a plain convolution meets the positions of the window at which a result lies.
        The gradient of a transposed one is a plain convolution, in which each meets them all.
        """
        k = self.outputs * self.taps
        if not self.transposed:
            k = max(1, k * self.pixels_out // max(self.pixels_in, 1))
        return Product(
            self.images * self.pixels_in, self.inputs, k, self.groups, dtype, 0.0,
            self.outputs % 4 == 0, c.convolution_fraction,
        )  # fmt: skip

    def weight_gradient(self, dtype: str, c: Coefficients) -> Product:
        """Of the weight: outputs x (inputs and window), over the positions of the results.

        Of a transposed one: inputs x (outputs and window), over the positions of the input, each of
        which is spread over one window.
        """
        rows, columns, positions = self.outputs, self.inputs, self.pixels_out
        if self.transposed:
            rows, columns, positions = self.inputs, self.outputs, self.pixels_in
        return Product(
            rows, columns * self.taps, self.images * positions, self.groups, dtype, 0.0,
            self.aligned, c.convolution_fraction,
        )  # fmt: skip


def convolution_of(call: OpCall) -> ConvolutionShape:
    """Sizes of a forward convolution.

    Raises:
        ValueError: strides or padding were not recorded and its output was not either.
        IndexError: too few arguments.
    """
    layout = _CONVOLUTIONS[call.name]
    x, weight = call.tensors[0], call.tensors[1]
    transposed = layout.transposed
    if not isinstance(transposed, bool):
        transposed = _argument(call, transposed) is True
    rank = len(weight.shape) - 2
    if call.outputs:
        out = call.outputs[0].shape
    else:
        out = output_shape(call, layout, x, weight, transposed)
    return replace(
        _shape(x, weight, out, rank, transposed, _argument(call, layout.groups)),
        strides=by_dimension(_argument(call, layout.stride), rank, 1),
        dilation=by_dimension(_argument(call, layout.dilation), rank, 1),
    )


def _shape(
    x: TensorSpec, weight: TensorSpec, out: tuple[int, ...], rank: int, transposed: bool,
    groups: Arg,
) -> ConvolutionShape:  # fmt: skip
    images = x.shape[0] if len(x.shape) == rank + 2 else 1
    channels_in, channels_out = x.shape[-rank - 1], out[-rank - 1]
    if transposed:
        count = groups if isinstance(groups, int) else channels_out // weight.shape[1]
    else:
        count = channels_in // weight.shape[1]
    count = max(count, 1)
    last = x.strides is not None and len(x.strides) > rank and x.strides[-rank - 1] == 1
    return ConvolutionShape(
        images=images,
        inputs=channels_in // count,
        outputs=channels_out // count,
        groups=count,
        pixels_in=prod(x.shape[-rank:]),
        pixels_out=prod(out[-rank:]),
        taps=prod(weight.shape[2:]),
        transposed=transposed,
        channels_last=last and channels_in > 1,
        sizes_in=tuple(x.shape[-rank:]),
        sizes_out=tuple(out[-rank:]),
        window=tuple(weight.shape[2:]),
    )


def gradients_of(call: OpCall) -> tuple[ConvolutionShape, tuple[bool, bool]]:
    """Sizes of the convolution whose gradients a backward computes, and of which: input, weight.

    Raises:
        IndexError: too few arguments.
    """
    grad, x, weight = call.tensors[0], call.tensors[1], call.tensors[2]
    over = call.name.endswith("overrideable")
    transposed = call.args[6 if over else 7] is True
    mask = output_mask(call, 9 if over else 10)
    rank = len(weight.shape) - 2
    groups = integers(call.args[8 if over else 9])
    shape = _shape(x, weight, grad.shape, rank, transposed, groups[0] if groups else None)
    return shape, mask[:2]


def _convolution_backward(call: OpCall, dtype: str, c: Coefficients) -> list[Product]:
    shape, (of_input, of_weight) = gradients_of(call)
    found = []
    if of_input:
        found.append(shape.data_gradient(dtype, c))
    if of_weight:
        found.append(shape.weight_gradient(dtype, c))
    return found


def _argument(call: OpCall, index: int) -> Arg:
    return call.args[index] if 0 <= index < len(call.args) else None
