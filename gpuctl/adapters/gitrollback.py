"""The commit of a rollback: a folder as it was at an earlier commit, on the branch that is checked out.

No hook or filter of the repository's settings is run. Other folders, and their staged changes, stay.
"""

from __future__ import annotations

import os
from pathlib import Path
from shlex import quote

from gpuctl.adapters.gitcommit import WorkTree, check_nothing_under_way
from gpuctl.adapters.gitmerge import quoted_path
from gpuctl.adapters.gitrepository import Repository
from gpuctl.adapters.gitrun import unavailable
from gpuctl.diag.wording import all_of
from gpuctl.model.comparison import Comparison
from gpuctl.model.ids import Revision

_SHOWN_FILES = 5


def commit_rollback(folder: Path, compared: Comparison) -> tuple[Revision, str]:
    """Commit the rollback that was compared. Returns the commit and its branch.

    Raises SourceUnavailable before anything is written: GPU6014 the folder has changes, GPU6015 base is not what is
    checked out, GPU6111 no author, GPU6112 no branch, GPU6113 a merge under way. Else GPU6116: Git failed; GPU6123: the
    commit can't be signed.
    """
    repository, path = Repository.containing(folder)
    here = WorkTree(repository.folder)
    check_nothing_under_way(repository)
    branch = here.branch()
    if not branch:
        raise unavailable("GPU6112", folder=str(repository.folder))
    parent = here.parent()
    if parent != compared.base_commit:
        raise unavailable("GPU6015", base=compared.base, branch=branch)
    people = here.person("AUTHOR"), here.person("COMMITTER")
    _check_clean(here, path)
    tree = repository.folder_at(compared.head_commit, path)
    put = b"M 040000 " + tree.encode() + b" " + quoted_path("" if path == "." else path)
    made = here.commit(branch, parent, people, _text(compared).encode(), [put])
    here.must("restore", f"--source={made}", "--staged", "--worktree", "--", path)
    return made, branch


def _check_clean(here: WorkTree, path: str) -> None:
    """Refuse if the folder has changes, staged or not, or uncommitted files: they would be lost."""
    asked = (("diff", "--name-only", "-z", "--no-ext-diff", "HEAD"), ("ls-files", "-z", "--others", "--full-name"))
    answers = [here.run(*args, "--", path) for args in asked]
    files = [os.fsdecode(name) for answer in answers for name in answer.output.split(b"\0") if name]
    if files or any(answer.code for answer in answers):
        more = [f"{len(files) - _SHOWN_FILES} more"] if len(files) > _SHOWN_FILES else []
        raise unavailable("GPU6014", folder=path, files=all_of([*files[:_SHOWN_FILES], *more] or ["Git can't read it"]))


def _text(compared: Comparison) -> str:
    short = compared.head_commit[:10]
    undone = "1 commit" if compared.base_moved_by == 1 else f"{compared.base_moved_by} commits"
    since = f"{compared.head_commit[:10]}..{compared.base_commit[:10]}"
    return (
        f"Roll back {compared.folder} to {short}\n\nIt is as it was at {compared.head_commit}. Undone: {undone},\n"
        f"git log --oneline {since} -- {quote(compared.folder)}\n"
    )
