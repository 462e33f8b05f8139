"""One row of knowledge about a kind of another controller, from `gpuctl/k8s/workload_table.py` or from a Cluster.

A row is data: where the pods of such an object are, how many, what stops it, and how it reports its state.
`gpuctl/k8s/workload_kinds.py` reads objects by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Kind = tuple[str, str]
"""(apiVersion, kind)."""
Allowed = Mapping[str, Any]
"""Fields that may be written, by name, with those allowed below each. For a list: those of each entry."""
Path = tuple[str, ...]
MOST_PODS = 10_000
"""The most pods of one object."""


class Count(NamedTuple):
    """A field with the number of pods, or with a factor of that number.

    `usual`: the value of an absent field; 0 if it must be there. `but_one`: if this field exists, the number is one
    less, because it includes a pod of another template.
    """

    path: Path
    usual: int = 1
    most: int = MOST_PODS
    but_one: Path = ()


class Made(NamedTuple):
    """Objects of another kind that the controller creates for an entry: as many as the product of the counts."""

    kind: Kind
    counts: tuple[Count, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSets:
    """Pods of one template: of each entry of the list at `entries`, or of the one mapping there.

    - `template`, `counts` and `name`: paths from an entry. The number of pods at a time is the product of `counts`.
    - `called`: the name of the pods if no field has it. `numbers`: the counts in its pods' names, the largest of each.
    - `made`: objects between the pods and the workload, or beside the pods, which count in quotas.
    - `marked`: metadata of other things that are made from an entry.
    - `needed`: the controller refuses an object without it.
    - `waits`: the field by which an entry starts after another one.
    - `restarts`: the `restartPolicy` that its pods may have, the usual one first.
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
    """How an object reports a state: by a condition that is "True", or by one of the values of a field.

    `since`: the field with the time from which on it reports it; a condition has its own.
    """

    condition: str = ""
    field: Path = ()
    values: tuple[str, ...] = ()
    since: Path = ()


class Suspension(NamedTuple):
    """How an object is stopped, and how it reports that its controller has done so.

    - `field`: true stops the object. If `is_count`, 0 stops it, and its number of pods releases it.
    - `told`: the state that its controller reports once it has stopped it.
    - `active`: paths of the numbers of pods in its status; a list on a path stands for each of its entries.
    - `begun`: a time in its status that exists from its start until it is stopped again.
    """

    field: Path
    is_count: bool = False
    told: Told | None = None
    active: tuple[Path, ...] = ()
    begun: Path = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadKind:
    """Everything that gpuctl knows of a kind of workload.

    - `allowed`: the fields of its spec that a job may write. `choices`: the allowed values of some of them. `mounts`:
      those that are a folder of containers.
    - `domains`: of labels and annotations that its controller acts on, besides Kubernetes' own.
    - `usual`: the values that gpuctl writes if the manifest gives none. `in_order`: settings by which pods start one
      after the other.
    - `suspension`: how it is stopped. `succeeded`, `failed`: how it ended; None for a kind that never ends.
    - `restarts`: the path of how often it has restarted by itself. `longest_name`: of the object, in characters.
    - `container`: the name of the container that its controller looks for in each template.
    - `plural`: its name in the API server's paths, for a kind that a Cluster declares; "" for a built-in one, which
      `kinds.KINDS` knows.
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
        """Whether such an object ends by itself."""
        return self.succeeded is not None

    @property
    def read(self) -> tuple[Path, ...]:
        """The paths of its status that are read, besides the conditions."""
        told = [state for state in (self.suspension.told, self.succeeded, self.failed) if state is not None]
        paths = [path for state in told for path in (state.field, state.since)]
        return tuple(dict.fromkeys(path for path in (*self.suspension.active, self.restarts, *paths) if path))
