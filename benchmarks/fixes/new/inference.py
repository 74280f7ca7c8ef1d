"""New programs that compute without training, one flaw each; lines with it are marked.

``<name>_mended`` is the same by hand without the flaw. Every function builds its program anew from
seed 0, with the same weights and inputs as its mended form.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations, parametrize

from gobrrr import Workload


def float64_by_accident() -> Workload:
    return _regression(torch.float64)


def float64_by_accident_mended() -> Workload:
    return _regression(torch.float32)


def _regression(dtype: torch.dtype) -> Workload:
    """The means and deviations came from numpy as float64; ``.double()`` made the error go away."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(5):
        layers += [nn.Linear(320, 320), nn.SiLU()]
    model = nn.Sequential(*layers, nn.Linear(320, 7)).to(dtype).eval()
    means, deviations = torch.randn(320).to(dtype), torch.rand(320).to(dtype) + 0.5
    x = torch.randn(208, 320)

    class Normalised(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = model

        def forward(self, x: Tensor) -> Tensor:
            return self.net((x - means) / deviations)  # flaw: float64 statistics

    return Workload(Normalised().eval(), x)


class _TwoHeads(nn.Module):
    def __init__(self, *, everything: bool) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Conv2d(3, 24, 5, stride=2, padding=2), nn.ReLU())
        self.main = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(384, 12))
        self.auxiliary = nn.Sequential(
            nn.Conv2d(24, 72, 3, padding=1), nn.ReLU(), nn.Conv2d(72, 72, 3, padding=1), nn.ReLU(),
            nn.Conv2d(72, 5, 1),
        )  # fmt: skip
        self.everything = everything

    def forward(self, x: Tensor) -> Tensor:
        features = self.trunk(x)
        logits = self.main(features)
        if self.everything:
            segments = self.auxiliary(features)  # flaw: for training; nobody reads it here
            del segments
        return logits


def unread_head() -> Workload:
    torch.manual_seed(0)
    return Workload(_TwoHeads(everything=True).eval(), torch.randn(3, 3, 72, 72))


def unread_head_mended() -> Workload:
    torch.manual_seed(0)
    return Workload(_TwoHeads(everything=False).eval(), torch.randn(3, 3, 72, 72))


class _ByRow(nn.Module):
    """Each candidate is scored by itself, as if the network took no batches."""

    def __init__(self, *, batched: bool) -> None:
        super().__init__()
        self.hidden, self.score = nn.Linear(40, 56), nn.Linear(56, 1)
        self.batched = batched

    def forward(self, candidates: Tensor) -> Tensor:
        if self.batched:
            return self.score(torch.relu(self.hidden(candidates))).squeeze(-1)
        scores = []
        for row in candidates:
            scores.append(self.score(torch.relu(self.hidden(row))).squeeze(-1))  # flaw
        return torch.stack(scores)


def scores_row_by_row() -> Workload:
    torch.manual_seed(0)
    return Workload(_ByRow(batched=False).eval(), torch.randn(180, 40))


def scores_row_by_row_mended() -> Workload:
    torch.manual_seed(0)
    return Workload(_ByRow(batched=True).eval(), torch.randn(180, 40))


class _Biased(nn.Module):
    """Attention in einsum with a learned bias per head and distance."""

    def __init__(self, width: int, heads: int, tokens: int, *, fused: bool) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.bias = nn.Parameter(torch.randn(heads, tokens, tokens))
        self.heads, self.fused = heads, fused

    def forward(self, x: Tensor) -> Tensor:
        n, t, c = x.shape
        q, k, v = (layer(x).view(n, t, self.heads, -1) for layer in (self.q, self.k, self.v))
        if self.fused:
            q, k, v = (part.transpose(1, 2) for part in (q, k, v))
            mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=self.bias)
            return mixed.transpose(1, 2).reshape(n, t, c)
        scores = torch.einsum("bihd,bjhd->bhij", q, k) / math.sqrt(c // self.heads)  # flaw
        weights = (scores + self.bias).softmax(dim=-1)  # flaw
        return torch.einsum("bhij,bjhd->bihd", weights, v).reshape(n, t, c)  # flaw


def attention_in_einsum() -> Workload:
    torch.manual_seed(0)
    return Workload(_Biased(96, 6, 448, fused=False).eval(), torch.randn(3, 448, 96))


def attention_in_einsum_mended() -> Workload:
    torch.manual_seed(0)
    return Workload(_Biased(96, 6, 448, fused=True).eval(), torch.randn(3, 448, 96))


def depthwise_images() -> Workload:
    return _depthwise(torch.contiguous_format)


def depthwise_images_mended() -> Workload:
    return _depthwise(torch.channels_last)


def _depthwise(layout: torch.memory_format) -> Workload:
    torch.manual_seed(0)
    blocks: list[nn.Module] = [nn.Conv2d(3, 48, 3, stride=2, padding=1)]
    for _ in range(5):
        blocks += [nn.Conv2d(48, 48, 5, padding=2, groups=48), nn.Hardswish(),
                   nn.Conv2d(48, 48, 1), nn.Hardswish()]  # fmt: skip
    model = nn.Sequential(*blocks).to(memory_format=layout).eval()  # type: ignore[call-overload]
    return Workload(model, torch.randn(5, 3, 112, 112).to(memory_format=layout))


class _Placed(nn.Module):
    """Adds a sine table of two dimensions to tokens of an image, and projects them."""

    def __init__(self, *, kept: bool) -> None:
        super().__init__()
        self.project = nn.Linear(192, 24)
        self.table: Tensor | None = None
        if kept:
            self.table = self._table(56, 192)

    def _table(self, side: int, width: int) -> Tensor:
        place = torch.arange(side, dtype=torch.float32) * (2 * math.pi / side)  # flaw
        rate = 10000.0 ** (torch.arange(width // 4) / (width // 4))  # flaw
        angle = place[:, None] / rate  # flaw
        rows, columns = angle[:, None].expand(-1, side, -1), angle[None].expand(side, -1, -1)
        parts = [rows.sin(), rows.cos(), columns.sin(), columns.cos()]  # flaw
        return torch.cat(parts, dim=-1).flatten(0, 1)  # flaw

    def forward(self, x: Tensor) -> Tensor:
        table = self._table(56, 192) if self.table is None else self.table  # flaw
        return self.project(x + table)


def sine_table_each_step() -> Workload:
    torch.manual_seed(0)
    return Workload(_Placed(kept=False).eval(), torch.randn(1, 3136, 192))


def sine_table_each_step_mended() -> Workload:
    torch.manual_seed(0)
    return Workload(_Placed(kept=True).eval(), torch.randn(1, 3136, 192))


class _Windowed(nn.Module):
    """Pools tokens over a band with distances that fall off: the band's matrix is built anew."""

    def __init__(self, tokens: int, *, kept: bool) -> None:
        super().__init__()
        self.tokens = tokens
        self.project = nn.Linear(12, 12)
        self.band: Tensor | None = None
        if kept:
            self.band = self._band()

    def _band(self) -> Tensor:
        place = torch.arange(self.tokens)  # flaw
        distance = (place[:, None] - place).abs()  # flaw
        weights = torch.exp(-distance / 9.0)  # flaw
        weights = weights.masked_fill(distance > 40, 0.0)  # flaw
        return weights / weights.sum(dim=-1, keepdim=True)  # flaw

    def forward(self, x: Tensor) -> Tensor:
        band = self._band() if self.band is None else self.band  # flaw
        return band @ self.project(x)


def band_each_step() -> Workload:
    torch.manual_seed(0)
    return Workload(_Windowed(900, kept=False).eval(), torch.randn(900, 12))


def band_each_step_mended() -> Workload:
    torch.manual_seed(0)
    return Workload(_Windowed(900, kept=True).eval(), torch.randn(900, 12))


def gradients_in_evaluation() -> Callable[[], Tensor]:
    return _evaluation(torch.enable_grad)


def gradients_in_evaluation_mended() -> Callable[[], Tensor]:
    return _evaluation(torch.no_grad)


def _evaluation(mode: Callable[[], Any]) -> Callable[[], Tensor]:
    """``model.eval()`` was taken for ``no_grad``; compilers leave recurrent layers alone."""
    torch.manual_seed(0)
    model = nn.GRU(28, 36, num_layers=2, batch_first=True).eval()
    head, x = nn.Linear(36, 4), torch.randn(3, 70, 28)
    y = torch.randint(4, (3,))

    def evaluate() -> Tensor:
        with mode():
            states, _ = model(x)  # flaw
            return (head(states[:, -1]).argmax(-1) == y).float().mean()

    return evaluate


class _Cast(nn.Module):
    """Weights are kept as they came from a file, in float16, and cast where they are used."""

    def __init__(self, *, once: bool) -> None:
        super().__init__()
        wide = torch.float32 if once else torch.float16
        weights = [(torch.randn(448, 448) / 21).half() for _ in range(18)]
        self.weights = nn.ParameterList(nn.Parameter(w.to(wide), False) for w in weights)

    def forward(self, x: Tensor) -> Tensor:
        for weight in self.weights:
            x = torch.relu(functional.linear(x, weight.float()))  # flaw
        return x


def weights_cast_each_step() -> Workload:
    torch.manual_seed(0)
    return Workload(_Cast(once=False).eval(), torch.randn(2, 448))


def weights_cast_each_step_mended() -> Workload:
    torch.manual_seed(0)
    return Workload(_Cast(once=True).eval(), torch.randn(2, 448))


class _Recurrent(nn.Module):
    """An LSTM written out in time with ``nn.LSTMCell``."""

    def __init__(self, *, fused: bool) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(20, 44)
        self.fused: nn.LSTM | None = None
        if fused:
            self.fused = nn.LSTM(20, 44, batch_first=True)
            self.fused.load_state_dict({f"{n}_l0": p for n, p in self.cell.state_dict().items()})

    def forward(self, x: Tensor) -> Tensor:
        if self.fused is not None:
            return self.fused(x)[0]
        h = c = x.new_zeros(len(x), 44)
        outputs = []
        for t in range(x.shape[1]):
            h, c = self.cell(x[:, t], (h, c))  # flaw
            outputs.append(h)
        return torch.stack(outputs, dim=1)


def recurrence_in_python() -> Workload:
    torch.manual_seed(0)
    return Workload(_Recurrent(fused=False).eval(), torch.randn(6, 60, 20))


def recurrence_in_python_mended() -> Workload:
    inputs = recurrence_in_python().inputs
    torch.manual_seed(0)
    return Workload(_Recurrent(fused=True).eval(), inputs)


class _Ranking(nn.Module):
    """The best dozen of many candidates."""

    def __init__(self, *, all_sorted: bool) -> None:
        super().__init__()
        self.items = nn.Parameter(torch.randn(24, 30000))
        self.all_sorted = all_sorted

    def forward(self, users: Tensor) -> tuple[Tensor, Tensor]:
        scores = users @ self.items
        if self.all_sorted:
            values, places = torch.sort(scores, dim=-1, descending=True)  # flaw
            return values[:, :12], places[:, :12]
        values, places = scores.topk(12, dim=-1)
        return values, places


def all_sorted_for_a_dozen() -> Workload:
    torch.manual_seed(0)
    return Workload(_Ranking(all_sorted=True).eval(), torch.randn(10, 24))


def all_sorted_for_a_dozen_mended() -> Workload:
    torch.manual_seed(0)
    return Workload(_Ranking(all_sorted=False).eval(), torch.randn(10, 24))


def weight_norm_in_inference() -> Workload:
    return Workload(_normed().eval(), torch.randn(3, 704))


def weight_norm_in_inference_mended() -> Workload:
    model = _normed()
    for layer in model:
        if parametrize.is_parametrized(layer):
            parametrize.remove_parametrizations(layer, "weight")
    return Workload(model.eval(), torch.randn(3, 704))


def _normed() -> nn.Sequential:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(4):
        layers += [parametrizations.weight_norm(nn.Linear(704, 704)), nn.ReLU()]
    return nn.Sequential(*layers)


def spectral_norm_in_inference() -> Workload:
    return Workload(_spectral().eval(), torch.randn(1, 40, 6, 6))


def spectral_norm_in_inference_mended() -> Workload:
    model = _spectral().eval()
    for layer in model:
        if isinstance(layer, nn.Conv2d):
            torch.nn.utils.remove_spectral_norm(layer)
    return Workload(model, torch.randn(1, 40, 6, 6))


def _spectral() -> nn.Sequential:
    """The hooks of ``torch.nn.utils.spectral_norm``, which run in evaluation too."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(6):
        layers += [
            torch.nn.utils.spectral_norm(nn.Conv2d(40, 40, 3, padding=1)), nn.LeakyReLU(0.2),
        ]  # fmt: skip
    return nn.Sequential(*layers)


class _LinearAttention(nn.Module):
    """Attention without softmax over heads that are copied out of their places first."""

    def __init__(self, *, copied: bool) -> None:
        super().__init__()
        self.copied = copied

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (part.transpose(0, 1) for part in (q, k, v))
        if self.copied:
            q = q.contiguous()  # flaw
            k = k.contiguous()  # flaw
            v = v.contiguous()  # flaw
        return torch.bmm(q, torch.bmm(k.transpose(1, 2), v))


def heads_copied_out() -> Workload:
    torch.manual_seed(0)
    model = _LinearAttention(copied=True).eval()
    return Workload(model, tuple(torch.randn(6000, 12, 20) / 40 for _ in range(3)))


def heads_copied_out_mended() -> Workload:
    torch.manual_seed(0)
    model = _LinearAttention(copied=False).eval()
    return Workload(model, tuple(torch.randn(6000, 12, 20) / 40 for _ in range(3)))
