"""The files that `gpuctl install` writes: a Kustomize base, and a Helm chart with its options as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from gpuctl import __version__
from gpuctl.cli.failures import Failure
from gpuctl.cli.output import counted
from gpuctl.cli.terminal import say
from gpuctl.install.chart import Choice, chart
from gpuctl.install.forms import FORMS
from gpuctl.install.installation import Duties
from gpuctl.install.kustomize import base
from gpuctl.model.state import Body

FIELDS = {"cluster_prefix": "namespace_prefix", "verify_signatures": "verify"}
"""Options with another name in an `Installation`."""


def choices(command: click.Command) -> Mapping[str, Choice]:
    """The help and allowed values of the fields of an `Installation`, from the command's options."""
    found = {}
    for option in command.params:
        if isinstance(option, click.Option) and option.name:
            name = FIELDS.get(option.name, option.name)
            form = FORMS.get(name)
            some_number, some_text = option.type, option.type
            found[name] = Choice(
                help=option.help or "",
                pattern=form.pattern if form else "",
                never=form.never if form else "",
                least=_whole(some_number.min) if isinstance(some_number, click.IntRange) else None,
                most=_whole(some_number.max) if isinstance(some_number, click.IntRange) else None,
                among=tuple(some_text.choices) if isinstance(some_text, click.Choice) else (),
            )
    return found


def option_of(command: click.Command, field: str) -> str:
    """The option that becomes a field of an `Installation`."""
    names = {FIELDS.get(each.name, each.name): each.opts[0] for each in command.params if each.name}
    return names[field]


def write_chart(
    folder: Path | None, given: Mapping[str, Any], known: Mapping[str, Choice], rules: Sequence[Body], duties: Duties
) -> None:
    """Write the chart, with the given options as its defaults."""
    _write(folder, chart(given, known, rules, __version__, duties), "a Helm chart")


def write_base(folder: Path | None, bodies: Sequence[Body]) -> None:
    """Write the objects as a Kustomize base."""
    from gpuctl.views.yamltext import yaml_document  # noqa: PLC0415 - only now

    _write(folder, {path: yaml_document(body) for path, body in base(bodies).items()}, "a Kustomize base")


def write_monitoring(folder: Path | None) -> None:
    """Write the files for monitoring gpuctl by Prometheus and Grafana."""
    from gpuctl.install.monitoring import grafana_dashboard, operator_objects, rule_groups  # noqa: PLC0415 - only now
    from gpuctl.views.yamltext import yaml_document  # noqa: PLC0415

    files = {
        "rules.yaml": yaml_document(rule_groups()),
        "operator.yaml": "".join(map(yaml_document, operator_objects())),
        "grafana.json": grafana_dashboard(),
    }
    _write(folder, files, "Alerts and a dashboard")


def _write(folder: Path | None, files: Mapping[str, str], what: str) -> None:
    assert folder is not None  # noqa: S101 - the command has refused its absence
    for path, text in files.items():
        file = folder / path
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        except OSError as error:
            raise Failure("GPU9004", f"{file} can't be written: {error.strerror}") from error
    say(f"{what} in {folder}: {counted(len(files), 'file')}")


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)
