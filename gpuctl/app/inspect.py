"""What is live, for people: jobs of a cluster, read once."""

from __future__ import annotations

from dataclasses import dataclass

from gpuctl.app.mirror import Mirror
from gpuctl.app.ports import Cluster
from gpuctl.model.ids import JobId, ProjectName
from gpuctl.model.state import ClusterState
from gpuctl.observe import observe
from gpuctl.views.jobs import JobView, job_views


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """A cluster as it is observed now."""

    state: ClusterState
    jobs: tuple[JobView, ...]

    def of_project(self, project: ProjectName | None) -> tuple[JobView, ...]:
        """The jobs of a project, or all, newest start first."""
        return tuple(job for job in self.jobs if project is None or job.id.project == project)

    def find(self, job: JobId | str) -> tuple[JobView, ...]:
        """Runs of a job by its id, or of all jobs of a name; the newest first."""
        return tuple(view for view in self.jobs if job in {view.id, view.id.name})


def live(cluster: Cluster) -> Live:
    """Read a cluster. Raises ClusterUnavailable, Forbidden."""
    mirror = Mirror(cluster)
    mirror.refresh()
    state = observe(mirror.objects())
    return Live(state=state, jobs=job_views(state))
