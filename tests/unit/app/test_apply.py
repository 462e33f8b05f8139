from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from gpuctl.app.apply import apply_plan
from gpuctl.app.ports import (
    ClusterUnavailable,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    R,
    T,
    WebhookAway,
    WorldFault,
)
from gpuctl.model.change import Action, Change, OutcomeStatus, Plan
from gpuctl.model.ids import ObjectRef, ProjectName
from gpuctl.model.state import Body
from gpuctl.plan import Stage

A, B = ProjectName("a"), ProjectName("b")


class Recorder:
    """A cluster that takes everything but what it is told to refuse."""

    def __init__(self, **faults: WorldFault) -> None:
        self.faults = faults
        self.done: list[str] = []

    def apply(self, body: Body, *, is_new: bool = False) -> Body:
        del is_new
        self._do(body["metadata"]["name"])
        return body

    def check(self, body: Body) -> None:
        self._do(body["metadata"]["name"])

    def delete(self, ref: ObjectRef, uid: str, resource_version: str) -> None:
        del uid, resource_version
        self._do(ref.name)

    def each(self, work: Callable[[T], R], items: Sequence[T]) -> Sequence[R]:
        return [work(item) for item in items]

    def _do(self, name: str) -> None:
        if name in self.faults:
            raise self.faults[name]
        self.done.append(name)


def change(name: str, stage: Stage, project: ProjectName | None = A, action: Action = Action.CREATE) -> Change:
    ref = ObjectRef("v1", "ConfigMap", project or "", name)
    body = None if action is Action.DELETE else {"metadata": {"name": name}}
    return Change(action=action, ref=ref, body=body, project=project, stage=stage)


def statuses(plan: Plan, cluster: Recorder, stop: Callable[[], bool] = lambda: False) -> list[str]:
    return [str(outcome.status) for outcome in apply_plan(plan, cluster, stop).outcomes]


def test_one_outcome_a_change_in_order() -> None:
    cluster = Recorder()
    plan = Plan(changes=tuple(change(f"x{stage}", stage) for stage in Stage))
    result = apply_plan(plan, cluster)
    assert [o.change for o in result.outcomes] == list(plan.changes)
    assert result.writes == len(Stage)
    assert cluster.done == [f"x{stage}" for stage in Stage]


@pytest.mark.parametrize("stage", [Stage.LEDGER, Stage.SCOPE])
def test_without_its_ledger_or_namespace_nothing_later_of_a_project_is_written(stage: Stage) -> None:
    plan = Plan(
        changes=(
            change("ground", stage),
            change("ground-of-b", stage, B),
            change("job", Stage.UPDATE),
            change("job-of-b", Stage.UPDATE, B),
            change("run", Stage.ADMIT),
        )
    )
    cluster = Recorder(ground=Conflict("GPU7004", "changed"))
    assert statuses(plan, cluster) == ["conflict", "applied", "skipped", "applied", "skipped"]


@pytest.mark.parametrize(
    ("fault", "first"), [(Conflict("GPU7004", "changed"), "conflict"), (Invalid("GPU7006", "no"), "failed")]
)
def test_another_failure_stops_what_shares_its_name_and_nothing_else(fault: WorldFault, first: str) -> None:
    """Either may last as long as a tenant likes: what is removed from Git is deleted all the same."""
    plan = Plan(
        changes=(
            change("one", Stage.CLAIM),
            change("two", Stage.CLAIM),
            change("one", Stage.ADMIT),
            change("two", Stage.ADMIT),
            change("one", Stage.PRUNE, action=Action.DELETE),
            change("old", Stage.PRUNE, action=Action.DELETE),
        )
    )
    assert statuses(plan, Recorder(one=fault)) == [first, "applied", "skipped", "applied", "skipped", "applied"]


@pytest.mark.parametrize(("stage", "later"), [(Stage.LEDGER, "skipped"), (Stage.SUPPORT, "applied")])
def test_what_was_refused_before_is_not_sent_and_stops_what_it_stopped_then(stage: Stage, later: str) -> None:
    first = change("first", stage)
    cluster = Recorder()
    result = apply_plan(Plan(changes=(first, change("job", Stage.UPDATE))), cluster, refused={first.ref})
    assert [str(outcome.status) for outcome in result.outcomes] == ["skipped", later]
    assert "first" not in cluster.done


def test_an_api_server_that_is_away_ends_it() -> None:
    plan = Plan(changes=(change("x", Stage.UPDATE), change("y", Stage.UPDATE, B), change("z", Stage.UPDATE, None)))
    result = apply_plan(plan, Recorder(y=ClusterUnavailable("GPU7001", "refused")))
    assert [str(o.status) for o in result.outcomes] == ["applied", "failed", "skipped"]
    assert "GPU7001" in result.outcomes[2].error


def test_a_webhook_that_does_not_answer_is_asked_about_one_object_of_its_kind_in_a_cycle() -> None:
    """In one namespace: the webhook may be another team's, for its own namespace alone."""
    of_b = change("z", Stage.SUPPORT, B)
    plan = Plan(changes=(change("x", Stage.SUPPORT), change("y", Stage.SUPPORT), of_b, change("run", Stage.ADMIT)))
    other = replace(plan.changes[3], ref=ObjectRef("batch/v1", "Job", "a", "run"))
    cluster = Recorder(x=WebhookAway("GPU7006", "failed calling webhook"))
    result = apply_plan(Plan(changes=(*plan.changes[:3], other)), cluster)
    assert [(str(o.status), o.refused) for o in result.outcomes] == [
        ("failed", True),
        ("failed", True),
        ("applied", False),
        ("skipped", False),
    ]
    assert (result.outcomes[1].error, cluster.done) == ("GPU7006: failed calling webhook", ["z"])


def test_what_is_gone_already_is_deleted() -> None:
    plan = Plan(changes=(change("x", Stage.PRUNE, action=Action.DELETE), change("y", Stage.UPDATE)))
    gone = NotFound("GPU7003", "not found")
    assert statuses(plan, Recorder(x=gone, y=gone)) == ["applied", "failed"]


def test_forbidden_is_a_failure_with_its_code() -> None:
    (outcome,) = apply_plan(Plan(changes=(change("x", Stage.UPDATE),)), Recorder(x=Forbidden("GPU7002", "no"))).outcomes
    assert (outcome.status, outcome.error) == (OutcomeStatus.FAILED, "GPU7002: no")


def test_a_stop_between_two_writes_leaves_the_rest() -> None:
    cluster = Recorder()
    plan = Plan(changes=tuple(change(f"x{n}", Stage.UPDATE) for n in range(4)))
    assert statuses(plan, cluster, lambda: len(cluster.done) == 2) == ["applied", "applied", "skipped", "skipped"]


def test_what_runs_that_wait_are_told_is_left_to_the_next_cycle_when_it_takes_long() -> None:
    told = tuple(change(f"job-{number}", Stage.QUEUE) for number in range(100))
    plan = Plan(changes=(change("next", Stage.ADMIT), *told, change("old", Stage.PRUNE, action=Action.DELETE)))
    cluster = Recorder()
    result = apply_plan(plan, cluster, late=lambda late: late.stage == Stage.QUEUE)
    left = [o.change.stage for o in result.outcomes if o.status is OutcomeStatus.SKIPPED]
    assert left == [Stage.QUEUE] * 36
    assert {o.error for o in result.outcomes if o.status is OutcomeStatus.SKIPPED} == {"left to the next cycle"}
