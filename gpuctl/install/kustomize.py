"""The Kustomize base: a file for each object, in the order in which they can be applied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpuctl.k8s.objects import ref_of
from gpuctl.model.state import Body


def base(bodies: Sequence[Body]) -> Mapping[str, Body]:
    """The files, by path; `kustomize build` of their folder gives the objects."""
    refs = [(ref_of(body), body) for body in bodies]
    files = {f"{ref.kind.lower()}-{ref.name}.yaml": body for ref, body in refs}
    about = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": list(files),
        "sortOptions": {"order": "fifo"},
    }
    return {"kustomization.yaml": about, **files}
