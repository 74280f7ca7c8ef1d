"""The operators that may be called on one element in a user's process, and why that is safe.

An operator that is called with sizes other than the program's may read and write past the ends of
its tensors, and takes the process with it (``mkldnn_rnn_layer`` does: ``hidden_size`` is a number
beside the tensors). So this is a list of what is safe, not of what is not: an operator of PyTorch
is on it if all that says how far its kernel goes are the shapes of its tensors, or arguments that
``tiny_calls`` sets to fit, and if 1 is a valid value and 0 a valid index in them.
``tests/live/calibration/test_safe_ops.py`` runs every one in a process of its own, its heap
checked.

Not on the list, and never to be: what takes lengths, offsets, pivots, strides or sizes of heads
(``ctc_loss``, ``_embedding_bag``, ``linalg_lu_solve``, ``as_strided``, fused recurrent layers and
multi-head attention), what holds packed or quantised data, other libraries' layouts, what comes
from outside PyTorch.
"""

from __future__ import annotations

from gobrrr.work.formulas.optimizers import FOREACH
from gobrrr.work.formulas.pointwise_table import POINTWISE
from gobrrr.work.formulas.reductions import REDUCTIONS, SCANS


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# One element at a time through TensorIterator, which derives every extent from the tensors; the
# numbers beside them are values (a slope, a bound, an exponent).
ELEMENTWISE = (
    frozenset(POINTWISE)
    # Not on CPUs, or made of other operators, which are what is recorded.
    - _names(
        "_add_relu _masked_scale mvlgamma clip float_power isfinite positive relu6 rrelu selu "
        "square conj_physical __and__ __or__ __xor__ __iand__ __ior__ __ixor__"
    )
    | _names("complex polar log_sigmoid_forward rrelu_with_noise")
)
# The same over two tensors, then reduced; the codes of the reduction are values.
LOSSES = _names(
    "mse_loss mse_loss_backward huber_loss huber_loss_backward smooth_l1_loss "
    "smooth_l1_loss_backward soft_margin_loss soft_margin_loss_backward binary_cross_entropy "
    "binary_cross_entropy_backward binary_cross_entropy_with_logits"
)
# A dimension that a tensor of the same rank has; the extents are the tensor's own.
ALONG_A_DIMENSION = (frozenset(REDUCTIONS) | frozenset(SCANS)) - _names(
    "nanmean native_norm norm trace"
) | _names(
    "trace _softmax _softmax_backward_data _log_softmax _log_softmax_backward_data "
    "_safe_softmax sort topk kthvalue flip roll cat stack dist renorm"
)
# Products of matrices and vectors: the dispatcher compares the shapes, all of them 1 here.
PRODUCTS = _names("mm bmm addmm addmv addr addbmm baddbmm dot vdot mv _addmm_activation")
# Attention whose heads and lengths are dimensions of its tensors.
ATTENTION = _names(
    "_scaled_dot_product_flash_attention_for_cpu "
    "_scaled_dot_product_flash_attention_for_cpu_backward"
)
# One size of kernel in, one out: ``tiny_calls`` sets channels, groups and extents by hand.
WINDOWS = _names(
    "convolution _convolution convolution_backward max_pool2d_with_indices "
    "max_pool3d_with_indices avg_pool2d avg_pool3d max_pool2d_with_indices_backward "
    "avg_pool2d_backward _adaptive_avg_pool2d _adaptive_avg_pool2d_backward "
    "_adaptive_avg_pool3d _adaptive_avg_pool3d_backward adaptive_max_pool2d "
    "adaptive_max_pool2d_backward upsample_nearest1d upsample_nearest2d upsample_nearest3d "
    "upsample_linear1d upsample_bilinear2d upsample_bicubic2d upsample_trilinear3d "
    "upsample_nearest1d_backward upsample_nearest2d_backward upsample_nearest3d_backward "
    "upsample_linear1d_backward upsample_bilinear2d_backward upsample_bicubic2d_backward "
    "upsample_trilinear3d_backward reflection_pad1d reflection_pad2d replication_pad1d "
    "replication_pad2d reflection_pad1d_backward reflection_pad2d_backward "
    "replication_pad1d_backward replication_pad2d_backward constant_pad_nd"
)
# Statistics over what the weights' shapes or ``normalized_shape`` (set to ones) say.
NORMALISATIONS = _names(
    "native_layer_norm native_layer_norm_backward native_group_norm native_group_norm_backward "
    "native_batch_norm native_batch_norm_backward _native_batch_norm_legit "
    "_native_batch_norm_legit_no_training _batch_norm_with_update _batch_norm_no_update "
    "batch_norm_backward"
)
# Indices and classes: 0 is one in a dimension of length 1, and false selects nothing.
INDEXING = _names(
    "index index_put index_put_ _index_put_impl_ _unsafe_index _unsafe_index_put index_select "
    "index_add index_add_ index_copy index_copy_ index_fill index_fill_ gather scatter scatter_ "
    "scatter_add scatter_add_ scatter_reduce scatter_reduce_ take masked_select masked_scatter "
    "masked_scatter_ nonzero embedding embedding_dense_backward nll_loss_forward "
    "nll_loss_backward nll_loss2d_forward nll_loss2d_backward slice_backward select_backward "
    "slice_scatter select_scatter searchsorted bucketize"
)
# New tensors and copies: of a size that ``tiny_calls`` sets to ones, or of a tensor's.
COPIES = _names(
    "copy_ copy clone _to_copy fill fill_ zero zero_ zeros zeros_like ones ones_like full "
    "full_like new_full new_ones new_zeros scalar_tensor arange linspace eye repeat tril "
    "tril_ triu triu_ diag_embed diagonal_copy _local_scalar_dense"
)
# Random values, one for each element; the caller keeps the generators' states.
RANDOM = _names(
    "uniform_ normal_ random_ bernoulli bernoulli_ exponential_ geometric_ log_normal_ cauchy_ "
    "normal poisson binomial rand rand_like randn randn_like randint randint_like randperm "
    "native_dropout multinomial"
)
# LAPACK on 1 x 1 matrices, without pivots (which are indices that start at 1).
DECOMPOSITIONS = _names(
    "linalg_cholesky_ex linalg_inv_ex linalg_solve_triangular triangular_solve linalg_qr "
    "_linalg_svd _linalg_eigh linalg_eig"
)
# Transforms of the dimensions given, one element long.
TRANSFORMS = _names("_fft_c2c _fft_r2c _fft_c2r")
# Element by element over lists of tensors that pair off.
LISTS = (
    frozenset(f"_foreach_{name}{suffix}" for name in FOREACH for suffix in ("", "_"))
    | _names("_foreach_copy_ _foreach_zero_ _foreach_norm")
    | _names(
        "_fused_adam_ _fused_adamw_ _fused_sgd_ _fused_adagrad_ "
        "_amp_foreach_non_finite_check_and_unscale_"
    )
)

SAFE_OPS: frozenset[str] = (
    ELEMENTWISE
    | frozenset(f"{name}_" for name in ELEMENTWISE | frozenset(SCANS) if not name.endswith("_"))
    | frozenset(f"{name}_" for name in PRODUCTS | {"renorm"})
    | LOSSES
    | ALONG_A_DIMENSION
    | PRODUCTS
    | ATTENTION
    | WINDOWS
    | NORMALISATIONS
    | INDEXING
    | COPIES
    | RANDOM
    | DECOMPOSITIONS
    | TRANSFORMS
    | LISTS
)


def is_safe_to_shrink(qualified_name: str) -> bool:
    """Whether ``aten::mm`` and the like may be called on one element."""
    namespace, _, name = qualified_name.partition("::")
    return namespace == "aten" and name in SAFE_OPS
