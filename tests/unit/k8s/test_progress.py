"""What a job says of its own progress."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat

import pytest

from gpuctl.k8s.progress import MOST_LOG_BYTES, WHOLE_PPM, decode_progress, left_ms, progress_in_log


@pytest.mark.parametrize(
    ("text", "ppm"),
    [
        ("0", 0), ("0.42", 420_000), ("0.4200009", 420_000), ("1", WHOLE_PPM), ("1.000", WHOLE_PPM), ("42%", 420_000),
        ("42.5 %", 425_000), ("100%", WHOLE_PPM), ("0%", 0),
    ],
)  # fmt: skip
def test_a_ratio_or_a_percentage(text: str, ppm: int) -> None:
    assert decode_progress(text) == ppm


@pytest.mark.parametrize(
    "text",
    ["", "-1", "1.1", "2", "101%", "100.1%", "nan", "inf", "1e-3", "0x1", ".5", "\u0661", "0." + "1" * 99, None, 0.4],
)
def test_nothing_else(text: object) -> None:
    assert decode_progress(text) is None


def test_the_last_line_of_a_log_that_says_it_counts() -> None:
    log = [b"epoch 1\ngpuctl: progress 0.1\nepo", b"ch 2\n[rank0] gpuctl: progress 20%\ngpuctl: progress soon\nend"]
    assert progress_in_log(log) == 200_000
    assert progress_in_log([b"nothing"]) is None
    assert progress_in_log([]) is None


def test_an_endless_log_is_read_up_to_a_bound() -> None:
    seen = 0

    def parts() -> Iterator[bytes]:
        nonlocal seen
        for part in repeat(b"x" * 1000):
            seen += len(part)
            yield part

    assert progress_in_log(parts()) is None
    assert seen <= MOST_LOG_BYTES + 1000


def test_the_rest_takes_as_long_as_the_pace_so_far_says() -> None:
    assert left_ms(250_000, 60_000) == 180_000
    assert left_ms(0, 60_000) is None
    assert left_ms(WHOLE_PPM, 60_000) is None
    assert left_ms(250_000, -5) is None
