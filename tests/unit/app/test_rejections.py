"""Refusals of the API server: how long each holds, which job waits for it, and whose doing it may be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from commits import BASE, job

from gpuctl.app.ports import Forbidden, Invalid, R, T, WebhookAway
from gpuctl.app.rejections import (
    MOST_CHECKS,
    RETRY_MS,
    SOON_MS,
    Rejection,
    Rejections,
    checked_again,
    is_of_tenant,
    rest_ms,
    still_refused,
    that_are_sure,
    that_hold,
    waiting_for,
    with_new,
)
from gpuctl.compile import compile_tree
from gpuctl.k8s import kinds, names
from gpuctl.k8s.kinds import Kind
from gpuctl.model.change import Action, ApplyResult, Change, Outcome, OutcomeStatus
from gpuctl.model.declared import Declared
from gpuctl.model.ids import ObjectRef, ProjectName, Revision
from gpuctl.model.source import SourceFile, SourceTree
from gpuctl.model.state import Body, ClusterState, Run, RunPhase
from gpuctl.plan import Stage


def declared() -> Declared:
    files = {**BASE, "c/refused.yaml": job("refused", "a")}
    compiled = compile_tree(
        SourceTree(cluster_dir="c", files={path: SourceFile(content=text.encode()) for path, text in files.items()})
    )
    assert compiled.declared is not None
    return compiled.declared


NOW = declared()
(JOB,) = [each for each in NOW.jobs if each.id.name == "refused"]
A = ProjectName("a")
REF = ObjectRef(*kinds.JOB, "gpu-a", names.run_name("refused", JOB.digest))
BINDING = ObjectRef(*kinds.ROLE_BINDING, REF.namespace, "x")
SERVICE = ObjectRef("v1", "Service", REF.namespace, REF.name)
NAMESPACE = ObjectRef(*kinds.NAMESPACE, "", "gpu-a")
LEDGER = ObjectRef(*kinds.CONFIG_MAP, names.SYSTEM_NAMESPACE, "ledger.one.a")
THERE = ClusterState(live={REF: {"metadata": {"resourceVersion": "7"}}})
FOUND = Rejection(
    ref=REF,
    project=A,
    run=(JOB.id, JOB.digest),
    commits=(None, None),
    version="7",
    at_ms=1000,
    until_ms=1000 + RETRY_MS,
    error="GPU7006: invalid",
)
STARTS = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": REF.name}, "spec": {"suspend": False}}
OWN = {"name": REF.name, "labels": {names.PROJECT_LABEL: "a", names.JOB_LABEL: "refused", names.RUN_LABEL: JOB.digest}}


def holds(found: Rejection, now_ms: int, of: Declared = NOW, state: ClusterState = THERE) -> bool:
    return REF in still_refused({REF: found}, of, state, now_ms)


def refused_at(now_ms: int, error: str, before: Rejections | None = None, state: ClusterState = THERE) -> Rejections:
    """What is remembered once the object was refused, with what was remembered before."""
    change = Change(action=Action.UPDATE, ref=REF, project=A, body={**STARTS, "metadata": OWN})
    outcome = Outcome(change=change, status=OutcomeStatus.FAILED, error=error, refused=True)
    return with_new(before or {}, ApplyResult(outcomes=(outcome,)), NOW, state, now_ms)


def test_a_refusal_holds_for_a_while_and_a_short_one_where_it_ends_by_itself() -> None:
    assert [holds(FOUND, 1000 + at_ms) for at_ms in (0, RETRY_MS - 1, RETRY_MS)] == [True, True, False]
    soon = refused_at(1000, "GPU7002: forbidden: status unknown for quota: gpuctl")[REF]
    assert [holds(soon, 1000 + at_ms) for at_ms in (0, SOON_MS - 1, SOON_MS)] == [True, True, False]


NO_RIGHT = "GPU7015: gpuctl may not patch jobs"


def test_a_missing_right_is_doubted_until_it_was_refused_a_second_time() -> None:
    """A server that has just started knows no roles: what it refuses then rests for seconds, and holds no job."""
    doubted = refused_at(1000, NO_RIGHT)
    assert [*that_hold(doubted)] == [REF]
    assert (that_are_sure(doubted), waiting_for(doubted, NOW, THERE)) == ({}, {})
    assert still_refused(doubted, NOW, THERE, 1000 + SOON_MS - 1) == doubted
    tried = still_refused(doubted, NOW, THERE, 1000 + SOON_MS)
    assert that_hold(tried) == {}
    sure = refused_at(1000 + SOON_MS, NO_RIGHT, tried)
    assert [*that_are_sure(sure)] == [REF]
    assert [*waiting_for(sure, NOW, THERE)] == [JOB.id]


def test_a_missing_right_rests_a_minute_each_time_from_then_on() -> None:
    """Else it would be doubted in every minute anew: told as resolved and again, and asked for twice as often."""
    now_ms, known = 1000, dict[ObjectRef, Rejection]()
    tries = list[int]()
    while now_ms < 1000 + 10 * RETRY_MS:
        known = dict(still_refused(known, NOW, THERE, now_ms))
        if REF not in that_hold(known):
            tries.append(now_ms)
            known = dict(refused_at(now_ms, NO_RIGHT, known))
        assert (REF in that_are_sure(known)) == (now_ms >= 1000 + SOON_MS)
        now_ms += 1000
    assert tries == [1000, *(1000 + SOON_MS + n * RETRY_MS for n in range(10))]


def test_what_the_server_takes_at_the_second_try_is_forgotten() -> None:
    tried = still_refused(refused_at(1000, NO_RIGHT), NOW, THERE, 1000 + SOON_MS)
    assert still_refused(tried, NOW, ClusterState(live={REF: {"metadata": {"resourceVersion": "8"}}}), 7000) == {}
    assert still_refused(tried, NOW, THERE, 1000 + SOON_MS + RETRY_MS) == {}
    other = refused_at(7000, "GPU7006: invalid", tried)[REF]
    assert (other.is_doubted, other.until_ms) == (False, 7000 + RETRY_MS)


def test_a_start_that_was_doubted_is_no_failed_one() -> None:
    """Nor is one that is refused for a missing right when a dry run was taken: that a server has started since."""
    waits = replace(THERE, runs=(Run(job=JOB.id, digest=JOB.digest, phase=RunPhase.QUEUED, queued_at_ms=0),))
    change = Change(action=Action.UPDATE, ref=REF, project=A, body={**STARTS, "metadata": OWN}, stage=Stage.ADMIT)
    outcome = Outcome(change=change, status=OutcomeStatus.FAILED, error=NO_RIGHT, refused=True)
    known: Rejections = {REF: replace(FOUND, start=STARTS, is_open=True)}
    doubted = with_new(known, ApplyResult(outcomes=(outcome,)), NOW, waits, 1000)
    tried = still_refused(doubted, NOW, waits, 1000 + SOON_MS)
    sure = with_new(tried, ApplyResult(outcomes=(outcome,)), NOW, waits, 1000 + SOON_MS)
    assert [(each.is_doubted, each.counts) for each in (doubted[REF], sure[REF])] == [(True, False), (False, False)]
    assert sure[REF].start is not None


def test_a_dry_run_that_a_server_without_roles_refuses_says_nothing_of_the_start() -> None:
    found = {REF: replace(FOUND, start=STARTS)}
    asked = checked_again(found, Server(refuses=1, code="GPU7015"), 1000 + RETRY_MS)
    assert asked == {REF: replace(found[REF], until_ms=1000 + RETRY_MS + SOON_MS)}


def test_the_loop_rests_no_longer_than_a_refused_write() -> None:
    assert rest_ms({}, 1000, 30_000) == 30_000
    assert rest_ms({REF: FOUND}, 1000, 30_000) == 30_000
    assert rest_ms(refused_at(1000, NO_RIGHT), 1500, 30_000) == SOON_MS - 500
    assert rest_ms({REF: replace(FOUND, is_open=True)}, 1000 + RETRY_MS, 30_000) == 30_000


def test_a_refusal_holds_no_more_once_anything_of_it_is_another() -> None:
    changed = replace(NOW, project_revisions={A: Revision("1" * 40)})
    assert not holds(FOUND, 1000, changed)
    assert holds(replace(FOUND, commits=(Revision("1" * 40), None)), 1000, changed)
    assert not holds(FOUND, 1000, replace(NOW, jobs=()))
    assert not holds(FOUND, 1000, state=ClusterState())
    assert not holds(FOUND, 1000, state=ClusterState(live={REF: {"metadata": {"resourceVersion": "8"}}}))


@pytest.mark.parametrize(
    ("kind", "phase", "waits"),
    [
        (REF, None, True),
        (REF, RunPhase.RUNNING, True),
        (SERVICE, None, True),
        (SERVICE, RunPhase.QUEUED, True),
        (SERVICE, RunPhase.STARTING, False),
        (SERVICE, RunPhase.RUNNING, False),
    ],
)
def test_a_run_that_has_begun_waits_for_its_own_object_alone(
    kind: ObjectRef, phase: RunPhase | None, *, waits: bool
) -> None:
    runs = () if phase is None else (Run(job=JOB.id, digest=JOB.digest, phase=phase),)
    waiting = waiting_for({kind: replace(FOUND, ref=kind)}, NOW, ClusterState(runs=runs))
    assert [*waiting] == ([JOB.id] if waits else [])


@pytest.mark.parametrize("ground", [NAMESPACE, LEDGER])
def test_without_its_ground_all_jobs_of_a_project_wait_and_no_other(ground: ObjectRef) -> None:
    found = replace(FOUND, ref=ground, run=None)
    waiting = waiting_for({ground: found}, NOW, ClusterState())
    assert dict(waiting) == {each.id: found.reason for each in NOW.jobs if each.id.project == A}
    assert waiting_for({ground: replace(found, project=None)}, NOW, ClusterState()) == {}


def test_whatever_was_refused_is_remembered_and_of_a_job_whose_it_is() -> None:
    labels = {
        names.MANAGED_BY_LABEL: names.MANAGED_BY, names.PROJECT_LABEL: "a", names.JOB_LABEL: "refused",
        names.RUN_LABEL: JOB.digest,
    }  # fmt: skip
    change = Change(action=Action.CREATE, ref=REF, project=A, body={"metadata": {"labels": labels}})
    of_none = replace(change, ref=SERVICE, action=Action.DELETE, body=None)
    of_before = replace(change, ref=BINDING, body={"metadata": {"labels": {**labels, names.RUN_LABEL: "0" * 8}}})
    away = replace(change, ref=ObjectRef("v1", "Service", REF.namespace, "away"))
    outcomes = [
        Outcome(change=each, status=OutcomeStatus.FAILED, error="GPU7006: invalid", refused=refused)
        for each, refused in ((change, True), (of_none, True), (of_before, True), (away, False))
    ]
    assert with_new({}, ApplyResult(outcomes=tuple(outcomes)), NOW, THERE, 1000) == {
        REF: FOUND,
        SERVICE: replace(FOUND, ref=SERVICE, run=None, version=""),
        BINDING: replace(FOUND, ref=BINDING, run=None, version=""),
    }


def test_what_is_of_no_run_holds_no_job_and_is_remembered_until_its_project_has_another_commit() -> None:
    found = replace(FOUND, run=None)
    assert waiting_for({REF: found}, NOW, ClusterState()) == {}
    assert holds(found, 1000, replace(NOW, jobs=()))
    assert not holds(found, 1000, replace(NOW, project_revisions={A: Revision("1" * 40)}))


@pytest.mark.parametrize(
    ("kind", "namespace", "error", "of_tenant"),
    [
        (kinds.ROLE_BINDING, "gpu-a", "GPU7006: invalid", True),
        (kinds.ROLE_BINDING, "gpu-a", "GPU7015: no right", False),
        (kinds.RESOURCE_QUOTA, "gpu-a", "GPU7006: invalid", False),
        (kinds.CONFIG_MAP, names.SYSTEM_NAMESPACE, "GPU7006: invalid", False),
        (kinds.NAMESPACE, "", "GPU7006: invalid", False),
    ],
)
def test_what_no_tenant_can_write_is_no_tenants_doing(
    kind: Kind, namespace: str, error: str, *, of_tenant: bool
) -> None:
    assert is_of_tenant(ObjectRef(*kind, namespace, "x"), error) == of_tenant


def test_the_refusal_of_a_start_holds_whatever_is_written_on_the_object() -> None:
    start = replace(FOUND, start=STARTS)
    assert holds(start, 1000, state=ClusterState(live={REF: {"metadata": {"resourceVersion": "8"}}}))
    assert not holds(start, 1000, state=ClusterState())


@pytest.mark.parametrize("phase", [RunPhase.QUEUED, RunPhase.RUNNING])
def test_a_run_that_was_to_have_more_workers_is_not_kept_as_one_that_was_to_start(phase: RunPhase) -> None:
    """Else it could not be paused either, as long as the server refuses that."""
    body = {**STARTS, "metadata": OWN}
    change = Change(action=Action.UPDATE, ref=REF, body=body, project=A, stage=Stage.ADMIT)
    outcome = Outcome(change=change, status=OutcomeStatus.FAILED, error="GPU7006: no", refused=True)
    state = replace(THERE, runs=(Run(job=JOB.id, digest=JOB.digest, phase=phase, queued_at_ms=0),))
    (found,) = with_new({}, ApplyResult(outcomes=(outcome,)), NOW, state, 1000).values()
    assert found.run == (JOB.id, JOB.digest)
    assert found.start == (body if phase is RunPhase.QUEUED else None)


class Server:
    """A server that refuses so many checks, and then takes all."""

    def __init__(self, refuses: int, code: str = "GPU7006") -> None:
        self.asked, self._refuses, self._code = 0, refuses, code

    def check(self, body: Body) -> None:
        self.asked += 1
        if self.asked <= self._refuses:
            raise (Forbidden if self._code == "GPU7015" else Invalid)(self._code, str(body["kind"]))

    def apply(self, body: Body, *, is_new: bool = False) -> Body:
        raise AssertionError((body, is_new))

    def delete(self, ref: ObjectRef, uid: str, resource_version: str) -> Body | None:
        raise AssertionError((ref, uid, resource_version))

    def each(self, work: Callable[[T], R], items: Sequence[T]) -> Sequence[R]:
        return [work(item) for item in items]


def test_starts_are_checked_some_at_a_time_and_each_in_turn() -> None:
    refs = [replace_name(REF, f"{n:03}") for n in range(2 * MOST_CHECKS + 1)]
    found = {ref: replace(FOUND, ref=ref, start=STARTS) for ref in refs}
    server, now_ms, asked = Server(refuses=len(refs)), 1000 + RETRY_MS, list[int]()
    assert checked_again(found, server, now_ms - 1) == found
    for _ in range(3):
        found = dict(checked_again(found, server, now_ms))
        assert all(now_ms < each.until_ms for each in found.values())
        asked.append(server.asked)
        now_ms += SOON_MS
    assert asked == [MOST_CHECKS, 2 * MOST_CHECKS, len(refs)]
    now_ms += RETRY_MS
    again = checked_again(found, server, now_ms)
    assert {each.is_open for each in again.values()} == {True, False}
    assert {found.is_open for found in that_hold(again).values()} == {False}


def test_starts_that_rest_for_seconds_are_put_off_as_others_are() -> None:
    """They were written without a dry run, all beyond those that are checked in one cycle."""
    error = "GPU7002: status unknown for quota"
    refs = [replace_name(REF, f"{n:03}") for n in range(2 * MOST_CHECKS)]
    found = {ref: replace(FOUND, ref=ref, start=STARTS, error=error, until_ms=1000 + SOON_MS) for ref in refs}
    asked = checked_again(found, Server(refuses=len(found)), 1000 + SOON_MS)
    live = ClusterState(live={ref: {"metadata": {"resourceVersion": "7"}} for ref in refs})
    assert len(that_hold(still_refused(asked, NOW, live, 1000 + SOON_MS))) == len(refs)


def test_the_many_refused_starts_of_one_namespace_keep_no_other_from_being_checked() -> None:
    """Of those that were put off alike, the ones whose names come first went first, in each minute anew."""
    refs = [replace_name(REF, f"{n:03}") for n in range(20 * MOST_CHECKS)]
    other = ObjectRef(REF.api_version, REF.kind, "zz", "one")
    found = {ref: replace(FOUND, ref=ref, start=STARTS) for ref in (*refs, other)}
    asked = dict(checked_again(found, Server(refuses=len(found)), 1000 + RETRY_MS))
    assert asked[other].at_ms == 1000 + RETRY_MS


def test_a_webhook_that_does_not_answer_is_asked_about_one_start() -> None:
    class Away(Server):
        def check(self, body: Body) -> None:
            self.asked += 1
            raise WebhookAway("GPU7006", f"failed calling webhook for {body['kind']}")

    refs = [replace_name(REF, f"{n:03}") for n in range(MOST_CHECKS)]
    found = {ref: replace(FOUND, ref=ref, start=STARTS) for ref in refs}
    server, now_ms = Away(0), 1000 + RETRY_MS
    again = checked_again(found, server, now_ms)
    assert (server.asked, {each.until_ms for each in again.values()}) == (1, {now_ms + SOON_MS})
    assert not any(each.is_open for each in again.values())


def replace_name(ref: ObjectRef, name: str) -> ObjectRef:
    return ObjectRef(ref.api_version, ref.kind, ref.namespace, name)
