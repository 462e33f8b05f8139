"""Every verb of Run:ai and kubectl that gpuctl has not is answered with what to do instead."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from commands import Run

from gpuctl.cli.instead import INSTEAD, KINDS, SUBMIT_FLAGS
from gpuctl.cli.main import COMMANDS, gpuctl
from gpuctl.cli.submit import submit

RUNAI_1 = """
submit-dist mpi|submit-dist pytorch|list jobs|list nodes|list projects|list clusters|list templates|describe job a
describe node n|describe template t|attach a|config cluster c|template list|template describe t|login|logout|whoami
update|project set team-a
"""
RUNAI_2 = """
workspace submit a|workspace list|workspace describe a|workspace logs a|workspace bash a|workspace exec a
workspace attach a|workspace port-forward a|workspace suspend a|workspace resume a|workspace delete a
training submit a|training standard submit a|training pytorch submit a|training tensorflow list|training mpi submit
training xgboost submit|training jax submit|training list|inference submit a|inference list|inference describe a
workload list|workload describe a|workload submit|project create|department list|department create|node list
nodepool list|cluster list|pvc list|environment list|compute list|datasource list|credential list|template list
kubeconfig set|auth token|diagnostics collect|report generate|update project|whoami|upgrade
"""
KUBECTL = """
create job a|create -f x|expose job a|run a|set image|edit job a|autoscale job a|rollout status|rollout undo|scale job a
describe job a|describe pod a|attach a|proxy|cp a b|auth whoami|auth can-i|debug a|events|apply -f x
patch job a|replace -f x|wait job a|kustomize x|label job a|annotate job a|cluster-info|top pod|top pods|cordon n
uncordon n|drain n|taint n|api-resources|api-versions|certificate approve|config view|config use-context x
config get-contexts|config set-context x|help
"""
LINES = [line for text in (RUNAI_1, RUNAI_2, KUBECTL) for line in re.split(r"[|\n]", text) if line]
OURS = ("project set team-a",)


@pytest.mark.parametrize("line", [line for line in LINES if line not in OURS])
def test_a_verb_of_others_is_answered(run: Run, line: str) -> None:
    result = run(*line.split())
    assert result.exit_code == 2
    said, hint = result.stderr.splitlines()
    assert said.startswith("error GPU9002: gpuctl has no command ")
    assert hint.startswith("help: ")
    assert "--help lists" not in hint


@pytest.mark.parametrize("words", INSTEAD, ids=" ".join)
def test_no_entry_hides_a_command(words: tuple[str, ...]) -> None:
    command: click.Command | None = gpuctl
    for word in words:
        assert isinstance(command, click.Group), words
        command = command.get_command(click.Context(command), word)
        if command is None:
            return
        if not isinstance(command, click.Group):
            assert len(words) > 1, words  # `list jobs`: list itself takes no such word
            return
    raise AssertionError(words)


def answers() -> list[str]:
    return [*INSTEAD.values(), *KINDS.values(), *SUBMIT_FLAGS.values()]


@pytest.mark.parametrize("answer", sorted(set(answers())))
def test_an_answer_names_commands_and_options_that_there_are(answer: str) -> None:
    for named in re.findall(r"gpuctl ([a-z][a-z-]*(?: (?:list|set-quota|set|project|node)\b)?)", answer):
        command: click.Command | None = gpuctl
        if named.split()[0] in {"goes", "prints", "chooses", "has", "uses", "places", "serves", "with", "itself"}:
            continue
        for word in named.split():
            assert isinstance(command, click.Group), answer
            command = command.get_command(click.Context(command), word)
        assert command is not None, answer


def test_an_answer_about_a_flag_names_flags_that_there_are() -> None:
    known = {option for parameter in submit.params for option in parameter.opts}
    assert not set(SUBMIT_FLAGS) & known
    for answer in SUBMIT_FLAGS.values():
        if "gpuctl bash" in answer or "gpuctl exec" in answer:
            continue
        assert set(re.findall(r"--[a-z][a-z-]+", answer)) <= known, answer


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("delete job a-1-g", "without the kind: gpuctl delete JOB"),
        (
            "delete project team-a",
            "a project goes when its files are removed in Git: gpuctl plan DIR --base main tells what ends then",
        ),
        ("get pods -A", "gpuctl list -A shows all jobs, gpuctl get JOB one"),
        ("get nodes -o wide --embedded {file}", "gpuctl top node"),
        ("get projects --embedded {file}", "gpuctl project list"),
        ("logs pod a-1-g", "without the kind: gpuctl logs JOB"),
        ("freeze project team-a", "gpuctl explain GPU9002, or: gpuctl freeze --help"),
        ("unfreeze project team-a --force", "gpuctl explain GPU9002, or: gpuctl unfreeze --help"),
        ("history project team-a --sinse 1h", "gpuctl explain GPU9002, or: gpuctl history --help"),
    ],
)
@pytest.mark.usefixtures("in_no_repository")
def test_a_kind_where_a_job_is_named(run: Run, embedded: Path, line: str, hint: str) -> None:
    result = run(*line.replace("{file}", str(embedded)).split())
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1] == f"help: {hint}"


def test_choices_are_told_on_one_line(run: Run) -> None:
    told = run("freeze").stderr.splitlines()[0]
    assert told == "error GPU9002: Missing argument '{project|cluster}'. Choose from: project, cluster"


def test_the_commands_stay_what_they_are() -> None:
    assert not {words[0] for words in INSTEAD if len(words) == 1} & set(COMMANDS)
