from __future__ import annotations

import re
from itertools import pairwise

import pytest

from gobrrr.devices.datasheet import (
    all_datasheets,
    ceilings_from_datasheet,
    ceilings_of_sheet,
    closest_devices,
    find_datasheet,
)
from gobrrr.devices.datasheets.sheet import DeviceSheet

# Dense matrix FLOPs per clock and multiprocessor for float16, a multiply-add counting two. Twice
# the number would be the rate with 2:4 sparsity, which vendors print largest.
FLOAT16_PER_CLOCK = {
    "Volta": 1024,
    "Turing": 1024,
    "Ampere GA100": 2048,
    "Ampere GA10x": 1024,
    "Ampere GA10x half-rate": 512,
    "Ampere GA10B": 2048,
    "Ada": 1024,
    "Ada half-rate": 512,
    "Ada capped": 512,
    "Hopper": 4096,
    "Blackwell": 8192,
    "Blackwell Ultra": 8192,
    "RTX Blackwell": 1024,
    "RTX Blackwell half-rate": 512,
    "CDNA 1": 1024,
    "CDNA 2": 1024,
    "CDNA 3": 2048,
    "CDNA 4": 4096,
    "Xe HPC": 4096,
}
# float32 FLOPs per clock and multiprocessor outside the matrix units.
FLOAT32_PER_CLOCK = {
    "Volta": 128,
    "Turing": 128,
    "Ampere GA100": 128,
    "CDNA 1": 128,
    "CDNA 2": 128,
}
FLOAT32_PER_CLOCK_OF_OTHERS = 256

# Matrix rates relative to float16, by architecture family. A sparse figure among dense ones, or a
# rate of one accumulator width among those of the other, is off by two.
RATIOS: dict[str, dict[str, float]] = {
    "Volta": {},
    "Turing": {"int8": 2},
    "Ampere": {"bfloat16": 1, "tf32": 1 / 2, "int8": 2},
    "Ampere half": {"bfloat16": 1, "tf32": 1 / 2, "int8": 4},
    "Ada": {"bfloat16": 1, "tf32": 1 / 2, "int8": 2, "float8_e4m3fn": 2},
    "Ada half": {"bfloat16": 1, "tf32": 1 / 2, "int8": 4, "float8_e4m3fn": 2},
    "Hopper": {"bfloat16": 1, "tf32": 1 / 2, "int8": 2, "float8_e4m3fn": 2, "float8_e5m2": 2},
    "Blackwell": {"bfloat16": 1, "tf32": 1 / 2, "int8": 2, "float8_e4m3fn": 2},
    "Blackwell Ultra": {"bfloat16": 1, "tf32": 1 / 2, "float8_e4m3fn": 2, "float4_e2m1fn_x2": 6},
    "CDNA 1": {"bfloat16": 1 / 2, "int8": 1, "float32": 1 / 4},
    "CDNA 2": {"bfloat16": 1, "int8": 1, "float32": 1 / 4, "float64": 1 / 4},
    "CDNA 3": {"bfloat16": 1, "int8": 2, "tf32": 1 / 2, "float32": 1 / 8, "float64": 1 / 8},
    "CDNA 4": {"bfloat16": 1, "int8": 2, "float8_e4m3fn": 2, "float32": 1 / 16},
    "Xe HPC": {"bfloat16": 1, "int8": 2, "tf32": 1 / 2},
}
FAMILY = {
    "Ampere GA100": "Ampere",
    "Ampere GA10x": "Ampere",
    "Ampere GA10B": "Ampere",
    "Ada half-rate": "Ada half",
    "Ada capped": "Ada",
    "RTX Blackwell": "Blackwell",
    "RTX Blackwell half-rate": "Ada half",
}
# The A10G sheet states int8 at twice float16, the GeForce paper at four times.
EXCEPTIONS = {"A10G": {"int8": 2.0}}

SHEETS = {sheet.key: sheet for sheet in all_datasheets()}
GPUS = [sheet for sheet in SHEETS.values() if sheet.architecture in FLOAT16_PER_CLOCK]


def test_keys_are_unique() -> None:
    keys = [sheet.key for sheet in all_datasheets()]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("sheet", GPUS, ids=lambda sheet: sheet.key)
def test_matrix_rates_are_dense(sheet: DeviceSheet) -> None:
    clock = sheet.matrix_clock_hz or sheet.clock_hz
    assert clock is not None
    assert sheet.multiprocessors is not None
    per_clock = sheet.matrix["float16"].value / (clock.value * sheet.multiprocessors.value)
    # 3 %: sheets round, and clocks are stated to the megahertz.
    assert per_clock == pytest.approx(FLOAT16_PER_CLOCK[sheet.architecture], rel=0.03)


@pytest.mark.parametrize("sheet", GPUS, ids=lambda sheet: sheet.key)
def test_vector_rate_is_lanes_times_clock(sheet: DeviceSheet) -> None:
    assert sheet.clock_hz is not None
    assert sheet.multiprocessors is not None
    per_clock = sheet.vector["float32"].value / (sheet.clock_hz.value * sheet.multiprocessors.value)
    expected = FLOAT32_PER_CLOCK.get(sheet.architecture, FLOAT32_PER_CLOCK_OF_OTHERS)
    assert per_clock == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("sheet", GPUS, ids=lambda sheet: sheet.key)
def test_ratios_between_dtypes_are_the_familys(sheet: DeviceSheet) -> None:
    family = FAMILY.get(sheet.architecture, sheet.architecture)
    family = "Ampere half" if family == "Ampere GA10x half-rate" else family
    expected = {**RATIOS[family], **EXCEPTIONS.get(sheet.key, {})}
    half = sheet.matrix["float16"].value
    for dtype, ratio in expected.items():
        assert sheet.matrix[dtype].value / half == pytest.approx(ratio, rel=0.03), dtype


@pytest.mark.parametrize("sheet", list(SHEETS.values()), ids=lambda sheet: sheet.key)
def test_every_number_is_positive_and_says_where_it_is_from(sheet: DeviceSheet) -> None:
    rows = ceilings_of_sheet(sheet).rows
    assert rows
    for row in rows.values():
        assert row.value > 0, row.name
        assert row.how == "datasheet"
        assert "https://" in row.source, row.name


@pytest.mark.parametrize("sheet", list(SHEETS.values()), ids=lambda sheet: sheet.key)
def test_levels_grow_and_slow_down(sheet: DeviceSheet) -> None:
    levels = ceilings_of_sheet(sheet).levels
    assert levels[-1].name == "dram"
    assert levels[-1].capacity_bytes is None
    for smaller, larger in pairwise(levels):
        assert smaller.bandwidth_bytes_per_s(0.5) > larger.bandwidth_bytes_per_s(0.5)
    held = [level.capacity_bytes for level in levels if level.capacity_bytes is not None]
    assert held == sorted(held)


# Boards whose power the vendor leaves to whoever builds them in, states with a processor's (GH200),
# or does not state.
POWER_NOT_STATED = {
    "Jetson-AGX-Orin-64GB", "GH200-96GB", "GH200-144GB", "MI308X", "TPU-v5e", "TPU-v5p",
    "TPU-v6e", "Trainium2",
}  # fmt: skip


def test_clocks_and_power_of_boards_are_in_order() -> None:
    without = set()
    for sheet in SHEETS.values():
        if sheet.kind in ("cpu", "mps"):
            continue
        if sheet.board_power_w is None:
            without.add(sheet.key)
        else:
            # From a slot's 70 W to a superchip's 1400 W.
            assert 70 <= sheet.board_power_w.value <= 1400, sheet.key
            assert "https://" in sheet.board_power_w.source, sheet.key
        if sheet.base_clock_hz is not None:
            assert sheet.clock_hz is not None
            assert 0.3 * sheet.clock_hz.value < sheet.base_clock_hz.value < sheet.clock_hz.value
            assert "https://" in sheet.base_clock_hz.source
    assert without == POWER_NOT_STATED


@pytest.mark.parametrize("sheet", list(SHEETS.values()), ids=lambda sheet: sheet.key)
def test_rates_grow_as_formats_get_narrower(sheet: DeviceSheet) -> None:
    """No chip multiplies wide numbers faster than narrow ones."""
    order = ("float64", "float32", "tf32", "bfloat16", "float8_e4m3fn", "float4_e2m1fn_x2")
    for rates in (sheet.matrix, sheet.vector):
        stated = [rates[dtype].value for dtype in order if dtype in rates]
        assert stated == sorted(stated), sheet.key
    for dtype in ("float16", "bfloat16"):
        if dtype in sheet.matrix and dtype in sheet.vector:
            assert sheet.matrix[dtype].value >= sheet.vector[dtype].value


@pytest.mark.parametrize("sheet", list(SHEETS.values()), ids=lambda sheet: sheet.key)
def test_memory_can_be_read_in_a_fraction_of_a_second(sheet: DeviceSheet) -> None:
    """A size in another unit than the bandwidth, or a figure of two devices, stands out."""
    if sheet.memory_bytes is None:
        return
    # From 8 GB of fast memory to 512 GB shared with a processor.
    seconds = sheet.memory_bytes.value / sheet.memory_bytes_per_s.value
    assert 0.008 < seconds < 0.7, sheet.key


def test_export_variants_are_their_originals_but_for_links_and_float64() -> None:
    for variant, original in (
        ("A800-SXM-80GB", "A100-SXM-80GB"), ("A800-PCIe-80GB", "A100-PCIe-80GB"),
        ("H800-SXM", "H100-SXM"), ("H800-PCIe", "H100-PCIe"),
    ):  # fmt: skip
        slow, fast = SHEETS[variant], SHEETS[original]
        assert slow.matrix["bfloat16"].value == fast.matrix["bfloat16"].value
        assert slow.memory_bytes_per_s.value == fast.memory_bytes_per_s.value
        assert slow.interconnect["nvlink"].value < fast.interconnect["nvlink"].value
    assert SHEETS["H800-SXM"].matrix["float64"].value == 1e12
    # Capped chips stay below what their multiprocessors would do: 78 x 4096 x 1.98 GHz.
    assert SHEETS["H20"].matrix["float16"].value < 0.25 * 78 * 4096 * 1.98e9


def test_the_32_gb_of_a_card_are_all_that_differs() -> None:
    for small, large in (("V100-SXM2", "V100-SXM2-32GB"), ("V100-PCIe", "V100-PCIe-32GB")):
        of_small, of_large = SHEETS[small], SHEETS[large]
        assert of_small.memory_bytes is not None and of_large.memory_bytes is not None
        assert of_large.memory_bytes.value == 2 * of_small.memory_bytes.value
        assert of_large.vector == of_small.vector and of_large.matrix == of_small.matrix
        assert of_large.board_power_w == of_small.board_power_w


def test_every_nvidia_gpu_evaluates_exponentials_by_units_and_clock() -> None:
    """A device without the rate would have them for nothing, and beat a better one."""
    for sheet in SHEETS.values():
        if sheet.kind != "cuda":
            continue
        assert sheet.exp_per_s is not None, sheet.key
        assert sheet.multiprocessors is not None and sheet.clock_hz is not None
        per_clock = sheet.exp_per_s.value / (sheet.multiprocessors.value * sheet.clock_hz.value)
        double = sheet.architecture in ("Blackwell Ultra", "Pascal GP104")
        assert per_clock == pytest.approx(32 if double else 16, rel=0.01), sheet.key
    exps = [SHEETS[key].exp_per_s for key in ("B200", "GB200", "B300", "GB300")]
    rates = [figure.value for figure in exps if figure is not None]
    assert rates == sorted(rates)


def test_the_h20_does_what_its_multiprocessors_do() -> None:
    h20 = SHEETS["H20"]
    # 78 x 256 x 1.98 GHz = 39.5 TFLOP/s
    assert h20.clock_hz is not None and h20.multiprocessors is not None
    per_clock = h20.vector["float32"].value / (h20.clock_hz.value * h20.multiprocessors.value)
    assert per_clock == pytest.approx(256, rel=0.01)


def test_chips_behind_a_compiler_say_that_pytorch_there_is_not_modelled() -> None:
    for key in ("TPU-v4", "TPU-v5e", "TPU-v5p", "TPU-v6e", "Trainium2"):
        assert SHEETS[key].kind == "xla"
        assert "That is not modelled" in SHEETS[key].note


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("NVIDIA H100 80GB HBM3", "H100-SXM"),
        ("NVIDIA H100 PCIe", "H100-PCIe"),
        ("NVIDIA H100 NVL", "H100-NVL"),
        ("NVIDIA H200", "H200-SXM"),
        ("NVIDIA B200", "B200"),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM-80GB"),
        ("NVIDIA A100-SXM4-40GB", "A100-SXM-40GB"),
        ("NVIDIA A100-PG509-200", "A100-SXM-40GB"),
        ("NVIDIA A100 80GB PCIe", "A100-PCIe-80GB"),
        ("Tesla V100-SXM2-16GB", "V100-SXM2"),
        ("Tesla V100-SXM2-32GB", "V100-SXM2-32GB"),
        ("Tesla V100-DGXS-16GB", "V100-SXM2"),
        ("Tesla V100-DGXS-32GB", "V100-SXM2-32GB"),
        ("Tesla V100-PCIE-32GB", "V100-PCIe-32GB"),
        ("Tesla T4", "T4"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "RTX-PRO-6000-Max-Q"),
        ("AMD Instinct MI300X VF", "MI300X"),
        ("AMD Instinct MI300X", "MI300X"),
        ("AMD Instinct MI210", "MI210"),
        ("AMD Instinct MI250X", "MI250X"),
        ("AMD Instinct MI250", "MI250"),
        ("Intel(R) Data Center GPU Max 1550", "Max-1550"),
        ("Apple M2 Max", "M2-Max"),
        # What a user types.
        ("h100-sxm", "H100-SXM"),
        ("H100", "H100-SXM"),
        ("A100", "A100-SXM-80GB"),
        ("rtx 4090", "RTX-4090"),
        ("mi300x", "MI300X"),
        ("Gaudi 3", "Gaudi3"),
        ("NVIDIA A40", "A40"),
        ("NVIDIA RTX A6000", "RTX-A6000"),
        ("NVIDIA GeForce RTX 4080", "RTX-4080"),
        ("NVIDIA GeForce RTX 4080 SUPER", "RTX-4080-Super"),
        ("NVIDIA GeForce RTX 4070 SUPER", "RTX-4070-Super"),
        ("rtx 4070 ti super", "RTX-4070-Ti-Super"),
        ("NVIDIA GeForce RTX 5070 Ti", "RTX-5070-Ti"),
        ("NVIDIA B300 SXM6 AC", "B300"),
        ("NVIDIA GB300", "GB300"),
        ("NVIDIA GH200 144G HBM3e", "GH200-144GB"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX-PRO-6000-Server"),
        ("NVIDIA A30", "A30"),
        ("NVIDIA A800-SXM4-80GB", "A800-SXM-80GB"),
        ("NVIDIA H800", "H800-SXM"),
        ("NVIDIA H20", "H20"),
        ("NVIDIA L20", "L20"),
        ("AMD Instinct MI100", "MI100"),
        ("AMD Instinct MI308X", "MI308X"),
        ("TPU v5e", "TPU-v5e"),
        ("trillium", "TPU-v6e"),
        ("Trn2", "Trainium2"),
    ],
)
def test_names_of_drivers_and_users(name: str, key: str) -> None:
    found = find_datasheet(name)
    assert found is not None
    assert found.key == key


@pytest.mark.parametrize(
    "name",
    [
        "",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "AMD Radeon Graphics",
        "NVIDIA H",
        "Orin",
    ],
)
def test_what_only_resembles_a_device_is_not_it(name: str) -> None:
    assert find_datasheet(name) is None
    assert ceilings_from_datasheet(name) is None


def test_a_name_of_two_devices_is_decided_by_their_size() -> None:
    name = "AMD Instinct MI250X / MI250"
    for units, key in ((104, "MI250"), (110, "MI250X")):
        found = find_datasheet(name, multiprocessors=units)
        assert found is not None
        assert found.key == key


def test_a_slice_of_a_device_is_not_the_device() -> None:
    assert find_datasheet("NVIDIA H100 80GB HBM3", multiprocessors=132) is SHEETS["H100-SXM"]
    assert find_datasheet("NVIDIA H100 80GB HBM3", multiprocessors=16) is None


def test_driver_names_of_one_device_are_not_anothers_unless_drivers_share_them() -> None:
    owners: dict[str, list[str]] = {}
    for sheet in all_datasheets():
        for name in (sheet.key, sheet.name, *sheet.driver_names, *sheet.aliases):
            plain = re.sub(r"[^a-z0-9+/]", "", name.lower())
            if sheet.key not in owners.setdefault(plain, []):
                owners[plain].append(sheet.key)
    shared = {name: keys for name, keys in owners.items() if len(keys) > 1}
    assert shared == {"amdinstinctmi250x/mi250": ["MI250X", "MI250"]}


def test_closest_devices() -> None:
    assert closest_devices("H1000")[0].startswith("H100")
    assert closest_devices("RTX 4081")[0] == "RTX-4080"
    assert "MI300X" in closest_devices("MI300")
    assert closest_devices("zzzzzzzzzzzz") == ()
    assert len(closest_devices("A100", 2)) == 2


def test_half_a_card_is_half() -> None:
    die, card = SHEETS["MI250X"], SHEETS["MI250X-card"]
    assert card.matrix["float16"].value == 2 * die.matrix["float16"].value
    assert card.memory_bytes_per_s.value == 2 * die.memory_bytes_per_s.value
    # 110 CUs x 1024 FLOP per clock x 1.7 GHz = 191.5 TFLOP/s on one die
    assert die.matrix["float16"].value == pytest.approx(191.5e12, rel=1e-3)
    assert "PyTorch sees" in die.note


def test_h100_ceilings() -> None:
    ceilings = ceilings_from_datasheet("NVIDIA H100 80GB HBM3")
    assert ceilings is not None
    assert ceilings.matrix_flops_per_s("bfloat16") == 989.4e12
    # Without TF32 a float32 product runs on the vector units.
    assert ceilings.matrix_flops_per_s("float32") == ceilings.vector_flops_per_s("float32")
    assert ceilings.rows["matrix.float32"].source.startswith("no matrix unit for it")
    assert ceilings.value("vector.float32.multiply") == 66.9e12 / 2
    # 16 per clock and SM x 132 SMs x 1.98 GHz
    assert ceilings.value("vector.float32.exp") == pytest.approx(16 * 132 * 1.98e9)
    assert ceilings.value("memory.dram.copy") == 3352e9
    assert [level.name for level in ceilings.levels] == ["l2", "dram"]
    assert ceilings.level_for(43 * 2**20).name == "l2"  # type: ignore[union-attr]
    assert ceilings.level_for(50 * 2**20).name == "dram"  # type: ignore[union-attr]
    assert ceilings.kernel_fixed_s == 1.47e-6


def test_a_path_the_device_lacks_has_no_ceiling() -> None:
    ampere = ceilings_from_datasheet("A100")
    volta = ceilings_from_datasheet("V100")
    assert ampere is not None
    assert volta is not None
    assert ampere.matrix_flops_per_s("float8_e4m3fn") is None
    assert volta.matrix_flops_per_s("bfloat16") is None
    assert volta.value("matrix.tf32") is None


def test_the_infinity_cache_is_a_level_and_the_l2_of_each_die_is_not() -> None:
    ceilings = ceilings_from_datasheet("MI300X")
    assert ceilings is not None
    assert [level.name for level in ceilings.levels] == ["l3", "dram"]
    assert ceilings.value("memory.l2.capacity") == 32 * 2**20


def test_what_is_unknown_is_said() -> None:
    ceilings = ceilings_from_datasheet("Apple M4")
    assert ceilings is not None
    assert ceilings.vector_flops_per_s("float32") is None
    assert any("No vector rate is known" in notice for notice in ceilings.notices)
