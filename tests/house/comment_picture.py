"""Draws the comment of docs/propose.md: `.venv/bin/python tests/house/comment_picture.py`, which needs Chromium.

A golden comment in the width of a pull request on GitHub and of a merge request on GitLab, each in a file of
docs/pictures. The styles are written here after those of the two services, of which neither is asked for anything.
"""

from __future__ import annotations

import shutil
import struct
from hashlib import sha256
from pathlib import Path
from zlib import crc32

from markdown_it import MarkdownIt
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[2]
COMMENT = ROOT / "tests" / "golden" / "plan" / "report_4_9.md"
WIDTHS = {"github": 780, "gitlab": 960}
"""About how many pixels a line of a comment has there, in a wide window."""
STYLE = """
body { margin: 0; background: #fff; color: #1f2328; font: 14px/1.5 "Liberation Sans", sans-serif; }
article { border: 1px solid #d1d9e0; padding: 16px 16px 0; display: inline-block; }
p, table, details, blockquote { margin: 0 0 16px; }
table { border-collapse: collapse; }
th, td { border: 1px solid #d1d9e0; padding: 6px 13px; }
tr:nth-child(even) td { background: #f6f8fa; }
code { background: #eff1f3; border-radius: 6px; padding: 0.2em 0.4em; font: 12px "Liberation Mono", monospace; }
blockquote { border-left: 4px solid #d1d9e0; color: #59636e; padding: 0 1em; }
"""


def picture(host: str) -> Path:
    """Where the picture of a code host is."""
    return ROOT / "docs" / "pictures" / f"comment-{host}.png"


def drawn(host: str) -> str:
    """The page of which the picture is."""
    body = MarkdownIt("gfm-like", {"linkify": False}).render(COMMENT.read_text(encoding="utf-8"))
    return f'<!doctype html><style>{STYLE}</style><article style="width: {WIDTHS[host]}px">{body}</article>'


def source_note(host: str) -> bytes:
    """A text chunk of the PNG that says of which page it is a picture: a test sees by it when that has changed."""
    note = b"tEXtSource\0" + sha256(drawn(host).encode()).hexdigest().encode()
    return struct.pack(">I", len(note) - 4) + note + struct.pack(">I", crc32(note))


def main() -> None:
    """Write the pictures anew."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-lcd-text"])
        for host in WIDTHS:
            page = browser.new_page(viewport={"width": 1024, "height": 768})
            page.set_content(drawn(host))
            shot = page.locator("article").screenshot()
            end = len(shot) - 12  # the last chunk is empty: it ends the file
            picture(host).parent.mkdir(exist_ok=True)
            picture(host).write_bytes(shot[:end] + source_note(host) + shot[end:])
        browser.close()


if __name__ == "__main__":
    main()
