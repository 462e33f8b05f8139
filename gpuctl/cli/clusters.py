"""Shared by all commands: the options that name a cluster, and the argument that names a job."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from gpuctl.app.ports import ClusterUnavailable, Forbidden
from gpuctl.cli.command import context_clock
from gpuctl.cli.failures import Failure
from gpuctl.cli.instead import KINDS
from gpuctl.cli.nearest import nearest_job
from gpuctl.cli.terminal import say
from gpuctl.diag.wording import all_of, message, one_of
from gpuctl.model.ids import JobId

if TYPE_CHECKING:
    from gpuctl.app.inspect import Live
    from gpuctl.app.ports import Cluster
    from gpuctl.app.session_ports import Sessions
    from gpuctl.k8s.kinds import Kind
    from gpuctl.model.declared import Declared
    from gpuctl.model.state import Removal
    from gpuctl.views.jobs import JobView

_SHOWN_REVISION = 10
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """The cluster of a command: an embedded one in a file, else the one of a kubeconfig's context.

    None means kubectl's defaults: KUBECONFIG, ~/.kube/config, its current context; in a pod, its own cluster.
    `namespace`: only objects there are read.
    """

    embedded: Path | None = None
    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None

    @contextmanager
    def reading(self) -> Iterator[Cluster]:
        """The cluster, for reading all of it, each kind once."""
        from gpuctl import wiring  # noqa: PLC0415 - adapters are imported when they are needed

        if self.embedded is not None:
            with self.looking() as (cluster, _):
                yield cluster
        else:
            with wiring.reading_once(self.kubeconfig, self.context) as cluster:
                yield cluster

    @contextmanager
    def looking(self, project: str | None = None) -> Iterator[tuple[Cluster, Sessions | None]]:
        """The part of the cluster that a person may read, and sessions with its containers; None for the embedded one.

        `project`: only its objects are wanted, so that no other namespace is tried.
        """
        from gpuctl import wiring  # noqa: PLC0415 - adapters are imported when they are needed

        if self.embedded is not None:
            try:
                with wiring.reading_embedded(str(self.embedded)) as cluster:
                    yield cluster, None
            except ClusterUnavailable as fault:
                hint = "name a file that `gpuctl reconcile --embedded FILE` has created"
                raise Failure(fault.code, str(fault), hint=hint) from fault
        else:
            with wiring.looking(self.kubeconfig, self.context, self.namespace, project) as found:
                yield found

    def sessions(self, project: str | None = None) -> AbstractContextManager[tuple[Cluster, Sessions]]:
        """The cluster, and sessions with its containers. The embedded one has no containers: GPU7041."""
        from gpuctl import wiring  # noqa: PLC0415 - adapters are imported when they are needed

        if self.embedded is not None:
            raise Failure("GPU7041", message("GPU7041", {}), hint="name a real cluster: --kubeconfig FILE")
        return wiring.looking(self.kubeconfig, self.context, self.namespace, project)


def cluster_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name a cluster; the command gets them as one argument `where`."""

    @click.option("--kubeconfig", metavar="FILE", help="The cluster's kubeconfig. Default: as kubectl.")
    @click.option("--context", metavar="NAME", help="The kubeconfig's context. Default: its current one.")
    @click.option(
        "--embedded",
        metavar="FILE",
        envvar="GPUCTL_EMBEDDED",
        type=_FILE,
        help="The embedded cluster in this file instead. Or set GPUCTL_EMBEDDED.",
    )
    @functools.wraps(function)
    def with_cluster(
        *args: Any,
        kubeconfig: str | None,
        context: str | None,
        embedded: Path | None,
        namespace: str | None = None,
        **options: Any,
    ) -> Any:
        if embedded is not None and any(given is not None for given in (kubeconfig, context, namespace)):
            if click.get_current_context().get_parameter_source("embedded") is not ParameterSource.ENVIRONMENT:
                if kubeconfig is None and context is None:
                    raise Failure("GPU9002", "the embedded cluster has no -n", hint="leave out -n")
                raise Failure(
                    "GPU9002", "--embedded and --kubeconfig or --context each name a cluster", hint="name one cluster"
                )
            embedded = None
        where = Where(embedded=embedded, kubeconfig=kubeconfig, context=context, namespace=namespace)
        return function(*args, where=where, **options)

    return with_cluster


namespace_option: Callable[[Any], Any] = click.option(
    "-n",
    "--namespace",
    metavar="NAME",
    help="Read only this namespace. Default, for accounts without further rights: the context's.",
)
"""The option of commands that can work with a part of a cluster; goes above `cluster_options`."""


def read_live(
    where: Where, needed: Iterable[Kind] | None = None, *, project: str | None = None, or_published: bool = False
) -> Live:
    """Read the cluster as `told_live` does. `project`: only its objects are wanted."""
    with where.looking(project) as (cluster, sessions):
        return told_live(cluster, sessions if needed is None else None, needed, or_published=or_published)


def told_live(
    cluster: Cluster, sessions: Sessions | None, needed: Iterable[Kind] | None = None, *, or_published: bool = False
) -> Live:
    """Read an open cluster; `needed`: the kinds that must be readable, by default those of jobs.

    `sessions`: for reading the events of runs that do not start.

    `or_published`: published data may stand in for the cluster. Kinds that can't be read are reported on standard
    error; those that the user may not read, only if no published data stands for them.
    """
    from gpuctl.app.inspect import WORKLOADS, live, measured, with_events  # noqa: PLC0415
    from gpuctl.app.rights import RightMissing  # noqa: PLC0415
    from gpuctl.views.rights import lacking, team_grant  # noqa: PLC0415

    try:
        current = live(cluster, WORKLOADS if needed is None else needed, or_published=or_published)
    except RightMissing as fault:
        if needed is not None and not or_published:
            raise
        narrower = "" if or_published else _narrower()
        raise Failure(fault.code, str(fault), hint=f"{narrower}{team_grant(fault.right)}") from fault
    known = current.overview is not None  # the leader, who publishes, can read what this person may not
    unread = tuple(each for each in current.unread if not (known and isinstance(each, Forbidden)))
    rights = [each.right for each in unread if isinstance(each, RightMissing)]
    if len(rights) > 1:
        say(f"note: GPU7015: {lacking(rights)}", err=True)
        unread = tuple(each for each in unread if not isinstance(each, RightMissing))
    for each in unread:
        say(f"note: {each.code}: {each}", err=True)
    now_ms = context_clock().now_ms()
    return measured(current if sessions is None else with_events(current, sessions, now_ms), now_ms)


def _narrower() -> str:
    """How to make a command read only one namespace: by its own option, else by the setting for all commands."""
    options = {each.name for each in click.get_current_context().command.params}
    always = "`kubectl config set-context --current --namespace NAMESPACE`"
    if "namespace" in options:
        return f"-n NAMESPACE reads only that namespace, and {always} has it read always; "
    return f"{always} has only that namespace read; "


def tell_other_cluster(cluster: Cluster, declared: Declared) -> None:
    """Print a note on standard error if the cluster is kept by the declarations of another cluster."""
    from gpuctl.app.whose import other_clusters  # noqa: PLC0415 - only now

    kept, name = other_clusters(cluster, declared.cluster.name), declared.cluster.name
    if kept:
        say(f"note: gpuctl keeps {all_of(kept)} there; these are the declarations of {name}", err=True)


def with_other_engine(cluster: Cluster, current: Live) -> Live:
    """The same, with Kueue's view of the jobs that it decides about. If Kueue's objects may not be read, a note on
    standard error."""
    from gpuctl.app.kueue_words import with_words  # noqa: PLC0415 - only now

    try:
        return with_words(cluster, current)
    except Forbidden as fault:
        say(f"note: {fault.code}: {fault}", err=True)
        return current


def project_of(job: str, project: str | None) -> str | None:
    """The project in PROJECT/JOB, else the given one."""
    return job.partition("/")[0] if "/" in job else project


def one_sweep(name: str, project: str | None, current: Live) -> tuple[JobView, ...]:
    """The jobs of the named sweep in order; a bare name must be unique over all projects. None if a job has this
    name."""
    from gpuctl.views.sweeps import sweep_of  # noqa: PLC0415 - only for names that are no job's

    wanted = _wanted(name, project)
    found = () if current.find(wanted) else current.sweep(wanted)
    owners = sorted({f"{view.id.project}/{view.sweep}" for view in found})
    if len(owners) > 1:
        raise Failure("GPU9003", f"{name} could be {one_of(owners)}", hint="name the project: -p PROJECT")
    return sweep_of(found).jobs if found else ()


def _wanted(name: str, project: str | None) -> JobId | str:
    try:
        return JobId.parse(f"{project}/{name}" if project and "/" not in name else name)
    except ValueError:
        return name


def one_job(name: str, project: str | None, cluster: Cluster, current: Live) -> JobView:
    """The newest run of the named job; a bare name must be unique over all projects. `cluster` is asked about a job
    that does not exist."""
    wanted = _wanted(name, project)
    found = current.find(wanted)
    if not found:
        indices = one_sweep(name, project, current)
        if indices:
            said = f"{indices[0].id.project}/{indices[0].sweep} is a sweep of {len(indices)} jobs"
            raise Failure("GPU9003", said, hint=f"name one of them: {indices[0].id}; gpuctl get shows all")
        raise _absent(wanted, cluster, current)
    owners = sorted({str(view.id) for view in found})
    if len(owners) > 1:
        raise Failure("GPU9003", f"{name} could be {one_of(owners)}", hint="name the project: -p PROJECT")
    return found[0]


def _absent(wanted: JobId | str, cluster: Cluster, current: Live) -> Failure:
    from gpuctl.app.inspect import in_the_way, removal_in  # noqa: PLC0415 - only for jobs that are not there

    ended = current.ended(wanted)
    removed = _removed(ended.job if ended is not None else wanted)
    if removed is not None:
        return removed
    recorded = removal_in(cluster, current, wanted)
    if recorded is not None:
        return _recorded(*recorded)
    if ended is not None:
        said = f"{ended.job} has ended ({ended.state}), and its object is gone"
        return Failure("GPU9003", said, hint="raise its runIndex in Git to run it again")
    found = in_the_way(current, wanted)
    if found is not None:
        return Failure(
            "GPU9003", f"there is no job {wanted} in this cluster: {found[0]}", hint=f"gpuctl explain {found[1]}"
        )
    near = nearest_job(str(wanted), {view.id for view in current.jobs})
    kind = wanted.name if isinstance(wanted, JobId) else wanted
    past = f"gpuctl history {wanted if isinstance(wanted, JobId) else f'PROJECT/{wanted}'} --since 30d"
    elsewhere = (
        "gpuctl list -A shows all; gpuctl status, whether the commit that declares it is applied; "
        f"by which commit it was removed: {past}, or this command in the repository"
    )
    hint = KINDS.get(kind) or near or elsewhere
    seen = " that you may see" if current.unread else ""
    return Failure("GPU9003", f"there is no job {wanted}{seen} in this cluster", hint=hint)


def _recorded(job: JobId, removal: Removal) -> Failure:
    """The failure for a removed job that the cluster has a record of: with the commit that was taken up then."""
    from gpuctl.k8s.timestamps import format_timestamp  # noqa: PLC0415 - only for jobs that are not there

    commit, at = removal.revision[:_SHOWN_REVISION], format_timestamp(removal.at_ms).partition(".")[0]
    said = f"{job} is not in this cluster: it is no longer declared since commit {commit}, taken up at {at}Z"
    hint = f"in the repository, `gpuctl get {job}` names the commit itself, if others were taken up with it"
    return Failure("GPU9003", said, hint=hint)


def _removed(wanted: JobId | str) -> Failure | None:
    """The failure for a job that a commit removed, if the current folder is in the repository with that commit."""
    from gpuctl import wiring  # noqa: PLC0415 - only for jobs that are not there

    removal = wiring.removal(wanted)
    if removal is None:
        return None
    commit = removal.revision[:_SHOWN_REVISION]
    said = f"{removal.job} is not in this cluster: commit {commit} removed it ({removal.author}, {removal.date})"
    return Failure("GPU9003", f"{said}: {removal.subject}", hint=f"git show {commit}")
