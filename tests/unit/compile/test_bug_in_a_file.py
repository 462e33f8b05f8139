"""A bug that one file meets is told of that file, and the others are read."""

from __future__ import annotations

from trees import CLUSTER, job, project, tree_of

from gpuctl.compile import compile_tree
from gpuctl.model.ids import ProjectName


class Cursed(bytes):
    """Text that raises what no text should."""

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        raise RecursionError(f"a bug in {encoding},\n{errors}")


def test_a_bug_that_a_file_meets_is_the_mistake_of_that_file() -> None:
    compiled = compile_tree(
        tree_of({
            "c.yaml": CLUSTER,
            "projects/team-a/p.yaml": project("team-a"),
            "projects/team-a/j.yaml": Cursed(job("train", "{image: x}").encode()),
            "projects/team-b/p.yaml": project("team-b"),
            "projects/team-b/j.yaml": "kind: Jobs\n",
        })
    )
    told, other = sorted(compiled.diagnostics, key=lambda found: found.span.file)
    assert (told.code, told.span.file, told.span.line) == ("GPU9001", "projects/team-a/j.yaml", 1)
    assert told.message.startswith(
        "internal error: RecursionError: a bug in utf-8, surrogateescape (test_bug_in_a_file.py:"
    )
    assert compiled.owners[told.span.file] == ProjectName("team-a")
    assert (other.code, other.span.file) == ("GPU2003", "projects/team-b/j.yaml")
    assert compiled.declarations is not None
    assert len(compiled.declarations.projects) == 2
