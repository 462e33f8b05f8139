"""What gpuctl knows of a kind of another controller: one row, of `gpuctl/k8s/workload_table.py` or of a Cluster.

A row is data: where the pods of such an object are, how many, how it is stopped, and how it tells its state.
`gpuctl/k8s/workload_kinds.py` reads objects by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Kind = tuple[str, str]
"""(apiVersion, kind)."""
Allowed = Mapping[str, Any]
"""Fields that may be written, by name: what is allowed below each. Of a list, of each of its entries."""
Path = tuple[str, ...]
MOST_PODS = 10_000
"""Of one object."""


class Count(NamedTuple):
    """A field that says how many pods there are, or by what their number is multiplied.

    `usual`: what is taken where it is absent; 0 where it has to be there. `but_one`: where this is there, it is one
    less, because a pod of another template is counted in.
    """

    path: Path
    usual: int = 1
    most: int = MOST_PODS
    but_one: Path = ()


class Made(NamedTuple):
    """Objects of another kind that the controller makes for an entry: as many as the product of the counts."""

    kind: Kind
    counts: tuple[Count, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSets:
    """Pods of one template: of each entry of the list at `entries`, or of the one mapping there.

    `template`, `counts` and `name` lead on from an entry. There are as many pods at a time as the product of `counts`
    says. `called`: the name of the pods where no field has it. `numbers`: the counts by which its pods are called, the
    largest of each. `made`: what stands between its pods and the object, or beside them, and counts in quotas.
    `marked`: metadata of what is made of an entry besides its pods. `needed`: the controller refuses an object without
    it. `waits`: the field by which an entry starts after another one. `restarts`: the `restartPolicy` that its pods may
    have, the usual one first.
    """

    entries: Path = ()
    is_list: bool = False
    template: Path
    counts: tuple[Count, ...] = ()
    called: str = ""
    name: Path = ()
    numbers: tuple[tuple[Path, ...], ...] = ()
    made: tuple[Made, ...] = ()
    marked: tuple[Path, ...] = ()
    needed: bool = False
    waits: Path = ()
    restarts: tuple[str, ...] = ("Always", "OnFailure", "Never")


class Told(NamedTuple):
    """A state that an object tells: by a condition that is "True", or else by one of the values of a field.

    `since`: the field with the time from which on it tells that; a condition has its own.
    """

    condition: str = ""
    field: Path = ()
    values: tuple[str, ...] = ()
    since: Path = ()


class Suspension(NamedTuple):
    """What an object without pods looks like, and how it tells that its controller has heard.

    `field`: true stops it; where it `is_count`, 0 does, and its number of pods lets it go. `told`: the state that its
    controller tells once it has stopped it. `active`: numbers of pods by its status; a list on the way means each of
    its entries. `begun`: a time in its status that is there from the start until it is stopped again.
    """

    field: Path
    is_count: bool = False
    told: Told | None = None
    active: tuple[Path, ...] = ()
    begun: Path = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadKind:
    """What gpuctl knows of a kind.

    `allowed`: the fields of its spec that a job may write. `choices`: what some of them may say. `mounts`: those that
    are a folder of containers. `domains`: of labels and annotations that its controller obeys, besides Kubernetes' own.
    `usual`: what gpuctl writes where the manifest says nothing. `in_order`: settings by which pods start one after the
    other.
    `suspension`: how it is stopped. `succeeded`, `failed`: how it ended; None for a kind that never ends.
    `restarts`: how often it has begun anew by itself. `longest_name`: characters that the object's name may have.
    `container`: the name of the container that its controller looks for in each template. `plural`: its name in the API
    server's paths, of a kind that a Cluster declares; "" for a built-in one, which `kinds.KINDS` knows.
    """

    kind: Kind
    plural: str = ""
    allowed: Allowed
    pods: tuple[PodSets, ...]
    suspension: Suspension
    succeeded: Told | None
    failed: Told | None
    restarts: Path = ()
    choices: Mapping[Path, tuple[object, ...]] = field(default_factory=dict)
    mounts: tuple[Path, ...] = ()
    domains: tuple[str, ...] = ()
    usual: Mapping[Path, object] = field(default_factory=dict)
    in_order: Mapping[Path, str] = field(default_factory=dict)
    longest_name: int = 63
    container: str = ""

    @property
    def ends(self) -> bool:
        """Whether it ends by itself."""
        return self.succeeded is not None

    @property
    def read(self) -> tuple[Path, ...]:
        """Where in its status something is read, besides the conditions."""
        told = [state for state in (self.suspension.told, self.succeeded, self.failed) if state is not None]
        paths = [path for state in told for path in (state.field, state.since)]
        return tuple(dict.fromkeys(path for path in (*self.suspension.active, self.restarts, *paths) if path))
