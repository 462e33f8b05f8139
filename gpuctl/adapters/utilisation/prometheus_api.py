"""Prometheus, by its HTTP API: one request for all samples of the last two minutes, with their times."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit, urlunsplit

from gpuctl.adapters.utilisation.dcgm import METRICS, sample_of
from gpuctl.adapters.utilisation.fetching import DAMAGE, fetched, pool, refused
from gpuctl.app.utilisation import Reading
from gpuctl.model.units import Instant
from gpuctl.model.utilisation import Sample

WINDOW = "2m"
"""Longer than exporters and Prometheus together take between samples: at most a minute each."""
MOST_BYTES = 16 << 20
"""The most bytes of one answer: two minutes of 1,000 GPUs, each sampled every 15 seconds, take 2.5 MiB."""
_RENAMED = "exported_"


class Prometheus:
    """Implements the port UtilisationSource by a Prometheus, or a server with its API.

    `matching`: further label matchers that series must have, such as `job="dcgm-exporter"`. `token`: called before each
    request; if it returns "", none is sent.
    """

    def __init__(self, url: str, matching: str = "", token: Callable[[], str] = str) -> None:
        parts = urlsplit(url)
        names = f'__name__=~"{"|".join(METRICS)}"'
        query = f"{{{names}{f',{matching}' if matching else ''}}}[{WINDOW}]"
        path = f"{parts.path.rstrip('/')}/api/v1/query"
        self._url = urlunsplit((parts.scheme, parts.netloc, path, urlencode({"query": query}), ""))
        self._token = token
        self._pool = pool()

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()

    def read(self, now_ms: Instant) -> Reading:
        """The samples of the last two minutes by Prometheus' clock. Raises Unread."""
        del now_ms
        token = self._token()
        answer = fetched(self._pool, self._url, MOST_BYTES, {"authorization": f"Bearer {token}"} if token else {})
        try:
            return Reading(samples=list(_samples(json.loads(answer))))
        except DAMAGE as error:
            raise refused(self._url, "it answers with something else than a result of Prometheus") from error


def _samples(answer: Any) -> Iterator[Sample]:
    if answer["status"] != "success" or answer["data"]["resultType"] != "matrix":
        raise ValueError("no result")
    for series in answer["data"]["result"]:
        labels = _as_exported(series["metric"])
        for at_s, value in series["values"]:
            sample = sample_of(str(labels.get("__name__", "")), labels, int(at_s * 1000), float(value))
            if sample is not None:
                yield sample


def _as_exported(labels: Mapping[str, object]) -> Mapping[str, object]:
    """The labels with `namespace` and `pod` as the exporter had them.

    If Prometheus has labels of its own under these names, it renames the exporter's: it puts `exported_` before them,
    as often as needed for a name that is free. So the longest such name is the exporter's. Security: that also holds
    where the exporter copies labels of pods and a tenant has named one `exported_pod`. For a GPU that no pod has, `pod`
    is the exporter's own pod, which is no job's.
    """
    if _RENAMED + "pod" not in labels:
        return labels
    return {**labels, **{name: labels.get(_longest(labels, name), "") for name in ("namespace", "pod")}}


def _longest(labels: Mapping[str, object], name: str) -> str:
    while _RENAMED + name in labels:
        name = _RENAMED + name
    return name
