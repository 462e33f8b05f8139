"""Freeze windows: what is refused of their declaration, and when they are open, over changes of clocks."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuctl.compile import compile_tree
from gpuctl.diag.text import text_form
from gpuctl.model.freeze import Forbidden, FreezeWindow, is_cron, is_zone, open_until
from gpuctl.model.source import SourceFile, SourceTree

CLUSTER = """apiVersion: gpuctl.dev/v1
kind: Cluster
metadata: {name: one}
spec:
  nodePools:
  - {name: p, nodes: [n1], gpusPerNode: 4, gpuMemory: 32Gi, gpuProduct: Tesla, sharing: device-plugin}
"""
HOUR_MS = 3_600_000


def window(cron: str, hours: int, zone: str = "Europe/Berlin", reason: str = "") -> FreezeWindow:
    forbids = frozenset({Forbidden.PAUSE})
    return FreezeWindow(cron=cron, duration_ms=hours * HOUR_MS, time_zone=zone, forbids=forbids, reason=reason)


def at(text: str, zone: str = "Europe/Berlin") -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()) * 1000


def told(entry: str) -> str:
    content = f"{CLUSTER}  freeze:\n  - {entry}\n".encode()
    return text_form(
        compile_tree(SourceTree(cluster_dir=".", files={"c.yaml": SourceFile(content=content)})).diagnostics
    )


@pytest.mark.parametrize(
    ("entry", "place", "words"),
    [
        ("{cron: '0 25 * * *', duration: 1h}", "c.yaml:8:12", "a cron expression of five fields"),
        ("{cron: '0 0 30 2 *', duration: 1h}", "c.yaml:8:12", "that is due at some time"),
        ("{cron: '* * * * * *', duration: 1h}", "c.yaml:8:12", "a cron expression of five fields"),
        ("{cron: '0 1 * * *', duration: 0s}", "c.yaml:8:35", "it must be more than zero"),
        ("{cron: '0 1 * * *', duration: 1d}", "c.yaml:8:35", "it must be shorter than the time between two starts"),
        ("{cron: '0 1 * * *', duration: 1h, timeZone: Mars/One}", "c.yaml:8:49", "the name of a time zone"),
        ("{cron: '0 1 * * *', duration: 1h, timeZone: ../passwd}", "c.yaml:8:49", "the name of a time zone"),
        ("{cron: '0 1 * * *', duration: 1h, forbids: [start]}", "c.yaml:8:49", "pause"),
        ("{cron: '0 1 * * *', duration: 1h, forbids: [pause, all]}", "c.yaml:8:56", "write forbids: all "),
        ("{cron: '0 1 * * *', duration: 1h, forbids: delete}", "c.yaml:8:48", "write forbids: [delete] "),
    ],
)
def test_what_is_wrong_with_a_window_is_told_at_its_place(entry: str, place: str, words: str) -> None:
    text = told(entry)
    assert text.startswith(place), text
    assert words in text


def test_a_right_window_is_taken() -> None:
    entry = "{cron: '0 18 * * 5', duration: 62h, timeZone: Europe/Berlin, forbids: [pause], reason: weekend}"
    tree = SourceTree(cluster_dir=".", files={"c.yaml": SourceFile(content=f"{CLUSTER}  freeze: [{entry}]".encode())})
    compiled = compile_tree(tree)
    assert compiled.declared is not None, text_form(compiled.diagnostics)
    assert compiled.declared.cluster.freeze == (window("0 18 * * 5", 62, reason="weekend"),)


@pytest.mark.parametrize("more", ["", ", forbids: all"])
def test_a_window_forbids_all_where_nothing_else_is_said(more: str) -> None:
    assert not told(f"{{cron: '0 18 * * 5', duration: 62h{more}}}")


@pytest.mark.parametrize(
    ("now", "until"),
    [
        ("2026-03-27 17:59:59", None),
        ("2026-03-27 18:00:00", "2026-03-30 09:00:00"),  # clocks go forward: 62 hours end at 9 instead of 8
        ("2026-03-30 08:59:59", "2026-03-30 09:00:00"),
        ("2026-03-30 09:00:00", None),
        ("2026-10-23 18:00:00", "2026-10-26 07:00:00"),  # and back
        ("2026-10-26 07:00:00", None),
        ("2026-07-04 12:00:00", "2026-07-06 08:00:00"),
    ],
)
def test_a_weekend_lasts_its_hours_whatever_the_clock_does(now: str, until: str | None) -> None:
    found = open_until([window("0 18 * * 5", 62, reason="weekend")], Forbidden.PAUSE, at(now))
    assert found == (None if until is None else (at(until), "weekend"))


def test_a_start_that_the_clock_skips_is_taken_once() -> None:
    skipped = window("30 2 * * *", 1)  # there is no 02:30 on the 29th of March 2026
    assert open_until([skipped], Forbidden.PAUSE, at("2026-03-29 01:59:59")) is None
    assert open_until([skipped], Forbidden.PAUSE, at("2026-03-29 03:30:00")) is not None
    assert open_until([skipped], Forbidden.PAUSE, at("2026-03-29 04:30:00")) is None


def test_another_forbidden_thing_is_not_forbidden() -> None:
    assert open_until([window("0 18 * * 5", 62)], Forbidden.DELETE, at("2026-07-04 12:00:00")) is None


def test_windows_that_overlap_end_together() -> None:
    both = [window("0 * * * 1", 2), window("0 3 * * 1", 1)]
    assert open_until(both, Forbidden.PAUSE, at("2026-07-06 03:10:00")) == (at("2026-07-07 01:00:00"), "")


@given(st.text(max_size=40))
def test_any_text_is_or_is_not_a_cron_or_a_zone(text: str) -> None:
    assert is_cron(text) in {True, False}
    assert is_zone(text) in {True, False}
