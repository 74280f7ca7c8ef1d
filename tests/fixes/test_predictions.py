from dataclasses import replace

import pytest
from tests.fixes.facts import CEILINGS, facts, op, pointwise, product

from gobrrr.diagnosis.facts import LoaderFact, OpFact, OptimizerFact
from gobrrr.diagnosis.fusion.groups import find_groups
from gobrrr.fixes.catalogue import FIXES
from gobrrr.fixes.fix import Prospect, RuledOut, prospect_or_not
from gobrrr.fixes.light import speed_of_light_with
from gobrrr.timeline.ops import OpCall, TensorSpec

BY_NAME = {fix.name: fix for fix in FIXES}


def consider(name, given):
    return BY_NAME[name].consider(given)


def test_names_are_unique_and_every_claim_excludes_something():
    assert len(BY_NAME) == len(FIXES)
    for fix in FIXES:
        # What is claimed is claimed by others too, or it would exclude nothing.
        assert all(sum(claim in other.claims for other in FIXES) > 1 for claim in fix.claims)
        assert fix.variant_of in {"", *BY_NAME}
        assert fix.snippet, fix.name


@pytest.mark.parametrize("fix", FIXES, ids=lambda fix: fix.name)
def test_a_step_of_nothing_but_unexplained_time_rules_every_fix_out_with_a_reason(fix):
    outcome = fix.consider(facts(leaves={"overhead.unexplained": 1.0}))
    if fix.name == "larger_batch":
        assert isinstance(outcome, Prospect)
        return
    assert isinstance(outcome, RuledOut)
    assert len(outcome.reason) > 10


@pytest.mark.parametrize("fix", FIXES, ids=lambda fix: fix.name)
def test_a_prospect_is_ordered(fix):
    ops = [pointwise("aten::mul", [1], [2]), product(), product(phase="backward")]
    given = facts(ops, leaves={"compute.matrix.roof": 0.8, "compute.matrix.below": 0.2})
    outcome = fix.consider(given)
    if isinstance(outcome, Prospect):
        assert outcome.low_s <= outcome.expected_s <= outcome.high_s
        assert outcome.because


def test_a_chain_is_read_once_and_written_once():
    # x -> a -> b -> y: 4 tensors of 40 MB, of which a and b need not exist.
    chain = [
        pointwise("aten::mul", [1], [2]),
        pointwise("aten::add", [2], [3]),
        pointwise("aten::relu", [3], [4]),
    ]
    (group,) = find_groups(facts(chain))
    assert group.bytes_before == 240e6  # 3 * (40 + 40)
    assert group.bytes_after == 80e6  # x and y
    assert group.fresh_before == 120e6
    assert group.fresh_after == 40e6


def test_what_is_read_again_later_is_written():
    ops = [
        pointwise("aten::mul", [1], [2]),
        pointwise("aten::add", [2], [3]),
        product(reads=((2, 40e6), (3, 40e6)), writes=((5, 1e6),)),
    ]
    (group,) = find_groups(facts(ops))
    assert group.bytes_after == 120e6  # 1 read, 2 and 3 written


def test_a_storage_that_comes_back_is_another_value():
    # 2 is freed and its storage used again for the result of the third op.
    ops = [
        pointwise("aten::mul", [1], [2]),
        pointwise("aten::add", [2], [3]),
        pointwise("aten::neg", [3], [2]),
    ]
    (group,) = find_groups(facts(ops))
    assert group.bytes_after == 80e6  # 1 and the second life of 2


def test_a_product_that_is_waited_for_ends_a_group():
    ops = [
        pointwise("aten::mul", [1], [2]),
        product(reads=((2, 40e6),), writes=((3, 40e6),)),
        pointwise("aten::relu", [3], [4]),
    ]
    assert [len(group.ops) for group in find_groups(facts(ops))] == [1, 1]


def test_forward_and_backward_pass_are_two_graphs():
    # Both read 2, one after the other: as one graph they would be one kernel.
    ops = [
        pointwise("aten::exp", [1], [2]),
        pointwise("aten::neg", [2], [3]),
        pointwise("aten::mul", [2, 3], [4], phase="backward"),
    ]
    forward, backward = find_groups(facts(ops))
    assert [len(forward.ops), len(backward.ops)] == [2, 1]
    assert forward.bytes_after == 120e6  # 1 read; 2 and 3 kept for the backward pass
    assert backward.bytes_after == 120e6  # 2 and 3 read, 4 written


def test_what_iterates_over_other_points_is_another_kernel():
    half = pointwise("aten::add", [2], [3], size=12e6)
    ops = [pointwise("aten::mul", [1], [2]), half]
    assert [len(group.ops) for group in find_groups(facts(ops))] == [1, 1]
    # A normalisation takes what computes its input, and what uses its rows.
    norm = pointwise("aten::native_layer_norm", [2], [3], op_class="normalisation",
                     shapes=((10_000, 1000),), args=((1000,), None, None, 1e-5))  # fmt: skip
    ops = [pointwise("aten::mul", [1], [2]), norm, pointwise("aten::relu", [3], [4])]
    assert [len(group.ops) for group in find_groups(facts(ops))] == [3]


def test_compile_counts_the_bytes_of_fusion():
    chain = [pointwise("aten::mul", [i], [i + 1]) for i in range(6)]
    step_s = sum(done.kernel_s + done.fixed_s + done.host_s for done in chain)
    outcome = consider("compile", facts(chain, step_s, {"overhead.dispatch": 120e-6}))
    # 6 * 80 MB at 10 GB/s is 48 ms; 80 MB at 60 % of 10 GB/s is 13.3 ms.
    assert outcome.expected_s == pytest.approx(0.048 - 0.01333, rel=0.02)
    assert outcome.low_s < outcome.expected_s < outcome.high_s
    assert "480 MB" in outcome.because
    assert "80 MB" in outcome.because


def test_compile_may_be_predicted_to_lose():
    # One op at its roof: generated code reaches 60 % of it.
    outcome = consider("compile", facts([pointwise("aten::mul", [1], [2])], 0.008))
    assert isinstance(outcome, RuledOut) or outcome.expected_s < 0


@pytest.mark.parametrize(
    ("counters", "said"),
    [
        ({}, "already"),
        ({"recompilations": 8.0, "graph_breaks": 2.0}, "compiled anew 8 times"),
    ],
)
def test_nothing_is_compiled_twice(counters, said):
    given = facts([pointwise("aten::mul", [1], [2])], compiled=True, counters=counters)
    for fix in FIXES:
        if fix.name.startswith("compile") or fix.name == "aot_inductor":
            assert said in consider(fix.name, given).reason


def test_a_synchronisation_costs_the_smaller_of_host_and_device_time():
    def syncs(python_s, kernels_s, waits_s, idle_s):
        leaves = {"overhead.python": idle_s, "compute.matrix.roof": kernels_s,
                  "overhead.synchronisation": 1.0 - idle_s - kernels_s}  # fmt: skip
        counters = {"host_waits_s": waits_s, "synchronisations": 1.0}
        given = facts(leaves=leaves, counters=counters, device_kind="cuda")
        return consider("remove_syncs", given)

    # In turns: the host works for 0.3 s, and then waits for 0.7 s of kernels.
    assert syncs(0.3, 0.7, 0.7, 0.3).high_s == pytest.approx(0.3)
    # A device that has 0.1 s to do hides 0.1 s at most, however long the host waited.
    assert syncs(0.2, 0.1, 0.8, 0.2).high_s == pytest.approx(0.1)
    # A host that does not wait long loses no more than that.
    assert syncs(0.9, 0.05, 0.04, 0.9).high_s == pytest.approx(0.04)


def test_no_compiler_rules_every_compiled_fix_out():
    given = facts([pointwise("aten::mul", [1], [2])], 0.008, has_compiler=False)
    for name in ("compile", "compile_max_autotune", "aot_inductor"):
        assert "compiler" in consider(name, given).reason


def test_autocast_shrinks_the_roof_by_the_ratio_of_the_rates():
    given = facts(
        [product(kernel_s=0.5, roof_s=0.4)], leaves={"compute.matrix.roof": 0.4},
    )  # fmt: skip
    outcome = consider("bf16_autocast", given)
    # 0.4 s at 4x the rate is 0.1 s, 0.1 s below the roof becomes 0.06 s.
    assert outcome.expected_s == pytest.approx(0.5 - 0.16, abs=0.002)
    slow = replace(given, ceilings={**given.ceilings, "matrix.bfloat16": 50e9})
    assert "0.50x the rate" in consider("bf16_autocast", slow).reason


def test_a_fused_optimizer_saves_the_dispatch_of_its_ops():
    ops = [
        op("aten::addcdiv_", kernel_s=1e-6, fixed_s=2e-6, host_s=8e-6, phase="optimizer")
        for _ in range(100)
    ]
    given = facts(
        ops, 2e-3, trains=True, optimizers=(OptimizerFact("AdamW", 10, 1000),)
    )  # fmt: skip
    outcome = consider("fused_optimizer", given)
    # 100 * 10 us of overhead and 100 us of kernels; 30 us + 10 * 4 us are left.
    assert outcome.expected_s == pytest.approx(1.03e-3, rel=0.02)
    fused = replace(given, optimizers=(OptimizerFact("AdamW", 10, 1000, fused=True),))
    assert "already" in consider("fused_optimizer", fused).reason
    other = replace(given, optimizers=(OptimizerFact("LBFGS", 10, 1000),))
    assert "LBFGS" in consider("fused_optimizer", other).reason


def test_on_a_gpu_a_fused_optimizer_spares_its_host_what_foreach_does_more():
    def given(name, waits_s):
        ops = [
            op(name, kernel_s=60e-6, host_s=200e-6, phase="optimizer", shapes=((1000,),))
            for _ in range(10)
        ]
        return facts(
            ops, 10e-3, {"overhead.python": waits_s}, trains=True, device_kind="cuda",
            optimizers=(OptimizerFact("AdamW", 80, 80_000),), dispatch_s=1.34e-6,
        )  # fmt: skip

    lists = consider("fused_optimizer", given("aten::_foreach_mul_", 10e-3))
    # Of 2 ms on the way to them 80 * (2 + 10 * 0.25) us and 10 * 10.6 us; shorter kernels of a
    # device that always waits for its host save nothing, but may.
    assert lists.expected_s == pytest.approx(466e-6)
    assert lists.high_s == pytest.approx(2.6e-3, rel=0.1) and lists.own_ends
    busy = consider("fused_optimizer", given("aten::_foreach_mul_", 2e-3))
    assert busy.expected_s > lists.expected_s + 0.5 * 600e-6 * 0.8
    # One by one: all but the fused op's own.
    alone = consider("fused_optimizer", given("aten::mul_", 10e-3))
    assert alone.expected_s == pytest.approx(2e-3 - 350e-6)


@pytest.mark.parametrize("refused", [False, True])
def test_a_fused_optimizer_that_this_pytorch_lacks_on_gpus_is_not_proposed(refused):
    update = [op("aten::add_", phase="optimizer", host_s=0.05, fixed_s=0.05) for _ in range(5)]
    on_cpu = facts(
        update, trains=True, optimizers=(OptimizerFact("Adagrad", 2, 100, refused_on_cuda=refused),)
    )
    assert isinstance(consider("fused_optimizer", on_cpu), Prospect)
    # Written into a script, the argument is given to each of its optimizers.
    both = (*on_cpu.optimizers, OptimizerFact("Adam", 2, 100))
    for given in (on_cpu, replace(on_cpu, optimizers=both)):
        for kind in ("cuda", "hip"):
            outcome = consider("fused_optimizer", replace(given, device_kind=kind))
            assert isinstance(outcome, RuledOut) is refused
            assert not refused or "no fused Adagrad for GPUs" in outcome.reason


def test_page_faults_are_what_an_allocator_can_save():
    given = facts(step_s=1.0, leaves={"memory.page_faults": 0.6}, can_restart=True)
    assert consider("glibc_tunables", given).expected_s == pytest.approx(0.51)  # 85 % of 0.6
    ops = [op("aten::mul", fresh_bytes=size, page_faults_s=0.3) for size in (64e6, 8e6)]
    # 85 % of 0.3 s for blocks that are mapped anew each time, 70 % of 0.3 s for smaller ones.
    mixed = replace(given, ops=tuple(ops))
    assert consider("glibc_tunables", mixed).expected_s == pytest.approx(0.465)
    # Faults outside of fresh outputs' kernels have their price too.
    counted = replace(given, counters={"page_faults": 450_000.0},
                      ceilings=CEILINGS | {"page_fault": 2e-6})  # fmt: skip
    assert consider("glibc_tunables", counted).expected_s == pytest.approx(0.85 * 0.9)
    inside = replace(given, can_restart=False)
    assert "GLIBC_TUNABLES" in consider("glibc_tunables", inside).reason


def test_loader_workers_hide_loading_behind_the_step():
    leaves = {"overhead.data_loading": 0.6, "compute.matrix.roof": 0.4}
    given = facts(leaves=leaves, loaders=(LoaderFact(0, False),))
    # 2 workers have 0.3 s of loading each beside 0.4 s of step: none of it shows if data is waited
    # for; if it is computed, 2 processors need 0.5 s.
    found = consider("loader_workers", given)
    assert found.high_s == pytest.approx(0.6, abs=0.01)
    assert found.expected_s == pytest.approx(0.55, abs=0.01)
    assert found.low_s == pytest.approx(0.5, abs=0.01)
    working = replace(given, loaders=(LoaderFact(2, False),))
    assert "already" in consider("loader_workers", working).reason


def test_loader_workers_do_not_pay_where_handing_a_batch_over_takes_longer_than_loading_it():
    leaves = {"overhead.data_loading": 0.6e-3, "compute.matrix.roof": 0.4e-3}
    # One element is added in 1.34 us: a batch of two tensors is handed over in 1.04 ms.
    given = facts(step_s=1e-3, leaves=leaves, loaders=(LoaderFact(0, False),), dispatch_s=1.34e-6)
    outcome = consider("loader_workers", given)
    assert isinstance(outcome, RuledOut)
    assert "handing it over takes about 1.04 ms" in outcome.reason


def test_fused_optimizers_are_ruled_out_where_gradients_are_sparse():
    update = [op("aten::add_", phase="optimizer", host_s=0.05, fixed_s=0.05) for _ in range(5)]
    given = facts(
        [op("aten::_embedding_bag_sparse_backward", phase="backward"), *update], trains=True,
        optimizers=(OptimizerFact("SGD", 2, 100),),
    )  # fmt: skip
    assert "sparse" in consider("fused_optimizer", given).reason
    assert isinstance(consider("fused_optimizer", replace(given, ops=tuple(update))), Prospect)


def test_on_a_gpu_fused_attention_spares_the_copies_for_its_products_as_well():
    first = product("aten::bmm", kernel_s=0.1, roof_s=0.02, reads=((1, 4e6), (2, 4e6)),
                    writes=((3, 8e6),))  # fmt: skip
    softmax = op("aten::_softmax", op_class="normalisation", kernel_s=0.3, roof_s=0.2,
                 reads=((3, 8e6),), writes=((4, 8e6),))  # fmt: skip
    second = product("aten::bmm", kernel_s=0.1, roof_s=0.02, reads=((4, 8e6), (5, 4e6)),
                     writes=((6, 4e6),))  # fmt: skip
    turned = TensorSpec((10, 1000), "float32", (1, 10), 7)
    laid_out = TensorSpec((10, 1000), "float32", (1000, 1), 1)
    copy = OpFact(OpCall("aten::clone", (turned,), (laid_out,)), kernel_s=0.05)
    ops = [copy, first, softmax, second]
    told = [
        consider("fused_attention", facts(given, device_kind="cuda")) for given in (ops, ops[1:])
    ]
    assert told[0].expected_s == pytest.approx(told[1].expected_s + 0.05)
    assert told[0].low_s == told[1].low_s and told[0].own_ends
    assert "copies for its products, 50.0 ms, go as well" in told[0].because


def test_a_loop_is_named_by_its_line():
    ops = [
        op("aten::mv", kernel_s=1e-6, fixed_s=1e-6, host_s=8e-6, roof_s=0.5e-6,
               source="rows.py:7 in rows", shapes=((64, 64), (64,)))
        for _ in range(100)
    ]  # fmt: skip
    outcome = consider("vectorise_loop", facts(ops, 1e-3, {"overhead.dispatch": 9e-4}))
    assert outcome.sources == ("rows.py:7 in rows",)
    assert "100 times" in outcome.because
    assert consider("vectorise_loop", facts(ops[:4], 1e-3)).reason


def test_attention_by_hand_is_found_between_two_products():
    q = product("aten::bmm", kernel_s=0.1, roof_s=0.02, shapes=((8, 512, 64), (8, 64, 512)))
    softmax = op("aten::_softmax", op_class="normalisation", kernel_s=0.3, roof_s=0.2,
                     shapes=((8, 512, 512),), phase="forward", source="model.py:9")  # fmt: skip
    ops = [q, pointwise("aten::mul", [1], [2]), softmax, q]
    outcome = consider("fused_attention", facts(ops))
    assert outcome.expected_s > 0.3
    assert outcome.sources == ("model.py:9",)
    assert isinstance(consider("fused_attention", facts([q, softmax])), RuledOut)


def test_a_recurrence_is_no_loop_over_slices():
    step = {"source": "rnn.py:9 forward", "module": "", "host_s": 1e-5, "fixed_s": 1e-5}
    # Each reads what the one before wrote; then each reads its own slice.
    chained = [pointwise("aten::tanh", [i], [i + 1], size=4e3, **step) for i in range(10)]
    given = facts(chained, 1e-3, {"overhead.dispatch": 9e-4})
    assert "no line" in consider("vectorise_loop", given).reason
    apart = [pointwise("aten::tanh", [0], [i + 1], size=4e3, **step) for i in range(10)]
    given = facts(apart, 1e-3, {"overhead.dispatch": 9e-4})
    assert isinstance(consider("vectorise_loop", given), Prospect)


def test_more_threads_have_other_ceilings():
    given = facts([product()])
    (fix,) = [fix for fix in FIXES if fix.name == "all_threads"]
    assert speed_of_light_with(given, []) is not None
    assert speed_of_light_with(given, [fix]) is None


def test_more_threads_share_what_is_not_overhead():
    given = facts(leaves={"compute.matrix.roof": 0.6, "overhead.python": 0.4})
    # Half of 0.6 s, at 95 %.
    assert consider("all_threads", given).expected_s == pytest.approx(0.285)
    assert "already" in consider("all_threads", replace(given, threads=2)).reason
    # Sixteen threads on two processors take turns: of what they share 7/8 is lost at the most.
    turns = consider("all_threads", replace(given, threads=16))
    shared_s = given.leaf_s("compute", "memory.device")
    assert turns.high_s == pytest.approx(shared_s * 7 / 8)
    assert turns.low_s == 0 and "take turns" in turns.because


def test_recomputation_shows_in_the_matrix_work_of_the_backward_pass():
    forward = product(kernel_s=0.2, phase="forward")
    backward = [product(kernel_s=0.2, phase="backward") for _ in range(3)]
    given = facts([forward, *backward], trains=True, checkpoints=True)
    assert consider("no_checkpointing", given).expected_s == pytest.approx(0.2)
    assert isinstance(consider("no_checkpointing", replace(given, checkpoints=False)), RuledOut)
    # The first product's input is data: one product of its own is left to the backward pass.
    usual = facts([forward, *backward[:1]], trains=True, checkpoints=True)
    assert isinstance(consider("no_checkpointing", usual), RuledOut)
    again = facts([forward, *backward[:2]], trains=True, checkpoints=True)
    assert consider("no_checkpointing", again).expected_s == pytest.approx(0.2)
    # Behind an embedding it is not: both are its own.
    embedding = product(name="aten::embedding", matrix_flops=0.0, phase="forward")
    trained = facts([embedding, forward, *backward[:2]], trains=True, checkpoints=True)
    assert isinstance(consider("no_checkpointing", trained), RuledOut)


def test_gradients_that_no_optimizer_reads():
    given = facts(
        [product(kernel_s=0.6, phase="backward")], trains=True, unused_gradients=3,
        unused_gradients_share=0.5,
    )  # fmt: skip
    assert consider("unused_gradients", given).expected_s == pytest.approx(0.15)  # 0.6 * 0.5 / 2
    # Below the first layer that trains there is no backward pass at all.
    first = replace(given, unused_come_first=True)
    assert consider("unused_gradients", first).expected_s == pytest.approx(0.285)


def test_what_changes_results_is_off_unless_asked_for():
    given = facts([product()], trains=True)
    for name in ("activation_checkpointing", "memory_budget_50"):
        assert "--only" in BY_NAME[name].considered(given).reason
    assert "--only" in BY_NAME["int8_weights"].considered(facts([product()])).reason
    asked = BY_NAME["activation_checkpointing"].considered(given, {"activation_checkpointing"})
    assert "--only" not in getattr(asked, "reason", "")


def test_fixes_that_decide_the_same_thing_exclude_each_other():
    def excluded(name):
        fix = BY_NAME[name]
        return {other.name for other in FIXES if other is not fix and other.excludes(fix)}

    compiled = {fix.name for fix in FIXES if fix.effect.fuses}
    assert compiled - {"compile"} <= excluded("compile")
    others = {"bf16_autocast", "fp16_autocast", "bf16_storage", "bf16_matmul", "float32"}
    assert excluded("tf32") == others
    assert excluded("jemalloc") == {"glibc_tunables", "tcmalloc"}
    assert excluded("fused_optimizer") == {"foreach_optimizer"}
    assert excluded("channels_last") == set()


def test_the_light_of_a_fused_chain_is_below_that_of_its_ops():
    chain = [pointwise("aten::mul", [i], [i + 1]) for i in range(4)]
    given = facts([*chain, product(roof_s=0.4)])
    assert speed_of_light_with(given, ()) == pytest.approx(0.4 + 4 * 0.008)
    assert speed_of_light_with(given, (BY_NAME["compile"],)) == pytest.approx(0.4 + 0.008)
    halved = speed_of_light_with(given, (BY_NAME["bf16_autocast"],))
    assert halved == pytest.approx(0.1 + 4 * 0.004)
    assert speed_of_light_with(given, (BY_NAME["unused_gradients"],)) is None


def test_less_than_the_least_saving_is_ruled_out():
    assert isinstance(prospect_or_not(facts(), 0.0, 0.01, 0.019, "x"), RuledOut)
    assert isinstance(prospect_or_not(facts(), -0.1, 0.01, 0.021, "x"), Prospect)


def test_max_pooling_of_nchw_images_has_no_fast_kernel_on_a_cpu():
    pool = op("aten::max_pool2d_with_indices", kernel_s=0.5, roof_s=0.1, below_s=0.4,
                  shapes=((4, 32, 96, 96),), phase="forward")  # fmt: skip
    conv = product("aten::convolution", kernel_s=0.4, roof_s=0.4,
                   shapes=((4, 32, 96, 96), (32, 32, 3, 3)))  # fmt: skip
    outcome = consider("channels_last", facts([conv, pool]))
    assert outcome.expected_s == pytest.approx(0.34, abs=0.01)  # 85 % of 0.4 s
    converted = facts([conv, pool], input_channels_last=True)
    assert "already" in consider("channels_last", converted).reason


def test_bf16_storage_is_ruled_out_where_its_products_are_slow():
    given = facts([product(kernel_s=0.5, roof_s=0.4)], parameter_dtypes=("float32",))
    # 40 GFLOP at 400 GFLOP/s is 0.1 s, and 60 % of the 0.1 s below the roof.
    assert consider("bf16_storage", given).expected_s == pytest.approx(0.34, abs=0.01)
    slow = replace(given, ceilings={**given.ceilings, "matrix.bfloat16": 10e9})
    assert isinstance(consider("bf16_storage", slow), RuledOut)


def test_bf16_inside_float32_products_needs_instructions_for_it():
    product_facts = facts([product()], leaves={"compute.matrix.roof": 0.4})
    without = replace(product_facts, instruction_sets=("avx512f", "avx512_bf16"))
    assert "AMX" in consider("bf16_matmul", without).reason
    for known in ((), ("avx512f", "amx_bf16"), ("asimd", "bf16")):
        given = replace(product_facts, instruction_sets=known)
        assert isinstance(consider("bf16_matmul", given), Prospect)


def test_small_products_in_16_bits_pay_for_the_other_library_s_calls():
    # 100 products of 2e6 FLOPs, 20 us at 100 GFLOP/s and half of that in bf16.
    small = [product(kernel_s=20e-6, roof_s=20e-6, bytes_moved=0) for _ in range(100)]
    given = facts(small, step_s=3e-3, leaves={"compute.matrix.roof": 2e-3}, dispatch_s=1.34e-6,
                  parameter_dtypes=("float32",),
                  ceilings=CEILINGS | {"matrix.bfloat16": 200e9})  # fmt: skip
    # 100 x (10 us - 14 us).
    assert consider("bf16_storage", given).expected_s == pytest.approx(-0.4e-3)
    slower = replace(given, dispatch_s=2.68e-6)
    assert isinstance(consider("bf16_autocast", slower), RuledOut)
    # Those of under 4096 multiply-adds stay where they are; a GPU has one library for both.
    tiny = [product(kernel_s=20e-6, roof_s=50e-9, bytes_moved=0) for _ in range(100)]
    assert consider("bf16_storage", replace(given, ops=tuple(tiny))).expected_s > 0
    on_gpu = replace(given, device_kind="cuda")
    assert consider("bf16_storage", on_gpu).expected_s == pytest.approx(1e-3)


def test_factorisations_are_not_products_in_16_bits():
    eigenvalues = op("aten::_linalg_eigh", ((150, 150),), matrix_flops=4.5e6, kernel_s=0.5,
                     roof_s=0.4, below_s=0.1, phase="forward")  # fmt: skip
    given = facts([eigenvalues], leaves={"compute.matrix.roof": 0.5})
    assert "no float32 matrix product" in consider("bf16_autocast", given).reason
