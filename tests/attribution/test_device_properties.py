from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gobrrr.attribution.device.attribute import attribute_device
from gobrrr.timeline.data import Device, HostKind, HostSpans, KernelKind, Kernels, Timeline

TIMES = st.integers(0, 60)
KERNELS = st.lists(
    st.tuples(TIMES, st.integers(0, 30), st.sampled_from(list(KernelKind)), st.integers(0, 4)),
    min_size=1,
    max_size=14,
)
SPANS = st.lists(
    st.tuples(TIMES, st.integers(0, 30), st.sampled_from(list(HostKind)), st.integers(0, 1)),
    max_size=14,
)
NAMES = ("gemm", "elementwise", "mystery", "copy", "cudaLaunchKernel")


def timeline_of(
    kernels: list[tuple[int, int, KernelKind, int]],
    spans: list[tuple[int, int, HostKind, int]],
    borders: list[int],
    links: list[int],
) -> Timeline:
    kernels = sorted(kernels, key=lambda k: (k[0], k[0] + k[1]))
    spans = sorted(spans, key=lambda s: (s[0], -s[1]))
    k = np.array([(a, a + d, int(kind), name) for a, d, kind, name in kernels], np.int64)
    s = np.array([(a, a + d, int(kind), lane) for a, d, kind, lane in spans], np.int64)
    s = s.reshape(-1, 4)
    n, m = len(k), len(s)
    none = np.full(m, -1)
    host = HostSpans(
        s[:, 0], s[:, 1], s[:, 3].astype(np.int32), s[:, 2].astype(np.uint8),
        np.full(m, 4, np.int32), none.astype(np.int32), none.astype(np.int32),
        none.astype(np.int32), np.zeros(m, np.uint8), none,
    )  # fmt: skip
    launch = np.array([link if link < m else -1 for link in links[:n]] + [-1] * (n - len(links)))
    device = Kernels(
        k[:, 0], k[:, 1], np.zeros(n, np.int32), k[:, 2].astype(np.uint8),
        k[:, 3].astype(np.int32), np.full(n, -1), launch.astype(np.int64), np.full(n, -1),
        np.full(n, -1), np.full(n, -1),
    )  # fmt: skip
    # Windows that tile from before the first kernel to after the last.
    low, high = min(int(k[0, 0]), min(borders)), max(int(k[:, 1].max()), max(borders) + 1)
    edges = sorted({low, high, *[b for b in borders if low < b < high]})
    steps = np.array([edges[:-1], edges[1:]], np.int64).T
    return Timeline(NAMES, (), host, device, steps, ("s",) * len(steps), Device("x", "cuda"))


@settings(max_examples=150)
@given(
    KERNELS, SPANS, st.lists(TIMES, min_size=1, max_size=3),
    st.lists(st.integers(0, 15), max_size=14),
)  # fmt: skip
def test_leaves_sum_to_the_step_for_any_intervals(
    kernels: list[tuple[int, int, KernelKind, int]],
    spans: list[tuple[int, int, HostKind, int]],
    borders: list[int],
    links: list[int],
) -> None:
    timeline = timeline_of(kernels, spans, borders, links)
    found = attribute_device(timeline, None, lambda call: None)
    found.attribution.check()
    lengths = timeline.steps[:, 1] - timeline.steps[:, 0]
    for leaves, length in zip(found.attribution.windows, lengths.tolist()):
        assert abs(sum(leaves.values()) - length) < 1e-6
    busy = found.device_time
    owned = found.owned.end - found.owned.start
    assert int(owned.sum()) == busy.busy_ns
    idle = int((found.idle.end_ns - found.idle.start_ns).sum())
    assert idle + busy.busy_ns == int(lengths.sum())
    shares = found.attribution.kernels
    assert np.allclose(shares.fixed_ns + shares.roof_ns + shares.below_ns, shares.owned_ns)
    total = sum(gap.duration_ns for gap in found.attribution.idle) * len(lengths)
    assert abs(total - idle) < 1e-6
