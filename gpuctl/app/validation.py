"""The result of `validate`, and its bytes, which are stored for the next validation of the same files.

The bytes are JSON: reading them runs no code. The cache must make sure that gpuctl wrote them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from gpuctl.diag.diagnostic import Diagnostic, Severity, has_errors, sorted_diagnostics
from gpuctl.diag.span import SourceSpan
from gpuctl.model.source import SourceTree


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """The diagnostics of all trees, each mistake once, and how many jobs the valid trees declare.

    `known`: mistakes that are not among the diagnostics because the change did not make them. `unchanged`: clusters
    that were not compiled because the change touches none of their files.
    """

    diagnostics: tuple[Diagnostic, ...] = ()
    clusters: int = 1
    jobs: int = 0
    known: int = 0
    unchanged: int = 0

    @property
    def valid(self) -> bool:
        """Whether there is no error. Warnings are no errors."""
        return not has_errors(self.diagnostics)


class Verdicts(Protocol):
    """A cache of validation results. It returns only bytes that the same version of gpuctl put under a key.

    It may forget anything at any time, and never raises.
    """

    def get(self, key: bytes) -> bytes | None:
        """The bytes under the key, if they are still there and whole."""
        ...

    def put(self, key: bytes, body: bytes) -> None:
        """Keep these bytes, if there is room."""
        ...


def all_of_them(parts: Iterable[Validation]) -> Validation:
    """The combined result for all clusters."""
    found = list(parts)
    return Validation(
        diagnostics=sorted_diagnostics(d for one in found for d in one.diagnostics),
        clusters=sum(one.clusters for one in found),
        jobs=sum(one.jobs for one in found),
        known=sum(one.known for one in found),
        unchanged=sum(one.unchanged for one in found),
    )


def key_of(*trees: SourceTree | None, most_jobs: int | None = None) -> bytes:
    """A digest of 32 bytes: of every byte of the trees, their folders and commits, and the memory limit in jobs.

    Cost: linear in the bytes.
    """
    digest = hashlib.sha256(f"{most_jobs} ".encode())
    for tree in trees:
        files = () if tree is None else sorted(tree.files.items())
        where = "" if tree is None else f"{tree.cluster_dir}\0{tree.revision}"
        digest.update(f"{tree is not None} {len(files)} {len(where)} {where}".encode(*_ENCODING))
        for path, file in files:
            fault = "" if file.fault is None else file.fault.name
            head = f"{len(path)} {path}\0{file.revision}\0{fault}\0{len(file.content)} "
            digest.update(head.encode(*_ENCODING) + file.content)
    return digest.digest()


_ENCODING = ("utf-8", "surrogateescape")


def written(validation: Validation) -> bytes:
    """A validation as JSON."""
    facts: dict[str, Any] = {name: getattr(validation, name) for name in _COUNTS}
    facts["diagnostics"] = [_facts(one) for one in validation.diagnostics]
    return json.dumps(facts, separators=(",", ":")).encode()


def read(body: bytes) -> Validation | None:
    """The validation in these bytes; None if they hold none."""
    try:
        facts = json.loads(body)
        counts = {name: int(facts[name]) for name in _COUNTS}
        return Validation(diagnostics=tuple(_diagnostic(one) for one in facts["diagnostics"]), **counts)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


_COUNTS = ("clusters", "jobs", "known", "unchanged")
_TEXTS = ("code", "message", "help", "source_line", "policy")


def _facts(found: Diagnostic) -> dict[str, Any]:
    facts: dict[str, Any] = {name: getattr(found, name) for name in _TEXTS}
    related = [[text, _place(span)] for text, span in found.related]
    return facts | {"severity": found.severity.value, "span": _place(found.span), "related": related}


def _place(span: SourceSpan) -> list[str | int]:
    return [span.file, span.line, span.column, span.end_column, span.revision]


def _diagnostic(facts: Any) -> Diagnostic:
    return Diagnostic(
        span=_span(*facts["span"]),
        severity=Severity(facts["severity"]),
        related=tuple((str(text), _span(*place)) for text, place in facts["related"]),
        **{name: facts[name] for name in _TEXTS},
    )


def _span(file: str, line: int, column: int, end_column: int, revision: str) -> SourceSpan:
    return SourceSpan(file=file, line=int(line), column=int(column), end_column=int(end_column), revision=revision)
