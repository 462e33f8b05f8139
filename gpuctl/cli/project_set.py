"""`gpuctl project set-quota` and `gpuctl project set`: edits of a project's declaration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.command import command
from gpuctl.cli.declared_names import project_names
from gpuctl.cli.editing import How, carry_out, edit_options, working_tree
from gpuctl.cli.failures import Failure

if TYPE_CHECKING:
    from gpuctl.edit import Changes

NONE = "none"
"""The word that removes a field, so that its default applies."""
_FIELDS: Mapping[str, tuple[str, ...]] = {
    "limit": ("spec", "limit"),
    "weight": ("spec", "overQuotaWeight"),
    "department": ("spec", "department"),
    "priority": ("spec", "priority"),
    "interactive_max_duration": ("spec", "interactive", "maxDuration"),
    "interactive_idle_timeout": ("spec", "interactive", "idleTimeout"),
    "training_max_duration": ("spec", "training", "maxDuration"),
}
_LISTS: Mapping[str, tuple[str, ...]] = {
    "training_pools": ("spec", "nodeAffinity", "training"),
    "interactive_pools": ("spec", "nodeAffinity", "interactive"),
    "owners": ("spec", "owners"),
}
_BY_POOL = frozenset({"limit"})


@command(
    "set-quota",
    examples=(
        "gpuctl project set-quota team-a 6",
        "gpuctl project set-quota team-a dgx1=4 h100=2 --branch more --push",
        "gpuctl project set-quota team-a 6 --dry-run",
    ),
)
@click.argument("name", metavar="PROJECT", shell_complete=project_names)
@click.argument("gpus", metavar="GPUS|POOL=GPUS...", nargs=-1, required=True)
@edit_options
def set_quota(name: str, gpus: tuple[str, ...], how: How) -> None:
    """Set a project's quota in its declaration.

    GPUS is of the whole cluster; POOL=GPUS sets the quota of one pool, and leaves those of other pools as they are.
    What the change does to jobs is told by the `gpuctl plan` that is printed.
    """
    _set(name, lambda data: _amounts(data, ("spec", "quota"), gpus), how)


@command(
    "set",
    examples=(
        "gpuctl project set team-a --limit 12 --weight 4",
        "gpuctl project set team-a --interactive-max-duration 8h --training-pools dgx1,h100",
        "gpuctl project set team-a --limit none --commit",
    ),
)
@click.argument("name", metavar="PROJECT", shell_complete=project_names)
@click.option("--limit", metavar="GPUS", help="The most it may hold: 12, or dgx1=8,h100=4.")
@click.option("--weight", "--over-quota-weight", metavar="GPUS", help="Its claim on spare GPUs.")
@click.option("--department", metavar="NAME", help="The department it belongs to.")
@click.option("--priority", metavar="N", help="Its band for GPUs above quota.")
@click.option("--interactive-max-duration", metavar="TIME", help="How long an interactive job may run: 8h.")
@click.option("--interactive-idle-timeout", metavar="TIME", help="How long its GPUs may be idle: 1h.")
@click.option("--training-max-duration", metavar="TIME", help="How long a training job may run: 7d.")
@click.option("--training-pools", metavar="POOL,...", help="Node pools of its training, the preferred first.")
@click.option("--interactive-pools", metavar="POOL,...", help="Node pools of its interactive jobs.")
@click.option("--owners", metavar="OWNER,...", help="Who reviews changes: @acme/team-a.")
@edit_options
def set_project(name: str, how: How, **options: str | None) -> None:
    """Set fields of a project in its declaration.

    `none` takes a field out, and its default holds. The quota has a command of its own: gpuctl project set-quota.
    """
    if all(value is None for value in options.values()):
        raise Failure("GPU9002", "no field is given", hint="gpuctl project set --help lists them")
    _set(name, lambda data: _changes(data, options), how)


def _set(name: str, changes: Any, how: How) -> None:
    from gpuctl.app import editing  # noqa: PLC0415 - only now
    from gpuctl.edit import Target  # noqa: PLC0415

    target = Target(kind="Project", name=name)
    working = working_tree(how.path, target)

    def make() -> editing.Edit:
        data = working.find(target).data
        wanted: Changes = changes(data)
        told = ", ".join(f"{path[-1]} {_shown(_now(data, path))} -> {_shown(value)}" for path, value in wanted.items())
        return editing.assign(working, target, wanted, f"Set {target}: {told}")

    carry_out(working, make, how)


def _changes(data: Any, options: Mapping[str, str | None]) -> Changes:
    from gpuctl.edit import REMOVED  # noqa: PLC0415 - only now

    changes: dict[tuple[str, ...], Any] = {}
    for option, text in options.items():
        if text is None:
            continue
        path = _FIELDS.get(option) or _LISTS[option]
        if text == NONE:
            changes[path] = REMOVED
        elif option in _LISTS:
            changes[path] = [word for word in text.split(",") if word]
        elif option in _BY_POOL:
            changes |= _amounts(data, path, text.split(","))
        else:
            changes[path] = _amount(text)
    return changes


def _amounts(data: Any, path: tuple[str, ...], words: Sequence[str]) -> Changes:
    """A plain amount, or one for each of some pools."""
    from gpuctl.edit import REMOVED  # noqa: PLC0415 - only now

    words = [word for some in words for word in some.split(",") if word]
    if words == [NONE]:
        return {path: REMOVED}
    by_pool = {pool: _amount(amount) for pool, equals, amount in (word.partition("=") for word in words) if equals}
    if len(by_pool) != len(words):
        if by_pool or len(words) != 1:
            raise Failure("GPU9002", f"{' '.join(words)}: not understood", hint="write 6, or dgx1=4 h100=2")
        return {path: _amount(words[0])}
    if isinstance(_now(data, path), dict):
        return {(*path, pool): amount for pool, amount in by_pool.items()}
    return {path: by_pool}


def _now(data: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        data = data.get(key) if isinstance(data, dict) else None
    return data


def _shown(value: Any) -> str:
    from gpuctl.edit import REMOVED  # noqa: PLC0415 - only now

    if isinstance(value, dict):
        return ",".join(f"{pool}={amount}" for pool, amount in value.items())
    if isinstance(value, list):
        return ",".join(map(str, value))
    return NONE if value is None or value is REMOVED else str(value)


def _amount(text: str) -> Any:
    """A number as a number; any other text unchanged: the compiler reports what is wrong."""
    from gpuctl.compile.scalars import number_or_text  # noqa: PLC0415 - only now

    return number_or_text(text)
