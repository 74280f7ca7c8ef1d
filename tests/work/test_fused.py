from __future__ import annotations

from gobrrr.work import work_of_fused
from gobrrr.work.fused import operators_of

from .calls import moved, tensor


def test_names_are_split_at_the_longest_operator_known() -> None:
    name = "triton_per_fused__softmax_add_native_layer_norm_mul_12"
    assert operators_of(name) == ("_softmax", "add", "native_layer_norm", "mul")
    assert operators_of("triton_poi_fused_add_gelu_backward_view_0") == ("add", "gelu_backward")
    assert operators_of("graph_4_cpp_fused_mean_relu_1") == ("mean", "relu")
    assert operators_of("triton_tem_fused_mm_3") is None
    assert operators_of("ampere_sgemm_128x64") is None


def test_bytes_are_those_of_the_arguments() -> None:
    x = tensor(4, 8)
    found = work_of_fused("triton_poi_fused_add_mul_0", [x, tensor(8), x])
    assert found is not None
    # one result, two inputs; a sum and a product for each of 32 elements
    assert (moved(found), found.vector_flops) == ((160, 128, 288), 64)
    assert found.op_class == "elementwise"


def test_reduced_precision_is_computed_in_float32() -> None:
    x = tensor(4, 8, dtype="bfloat16")
    found = work_of_fused("triton_red_fused__softmax_1", [x, x])
    assert found is not None
    assert (found.compute_dtype, found.op_class) == ("float32", "normalisation")
    assert found.vector_flops == 32 * 12


def test_copies_only_move() -> None:
    found = work_of_fused("triton_poi_fused_cat_clone_2", [tensor(4), tensor(4)])
    assert found is not None
    assert (found.flops, found.op_class) == (0, "movement")


def test_unknown_stays_unknown() -> None:
    assert work_of_fused("triton_poi_fused_add_0", []) is None
    assert work_of_fused("triton_poi_fused_add_0", [tensor(4, dtype="")]) is None
    assert work_of_fused("triton_mm", [tensor(4)]) is None
