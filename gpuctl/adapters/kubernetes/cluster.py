"""The port Cluster on an API server: lists in pages, watches kept going in the background, and writes within bounds."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any, TypeVar

from gpuctl.adapters.kubernetes.budget import Budget
from gpuctl.adapters.kubernetes.connection import Connection
from gpuctl.adapters.kubernetes.discovery import declared_plural
from gpuctl.adapters.kubernetes.doubts import Doubts
from gpuctl.adapters.kubernetes.faults import Passing
from gpuctl.adapters.kubernetes.listing import Page, read_page
from gpuctl.adapters.kubernetes.paths import collection, item, with_query
from gpuctl.adapters.kubernetes.requests import (
    APPLY,
    OnRequest,
    Request,
    Requests,
    always,
    backoff_ms,
    encoded,
    ignored,
    patching,
)
from gpuctl.adapters.kubernetes.rivals import amends
from gpuctl.adapters.kubernetes.stream import Stream
from gpuctl.adapters.kubernetes.timings import Timings, WriteLimits
from gpuctl.app.ports import (
    ClusterUnavailable,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    ObjectList,
    Taken,
    WatchEvent,
    WebhookAway,
    WorldFault,
)
from gpuctl.diag.wording import message
from gpuctl.k8s.kinds import KINDS, SCOPES, Kind, Scope, is_of_others
from gpuctl.k8s.makers import is_foreign, tells_its_maker
from gpuctl.k8s.objects import is_deleting, items, mapping, ref_of, uid
from gpuctl.k8s.workloads import is_workload, keeps_its_pods
from gpuctl.model.ids import ObjectRef
from gpuctl.model.state import Body

T = TypeVar("T")
R = TypeVar("R")

_PAGE = "500"
_EVERYTHING = Scope()
_MS_NS = 1_000_000
_LAST_WAIT_MS = 2_000
_NO_DRY_RUN = "does not support dry run"


def nothing() -> None:
    """Ignore the news: the default `on_news`."""


def whole(body: Body) -> Body:
    """Keep all of an object: the default `keep`."""
    return body


class KubernetesCluster:
    """Implements the port Cluster. Safe for threads. `close` it before its connection.

    `permit`: asked right before each write is sent; False raises ClusterUnavailable GPU7016. `on_news`: called, from
    another thread, when a watch has received something. `scopes`: which objects of a kind are read. `keep`: reduces
    each object that was listed or watched to the part that is kept, before the next one is read.
    """

    def __init__(  # noqa: PLR0913 - all by name, all with a default
        self,
        connection: Connection,
        *,
        permit: Callable[[], bool] = always,
        on_news: Callable[[], None] = nothing,
        on_request: OnRequest = ignored,
        writes: WriteLimits | None = None,
        timings: Timings | None = None,
        scopes: Mapping[Kind, Scope] = SCOPES,
        keep: Callable[[Body], Body] = whole,
    ) -> None:
        limits = writes or WriteLimits()
        self.requests = Requests(connection, timings, on_request)
        self._permit = permit
        self._on_news = on_news
        self._scopes = scopes
        self._keep = keep
        self._at_once = limits.at_once
        self._budget = Budget(limits.per_second, limits.burst)
        self._hands = ThreadPoolExecutor(limits.at_once, thread_name_prefix="write")
        self._lock = Lock()
        self._streams: dict[Kind, Stream] = {}
        self._ended: list[Stream] = []
        self._refusals: dict[Kind, _Refusal] = {}
        self._losses: dict[Kind, _Loss] = {}
        self._plurals: dict[Kind, str] = {}
        self._doubts = Doubts(self.requests.timings.doubt_ms)

    def list(self, kind: Kind) -> ObjectList:
        """All objects of a kind within its scope, by namespace and name, in pages of one consistent list.

        Raises NotFound for a kind that is not served, Forbidden, and ClusterUnavailable. The first two are remembered
        for a while, so that asking again costs nothing; for other controllers' kinds the third too. For a kind that
        could be listed before, a missing right is doubted at first. Cost: a request for each 500 objects.
        """
        refusal = self._refusals.get(kind)
        if refusal is not None and time.monotonic_ns() < refusal.until_ns:
            raise refusal.fault.with_traceback(None)
        try:
            listed = self._pages(kind, _PAGE)
        except Gone:
            listed = self._pages(kind, "")  # the list was overtaken between two pages: read it once more, in one piece
        except (NotFound, Forbidden) as fault:
            judged = self._doubts.judged(("list", kind), fault)
            if judged is not fault:
                raise judged from fault
            self._remember(kind, fault)
            raise
        except ClusterUnavailable as fault:
            if is_of_others(kind):
                self._remember(kind, fault)
            raise
        self._refusals.pop(kind, None)
        self._doubts.allowed(("list", kind))
        return listed

    def watch(self, kind: Kind, resource_version: str, timeout_ms: int) -> Sequence[WatchEvent]:
        """The events of a kind since that version, then a bookmark; waits up to the timeout for an event.

        The first call begins to listen; each later one continues where the last ended. An event may arrive some
        milliseconds after its cause. Raises Gone; ClusterUnavailable or Forbidden as long as the watch can't be kept
        up, where a right that was there counts as ClusterUnavailable for some seconds; ClusterUnavailable GPU7017 while
        a new list is delayed because watches get lost repeatedly.
        """
        stream = self._stream(kind, resource_version)
        try:
            events = stream.drain(timeout_ms)
        except Gone as fault:
            lost = self._lost(kind, fault, stream.failed_ns)
            if lost is fault:
                self._drop(kind, stream)
            raise lost from None
        except WorldFault as fault:
            raise self._doubts.judged(("watch", kind), fault) from None
        except Exception:
            self._drop(kind, stream)  # a bug ended its thread: the next call begins anew
            raise
        self._doubts.allowed(("watch", kind))
        return events

    def read_anew(self) -> None:
        """Lose all watches, so that the next call for each kind raises Gone, and the caller lists. Safe for threads."""
        with self._lock:
            streams = dict(self._streams)
        for kind, stream in streams.items():
            stream.lose(Gone("GPU7005", f"watch {kind[1]}: the server's data may have been restored"))

    def apply(self, body: Body, *, is_new: bool = False) -> Body:
        """Server-side apply as field manager `gpuctl`, forced; returns the object as stored. Faults as the port says.

        If fields of others make the object invalid, or leave no room, they are removed and the body is applied again.
        Cost: one request more for a new object that tells its maker, of one key.
        """
        ref = ref_of(body)
        if is_new and tells_its_maker(ref):
            live = self._seen(ref)
            if live is not None and is_foreign(body, live):
                raise Taken(ref)
            if live is None:
                return self._patch(ref, body, APPLY, force=False)  # another client may create it at the same moment
            body = {**body, "metadata": {**mapping(body, "metadata"), "uid": uid(live)}}
        elif is_new and is_workload(ref):
            return self._patch(ref, body, APPLY, force=False)
        try:
            return self._patch(ref, body, APPLY)
        except Invalid as first:
            refusal = first
        for patch, media in amends(body, refusal):
            try:
                self._patch(ref, patch, media)
            except (NotFound, Invalid):
                break
            try:
                return self._patch(ref, body, APPLY)
            except Invalid as again:
                refusal = again
        raise refusal

    def check(self, body: Body) -> None:
        """A dry run of `apply`. If a webhook allows no dry run, nothing is raised."""
        ref = ref_of(body)
        try:
            self._write(patching(ref, body, APPLY, self._plural((ref.api_version, ref.kind)), dry_run=True))
        except Invalid as refusal:
            if _NO_DRY_RUN not in str(refusal):
                raise

    def delete(self, ref: ObjectRef, uid: str, resource_version: str) -> Body | None:
        """Delete exactly that object. Its dependents are deleted in the background, or before it if it would keep its
        pods. Raises Conflict, NotFound.

        Returns the object while it ends, if something must happen before it is gone; else None.
        """
        left = self._delete(ref, uid, resource_version, "Background")
        if keeps_its_pods(ref, left):
            left = self._delete(ref, uid, "", "Foreground")
        return left if _lingers(left) else None

    def _delete(self, ref: ObjectRef, uid: str, resource_version: str, policy: str) -> Body:
        wanted = {"uid": uid, "resourceVersion": resource_version}
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": policy,
            "preconditions": {name: value for name, value in wanted.items() if value},
        }
        kind = (ref.api_version, ref.kind)
        path, what = item(ref, self._plural(kind)), f"delete {ref}"
        left: Body = self._write(
            Request(verb="delete", kind=kind, method="DELETE", path=path, what=what, body=encoded(options))
        )
        return left

    def each(self, work: Callable[[T], R], items: Sequence[T]) -> Sequence[R]:
        """Do the work for all items, several at once. Returns the results in order; raises the first failure when all
        have ended.

        The calling thread works too, so the work may itself call this method: it goes on even if no other thread is
        free.
        """
        if len(items) < 2:
            return [work(one) for one in items]
        places = deque(range(len(items)))
        done: dict[int, R] = {}
        failed: dict[int, Exception] = {}

        def some() -> None:
            with suppress(IndexError):
                while True:
                    place = places.popleft()
                    try:
                        done[place] = work(items[place])
                    except Exception as error:  # noqa: BLE001 - raised below, when all have ended
                        failed[place] = error

        hands = [self._hands.submit(some) for _ in range(min(len(items), self._at_once) - 1)]
        some()
        for hand in hands:
            if not hand.cancel():
                hand.result()
        if failed:
            raise failed[min(failed)]
        return [done[place] for place in range(len(items))]

    def close(self) -> None:
        """End all watches and threads. One that is just connecting to a dead address is abandoned after a moment."""
        self.requests.close()
        with self._lock:
            streams = [*self._ended, *self._streams.values()]
            self._streams, self._ended = {}, []
        for stream in streams:
            stream.end()
        until_ns = time.monotonic_ns() + _LAST_WAIT_MS * _MS_NS
        for stream in streams:
            stream.join(max(0, until_ns - time.monotonic_ns()) // _MS_NS)
        self._hands.shutdown()

    def _seen(self, ref: ObjectRef) -> Body | None:
        """An object as it is, even one that a cycle does not read. It is read by a list, as gpuctl may list but not
        get."""
        kind = (ref.api_version, ref.kind)
        path = with_query(
            collection(kind, ref.namespace, self._plural(kind)), {"fieldSelector": f"metadata.name={ref.name}"}
        )
        listed = self.requests.send(Request(verb="list", kind=kind, path=path, what=f"look for {ref}"))
        return next(items(listed, "items"), None)

    def _patch(self, ref: ObjectRef, patch: Any, content_type: str, *, force: bool = True) -> Body:
        plural = self._plural((ref.api_version, ref.kind))
        stored: Body = self._write(patching(ref, patch, content_type, plural, force=force))
        return stored

    def _write(self, request: Request) -> Any:
        wait_ns = self._budget.take()
        if wait_ns:
            self.requests.pause(-(-wait_ns // _MS_NS))
        try:
            return self.requests.send(request, self._permit)
        except Passing as fault:
            if fault.of_webhook:
                raise WebhookAway("GPU7006", str(fault).partition(": ")[2]) from fault
            raise

    def _pages(self, kind: Kind, size: str) -> ObjectList:
        scope = self._scopes.get(kind, _EVERYTHING)
        base = collection(kind, scope.namespace, self._plural(kind))
        found, token, what = list[Body](), "", f"list {kind[1]}"
        read = partial(read_page, kind, keep=self._keep)
        while True:
            query = {**_selectors(scope), "limit": size, "continue": token}
            request = Request(verb="list", kind=kind, path=with_query(base, query), what=what)
            page: Page = self.requests.send(request, read=read)
            found += page.items
            token = page.token
            if not token:
                return ObjectList(items=tuple(found), resource_version=page.resource_version)

    def _plural(self, kind: Kind) -> str:
        """The plural of a kind in paths. For a kind that a Cluster declares, the server is asked once."""
        if kind not in KINDS and kind not in self._plurals:
            self._plurals[kind] = declared_plural(self.requests, kind)
        return KINDS[kind].plural if kind in KINDS else self._plurals[kind]

    def _stream(self, kind: Kind, version: str) -> Stream:
        """The stream that continues from that version; if there is none, the caller has just listed."""
        plural = self._plural(kind)
        with self._lock:
            stream = self._streams.get(kind)
            if stream is not None and stream.handed == version:
                return stream
            if stream is not None:
                stream.end()
                self._ended = [*(old for old in self._ended if old.alive), stream]
            scope = self._scopes.get(kind, _EVERYTHING)
            query = {**_selectors(scope), "resourceVersion": version}
            path = collection(kind, scope.namespace, plural)
            self._streams[kind] = stream = Stream(
                self.requests, kind=kind, path=path, query=query, keep=self._keep, on_news=self._on_news
            )
            return stream

    def _drop(self, kind: Kind, stream: Stream) -> None:
        with self._lock:
            if self._streams.get(kind) is stream:
                del self._streams[kind]
                self._ended.append(stream)

    def _remember(self, kind: Kind, fault: WorldFault) -> None:
        timings = self.requests.timings
        before = self._refusals.get(kind)
        times = before.times + 1 if before else 1
        absent = isinstance(fault, NotFound)
        wait_ms = timings.recheck_ms if absent else min(backoff_ms(1000, times), timings.longest_reconnect_ms)
        self._refusals[kind] = _Refusal(fault=fault, times=times, until_ns=time.monotonic_ns() + wait_ms * _MS_NS)

    def _lost(self, kind: Kind, fault: Gone, at_ns: int) -> WorldFault:
        """The fault to raise when a watch is lost: Gone, so that the caller lists; each time later if it is lost again
        soon. The wait counts from the time of the fault, so that kinds that are lost together are listed together."""
        now, timings = time.monotonic_ns(), self.requests.timings
        loss = self._losses.get(kind)
        if loss is None or loss.fault is not fault:
            again = loss is not None and at_ns - loss.at_ns < timings.stable_ms * _MS_NS
            times = loss.times + 1 if loss is not None and again else 1
            wait_ms = min(backoff_ms(500, times), timings.longest_reconnect_ms) if times > 1 else 0
            self._losses[kind] = loss = _Loss(fault=fault, times=times, at_ns=at_ns, until_ns=at_ns + wait_ms * _MS_NS)
        left_ms = (loss.until_ns - now) // _MS_NS
        if left_ms <= 0:
            return fault
        told = message("GPU7017", {"resource": self._plural(kind), "why": str(fault), "wait": left_ms})
        return ClusterUnavailable("GPU7017", told)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refusal:
    """A list that was refused permanently: it is not requested again before `until_ns`."""

    fault: WorldFault
    times: int
    until_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loss:
    """A watch that could not go on, and when its kind may be listed again."""

    fault: Gone
    times: int
    at_ns: int
    until_ns: int


def _selectors(scope: Scope) -> dict[str, str]:
    return {"labelSelector": scope.label_selector, "fieldSelector": scope.field_selector}


def _lingers(left: Body) -> bool:
    """Whether the answer to a delete is an object that still exists."""
    meta = mapping(left, "metadata")
    return is_deleting(left) and bool(
        meta.get("finalizers") or meta.get("deletionGracePeriodSeconds") or mapping(left, "spec").get("finalizers")
    )
