"""A node pool in one line: `name=dgx,nodes=dgx1-[1-2],gpus=8,memory=32Gi`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from gpuctl.diag.wording import one_of

KEYS = ("name", "nodes", "gpus", "memory", "cpu", "ram", "product", "sharing", "driver", "mig")
MOST_NODES = 20_000
_RANGE = re.compile(r"([^\[\]]*)\[(\d{1,9})-(\d{1,9})\]([^\[\]]*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A pool as given or seen; the compiler checks it. `gpus`, `cpu`, `ram`: of each node.

    `odd`: nodes with another number of GPUs. `selector`: labels of its nodes, if not its name selects them. `mig`: how
    many GPUs of each node are cut into slices of a profile.
    """

    name: str
    nodes: tuple[str, ...] = ()
    gpus: int = 0
    memory: str = ""
    cpu: str = ""
    ram: str = ""
    product: str = ""
    sharing: str = ""
    driver: str = ""
    mig: tuple[tuple[str, int], ...] = ()
    odd: tuple[tuple[str, int], ...] = ()
    selector: tuple[tuple[str, str], ...] = ()


def pool_of(text: str) -> Pool:
    """A pool from KEY=VALUE, separated by commas; `nodes` and `mig` may be repeated.

    Raises ValueError with the reason.
    """
    said: dict[str, str] = {}
    nodes: list[str] = []
    mig: dict[str, int] = {}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if key not in KEYS or not equals or not value:
            raise ValueError(f"{part!r} is not KEY=VALUE with a key of {one_of(KEYS)}")
        if key in said:
            raise ValueError(f"{key} is there twice")
        if key == "nodes":
            nodes += _named(value, MOST_NODES - len(nodes))
        elif key == "mig":
            profile, count = _cut(value)
            if profile in mig:
                raise ValueError(f"mig={profile} is there twice")
            mig[profile] = count
        else:
            said[key] = value
    if "name" not in said:
        raise ValueError("it has no name")
    gpus = said.pop("gpus", "0")
    if not re.fullmatch(r"[0-9]{1,4}", gpus):
        raise ValueError(f"gpus={gpus} is not a number of GPUs")
    texts: dict[str, Any] = said
    return Pool(nodes=tuple(nodes), gpus=int(gpus), mig=tuple(mig.items()), **texts)


def _cut(text: str) -> tuple[str, int]:
    """A MIG profile, and how many GPUs of each node are cut into its slices: `3g.40gb:2`."""
    profile, _, count = text.partition(":")
    if not profile or not re.fullmatch(r"[0-9]{1,4}", count):
        raise ValueError(f"mig={text} is not PROFILE:GPUS such as 3g.40gb:2")
    return profile, int(count)


def _named(text: str, most: int) -> list[str]:
    """The names of a range, `dgx1-[1-2]`, at most `most`; leading zeros give each number the same width."""
    found = _RANGE.fullmatch(text)
    if found is None:
        if "[" in text or "]" in text:
            raise ValueError(f"nodes={text} is neither a name nor a range such as dgx1-[1-2]")
        names = [text]
    else:
        before, first, last, after = found.groups()
        if int(first) > int(last):
            raise ValueError(f"nodes={text} ends before it begins")
        if int(last) - int(first) >= most:
            raise ValueError(f"a pool has at most {MOST_NODES} nodes")
        names = [f"{before}{number:0{len(first)}}{after}" for number in range(int(first), int(last) + 1)]
    if len(names) > most:
        raise ValueError(f"a pool has at most {MOST_NODES} nodes")
    return names
