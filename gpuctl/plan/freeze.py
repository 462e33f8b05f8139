"""Freeze windows: hold back a whole commit that would now do what an open window forbids.

The windows of the declarations in force count, so no commit can free itself from one. Decisions of the engine without a
commit go on. Nothing of a held commit is enforced; it is taken up when the window ends, or when it is confirmed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.diag.span import SourceSpan
from gpuctl.k8s.timestamps import format_timestamp
from gpuctl.model.declared import Declared
from gpuctl.model.freeze import Forbidden, open_until
from gpuctl.model.ids import JobId
from gpuctl.model.units import Instant
from gpuctl.plan.guard import listed, of_all

_NOWHERE = SourceSpan(file="")
_WORDS: Mapping[Forbidden, str] = {
    Forbidden.PAUSE: "pauses, moves or ends {}",
    Forbidden.DELETE: "removes {}",
    Forbidden.CHANGE: "changes declarations",
}
_STOPS = "GPU6007"
"""It refuses to end jobs that are removed, and such as are to be started anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doing:
    """The effects of a commit that a window may forbid. `pauses`: running jobs that are paused, moved or ended, and
    stay declared; `deletes`: jobs and projects that are no longer declared; `changes`: whether it declares anything
    else; `lifts`: the codes of the refusals that it confirms."""

    pauses: tuple[JobId, ...] = ()
    deletes: tuple[str, ...] = ()
    changes: bool = False
    lifts: tuple[str, ...] = ()


def removed(before: Declared, after: Declared) -> tuple[str, ...]:
    """The jobs and projects that are no longer declared."""
    jobs = {job.id for job in before.jobs} - {job.id for job in after.jobs} - after.pinned
    projects = {p.name for p in before.projects} - {p.name for p in after.projects} - after.pinned
    return (
        *(f"project {name}" for name in sorted(projects)),
        *(str(job) for job in sorted(jobs) if job.project not in projects | after.pinned),
    )


def says_otherwise(before: Declared, after: Declared) -> bool:
    """Whether two revisions declare anything differently; the places in files don't count."""
    if before.project_contents and after.project_contents:
        return before.project_contents != after.project_contents
    return _said(before) != _said(after)


def _said(declared: Declared) -> tuple[object, ...]:
    cluster = declared.cluster
    pools = tuple(replace(pool, span=_NOWHERE) for pool in cluster.pools)
    return (
        replace(cluster, span=_NOWHERE, pools=pools),
        tuple(replace(each, span=_NOWHERE) for each in declared.departments),
        tuple(replace(each, span=_NOWHERE) for each in declared.projects),
        tuple(replace(each, span=_NOWHERE) for each in declared.jobs),
    )


def frozen(in_force: Declared, head: Declared, doing: Doing, now_ms: Instant) -> Diagnostic | None:
    """The refusal of a commit that does what a window forbids now; None if no window forbids it.

    Its confirmation is a digest of everything that the commit declares.
    """
    found: list[tuple[Instant, str, str]] = []
    lifted = {code: f"what {code} refuses" for code in sorted(doing.lifts)}
    for forbidden, done in (
        (Forbidden.PAUSE, listed([*map(str, doing.pauses), *(lifted[code] for code in lifted if code == _STOPS)])),
        (Forbidden.DELETE, listed([*doing.deletes, *lifted.values()])),
        (Forbidden.CHANGE, "x" if doing.changes else ""),
    ):
        until = open_until(in_force.cluster.freeze, forbidden, now_ms) if done else None
        if until is not None:
            found.append((*until, _WORDS[forbidden].format(done)))
    if not found:
        return None
    other = _WORDS[Forbidden.CHANGE]
    until_ms, reason, _ = max(found, key=lambda each: each[0])
    params = {
        "until": format_timestamp(until_ms).replace(".000Z", "Z"),
        "reason": f" ({reason})" if reason else "",
        "what": ", and ".join([what for *_, what in found if what != other] or [other]),
    }
    return of_all(head, "freeze", [], "GPU6013", params)[1]
