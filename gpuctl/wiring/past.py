"""Reads the past: from the file that a controller keeps, or through a port of the leader."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from gpuctl.adapters.console import CollectedOutput
from gpuctl.adapters.files import read_regular, write_private
from gpuctl.app.ports import ClusterUnavailable
from gpuctl.app.replaying import Inputs, unreadable
from gpuctl.app.session_ports import CommandRequest
from gpuctl.diag.wording import message
from gpuctl.install import CONTAINER, HISTORY_FILE, HISTORY_PORT
from gpuctl.k8s import kinds, names
from gpuctl.k8s.objects import mapping, ref_of, text
from gpuctl.k8s.timestamps import format_timestamp
from gpuctl.model.history import History, Subject
from gpuctl.model.ids import ObjectRef
from gpuctl.model.units import Instant
from gpuctl.wiring.access import reading

_OK = 200
_NOT_RUN, _REFUSED = "GPU7044", "GPU7042"
_MOST_WORDS = 500
"""The most characters shown of a failure that a command in the pod reports."""


def past_in_file(path: Path, subject: Subject, since_ms: Instant, until_ms: Instant) -> History:
    """The past of a subject, from the file of a controller on this machine. Raises WorldFault GPU7087."""
    from gpuctl.adapters.history.reading import read_history  # noqa: PLC0415 - only for this command

    return read_history(path, subject, since_ms, until_ms)


def past_in_cluster(
    kubeconfig: str | None, context: str | None, subject: Subject, since_ms: Instant, until_ms: Instant
) -> History:
    """The past of a subject, from the leader.

    Raises WorldFault: GPU7086 if no replica leads or answers, and as requests do.
    """
    from gpuctl.adapters.history.serving import path_of  # noqa: PLC0415 - only for this command
    from gpuctl.adapters.kubernetes.connection import connect  # noqa: PLC0415 - slow to import
    from gpuctl.adapters.kubernetes.portforward import fetch  # noqa: PLC0415
    from gpuctl.adapters.kubernetes.terminal import PodSessions  # noqa: PLC0415
    from gpuctl.views.history_form import parsed  # noqa: PLC0415 - slow to import

    leader = _leader(kubeconfig, context)
    with closing(connect(kubeconfig, context)) as connection:
        pod = ObjectRef(*kinds.POD, names.SYSTEM_NAMESPACE, leader.rpartition("_")[0])
        try:
            status, content = fetch(PodSessions(connection), pod, HISTORY_PORT, path_of(subject, since_ms, until_ms))
        except ClusterUnavailable as fault:
            raise (_unanswered(leader, str(fault)) if fault.code == _REFUSED else fault) from fault
    try:
        if status == _OK:
            return parsed(content)
        why = content[:200].decode(errors="replace").strip()
    except ValueError as error:
        why = str(error)
    raise _unanswered(leader, why)


def report_in(file: Path) -> bytes:
    """A report from a file. Raises WorldFault GPU7099."""
    from gpuctl.adapters.history.inputs import MOST_BYTES  # noqa: PLC0415 - only for this command

    try:
        return read_regular(file, MOST_BYTES)
    except OSError as error:
        raise unreadable(error.strerror or str(error)) from error


def write_report(file: Path, report: bytes) -> None:
    """Write a report to a file that only its user may read. May raise OSError."""
    write_private(file, report)


def inputs_of_report(report: bytes) -> Inputs:
    """The inputs of a cycle. Raises WorldFault GPU7099."""
    from gpuctl.adapters.history.inputs import unpacked  # noqa: PLC0415 - only for this command

    return unpacked(report)


def report_at(history: Path, at_ms: Instant) -> bytes:
    """The report of the newest cycle in a history up to a time. Raises WorldFault GPU7087, GPU7099."""
    from gpuctl.adapters.history.inputs import kept_before  # noqa: PLC0415 - only for this command

    return kept_before(history, at_ms)


def report_in_cluster(kubeconfig: str | None, context: str | None, at_ms: Instant) -> bytes:
    """The report of the leader's newest cycle up to a time, by a command in its pod.

    Security: a report has the environment variables of all jobs. A user who may run a command there can already read
    them in the controller's own files, so this shows them to no one else.

    Raises WorldFault: GPU7086 if no replica leads, and as sessions do.
    """
    from gpuctl.adapters.history.inputs import MOST_BYTES  # noqa: PLC0415 - only for this command
    from gpuctl.adapters.kubernetes.connection import connect  # noqa: PLC0415 - slow to import
    from gpuctl.adapters.kubernetes.terminal import PodSessions  # noqa: PLC0415

    leader = _leader(kubeconfig, context)
    words = ("gpuctl", "replay", "--at", format_timestamp(at_ms), "--history", HISTORY_FILE, "--output", "-")
    collected, why = CollectedOutput(MOST_BYTES), ""
    with closing(connect(kubeconfig, context)) as connection:
        pod = ObjectRef(*kinds.POD, names.SYSTEM_NAMESPACE, leader.rpartition("_")[0])
        try:
            code = PodSessions(connection).run(pod, CommandRequest(command=words, container=CONTAINER), collected)
            why = f"exit code {code}" if code else ""
        except ClusterUnavailable as fault:
            if fault.code not in {_NOT_RUN, _REFUSED}:
                raise
            why = str(fault)
    if why:
        raise _unanswered(leader, collected.errors.decode(errors="replace").strip()[:_MOST_WORDS] or why)
    return bytes(collected.output)


def _leader(kubeconfig: str | None, context: str | None) -> str:
    """The name of the replica that holds the Lease: its pod's name, and some digits."""
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
