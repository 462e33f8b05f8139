from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuctl.compile import amounts
from gpuctl.compile.amounts import WrongValue
from gpuctl.diag import wording

Read = Callable[[Any], int]
DAY = 86_400_000

RIGHT: list[tuple[Read, Any, int]] = [
    (amounts.gpus, "4", 4000), (amounts.gpus, 4, 4000), (amounts.gpus, Decimal("0.001"), 1), (amounts.gpus, 0, 0),
    (amounts.worker_gpus, Decimal("0.5"), 500), (amounts.worker_gpus, Decimal("2.0"), 2000),
    (amounts.duration, "8h", 28_800_000), (amounts.duration, "7d", 7 * DAY), (amounts.duration, "1h30m", 5_400_000),
    (amounts.duration, "0s", 0), (amounts.duration, "500ms", 500), (amounts.duration, "1d1h1m1s1ms", DAY + 3_661_001),
    (amounts.memory, "32Gi", 32 << 30), (amounts.memory, "1.5Gi", 3 << 29), (amounts.memory, 1024, 1024),
    (amounts.memory, "2k", 2000), (amounts.memory, "32510Mi", 32510 << 20), (amounts.memory, "1Ti", 1 << 40),
    (amounts.cpu, 4, 4000), (amounts.cpu, "500m", 500), (amounts.cpu, Decimal("0.5"), 500),
    (amounts.cpu, "1e1", 10_000),
]  # fmt: skip

WRONG: list[tuple[Read, Any, str]] = [
    (amounts.gpus, Decimal("0.0005"), "GPU2012"), (amounts.gpus, -1, "GPU2017"), (amounts.gpus, "all", "GPU2011"),
    (amounts.gpus, "1e400", "GPU2011"), (amounts.gpus, True, "GPU2006"), (amounts.gpus, None, "GPU2006"),
    (amounts.worker_gpus, Decimal("1.5"), "GPU2013"), (amounts.gpus, "", "GPU2011"), (amounts.gpus, [4], "GPU2006"),
    (amounts.duration, 90, "GPU2014"), (amounts.duration, "", "GPU2014"), (amounts.duration, "1h2d", "GPU2014"),
    (amounts.duration, "-1h", "GPU2017"), (amounts.duration, "1 h", "GPU2014"), (amounts.duration, None, "GPU2006"),
    (amounts.memory, "32GB", "GPU2015"), (amounts.memory, "0.3", "GPU2015"), (amounts.memory, "-1Gi", "GPU2017"),
    (amounts.memory, "999999999Pi", "GPU2018"), (amounts.memory, "1.2.3Gi", "GPU2015"),
    (amounts.gpus, 1_000_001, "GPU2018"), (amounts.worker_gpus, 1025, "GPU2018"), (amounts.cpu, 2**31, "GPU2018"),
    (amounts.gpus, 10**17, "GPU2018"), (amounts.cpu, "2000000000m", "GPU2018"), (amounts.cpu, "1e17", "GPU2018"),
    (amounts.duration, "36501d", "GPU2018"), (amounts.duration, "999999999d", "GPU2018"),
    (amounts.duration, "9" * 30 + "d", "GPU2014"), (amounts.gpus, "9" * 5000, "GPU2011"),
    (amounts.memory, "1e999999Gi", "GPU2015"), (amounts.memory, "9" * 5000 + "Gi", "GPU2015"),
    (amounts.memory, 801 << 50, "GPU2018"), (amounts.memory, "801Pi", "GPU2018"),
    (amounts.cpu, "0.5m", "GPU2016"), (amounts.cpu, "m", "GPU2016"), (amounts.cpu, "-1", "GPU2017"),
]  # fmt: skip


@pytest.mark.parametrize(("read", "value", "amount"), RIGHT)
def test_amounts_are_exact(read: Read, value: Any, amount: int) -> None:
    assert read(value) == amount


@pytest.mark.parametrize(("read", "value", "code"), WRONG)
def test_what_is_no_amount_says_why(read: Read, value: Any, code: str) -> None:
    with pytest.raises(WrongValue) as raised:
        read(value)
    assert raised.value.code == code
    assert wording.message(code, raised.value.params)


@given(st.integers(0, 10**9))
def test_gpus_are_read_as_they_are_shown(milli: int) -> None:
    assert amounts.gpus(wording.thousandths(milli)) == milli


@given(st.integers(0, 36_500 * DAY))
def test_durations_are_read_as_they_are_shown(milliseconds: int) -> None:
    assert amounts.duration(wording.duration(milliseconds)) == milliseconds


@given(st.integers(0, 10**15))
def test_memory_is_read_as_it_is_shown(size: int) -> None:
    assert amounts.memory(wording.memory(size)) == size


@pytest.mark.parametrize("name", ["a", "a-1", "0", "a" * 63])
def test_labels(name: str) -> None:
    assert amounts.label(name) == name


@pytest.mark.parametrize("name", ["", "-", "a-", "A", "a_b", "a.b", "a" * 64, "ä", "a\n"])
def test_what_is_no_label(name: str) -> None:
    with pytest.raises(WrongValue):
        amounts.label(name)


@pytest.mark.parametrize("name", ["dgx1-1.example.com", "10.61.218.134", "a"])
def test_subdomains(name: str) -> None:
    assert amounts.subdomain(name) == name


@pytest.mark.parametrize("path", ["a", "", "/a/../b", "/a:b", "../a"])
def test_what_is_no_absolute_path(path: str) -> None:
    with pytest.raises(WrongValue):
        amounts.absolute_path(path)
