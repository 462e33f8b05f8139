"""Finds the commit that removed a job's declaration, in the history of the repository in which a command is run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from gpuctl.adapters.gitrepository import Repository
from gpuctl.adapters.gitrun import Git, Limits
from gpuctl.compile.reading import parse_documents
from gpuctl.model.ids import JobId, ProjectName, Revision

_LIMITS = Limits(time_ms=2_000)
_MOST_COMMITS = 20
_MOST_FILES = 200
_FILE = "100"
"""The beginning of the modes of regular files."""
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_FORM = "%H%x1f%an%x1f%as%x1f%s%x1e"
_PLAIN = ("--no-textconv", "--no-ext-diff", "--no-renames")
"""Diffs by Git's own means, whatever the repository's settings and attributes name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """A commit that removed a job's declaration; `date` is the author's day."""

    job: JobId
    revision: Revision
    author: str
    date: str
    subject: str


def removal_of(folder: Path, job: JobId | str) -> Removal | None:
    """The newest commit of the checked-out branch that removed the job; None if none did, or it is not known.

    A change that a merge brought counts as the merge's. Only the newest commits whose lines have the name are examined.
    Raises SourceUnavailable: no repository, or a history that takes longer than 2 s to search.
    """
    project, name = (job.project, job.name) if isinstance(job, JobId) else ("", job)
    if not _NAME.fullmatch(name):
        return None
    repository, _ = Repository.containing(folder)
    history = _History(repository.folder)
    for revision, author, date, subject in history.mentioning(name):
        before, after = history.declared(revision, name)
        if any(not project or each.project == project for each in after):
            return None
        gone = sorted(each for each in before - after if not project or each.project == project)
        if gone:
            return Removal(job=gone[0], revision=revision, author=author, date=date, subject=subject)
    return None


class _History:
    def __init__(self, top: Path) -> None:
        self._git = Git(limits=_LIMITS)
        self._at = ("-C", str(top.absolute()))
        self._repository = Repository(top, self._git)

    def mentioning(self, name: str) -> Iterator[tuple[Revision, str, str, str]]:
        """The newest commits that change a line with the name, each with author, day and subject."""
        pattern = f"(^|[^a-z0-9-]){name}([^a-z0-9-]|$)"
        answer = self._git.run(
            *self._at, "log", "--first-parent", "-m", f"--max-count={_MOST_COMMITS}", "--no-patch", *_PLAIN,
            f"--format={_FORM}", f"-G{pattern}", "HEAD", "--",
        )  # fmt: skip
        for record in answer.output.decode("utf-8", "replace").split("\x1e"):
            revision, *rest = record.strip("\n").split("\x1f")
            if len(rest) == 3:
                yield Revision(revision), rest[0], rest[1], rest[2]

    def declared(self, revision: Revision, name: str) -> tuple[set[JobId], set[JobId]]:
        """The jobs with this name in the files that a commit changes, before and after it. Cost: three commands."""
        answer = self._git.run(
            *self._at, "diff", "--raw", "-z", "--no-abbrev", *_PLAIN, f"{revision}^1", revision, "--"
        )
        changed = list(islice(_changed(answer.output), _MOST_FILES))
        contents = self._repository.contents({blob for pair in changed for blob in pair if blob})
        before, after = set[JobId](), set[JobId]()
        for was, became in changed:
            before |= _jobs(contents.get(was) or b"", name)
            after |= _jobs(contents.get(became) or b"", name)
        return before, after


def _changed(listing: bytes) -> Iterator[tuple[str, str]]:
    """The contents of each YAML file in `diff --raw -z`, before and after; "" if there was no regular file."""
    parts = listing.split(b"\0")
    for facts, path in zip(parts[::2], parts[1::2], strict=False):
        was_mode, mode, was, became, *_ = facts.decode().removeprefix(":").split(" ")
        if path.endswith((b".yaml", b".yml")):
            yield was if was_mode.startswith(_FILE) else "", became if mode.startswith(_FILE) else ""


def _jobs(content: bytes, name: str) -> set[JobId]:
    if name.encode() not in content:
        return set()
    found = set[JobId]()
    for document in parse_documents("", content)[0]:
        data = document.data
        metadata = data.get("metadata") if isinstance(data, dict) else None
        if isinstance(metadata, dict) and data.get("kind") == "Job" and metadata.get("name") == name:
            project = metadata.get("project")
            if isinstance(project, str) and _NAME.fullmatch(project):
                found.add(JobId(ProjectName(project), name))
    return found
