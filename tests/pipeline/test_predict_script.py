"""Scripts on a device that is not here: the same step as that of a function."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from gobrrr.cli import main
from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.diagnosis.storage import load

pytestmark = pytest.mark.torch

MADE = """
import sys
import torch
from torch import nn
from torch.nn import functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
"""
TRAINED = """
def make_step():
    step = parts()
    return step

if __name__ == "__main__":
    step = parts()
    for i in range(int(sys.argv[1]) if len(sys.argv) > 1 else 8):
        loss = step()
        if i % 2 == 0:
            print("loss", loss.item())
"""
LINEAR = (
    MADE
    + """
def parts():
    net = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 10)).to(device)
    optimizer = torch.optim.AdamW(net.parameters())
    x, y = torch.randn(64, 512, device=device), torch.randint(10, (64,), device=device)

    def step():
        loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step
"""
    + TRAINED
)
ATTENTION = (
    MADE
    + """
def parts():
    net = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.1, batch_first=True).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    x = torch.randn(8, 128, 256, device=device)

    def step():
        with torch.autocast(device, torch.bfloat16):
            loss = net(x).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step
"""
    + TRAINED
)
LOADED = (
    MADE
    + """
from torch.utils.data import DataLoader, TensorDataset

def parts():
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(16 * 16 * 16, 10),
    ).to(device)
    return net, torch.optim.SGD(net.parameters(), lr=0.1)

def train(net, optimizer, x, y):
    loss = F.cross_entropy(net(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

def make_step():
    net, optimizer = parts()
    x, y = torch.randn(32, 3, 32, 32), torch.randint(10, (32,))
    return lambda: train(net, optimizer, x, y)

if __name__ == "__main__":
    net, optimizer = parts()
    data = TensorDataset(torch.randn(320, 3, 32, 32), torch.randint(10, (320,)))
    for epoch in range(2):
        for x, y in DataLoader(data, batch_size=32, shuffle=True, num_workers=2):
            train(net, optimizer, x, y)
        torch.save(net.state_dict(), sys.argv[1])
"""
)
GAN = (
    MADE
    + """
made, judged = nn.Linear(8, 64).to(device), nn.Linear(64, 1).to(device)
of_made = torch.optim.Adam(made.parameters())
of_judged = torch.optim.Adam(judged.parameters())
for i in range(8):
    for _ in range(3):
        of_judged.zero_grad()
        judged(made(torch.randn(4, 8, device=device)).detach()).mean().backward()
        of_judged.step()
    of_made.zero_grad()
    judged(made(torch.randn(4, 8, device=device))).mean().backward()
    of_made.step()
"""
)


@pytest.fixture
def predicted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What ``gobrrr predict`` says of a program's text, with arguments of its own."""
    monkeypatch.setattr(sys, "argv", ["gobrrr"])
    (tmp_path / "other.py").write_text("import torch\nTABLE = torch.arange(4)\n")

    def predict(source: str, *options: str, function: str = "", script: tuple[str, ...] = ()):
        path = tmp_path / "train.py"
        path.write_text(source)
        saved = tmp_path / "d.json"
        device = ["--device", "H100-SXM", "--json", str(saved)]
        assert main(["predict", *device, *options, f"{path}{function}", *script]) == 0
        return load(saved)

    return predict


def flops(found: Diagnosis) -> float:
    return found.counters["flops"]


@pytest.mark.parametrize("source", [LINEAR, ATTENTION, LOADED], ids=["linear", "attention", "cnn"])
def test_a_script_and_a_function_are_the_same_step(predicted, tmp_path, source) -> None:
    checkpoint = tmp_path / "checkpoint.pt"
    arguments = (str(checkpoint),) if source is LOADED else ()
    script = predicted(source, script=arguments)
    function = predicted(source, function=":make_step")
    assert script.source["kind"] == function.source["kind"] == "prediction"
    assert flops(script) == flops(function) > 0
    for count in ("kernels", "copies"):
        assert script.counters[count] == function.counters[count]
    # Reading the loss is the script's alone.
    assert script.step_s == pytest.approx(function.step_s, rel=0.01)
    assert script.step.kind == "training step"
    # A checkpoint of tensors without data would take the place of a real one.
    assert not checkpoint.exists()


def test_what_a_script_leaves_of_the_process_is_put_back(predicted, tmp_path) -> None:
    before, path = sys.modules["__main__"], list(sys.path)
    source = "import os, other\nos.environ['LEFT_BY_SCRIPT'] = '1'\n" + LINEAR
    predicted(source)
    assert sys.modules["__main__"] is before
    assert sys.path == path
    assert "other" not in sys.modules
    import os

    assert "LEFT_BY_SCRIPT" not in os.environ


def test_a_step_of_several_optimizers_is_a_whole_turn(predicted) -> None:
    found = predicted(GAN)
    # Three of the judge, 2 * 4 * (8 * 64 + 64) forward and 2 * 4 * 64 backward, and one of both.
    assert sum(row.count for row in found.ops if row.name == "aten::addmm") == 8


def test_inference_is_a_call_of_the_module(predicted) -> None:
    source = MADE + (
        "net = nn.Linear(64, 64).to(device)\n"
        "x = torch.randn(8, 64, device=device)\n"
        "with torch.no_grad():\n"
        "    for _ in range(10):\n"
        "        net(x)\n"
    )
    assert flops(predicted(source)) == 2 * 8 * 64 * 64


def test_options_after_a_script_are_gobrrrs_where_no_device_stands_before(tmp_path, capsys) -> None:
    path = tmp_path / "train.py"
    path.write_text(LINEAR)
    devices = ["--device", "H100-SXM", "--device", "MI300X"]
    assert main(["predict", str(path), "8", *devices]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["H100-SXM", "MI300X"]
    # What follows the script is its own where one stands before it.
    path.write_text("import sys\nassert sys.argv[1:] == ['--device', 'here', '9']\n" + LINEAR
                    .replace("sys.argv[1]", "sys.argv[3]"))  # fmt: skip
    assert main(["predict", "--device", "H100-SXM", str(path), "--device", "here", "9"]) == 0
    assert main(["predict", str(path), "--device", "H100-SXM", "--", "--device", "here", "9"]) == 0


@pytest.mark.parametrize(
    ("source", "code", "said"),
    [
        (LINEAR.replace("else 8", "else 2"), 2, "about 4 steps are enough"),
        ("print('only this')", 2, "ran no step that gobrrr can detect"),
        ("import sys\nsys.exit(4)", 2, "ended with sys.exit(4)"),
        ("raise ValueError('boom')", 3, "train.py raised ValueError: boom"),
        (MADE + "nn.Linear(64, 64)(torch.randn(64, 64)).long().sum().item()", 2,
         "--size-hint N"),
    ],
)  # fmt: skip
def test_a_script_without_a_step(tmp_path, capsys, source, code, said) -> None:
    path = tmp_path / "train.py"
    path.write_text(source)
    assert main(["predict", str(path), "--device", "H100-SXM"]) == code
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("gobrrr: ")
    assert said in last


def test_losses_that_are_logged_as_arrays_are_assumed(predicted) -> None:
    logged = LINEAR.replace("loss.item()", "float(loss.detach().cpu().numpy())")
    logged = logged.replace("i % 2 == 0", "True")
    found = predicted(logged)
    assert any("a value read from the device" in each.lower() for each in found.notices)
    assert found.counters["synchronisations"] > 0


def test_a_module_is_predicted_as_a_script(tmp_path, capsys, monkeypatch) -> None:
    (tmp_path / "trained.py").write_text(LINEAR)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert main(["predict", "-m", "trained", "8", "--device", "H100-SXM"]) == 0
    assert "training step" in capsys.readouterr().out


def test_a_saved_diagnosis_says_what_to_predict_in_its_place(tmp_path, capsys, predicted) -> None:
    predicted(LINEAR)
    capsys.readouterr()
    assert main(["predict", str(tmp_path / "d.json"), "--device", "H100-SXM"]) == 2
    error = capsys.readouterr().err
    assert "gobrrr predict train.py --device NAME" in error
    assert error.count("\n") == 1


def test_parts_that_a_script_keeps_to_itself(tmp_path, capsys) -> None:
    path = tmp_path / "train.py"
    path.write_text(LINEAR)
    assert main(["predict", str(path), "--device", "H100-SXM", "--channels-last"]) == 2
    assert "it goes with FILE.py:FUNCTION" in capsys.readouterr().err
