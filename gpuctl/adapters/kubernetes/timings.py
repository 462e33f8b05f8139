"""How long this client waits, and how much it writes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpuctl.model.units import DurationMs


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Waits of the client. The server sends a bookmark about once a minute, so a longer silence is a dead
    connection."""

    connect_ms: DurationMs = 5_000
    answer_ms: DurationMs = 15_000
    """The longest silence within an answer."""
    tries: int = 4
    """The most tries of a request that fails temporarily."""
    first_retry_ms: DurationMs = 100
    patience_ms: DurationMs = 5_000
    """A request is not repeated later than this after its first try, whatever Retry-After says: stopping must not take
    long, and the next cycle asks anew."""
    silence_ms: DurationMs = 74_000
    """The longest silence of a watch."""
    shortest_watch_ms: DurationMs = 240_000
    longest_watch_ms: DurationMs = 290_000
    """How long the server is asked to keep a watch open: a random time between the two."""
    longest_reconnect_ms: DurationMs = 10_000
    """Also the longest time until the return of an absent server is noticed, unless another request notices it."""
    away_ms: DurationMs = 3_000
    """A server that has answered nothing for this long was away: once it answers any request, all watches ask again."""
    stable_ms: DurationMs = 120_000
    """After going well for this long, a watch starts again at the shortest wait."""
    doubt_ms: DurationMs = 5_000
    """A right that was there counts as missing once it has been refused for this long."""
    recheck_ms: DurationMs = 300_000
    """When to ask again for a kind that the server does not serve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteLimits:
    """At most `burst` writes at once, then `per_second`; `at_once` of them under way at a time.

    A write costs an API server some 2 ms of one core, and as much again in the controllers that follow it: a small
    control plane can just handle 400 a second. Beyond that it defends itself (429), which costs more than waiting here.
    """

    per_second: int = 400
    burst: int = 800
    at_once: int = 8


def limited(per_second: int | None, burst: int | None) -> WriteLimits:
    """The limits with these values instead of the usual ones; the default burst is twice the rate per second."""
    usual = WriteLimits()
    rate = per_second or usual.per_second
    return replace(usual, per_second=rate, burst=burst or 2 * rate)
