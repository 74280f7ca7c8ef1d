"""What kinds of ops cost the host of a GPU."""

from __future__ import annotations

import pytest

from gobrrr.prediction.step.host_lane import (
    HostCall,
    HostCosts,
    host_seconds,
    host_seconds_of,
    host_work,
)
from gobrrr.prediction.step.host_weights import WEIGHTS, host_weight, kind_of
from gobrrr.timeline.data import Phase
from gobrrr.timeline.ops import OpCall

KINDS = {
    "aten::mm": "product", "aten::addmm": "product", "aten::convolution": "convolution",
    "aten::convolution_backward": "convolution", "aten::native_batch_norm": "batch norm",
    "aten::cudnn_batch_norm": "batch norm", "aten::native_layer_norm": "norm",
    "aten::native_group_norm": "norm", "aten::sum": "reduction",
    "aten::_scaled_dot_product_flash_attention": "attention", "aten::add": None,
    "aten::relu": None, "aten::cat": None, "triton_poi_fused_0": None,
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_an_op_is_of_the_kind_that_its_library_says(name: str) -> None:
    assert kind_of(OpCall(name, ())) == KINDS[name]


def test_a_network_of_convolutions_costs_the_host_several_times_its_ops() -> None:
    costs = HostCosts()
    names = ("aten::convolution", "aten::native_batch_norm", "aten::relu")
    calls = [
        HostCall(1, Phase.FORWARD, False, host_weight(OpCall(name, ()), Phase.FORWARD))
        for name in names
    ]
    # 7.0, 4.3 and 1 additions of 3.6 us, and 1.3 for the program around each
    work = host_work(calls, costs)
    assert work.total_s == pytest.approx((12.3 + 3 * 1.3) * 3.6e-6)
    assert work.plain_s == pytest.approx(work.total_s / 3)
    assert host_work([], costs).plain_s == costs.op_s + costs.program_s


def test_gradients_of_convolutions_weigh_more_and_those_of_batch_norms_less() -> None:
    for name, more in (("aten::convolution_backward", True), ("aten::native_batch_norm", False)):
        call = OpCall(name, ())
        weight = host_weight(call, Phase.BACKWARD)
        kind = kind_of(call)
        assert kind is not None
        assert (weight > WEIGHTS[kind]) is more


def test_a_pass_begins_with_work_that_no_op_stands_for() -> None:
    costs = HostCosts()
    calls = [HostCall(1, Phase.BACKWARD, before=54.0), HostCall(0, Phase.BACKWARD)]
    first, second = host_seconds_of(calls, costs)
    assert first == pytest.approx(54 * costs.op_s + costs.op_s + costs.node_s)
    assert second == pytest.approx(costs.view_s + costs.node_s)
    work = host_work(calls, costs)
    assert work.passes_s == pytest.approx(54 * costs.op_s)
    assert work.others_s == pytest.approx(second)
    assert work.total_s == pytest.approx(first + second)


def test_all_that_a_host_does_takes_as_many_times_as_given() -> None:
    calls = [HostCall(2, Phase.BACKWARD, before=3.0), HostCall(0), HostCall(1, weight=7.0)]
    once = host_work(calls, HostCosts()).total_s
    assert host_work(calls, HostCosts().with_overhead(1.6)).total_s == pytest.approx(1.6 * once)


def test_further_kernels_of_an_op_cost_a_launch_each_whatever_it_weighs() -> None:
    costs = HostCosts()
    one, three = (HostCall(n, weight=5.0) for n in (1, 3))
    further_s = host_seconds(three, costs) - host_seconds(one, costs)
    assert further_s == pytest.approx(2 * costs.launch_s)
