"""Each code has a folder: what causes it, and exactly what is told.

GPU1 to GPU4 come of files: `input.yaml`, compiled together with `cluster.yaml` beside this test; or a folder `input/`;
or `given.yaml`, one file by what the filesystem says of it, or a text many times, with `<n>` as its number. What is
told of anything else is made of `reason.yaml`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from gpuctl.adapters.files import read_tree
from gpuctl.compile import compile_tree
from gpuctl.diag.codes import CODES
from gpuctl.diag.text import text_form
from gpuctl.diag.wording import message
from gpuctl.model.source import SourceFault, SourceFile, SourceTree

HERE = Path(__file__).parent
TOLD = tuple(code for code in CODES if (HERE / code / "reason.yaml").exists() or code > "GPU5")
COMPILED = tuple(code for code in CODES if code not in TOLD)
Golden = Callable[[Path, str], None]


def _tree(folder: Path, monkeypatch: pytest.MonkeyPatch) -> SourceTree:
    if (folder / "input").is_dir():
        monkeypatch.chdir(folder)
        return read_tree("input")
    if (folder / "given.yaml").exists():
        given = yaml.safe_load((folder / "given.yaml").read_text())
        fault = SourceFault[given["fault"]] if "fault" in given else None
        texts = [given.get("text", "").replace("<n>", f"{n:04}") for n in range(given.get("times", 0))]
        content = given.get("begin", "") + "".join(texts) + given.get("end", "")
        name, file = given["file"], SourceFile(content=content.encode(), fault=fault)
    else:
        name, file = "input.yaml", SourceFile(content=(folder / "input.yaml").read_bytes())
    cluster = SourceFile(content=(HERE / "cluster.yaml").read_bytes())
    return SourceTree(cluster_dir=".", files={"cluster.yaml": cluster, name: file})


@pytest.mark.parametrize("code", COMPILED)
def test_files_give_exactly_these_diagnostics(code: str, golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = compile_tree(_tree(HERE / code, monkeypatch), most_jobs=1000)
    assert code in {diagnostic.code for diagnostic in compiled.diagnostics}
    golden(HERE / code / "expected.txt", text_form(compiled.diagnostics))


@pytest.mark.parametrize("code", TOLD)
def test_reasons_are_told_in_exactly_these_words(code: str, golden: Golden) -> None:
    given = yaml.safe_load((HERE / code / "reason.yaml").read_text())
    golden(HERE / code / "expected.txt", message(code, given["params"]) + "\n")


def test_no_folder_is_left_of_a_code_that_is_gone() -> None:
    folders = {path.name for path in HERE.glob("GPU*")}
    assert folders == set(CODES)


def test_the_shared_cluster_is_right() -> None:
    cluster = SourceFile(content=(HERE / "cluster.yaml").read_bytes())
    assert compile_tree(SourceTree(cluster_dir=".", files={"cluster.yaml": cluster})).diagnostics == ()
