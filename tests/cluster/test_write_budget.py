"""`--write-qps` and `--write-burst` on a real API server: its audit log says how fast the writes came."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from controlplane.server import ControlPlane
from unattended import Site, job, project, writes_of

from gpuctl.adapters.kubernetes import WriteLimits

QPS, BURST = 10, 5


@pytest.fixture
def site(plane_with_gpuctl: ControlPlane, tmp_path: Path) -> Iterator[Site]:
    made = Site(plane_with_gpuctl, tmp_path, "budget")
    yield made
    made.leave()


def test_no_second_has_more_writes_than_the_budget(site: Site) -> None:
    names = [f"j{number}" for number in range(12)]
    site.commit(project("a", 12), *(job(name) for name in names))
    process = site.start("--write-qps", str(QPS), "--write-burst", str(BURST))
    site.await_pods(*names)
    told = sorted(r["requestReceivedTimestamp"] for r in writes_of(process.audited()))
    at_s = [datetime.fromisoformat(each).timestamp() for each in told]
    assert len(at_s) > 3 * len(names) // 2
    assert at_s[-1] - at_s[0] >= (len(at_s) - BURST - 1 - ON_THEIR_WAY) / QPS
    for first in at_s:
        assert sum(first <= each < first + 1 for each in at_s) <= QPS + BURST + ON_THEIR_WAY


ON_THEIR_WAY = WriteLimits().at_once
"""So many requests may be on their way for a while, where a server is slow, and then arrive with the next."""
