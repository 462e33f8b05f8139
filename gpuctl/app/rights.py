"""The refusal of a request for lack of a right. It names the right, so that a command can say who gives it."""

from __future__ import annotations

from gpuctl.app.ports import Forbidden
from gpuctl.model.right import Right


class RightMissing(Forbidden):
    """403 by RBAC, GPU7015."""

    def __init__(self, message: str, right: Right) -> None:
        super().__init__("GPU7015", message)
        self.right = right
