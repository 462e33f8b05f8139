"""The allowed forms of an installation's options, as patterns that Python and the Helm chart's schema both check.

The check comes early: the API server, or the controller in its pod, would refuse other values only later.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_HOST = r"([A-Za-z0-9][A-Za-z0-9_.-]*|\[[0-9a-fA-F:]+\])"


@dataclass(frozen=True, slots=True)
class Form:
    """A text has the form if it matches `pattern` and not `never`; `words` follow the option's name in messages."""

    pattern: str
    words: str
    never: str = ""

    def fits(self, text: str) -> bool:
        """Whether a text has the form."""
        return bool(re.search(self.pattern, text)) and not (self.never and re.search(self.never, text))


HTTP_URL = Form(rf"^https?://{_HOST}(:[0-9]{{1,5}})?(/[^\s?#]*)?$", "is not an http or https URL")

FORMS: Mapping[str, Form] = {
    "repo": Form(
        rf"^((https|ssh)://([A-Za-z0-9_.-]+@)?{_HOST}(:[0-9]{{1,5}})?/\S+|[A-Za-z0-9_.]+@{_HOST}:[^-:\s]\S*)$",
        "is not an https or ssh URL",
    ),
    "path": Form(r"^[^/\s-]\S*$", "is not a folder inside a repository", never=r"(^|/)\.\.(/|$)"),
    "namespace_prefix": Form(r"^([a-z0-9][a-z0-9-]{0,30})?$", "must be the beginning of a DNS label"),
    "roles": Form(r"^[A-Za-z0-9][A-Za-z0-9_.:-]*$", "must name a ClusterRole"),
    "monitoring_namespace": Form(r"^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)?$", "must name a namespace"),
    "proxy_namespace": Form(r"^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)?$", "must name a namespace"),
    "push_from": Form(r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", "must name a namespace"),
    "controllers": Form(r"^[A-Za-z0-9][A-Za-z0-9_.:@/-]*$", "must name a user"),
    "utilisation_prometheus": HTTP_URL,
    "utilisation_exporter": HTTP_URL,
    "image": Form(r"^[a-z0-9][A-Za-z0-9_.:/@-]*$", "is not an image"),
}
"""The form of each field of `Installation`. For a list: of each of its texts."""


def misfits(options: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """The options that do not have their form: field, value, and the words of the message."""
    for name, form in FORMS.items():
        given = options.get(name, ())
        for text in [given] if isinstance(given, str) else given:
            if "\n" in text or not form.fits(text):
                yield name, text, form.words
