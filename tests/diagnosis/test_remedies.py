"""What helps is said by the leaves that hold the time, and is never what does not help there."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gobrrr.attribution.leaves import LEAVES
from gobrrr.devices.ceilings import Ceiling
from gobrrr.diagnosis.fix_schema import Finding, FixSummary, Prediction, Ratio, Verification
from gobrrr.diagnosis.remedies import remedy_of
from gobrrr.diagnosis.schema import Diagnosis, IdleRow, TimelineColumns
from gobrrr.diagnosis.storage import load
from gobrrr.diagnosis.verdict import regime_of, split_of, verdict_of


@pytest.fixture
def made(data):
    """A diagnosis of a step of one second with the leaves given, and nothing else known of it."""

    def make(leaves: dict[str, float]) -> Diagnosis:
        found = load(data / "training.json")
        found.leaves = dict.fromkeys(LEAVES, 0.0) | leaves
        found.split = split_of(found.leaves)
        found.regime, found.close = regime_of(found.leaves)
        found.step.time_s.median = sum(leaves.values())
        found.findings, found.idle, found.ops, found.fixes = [], [], [], None
        found.timeline = None
        return found

    return make


# A word of the advice on each leaf; and words that would be wrong there.
SAYS = {
    "compute.matrix.roof": ("less or cheaper work", "another kernel"),
    "compute.matrix.below": ("another kernel, layout, library or shape", "cheaper work"),
    "compute.vector.roof": ("less or cheaper work", "another kernel"),
    "compute.vector.below": ("another kernel, layout, library or shape", "cheaper work"),
    "compute.unmodelled": ("no remedy can be derived", "helps"),
    "memory.device.roof": ("moving fewer bytes", "another kernel"),
    "memory.device.below": ("another kernel or layout", "fewer bytes"),
    "memory.page_faults": ("reusing memory", "fewer bytes"),
    "memory.copies": ("fewer or overlapped copies", "fusing"),
    "memory.network": ("communication", "fusing"),
    "memory.network_wait": ("communication", "fusing"),
    "memory.unmodelled": ("no remedy can be derived", "helps"),
    "overhead.python": ("less python", "workers"),
    "overhead.asleep": ("has to be ready sooner", "torch.compile"),
    "overhead.dispatch": ("fewer ops", "workers"),
    "overhead.launch": ("fewer ops", "workers"),
    "overhead.kernel_gap": ("a faster host does not", "cuda graph"),
    "overhead.synchronisation": (".item()", "torch.compile"),
    "overhead.data_loading": ("producing batches", "torch.compile"),
    "overhead.allocation": ("out=", "torch.compile"),
    "overhead.compilation": ("marked dynamic", "larger batch"),
    "overhead.garbage_collection": ("gc.freeze()", "torch.compile"),
    "overhead.kernel_fixed_cost": ("fewer ops", "workers"),
    "overhead.unexplained": ("no remedy can be derived", "helps"),
    "unmodelled": ("no remedy can be derived", "helps"),
}


def test_the_table_is_of_all_leaves():
    assert set(SAYS) == set(LEAVES)


@pytest.mark.parametrize("leaf", LEAVES)
def test_each_leaf_has_its_own_advice(made, leaf):
    diagnosis = made({leaf: 1.0})
    said = remedy_of(diagnosis, leaf.partition(".")[0])
    says, never = SAYS[leaf]
    assert says in said.lower()
    assert never not in said.lower()
    assert said[0].isupper() and said.endswith(".") and "  " not in said and ".." not in said
    assert said in verdict_of(diagnosis)


@pytest.mark.parametrize("level", ["compute", "memory", "overhead", "unmodelled"])
def test_nothing_is_said_of_a_level_that_takes_nothing(made, level):
    other = "overhead.python" if level != "overhead" else "compute.matrix.roof"
    assert remedy_of(made({other: 1.0}), level) == ""


def test_the_two_largest_parts_speak_and_a_small_one_does_not(made):
    said = remedy_of(
        made({"overhead.asleep": 0.5, "overhead.dispatch": 0.4, "overhead.allocation": 0.1}),
        "overhead",
    )
    assert said.startswith("What the thread waits for has to be ready sooner")
    assert "fewer ops" in said
    assert "out=" not in said


def test_fewer_ops_are_advised_once(made):
    said = remedy_of(made({"overhead.python": 0.6, "overhead.dispatch": 0.4}), "overhead")
    assert said.startswith("Less Python helps; fewer ops")
    assert said.count("torch.compile") == 1


def test_who_sleeps_is_told_where_and_not_to_use_less_python(made):
    diagnosis = made({"overhead.asleep": 0.8, "compute.matrix.roof": 0.2})
    diagnosis.idle = [IdleRow(cause="asleep", time_s=0.8, source="queue.py:12 in fetch")]
    said = verdict_of(diagnosis)
    assert "sleeping (a lock, a timer, a file) takes 80 %, most of it at queue.py:12" in said
    assert "What the thread waits for at queue.py:12 has to be ready sooner" in said
    assert "torch.compile" not in said and "larger batch" not in said


@pytest.mark.parametrize(
    ("detail", "says", "never"),
    [
        ("_SingleProcessDataLoaderIter", "num_workers", "keep up"),
        ("_MultiProcessingDataLoaderIter", "workers do not keep up", "num_workers"),
        ("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "keep up", "num_workers"),
        (None, "in workers or ahead of it", "keep up"),
    ],
)
def test_a_loader_with_workers_is_not_told_to_get_workers(made, detail, says, never):
    diagnosis = made({"overhead.data_loading": 1.0})
    diagnosis.idle = [
        IdleRow(cause="data_loading", time_s=0.9, source="data.py:5 in __getitem__", detail=detail)
    ]
    said = remedy_of(diagnosis, "overhead")
    assert says in said and never not in said
    # Workers run it in processes of their own: the line is the one that waits for them.
    where = "" if says.endswith("keep up") else " at data.py:5"
    assert f"a cheaper __getitem__{where}, data kept" in said


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([("aten::mul_", "optimizer", 60), ("aten::mm", "forward", 40)], "60 of the 100 ops"),
        ([("aten::_fused_adamw_", "optimizer", 60), ("aten::mm", "forward", 40)], None),
        ([("aten::mul_", "optimizer", 10), ("aten::mm", "forward", 90)], None),
        ([("aten::mm", "forward", 90)], None),
    ],
    ids=["its ops", "fused already", "few", "none"],
)
def test_a_fused_optimizer_is_named_where_the_ops_are_its(data, made, rows, says):
    diagnosis = made({"overhead.dispatch": 1.0})
    like = load(data / "training.json").ops[0]
    diagnosis.ops = [
        replace(like, name=name, phase=phase, count=count) for name, phase, count in rows
    ]
    said = remedy_of(diagnosis, "overhead")
    assert ("fused optimizer" in said) == (says is not None)
    assert says is None or says in said
    diagnosis.step.fused_optimizer = False
    assert "fused optimizer" not in remedy_of(diagnosis, "overhead")


def test_what_is_compiled_is_not_told_to_be(made):
    diagnosis = made({"overhead.python": 1.0})
    assert "torch.compile" in remedy_of(diagnosis, "overhead")
    diagnosis.timeline = TimelineColumns(names=["Torch-Compiled Region: 0/0"])
    assert "torch.compile" not in remedy_of(diagnosis, "overhead")


def test_graphs_are_for_gpus(made):
    diagnosis = made({"overhead.launch": 1.0})
    assert diagnosis.device.kind == "cpu" and "CUDA graph" not in remedy_of(diagnosis, "overhead")
    diagnosis.device.kind = "cuda"
    assert "CUDA graph" in remedy_of(diagnosis, "overhead")


def test_a_step_of_cuda_graphs_is_told_of_no_other(made):
    diagnosis = made({"overhead.launch": 1.0})
    diagnosis.device.kind = "cuda"
    diagnosis.counters |= {"kernels": 100.0, "graph_kernels": 50.0}
    assert "CUDA graph" in verdict_of(diagnosis)
    diagnosis.counters |= {"graph_kernels": 100.0}
    assert "CUDA graph" not in verdict_of(diagnosis)


@pytest.mark.parametrize("retries", [0.0, 2.0])
def test_a_gpus_allocator_is_helped_by_other_segments_and_not_by_buffers(made, retries):
    diagnosis = made({"overhead.allocation": 1.0})
    diagnosis.device.kind = "cuda"
    diagnosis.counters |= {"allocator_retries": retries}
    said = verdict_of(diagnosis)
    assert "expandable_segments:True" in said and "out=" not in said
    assert ("less memory" in said) is bool(retries)


@pytest.mark.parametrize(("ratio", "says"), [(1.9, "bfloat16, at 1.90x the peak rate"),
                                             (1.1, None)])  # fmt: skip
def test_another_dtype_is_named_where_it_is_faster_here(made, ratio, says):
    diagnosis = made({"compute.matrix.roof": 1.0})
    diagnosis.mfu_dtype = "float32"
    diagnosis.device.ceilings = [
        Ceiling(name=f"matrix.{name}", value=rate, unit="FLOP/s", how="measured", source="")
        for name, rate in (("float32", 1e11), ("bfloat16", ratio * 1e11))
    ]
    said = remedy_of(diagnosis, "compute")
    assert says in said if says else "bfloat16" not in said
    diagnosis.mfu_dtype = "bfloat16"
    assert "whose products" not in remedy_of(diagnosis, "compute")


@pytest.mark.parametrize("part", ["roof", "below"])
@pytest.mark.parametrize(("rate", "says"), [(1e10, "float32, whose products run at 10.00x the rate "
                                                   "of bfloat16 here"), (9e10, None)])  # fmt: skip
def test_float32_is_named_where_a_processor_has_no_instructions_for_bfloat16(
    made, part, rate, says
):
    diagnosis = made({f"compute.matrix.{part}": 1.0})
    diagnosis.mfu_dtype = "bfloat16"
    diagnosis.device.ceilings = [
        Ceiling(name=f"matrix.{name}", value=value, unit="FLOP/s", how="measured", source="")
        for name, value in (("float32", 1e11), ("bfloat16", rate), ("float16", 1.3 * rate))
    ]
    said = remedy_of(diagnosis, "compute")
    assert says in said if says else "float32" not in said


@pytest.mark.parametrize(
    ("kind", "dtype", "rate", "says"),
    [
        ("trace", "float32", 5e13, "tf32 if it is not on, at 8.00x"),
        ("script", "float32", 5e13, "tf32, at 8.00x"),
        ("trace", "float32", 2e14, None),
        ("script", "tf32", 5e13, None),
    ],
    ids=["a trace does not say", "off", "faster than float32 can be", "named"],
)
def test_tf32_is_advised_where_it_may_be_off(made, data, kind, dtype, rate, says):
    diagnosis, (row, *_) = made({"compute.matrix.roof": 1.0}), load(data / "training.json").ops
    diagnosis.mfu_dtype, diagnosis.source = "float32", {"kind": kind}
    diagnosis.device.ceilings = [
        Ceiling(name=f"matrix.{name}", value=value, unit="FLOP/s", how="datasheet", source="")
        for name, value in (("float32", 6e13), ("tf32", 4.8e14))
    ]
    diagnosis.ops = [replace(row, regime="compute", unit="matrix", dtype=dtype, flops_per_s=rate)]
    said = remedy_of(diagnosis, "compute")
    assert says in said if says else "tf32" not in said


@pytest.mark.parametrize(("second_s", "first"), [(0.29, True), (0.3, False)])
def test_one_of_equals_has_not_the_most_below_its_ceiling(made, data, second_s, first):
    diagnosis, (row, *_) = made({"compute.matrix.below": 1.0}), load(data / "training.json").ops
    row = replace(row, regime="compute", page_faults_s=0.0)
    diagnosis.ops = [
        replace(row, shapes=f"({i},8)", time_s=time_s, kernel_s=time_s, below_s=below_s)
        for i, (time_s, below_s) in enumerate([(0.4, 0.0), (0.3, 0.3), (0.3, second_s)])
    ]
    assert ("the most time below the ceiling is in" in verdict_of(diagnosis)) is first


def test_what_an_op_has_of_another_level_is_not_told_as_its_level(made, data):
    diagnosis = made({"memory.device.below": 0.64, "compute.vector.below": 0.36})
    row = load(data / "training.json").ops[0]
    diagnosis.ops = [replace(row, regime="memory", time_s=0.69, kernel_s=0.69, below_s=None)]
    assert "alone takes 64 % of the step" in verdict_of(diagnosis)


def fusion(saved_s):
    return Finding(
        fix="fusion", because="", title="Fuse",
        prediction=Prediction(low_s=0.0, expected_s=saved_s, high_s=saved_s, speedup=1.1),
    )  # fmt: skip


def test_fusing_is_named_where_something_can_be_fused(made):
    diagnosis = made({"memory.device.roof": 0.6, "memory.device.below": 0.4})
    assert "fusing" not in remedy_of(diagnosis, "memory")
    diagnosis.findings = [fusion(0.08), fusion(0.04)]
    said = remedy_of(diagnosis, "memory")
    assert "up to 12 % of the step" in said
    assert "or fusing ops," in said


def tried(fix, verdict, ratio):
    return Finding(
        fix=fix, because="", prediction=None, saving_s=0.0,
        verification=Verification(
            fixes=[fix], verdict=verdict,
            speedup=Ratio(median=ratio, low=ratio - 0.02, high=ratio + 0.02),
        ),
    )  # fmt: skip


def test_what_was_tried_without_a_gain_is_advised_no_more(made):
    diagnosis = made({"overhead.dispatch": 0.51, "compute.matrix.roof": 0.49})
    diagnosis.verdict = verdict_of(diagnosis)
    assert "torch.compile" in diagnosis.verdict and "larger batch" in diagnosis.verdict
    diagnosis.findings = [tried("compile", "slower", 0.9)]
    diagnosis.fixes = FixSummary(ruled_out={"larger_batch": "too little"})
    diagnosis.verdict = verdict_of(diagnosis)
    assert "compile was tried here and did not prove faster." in diagnosis.verdict
    assert "torch.compile" not in diagnosis.verdict and "larger batch" not in diagnosis.verdict
    assert "fewer ops, or more work for each, help" in diagnosis.verdict.lower()


def test_what_a_search_ranks_first_the_verdict_does_too(made):
    diagnosis = made({"compute.matrix.roof": 0.51, "overhead.dispatch": 0.49})
    diagnosis.verdict = verdict_of(diagnosis)
    best = tried("fused_optimizer", "faster", 1.22)
    diagnosis.findings = [best, tried("compile", "same", 1.0)]
    diagnosis.fixes = FixSummary(best=["fused_optimizer"], verification=best.verification)
    diagnosis.verdict = verdict_of(diagnosis)
    assert "fused_optimizer helps most: 1.22x (1.20 to 1.24)." in diagnosis.verdict
    assert "torch.compile" not in diagnosis.verdict


def test_nothing_helped(made):
    diagnosis = made({"compute.matrix.roof": 1.0})
    diagnosis.findings = [tried("compile", "same", 1.0), tried("channels_last", "slower", 0.8)]
    diagnosis.fixes = FixSummary()
    assert "None of the 2 changes tried here proved faster." in verdict_of(diagnosis)


def test_without_a_regime_there_is_no_verdict(made):
    diagnosis = made({"compute.matrix.roof": 1.0})
    diagnosis.regime = None
    assert verdict_of(diagnosis) == ""


def test_a_large_part_of_another_level_has_its_advice_beside_it(made):
    diagnosis = made({"compute.unmodelled": 0.6, "overhead.data_loading": 0.3,
                      "overhead.python": 0.1})  # fmt: skip
    said = verdict_of(diagnosis)
    assert (
        "No remedy can be derived for kernels without a work formula or a ceiling. In add" in said
    )
    assert "In addition, 30 % goes to waiting for data. Producing batches faster helps: " in said
    assert said.count("Producing batches") == 1


def test_levels_of_one_remedy_have_it_once(made):
    said = verdict_of(made({"compute.unmodelled": 0.51, "memory.unmodelled": 0.49}))
    assert said.count("No remedy can be derived") == 1


def test_advice_that_a_close_level_gave_is_not_given_again(made):
    diagnosis = made({"memory.network": 0.51, "overhead.data_loading": 0.49})
    said = verdict_of(diagnosis)
    assert "In addition, 49 % goes to waiting for data." in said
    assert said.count("roducing batches faster helps") == 1


def test_an_op_of_many_shapes_is_named_as_a_whole(made, data):
    # As in a mixture of experts: each expert gets another number of tokens.
    diagnosis = made({"compute.matrix.below": 1.0})
    row = load(data / "training.json").ops[0]
    diagnosis.ops = [
        replace(
            row,
            name="aten::mm",
            regime="compute",
            shapes=f"({n},8)x(8,8)",
            time_s=0.02,
            kernel_s=0.02,
            page_faults_s=0.0,
        )
        for n in range(40)
    ]
    assert "aten::mm takes 80 % of the step, on 40 different shapes." in verdict_of(diagnosis)
    diagnosis.ops[0].time_s = diagnosis.ops[0].kernel_s = 0.2
    assert "aten::mm (0,8)x(8,8) alone takes 20 % of the step" in verdict_of(diagnosis)


@pytest.mark.parametrize(("unmodelled_s", "said"), [(0.0, True), (0.4, False)])
def test_of_kernels_that_nothing_is_known_of_nothing_is_promised(made, unmodelled_s, said):
    """They may be compute or memory: what these take is then not known."""
    found = made(
        {"overhead.dispatch": 0.6 - 0.5 * unmodelled_s, "compute.vector.below": 0.03,
         "unmodelled": unmodelled_s}
    )  # fmt: skip
    found.regime = "overhead"
    assert ("would save no more" in verdict_of(found)) is said


SIZES = [(20e-6, 1e-4, True), (20e-6, 0.5, False), (1e-3, 1e-4, False)]


@pytest.mark.parametrize("leaf", ["compute.matrix.below", "memory.device.below"])
@pytest.mark.parametrize(("kernel_s", "roof", "small"), SIZES)
def test_kernels_too_small_for_a_ceiling_are_said_to_be_so(made, data, leaf, kernel_s, roof, small):
    diagnosis, (row, *_) = made({leaf: 1.0}), load(data / "training.json").ops
    diagnosis.device = replace(diagnosis.device, kind="cuda")
    level = leaf.partition(".")[0]
    diagnosis.ops = [replace(row, regime=level, count=1, kernel_s=kernel_s, roof_fraction=roof)]
    assert ("too small" in remedy_of(diagnosis, level)) is small
