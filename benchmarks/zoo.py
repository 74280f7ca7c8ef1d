"""Small networks of many kinds with random weights, their inputs and losses.

    from zoo import MODELS, build
    model, inputs, loss = build("bert")      # model(*inputs) -> output; loss(output) -> scalar

Nothing is downloaded: every network is built from its library's configuration class. Sizes
``small`` (a step takes a few hundred milliseconds on two cores) and ``tiny`` (for tests).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Network:
    """A network with what a step needs.

    Attributes:
        model: called as ``model(*inputs)``.
        inputs: tensors, batch first.
        loss: takes the output, returns a scalar.
    """

    model: nn.Module
    inputs: tuple[Any, ...]
    loss: Callable[[Any], Tensor]

    def __iter__(self) -> Any:
        return iter((self.model, self.inputs, self.loss))


def _label_loss(classes: int, *shape: int) -> Callable[[Any], Tensor]:
    labels = torch.randint(classes, shape)

    def loss(output: Any) -> Tensor:
        logits = output.logits if hasattr(output, "logits") else output
        return functional.cross_entropy(logits.flatten(0, -2), labels.flatten())

    return loss


def _noise_loss(*shape: int) -> Callable[[Any], Tensor]:
    noise = torch.randn(shape)

    def loss(output: Any) -> Tensor:
        return functional.mse_loss(output.sample[:, : shape[1]], noise)

    return loss


def bert(tiny: bool = False) -> Network:
    """BERT with a masked-language head, with padding in the batch."""
    from transformers import BertConfig, BertForMaskedLM

    width, layers, tokens, vocabulary = (32, 2, 12, 97) if tiny else (256, 4, 128, 8000)
    config = BertConfig(
        vocab_size=vocabulary, hidden_size=width, num_hidden_layers=layers, num_attention_heads=4,
        intermediate_size=4 * width, max_position_embeddings=tokens,
    )  # fmt: skip
    ids = torch.randint(vocabulary, (4, tokens))
    mask = torch.ones(4, tokens, dtype=torch.long)
    mask[1, tokens // 2 :] = 0
    return Network(BertForMaskedLM(config), (ids, mask), _label_loss(vocabulary, 4, tokens))


def gpt2(tiny: bool = False) -> Network:
    """GPT-2 with its language head."""
    from transformers import GPT2Config, GPT2LMHeadModel

    width, layers, tokens, vocabulary = (32, 2, 12, 97) if tiny else (256, 4, 128, 8000)
    config = GPT2Config(
        vocab_size=vocabulary, n_positions=tokens, n_embd=width, n_layer=layers, n_head=4,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    ids = torch.randint(vocabulary, (4, tokens))
    return Network(GPT2LMHeadModel(config), (ids,), _label_loss(vocabulary, 4, tokens))


def llama(tiny: bool = False) -> Network:
    """Llama with grouped-query attention: 4 query heads share 2 key-value heads."""
    from transformers import LlamaConfig, LlamaForCausalLM

    width, layers, tokens, vocabulary = (32, 2, 12, 97) if tiny else (256, 4, 128, 8000)
    config = LlamaConfig(
        vocab_size=vocabulary, hidden_size=width, intermediate_size=width * 11 // 4,
        num_hidden_layers=layers, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=tokens,
    )  # fmt: skip
    ids = torch.randint(vocabulary, (4, tokens))
    return Network(LlamaForCausalLM(config), (ids,), _label_loss(vocabulary, 4, tokens))


def mamba(tiny: bool = False) -> Network:
    """Mamba on the path of plain PyTorch (a loop over the sequence)."""
    from transformers import MambaConfig, MambaForCausalLM

    width, layers, tokens, vocabulary = (16, 1, 6, 97) if tiny else (192, 2, 48, 4000)
    config = MambaConfig(
        vocab_size=vocabulary, hidden_size=width, num_hidden_layers=layers, state_size=8,
        use_mambapy=False,
    )  # fmt: skip
    ids = torch.randint(vocabulary, (2, tokens))
    return Network(MambaForCausalLM(config), (ids,), _label_loss(vocabulary, 2, tokens))


def vit(tiny: bool = False) -> Network:
    """Vision transformer with a classifier."""
    from transformers import ViTConfig, ViTForImageClassification

    width, layers, size = (32, 2, 32) if tiny else (256, 4, 160)
    config = ViTConfig(
        hidden_size=width, num_hidden_layers=layers, num_attention_heads=4,
        intermediate_size=4 * width, image_size=size, patch_size=16, num_labels=10,
    )  # fmt: skip
    images = torch.randn(4, 3, size, size)
    return Network(ViTForImageClassification(config), (images,), _label_loss(10, 4))


def dit(tiny: bool = False) -> Network:
    """Diffusion transformer of ``diffusers``, conditioned on time and class."""
    from diffusers import DiTTransformer2DModel

    heads, layers, size = (2, 1, 8) if tiny else (4, 3, 32)
    model = DiTTransformer2DModel(
        num_attention_heads=heads, attention_head_dim=16 if tiny else 64, in_channels=4,
        out_channels=8, num_layers=layers, sample_size=size, num_embeds_ada_norm=1000,
    )  # fmt: skip
    inputs = (torch.randn(2, 4, size, size), torch.tensor([10, 500]), torch.tensor([1, 7]))
    named = _Keywords(model, ("timestep", "class_labels"))
    return Network(named, inputs, _noise_loss(2, 4, size, size))


def unet(tiny: bool = False) -> Network:
    """Denoising U-Net of ``diffusers`` with attention at its lower resolution."""
    from diffusers import UNet2DModel

    channels, size = ((8, 16), 16) if tiny else ((64, 128), 32)
    model = UNet2DModel(
        sample_size=size, in_channels=3, out_channels=3, layers_per_block=1,
        block_out_channels=channels, down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"), norm_num_groups=8, attention_head_dim=8,
    )  # fmt: skip
    inputs = (torch.randn(2, 3, size, size), torch.tensor([10, 500]))
    return Network(model, inputs, _noise_loss(2, 3, size, size))


def unet_text(tiny: bool = False) -> Network:
    """U-Net with cross-attention to a text embedding, as in latent diffusion."""
    from diffusers import UNet2DConditionModel

    channels, size, text = ((8, 16), 8, 16) if tiny else ((64, 128), 32, 128)
    model = UNet2DConditionModel(
        sample_size=size, layers_per_block=1, block_out_channels=channels,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), norm_num_groups=8,
        cross_attention_dim=text, attention_head_dim=8,
    )  # fmt: skip
    inputs = (torch.randn(2, 4, size, size), torch.tensor([10, 500]), torch.randn(2, 7, text))
    return Network(model, inputs, _noise_loss(2, 4, size, size))


def resnet50(tiny: bool = False) -> Network:
    """ResNet-50 (``tiny``: two bottleneck stages)."""
    from transformers import ResNetConfig, ResNetForImageClassification

    config = (
        ResNetConfig(embedding_size=8, hidden_sizes=[16, 32], depths=[1, 1], num_labels=10)
        if tiny
        else ResNetConfig(num_labels=1000)
    )
    size, classes = (32, 10) if tiny else (128, 1000)
    images = torch.randn(2, 3, size, size)
    return Network(ResNetForImageClassification(config), (images,), _label_loss(classes, 2))


class _Lstm(nn.Module):
    def __init__(self, vocabulary: int, width: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True, dropout=0.1)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids: Tensor) -> Tensor:
        hidden, _ = self.lstm(self.embedding(ids))
        return self.head(hidden)


def lstm(tiny: bool = False) -> Network:
    """A language model of two LSTM layers."""
    width, tokens, vocabulary = (16, 6, 97) if tiny else (256, 64, 4000)
    ids = torch.randint(vocabulary, (4, tokens))
    return Network(_Lstm(vocabulary, width, 2), (ids,), _label_loss(vocabulary, 4, tokens))


class _GraphNet(nn.Module):
    """Messages along edges, summed and averaged at their targets with ``scatter_add``."""

    def __init__(self, features: int, width: int, classes: int) -> None:
        super().__init__()
        self.first = nn.Linear(features, width)
        self.message = nn.Linear(2 * width, width)
        self.update = nn.GRUCell(width, width)
        self.head = nn.Linear(width, classes)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        hidden = functional.relu(self.first(nodes))
        source, target = edges
        for _ in range(2):
            pairs = torch.cat((hidden[source], hidden.index_select(0, target)), dim=-1)
            messages = functional.silu(self.message(pairs))
            total = torch.zeros_like(hidden).scatter_add(
                0, target[:, None].expand_as(messages), messages
            )
            degree = torch.zeros(len(hidden)).index_add(0, target, torch.ones(len(target)))
            hidden = self.update(total / degree.clamp(min=1)[:, None], hidden)
        return self.head(hidden)


def graph(tiny: bool = False) -> Network:
    """A message-passing network on a random graph."""
    nodes, edges, width = (20, 60, 16) if tiny else (4000, 32000, 64)
    inputs = (torch.randn(nodes, 32), torch.randint(nodes, (2, edges)))
    return Network(_GraphNet(32, width, 7), inputs, _label_loss(7, nodes))


class _Dlrm(nn.Module):
    """Embedding bags and dense features, their pairwise dot products, and an MLP on top.

    The shape of Naumov et al., "Deep Learning Recommendation Model for Personalization and
    Recommendation Systems" (https://arxiv.org/abs/1906.00091).
    """

    def __init__(self, rows: int, width: int, tables: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(
            nn.EmbeddingBag(rows, width, mode="sum" if i % 2 else "mean") for i in range(tables)
        )
        self.bottom = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, width), nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(nn.Linear(width + pairs, 64), nn.ReLU(), nn.Linear(64, 1))
        self.register_buffer("pairs", torch.tril_indices(tables + 1, tables + 1, -1))

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        below = self.bottom(dense)
        bags = [table(sparse[:, i]) for i, table in enumerate(self.tables)]
        stacked = torch.stack([below, *bags], dim=1)
        products = torch.bmm(stacked, stacked.transpose(1, 2))
        chosen = products[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat((below, chosen), dim=1)).squeeze(-1)


def dlrm(tiny: bool = False) -> Network:
    """A recommendation model with embedding bags."""
    rows, width, tables, batch = (50, 8, 3, 6) if tiny else (20000, 32, 8, 512)
    inputs = (torch.randn(batch, 13), torch.randint(rows, (batch, tables, 4)))
    clicks = torch.randint(2, (batch,)).float()

    def loss(output: Tensor) -> Tensor:
        return functional.binary_cross_entropy_with_logits(output, clicks)

    return Network(_Dlrm(rows, width, tables), inputs, loss)


class _Keywords(nn.Module):
    """Passes the positional arguments after the first under these names."""

    def __init__(self, model: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model = model
        self.names = names

    def forward(self, first: Any, *others: Any) -> Any:
        return self.model(first, **dict(zip(self.names, others)))


MODELS: dict[str, Callable[..., Network]] = {
    "bert": bert,
    "gpt2": gpt2,
    "llama": llama,
    "mamba": mamba,
    "vit": vit,
    "dit": dit,
    "unet": unet,
    "unet_text": unet_text,
    "resnet50": resnet50,
    "lstm": lstm,
    "graph": graph,
    "dlrm": dlrm,
}


def build(name: str, *, tiny: bool = False, seed: int = 0) -> Network:
    """The network of this name, the same weights and inputs for the same seed."""
    torch.manual_seed(seed)
    return MODELS[name](tiny)
