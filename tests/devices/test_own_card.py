"""A card of the user: a file that every command takes in place of a device's name."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from gobrrr.cli import main
from gobrrr.devices import datasheet
from gobrrr.devices.datasheet import all_datasheets, find_datasheet, named_datasheet
from gobrrr.devices.datasheets.sheet import DeviceSheet
from gobrrr.devices.datasheets.sheet_file import sheet_as_toml
from gobrrr.timeline.errors import InputError

CARD = """
[sources]
LEAFLET = "https://abax.example/leaflet.pdf"

[abacus]
vendor = "Abax"
architecture = "Beads"
kind = "cuda"
source = "{LEAFLET}"
memory = "64 GiB"
memory_bandwidth = "2.5 TB/s"
multiprocessors = 100
clock = ["2 GHz", "measured"]
kernel_fixed = "2 us"
cache.l2.capacity = "48 MiB"
matrix.float16 = "400 TFLOP/s"
vector.float32 = "51.2 TFLOP/s"
vector.float16 = ["51.2 TFLOP/s", "as float32; {source}"]
vector.int32 = "12.8 Top/s"
interconnect.pcie = "128 GB/s"
"""


@pytest.fixture(autouse=True)
def _cards_of_one_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasheet, "_cards", {})


def written(folder: Path, text: str) -> str:
    path = folder / "my-card.toml"
    path.write_text(text)
    return str(path)


def test_its_figures_with_their_sources(tmp_path: Path) -> None:
    card = named_datasheet(written(tmp_path, CARD))
    assert (card.key, card.name, card.kind, card.architecture) == (
        "abacus", "abacus", "cuda", "Beads",
    )  # fmt: skip
    assert card.memory_bytes is not None and card.memory_bytes.value == 64 * 2**30
    assert card.memory_bytes.source == "https://abax.example/leaflet.pdf"
    assert card.memory_bytes_per_s.value == 2.5e12
    assert card.clock_hz is not None
    assert (card.clock_hz.value, card.clock_hz.source) == (2e9, "measured")
    assert card.kernel_fixed_s is not None and card.kernel_fixed_s.value == 2e-6
    assert card.vector["float16"].source == "as float32; https://abax.example/leaflet.pdf"
    # Integers follow from those of 32 bits.
    assert card.vector["int8"].value == 12.8e12
    assert card.vector["int64"].value == 6.4e12
    assert card.matrix_clock_hz is None and card.board_power_w is None


def test_the_examples_of_the_documentation_are_cards(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "how-it-predicts.md"
    first, second = (
        named_datasheet(written(tmp_path, block))
        for block in re.findall(r"```toml\n(.*?)```", page.read_text(), re.DOTALL)
    )
    assert first.matrix["float16"].value == 800e12
    assert second.memory_bytes_per_s.value == 3.9e12


def test_it_is_found_by_its_key_once_it_was_read_and_is_in_no_list(tmp_path: Path) -> None:
    assert find_datasheet("abacus") is None
    card = named_datasheet(written(tmp_path, CARD))
    assert find_datasheet("Abacus") is card
    assert card not in all_datasheets()
    changed = named_datasheet(written(tmp_path, CARD.replace("64 GiB", "32 GiB")))
    assert find_datasheet("abacus") is changed


def test_a_source_that_is_not_stated_is_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, CARD.replace('source = "{LEAFLET}"\n', ""))
    assert named_datasheet(path).memory_bytes_per_s.source == path


def test_it_can_start_from_a_known_device(tmp_path: Path) -> None:
    text = '[mine]\nlike = "H100"\nmemory_bandwidth = "4 TB/s"\nboard_power = "unknown"\n'
    card, like = named_datasheet(written(tmp_path, text)), find_datasheet("H100-SXM")
    assert like is not None
    assert card.memory_bytes_per_s.value == 4e12
    assert like.board_power_w is not None and card.board_power_w is None
    assert (card.matrix, card.vector, card.caches) == (like.matrix, like.vector, like.caches)
    assert card.driver_names == () and card.aliases == ()


@pytest.mark.parametrize("sheet", all_datasheets(), ids=lambda sheet: sheet.key)
def test_every_sheet_printed_as_a_file_is_the_same_sheet(
    sheet: DeviceSheet, tmp_path: Path
) -> None:
    card = named_datasheet(written(tmp_path, sheet_as_toml(sheet, f"my-{sheet.key}")))
    key = f"my-{sheet.key}"
    assert card == replace(sheet, key=key, name=key, driver_names=(), aliases=())


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (('kind = "cuda"\n', ""), 'kind of [abacus] is missing, such as kind = "cuda"'),
        (
            ('memory_bandwidth = "2.5 TB/s"\n', ""),
            'memory_bandwidth of [abacus] is missing, such as memory_bandwidth = "3.35 TB/s"',
        ),
        (('cache.l2.capacity = "48 MiB"', 'cache.l2.usable = "40 MiB"'),
         "cache.l2.capacity of [abacus] is missing"),
        (("memory_bandwidth", "memory_bandwith"),
         "memory_bandwith of [abacus] is no field of a data sheet; did you mean memory_bandwidth?"),
        (("matrix.float16", "matrix.flot16"),
         "matrix.flot16 of [abacus] is no field of a data sheet; did you mean matrix.float16?"),
        (("interconnect.pcie", "interconnect.pci"), "did you mean interconnect.pcie?"),
        (("64 GiB", "-64 GiB"), "memory of [abacus] is '-64 GiB', which is not above 0"),
        (("multiprocessors = 100", "multiprocessors = 0"),
         "multiprocessors of [abacus] is 0, which is not above 0"),
        (("multiprocessors = 100", 'multiprocessors = "many"'),
         "multiprocessors of [abacus] is 'many', not a number, such as 132"),
        (("multiprocessors = 100", "multiprocessors = true"), "is True, not a number"),
        (('"2.5 TB/s"', "2.5e12"),
         "memory_bandwidth of [abacus] is 2500000000000.0, not a number with the unit B/s, such as "
         '"3.35 TB/s"'),
        (("400 TFLOP/s", "400 TFLOPS"), "is '400 TFLOPS', not a number with the unit FLOP/s"),
        (("2.5 TB/s", "2.5 TB"), "is '2.5 TB', not a number with the unit B/s"),
        (("2.5 TB/s", "2.5.1 TB/s"), "is '2.5.1 TB/s', not a number with the unit B/s"),
        (('["2 GHz", "measured"]', '["2 GHz"]'),
         "clock of [abacus] is no pair of a figure and its source"),
        (('"measured"', "7"), "clock of [abacus] is 7, not a text"),
        (('source = "{LEAFLET}"', 'source = "{LEAFLETS}"'),
         "source of [abacus] has the source {LEAFLETS}, which is none of [sources]; did you mean "
         "LEAFLET?"),
        (('kind = "cuda"', 'kind = "gpu"'), "kind of [abacus] is 'gpu', not one of cuda, hip, "),
        (('kind = "cuda"', "kind = 3"), "kind of [abacus] is 3, not a text"),
        (('kind = "cuda"', 'like = "H1000"'),
         "like of [abacus] is 'H1000', no device that gobrrr has"),
        (('kind = "cuda"', 'kind = "cuda"\ndriver_names = "Abax"'),
         "driver_names of [abacus] is 'Abax', not a list of names"),
        (('kind = "cuda"', 'kind = "cuda"\nlink_peers = "one"'),
         "link_peers of [abacus] is 'one', not a number of devices"),
        (("[abacus]", "[H100-SXM]"), "the key 'H100-SXM' is another device's"),
        (("[abacus]", "[cpu]"), "the key 'cpu' is another device's"),
        (("[abacus]", '["a/b"]'), "the key 'a/b' has more than letters, digits and - in it"),
        (('kind = "cuda"', 'kind = "cuda"\naliases = "unknown"'),
         "aliases of [abacus] is 'unknown', not a list of names"),
        (('vendor = "Abax"', 'name = "NVIDIA H200"'), "the name 'NVIDIA H200' is another device's"),
        (("[abacus]", '[other]\nlike = "H100"\n[abacus]'), "has 2 devices, and a card is one"),
        ((CARD, ""), "has 0 devices, and a card is one"),
        (("[sources]", "colour = 3\n[sources]"), "colour stands outside a device's table"),
        (("[abacus]", "[abacus"), "is not TOML: "),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_sentence_with_the_file_and_the_field(
    change: tuple[str, str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, CARD.replace(*change, 1))
    assert main(["devices", path]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count(path) == 1 and said.count("\n") == 1
    assert find_datasheet("abacus") is None


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "none.toml", tmp_path):
        file = str(path) if path.suffix else f"{path}/.toml"
        with pytest.raises(InputError, match="cannot be read: No such file"):
            named_datasheet(file)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="is not TOML"):
        named_datasheet(str(tmp_path / "binary.toml"))


def test_devices_writes_a_file_to_start_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "my-card.toml")
    assert main(["devices", "H100", "--toml", path]) == 0
    assert main(["devices", path]) == 0
    assert "989 TFLOP/s" in capsys.readouterr().out
    assert find_datasheet("my-H100-SXM") is not None
    assert main(["devices", "--toml", path]) == 2
    assert "give its name" in capsys.readouterr().err


@pytest.mark.torch
def test_predictions_are_for_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    path, saved = written(tmp_path, CARD), tmp_path / "d.json"
    op = ["predict", "--op", "mm(4096x4096, 4096x4096, fp16)"]
    assert main([*op, "--device", path, "--json", str(saved)]) == 0
    found = json.loads(saved.read_bytes())
    assert found["device"]["name"] == "abacus"
    # 2 x 4096**3 FLOPs at 400 TFLOP/s take 0.34 ms at the least.
    assert found["step"]["time_s"]["median"] > 2 * 4096**3 / 400e12
    assert main([*op, "--device", path, "--device", "H100-SXM"]) == 0
    shown = capsys.readouterr().out
    assert "abacus" in shown and "H100-SXM" in shown


@pytest.mark.torch
def test_plans_are_for_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    program = tmp_path / "train.py"
    program.write_text(
        "import torch\n\n"
        "def make_step():\n"
        "    model = torch.nn.Linear(64, 64)\n"
        "    optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "    data = torch.zeros(8, 64)\n"
        "    def step():\n"
        "        model(data).sum().backward()\n"
        "        optimizer.step()\n"
        "        optimizer.zero_grad()\n"
        "    return step\n"
    )
    plan = ["plan", f"{program}:make_step", "--device", written(tmp_path, CARD), "--devices", "2"]
    assert main(plan) == 0
    assert "abacus" in capsys.readouterr().out
