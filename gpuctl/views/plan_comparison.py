"""What a plan compares, in words and as data: the revisions, how base has moved, and whether the merge is clean."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote
from typing import Any

from gpuctl.diag.wording import all_of
from gpuctl.model.comparison import Comparison, Merge
from gpuctl.model.ids import Revision
from gpuctl.model.source import WORKING_TREE

SHOWN_FILES = 5
"""The most conflicting files that are named; the JSON form has all."""
_SHORT = 10


def nothing(compared: Comparison) -> str:
    """The sentence that the change declares nothing new."""
    head = f"the {compared.head}" if compared.head == WORKING_TREE else compared.head
    merged = compared.base_moved_by and compared.merge is Merge.CLEAN
    return f"{head}{f', merged into {compared.base},' if merged else ''} declares the same as {compared.base}."


def remarks(compared: Comparison) -> Iterator[str]:
    """What a reader of the plan has to know about its two sides; empty if base has not moved."""
    base, parted = compared.base, compared.merge_base[:_SHORT]
    moved = f"{base} has gained {_commits(compared.base_moved_by)} since {parted}, where the two part"
    match compared.merge:
        case Merge.CLEAN if compared.base_moved_by and compared.merge_base == compared.head_commit:
            yield f"{compared.head} is merged into {base} already."
        case Merge.CLEAN if compared.base_moved_by:
            yield f"{moved}. The merge is clean; the plan compares {base} with the merge."
        case Merge.CONFLICTS:
            named = [*compared.conflicts[:SHOWN_FILES]]
            more = len(compared.conflicts) - len(named)
            files = all_of([*named, f"{more} more"] if more else named) or "files that Git does not name"
            yield f"The merge is not clean. Conflicts: {files}."
            yield f"{moved}. The plan compares {parted} with {compared.head}, not with what a merge will give."
        case Merge.UNSUPPORTED:
            yield (
                f"{moved}. The plan compares {parted} with {compared.head}: this git can't merge without a working "
                "tree, git 2.38 or newer can."
            )
        case Merge.ROLLBACK:
            undone = _commits(compared.base_moved_by)
            yield f"A rollback of {compared.folder} to {parted}; {undone} since then changed it. Other folders stay."
            restored = f"--source={parted} --staged --worktree -- {quote(compared.folder)}"
            yield f"The option --commit does it; by hand: git restore {restored}"
        case _:
            pass
    if compared.left_out:
        names = [*compared.left_out[:SHOWN_FILES]]
        more = len(compared.left_out) - len(names)
        yield (
            f"{base} does not compile: {all_of([*names, f'{more} more'] if more else names)} of it "
            f"{'is' if len(compared.left_out) == 1 else 'are'} left out, so the plan shows all that {compared.head} "
            "declares there as new."
        )


def commits(compared: Comparison) -> str:
    """`main 0831e9295f, feature 4be3a1c2d0, merge base 0831e9295f`."""
    named = ((compared.base, compared.base_commit), (compared.head, compared.head_commit))
    known = [name if name == commit[:_SHORT] else f"{name} {commit[:_SHORT]}".rstrip() for name, commit in named]
    if compared.merge in {Merge.DIRECT, Merge.ROLLBACK}:
        return ", ".join(known)
    return ", ".join([*known, f"merge base {compared.merge_base[:_SHORT]}"])


def document(compared: Comparison) -> dict[str, Any]:
    """The JSON form."""
    return {
        "state": compared.merge.value,
        "folder": compared.folder,
        "baseCommit": _commit(compared.base_commit),
        "headCommit": _commit(compared.head_commit),
        "mergeBase": _commit(compared.merge_base),
        "baseMovedBy": compared.base_moved_by,
        "conflicts": list(compared.conflicts),
        "leftOut": list(compared.left_out),
    }


def _commit(revision: Revision) -> str | None:
    return revision or None


def _commits(count: int) -> str:
    return "1 commit" if count == 1 else f"{count} commits"
