from __future__ import annotations

import pytest

from gpuctl.model.ids import ProjectName
from gpuctl.simulate.trace import MOST_TOLD
from gpuctl.simulate.trace_philly import HISTORY_UNTIL_MS, read_philly

HEADER = "timestamp,duration,num_gpus,gpu_time,cluster\n"
EIGHT = "2017-10-09 08:00:00,60.0,8,480.0,b436b2\n"
ONE = "2017-10-09 07:01:55,66.5,1,66.5,11cb48\n"


def test_jobs_come_in_order_of_time() -> None:
    trace, told = read_philly("t.csv", (HEADER + EIGHT + ONE).encode())
    assert told == ()
    assert trace is not None
    first, second = trace.jobs
    assert first.submitted_ms == HISTORY_UNTIL_MS + (7 * 3600 + 115) * 1000
    assert (first.project, first.duration_ms, first.gpu_milli) == ("11cb48", 66_500, 1000)
    assert (second.project, second.duration_ms, second.gpu_milli) == ("b436b2", 60_000, 8000)
    assert first.work_ms == 66_500_000


def test_what_came_before_a_span_is_history() -> None:
    whole, _ = read_philly("t.csv", (HEADER + EIGHT + ONE + ONE.replace("09 07", "10 07")).encode())
    assert whole is not None
    late = whole.between(HISTORY_UNTIL_MS + 86_400_000, None)
    assert [job.project for job in late.jobs] == ["11cb48"]
    gained = {
        project: late.history[project] - whole.history[project]
        for project in (ProjectName("11cb48"), ProjectName("b436b2"))
    }
    assert gained == {"11cb48": 66_500_000, "b436b2": 480_000_000}


def test_a_table_that_begins_earlier_has_no_history_but_its_own() -> None:
    trace, _ = read_philly("t.csv", (HEADER + ONE.replace("2017-10", "2017-09")).encode())
    assert trace is not None
    assert trace.history == {}


def test_a_table_of_other_clusters_has_not_their_history() -> None:
    trace, _ = read_philly("t.csv", (HEADER + ONE.replace("11cb48", "team-a")).encode())
    assert trace is not None
    assert trace.history == {}


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("yesterday,66.0,1,66.0,11cb48", "'yesterday' is not a time from 1970 on"),
        ("1817-10-09 07:01:55,66.0,1,66.0,11cb48", "'1817-10-09 07:01:55' is not a time from 1970 on"),
        ("9999-10-09 07:01:55,66.0,1,66.0,11cb48", "'9999-10-09 07:01:55' is not a time from 1970 on"),
        ("2017-10-09 07:01:55,-66.0,1,66.0,11cb48", "'-66.0' is not a duration in seconds"),
        ("2017-10-09 07:01:55,66.0,-1,66.0,11cb48", "'-1' is not a number of GPUs"),
        ("2017-10-09 07:01:55,66.0,1000000000,66.0,11cb48", "'1000000000' is not a number of GPUs"),
        ("2017-10-09 07:01:55,soon,1,66.0,11cb48", "'soon' is not a duration in seconds"),
        ("2017-10-09 07:01:55,0,1,66.0,11cb48", "'0' is not a duration in seconds"),
        ("2017-10-09 07:01:55,NaN,1,66.0,11cb48", "'NaN' is not a duration in seconds"),
        ("2017-10-09 07:01:55,1e999999,1,66.0,11cb48", "'1e999999' is not a duration in seconds"),
        ("2017-10-09 07:01:55,66.0,0,66.0,11cb48", "'0' is not a number of GPUs"),
        ("2017-10-09 07:01:55,66.0,1.5,66.0,11cb48", "'1.5' is not a number of GPUs"),
        ("2017-10-09 07:01:55,66.0,1,66.0,", "cluster is empty"),
        ("2017-10-09 07:01:55,66.0,1,66.0,a\x1b[2J", "'a\\x1b[2J' is not a cluster name"),
        ("2017-10-09 07:01:55,66.0", "too few columns"),
    ],
)
def test_a_wrong_line_is_told_with_its_place(line: str, problem: str) -> None:
    trace, told = read_philly("t.csv", (HEADER + ONE + line + "\n").encode())
    assert trace is None
    assert [(d.code, d.span.line, d.message) for d in told] == [("GPU3910", 3, f"this line can't be used: {problem}")]


def test_quotes_spaces_zones_and_a_byte_order_mark_are_read() -> None:
    table = 'timestamp, duration,num_gpus,"gpu_time",cluster\r\n2017-10-09 09:01:55+02:00,66.5,1,66.5,"a, b"\r\n\r\n'
    trace, told = read_philly("t.csv", b"\xef\xbb\xbf" + table.encode())
    assert told == ()
    assert trace is not None
    (job,) = trace.jobs
    assert (job.project, job.submitted_ms) == ("a, b", HISTORY_UNTIL_MS + (7 * 3600 + 115) * 1000)


def test_a_quote_that_never_ends_is_told_where_it_begins() -> None:
    _, (told,) = read_philly("t.csv", (HEADER + ONE + '"' + ONE + EIGHT).encode())
    assert (told.code, told.span.line) == ("GPU3910", 3)


@pytest.mark.parametrize("cells", ["x" * 200_000, "2017-10-09 07:01:55,66.0," + "1" * 5000 + ",66.0,11cb48"])
def test_a_line_that_is_far_too_long_is_told(cells: str) -> None:
    _, (told,) = read_philly("t.csv", (HEADER + ONE + cells + "\n").encode())
    assert (told.code, told.span.line) == ("GPU3910", 3)
    assert len(told.message) < 300


def test_missing_columns_are_told_once() -> None:
    _, told = read_philly("t.csv", b"timestamp,gpus\n1,2\n")
    assert [(d.code, d.message) for d in told] == [
        ("GPU3911", "the first line has no column duration, num_gpus, cluster")
    ]


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", HEADER.encode()])
def test_a_file_without_jobs_is_told(content: bytes) -> None:
    trace, (told,) = read_philly("t.csv", content)
    assert trace is None
    assert told.code in {"GPU3911", "GPU3915"}


def test_a_file_of_wrong_lines_is_not_told_line_by_line() -> None:
    _, told = read_philly("t.csv", (HEADER + "x,1,1,1,vc\n" * 1000).encode())
    assert len(told) == MOST_TOLD


def test_projects_are_names_of_clusters() -> None:
    trace, _ = read_philly("t.csv", (HEADER + ONE).encode())
    assert trace is not None
    assert trace.history[ProjectName("7f04ca")] == 88_422 * 1000 * 3_600_000
