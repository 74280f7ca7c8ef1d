"""Operators that neither compute nor move a byte: views, and queries of metadata."""

from __future__ import annotations

from gobrrr.timeline.ops import OpCall
from gobrrr.work.estimate import Work
from gobrrr.work.registry import add_formula, qualified
from gobrrr.work.traffic import nothing
from gobrrr.work.traits import Role, Traits, state_traits

VIEWS = qualified(
    """
alias as_strided as_strided_ chunk detach detach_ diagonal expand expand_as flatten movedim moveaxis
narrow permute select slice split split_with_sizes squeeze squeeze_ swapaxes swapdims t t_ transpose
transpose_ numpy_T mT mH adjoint unbind unflatten unfold unsafe_chunk unsafe_split
unsafe_split_with_sizes unsqueeze unsqueeze_ view view_as view_as_complex view_as_real _view_as_real
_reshape_alias _unsafe_view _nested_view_from_buffer _nested_view_from_jagged tensor_split hsplit
vsplit dsplit broadcast_to broadcast_tensors lift lift_fresh _conj conj _neg_view resolve_conj
resolve_neg real imag positive_view swap_axes matrix_H values indices crow_indices col_indices
ccol_indices row_indices _values _indices atleast_1d atleast_2d atleast_3d meshgrid
_sparse_coo_tensor_with_dims_and_tensors slice_inverse cudnn_is_acceptable _mkldnn_reshape
_mkldnn_transpose_
    """
)

# Metadata, allocation without writing, and hints: no bytes of the tensor's data move.
QUERIES = qualified(
    """
size sym_size stride sym_stride numel sym_numel sym_storage_offset storage_offset dim
is_floating_point is_complex is_same_size is_nonzero_hint is_contiguous is_pinned
is_non_overlapping_and_dense _has_compatible_shallow_copy_type _version set_
resize_ resize_as_ requires_grad_ retain_grad
_cudnn_init_dropout_state_hint empty empty_like empty_strided empty_permuted new_empty
new_empty_strided _efficientzerotensor _assert_tensor_metadata _assert_async _assert_scalar
_functional_assert_async sym_constrain_range sym_constrain_range_for_size record_stream
_use_cudnn_ctc_loss _use_cudnn_rnn_flatten_weight is_leaf output_nr layout sparse_dim
dense_dim _nnz is_coalesced
_nested_tensor_from_mask_left_aligned _has_same_storage_numel result_type can_cast _fused_sdp_choice
"""
)

_NOTHING = nothing("")


def view(call: OpCall) -> Work:
    """Nothing is computed, nothing moves."""
    return _NOTHING


# Operators that never have work.
NO_WORK = frozenset((*VIEWS, *QUERIES))

add_formula((*VIEWS, *QUERIES), view)
for _name in NO_WORK:
    state_traits(_name, Traits(Role.NOTHING))
