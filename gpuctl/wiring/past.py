"""Where the past is read: in the file that a controller keeps, or by a port of the replica that leads."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from gpuctl.adapters.files import read_regular
from gpuctl.app.ports import ClusterUnavailable
from gpuctl.app.replaying import Inputs, unreadable
from gpuctl.diag.wording import message
from gpuctl.install import HISTORY_PORT
from gpuctl.k8s import kinds, names
from gpuctl.k8s.objects import mapping, ref_of, text
from gpuctl.model.history import History, Subject
from gpuctl.model.ids import ObjectRef
from gpuctl.model.units import Instant
from gpuctl.wiring.access import reading

_OK = 200


def past_in_file(path: Path, subject: Subject, since_ms: Instant, until_ms: Instant) -> History:
    """The past of a subject, as a controller on this machine keeps it. Raises WorldFault GPU7087."""
    from gpuctl.adapters.history.reading import read_history  # noqa: PLC0415 - only for this command

    return read_history(path, subject, since_ms, until_ms)


def past_in_cluster(
    kubeconfig: str | None, context: str | None, subject: Subject, since_ms: Instant, until_ms: Instant
) -> History:
    """The past of a subject, as the replica that leads has it.

    Raises WorldFault: GPU7086 where none leads or answers, and as requests do.
    """
    from gpuctl.adapters.history.serving import path_of  # noqa: PLC0415 - only for this command
    from gpuctl.adapters.kubernetes.connection import connect  # noqa: PLC0415 - slow to import
    from gpuctl.adapters.kubernetes.portforward import fetch  # noqa: PLC0415
    from gpuctl.adapters.kubernetes.terminal import PodSessions  # noqa: PLC0415
    from gpuctl.views.history_form import parsed  # noqa: PLC0415 - slow to import

    leader = _leader(kubeconfig, context)
    with closing(connect(kubeconfig, context)) as connection:
        pod = ObjectRef(*kinds.POD, names.SYSTEM_NAMESPACE, leader.rpartition("_")[0])
        status, content = fetch(PodSessions(connection), pod, HISTORY_PORT, path_of(subject, since_ms, until_ms))
    try:
        if status == _OK:
            return parsed(content)
        why = content[:200].decode(errors="replace").strip()
    except ValueError as error:
        why = str(error)
    raise _unanswered(leader, why)


def report_in(file: Path) -> tuple[bytes, Inputs]:
    """The inputs of a cycle in a file of their own, as they are and read. Raises WorldFault GPU7099."""
    from gpuctl.adapters.history.inputs import MOST_BYTES, unpacked  # noqa: PLC0415 - only for this command

    try:
        content = read_regular(file, MOST_BYTES)
    except OSError as error:
        raise unreadable(error.strerror or str(error)) from error
    return content, unpacked(content)


def cycle_at(history: Path, at_ms: Instant) -> tuple[bytes, Inputs]:
    """The inputs of the newest cycle up to a time that a history has. Raises WorldFault GPU7087, GPU7099."""
    from gpuctl.adapters.history.inputs import kept_before, unpacked  # noqa: PLC0415 - only for this command

    content = kept_before(history, at_ms)
    if content is None:
        raise unreadable("none up to that time are kept")
    return content, unpacked(content)


def _leader(kubeconfig: str | None, context: str | None) -> str:
    """The name of the replica that holds the Lease: its pod's, and some digits."""
    ref = ObjectRef(*kinds.LEASE, names.SYSTEM_NAMESPACE, names.LEASE_NAME)
    scope = kinds.Scope(namespace=ref.namespace, field_selector=f"metadata.name={ref.name}")
    with reading(kubeconfig, context, {kinds.LEASE: scope}) as cluster:
        leases = [body for body in cluster.list(kinds.LEASE).items if ref_of(body) == ref]
    holder = text(mapping(leases[0], "spec"), "holderIdentity") if leases else ""
    if "_" not in holder:
        raise _unanswered("that leads", "there is none")
    return holder


def _unanswered(name: str, why: str) -> ClusterUnavailable:
    return ClusterUnavailable("GPU7086", message("GPU7086", {"name": name, "why": why}))
