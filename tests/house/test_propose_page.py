"""The commands of docs/propose.md are run as they stand there, and its pictures are of the comment as it is."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner
from comment_picture import WIDTHS, picture, source_note

from gpuctl.adapters.git import WorkingCopy
from gpuctl.cli.main import gpuctl

ROOT = Path(__file__).resolve().parents[2]
CHANGED = "clusters/tr4858/projects/team-a/project.yaml"


def test_its_commands_do_what_it_says(tmp_path: Path) -> None:
    copy = WorkingCopy.create(tmp_path)
    for path in sorted((ROOT / "clusters" / "tr4858").rglob("*.yaml")):
        copy.write(path.relative_to(ROOT).as_posix(), path.read_bytes())
    copy.commit("start", 1_700_000_000_000)
    text = (ROOT / CHANGED).read_text()
    assert "quota: 4" in text
    copy.write(CHANGED, text.replace("quota: 4", "quota: 3").encode())
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "docs" / "propose.md").read_text(), flags=re.DOTALL)
    commands = [shlex.split(line)[1:] for block in blocks for line in block.splitlines()]
    ends = []
    for words in commands:
        placed = [str(tmp_path / word) if word.startswith("clusters/") else word for word in words]
        result = CliRunner().invoke(gpuctl, placed, prog_name="gpuctl")
        ends.append((words[0], result.exit_code))
        if words[0] == "comment":
            assert "**gpuctl plan of tr4858**" in result.output
    assert ends == [("validate", 0), ("plan", 2), ("comment", 0)]


@pytest.mark.parametrize("host", WIDTHS)
def test_its_pictures_are_of_the_comment_as_it_is(host: str) -> None:
    assert f"(pictures/{picture(host).name})" in (ROOT / "docs" / "propose.md").read_text()
    image = picture(host).read_bytes()
    assert len(image) < 150_000
    assert source_note(host) in image, "draw it anew: .venv/bin/python tests/house/comment_picture.py"
