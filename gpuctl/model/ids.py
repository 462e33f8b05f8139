"""Names of things. A `JobId` is `<project>/<job>`; an `ObjectRef` names one Kubernetes object.

Both are named tuples: they are the keys of nearly every mapping, and most of what a large cycle hashes and sorts.
"""

from __future__ import annotations

from typing import NamedTuple, NewType, TypeAlias

ProjectName = NewType("ProjectName", str)
PoolName = NewType("PoolName", str)
NodeName = NewType("NodeName", str)
DomainName = NewType("DomainName", str)
"""A set of pools that share quota: the pool's name, or WHOLE_CLUSTER when quotas are plain numbers."""
Revision = NewType("Revision", str)
"""A full Git commit id, or NO_REVISION for files that are not under version control."""
NO_REVISION = Revision("")
RunDigest = NewType("RunDigest", str)
"""Eight hex digits over everything of a job whose change needs a new run."""


class JobId(NamedTuple):
    """A declared job. Its text form is `project/name`."""

    project: ProjectName
    name: str

    def __str__(self) -> str:
        return f"{self.project}/{self.name}"

    @staticmethod
    def parse(text: str) -> JobId:
        """Read `project/name`; ValueError for anything else."""
        project, slash, name = text.partition("/")
        if not slash or not project or not name or "/" in name:
            raise ValueError(f"not a job id (project/name): {text!r}")
        return JobId(ProjectName(project), name)


RunKey: TypeAlias = tuple[JobId, RunDigest]
"""One run of a job: the job, and the digest of its declaration at that time."""


class ObjectRef(NamedTuple):
    """One object of the cluster. `namespace` is "" for cluster-scoped kinds; `api_version` as in the object's body."""

    api_version: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        where = f"{self.namespace}/" if self.namespace else ""
        return f"{self.kind} {where}{self.name}"
