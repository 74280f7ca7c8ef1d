"""diffusers' block and the parts that are measured beside it."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("diffusers")

from gobrrr.lab.dit_parts import CPU_WIDTH, make_block  # noqa: E402
from gobrrr.lab.setting import Setting  # noqa: E402

pytestmark = pytest.mark.models


def test_the_chain_is_what_the_block_does_around_a_sublayer() -> None:
    block = make_block(Setting(), tokens=8, clips=2)
    # In training some labels are dropped at random.
    block.module.eval()
    seen: dict[str, object] = {}
    block.module.attn1.register_forward_pre_hook(lambda _, inputs: seen.update(x=inputs[0]))
    with torch.no_grad():
        assert block.forward(block.x).shape == (2, 8, CPU_WIDTH)
        time = torch.full((2,), 500)
        label = torch.full((2,), 7)
        embedded = block.module.norm1.emb(time, label, hidden_dtype=block.x.dtype)
        shift, scale, *_ = block.module.norm1.linear(torch.nn.functional.silu(embedded)).chunk(6, 1)
        wanted = block.ada_ln.modulate(block.x, shift[:, None], scale[:, None])
    assert torch.allclose(seen["x"], wanted, atol=1e-5)  # type: ignore[arg-type]
