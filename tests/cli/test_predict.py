"""``gobrrr predict``: its forms, its refusals and their exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gobrrr.cli import main
from gobrrr.prediction.op_text import Shape, WrittenOp, parse_op
from gobrrr.timeline.errors import InputError

PROGRAM = """
import sys

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"


def make_step():
    model = nn.Linear(2048, 2048).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(512, 2048, device=device)

    def step():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def sized_by_data():
    x = torch.randn(100)
    return lambda: x[x > 0].sum()


def raises():
    raise ValueError("boom")


def leaves():
    def step():
        sys.exit(7)

    return step


def reads_data():
    model = nn.Linear(64, 64)
    return lambda: model(torch.randn(8, 64)).detach().numpy().sum()


def reads_lengths():
    model, lengths = nn.Linear(64, 64), torch.tensor([3, 4, 5])
    return lambda: model(torch.zeros(int(lengths.numpy().sum()), 64))


def sets_up_with_numpy():
    inputs = torch.from_numpy(torch.randn(8, 64).numpy() * 2)
    return nn.Linear(64, 64), inputs


def does_not_fit():
    model = nn.Linear(64, 64)
    return lambda: model(torch.randn(8, 63))


def huge():
    with torch.device("meta"):
        layers = [nn.Linear(30_000, 30_000, bias=False) for _ in range(60)]
        return nn.Sequential(*layers), torch.empty(1, 30_000)


def _private(): pass


def with_arguments(size): pass


a_number = lambda: 3


def workload():
    import gobrrr

    model = nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return gobrrr.Workload(model, torch.randn(8, 64), torch.sum, optimizer)
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return str(path)


@pytest.mark.torch
def test_a_file_that_reads_its_arguments_where_it_is_imported_gets_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "train.py"
    read = "import argparse\nargparse.ArgumentParser().parse_args()\n"
    path.write_text(read + PROGRAM)
    monkeypatch.setattr("sys.argv", ["gobrrr", "predict", f"{path}:make_step"])
    assert main(["predict", f"{path}:make_step", "--device", "H100-SXM"]) == 0
    assert "train.py:make_step" in capsys.readouterr().out


@pytest.mark.torch
def test_a_number_where_a_tensor_was_meant_is_explained(
    capsys: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    assert main(["predict", "--op", "sort(1000000, dim=0)", "--device", "H100-SXM"]) == 2
    assert "a tensor of one dimension is written [4096]" in capsys.readouterr().err
    # PyTorch's advice about a call is for programs.
    assert main(["predict", "--op", "softmax(64x64)", "--device", "H100-SXM"]) == 0
    assert not [each for each in recwarn if "Implicit dimension" in str(each.message)]


def test_an_op_as_text() -> None:
    assert parse_op("mm(64x32, 32x8, bf16)") == WrittenOp(
        "mm", (Shape((64, 32), "bfloat16"), Shape((32, 8), "bfloat16")), ()
    )
    assert parse_op("softmax(8x4, dim=-1)") == WrittenOp(
        "softmax", (Shape((8, 4), "float32"),), (("dim", -1),)
    )
    # A dtype of its own wins; [4096] has one dimension; a bare number is a number.
    written = parse_op("f(8x4:int64, [4096], 2, fp16)")
    assert written.arguments == (Shape((8, 4), "int64"), Shape((4096,), "float16"), 2)
    assert parse_op("cat([8x4, 8x4], dim=1)").arguments == (
        [Shape((8, 4), "float32"), Shape((8, 4), "float32")],
    )
    assert parse_op("mm(8x8, 8x8, tf32)").tf32


@pytest.mark.parametrize("text", ["mm", "mm(", "mm(8x8, what)", "mm(8x8:float7)", ""])
def test_an_op_that_cannot_be_read(text: str) -> None:
    with pytest.raises(InputError):
        parse_op(text)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--device", "H100-SXM"], "one thing to predict"),
        (["a.py:f", "--op", "mm(8x8, 8x8)", "--device", "H100-SXM"], "one thing to predict"),
        (["a.py:f"], "give the device"),
        (["a.py:f", "--device", "H100SX"], "did you mean H100-SXM"),
        (["--op", "mm(8x8, 8x8)", "--device", "H100-SXM", "--ceilings", "c.json"], "--trace"),
        (["--trace", "t.json", "--device", "H100-SXM", "--compile"], "--compile would have no"),
        (["--trace", "t.json", "--device", "H100-SXM", "--threads", "1"], "--threads would have"),
        (
            ["--trace", "t.json", "--device", "H100-SXM", "--autocast", "bf16", "--size-hint", "4"],
            "--autocast and --size-hint would have no effect",
        ),
        (["--op", "mm(8x8, 8x8)", "--device", "H100-SXM", "--top", "3"], "--top would have no"),
        (
            ["--op", "mm(8x8, 8x8)", "--device", "H100-SXM", "--channels-last"],
            "--channels-last would have no effect on one op",
        ),
    ],
)
def test_bad_usage_is_one_sentence(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("gobrrr: ")
    assert error.count("\n") == 1
    assert said in error


@pytest.mark.torch
def test_a_step_on_one_device(
    program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "d.json"
    code = main(["predict", f"{program}:make_step", "--device", "H100-SXM", "--json", str(target)])
    out = capsys.readouterr().out
    assert code == 0
    assert "predicted" in out
    assert "H100" in out
    saved = json.loads(target.read_text())
    assert saved["source"]["kind"] == "prediction"
    # Weights, gradients, both moments of AdamW: 4 x 2048 x 2049 x 4 B; activations on top.
    assert saved["counters"]["peak_memory_bytes"] > 4 * 2048 * 2049 * 4


@pytest.mark.torch
def test_a_step_on_several_devices(
    program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(
        ["predict", f"{program}:make_step", "--device", "H100-SXM", "--device", "MI300X",
         "--json", str(tmp_path / "d.json")]
    )  # fmt: skip
    lines = capsys.readouterr().out.splitlines()
    assert code == 0
    assert lines[0].split()[:2] == ["device", "step"]
    assert [line.split()[0] for line in lines[1:3]] == ["H100-SXM", "MI300X"]
    # How many times as long as on the first.
    assert "1.00x" in lines[1] and "x " in lines[2]
    # Whose time most of it is, and where more of it is told.
    assert any(line.startswith("overhead: of an assumed host") for line in lines)
    assert lines[-1] == (
        f"Next: gobrrr predict --device H100-SXM {program}:make_step --json {tmp_path / 'd.json'}"
    )
    assert sorted(p.name for p in tmp_path.glob("d*.json")) == [
        "d-H100-SXM.json", "d-MI300X.json",
    ]  # fmt: skip


@pytest.mark.torch
def test_a_device_that_is_too_small_has_a_sentence_and_no_time(
    program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small, large = ["--device", "A100-SXM-40GB"], ["--device", "MI355X"]
    files = ["--json", str(tmp_path / "d.json")]
    assert main(["predict", f"{program}:huge", *small, *large, *files]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["device", "MI355X", "A100-SXM-40GB:"]
    # 60 layers of 30,000 x 30,000 weights in float32, 3.6 GB each.
    assert "no prediction; the step needs about 216 GB" in lines[2]
    assert "No batch fits" in " ".join(lines)
    assert [path.name for path in tmp_path.glob("d*.json")] == ["d-MI355X.json"]
    # None of several is as good as one.
    for devices in (small, [*small, "--device", "H100-SXM"]):
        assert main(["predict", f"{program}:huge", *devices]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert "more than the 42.9 GB of A100-SXM-40GB" in captured.err
        assert "The smallest devices with as much: " in captured.err


@pytest.mark.torch
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_an_op_on_all_devices(
    dtype: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["predict", "--op", f"mm(512x512, 512x512, {dtype})", "--device", "all"]) == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert max(len(line) for line in lines) <= 80
    assert any(line.startswith("H100-SXM ") for line in lines)
    assert any(line.startswith("MI300X ") for line in lines)
    said = " ".join(out.split())
    if dtype == "bf16":
        # One sentence for all devices, which names them; and a time is a least one where there
        # is no ceiling.
        assert (
            said.count("No matrix path for bfloat16 on P100-PCIe, P4, V100-SXM2, V100-PCIe, ") == 1
        )
        assert said.count("No ceiling for bfloat16 on M3, ") == 1
        (row,) = (line for line in lines if line.startswith("M4 "))
        assert row.split()[1].startswith(">")


@pytest.mark.torch
def test_columns_that_do_not_fit_are_named_with_the_width_that_shows_them(
    program: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["predict", f"{program}:make_step", "--device", "Jetson-AGX-Orin-64GB",
                 "--device", "RTX-PRO-6000-Max-Q"]  # fmt: skip
    monkeypatch.setenv("COLUMNS", "80")
    assert main(arguments) == 0
    narrow = capsys.readouterr().out
    assert max(len(line) for line in narrow.splitlines() if not line.startswith("Next")) <= 80
    said = " ".join(narrow.split()).partition("Columns that do not fit: ")[2]
    left_out, _, columns = said.partition(" shows them.")[0].partition("; COLUMNS=")
    assert {"needs", "ridge"} <= set(left_out.split(", "))
    assert {"interval", "time"} <= set(narrow.splitlines()[0].split())
    monkeypatch.setenv("COLUMNS", columns)
    assert main(arguments) == 0
    wide = capsys.readouterr().out
    assert wide.splitlines()[0].split()[-2:] == ["SOL", "ridge"]
    assert "Left out" not in wide


@pytest.mark.torch
def test_an_op_writes_a_file_for_each_device(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--device", "H100-SXM", "--device", "T4", "--html", str(tmp_path / "d.html")]
    assert main(["predict", "--op", "mm(512x512, 512x512, fp16)", *arguments]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d-H100-SXM.html", "d-T4.html"]


@pytest.mark.torch
def test_an_op_without_a_unit_on_some_devices(capsys: pytest.CaptureFixture[str]) -> None:
    op = "_scaled_mm(64x64:fp8, 64x64:fp8, [1], [1], fp32)"
    code = main(["predict", "--op", op, "--device", "A100-SXM-80GB"])
    assert code == 2
    one = capsys.readouterr().err
    assert one.count("no matrix path for float8_e4m3fn on A100-SXM-80GB") == 1


@pytest.mark.torch
def test_an_op_that_torch_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "--op", "mm(8x4, 8x4)", "--device", "H100-SXM"]) == 2
    assert "PyTorch refuses this mm" in capsys.readouterr().err
    assert main(["predict", "--op", "sofmax(8x4)", "--device", "H100-SXM"]) == 2
    assert "did you mean" in capsys.readouterr().err


@pytest.mark.torch
@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("", "Or is it a function's step? {} has make_step, sized_by_data, raises, leaves,"),
        (":", "which function of {}? write {}:FUNCTION; it has make_step, sized_by_data, raises,"),
        (":a_number", "{}:a_number returned a value of type int: return the step as a callable"),
        (":missing", "{} has no function 'missing'"),
    ],
)
def test_a_target_that_is_no_step(
    program: str, function: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", f"{program}{function}", "--device", "H100-SXM"]) == 2
    error = capsys.readouterr().err
    assert said.format(program, program) in error
    assert error.count("\n") == 1


@pytest.mark.torch
def test_inference_mode_says_that_it_drops_the_training(
    program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["predict", f"{program}:workload", "--device", "H100-SXM"]
    assert main(arguments) == 0
    assert "only the workload's forward pass is predicted" not in " ".join(
        capsys.readouterr().out.split()
    )
    assert main([*arguments, "--inference-mode"]) == 0
    assert "only the workload's forward pass is predicted" in " ".join(
        capsys.readouterr().out.split()
    )


@pytest.mark.torch
def test_what_depends_on_data_and_what_raises(
    program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    device = ["--device", "H100-SXM"]
    assert main(["predict", f"{program}:sized_by_data", *device]) == 2
    assert "--size-hint" in capsys.readouterr().err
    assert main(["predict", f"{program}:sized_by_data", *device, "--size-hint", "40"]) == 0
    assert main(["predict", f"{program}:raises", *device]) == 3
    assert "ValueError: boom" in capsys.readouterr().err


@pytest.mark.torch
def test_a_step_that_leaves_is_the_users_code(
    program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", f"{program}:leaves", "--device", "H100-SXM"]) == 3
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == "gobrrr: your own code ended the process with sys.exit(7)"


@pytest.mark.torch
@pytest.mark.parametrize("device", ["H100-SXM", "Xeon-8380"])
def test_data_that_are_read_are_named_with_their_line(
    program: str, device: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", f"{program}:reads_data", "--device", device]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    line = next(
        number for number, text in enumerate(PROGRAM.splitlines(), 1) if "detach().numpy()" in text
    )
    assert f"reads the data of a tensor in {program}:{line} in <lambda>" in error


@pytest.mark.torch
def test_data_that_are_known_may_be_read(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    device = ["--device", "H100-SXM", "--by", "op"]
    assert main(["predict", f"{program}:reads_lengths", *device]) == 0
    # 3 + 4 + 5 rows.
    assert "(64)x(12,64)x(64,64)" in capsys.readouterr().out
    assert main(["predict", f"{program}:sets_up_with_numpy", *device]) == 0
    assert "(64)x(8,64)x(64,64)" in capsys.readouterr().out


@pytest.mark.torch
def test_an_error_of_the_program_is_shown_without_the_capture(
    program: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", f"{program}:does_not_fit", "--device", "H100-SXM"]) == 3
    error = capfd.readouterr().err
    # The program's line, those of nn.Module, and what was raised: nothing of fake tensors.
    # (A progress line may come before, where it takes two seconds.)
    assert "Traceback" in error
    assert f'File "{program}"' in error
    assert "_subclasses" not in error and "gobrrr/symbolic" not in error
    assert error.splitlines()[-1].startswith("gobrrr: the step raised RuntimeError: a and b must")
    assert main(["predict", "--op", "mm(8x4, 8x4)", "--device", "H100-SXM"]) == 2
    assert capfd.readouterr().err.count("\n") == 1


@pytest.mark.torch
def test_the_number_of_threads_is_that_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.chdir(tmp_path)
    (tmp_path / "bench.py").write_text(
        "import torch\n"
        "def make_step():\n"
        "    open('threads', 'w').write(str(torch.get_num_threads()))\n"
        "    return torch.nn.Linear(8, 8), torch.ones(2, 8)\n"
    )
    before = torch.get_num_threads()
    try:
        target = ["bench.py:make_step", "--device", "H100-SXM", "--threads", "3"]
        assert main(["predict", *target]) == 0
    finally:
        torch.set_num_threads(before)
    assert (tmp_path / "threads").read_text() == "3"


@pytest.mark.torch
def test_an_op_is_explained(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    op = ["predict", "--op", "mm(4096x4096, 4096x4096, bf16)", "--explain"]
    assert main([*op, "--device", "H100-SXM", "--device", "B200", "--device", "MI300X"]) == 0
    out = capsys.readouterr().out
    assert max(len(line) for line in out.splitlines()) <= 80
    measured, relatives, amd = (
        " ".join(out.partition(f"Where the time comes from, {device}")[2].split())
        .partition("Where the time comes from")[0]
        for device in ("H100-SXM", "B200", "MI300X")
    )  # fmt: skip
    # 2 x 4096^3 = 137 GFLOP; 3 matrices of 33.6 MB; 137.4 GFLOP at 989.4 TFLOP/s are 139 us.
    assert "Work: 137 GFLOP in bfloat16, 101 MB moved" in measured
    assert "Lower bounds: matrix unit 139 µs, dram 30.0 µs" in measured
    assert "of arithmetic (" in measured
    assert "% of the peak)" in measured
    assert "1 kernel of 1.65 µs fixed cost" in measured
    assert "80 % interval: " in measured
    assert "products in 16 bits on H100-SXM, benchmarks/results/" in measured
    assert (
        "no times of products in 16 bits were measured on B200 or its architecture: errors on "
        "A100-SXM" in relatives
    )
    assert "Timing aten::mm (4096,4096)x(4096,4096) on B200 (predicted: " in relatives
    # Residuals are of CUDA's kernels.
    assert "No interval: no measurement of products in 16 bits on a GPU related to MI300X" in amd


@pytest.mark.torch
def test_a_step_is_explained_by_its_least_known_parts(
    program: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    target = tmp_path / "d.json"
    arguments = ["predict", f"{program}:make_step", "--device", "H100-SXM", "--json", str(target)]
    assert main(arguments) == 0
    plain = " ".join(capsys.readouterr().out.split())
    # One line; what to measure is told on demand.
    assert "Least certain, with 80 % intervals: " in plain
    assert "Timing aten::" not in plain
    assert main([*arguments, "--explain"]) == 0
    out = capsys.readouterr().out
    assert out.index("Where the time comes from, H100-SXM") < out.index("Least certain, H100-SXM")
    source = json.loads(target.read_text())["source"]
    # Three products of the same size, element-wise ops, the optimizer.
    assert 0 < len(source["explained"]) <= 5
    assert any("aten::mm " in text for text in source["explained"])
    assert 0 < len(source["uncertain"]) <= 3
    # Of ops, and of the host, which a small step waits for.
    assert all("Timing aten::" in t or "Timing torch.add" in t for t in source["uncertain"])
    assert len(source["least_certain"]) == len(source["uncertain"])
    assert all(text in plain for text in source["least_certain"])


@pytest.mark.torch
def test_the_report_says_where_an_interval_comes_from(
    program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # Of a host so fast that the device decides.
    step = ["predict", f"{program}:make_step", "--host-overhead", "0.1", "--device"]
    for arguments, said in (
        ([*step, "MI300X"], "Interval: 6 recorded steps on H100-SXM and MI300X"),
        ([*step, "H100-SXM", "--compile"], "Interval: no compiled step was measured on this devic"),
    ):
        assert main(arguments) == 0
        assert said in " ".join(capsys.readouterr().out.split())


@pytest.mark.torch
def test_a_product_of_integers_has_no_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    op = ["predict", "--op", "mm(64x64, 64x64, int64)", "--device", "H100-SXM"]
    assert main(op) == 2
    error = capsys.readouterr().err
    assert "PyTorch has no GPU kernel for products of int64: mm raises on H100-SXM" in error
    assert error.count("\n") == 1
    assert main([*op, "--device", "M4"]) == 0


def test_a_trace_has_nothing_to_explain(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "--trace", "t.json", "--device", "H100-SXM", "--explain"]) == 2
    assert "--explain would have no effect" in capsys.readouterr().err


@pytest.mark.torch
def test_a_compiled_step_in_cuda_graphs(
    program: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    step = ["predict", f"{program}:make_step", "--host-overhead", "0.1", "--device"]
    target = tmp_path / "d.json"
    mode = ["--compile-mode", "reduce-overhead", "--json", str(target)]
    assert main([*step, "H100-SXM", *mode]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "in 2 CUDA graphs" in said
    assert "no step in CUDA graphs was measured" in said
    source = json.loads(target.read_text())["source"]
    assert source["compile"] is True and source["cuda_graphs"] is True
    assert main([*step, "M4", *mode]) == 0
    assert json.loads(target.read_text())["source"]["cuda_graphs"] is False
    assert "CUDA graphs" not in capsys.readouterr().out


@pytest.mark.torch
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--compile-mode", "max-autotune"], "mode 'max-autotune': the modes are default and"),
        (["--compile-mode", "reduce-overhead", "--mesh", "dp=2"], "on a mesh is not predicted"),
    ],
)
def test_a_mode_that_is_not_predicted(
    arguments: list[str], said: str, program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", f"{program}:make_step", "--device", "H100-SXM", *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
