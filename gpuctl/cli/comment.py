"""`gpuctl comment`: a plan as the comment and the labels of a pull or merge request."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuctl.app.review_labels import LABELS, Labelled, labels_of
from gpuctl.cli.command import command
from gpuctl.cli.failures import EXIT_FAILED
from gpuctl.cli.plan import EXIT_REFUSED, made_plan, plan_options
from gpuctl.cli.terminal import say, show

if TYPE_CHECKING:
    from gpuctl.adapters.forge import ForgeOptions
    from gpuctl.views.plan_report import PlanReport

_LABEL_CHARS = 50
"""The longest name of a label on GitHub."""
_GITLAB_CHARS = 1_000_000


def _label_names(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> Mapping[Labelled, str]:
    """The name of each label; empty for one that is not set."""
    names = dict(LABELS)
    for text in given:
        effect, equals, name = text.partition("=")
        if not equals or effect not in {each.value for each in Labelled}:
            raise click.BadParameter(f"{text!r} is not EFFECT=NAME, with EFFECT one of {', '.join(Labelled)}")
        if "," in name or not name.isprintable() or len(name) > _LABEL_CHARS:
            raise click.BadParameter(f"{name!r} is no label: at most {_LABEL_CHARS} characters, without commas")
        names[Labelled(effect)] = name
    return names


@command(
    "comment",
    examples=(
        "gpuctl comment --github clusters/tr4858 --base origin/main --context prod",
        "gpuctl comment --gitlab clusters/tr4858 --base origin/main --fail-on paused,deleted",
        "gpuctl comment --github clusters/tr4858 --base origin/main --dry-run",
    ),
    failed=EXIT_FAILED,
)
@plan_options
@click.option("--github", "host", flag_value="github", help="Comment on a pull request of GitHub.")
@click.option("--gitlab", "host", flag_value="gitlab", help="Comment on a merge request of GitLab.")
@click.option(
    "--repository", metavar="NAME", help="owner/name; GitLab: or the project's number. Default: the CI job's."
)
@click.option("--number", metavar="N", type=click.IntRange(1, 10**11), help="The request. Default: the CI job's.")
@click.option(
    "--api-url", metavar="URL", help="The API's address. Default: the CI job's, else github.com or gitlab.com."
)
@click.option("--token-file", metavar="FILE", type=click.Path(path_type=Path), help="A file that holds the token.")
@click.option(
    "--label",
    "names",
    metavar="EFFECT=NAME",
    multiple=True,
    callback=_label_names,
    help="Another name for the label of an effect: pauses, deletes, refused. An empty name: no such label.",
)
@click.option("--dry-run", is_flag=True, help="Print the comment and the labels instead of sending them.")
def comment(  # noqa: PLR0913 - an argument for each option
    *,
    host: str | None,
    repository: str | None,
    number: int | None,
    api_url: str | None,
    token_file: Path | None,
    names: Mapping[Labelled, str],
    dry_run: bool,
    **given: Any,
) -> None:
    """Write a plan as the comment of a pull or merge request.

    The comment is edited when it is there already, so each cluster has one. Labels tell the effect: gpuctl/pauses,
    gpuctl/deletes and gpuctl/refused; other labels are left alone. In a job of GitHub Actions the plan is written into
    the job's summary too, first, so that it is there where the token may not comment, as for pull requests of forks.

    The repository, the request and the API's address come from the environment of GitHub Actions or GitLab CI. The
    token comes from GITHUB_TOKEN or GH_TOKEN, from GITLAB_TOKEN, or from --token-file; GitLab's CI_JOB_TOKEN can't
    comment.

    Exit code: 0 the comment is written, whether or not anything changes; 3 it is written, and a guard or --fail-on
    refuses the change; 1 error.
    """
    from gpuctl.adapters.forge import ForgeOptions  # noqa: PLC0415 - slow to import
    from gpuctl.views.plan_markdown import GITHUB_CHARS, markdown  # noqa: PLC0415

    if host not in {"github", "gitlab"}:
        raise click.UsageError("Missing option '--github' or '--gitlab'.")
    report = made_plan(**given)
    text = markdown(report, GITHUB_CHARS if host == "github" else _GITLAB_CHARS)
    ours = frozenset(filter(None, names.values()))
    wanted = frozenset(names[each] for each in labels_of(report)) & ours
    if dry_run:
        show(text)
        say(f"labels: {', '.join(sorted(wanted)) or 'none'}")
    else:
        _summarize(text)
        options = ForgeOptions(
            host="github" if host == "github" else "gitlab",
            api_url=api_url,
            repository=repository,
            number=number,
            token_file=token_file,
        )
        _send(options, report, Message(text=text, ours=ours, wanted=wanted))
    if report.refused:
        raise click.exceptions.Exit(EXIT_REFUSED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What is sent: the comment, the labels that are ours, and those of them that are wanted."""

    text: str
    ours: frozenset[str]
    wanted: frozenset[str]


def _send(options: ForgeOptions, report: PlanReport, message: Message) -> None:
    from gpuctl import wiring  # noqa: PLC0415 - only now
    from gpuctl.views.plan_markdown import marker  # noqa: PLC0415

    number = wiring.forge_number(options)
    with wiring.forge(options) as forge:
        say(forge.put_comment(number, marker(report.cluster), message.text))
        forge.set_labels(number, message.ours, message.wanted)
    say(f"labels: {', '.join(sorted(message.wanted)) or 'none'}")


def _summarize(text: str) -> None:
    """Add the plan to the summary of a job of GitHub Actions."""
    path = os.environ.get("GITHUB_STEP_SUMMARY", "")
    if not path:
        return
    try:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        say(f"the job's summary can't be written: {error.strerror}", err=True)
