"""The settings of receivers as files of one folder, such as a mounted Secret. They are read anew for each message.

Security: so an address or a token is in no argument, no environment and no log. A changed Secret needs no restart.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gpuctl.adapters.files import secret_in


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder with a file for each setting: slack-url, webhook-url, webhook-key, github-token, github-url, ..."""

    path: Path

    def __call__(self, name: str) -> str:
        """The text of a file, without the space around it; "" if the file is not there or can't be read."""
        return secret_in(self.path / name)
