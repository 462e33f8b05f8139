"""The history of the unattended loop: what is kept, for how long, and what a bad disk costs."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from click.testing import CliRunner

from gpuctl.adapters.history.keeper import HistoryFile
from gpuctl.adapters.history.levels import Levels
from gpuctl.adapters.history.reading import changes_in, opened, read_history
from gpuctl.adapters.history.serving import HistoryServer, path_of
from gpuctl.adapters.history.store import EVENTS_KEPT_MS, Store
from gpuctl.app.history import Facts
from gpuctl.app.ports import WorldFault
from gpuctl.cli.main import gpuctl
from gpuctl.diag.span import SourceSpan
from gpuctl.model.decision import JobState, Placement, Reason, WorkerPlacement
from gpuctl.model.history import (
    ALL,
    HOUR_MS,
    MINUTE_MS,
    Amounts,
    Check,
    Commit,
    Grain,
    Moment,
    RunEvent,
    Subject,
    TakenUp,
)
from gpuctl.model.ids import JobId, NodeName, ProjectName, Revision, RunDigest
from gpuctl.model.job import Container, Job, JobType, SweepIndex
from gpuctl.model.state import Ledger, Run, RunPhase
from gpuctl.model.utilisation import RunUse
from gpuctl.views.history import as_csv, event_table, holding_table, holdings, project_uses, use_table
from gpuctl.views.history_form import document, parsed

AT_MS = 1_596_000_000_000 - 1_596_000_000_000 % HOUR_MS
A = ProjectName("a")
JOB = JobId(A, "j")
WHOLE = Subject()


def run_of(phase: RunPhase, job: JobId = JOB, **more: object) -> Run:
    place = Placement(workers=(WorkerPlacement(node=NodeName("n1"), gpus=(0, 1)),))
    known = {"placement": place if phase is not RunPhase.QUEUED else None, "gpu_milli": 2000, "queued_at_ms": AT_MS}
    return Run(job=job, digest=RunDigest("0" * 8), phase=phase, **{**known, **more})  # type: ignore[arg-type]


def facts(at_ms: int, *runs: Run) -> Facts:
    return Facts(at_ms=at_ms, runs=runs, ledgers={A: Ledger(project=A, revision=Revision("c" * 40))})


def told(path: Path, *given: Facts) -> None:
    """Have cycles kept, by a process of its own."""
    with closing(HistoryFile(path)) as keeper:
        for each in given:
            keeper.offer(each)
            keeper.settle()
            assert not keeper.fault()


def test_a_pause_is_told_with_its_reason_its_beneficiary_and_its_commit(tmp_path: Path) -> None:
    file, other = tmp_path / "h.db", JobId(ProjectName("b"), "k")
    why = Reason(code="GPU5020", params=(("job", "b/k"),))
    told(
        file,
        facts(AT_MS, run_of(RunPhase.QUEUED)),
        facts(AT_MS + 60_000, run_of(RunPhase.STARTING, let_go_at_ms=AT_MS + 59_000, starts=1)),
        facts(AT_MS + 61_000, run_of(RunPhase.RUNNING, starts=1)),
    )
    told(  # another process goes on where the first one stopped
        file,
        facts(AT_MS + 100_000, run_of(RunPhase.RUNNING, starts=1)),
        facts(AT_MS + 160_000, run_of(RunPhase.QUEUED, starts=1, reason=why, paused_for=other)),
    )
    found = read_history(file, Subject(job=JOB), AT_MS, AT_MS + HOUR_MS)
    assert [event.state.value for event in found.events] == ["Pending", "Starting", "Running", "Preempted"]
    assert found.events[1].waited_ms == 59_000
    assert {event.revision for event in found.events} == {"c" * 40}
    assert (found.events[-1].paused_for, found.events[-1].reason) == (other, why)
    (held,) = holdings(found)
    assert (held.gpu_ms, held.start.nodes, held.end) == (2000 * 100_000, ("n1",), found.events[-1])
    use = project_uses(read_history(file, WHOLE, AT_MS, AT_MS + HOUR_MS))[0]
    assert (use.project, use.starts, use.pauses, use.usual_wait_ms) == (A, 1, 1, 59_000)


def test_commits_are_kept_with_their_authors_and_how_their_predictions_ended(tmp_path: Path) -> None:
    file, mine, other = tmp_path / "h.db", Revision("c" * 40), Revision("d" * 40)
    ended = Check(
        revision=mine, at_ms=AT_MS + 9_000, took_ms=5_000, result="explained", predicted=("started: a/j",),
        differences=("a/j was not started: a node was lost",),
    )  # fmt: skip
    with closing(HistoryFile(file)) as keeper:
        keeper.note([
            Commit(revision=mine, author="Ann", subject="more <b>", written_ms=AT_MS - 5_000),
            TakenUp(revision=mine, at_ms=AT_MS),
        ])
        keeper.offer(facts(AT_MS, run_of(RunPhase.RUNNING)))
        keeper.settle()
        keeper.note([ended, TakenUp(revision=other, at_ms=AT_MS + HOUR_MS // 2)])
        keeper.offer(facts(AT_MS + 10_000, run_of(RunPhase.SUCCEEDED)))
        keeper.settle()
        assert not keeper.fault()
    of_job = read_history(file, Subject(job=JOB), AT_MS, AT_MS + HOUR_MS)
    (change,) = of_job.changes
    assert (change.author, change.subject, change.written_ms) == ("Ann", "more <b>", AT_MS - 5_000)
    assert (change.taken_ms, change.check) == (AT_MS, ended)
    whole = read_history(file, WHOLE, AT_MS, AT_MS + HOUR_MS)
    assert [each.revision for each in whole.changes] == [other, mine]
    assert changes_in(file, AT_MS, AT_MS + HOUR_MS) == whole.changes
    assert parsed(document(whole)) == whole
    assert "Ann" in event_table(of_job)
    with closing(HistoryFile(file)) as keeper:  # what no event names goes with the events of its time
        keeper.offer(facts(AT_MS + EVENTS_KEPT_MS + HOUR_MS, run_of(RunPhase.RUNNING, JobId(A, "k"))))
        keeper.settle()
    assert [each.revision for each in changes_in(file, AT_MS, AT_MS + 2 * EVENTS_KEPT_MS)] == [mine]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_file_of_a_format_before_is_gone_on_with(tmp_path: Path, version: int) -> None:
    file = tmp_path / "h.db"
    told(file, facts(AT_MS, run_of(RunPhase.RUNNING)), facts(AT_MS + 90_000, run_of(RunPhase.RUNNING)))
    with closing(sqlite3.connect(file)) as db:
        db.executescript("DROP INDEX events_in; ALTER TABLE events DROP COLUMN sweep; PRAGMA user_version = 3")
        if version < 3:
            db.executescript(
                "ALTER TABLE periods DROP COLUMN measured; ALTER TABLE periods DROP COLUMN busy; "
                "ALTER TABLE events DROP COLUMN measured; ALTER TABLE events DROP COLUMN busy; "
                "PRAGMA user_version = 2"
            )
        if version == 1:
            db.executescript(
                "ALTER TABLE periods DROP COLUMN gpus; ALTER TABLE periods DROP COLUMN idle; DROP TABLE commits; "
                "PRAGMA user_version = 1"
            )
    told(file, facts(AT_MS + 120_000, run_of(RunPhase.SUCCEEDED)))
    found = read_history(file, WHOLE, AT_MS, AT_MS + HOUR_MS)
    assert [event.state.value for event in found.events] == ["Running", "Succeeded"]
    assert not file.with_name("h.db.damaged").exists()


def test_a_sweep_is_one_line_with_what_all_of_its_jobs_held(tmp_path: Path) -> None:
    file = tmp_path / "h.db"
    first, second, third = (JobId(A, f"tune-{number}") for number in range(3))
    jobs = tuple(
        Job(
            id=name,
            digest=RunDigest("0" * 8),
            type=JobType.TRAINING,
            container=Container(image="x"),
            gpu_milli=2000,
            sweep=SweepIndex(sweep="tune", key=name.name[-1], values={}),
            span=SourceSpan(file="x.yaml"),
        )
        for name in (first, second, third)
    )

    def at(second_s: int, *runs: Run, declared: tuple[Job, ...] = jobs) -> Facts:
        return replace(facts(AT_MS + second_s * 1000, *runs), jobs=declared)

    running = [run_of(RunPhase.RUNNING, each) for each in (first, second)]
    told(
        file,
        at(0, *running, run_of(RunPhase.RUNNING)),
        at(1800, run_of(RunPhase.SUCCEEDED, first), running[1], run_of(RunPhase.RUNNING)),
        at(2700, running[1], run_of(RunPhase.RUNNING, third), run_of(RunPhase.RUNNING)),
        at(3600, run_of(RunPhase.RUNNING), declared=()),  # it is declared no more, and its objects are gone
    )
    found = read_history(file, Subject(project=A), AT_MS, AT_MS + HOUR_MS + 1)
    assert parsed(document(found)) == found
    header, other, sweep = holding_table(found).splitlines()
    assert [line.split()[2] for line in (header, sweep, other)] == ["JOB", "a/tune", "a/j"]
    assert sweep.split()[3:6] == ["(3)", "4", "3.5"]  # jobs, GPUs at a time, GPU-hours
    assert sweep.split("sweep")[1].strip() == "1 Succeeded, 2 Deleted"
    of_sweep = read_history(file, Subject(job=JobId(A, "tune")), AT_MS, AT_MS + HOUR_MS + 1)
    lines = event_table(of_sweep).splitlines()
    assert [line.split()[1:3] for line in lines] == [
        ["JOB", "STATE"], ["tune-0", "Running"], ["tune-1", "Running"], ["tune-0", "Succeeded"], ["tune-2", "Running"],
        ["tune-1", "Deleted"], ["tune-2", "Deleted"],
    ]  # fmt: skip
    alone = event_table(read_history(file, Subject(job=first), AT_MS, AT_MS + HOUR_MS + 1)).splitlines()
    assert [line.split()[1] for line in alone] == ["STATE", "Running", "Succeeded"]
    assert as_csv(found).splitlines()[2].endswith(",tune")


def test_a_run_that_began_before_is_known(tmp_path: Path) -> None:
    file = tmp_path / "h.db"
    told(file, facts(AT_MS, run_of(RunPhase.RUNNING)), facts(AT_MS + HOUR_MS, run_of(RunPhase.SUCCEEDED)))
    found = read_history(file, Subject(project=A), AT_MS + HOUR_MS // 2, AT_MS + 2 * HOUR_MS)
    (held,) = holdings(found)
    assert (held.from_ms, held.until_ms) == (AT_MS + HOUR_MS // 2, AT_MS + HOUR_MS)
    assert read_history(file, Subject(project=A), AT_MS + 2 * HOUR_MS, AT_MS + 3 * HOUR_MS).events == ()
    assert read_history(file, Subject(project=ProjectName("b")), AT_MS, AT_MS + HOUR_MS).events == ()


def test_a_run_whose_object_is_gone_is_over(tmp_path: Path) -> None:
    file = tmp_path / "h.db"
    told(file, facts(AT_MS, run_of(RunPhase.RUNNING)), facts(AT_MS + 1_000), facts(AT_MS + 2_000))
    states = [event.state for event in read_history(file, WHOLE, AT_MS, AT_MS + HOUR_MS).events]
    assert states == [JobState.RUNNING, JobState.DELETED]


def test_levels_add_up_to_minutes_and_hours(tmp_path: Path) -> None:
    file = tmp_path / "h.db"
    told(
        file,
        *(facts(AT_MS + second * 1000, run_of(RunPhase.RUNNING)) for second in range(0, 3_600, 600)),
        facts(AT_MS + 3_600_000),
        facts(AT_MS + 3_690_000),
    )
    with closing(Store(file)) as store:
        rows = store._db.execute(
            "SELECT grain, SUM(held), SUM(observed_ms) FROM periods JOIN names ON id = project WHERE name = ? "
            "GROUP BY grain",
            (ALL,),
        ).fetchall()
    assert rows[1:] == [(Grain.MINUTE, 2000 * 3600, 61 * MINUTE_MS), (Grain.HOUR, 2000 * 3600, 61 * MINUTE_MS)]
    assert rows[0][1] == 2000 * 3600
    (use, whole) = project_uses(read_history(file, WHOLE, AT_MS, AT_MS + HOUR_MS))
    assert (use.gpu_hours_milli, whole.gpu_hours_milli, use.held_milli) == (2000, 2000, 2000)


def test_what_gpus_did_is_kept_by_run_and_by_project(tmp_path: Path) -> None:
    """Two GPUs work by a half for 25 minutes, of which 5 pass while no process keeps anything, then by a quarter."""
    file, key, minute = tmp_path / "h.db", (JOB, RunDigest("0" * 8)), MINUTE_MS

    def at(number: int, phase: RunPhase, busy_milli: int) -> Facts:
        use = RunUse(held_milli=2000, busy_milli=busy_milli, seen_ms=AT_MS + number * minute)
        return replace(facts(AT_MS + number * minute, run_of(phase)), uses={key: use} if busy_milli else {})

    told(file, *(at(number, RunPhase.RUNNING, 1000) for number in (0, 5, 10)))
    told(file, *(at(number, RunPhase.RUNNING, 1000) for number in (15, 20, 25)))
    held = holdings(read_history(file, Subject(job=JOB), AT_MS, AT_MS + HOUR_MS))
    assert [(each.busy_milli_s, each.measured_milli_s) for each in held] == [(1_200_000, 2_400_000)], "while it runs"
    told(file, *(at(number, RunPhase.RUNNING, 500) for number in (30, 40)), at(41, RunPhase.SUCCEEDED, 0))
    (held_all,) = holdings(read_history(file, Subject(project=A), AT_MS, AT_MS + HOUR_MS))
    assert held_all.busy_milli_s == 1_200_000 + 660 * 500
    assert held_all.measured_milli_s == 2_400_000 + 660 * 2000
    whole = read_history(file, WHOLE, AT_MS, AT_MS + HOUR_MS)
    assert parsed(document(whole)) == whole
    (of_project, of_all) = project_uses(whole)
    assert (of_project.measured_milli_s, of_project.busy_milli_s) == (held_all.measured_milli_s, held_all.busy_milli_s)
    assert of_all.busy_milli_s == of_project.busy_milli_s
    assert "41%" in use_table(whole)
    assert "41%" in event_table(whole)


def test_time_without_cycles_and_a_clock_put_back_are_not_observed() -> None:
    levels, busy = Levels(), {ALL: Amounts(held_milli=1000)}
    rows = [
        row
        for at_ms in (AT_MS, AT_MS + HOUR_MS, AT_MS + HOUR_MS + 90_000, AT_MS, AT_MS + 90_000)
        for row in levels.add(Moment(at_ms=at_ms, levels=busy))
    ]
    minutes = [row for grain, row in rows if grain is Grain.MINUTE]
    assert [(row.at_ms, row.observed_ms, row.held_milli_s) for row in minutes] == [
        (AT_MS + HOUR_MS, 60_000, 60_000),
        (AT_MS, 60_000, 60_000),
    ]


def test_old_events_go_but_the_last_one_of_what_still_runs(tmp_path: Path) -> None:
    file, other = tmp_path / "h.db", JobId(A, "k")
    told(
        file,
        facts(AT_MS, run_of(RunPhase.RUNNING), run_of(RunPhase.RUNNING, other)),
        facts(AT_MS + 1_000, run_of(RunPhase.RUNNING), run_of(RunPhase.SUCCEEDED, other)),
        facts(AT_MS + EVENTS_KEPT_MS + HOUR_MS, run_of(RunPhase.RUNNING)),
    )
    found = read_history(file, WHOLE, AT_MS, AT_MS + EVENTS_KEPT_MS + 2 * HOUR_MS)
    assert [str(event.job) for event in found.events] == ["a/j"]


def test_a_full_file_forgets_its_oldest_part(tmp_path: Path) -> None:
    file = tmp_path / "h.db"
    with closing(Store(file, most_bytes=256 * 1024)) as store:
        for number in range(200):
            events = [
                RunEvent(
                    at_ms=AT_MS + number * 1000, job=JobId(A, f"j{number}"), digest=RunDigest(f"{each:08x}"),
                    state=JobState.SUCCEEDED,
                )
                for each in range(50)
            ]  # fmt: skip
            store.write(events, [])
        (oldest, newest) = store._db.execute("SELECT MIN(at_ms), MAX(at_ms) FROM events").fetchone()
    assert oldest > AT_MS
    assert newest == AT_MS + 199_000
    assert file.stat().st_size <= 256 * 1024


def test_a_damaged_file_is_put_aside_and_a_locked_one_costs_only_pictures(tmp_path: Path) -> None:
    file = tmp_path / "h.db"
    file.write_bytes(b"no database at all, " * 500)
    told(file, facts(AT_MS, run_of(RunPhase.RUNNING)))
    assert file.with_name("h.db.damaged").read_bytes().startswith(b"no database")
    with closing(HistoryFile(file)) as keeper, closing(sqlite3.connect(file, isolation_level=None)) as rival:
        rival.execute("BEGIN EXCLUSIVE")
        keeper.offer(facts(AT_MS + 1_000, run_of(RunPhase.SUCCEEDED)))
        keeper.settle()
        assert "locked" in keeper.fault()
        rival.execute("ROLLBACK")
        keeper.offer(facts(AT_MS + 2_000, run_of(RunPhase.SUCCEEDED)))
        keeper.settle()
        assert not keeper.fault()
    events = read_history(file, WHOLE, AT_MS, AT_MS + HOUR_MS).events
    assert [(event.state, event.at_ms) for event in events] == [
        (JobState.RUNNING, AT_MS),
        (JobState.SUCCEEDED, AT_MS + 2_000),
    ]


ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"


@pytest.mark.parametrize(
    ("table", "instead"),
    [
        ("events", f"CREATE VIEW events AS {ENDLESS} SELECT x AS at_ms, x AS job FROM n"),
        ("names", f"CREATE VIEW names AS {ENDLESS} SELECT x AS id, 'a' AS name FROM n"),
        ("commits", "CREATE TABLE commits (revision TEXT, author TEXT AS (hex(zeroblob(100000000))))"),
        ("periods", "CREATE VIRTUAL TABLE periods USING fts5(at_ms)"),
    ],
)
def test_a_strangers_file_computes_nothing(table: str, instead: str, tmp_path: Path) -> None:
    file = tmp_path / "h.db"
    told(file, facts(AT_MS, run_of(RunPhase.RUNNING)))
    with closing(sqlite3.connect(file)) as db:
        db.executescript(f"DROP TABLE {table}; {instead};")
    with pytest.raises(WorldFault, match="is computed") as raised:
        read_history(file, WHOLE, AT_MS, AT_MS + HOUR_MS)
    assert raised.value.code == "GPU7087"


def test_reading_a_file_ends(tmp_path: Path) -> None:
    file = tmp_path / "h.db"
    told(file, facts(AT_MS, run_of(RunPhase.RUNNING)))
    with pytest.raises(WorldFault, match="interrupted"), opened(file, 0.1) as db:
        db.execute(f"{ENDLESS} SELECT COUNT(*) FROM n").fetchone()


def test_a_folder_that_can_not_be_made_is_a_fault_and_no_more(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with closing(HistoryFile(tmp_path / "file" / "h.db")) as keeper:
        keeper.offer(facts(AT_MS, run_of(RunPhase.RUNNING)))
        keeper.settle()
        assert keeper.fault()


def test_the_history_is_served_to_this_machine_alone(tmp_path: Path) -> None:
    file = tmp_path / "h.db"
    told(file, facts(AT_MS, run_of(RunPhase.RUNNING)), facts(AT_MS + 90_000, run_of(RunPhase.RUNNING)))
    with pytest.raises(WorldFault, match="loopback"):
        HistoryServer(file, "0.0.0.0:0")
    with closing(HistoryServer(file, "127.0.0.1:0")) as server:
        url = f"http://127.0.0.1:{server.port}"
        path = path_of(Subject(job=JOB), AT_MS, AT_MS + HOUR_MS)
        with urlopen(url + path, timeout=60) as answer:
            found = parsed(answer.read())
        assert found == read_history(file, Subject(job=JOB), AT_MS, AT_MS + HOUR_MS)
        for wrong, host in (("/history", "localhost:1"), ("/", "localhost:1"), (path, "evil.example.com:1")):
            with pytest.raises(HTTPError):
                urlopen(Request(url + wrong, headers={"Host": host}), timeout=60)
    whole = read_history(file, WHOLE, AT_MS, AT_MS + HOUR_MS)
    assert parsed(document(whole)) == whole


def test_the_command_shows_a_job_a_project_and_the_cluster(tmp_path: Path) -> None:
    file = tmp_path / "h.db"
    told(file, facts(AT_MS, run_of(RunPhase.RUNNING)), facts(AT_MS + 90_000, run_of(RunPhase.SUCCEEDED)))

    def shown(*words: str) -> str:
        result = CliRunner().invoke(gpuctl, ["history", *words, "--file", str(file), "--since", "36500d"])
        assert result.exit_code == 0, result.output
        return result.stdout

    assert [line.split()[1] for line in shown("a/j").splitlines()] == ["STATE", "Running", "Succeeded"]
    assert "a/j  2     0.1        -     n1     cccccccccc  -       -    Succeeded" in shown("project", "a")
    assert [line.split()[0] for line in shown("cluster").splitlines()] == ["PROJECT", "a", "(all)"]
    assert json.loads(shown("j", "-p", "a", "-o", "json"))["kind"] == "History"
    assert shown("cluster", "-o", "csv").startswith("time,project,observed_ms,held_milli_s")
    assert CliRunner().invoke(gpuctl, ["history", "x", "y", "--file", str(file)]).exit_code == 2
    assert CliRunner().invoke(gpuctl, ["history", "x", "--file", str(file)]).exit_code != 0


def test_names_become_no_formulas(tmp_path: Path) -> None:
    file = tmp_path / "h.db"
    why = Reason(code="=cmd()")
    told(file, facts(AT_MS, run_of(RunPhase.QUEUED, JobId(A, "=1+1"), reason=why)))
    text = as_csv(read_history(file, Subject(job=JobId(A, "=1+1")), AT_MS, AT_MS + HOUR_MS))
    assert ",=" not in text
