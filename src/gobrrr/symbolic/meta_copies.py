"""Tensors of a device as tensors without memory."""

from __future__ import annotations

from typing import Any


class MetaCopies:
    """Copies on the meta device: tensors that share memory have copies that do."""

    def __init__(self) -> None:
        # The first of each pair is kept, since another storage could take its number.
        self._storages: dict[int, tuple[Any, Any]] = {}

    def of(self, tensor: Any) -> Any:
        """The copy of a strided tensor: its shape, strides, offset and dtype; it needs no gradient.

        Call it outside all modes.
        """
        import torch

        if tensor.device.type == "meta":
            return tensor.detach()
        storage = tensor.untyped_storage()
        pair = self._storages.get(storage._cdata)
        if pair is None:
            alike = torch.empty(storage.nbytes(), dtype=torch.uint8, device="meta")
            pair = self._storages[storage._cdata] = (storage, alike.untyped_storage())
        made = torch.empty(0, dtype=tensor.dtype, device="meta")
        return made.set_(pair[1], tensor.storage_offset(), tensor.shape, tensor.stride())
