"""The figures of a run -> what is shown of it: the verdict, a map of ranks by cause, step times."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gobrrr.attribution.leaves import LEAVES
from gobrrr.fleet.culprits import culprits_of
from gobrrr.fleet.folder import FleetFolder
from gobrrr.fleet.merge import NETWORK, WAIT, RunFigures
from gobrrr.fleet.verdict import HeatRow, RunVerdict

Float64 = NDArray[np.float64]

# Rows of the map: more ranks are drawn by host, or some beside each other in one row.
MOST_ROWS = 128
BINS = 40
# A column of the map is worth it if any row spends this share of a step on it.
_WORTH_A_COLUMN = 0.005
_COMPUTE, _DEVICE = "compute", "memory.device"


def run_verdict(found: RunFigures, folder: FleetFolder) -> RunVerdict:
    """What is to be said of one run."""
    named, culprits = culprits_of(found, folder)
    times = np.concatenate(found.step_s)
    low, middle, high = (float(value) for value in np.percentile(times, (5, 50, 95)))
    counts, edges = np.histogram(times, bins=BINS)
    hosts = {row.host for row in found.files}
    network = found.leaves_s[:, [NETWORK, WAIT]].mean(axis=0)
    groups, heat, of = _heat(found, middle)
    return RunVerdict(
        run=found.run,
        ranks=len(found.files),
        hosts=None if None in hosts else len(hosts),
        world_size=found.world_size,
        steps=float(np.median([len(each) for each in found.step_s])),
        step_s=middle,
        step_low_s=low,
        step_high_s=high,
        wait_s=float(network[1]) if found.complete else None,
        transfer_s=float(network[0]) if found.complete else None,
        network_s=float(network.sum()),
        named=named,
        culprits=culprits,
        groups=groups,
        heat=heat,
        heat_of=of,
        histogram_low_s=float(edges[0]),
        histogram_high_s=float(edges[-1]),
        step_times=counts.tolist(),
        notices=list(found.notices),
    )


def _groups() -> dict[str, list[int]]:
    """Columns of the map: compute and the device's memory each as one, all else leaf by leaf."""
    found: dict[str, list[int]] = {}
    for i, leaf in enumerate(LEAVES):
        level = next((name for name in (_COMPUTE, _DEVICE) if leaf.startswith(name + ".")), leaf)
        found.setdefault(level, []).append(i)
    return found


def _heat(found: RunFigures, step_s: float) -> tuple[list[str], list[HeatRow], str]:
    groups = _groups()
    columns = np.array([found.leaves_s[:, rows].sum(axis=1) for rows in groups.values()]).T
    kept = np.flatnonzero(columns.max(axis=0) >= _WORTH_A_COLUMN * step_s)
    names = [list(groups)[i] for i in kept.tolist()]
    values = columns[:, kept]
    rows, of = _rows_of_heat(found)
    return (
        names,
        # The largest of a row's ranks: one slow rank must not vanish among fast ones.
        [HeatRow(label=label, values_s=values[at].max(axis=0).tolist()) for label, at in rows],
        of,
    )


def _rows_of_heat(found: RunFigures) -> tuple[list[tuple[str, list[int]]], str]:
    ranks, count = found.ranks, len(found.files)
    if count <= MOST_ROWS:
        return [(str(rank), [i]) for i, rank in enumerate(ranks)], "rank"
    hosts: dict[str, list[int]] = {}
    for i, row in enumerate(found.files):
        hosts.setdefault(row.host or "", []).append(i)
    if "" not in hosts and len(hosts) <= 2 * MOST_ROWS:
        return list(hosts.items()), "host"
    size = -(-count // MOST_ROWS)
    cuts = [list(range(at, min(at + size, count))) for at in range(0, count, size)]
    return [(f"{ranks[cut[0]]} to {ranks[cut[-1]]}", cut) for cut in cuts], "ranks"
