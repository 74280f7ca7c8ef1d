"""Facts of real workloads: what fixes look at is what there is."""

from __future__ import annotations

import types
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from tests.fixes.facts import facts  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset  # noqa: E402

from gobrrr.fixes.gathering.gather import (  # noqa: E402
    describe_iterator,
    describe_loader,
    with_objects,
    with_program,
)
from gobrrr.fixes.programs import as_program  # noqa: E402
from gobrrr.timeline.workload import Workload  # noqa: E402

pytestmark = pytest.mark.torch


def test_a_workload_s_parts():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    optimizer = torch.optim.AdamW(model[2].parameters(), foreach=False)
    work = Workload(model, torch.ones(3, 4), loss=lambda y: y.sum(), optimizer=optimizer)
    found = with_program(facts(), work)
    assert found.trains
    assert not found.in_no_grad
    assert found.modules == ("Linear", "ReLU", "Sequential")
    assert found.parameter_dtypes == ("float32",)
    (described,) = found.optimizers
    assert (described.name, described.tensors, described.elements) == ("AdamW", 2, 10)
    assert found.unused_gradients == 2
    assert found.unused_gradients_share == pytest.approx(20 / 30)
    assert found.unused_come_first
    assert found.batch_size == 3


def test_inference_and_bare_steps_differ_in_what_is_recorded():
    model = nn.Linear(4, 4)
    assert with_program(facts(), Workload(model, torch.ones(1, 4))).in_no_grad
    bare = with_program(facts(), as_program(lambda: model(torch.ones(1, 4))))
    assert not bare.in_no_grad
    assert bare.modules == ()


def test_images_that_are_channels_last_already():
    images = torch.ones(2, 3, 8, 8).contiguous(memory_format=torch.channels_last)
    model = nn.Conv2d(3, 3, 1)
    assert with_program(facts(), Workload(model, images)).input_channels_last
    assert not with_program(facts(), Workload(model, images.contiguous())).input_channels_last


def test_a_loader_and_the_iterator_that_outlives_it():
    loader = DataLoader(list(range(8)), batch_size=4)
    assert describe_loader(loader) == describe_iterator(iter(loader))
    assert describe_loader(loader).workers == 0


class _Tokenizer:
    def __call__(self, text: str) -> list[int]:
        return [len(text)]


class _Texts(Dataset):  # type: ignore[type-arg]
    """Tokenizes in a method that ``__getitem__`` calls."""

    def __init__(self) -> None:
        self.tokenizer = _Tokenizer()

    def encode(self, i: int) -> list[int]:
        return [each for word in "ab" for each in self.tokenizer(word * i)]

    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: int) -> list[int]:
        return self.encode(i)


class _Encoded(_Texts):
    def __getitem__(self, i: int) -> list[int]:
        return [i]


class _Padded:
    def __init__(self) -> None:
        self.tokenizer = _Tokenizer()

    def __call__(self, samples: list[Any]) -> Any:
        return self.tokenizer


def test_a_tokenizer_counts_where_code_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Tokenizer, "__module__", "tokenizers")
    assert describe_loader(DataLoader(_Texts())).tokenizes
    assert not describe_loader(DataLoader(_Encoded())).tokenizes
    own = DataLoader(_Encoded(), collate_fn=_Padded())
    assert describe_loader(own).tokenizes
    monkeypatch.setattr(_Padded, "__module__", "transformers.data.data_collator")
    assert not describe_loader(own).tokenizes


class _Stream(IterableDataset):  # type: ignore[type-arg]
    def __iter__(self) -> Any:
        yield from range(4)


def test_how_samples_come_and_how_large_they_are() -> None:
    assert describe_loader(DataLoader(_Stream())).iterable
    columns = TensorDataset(torch.zeros(8, 4), torch.zeros(8, dtype=torch.int64))
    described = describe_loader(DataLoader(columns, batch_size=4))
    assert not described.iterable
    assert described.sample_bytes == 4 * 4 + 8
    assert describe_loader(DataLoader(list(range(8)))).sample_bytes is None


class _Shy:
    """A proxy that does not say what class it has, as a deprecated name of torch's warns."""

    keep: Any = None

    @property
    def __class__(self) -> Any:
        raise FutureWarning("deprecated")


def test_of_the_program_s_other_objects_only_the_type_is_read() -> None:
    held = [_Shy()]
    held[0].keep = held  # the collector knows of objects in a cycle
    model = nn.Linear(4, 4)
    watcher: Any = types.SimpleNamespace(outermost=lambda: model, optimizers=[], source="module")
    assert with_objects(facts(), watcher).modules == ("Linear",)
