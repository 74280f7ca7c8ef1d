"""All parts of ``benchmarks/gpu/run_all.py`` work, on the simulated device with little work."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from benchmarks.gpu import measurements, programs, run_all  # noqa: E402

from gobrrr.fixes.catalogue import FIXES  # noqa: E402
from simulated_device import NVIDIA, Accelerator, SimulatedBackend  # noqa: E402

pytestmark = pytest.mark.torch
ROOT = Path(__file__).parents[2]


def test_every_part(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    gpu = Accelerator(NVIDIA)
    SimulatedBackend(gpu).install(monkeypatch)
    out, file = tmp_path / "out", tmp_path / "out.json"
    parts = ",".join(part.name for part in run_all.PARTS)
    with gpu:
        code = run_all.main(
            ["--quick", "--device", "cpu", "--out", str(file), "--predict-as", "H100",
             "--parts", parts]
        )  # fmt: skip
    whole = json.loads(file.read_text())
    assert whole["topic"] == "gpu" and whole["quick"]
    summary = whole["parts"]
    assert [entry for entry in summary if not entry["ok"]] == [] and code == 0
    assert [entry["part"] for entry in summary] == parts.split(",")
    results = {path.stem: json.loads(path.read_text()) for path in out.glob("*.json")}
    assert results["identity"]["result"]["name"] == NVIDIA.device
    rows = results["ceilings"]["result"]["rows"]
    assert rows["matrix.float32"]["measured"] == NVIDIA.matrix[4]
    both = results["live_against_trace"]["result"]
    assert both["live"]["kernels"] == pytest.approx(both["trace"]["kernels"], rel=0.2)
    # So small that alone they wait for the host: test_spikes.py tells how well they are recovered.
    for kind in ("compute", "memory"):
        assert results["spikes"]["result"][kind]["leaves_grew_s"] > 0, kind
    assert_fixes_ran(results["fixes"]["result"])
    streams = results["two_streams"]["result"]
    assert streams["beside"]["step_s"] > 0 and streams["one_by_one"]["step_s"] > 0
    assert results["peak_memory"]["result"]["training"]["peak_bytes"] > 0
    for name, growth in results["batch_doubling"]["result"].items():
        assert growth["ratio"] > 0, name
    for dtype in ("float32", "bfloat16"):
        for mode in ("eager", "compiled"):
            for program in results[f"programs_{dtype}_{mode}"]["result"]["programs"].values():
                assert program["predicted_s"] > 0 and program["measured_s"] > 0


def assert_fixes_ran(found: dict[str, Any]) -> None:
    """The true search, on the simulated device; its trials run on the processor's clock."""
    assert set(found) == {
        "bf16_autocast", "cuda_graph", "pinned_memory", "padded_shapes", "remove_syncs",
        "vectorise_loop",
    }  # fmt: skip
    assert not [name for name, entry in found.items() if "error" in entry]
    for name, entry in found.items():
        assert entry["step_s"] > 0, name
        assert entry["ruled_out"] or entry["findings"], name
    # One graph for many small ops: predicted, and tried; a processor has no graphs.
    (graph,) = found["cuda_graph"]["findings"]
    assert graph["prediction"]["expected_s"] > 0
    assert graph["verification"]["verdict"] == "failed"
    (looped,) = found["vectorise_loop"]["findings"]
    assert looped["prediction"]["expected_s"] > 0 and looped["verification"] is None
    for name in ("pinned_memory", "padded_shapes", "remove_syncs", "vectorise_loop"):
        assert found[name]["flawed_s"] > 0 and found[name]["mended_s"] > 0, name
    assert found["vectorise_loop"]["mended_s"] < found["vectorise_loop"]["flawed_s"]


def test_a_fix_that_fails_ends_no_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gpu = Accelerator(NVIDIA)
    SimulatedBackend(gpu).install(monkeypatch)

    def fix(work: Any, *, only: str, **options: Any) -> Any:
        if only == "bf16_autocast":
            raise RuntimeError("no such unit\nadvice")
        step = SimpleNamespace(time_s=SimpleNamespace(median=1e-3))
        return SimpleNamespace(
            diagnosis=SimpleNamespace(step=step), ruled_out={only: "not here"}, findings=[]
        )

    monkeypatch.setattr(measurements.gobrrr, "fix", fix)
    with gpu:
        found = measurements.fixes(run_all.Setting("cpu", True, tmp_path))
    assert found["bf16_autocast"] == {"error": "RuntimeError: no such unit"}
    assert found["cuda_graph"]["ruled_out"] == "not here"


def test_its_fixes_exist_and_all_that_only_a_gpu_has_are_among_them() -> None:
    setting = run_all.Setting("cpu", True, Path())
    tried = {name for names in measurements.APPLIED.values() for name in names}
    tried |= set(measurements.by_hand(setting))
    assert tried <= {fix.name for fix in FIXES}
    of_gpus = {"tf32", "fp8", "triton_kernel", "cuda_graph", "compile_reduce_overhead",
               "pinned_memory", "padded_shapes", "remove_syncs"}  # fmt: skip
    assert of_gpus <= tried
    for program in measurements.APPLIED:
        assert getattr(setting, program)().step() is not None


def test_help_says_where_results_go_and_little_work_is_kept_apart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.delenv("OUT", raising=False)
    with pytest.raises(SystemExit) as helped:
        run_all.main(["--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert helped.value.code == 0
    assert "Without --out the results are $OUT/gpu.json, or benchmarks/results/gpu.json" in shown
    monkeypatch.chdir(ROOT)
    with pytest.raises(SystemExit) as refused:
        run_all.main(["--quick", "--device", "cpu", "--parts", "identity"])
    assert "--out has to lie outside benchmarks/results" in str(refused.value.code)


def test_a_part_that_fails_ends_no_other(tmp_path: Path) -> None:
    def fails(setting: Any) -> None:
        raise RuntimeError("first line\nsecond")

    setting = run_all.Setting("cpu", True, tmp_path)
    outcome = run_all.run_part(run_all.Part("broken", fails), setting)
    assert not outcome["ok"] and outcome["error"] == "RuntimeError: first line"
    with pytest.raises(SystemExit):
        run_all.main(["--parts", "nonsense", "--out", str(tmp_path / "gpu.json")])


def test_there_are_150_programs() -> None:
    assert len(programs.PROGRAMS) * len(programs.DTYPES) * len(programs.MODES) == 152
    assert len({program.name for program in programs.PROGRAMS}) == 38


def test_the_page_of_claims_names_tests_and_parts_that_exist() -> None:
    page = (ROOT / "docs" / "gpu-status.md").read_text()
    rows = [line.split("|")[1:-1] for line in page.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 15 and all(len(row) == 4 for row in rows)
    parts = {part.name for part in run_all.PARTS}
    measured = set()
    for claim, tests, only_there, confirmed in rows:
        for name in re.findall(r"`([\w/]*test_\w+\.py)`", tests):
            homes = (ROOT, ROOT / "tests" / "simulated_device", ROOT / "tests" / "devices")
            assert any((home / name).is_file() for home in homes), name
        measured |= set(re.findall(r"`([\w*]+)`", only_there))
        if "nothing yet" not in confirmed:
            (result,) = re.findall(r"`([\w./-]+\.json)`", confirmed)
            assert (ROOT / "benchmarks" / "results" / result).is_file(), claim
    # What the script measures is on the page, but for who the device is.
    for part in parts - {"identity", "lab"}:
        assert part in measured or (part.startswith("programs_") and "programs_*" in measured), part
