"""Record the programs of known regime as files for the test suite, and print their verdicts.

python benchmarks/regimes/record.py tests/data/regimes
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from programs import PROGRAMS  # noqa: E402
from tests.pipeline.recorded_runs import diagnose_run, save_run  # noqa: E402

from gobrrr.attribution.cpu import works_on  # noqa: E402
from gobrrr.attribution.cpu_run import works_of  # noqa: E402
from gobrrr.capture.fixed_cost import calibrate_fixed_costs  # noqa: E402
from gobrrr.capture.profile import calibrate_profiler_cost  # noqa: E402
from gobrrr.capture.session import Plan  # noqa: E402
from gobrrr.devices import ceilings_for_this_machine  # noqa: E402
from gobrrr.pipeline.live import measure_step, this_device  # noqa: E402


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
        print(f"{name:24} {found.step_s * 1e3:8.3f} ms {found.regime:9} {mark}  {split}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
