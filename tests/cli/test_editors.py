"""What an editor says of declarations: yaml-language-server with our schema, beside what the compiler says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import ROOT
from languageserver.build import NotThere, build
from languageserver.client import Editor

from gpuctl.compile import compile_tree
from gpuctl.compile.enum_texts import TEXTS
from gpuctl.compile.jsonschema import any_kind, schemas
from gpuctl.diag.diagnostic import has_errors
from gpuctl.model.source import SourceFile, SourceTree

HEAD = "apiVersion: gpuctl.dev/v1\n"
CLUSTER = HEAD + (
    "kind: Cluster\nmetadata:\n  name: c\nspec:\n  nodePools:\n  - name: dgx\n    nodes: [d1]\n    gpusPerNode: 8\n"
    "    gpuMemory: 32Gi\n    sharing: dra\n    placement: binpack\n"
)
PROJECT = HEAD + "kind: Project\nmetadata:\n  name: a\nspec:\n  quota: 4\n  owners: ['@x/y']\n"
JOB = HEAD + (
    "kind: Job\nmetadata:\n  name: j\n  project: a\nspec:\n  type: training\n  image: x:1\n  gpus: 1\n"
    "  env:\n    A: '1'\n  expose:\n  - port: 80\n    via: service\n"
)
POLICY = HEAD + (
    "kind: Policy\nmetadata:\n  name: p\nspec:\n  match:\n    kind: Job\n  severity: audit\n"
    "  cel: 'true'\n  message: m\n"
)
GOOD = [
    CLUSTER, PROJECT, JOB, POLICY,
    f"{PROJECT}---\n{JOB}",
    *(path.read_text() for path in sorted((ROOT / "policies").glob("*.yaml"))[:4]),
    *(path.read_text() for path in sorted((ROOT / "clusters/tr4858").rglob("*.yaml"))[:2]),
]  # fmt: skip
BAD = [
    (JOB, "gpus: 1", "gpuss: 1"),
    (JOB, "gpus: 1", "gpus: [1]"),
    (JOB, "type: training", "type: batch"),
    (JOB, "image: x:1", "image: 7"),
    (JOB, "  image: x:1\n", ""),
    (JOB, "port: 80", "port: 70000"),
    (JOB, "via: service", "via: nothing"),
    (JOB, "name: j", "name: J_1"),
    (JOB, "apiVersion: gpuctl.dev/v1", "apiVersion: gpuctl.dev/v2"),
    (JOB, "kind: Job", "kind: Jobs"),
    (JOB, "gpus: 1", "workers: 0"),
    (JOB, "gpus: 1", "suspend: perhaps"),
    (JOB, "gpus: 1", "retries: -1"),
    (JOB, "gpus: 1", "maxDuration: 5x"),
    (PROJECT, "quota: 4", "quota: four"),
    (PROJECT, "quota: 4", "quota: 4\n  quota: 5"),
    (PROJECT, "quota: 4", "adopt: 1"),
    (CLUSTER, "placement: binpack", "placement: tight"),
    (CLUSTER, "gpusPerNode: 8", "gpusPerNode: -8"),
    (POLICY, "severity: audit", "severity: fatal"),
    (POLICY, "  message: m\n", ""),
]
OURS_ALONE = [
    (JOB, "gpus: 1", "gpus: 1.5"),
    (JOB, "gpus: 1", "gpus: 99"),
    (PROJECT, "quota: 4", "department: nowhere"),
]
"""What no schema says: amounts that need arithmetic, and what depends on other declarations."""


@pytest.fixture(scope="module")
def editor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Editor]:
    try:
        server = build()
    except NotThere as why:
        pytest.skip(f"yaml-language-server: {why}")
    schema = tmp_path_factory.mktemp("schema") / "gpuctl.schema.json"
    schema.write_text(json.dumps(any_kind()))
    opened = Editor(server, schema)
    yield opened
    opened.close()


def changed(case: tuple[str, str, str]) -> str:
    text, before, after = case
    assert before in text
    return text.replace(before, after)


def ours(text: str) -> list[int]:
    """The lines of the compiler's errors in a file, beside what it needs."""
    files = {"x.yaml": text, **{f"{kind}.yaml": other for kind, other in (("cluster", CLUSTER), ("project", PROJECT))
                                if other.splitlines()[1] not in text}}  # fmt: skip
    tree = SourceTree(cluster_dir=".", files={path: SourceFile(content=each.encode()) for path, each in files.items()})
    return sorted(found.span.line for found in compile_tree(tree).diagnostics
                  if found.span.file == "x.yaml" and has_errors([found]))  # fmt: skip


@pytest.mark.parametrize("text", GOOD, ids=range(len(GOOD)))
def test_an_editor_has_nothing_to_say_of_a_right_file(editor: Editor, text: str) -> None:
    assert editor.complaints(text) == []


@pytest.mark.parametrize("case", BAD, ids=[case[2].strip() or f"no {case[1].strip()}" for case in BAD])
def test_an_editor_and_the_compiler_mark_the_same_line(editor: Editor, case: tuple[str, str, str]) -> None:
    text = changed(case)
    told = editor.complaints(text)
    assert told
    assert {line for line, _ in told} & set(ours(text)), (told, ours(text))


@pytest.mark.parametrize("case", OURS_ALONE, ids=[case[2] for case in OURS_ALONE])
def test_what_only_the_compiler_can_say(editor: Editor, case: tuple[str, str, str]) -> None:
    text = changed(case)
    assert (editor.complaints(text), len(ours(text))) == ([], 1)


@pytest.mark.parametrize(
    ("text", "value"), [(CLUSTER, "dra"), (CLUSTER, "binpack"), (JOB, "training"), (POLICY, "audit"), (JOB, "service")]
)
def test_values_have_texts_of_their_own(editor: Editor, text: str, value: str) -> None:
    uri = editor.open(text)
    line = next(at for at, each in enumerate(text.splitlines()) if each.endswith(f": {value}"))
    column = text.splitlines()[line].index(value)
    texts = next(values for values in TEXTS.values() if value in values)
    shown = editor.at("textDocument/hover", uri, line, column + 1)["contents"]["value"]
    plain = shown.replace("\\", "").replace("&nbsp;", " ")
    assert all(each in plain for each in texts.values()), plain
    uri = editor.open(text.replace(f": {value}", ": "))
    offered = editor.at("textDocument/completion", uri, line, column)["items"]
    assert {each["label"]: each["documentation"] for each in offered if each["label"] in texts} == texts


def enumerations(node: object) -> Iterator[dict[str, list[str]]]:
    if isinstance(node, dict):
        if isinstance(node.get("enum"), list):
            yield node
        for below in node.values():
            yield from enumerations(below)
    elif isinstance(node, list):
        for below in node:
            yield from enumerations(below)


def test_every_value_has_a_text_and_no_text_is_left_over() -> None:
    found = [*enumerations(list(schemas().values())), *enumerations(any_kind()["properties"])]
    assert {tuple(each["enum"]) for each in found} == set(TEXTS)
    for each in found:
        assert each["enumDescriptions"] == list(TEXTS[tuple(each["enum"])].values())


def test_the_lock_names_every_package_by_its_content() -> None:
    lock = json.loads(Path(ROOT / "tests/languageserver/package-lock.json").read_text())["packages"]
    assert len(lock) > 10
    for path, package in lock.items():
        assert not path or package["integrity"].startswith("sha512-")
        assert "resolved" not in package
