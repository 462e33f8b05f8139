"""What another system prints as JSON about a running cluster, as declarations. Pure.

`values` how JSON is read and what is found in it, `places` where in a file that is, `amounts` its amounts in the form
of declarations, `pods` a pod template as the spec of a job (`containers` what one of its containers is, `mounts` its
volumes), `namespaces` which of them a project's jobs stand in, `kubectl` what `kubectl get` prints, `runai` what
Run:ai prints, of which `owners` are projects and `workloads` jobs, `documents` the files that say it.
"""

from __future__ import annotations

from gpuctl.scaffold.foreign.documents import made
from gpuctl.scaffold.foreign.kubectl import of_kubectl
from gpuctl.scaffold.foreign.places import Places
from gpuctl.scaffold.foreign.runai import of_runai
from gpuctl.scaffold.foreign.values import MOST_BYTES, Found, Item, Left, Place, Thing, items

__all__ = ["MOST_BYTES", "Found", "Item", "Left", "Place", "Places", "Thing", "items", "made", "of_kubectl", "of_runai"]
