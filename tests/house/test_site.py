"""docs/ builds as a site, strictly, and its pages load nothing from other hosts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gpuctl import api

ROOT = Path(__file__).resolve().parents[2]
NOWHERE = "http://127.0.0.1:9"
LOADED = re.compile(
    r"""<(?:script|img|iframe|source|link(?=[^>]*rel="?(?:stylesheet|icon|preload)))[^>]*="?(https?:[^">\s]+)"""
)
"""What a browser fetches of a page by itself."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. Whatever would ask another host for something meets a closed port."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), NOWHERE)
    environment = {**os.environ, **nowhere, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_page_is_on_the_site(site: Path) -> None:
    pages = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    missing = [str(page) for page in pages if not (site / page.with_suffix(".html")).exists()]
    assert missing == []
    assert {"SECURITY.html", "CONTRIBUTING.html", "CHANGELOG.html", "index.html"} <= {p.name for p in site.iterdir()}


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert pages
    assert {page.name: LOADED.findall(page.read_text()) for page in pages if LOADED.search(page.read_text())} == {}
    assert not [page.name for page in pages if 'class="mermaid"' in page.read_text()]  # its script is elsewhere
    styles = "".join(path.read_text() for path in site.rglob("*.css"))
    assert not re.search(r"url\([\"']?https?:", styles)


@pytest.mark.parametrize("page", ["from-kai.md", "from-kueue.md"])
def test_declarations_on_the_pages_for_newcomers_compile(page: str) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / page).read_text(), flags=re.DOTALL)
    ours = "\n---\n".join(block for block in blocks if "apiVersion: gpuctl.dev" in block)
    assert ours
    pool = {"name": "h100", "nodes": ["n1", "n2"], "gpusPerNode": 8}
    cluster = {"apiVersion": "gpuctl.dev/v1", "kind": "Cluster", "metadata": {"name": "prod"}}
    found = api.compile({
        "cluster.yaml": yaml.safe_dump({**cluster, "spec": {"nodePools": [pool]}}),
        "theirs.yaml": ours,
    })
    assert found.diagnostics == ()
