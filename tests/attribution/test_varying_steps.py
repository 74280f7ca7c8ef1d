"""Steps that differ in size, measured on a processor: what is counted is a mean, as the work is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gobrrr.attribution.cpu.attributed import attributed_cpu
from gobrrr.attribution.cpu.run import attribute_measurements
from gobrrr.attribution.recorded_work import works_of
from gobrrr.devices.ceilings import Ceiling, Ceilings, MemoryLevel
from gobrrr.diagnosis.assemble import assemble
from gobrrr.diagnosis.gate import against_baseline
from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.live.calibration.fixed_cost import FixedCosts
from gobrrr.live.measurements import Measurements, StepKind
from gobrrr.live.profiles.profile import ProfilerCost, RawEvents
from gobrrr.timeline.data import Device
from gobrrr.timeline.graph import StepOp
from gobrrr.timeline.ops import OpCall, TensorSpec

CPU = Device("test processor", "cpu")
FAULTS = 10


def ceilings() -> Ceilings:
    """1 FLOP/ns, 1 byte/ns, 1 ns for a page fault."""
    rows = {
        name: Ceiling(name, 1e9, "FLOP/s", "given", "test")
        for name in ("matrix.float32", "vector.float32")
    }
    rows["page_fault"] = Ceiling("page_fault", 1e-9, "s", "given", "test")
    return Ceilings("test processor", rows, (MemoryLevel("dram", None, ((0.0, 1e9),)),))


def recorded(rounds: int) -> list[StepOp]:
    """So many rounds of an op with fresh memory and a read of one value."""
    x = TensorSpec((2,), "float32")
    relu = OpCall("aten::relu", (x,), (x,))
    read = OpCall("aten::_local_scalar_dense", (TensorSpec((), "float32"),))
    return [StepOp(relu, page_faults=FAULTS), StepOp(read)] * rounds


def profiled(rounds: int) -> RawEvents:
    """Each op takes 100 ns, with 100 ns after each."""
    start = np.arange(2 * rounds, dtype=np.int64) * 200
    return RawEvents(
        names=("aten::relu", "aten::_local_scalar_dense"),
        start_ns=start,
        end_ns=start + 100,
        name=np.array([0, 1] * rounds, np.int32),
        thread=np.zeros(2 * rounds, np.int32),
        annotation=np.zeros(2 * rounds, bool),
        length_ns=400 * rounds,
        gc_ns=(),
    )


def measured(largest: int, *others: tuple[int, float], timed: tuple[int, ...], share: float,
             faults: float | None = None) -> Measurements:  # fmt: skip
    """Steps of so many rounds were timed; the largest recorded one counts ``share``."""
    found = Measurements(source="function", recorded=recorded(largest))
    found.plain_ns = [[400 * rounds for rounds in timed], []]
    found.profiled = [profiled(rounds) for rounds in (largest, *(size for size, _ in others))]
    steps = ((largest, share), *others)
    found.kind = StepKind(
        varying=True,
        others=tuple((recorded(size), counts) for size, counts in steps),
        page_faults=faults,
    )
    return found


def diagnosed(found: Measurements) -> Diagnosis:
    ops = found.recorded or []
    analysis = attribute_measurements(
        found, works_of(ops), ProfilerCost(0.0, 0.0), FixedCosts(np.zeros(len(ops)), {}, 0),
        ceilings(), CPU,
    )  # fmt: skip
    step = attributed_cpu(found, analysis, ceilings(), CPU)
    return assemble(step, source={"kind": "function", "name": "test"}, environment={})


def test_what_is_counted_is_of_the_mean_step() -> None:
    # Timed steps of 2 and 4 rounds: 3 in the mean, of which the recorded one of 4 counts half.
    found = diagnosed(measured(4, (2, 0.5), timed=(2, 4), share=0.5))
    counters = found.counters
    assert counters["ops"] == pytest.approx(6)
    assert counters["kernels"] == pytest.approx(6)
    assert counters["reads_of_one_value"] == pytest.approx(3)
    assert counters["page_faults"] == pytest.approx(3 * FAULTS)
    # As the work: 2 FLOP in each round.
    assert counters["flops"] == pytest.approx(3 * 2)
    assert found.leaves["memory.page_faults"] == pytest.approx(3 * FAULTS * 1e-9)


def test_rounds_that_the_recorded_step_lacks_are_modelled_as_those_that_it_has() -> None:
    # Timed and profiled: 2 and 6 rounds. Recorded: 4 and 2; by the line through them a mean step
    # has 4 rounds' work. The two rounds of the longest that match none take their ops' time.
    found = measured(4, (2, 0.0), timed=(2, 6), share=1.0, faults=0)
    found.profiled = [profiled(2), profiled(6)]
    step = diagnosed(found)
    assert step.leaves["memory.unmodelled"] == step.leaves["compute.unmodelled"] == 0
    assert sum(step.leaves.values()) == pytest.approx(1600e-9)
    rows = [row for row in step.ops if row.name == "aten::relu"]
    # One row: 4 calls of 100 ns, with 4 times the work of one.
    assert sum(row.time_s for row in rows) == pytest.approx(400e-9)
    assert sum(row.count for row in rows) == pytest.approx(4)
    assert step.counters["flops"] == pytest.approx(4 * 2)
    (said,) = [text for text in step.notices if "match the recorded step" in text]
    assert "unmodelled" not in said


def test_page_faults_are_those_of_the_timed_steps_everywhere() -> None:
    # 15 in a step that nothing is attached to, where recorded ones tell of 30.
    found = diagnosed(measured(4, (2, 0.5), timed=(2, 4), share=0.5, faults=15))
    assert found.counters["page_faults"] == pytest.approx(15)
    assert found.leaves["memory.page_faults"] == pytest.approx(15e-9)
    same = measured(3, timed=(3, 3), share=1.0, faults=15)
    same.kind = replace(same.kind, varying=False, others=())
    constant = diagnosed(same)
    assert constant.counters["page_faults"] == pytest.approx(15)
    assert constant.leaves["memory.page_faults"] == pytest.approx(15e-9)
    # What is counted of steps that do not vary is one of them.
    assert (constant.counters["ops"], constant.counters["reads_of_one_value"]) == (6, 3)


def test_a_program_holds_its_own_gate_whichever_of_its_steps_were_recorded() -> None:
    # The same steps of 1 to 5 rounds, timed in full: 3 rounds in the mean.
    timed = (1, 2, 3, 4, 5)
    # Recorded were 5 and 1: the mean lies half way. Or 4 and 2: half way, too.
    once = diagnosed(measured(5, (1, 0.5), timed=timed, share=0.5))
    again = diagnosed(measured(4, (2, 0.5), timed=timed, share=0.5))
    for found, baseline in ((once, again), (again, once)):
        assert against_baseline(found, baseline).breaches == ()
