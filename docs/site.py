"""What `mkdocs build` needs to know besides the pages: those that are kept elsewhere, and links that leave docs/.

The pages are written to be read in the repository. On the site, a link to a page leads to that page; a link to another
file of the repository is shown as its path, for the site holds no sources.
"""

from __future__ import annotations

import re
from os.path import relpath
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
ELSEWHERE = {
    "README.md": "README.md",
    "SECURITY.md": "SECURITY.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CODE_OF_CONDUCT.md": "CODE_OF_CONDUCT.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "gpuctl/engine/README.md": "internals/engine.md",
}
"""Pages outside of docs/, by their path in the repository: where they are on the site."""

_LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?:|mailto:|#)([^)\s#]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are kept outside of docs/."""
    for source, place in ELSEWHERE.items():
        files.append(File.generated(config, place, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - mkdocs'
    """Make the links of a page those of the site."""
    place = page.file.src_uri
    source = next((kept for kept, shown in ELSEWHERE.items() if shown == place), f"docs/{place}")

    def led(match: re.Match[str]) -> str:
        words, target, anchor = match[1], match[2], match[3] or ""
        there = relpath(PurePosixPath(source).parent / target, ".") if target else source
        if there in ELSEWHERE or there.startswith("docs/"):
            shown = ELSEWHERE.get(there, there.removeprefix("docs/"))
            return f"[{words}]({relpath(shown, PurePosixPath(place).parent)}{anchor})"
        return words

    return _LINK.sub(led, markdown)
