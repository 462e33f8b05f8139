from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuctl.views import listing, nodes, policies, projects
from gpuctl.views.tables import DAY_MS, HOUR_MS, MINUTE_MS, NARROW, SECOND_MS, age, table


def test_columns_are_aligned_and_no_line_ends_in_spaces() -> None:
    assert table(("NAME", "GPUs", "URL"), [("a", "0.5", ""), ("longer", "16", "x")]) == (
        "NAME    GPUs  URL\n"
        "a       0.5\n"
        "longer  16    x\n"
    )  # fmt: skip


def test_without_rows_the_header_stands() -> None:
    assert table(("NAME", "STATUS"), []) == "NAME  STATUS\n"


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (-5, "0s"),
        (0, "0s"),
        (119 * SECOND_MS, "119s"),
        (289 * SECOND_MS, "4m49s"),
        (5 * MINUTE_MS, "5m"),
        (25 * MINUTE_MS + 59 * SECOND_MS, "25m"),
        (5 * HOUR_MS + 3 * MINUTE_MS, "5h3m"),
        (30 * HOUR_MS, "30h"),
        (3 * DAY_MS + 4 * HOUR_MS, "3d4h"),
        (200 * DAY_MS, "200d"),
    ],
)
def test_ages_are_told_as_kubectl_does(ms: int, text: str) -> None:
    assert age(ms) == text


@given(st.lists(st.tuples(st.text("ab ", max_size=9), st.text("cd", max_size=9)), max_size=5))
def test_a_table_has_a_line_for_each_row(rows: list[tuple[str, str]]) -> None:
    assert table(("A", "B"), rows).count("\n") == len(rows) + 1


LONG = st.text("abcdefgh-", min_size=1, max_size=63)


@given(rows=st.lists(st.tuples(*[LONG] * len(listing.COLUMNS)), max_size=4))
def test_a_short_table_has_no_line_that_is_too_long_and_no_cell_that_is_not_a_cells_ends(
    rows: list[tuple[str, ...]],
) -> None:
    whole, short = table(listing.COLUMNS, rows), table(listing.COLUMNS, rows, most=NARROW)
    assert max(map(len, short.splitlines())) <= NARROW
    if max(map(len, whole.splitlines())) <= NARROW:
        assert short == whole
    for row, line in zip(rows, short.splitlines()[1:], strict=True):
        for cell, shown in zip(row, line.split(), strict=True):
            begin, _, end = shown.partition("…")
            assert shown == cell or (cell.startswith(begin) and cell.endswith(end) and len(shown) < len(cell))


def test_amounts_are_whole_in_a_short_table_where_names_give_way() -> None:
    """`dgx1:4,h100-nvl:12` was cut to `dgx1:4…:12`."""
    quotas = ",".join(f"pool-{n}:{n}" for n in range(12))
    short = table(("NAME", "QUOTA"), [("n" * 60, quotas)], most=NARROW, whole=["QUOTA"])
    assert (quotas in short, "\N{HORIZONTAL ELLIPSIS}" in short) == (True, True)
    assert max(map(len, short.splitlines())) == NARROW


def test_headers_of_short_tables_fit() -> None:
    for columns in (listing.COLUMNS, nodes.COLUMNS, nodes.DEVICE_COLUMNS, projects.COLUMNS, policies.COLUMNS):
        assert len(table(columns, [], most=NARROW).rstrip("\n")) <= NARROW
