"""What a mesh's step is built from, against PyTorch's own code for it."""

from __future__ import annotations

from math import prod

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from gobrrr.prediction.mesh.ddp import BUCKET_BYTES, FIRST_BUCKET_BYTES, buckets_of  # noqa: E402
from gobrrr.prediction.mesh.fsdp import shard_elements  # noqa: E402
from gobrrr.timeline.graph import Parameter  # noqa: E402

pytestmark = pytest.mark.torch


@settings(max_examples=25)
@given(st.lists(st.integers(1, 9_000), min_size=1, max_size=20))
def test_buckets_are_those_of_torchs_reducer(kib: list[int]) -> None:
    assert dist._DEFAULT_FIRST_BUCKET_BYTES == FIRST_BUCKET_BYTES
    tensors = [torch.empty(size, 256) for size in kib]
    limits = [FIRST_BUCKET_BYTES, BUCKET_BYTES]
    theirs, _ = dist._compute_bucket_assignment_by_size(tensors, limits)
    ours = buckets_of(
        Parameter(str(at), "", at, (size, 256), "float32", size * 1024, ready=at)
        for at, size in enumerate(kib)
    )
    assert [[each.storage for each in bucket] for bucket in ours] == theirs


@given(st.lists(st.integers(1, 40), min_size=1, max_size=3).map(tuple), st.integers(1, 64))
def test_shards_are_padded_as_torch_pads_them(shape: tuple[int, ...], ranks: int) -> None:
    common = pytest.importorskip("torch.distributed.fsdp._fully_shard._fsdp_common")
    padded = common._get_dim0_padded_size(torch.Size(shape), ranks)
    assert ranks * shard_elements(shape, ranks) == prod(padded)
