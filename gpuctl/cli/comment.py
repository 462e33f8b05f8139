"""`gpuctl comment`: a plan as the comment and the labels of a pull or merge request."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuctl.cli.command import command
from gpuctl.cli.failures import EXIT_FAILED, Failure
from gpuctl.cli.plan import EXIT_REFUSED, made_plan, plan_options
from gpuctl.cli.saved import saved_plan
from gpuctl.cli.terminal import say, show
from gpuctl.diag.codes import CODES
from gpuctl.diag.wording import message
from gpuctl.views.plan_labels import LABELS, Labelled

if TYPE_CHECKING:
    from gpuctl.adapters.forge import ForgeOptions
    from gpuctl.views.plan_page import PlanPage

_LABEL_CHARS = 50
"""The longest name of a label on GitHub."""
_GITLAB_CHARS = 1_000_000
_SHORT = 10


def _label_names(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> Mapping[Labelled, str]:
    """The name of each label; "" for one that is not set."""
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
        "gpuctl comment --github --plan plan.json --number 7",
    ),
    failed=EXIT_FAILED,
)
@click.argument("folder", metavar="[DIR]", required=False, type=click.Path(path_type=Path))
@click.option(
    "--plan",
    "saved",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write the plan in this file, of `gpuctl plan -o json`, instead of making one.",
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
@click.option("--add-labels", is_flag=True, help="Remove no label: the request has the plans of other clusters, too.")
@click.option("--dry-run", is_flag=True, help="Print the comment and the labels instead of sending them.")
def comment(  # noqa: PLR0913 - an argument for each option
    folder: Path | None,
    *,
    saved: Path | None,
    host: str | None,
    repository: str | None,
    number: int | None,
    api_url: str | None,
    token_file: Path | None,
    names: Mapping[Labelled, str],
    add_labels: bool,
    dry_run: bool,
    **given: Any,
) -> None:
    """Write a plan as the comment of a pull or merge request.

    The comment is edited when it is there already, so each cluster has one. Labels tell the effect: gpuctl/pauses,
    gpuctl/deletes and gpuctl/refused; other labels are left alone. Where a request changes several clusters, give
    --add-labels to all but the first: else each takes away the labels of the one before.

    In a job of GitHub Actions the plan is written into the job's summary too, first, so that it is there where the
    token may not comment, as for pull requests of forks.

    --plan writes a plan that another job has made, say one without a token for a pull request of a fork. Anybody may
    have written the file: it is read up to 16 MiB, held against its schema, and all of it is text. The comment says
    that it was read, and of which commits it says to be; it is not written unless that is the newest commit of the
    request, or the merge that GitHub has made of it. --head COMMIT goes with it: the plan has to be of that commit, the
    one of the job that made it, else whoever wrote the file could write under the request of another.

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
    plan = _read(saved, folder, given) if saved is not None else _made(folder, given)
    text = markdown(plan.page, GITHUB_CHARS if host == "github" else _GITLAB_CHARS, origin=plan.origin)
    ours = frozenset(filter(None, names.values()))
    wanted = frozenset(names[each] for each in plan.page.labels) & ours
    if dry_run:
        show(text)
        say(f"labels: {', '.join(sorted(wanted)) or 'none'}")
    else:
        options = ForgeOptions(
            host="github" if host == "github" else "gitlab",
            api_url=api_url,
            repository=repository,
            number=number,
            token_file=token_file,
        )
        _send(options, plan, Message(text=text, ours=wanted if add_labels else ours, wanted=wanted))
    if Labelled.REFUSED in plan.page.labels:
        raise click.exceptions.Exit(EXIT_REFUSED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The plan to write. `origin`: "" for a plan that was made here; `commit`: the head that a read plan names;
    `wanted`: the one that it must name."""

    page: PlanPage
    origin: str = ""
    commit: str = ""
    wanted: str | None = None


def _made(folder: Path | None, given: Mapping[str, Any]) -> Plan:
    from gpuctl.views.plan_page import page  # noqa: PLC0415 - only now

    if folder is None:
        raise click.UsageError("Missing argument 'DIR', or option '--plan'.")
    return Plan(page=page(made_plan(folder, **given)))


def _read(file: Path, folder: Path | None, given: Mapping[str, Any]) -> Plan:
    if folder is not None or any(value for option, value in given.items() if option not in {"no_cache", "head"}):
        raise click.UsageError("--plan goes without DIR and without options of a plan but --head: the file holds one")
    found = saved_plan(file)
    base, head = ((commit or "")[:_SHORT] for commit in (found.merge.base_commit, found.merge.head_commit))
    commits = f"base {base or 'of no commit'}, head {head or 'of no commit'}"
    origin = f"This plan was made by another job and read from a file, which says that it is of {commits}."
    return Plan(page=found.comment, origin=origin, commit=found.merge.head_commit or "", wanted=given["head"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """The comment to write, gpuctl's labels, and those of them that should be set."""

    text: str
    ours: frozenset[str]
    wanted: frozenset[str]


def _send(options: ForgeOptions, plan: Plan, sent: Message) -> None:
    """Write the comment and set the labels; for a plan that was read, only if it is of the request's newest commit."""
    from gpuctl import wiring  # noqa: PLC0415 - only now
    from gpuctl.views.plan_markdown import marker  # noqa: PLC0415

    if not plan.origin:
        _summarize(sent.text)
    if plan.origin and plan.wanted not in {None, plan.commit}:
        raise _of_another_commit(plan.commit, f"commit {str(plan.wanted)[:_SHORT]}")
    number = wiring.forge_number(options)
    with wiring.forge(options) as forge:
        if plan.origin and plan.commit not in forge.commits_of(number):
            raise _of_another_commit(plan.commit, f"the newest commit of request {number}")
        say(forge.put_comment(number, marker(plan.page.cluster), sent.text))
        forge.set_labels(number, sent.ours, sent.wanted)
    say(f"labels: {', '.join(sorted(sent.wanted)) or 'none'}")


def _of_another_commit(commit: str, wanted: str) -> Failure:
    told = message("GPU6211", {"commit": commit[:_SHORT] or "no commit", "wanted": wanted})
    return Failure("GPU6211", told, hint=CODES["GPU6211"].fix, exit_code=EXIT_FAILED)


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
