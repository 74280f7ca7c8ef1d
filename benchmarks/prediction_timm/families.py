"""Which networks are siblings: a family stays on one side of every split."""

from __future__ import annotations

import re
import zlib
from collections import defaultdict
from collections.abc import Iterable

# The first pattern that matches names the family: networks that share their blocks.
_FAMILIES = (
    ("efficientnet", r"(tf_)?(gc_|eca_)?(efficientnet|mobilenet|mixnet|mnasnet)|fbnet|spnasnet|"
                     r"semnasnet|tinynet|lcnet|hardcorenas|mobilenet|test_efficientnet|"
                     r"test_mobilenet"),
    ("cspnet", r"cs3|csp|darknet|sedarknet"),
    ("nfnet", r"(dm_|eca_)?nfnet|nf_|test_nfnet"),
    ("regnet", r"regnet|haloregnet"),
    ("resnet", r".*(resne[xt]t?|res2ne|resnest)|tresnet|selecsls|gernet|.*halo|.*botnet|lambda|"
               r"bat_|senet|legacy_se|test_resnet|ecaresnet|dla|rdnet|dpn"),
    ("repvgg", r"repvgg|mobileone|test_byobnet|gernet"),
    ("eva", r"eva"),
    ("vit", r"vit_|deit|beit|flexivit|aimv2|samvit|naflexvit|test_vit|cait|volo"),
    ("convnext", r"convnext|test_convnext"),
    ("maxvit", r"maxvit|maxxvit|coatnet|coatnext"),
    ("mixer", r"mixer|gmixer|resmlp|gmlp"),
    ("metaformer", r"poolformer|caformer|convformer"),
    ("hiera", r"hiera|sam2"),
    ("ghostnet", r"ghostnet|repghostnet"),
    ("hgnet", r"hgnet"),
    ("inception", r"(legacy_)?(inception|xception)|nasnet|pnasnet"),
)  # fmt: skip


def family_of(name: str) -> str:
    """The family of a network's name; the leading letters where no rule names one."""
    for family, pattern in _FAMILIES:
        if re.match(pattern, name):
            return family
    match = re.match(r"(?:tf_|legacy_|ese_|tiny_)?([a-z]+)", name)
    return match[1] if match else name


def sample(names: Iterable[str], every: int) -> list[str]:
    """Some networks of every family: every ``every``-th by a hash of the name, at least one."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name in names:
        groups[family_of(name)].append(name)
    chosen = []
    for members in groups.values():
        members.sort(key=lambda name: zlib.crc32(name.encode()))
        chosen += members[: max(1, round(len(members) / every))]
    return sorted(chosen, key=lambda name: zlib.crc32(name.encode()))


def side_of(family: str) -> int:
    """0 or 1: the half of the families that a family belongs to, by a hash of its name."""
    return zlib.crc32(f"side {family}".encode()) % 2
