"""The parts of ``benchmarks/gpu`` that check claims on programs, on the simulated device."""

from __future__ import annotations

import importlib
import json
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from benchmarks.gpu import clocks, held_out_programs, live_programs, programs  # noqa: E402
from benchmarks.gpu.parts import fixes, held_out  # noqa: E402
from benchmarks.gpu.setting import Setting  # noqa: E402

from gobrrr.attribution.leaves import LEAVES  # noqa: E402
from gobrrr.fixes.catalogue import FIXES  # noqa: E402
from simulated_device import NVIDIA, Accelerator, SimulatedBackend  # noqa: E402

pytestmark = pytest.mark.torch


def run(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The part on little work, without its limit: processors that are shared are slow."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    part = importlib.import_module(f"benchmarks.gpu.parts.{name}")
    monkeypatch.setattr(part, "LIMIT_S", 1000)
    for limit in ("EACH_S", "ALL_OF_ONE_S"):
        monkeypatch.setattr(part, limit, 200.0, raising=False)
    gpu = Accelerator(NVIDIA)
    SimulatedBackend(gpu).install(monkeypatch)
    saved: list[str] = []
    with gpu:
        found = part.run(
            Setting("cpu", True, tmp_path),
            lambda rows: saved.append(json.dumps(rows, allow_nan=False)),
        )
    assert saved
    return json.loads(json.dumps(found, allow_nan=False))


def test_spikes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bases = run("spikes", monkeypatch, tmp_path)["bases"]
    assert bases["graph"] == clocks.NEEDS_CUDA
    assert len(bases["host"]["kinds"]) == 8 and "error" not in bases["host"]
    for kind, row in bases["host"]["kinds"].items():
        assert any(leaf.startswith(row["leaf"]) for leaf in LEAVES), kind
        (told,) = row["told"]
        assert told["spiked"]["step_s"] > 0 and told["off"] >= 0, kind
        assert bases["host"]["after_s"][kind], kind
    # What the simulated device does itself is on its clock.
    memory = bases["host"]["kinds"]["memory"]["told"][0]
    assert memory["grew"]["memory.device.roof"] > 0


def test_live(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = run("live", monkeypatch, tmp_path)["programs"]
    for name in ("accumulation x 4", "generate loop"):
        row = found[name]
        assert "error" not in row, row
        assert row["live"]["with_line"] > 0.9 and row["live"]["counters"]["kernels"] > 10
        assert row["trace"]["step_s"] > 0 and len(row["events_s"]) == 3
    assert found["whole-step graph"] == clocks.NEEDS_CUDA


def test_fixes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = run("fixes", monkeypatch, tmp_path)["programs"]
    looped, inference = found["looped"], found["inference"]
    (gain, *_) = looped["gains"]["vectorise_loop"]
    assert gain == looped["timed"]["base"][0] - looped["timed"]["vectorise_loop"][0]
    assert looped["predicted"]["fixes"]["vectorise_loop"]["expected_s"] > 0
    assert inference["timed"]["cuda_graph"] == clocks.NEEDS_CUDA
    told = inference["predicted"]["fixes"]["cuda_graph"]
    assert told["low_s"] <= told["expected_s"] <= told["high_s"]


def test_held_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = run("held_out", monkeypatch, tmp_path)
    for row in found["programs"].values():
        assert row["predicted"]["host_overhead"] is None and row["host_known"]["step_s"] > 0
        assert min(row["events_s"]) > 0


def test_lab_keeps_what_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lab = importlib.import_module("benchmarks.gpu.parts.lab")
    monkeypatch.setattr(lab, "ceilings_of", lambda *_, **__: (None, "measured"))

    def main(arguments: list[str]) -> int:
        folder = Path(arguments[arguments.index("--out") + 1])
        folder.mkdir(parents=True)
        (folder / "x.json").write_text('{"state": "complete"}')
        print(f"written to {folder}")
        raise SystemExit(2)

    monkeypatch.setattr("gobrrr.cli.main", main)
    found = lab.run(Setting("cpu", False, tmp_path), lambda rows: None)
    assert set(found) == {"ceilings", *lab.EXPERIMENTS}
    assert found["fusion"]["exit"] == 2 and found["fusion"]["stdout"] == "written to OUT\n"
    assert found["fusion"]["results"] == [{"state": "complete"}]


def test_programs_are_new_and_are_what_is_asked_for(tmp_path: Path) -> None:
    setting = Setting("cpu", True, tmp_path)
    assert len(live_programs.PROGRAMS) == 9
    families = {program.name.split()[0] for program in programs.PROGRAMS}
    assert len(held_out_programs.HELD_OUT) == 12
    for program in held_out_programs.HELD_OUT:
        assert program.name.split()[0] not in families
        model, inputs = program.build(torch, "meta", torch.float32)
        assert model(inputs).device.type == "meta"
    assert set(held_out.COMPILED) <= {program.name for program in programs.PROGRAMS}
    fixed = {name for build in fixes.PROGRAMS for name in build(setting).fixed}
    assert fixed <= {fix.name for fix in FIXES}
    assert {"cuda_graph", "compile_reduce_overhead", "fused_optimizer", "fused_attention",
            "pinned_memory", "remove_syncs", "vectorise_loop", "channels_last", "tf32",
            "bf16_autocast", "larger_batch"} == fixed  # fmt: skip


def test_variants_compute_what_their_base_does(tmp_path: Path) -> None:
    torch.manual_seed(0)
    setting = Setting("cpu", True, tmp_path)
    for build, name in ((fixes._attention, "fused_attention"), (fixes._looped, "vectorise_loop"),
                        (fixes._images, "channels_last")):  # fmt: skip
        unseen = build(setting)
        mended = unseen.fixed[name]()
        if name == "fused_attention":
            model = mended.__self__.model
            model.load_state_dict(unseen.work.model.state_dict())
        base = unseen.work() if callable(unseen.work) else unseen.work.step()
        torch.testing.assert_close(mended(), base, rtol=2e-2, atol=2e-2)


def test_a_limit_within_a_limit_ends_and_the_outer_one_goes_on() -> None:
    budget = clocks.Budget(clocks.START_S + 30)

    def waits() -> Any:
        inner = budget.attempt(partial(time.sleep, 10), 1.0)
        time.sleep(10)
        return inner

    began = time.monotonic()
    found = budget.attempt(waits, 2.0)
    assert found == {"error": "TooLongError: not done after 2 s"}
    assert time.monotonic() - began < 5
    assert clocks.Budget(clocks.START_S).attempt(waits) == {"skipped": "no time left"}


def test_a_graph_keeps_what_it_was_captured_with(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    class Graph:
        def replay(self) -> None:
            calls.append("replay")

        def __enter__(self) -> None:
            calls.append("capture")

        def __exit__(self, *_: Any) -> None:
            pass

    class Stream:
        def wait_stream(self, other: Any) -> None:
            pass

    class Inside(Stream):
        def __enter__(self) -> None:
            pass

        def __exit__(self, *_: Any) -> None:
            pass

    fake = SimpleNamespace(
        Stream=Inside, current_stream=Stream, stream=lambda stream: stream, CUDAGraph=Graph,
        graph=lambda graph: graph,
    )  # fmt: skip
    monkeypatch.setattr(torch, "cuda", fake)
    replay = clocks.captured(lambda: calls.append("step"))
    replay()
    assert calls == ["step"] * 3 + ["capture", "step", "replay"]
