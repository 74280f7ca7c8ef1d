"""The networks of published times, with random weights, on the meta device.

``published.csv`` is from the guide "Optimize inference using torch.compile()" of transformers
(docs/source/en/perf_torch_compile.md at commit 0559c47, Apache-2.0): mean of 300 inferences in
milliseconds, float32, torch 2.0.1, one image repeated, on an A100, a V100 and a T4. Of its twelve
networks the six that transformers builds by itself and whose input has one size are kept. Their
configurations are those of the checkpoints that the guide names; transformers wrote attention out
in 2023, as ``eager`` does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

CARDS = {"A100": "A100-SXM-40GB", "V100": "V100-SXM2", "T4": "T4"}


def networks() -> dict[str, tuple[Any, int]]:
    """Each network with the side of its images."""
    import torch
    import transformers as hf

    with torch.device("meta"):
        built = {
            # google/vit-base-patch16-224
            "vit": (hf.ViTForImageClassification(hf.ViTConfig(attn_implementation="eager")), 224),
            # microsoft/beit-base-patch16-224-pt22k-ft22k
            "beit": (
                hf.BeitForImageClassification(
                    hf.BeitConfig(
                        num_labels=21841, use_relative_position_bias=True,
                        use_shared_relative_position_bias=False, use_mask_token=False,
                        attn_implementation="eager",
                    )
                ),
                224,
            ),
            # facebook/convnext-large-224
            "convnext": (
                hf.ConvNextForImageClassification(
                    hf.ConvNextConfig(depths=[3, 3, 27, 3], hidden_sizes=[192, 384, 768, 1536])
                ),
                224,
            ),
            # microsoft/resnet-50
            "resnet": (hf.ResNetForImageClassification(hf.ResNetConfig()), 224),
            # nvidia/segformer-b0-finetuned-ade-512-512
            "segformer": (
                hf.SegformerForSemanticSegmentation(
                    hf.SegformerConfig(num_labels=150, attn_implementation="eager")
                ),
                512,
            ),
            # google/deeplabv3_mobilenet_v2_1.0_513
            "mobilenet": (
                hf.MobileNetV2ForSemanticSegmentation(
                    hf.MobileNetV2Config(num_labels=21, output_stride=8, image_size=513)
                ),
                513,
            ),
        }  # fmt: skip
    return {name: (model.to("meta").eval(), side) for name, (model, side) in built.items()}


def inference(model: Any, side: int, batch: int) -> Callable[[], Any]:
    """One step of a network."""
    import torch

    images = torch.empty(batch, 3, side, side, device="meta")

    def step() -> Any:
        with torch.no_grad():
            return model(images)

    return step
