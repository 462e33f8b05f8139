"""Turns what another system prints as JSON about a running cluster into declarations. Pure.

`values`: how JSON is read; `places`: where in a file something is; `amounts`: amounts in the form of declarations;
`pods`: a pod template as the spec of a job (`containers`: one of its containers, `mounts`: its volumes); `namespaces`:
which namespace is a project's; `kubectl`: the output of `kubectl get`; `runai`: the output of Run:ai, with its projects
in `owners` and its jobs in `workloads`; `documents`: the files to write.
"""

from __future__ import annotations

from gpuctl.scaffold.foreign.documents import made
from gpuctl.scaffold.foreign.kubectl import of_kubectl
from gpuctl.scaffold.foreign.places import Places
from gpuctl.scaffold.foreign.runai import of_runai
from gpuctl.scaffold.foreign.values import MOST_BYTES, Found, Item, Left, Place, Thing, items

__all__ = ["MOST_BYTES", "Found", "Item", "Left", "Place", "Places", "Thing", "items", "made", "of_kubectl", "of_runai"]
