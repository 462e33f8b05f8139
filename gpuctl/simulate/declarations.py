"""Change the declarations of a scenario: a tree of files in which documents are replaced and removed.

A removed document is blanked where it stood, so that every other one keeps its line and column.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from gpuctl.compile.document import Document
from gpuctl.compile.reading import parse_documents
from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.model.ids import JobId
from gpuctl.model.source import SourceFile, SourceTree
from gpuctl.simulate.scenario import InlineDocument

Identity: TypeAlias = tuple[str, str, str]
"""(kind, project, name); project is "" for kinds that have no project."""

_NOT_BREAK = re.compile(r"[^\r\n]")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where a document is: its file, and its range of characters."""

    path: str
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Declarations:
    """A tree, the place of each document in it, and the name of each inline file in messages."""

    tree: SourceTree
    places: Mapping[Identity, _Place]
    inline: Mapping[str, str]

    def with_documents(self, documents: Iterable[InlineDocument], file: str) -> Declarations:
        """Add documents; each replaces the one with its identity. `file`: the scenario that contains them."""
        changed = self
        for document in documents:
            identity = (document.kind, document.project, document.name)
            changed = changed._with_file(identity, document.file, file)
        return changed

    def without_jobs(self, jobs: Iterable[JobId]) -> tuple[Declarations, tuple[JobId, ...]]:
        """Remove the jobs' documents. Also returns the jobs that were not declared."""
        changed, missing = self, []
        for job in jobs:
            identity = ("Job", job.project, job.name)
            if identity in changed.places:
                changed = changed._without(identity)
            else:
                missing.append(job)
        return changed, tuple(missing)

    def own_names(self, diagnostic: Diagnostic) -> Diagnostic:
        """The diagnostic with the scenario's file in place of an inline document's."""
        file = self.inline.get(diagnostic.span.file)
        related = tuple(
            (text, replace(span, file=self.inline.get(span.file, span.file))) for text, span in diagnostic.related
        )
        span = replace(diagnostic.span, file=file) if file else diagnostic.span
        return replace(diagnostic, span=span, related=related)

    def _with_file(self, identity: Identity, content: SourceFile, file: str) -> Declarations:
        changed = self._without(identity) if identity in self.places else self
        path = _beside(changed.tree.cluster_dir, f"inline-{len(changed.inline) + 1}.yaml")
        identity = identity if identity[0] else ("", "", path)
        place = _Place(path=path, start=0, end=len(content.content.decode("utf-8", "replace")))
        return Declarations(
            tree=replace(changed.tree, files={**changed.tree.files, path: content}),
            places={**changed.places, identity: place},
            inline={**changed.inline, path: file},
        )

    def _without(self, identity: Identity) -> Declarations:
        place = self.places[identity]
        files = dict(self.tree.files)
        text = files[place.path].content.decode("utf-8", "replace").removeprefix("\ufeff")
        text = text[: place.start] + _NOT_BREAK.sub(" ", text[place.start : place.end]) + text[place.end :]
        if text.strip():
            files[place.path] = replace(files[place.path], content=text.encode())
        else:
            del files[place.path]
        places = {key: value for key, value in self.places.items() if key != identity}
        return replace(self, tree=replace(self.tree, files=files), places=places)


def declarations(tree: SourceTree) -> Declarations:
    """Read the declarations of a tree. Cost: reads each file once. The compiler reports what can't be read."""
    places: dict[Identity, _Place] = {}
    for path, file in sorted(tree.files.items()):
        for document in parse_documents(path, file.content)[0]:
            identity = identity_of(document)
            if identity is not None:
                places.setdefault(identity, _Place(path=path, start=document.start, end=document.end))
    return Declarations(tree=tree, places=places, inline={})


def identity_of(document: Document) -> Identity | None:
    """Kind, project and name of a document, if it has them."""
    return identity_of_data(document.data)


def identity_of_data(data: object) -> Identity | None:
    """Kind, project and name of a document's data, if it has them."""
    metadata = data.get("metadata") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(metadata, dict):
        return None
    kind, name, project = data.get("kind"), metadata.get("name"), metadata.get("project", "")
    if not isinstance(kind, str) or not isinstance(name, str) or not isinstance(project, str):
        return None
    return kind, project, name


def _beside(folder: str, name: str) -> str:
    return name if folder in {"", "."} else f"{folder}/{name}"
