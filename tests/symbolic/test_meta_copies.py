"""What a capture makes of tensors that live on a device."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from gobrrr.symbolic.meta_copies import MetaCopies  # noqa: E402

pytestmark = pytest.mark.torch


def test_copies_share_memory_where_the_tensors_do() -> None:
    copies = MetaCopies()
    whole = torch.randn(4, 6)
    part, other = whole.t()[1:], torch.randn(4, 6)
    of_whole, of_part, of_other = (copies.of(tensor) for tensor in (whole, part, other))
    assert of_part.device.type == "meta"
    assert (of_part.shape, of_part.stride(), of_part.storage_offset()) == (
        part.shape, part.stride(), part.storage_offset(),
    )  # fmt: skip
    assert of_part.untyped_storage()._cdata == of_whole.untyped_storage()._cdata
    assert of_other.untyped_storage()._cdata != of_whole.untyped_storage()._cdata
    assert of_whole.untyped_storage().nbytes() == whole.untyped_storage().nbytes()


def test_dtypes_are_kept_and_no_gradient_is_asked_for() -> None:
    made = MetaCopies().of(torch.nn.Parameter(torch.ones(3, dtype=torch.bfloat16)))
    assert made.dtype == torch.bfloat16 and not made.requires_grad


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA or ROCm device")
@pytest.mark.parametrize("trains", [False, True])
def test_a_model_on_a_gpu_is_predicted_as_one_on_a_processor(trains: bool) -> None:
    import gobrrr

    steps = []
    for place in ("cpu", "cuda"):
        torch.manual_seed(0)
        layers = torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Linear(256, 256)
        model = torch.nn.Sequential(*layers).to(place)
        model[2].weight = model[0].weight
        optimizer = torch.optim.AdamW(model.parameters()) if trains else None
        loss = (lambda y: y.square().mean()) if trains else None
        x = torch.randn(64, 256, device=place)
        work = gobrrr.Workload(model, x, loss=loss, optimizer=optimizer)
        found = gobrrr.predict(work, "H100-SXM", progress=False)
        steps.append((found.step.time_s.median, found.counters.get("ops")))
    assert steps[0] == steps[1]
