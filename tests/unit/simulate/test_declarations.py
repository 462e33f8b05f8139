"""Declarations that change: what is replaced or removed is gone, and all else stays where it was."""

from __future__ import annotations

from gpuctl.compile.reading import parse_documents
from gpuctl.diag.diagnostic import Diagnostic
from gpuctl.diag.span import SourceSpan
from gpuctl.model.ids import JobId
from gpuctl.model.source import SourceFile, SourceTree
from gpuctl.simulate.declarations import Declarations, declarations, identity_of
from gpuctl.simulate.scenario import InlineDocument

FILE = """\
# three documents
kind: Project
metadata: {name: a}
---
kind: Job
metadata: {name: one, project: a}
---
kind: Job
metadata: {name: two, project: a}
"""


def made() -> Declarations:
    files = {"c/jobs.yaml": SourceFile(content=FILE.encode()), "c/one.yaml": SourceFile(content=b"kind: Cluster\n")}
    return declarations(SourceTree(cluster_dir="c", files=files))


def places(changed: Declarations) -> dict[tuple[str, str, str], tuple[str, int]]:
    return {
        identity: (path, document.span(("kind",)).line)
        for path, file in changed.tree.files.items()
        for document in parse_documents(path, file.content)[0]
        if (identity := identity_of(document))
    }


def test_a_removed_document_leaves_the_others_where_they_are() -> None:
    changed, missing = made().without_jobs([JobId.parse("a/one"), JobId.parse("a/three")])
    assert missing == (JobId.parse("a/three"),)
    assert places(changed) == {("Project", "", "a"): ("c/jobs.yaml", 2), ("Job", "a", "two"): ("c/jobs.yaml", 8)}


def test_a_file_without_documents_is_gone() -> None:
    files = {"j.yaml": SourceFile(content=b"kind: Job\nmetadata: {name: one, project: a}\n")}
    changed, _ = declarations(SourceTree(cluster_dir=".", files=files)).without_jobs([JobId.parse("a/one")])
    assert changed.tree.files == {}


def test_a_document_takes_the_place_of_its_namesake() -> None:
    text = "\n\n    {kind: Job, metadata: {name: two, project: a}, spec: {gpus: 2}}"
    document = InlineDocument(kind="Job", project="a", name="two", file=SourceFile(content=text.encode()))
    changed = made().with_documents([document], "s.yaml")
    assert places(changed)["Job", "a", "two"] == ("c/inline-1.yaml", 3)
    again = changed.with_documents([document], "s.yaml")
    assert places(again)["Job", "a", "two"] == ("c/inline-2.yaml", 3)
    assert "c/inline-1.yaml" not in again.tree.files


def test_diagnostics_name_the_scenario() -> None:
    document = InlineDocument(kind="", project="", name="", file=SourceFile(content=b"{}"))
    changed = made().with_documents([document, document], "s.yaml")
    found = Diagnostic(
        code="GPU2001",
        message="",
        span=SourceSpan(file="c/inline-2.yaml", line=3),
        related=(("here", SourceSpan(file="c/inline-1.yaml")), ("there", SourceSpan(file="c/jobs.yaml"))),
    )
    told = changed.own_names(found)
    assert (told.span.file, told.span.line) == ("s.yaml", 3)
    assert [span.file for _, span in told.related] == ["s.yaml", "c/jobs.yaml"]
