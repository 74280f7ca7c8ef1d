"""Record the programs of known regime as files for the test suite, and print their verdicts.

PYTHONPATH=. python benchmarks/regimes/record.py tests/data/regimes
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from benchmarks.regimes.programs import PROGRAMS
from tests.pipeline.recorded_runs import diagnose_run, save_run

from gobrrr.attribution.cpu.attribute import works_on
from gobrrr.attribution.recorded_work import works_of
from gobrrr.devices import ceilings_for_this_machine, this_device
from gobrrr.live.calibration.fixed_cost import calibrate_fixed_costs
from gobrrr.live.function import measure_step
from gobrrr.live.measurements import Plan
from gobrrr.live.profiles.profile import calibrate_profiler_cost


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    ceilings = ceilings_for_this_machine(threads=torch.get_num_threads())
    for name, (make, regime) in PROGRAMS.items():
        measured = measure_step(make(), Plan())
        recorded = measured.recorded or []
        wanted = np.array([works_on(work) for work in works_of(recorded)], bool)
        cost = calibrate_profiler_cost()
        fixed = calibrate_fixed_costs(recorded, wanted, cost)
        path = folder / f"{name}.json.gz"
        save_run(path, measured, cost, fixed, ceilings, this_device())
        found = diagnose_run(path)
        mark = "ok" if found.regime == regime else f"WRONG, expected {regime}"
        split = {k: round(getattr(found.split, k) * 1e3, 3) for k in found.split.__struct_fields__}
        said = found.regime or "no verdict"
        print(f"{name:24} {found.step_s * 1e3:8.3f} ms {said:10} {mark}  {split}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
