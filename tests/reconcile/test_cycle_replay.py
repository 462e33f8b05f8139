"""`gpuctl replay`: the inputs of past cycles, kept within bounds, give the same decisions again."""

from __future__ import annotations

import json
import sqlite3
import zlib
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from stage import BASE, WithoutGit, job, project

from gpuctl.adapters.history import inputs as stored
from gpuctl.adapters.history.inputs import keep, kept_before, packed, unpacked
from gpuctl.adapters.history.keeper import HistoryFile
from gpuctl.adapters.history.store import Store
from gpuctl.app.history import Facts
from gpuctl.app.ports import WorldFault
from gpuctl.app.replaying import Inputs, decided_again
from gpuctl.cli.main import gpuctl
from gpuctl.k8s.timestamps import format_timestamp
from gpuctl.model.source import SourceFile
from gpuctl.model.state import RawObjects


class Patient(HistoryFile):
    """Keeps every cycle: the loop waits for it."""

    def offer(self, facts: Facts) -> None:
        super().offer(facts)
        self.settle()
        self._inputs_due_s = 0.0


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run is paused for another, a project breaks, a job ends, and a node is lost."""
    folder = tmp_path_factory.mktemp("replay")
    stage, file = WithoutGit(folder), folder / "h.db"
    stage.commit({**BASE, "c/projects/a/j3.yaml": job("j3", "a", 2)})
    stage.at(20, lambda: stage.commit({"c/projects/b/j4.yaml": job("j4", "b")}))
    stage.at(40, lambda: stage.commit({"c/projects/a/broken.yaml": "kind: [\n"}))
    stage.at(60, lambda: stage.commit({"c/projects/b/project.yaml": project("b", 1), "c/projects/b/j2.yaml": None}))
    with closing(Patient(file)) as keeper:
        stage.history = keeper
        stage.play(120)
        assert not keeper.fault()
    return file


def rows(file: Path) -> list[tuple[int, bytes]]:
    with closing(sqlite3.connect(file)) as db:
        return db.execute("SELECT at_ms, body FROM inputs ORDER BY at_ms, rowid").fetchall()


def test_every_kept_cycle_is_decided_again_as_it_was(history: Path) -> None:
    kinds = set()
    for _, body in rows(history):
        known = unpacked(body)
        assert known.decided
        assert decided_again(known) == known.decided
        kinds |= {json.loads(line)[1] for line in known.decided}
    assert {"Admit", "Keep", "Pending", "Reclaim"} <= kinds


def test_the_cycle_of_a_time_is_the_newest_up_to_then(history: Path) -> None:
    kept = dict(rows(history))  # of several at one instant the last
    first, second, *_ = kept
    assert kept_before(history, second) == kept[second]
    assert kept_before(history, second - 1) == kept[first]
    with pytest.raises(WorldFault, match="none up to that time"):
        kept_before(history, first - 1)


def test_a_cycle_that_could_not_be_written_is_kept_once_it_can_be(tmp_path: Path) -> None:
    stage, file = WithoutGit(tmp_path), tmp_path / "h.db"
    stage.commit({**BASE})
    with closing(Patient(file)) as keeper:
        stage.history = keeper
        stage.play(10)
        with closing(sqlite3.connect(file)) as db:
            db.execute("CREATE TRIGGER full BEFORE INSERT ON inputs BEGIN SELECT RAISE(FAIL, 'full'); END")
        known = len(rows(file))
        stage.commit({"c/projects/a/j3.yaml": job("j3", "a", 2)})
        stage.play(20)
        assert (len(rows(file)), keeper.fault()) == (known, "full")
        with closing(sqlite3.connect(file)) as db:
            db.execute("DROP TRIGGER full")
        stage.play(30)
        assert len(rows(file)) > known
        assert not keeper.fault()


def test_a_report_is_one_file_that_needs_nothing_else(history: Path, tmp_path: Path) -> None:
    report = tmp_path / "report"
    at = format_timestamp(rows(history)[-1][0])
    run = CliRunner()
    made = run.invoke(gpuctl, ["replay", "--at", at, "--history", str(history), "--output", str(report)])
    assert (made.exit_code, "all are the same" in made.stdout) == (0, True), made.output
    assert [file.stat().st_mode & 0o777 for file in (report, history)] == [0o600, 0o600]
    again = run.invoke(gpuctl, ["replay", str(report), "--job", "b/j4"])
    assert (again.exit_code, again.stdout.count('["b/j4",')) == (0, 1), again.output
    piped = run.invoke(gpuctl, ["replay", "--at", at, "--history", str(history), "--output", "-"])
    assert (piped.exit_code, piped.stdout_bytes) == (0, report.read_bytes()), "and nothing is decided"
    known = unpacked(report.read_bytes())
    fewer = {path: file for path, file in known.files.items() if not path.endswith("j4.yaml")}
    report.write_bytes(packed(replace(known, files=fewer)))
    other = run.invoke(gpuctl, ["replay", str(report)])
    assert (other.exit_code, "- then [" in other.stdout) == (1, True), other.output


@pytest.mark.parametrize(
    "content",
    [
        b"", b"no report", zlib.compress(b""), zlib.compress(b"[]\n"), zlib.compress(b'{"format": 9}\n'),
        zlib.compress(b'{"format": 1}\n'), zlib.compress(b"[" * 100_000), zlib.compress(b'{"format": 1, "at_ms": "x"}'),
        zlib.compress(b"x" * 1_000_000)[:-10],
    ],
)  # fmt: skip
def test_what_is_no_report_is_told(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "report"
    file.write_bytes(content)
    told = CliRunner().invoke(gpuctl, ["replay", str(file)])
    assert (told.exit_code, "GPU7099" in told.stderr) == (2, True), told.output


def test_a_small_file_can_not_fill_the_memory() -> None:
    with pytest.raises(WorldFault, match="too large"):
        unpacked(zlib.compress(b" " * 1_000_000), 10_000)


def test_bytes_that_are_no_text_come_back() -> None:
    content = bytes(range(256))
    known = Inputs(at_ms=5, folder="c", revision="", files={"c/x.yaml": SourceFile(content=content)})  # type: ignore[arg-type]
    assert unpacked(packed(known)) == replace(known, objects=RawObjects())


def test_the_oldest_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "MOST_KEPT_BYTES", 1_000)
    with closing(Store(tmp_path / "h.db")) as store:
        for number in range(10):
            store.keep_inputs(number, bytes(300))
        assert store._db.execute("SELECT at_ms FROM inputs").fetchall() == [(7,), (8,), (9,)]
        keep(store._db, stored.KEPT_MS + 9, b"x")
        assert store._db.execute("SELECT at_ms FROM inputs").fetchall() == [(9,), (stored.KEPT_MS + 9,)]


@pytest.mark.parametrize(
    "words",
    [
        "replay",
        "replay --at 2026-03-02T10:04:12Z --embedded FILE",
        "replay FILE --at 2026-03-02T10:04:12Z",
        "replay --history FILE --at yesterday",
        "replay --history FILE",
    ],
)
def test_a_time_and_a_history_belong_together(words: str, history: Path) -> None:
    told = CliRunner().invoke(gpuctl, words.replace("FILE", str(history)).split())
    assert (told.exit_code, "GPU9002" in told.stderr) == (2, True)
