"""`gpuctl submit`: declare a job, with Run:ai's flags."""

from __future__ import annotations

from typing import Any

import click

from gpuctl.cli.amounts import NumberType
from gpuctl.cli.command import ExampleCommand
from gpuctl.cli.declared_names import job_names, project_option
from gpuctl.cli.defaults import job_named
from gpuctl.cli.editing import How, carry_out, edit_options, working_tree
from gpuctl.cli.failures import Failure
from gpuctl.cli.instead import SUBMIT_FLAGS
from gpuctl.cli.submit_spec import BARE, spec_of


class _Submit(ExampleCommand):
    """Answers Run:ai's flags that have no counterpart with what to do instead."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse; an unknown option is looked up in the table of Run:ai's options."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            instead = SUBMIT_FLAGS.get(error.option_name.partition("=")[0])
            if instead is None:
                raise
            said = f"submit has no option {error.option_name}"
            raise Failure("GPU9002", said, hint=instead) from error


@click.command(
    "submit",
    cls=_Submit,
    examples=(
        "gpuctl submit train-1 -p team-a -i registry.example.com/train:1 -g 2 -- --lr 0.1",
        "gpuctl submit lab -p team-a -i jupyter/base-notebook -g 0.5 --interactive --service-type ingress --port 8888",
        "gpuctl submit train-1 -p team-a -i registry.example.com/train:1 -g 1 --branch train-1 --push",
    ),
)
@click.argument("name", metavar="NAME")
@click.argument("words", metavar="[-- ARGS]...", nargs=-1)
@project_option(help="The job's project. Default: that of `gpuctl config project`.")
@click.option("-i", "--image", required=True, help="The container image.")
@click.option("-g", "--gpu", "--gpus", metavar="N", help="GPUs of each worker: 2, or a fraction: 0.5. Default: 0.")
@click.option("--gpu-memory", metavar="SIZE", help="Instead of -g: that much memory of one GPU: 16Gi.")
@click.option("--cpu", metavar="N", help="CPU cores of each worker: 4 or 500m.")
@click.option("--memory", metavar="SIZE", help="Memory of each worker: 32Gi.")
@click.option("--interactive", is_flag=True, help="An interactive job: --type interactive.")
@click.option("--type", "kind", type=click.Choice(["training", "interactive", "inference"]), help="Default: training.")
@click.option("--preemptible/--no-preemptible", default=None, help="May be stopped for others. Default: by its type.")
@click.option("--priority", type=NumberType(), metavar="N", help="Order within the project: higher first.")
@click.option("--max-duration", metavar="TIME", help="End the job after running this long: 8h.")
@click.option("-e", "--environment", metavar="KEY=VALUE", multiple=True,
              help="An environment variable; KEY=SECRET:NAME,KEY takes it from a Secret.")  # fmt: skip
@click.option("--command", "command", metavar="[WORD]", is_flag=False, flag_value=BARE, multiple=True,
              help="A word of the command; without WORD, the words after -- are the command.")  # fmt: skip
@click.option("--args", metavar="WORD", multiple=True, help="A word of the arguments.")
@click.option("--working-dir", metavar="DIR", help="The container's working directory.")
@click.option("--node-pools", "--node-type", metavar="POOL,...", multiple=True, help="Node pools, the preferred first.")
@click.option("--workers", type=NumberType(), metavar="N", help="A gang of N workers, started all or none.")
@click.option(
    "--min-workers", "--min-replicas", type=NumberType(), metavar="N", help="Elastic: may run with so few workers."
)
@click.option("--metric", metavar="NAME", help="A service's workers follow its load: by this metric of its pods.")
@click.option(
    "--metric-target", "--metric-threshold", metavar="N", help="How much of the metric each worker is to have."
)
@click.option("--metric-of", type=click.Choice(["pods", "external"]), help="What the metric is of. Default: pods.")
@click.option("--metric-label", metavar="KEY=VALUE", multiple=True, help="A label of the series that count.")
@click.option("--framework", type=click.Choice(["pytorch", "jax"]), help="What tells the workers of each other.")
@click.option(
    "--completions", type=NumberType(), metavar="N", help="A sweep: N jobs, each with its JOB_COMPLETION_INDEX."
)
@click.option("--matrix", metavar="KEY=VALUE,...", multiple=True,
              help="A sweep: a job for each combination of values, in the variable KEY.")  # fmt: skip
@click.option("--parallelism", type=NumberType(), metavar="N", help="How many jobs of a sweep may run at a time.")
@click.option("--after", metavar="JOB", multiple=True, shell_complete=job_names,
              help="Queue it once JOB of the project has succeeded; JOB:any: once it has ended.")  # fmt: skip
@click.option("--pvc", metavar="CLAIM:PATH", multiple=True,
              help="A claim at a path; CLASS:SIZE:PATH or :SIZE:PATH is a new one; then :ro: read-only.")  # fmt: skip
@click.option("--nfs", metavar="SERVER:FOLDER:PATH", multiple=True, help="A folder of an NFS server at a path.")
@click.option("-v", "--volume", metavar="HOST:PATH", multiple=True, help="A folder of the node at a path.")
@click.option("--service-type", type=click.Choice(["ingress", "service", "portforward"]), help="How ports are reached.")
@click.option("--port", metavar="PORT", multiple=True, help="A port that the container listens on.")
@click.option("--image-pull-secret", metavar="NAME", multiple=True, help="A Secret with which the registry is asked.")
@click.option("--label", metavar="KEY=VALUE", multiple=True, help="A label of the job's pods.")
@click.option("--annotation", metavar="KEY=VALUE", multiple=True, help="An annotation of the job's pods.")
@click.option(
    "--run-as-user", "--run-as-uid", type=NumberType(), metavar="UID", help="The number of the user it runs as."
)
@click.option("--run-as-gid", type=NumberType(), metavar="GID", help="The number of the user's group.")
@click.option("--supplemental-groups", metavar="GID,...", multiple=True, help="Numbers of further groups.")
@click.option("--capability", metavar="NAME", multiple=True, help="A capability that its processes have in addition.")
@click.option("--seccomp-profile", metavar="NAME", help="RuntimeDefault: the container runtime's own profile.")
@click.option("--pause-grace", "--termination-grace-period", metavar="TIME",
              help="From SIGTERM to the end of a paused worker: 2m.")  # fmt: skip
@click.option("--tty", "--stdin", is_flag=True, help="A terminal, and input that stays open.")
@click.option("--large-shm", is_flag=True, help="Shared memory as large as the memory.")
@click.option(
    "--image-pull-policy", type=click.Choice(["Always", "IfNotPresent", "Never"]), help="Default: IfNotPresent."
)
@click.option("--local-image", is_flag=True, help="The image is on the node already: --image-pull-policy Never.")
@click.option("--always-pull-image", is_flag=True, help="The same as --image-pull-policy Always.")
@click.option(
    "--retries", "--backoff-limit", type=NumberType(), metavar="N", help="How often a failed worker starts again."
)
@click.option(
    "--retries-per-worker", type=NumberType(), metavar="N", help="The same for each worker of a gang by itself."
)
@click.option("--file", metavar="PATH", help="Declare the job in this file, which may exist.")
@edit_options
def submit(name: str, project: str | None, file: str | None, how: How, **options: Any) -> None:
    """Declare a job: write its YAML into the working tree.

    The job is declared beside the project's other jobs: in the one file that has all of them and something else, or in
    NAME.yaml in the folder with most of them, or in projects/PROJECT/jobs/. It runs once the commit is merged.

    Exit code: 0 done, 1 refused because of what is declared, 2 usage or internal error.
    """
    from gpuctl.app import editing  # noqa: PLC0415 - only now

    spec = spec_of(options)
    job = job_named(name, project)
    working = working_tree(how.path, job)
    carry_out(working, lambda: editing.submit(working, job, spec, file), how)
