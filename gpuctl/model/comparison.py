"""What a plan compares: two revisions, the commit where their histories part, and the merge of the two."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gpuctl.model.ids import NO_REVISION, ProjectName, Revision


class Merge(StrEnum):
    """Which two trees a plan compares.

    CLEAN: base, and the merge of base and head. CONFLICTS, or UNSUPPORTED by a git before 2.38: the merge base and
    head, because the merge is not known. DIRECT: base and head. ROLLBACK: base, and base with the cluster's folder as
    it was at head.
    """

    CLEAN = "clean"
    CONFLICTS = "conflicts"
    UNSUPPORTED = "unsupported"
    DIRECT = "direct"
    ROLLBACK = "rollback"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two revisions as they were named, with their commits.

    - `folder`: the cluster's folder in the repository.
    - `head_commit`: NO_REVISION for the working tree; so is `merge_base` with DIRECT.
    - `base_moved_by`: how many commits base has that head lacks; for a rollback, how many of those changed the folder.
    - `conflicts`: the files that both sides changed differently.
    - `left_out`: projects of base that do not compile, so that base's declarations of them are not known.
    """

    base: str
    head: str
    folder: str
    base_commit: Revision = NO_REVISION
    head_commit: Revision = NO_REVISION
    merge_base: Revision = NO_REVISION
    base_moved_by: int = 0
    merge: Merge = Merge.DIRECT
    conflicts: tuple[str, ...] = ()
    left_out: tuple[ProjectName, ...] = ()
