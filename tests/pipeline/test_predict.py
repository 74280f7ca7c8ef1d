"""Predictions: a diagnosis of a step that has not run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

import gobrrr  # noqa: E402
from gobrrr.attribution.attributed import READ_OF_ONE_VALUE  # noqa: E402
from gobrrr.devices.datasheet import all_datasheets  # noqa: E402
from gobrrr.pipeline.predict import predict  # noqa: E402
from gobrrr.prediction.capture_target import capture_target  # noqa: E402
from gobrrr.prediction.kernels.target import target_device  # noqa: E402
from gobrrr.prediction.step.compiled_host import entering  # noqa: E402
from gobrrr.timeline.errors import InputError  # noqa: E402

pytestmark = pytest.mark.torch


def training(width: int, batch: int) -> gobrrr.Workload:
    with torch.device("meta"):
        model = nn.Sequential(
            nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width), nn.Linear(width, 10)
        )
        inputs, targets = torch.empty(batch, width), torch.empty(batch, dtype=torch.long)
    optimizer = torch.optim.AdamW(model.parameters())
    return gobrrr.Workload(model, inputs, functional.cross_entropy, optimizer, targets)


def test_a_prediction_is_a_diagnosis() -> None:
    found = predict(training(256, 64), "H100-SXM")
    found.check()
    assert found.source["kind"] == "prediction"
    assert found.step.kind == "training step"
    assert found.step.time_s.n == 0
    assert {row.how for row in found.device.ceilings} == {"datasheet"}
    assert found.coverage.modelled_time_fraction == pytest.approx(1.0)
    assert found.speed_of_light_s is not None
    assert 0 < found.speed_of_light_s < found.step_s
    for table in (found.modules, found.lines, found.phases, found.classes):
        assert sum(row.time_s for row in table) == pytest.approx(found.step_s, rel=1e-6)


def test_it_can_be_saved_and_shown(tmp_path: object) -> None:
    found = predict(training(256, 64), "A100-SXM-80GB", name="net")
    path = found.save(f"{tmp_path}/d.json")
    assert gobrrr.load(path).step_s == found.step_s
    assert "predicted" in str(found)
    assert "net" in str(found)


def test_small_steps_are_overhead_and_large_ones_are_not() -> None:
    small, large = predict(training(64, 1), "H100-SXM"), predict(training(8192, 8192), "H100-SXM")
    assert small.regime == "overhead"
    assert large.regime == "compute"
    # 2 products of 8192^3 (the inputs need no gradient, the second layer is thin), 2 FLOPs each,
    # at 66.9 TFLOP/s: 33 ms.
    assert large.step_s > 2 * 2 * 8192**3 / 66.9e12


def test_a_host_that_decides_the_step_is_not_called_hidden() -> None:
    """One that takes as good as no longer than the device: nothing of it is seen."""
    with torch.device("meta"):
        model = nn.Sequential(*(nn.Linear(4096, 4096) for _ in range(8))).eval()
        x = torch.empty(1, 4096)

    def step() -> object:
        with torch.no_grad():
            for part in model:
                part(x).relu()
        return None

    found = predict(step, "H100-SXM")
    ratio = found.source["host_s"] / found.step_s
    assert 0.9 < ratio < 0.99
    assert found.source["host_bound"]
    said = " ".join(found.notices)
    assert "per step, longer than the device's" in said
    assert "per step, hidden behind the device" not in said


def test_what_the_host_is_taken_to_cost_is_said() -> None:
    found = predict(training(8192, 8192), "H100-SXM")
    (said,) = (notice for notice in found.notices if notice.startswith("Assumed host time: "))
    assert "hidden behind the device" in said
    assert found.source["host_bound"] is False
    time = found.step.time_s
    assert time.high is not None
    assert time.low < found.step_s < time.high


def test_a_step_that_the_host_binds_has_the_interval_of_hosts() -> None:
    found = predict(training(64, 1), "H100-SXM")
    assert found.source["host_bound"] is True
    assert found.device_time is not None
    assert found.device_time.busy_s < found.source["host_s"]
    assert found.step_s == pytest.approx(found.source["host_s"], rel=1e-3)
    time = found.step.time_s
    assert time.high is not None
    # From hosts faster than the one assumed to those of several times that.
    assert 0.6 * found.step_s < time.low < found.step_s
    assert 2 * found.step_s < time.high
    said = " ".join(found.notices)
    assert "the step is host-bound" in said
    assert "--host-overhead says how many times yours does" in said
    # Errors of kernels are not what it may be off by.
    assert "Interval: " not in said
    assert "predicted, host-bound, " in str(found).splitlines()[1]


def test_files_with_lower_bounds_are_still_read(tmp_path: Path) -> None:
    path = predict(training(64, 1), "H100-SXM").save(tmp_path / "d.json")
    record = json.loads(path.read_text())
    record["step"]["time_s"]["high"] = None
    path.write_text(json.dumps(record))
    again = gobrrr.load(path)
    assert again.step.time_s.high is None
    assert "or more" in str(again).splitlines()[1]
    assert "or more" in again._repr_html_()


def test_a_compiled_step_pays_for_entering_compiled_code() -> None:
    work = training(64, 1)
    eager, compiled = predict(work, "H100-SXM"), predict(work, "H100-SXM", compile=True)
    assert eager.source["host_bound"] and compiled.source["host_bound"]
    said = [
        next(note for note in found.notices if note.startswith("Assumed host time: "))
        for found in (eager, compiled)
    ]
    assert all("what comes before each pass and update" in note for note in said)
    # Guards, one node of autograd around each pass, gradients handed over one by one.
    cost = entering(parameters=6, trains=True, records=True)
    fewer_s = compiled.source["host_s"] - cost.forward_s - cost.backward_s
    assert 0 < fewer_s < eager.source["host_s"]


def test_a_prediction_says_that_its_rates_are_not_those_of_the_sheet() -> None:
    step = (nn.Linear(64, 64), torch.empty(8, 64))
    geforce, datacenter = predict(step, ["RTX-4090", "L40S"])
    assert any("Rates of RTX-4090 are 1.09 times" in n for n in geforce.notices)
    assert not any("Rates of" in n for n in datacenter.notices)


def test_a_tiny_product_is_latency_and_not_traffic() -> None:
    with torch.device("meta"):
        small = (nn.Linear(64, 64), torch.empty(8, 64))
        large = (nn.Linear(8192, 8192), torch.empty(8, 8192))
    found = predict(small, "A100-SXM-80GB")
    (row,) = (row for row in found.ops if row.name == "aten::addmm")
    assert row.regime == found.regime == "overhead"
    # 8 rows by 8192 x 8192 weights: 268 MB at 2 TB/s are 0.13 ms, far beyond any latency.
    found = predict(large, "A100-SXM-80GB")
    (row,) = (row for row in found.ops if row.name == "aten::addmm")
    assert row.regime == found.regime == "memory"


def test_resnet_at_batch_one_is_bound_by_overhead() -> None:
    layers: list[nn.Module] = []
    with torch.device("meta"):
        for _ in range(16):
            layers += [nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()]
        model, x = nn.Sequential(*layers).eval(), torch.empty(1, 64, 56, 56)
    assert predict((model, x), "H100-SXM", inference_mode=True).regime == "overhead"


def test_several_devices_give_a_list() -> None:
    found = predict(training(4096, 4096), ["A100-SXM-80GB", "H100-SXM", "B200"])
    assert [d.source["device"] for d in found] == ["A100-SXM-80GB", "H100-SXM", "B200"]
    assert found[0].step_s > found[1].step_s > found[2].step_s


def test_autocast_makes_products_faster() -> None:
    work = training(8192, 8192)
    plain, mixed = predict(work, "H100-SXM"), predict(work, "H100-SXM", autocast=torch.bfloat16)
    assert mixed.step_s < plain.step_s / 2
    assert mixed.mfu_dtype == "bfloat16"


def test_fp32_products_have_no_tf32_by_default_and_convolutions_have() -> None:
    with torch.device("meta"):
        linear, x = nn.Linear(4096, 4096), torch.empty(4096, 4096)
        convolution, image = nn.Conv2d(256, 256, 3), torch.empty(32, 256, 56, 56)
    assert predict((linear, x), "H100-SXM").mfu_dtype == "float32"
    assert predict((convolution, image), "H100-SXM").mfu_dtype == "tf32"


def test_compiling_fuses_what_is_pointwise() -> None:
    x = torch.empty(4096, 4096, device="meta")

    def step() -> object:
        return (x.cos() * 2 + 1).sin()

    eager, compiled = predict(step, "H100-SXM"), predict(step, "H100-SXM", compile=True)
    assert eager.counters["kernels"] == 4
    assert compiled.counters["kernels"] == 1
    # Four kernels read and write 64 MiB each; one does it once.
    assert eager.counters["bytes"] == 4 * 2 * 4096 * 4096 * 4
    assert compiled.counters["bytes"] == 2 * 4096 * 4096 * 4
    assert compiled.step_s < eager.step_s / 2


def test_a_step_that_does_not_fit_is_refused_with_its_size() -> None:
    with torch.device("meta"):
        # 40 x 16384^2 x 4 B = 43 GB
        model = nn.Sequential(*(nn.Linear(16384, 16384, bias=False) for _ in range(40)))
        x = torch.empty(1, 16384)
    with pytest.raises(InputError, match=r"4\d(\.\d)? GB.*RTX-4090.*memory"):
        predict((model, x), "RTX-4090")
    several = predict((model, x), ["RTX-4090", "H100-SXM"])
    assert any("out of memory" in notice for notice in several[0].notices)
    assert not any("out of memory" in notice for notice in several[1].notices)


def test_an_unknown_device_is_told_with_the_closest() -> None:
    with pytest.raises(InputError, match="H100-SXM"):
        predict(training(8, 2), "H100-SX")


def test_a_dtype_without_a_path_is_told() -> None:
    a = torch.empty(64, 64, device="meta", dtype=torch.float8_e4m3fn)
    one = torch.ones((), device="meta")

    def step() -> object:
        return torch._scaled_mm(a, a.t(), one, one, out_dtype=torch.bfloat16)

    with pytest.raises(InputError, match="no matrix path for float8_e4m3fn on A100-SXM-80GB"):
        predict(step, "A100-SXM-80GB")
    assert predict(step, "H100-SXM").mfu_dtype == "float8_e4m3fn"


def test_bfloat16_without_a_unit_is_computed_in_float32() -> None:
    with torch.device("meta"):
        model, x = nn.Linear(1024, 1024, dtype=torch.bfloat16), torch.empty(64, 1024).bfloat16()
    found = predict((model, x), "V100-SXM2")
    assert any("No matrix path for bfloat16" in notice for notice in found.notices)
    assert found.mfu_dtype == "float32"


def test_copies_between_host_and_device_count() -> None:
    def step() -> object:
        return torch.ones(1 << 20).to("cuda") * 2

    found = predict(step, "H100-SXM")
    # 4 MiB over half of the 128 GB/s that both directions have together.
    assert found.leaves["memory.copies"] == pytest.approx((4 << 20) / 64e9)
    assert found.counters["copies"] == 1


def test_each_line_that_reads_a_value_is_named() -> None:
    x = torch.ones(64, 64)

    def step() -> float:
        first = x.sum().item()
        return first + x.sum().item()

    rows = [row for row in predict(step, "H100-SXM").ops if row.name == READ_OF_ONE_VALUE]
    assert len({row.source for row in rows} - {None}) == len(rows) == 2


def test_reading_a_result_makes_the_host_wait() -> None:
    x = torch.empty(4096, 4096)
    waiting = predict(lambda: (x @ x).sum().item(), "H100-SXM")
    running = predict(lambda: (x @ x).sum(), "H100-SXM")
    assert waiting.counters["synchronisations"] == 1
    assert running.leaves["overhead.synchronisation"] == 0
    assert waiting.step_s > running.step_s


def test_an_operator_without_a_formula_is_named_with_its_share() -> None:
    with torch.library._scoped_library("gobrrr_test", "FRAGMENT") as library:
        library.define("mystery(Tensor x) -> Tensor")
        library.impl("mystery", lambda x: x.clone(), "CPU")
        library.impl("mystery", torch.empty_like, "Meta")
        x = torch.randn(4096, 4096)
        found = predict(lambda: torch.ops.gobrrr_test.mystery(x).cos(), "H100-SXM")
    assert [row.op for row in found.coverage.unmodelled] == ["gobrrr_test::mystery"]
    assert found.leaves["unmodelled"] > 0
    assert any("gobrrr_test::mystery" in notice for notice in found.notices)


def test_programs_learn_what_each_sheet_says() -> None:
    for sheet in all_datasheets():
        seen = capture_target(target_device(sheet.key))
        if sheet.kind == "cpu":
            assert seen.answers is None
            continue
        assert seen.answers is not None
        assert seen.answers.name
        if sheet.kind == "cuda":
            assert seen.answers.capability >= (6, 0), sheet.key
            assert seen.answers.bfloat16 == (seen.answers.capability >= (8, 0))
            assert ("float16" in seen.abilities.flash_dtypes) == seen.answers.bfloat16


def test_a_step_without_operators_is_refused() -> None:
    with pytest.raises(InputError, match="no operator"):
        predict(lambda: 1, "H100-SXM")


def test_a_prediction_lists_what_fusion_would_save_and_a_compiled_one_has_done_it() -> None:
    import torch

    from gobrrr.pipeline.predict import predict
    from gobrrr.timeline.workload import Workload

    class Waves(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.cos().cos()

    work = Workload(Waves(), torch.randn(1 << 24))
    eager = predict(work, device="H100-SXM")
    compiled = predict(work, device="H100-SXM", compile=True)
    (found,) = eager.findings
    assert found.fix == "fusion"
    # Four tensors of 67 MB become two.
    assert "move 268 MB; one kernel would move 134 MB" in found.because
    assert compiled.findings == []
    assert compiled.step_s < 0.7 * eager.step_s


@pytest.mark.parametrize(
    ("owner", "value", "faster"),
    [("cuda.matmul", "tf32", True), ("", "tf32", True), ("cudnn.conv", "ieee", False)],
)
def test_tf32_by_either_interface(owner: str, value: str, faster: bool) -> None:
    setting = torch.backends
    for name in owner.split(".") if owner else ():
        setting = getattr(setting, name)
    if not hasattr(setting, "fp32_precision"):
        pytest.skip("this torch has allow_tf32 alone")
    a = torch.empty(2048, 2048, device="meta")
    former, products = setting.fp32_precision, torch.backends.cuda.matmul.fp32_precision
    # A value of its own, which the older interface leaves behind, stands before the general one.
    torch.backends.cuda.matmul.fp32_precision = "none"
    setting.fp32_precision = "ieee"
    try:
        before = predict(lambda: a @ a, "A100-SXM-80GB").step_s
        setting.fp32_precision = value
        after = predict(lambda: a @ a, "A100-SXM-80GB").step_s
    finally:
        setting.fp32_precision = former
        torch.backends.cuda.matmul.fp32_precision = products
    assert (after < before) is faster


def test_the_first_line_says_what_a_prediction_rests_on() -> None:
    x = torch.randn(64, 64)

    def step() -> object:
        return x @ x if x.sum() > 0 else x.sin()

    plain = gobrrr.predict(lambda: x @ x, "H100-SXM")
    assumed = gobrrr.predict(step, "H100-SXM")
    assert "notice" not in plain.verdict
    first = assumed.verdict.partition(". ")[0]
    assert first.endswith("-bound, provided that the first notice holds")
    assert "condition on data is assumed to be false" in assumed.notices[0]


def test_a_host_that_reads_results_waits_for_the_device_too() -> None:
    x = torch.empty(1024, 1024)

    def step() -> float:
        y = x
        for _ in range(20):
            for _ in range(6):
                y = y.mul(1.0)
            y.sum().item()
        return 0.0

    found = predict(step, "H100-SXM")
    assert found.source["host_bound"] is True
    assert found.step_s > 1.1 * found.source["host_s"]
    said = " ".join(found.notices)
    assert "takes at least as long as the program's host needs" in said


def test_the_host_is_told_as_uncertain_where_it_may_decide() -> None:
    bound, busy = predict(training(64, 1), "H100-SXM"), predict(training(16384, 8192), "H100-SXM")
    first, *_ = bound.source["uncertain"]
    assert first.startswith("host: ") and "--host-overhead" in first
    assert str(bound.source["least_certain"][0]).startswith("host ")
    # Far behind the device it may take several times as long.
    assert not any(text.startswith("host: ") for text in busy.source["uncertain"])
