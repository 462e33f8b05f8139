"""The public form of node pools: part of `spec_v1`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from gpuctl.compile.fields_v1 import Cpu, LabelKey, LabelValue, Memory, Name, Spec, Subdomain, form_of, unique
from gpuctl.compile.pod_v1 import Toleration
from gpuctl.model.units import MOST_NODE_GPUS


class Selector(Spec):
    """Which live nodes belong to a pool."""

    match_labels: dict[LabelKey, LabelValue] = Field(
        min_length=1, max_length=100, description="Node labels, all of which must match."
    )


class NodeResources(Spec):
    """What one node offers besides GPUs, where it differs from its pool."""

    cpu: Cpu | None = Field(None, description="CPU cores that pods may use: 80 or 79500m. Default: the pool's.")
    memory: Memory | None = Field(None, description="Memory that pods may use: 512Gi. Default: the pool's.")


class PoolResources(Spec):
    """What each node of a pool offers besides GPUs."""

    cpu: Cpu = Field(0, description="CPU cores that pods may use: 80 or 79500m.")
    memory: Memory = Field(0, description="Memory that pods may use: 512Gi.")


Cut = Annotated[dict[str, Annotated[int, Field(ge=1, le=MOST_NODE_GPUS)]], Field(max_length=100)]


class DeclaredNode(Spec):
    """A node that differs from its pool."""

    name: Subdomain = Field(description="The node's name in Kubernetes.")
    gpus: int | None = Field(
        None, ge=0, le=MOST_NODE_GPUS, description="GPUs of this node. Default: the pool's gpusPerNode."
    )
    mig: Cut | None = Field(None, description="How this node's GPUs are cut. Default: as the pool says.")
    resources: NodeResources = Field({}, validate_default=True, description="CPU and memory of this node.")
    labels: dict[LabelKey, LabelValue] = Field(
        {},
        max_length=100,
        description="Labels of this node besides its pool's: the rack it stands in, for plan and simulate.",
    )


NodeEntry = Annotated[
    Annotated[Subdomain, Tag("(plain)")] | Annotated[DeclaredNode, Tag("(mapping)")], Discriminator(form_of)
]


class NodePool(Spec):
    """A group of like nodes."""

    name: Name = Field(description="The pool's name in quotas and affinities.")
    selector: Selector | None = Field(
        None, description="Which live nodes belong to the pool. Default: label gpuctl.dev/pool with the pool's name."
    )
    nodes: list[NodeEntry] = Field(
        [],
        max_length=20_000,
        description="The declared inventory: names, or {name, gpus, resources} for a node that differs.",
    )
    gpus_per_node: int = Field(0, ge=0, le=MOST_NODE_GPUS, description="GPUs of each node.")
    gpu_memory: Memory | None = Field(
        None, description="Memory of one GPU: 32510Mi. Needed where jobs ask for GPU memory or a fraction of a GPU."
    )
    gpu_product: LabelValue = Field(
        "", description="The GPU's product name, as the node label nvidia.com/gpu.product has it."
    )
    resources_per_node: PoolResources = Field({}, validate_default=True, description="CPU and memory of each node.")
    placement: Literal["binpack", "spread"] = Field(
        "binpack", description="The fullest node that fits first, or the emptiest."
    )
    topology: Annotated[list[LabelKey], unique()] = Field(
        [
            "topology.kubernetes.io/zone",
            "cloud.provider.com/topology-block",
            "cloud.provider.com/topology-rack",
        ],
        max_length=8,
        description="Node labels that say where a node stands, from the widest to the narrowest: all workers of a gang "
        "go to nodes with the same rack where there are such, else the same block, else the same zone.",
    )
    sharing: Literal["device-plugin", "mig", "hami", "dra"] = Field(
        "device-plugin", description="How a fraction of a GPU becomes real; device-plugin has whole GPUs only."
    )
    driver: Literal["hami", "nvidia"] | None = Field(
        None,
        description="With sharing: dra, whose driver: HAMi's gives any fraction, NVIDIA's whole GPUs and MIG slices. "
        "Default: hami.",
    )
    mig: Cut = Field(
        {}, description="How many GPUs of each node are cut into slices of each MIG profile: {3g.40gb: 2}."
    )
    gpu_slots: int | None = Field(
        None,
        ge=1,
        le=1000,
        description="With sharing: hami, its deviceSplitCount: jobs that may share a GPU. Default: 10.",
    )
    tolerations: list[Toleration] = Field(
        [],
        max_length=50,
        description="Taints of the pool's nodes that keep no job away. nvidia.com/gpu and gpuctl.dev/managed never do.",
    )
