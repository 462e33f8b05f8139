"""`gpuctl reconcile`: the controller. Follows a branch and makes a cluster match it, until it is stopped."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import click

from gpuctl.adapters.collector import collect_seldom
from gpuctl.cli.amounts import DurationType, write_options
from gpuctl.cli.command import command
from gpuctl.cli.dashboard import IP, is_loopback
from gpuctl.cli.failures import Failure
from gpuctl.cli.signatures import check_signers, signature_options
from gpuctl.diag.wording import all_of
from gpuctl.install.forms import HTTP_URL

LEAST_INTERVAL_MS = 200
_HELP = "gpuctl reconcile --help"


@command(
    "reconcile",
    examples=(
        "gpuctl reconcile --repo https://git.example.com/gpus.git --path clusters/tr4858 --context prod",
        "gpuctl reconcile --repo . --path clusters/tr4858 --embedded --once",
    ),
)
@click.option("--repo", metavar="URL", required=True, help="A Git repository: a folder, or a file, https or ssh URL.")
@click.option("--path", metavar="DIR", required=True, help="The cluster's folder in the repository.")
@click.option("--branch", help="The branch to follow. Default: the one the repository has checked out at the start.")
@signature_options
@click.option("--once", is_flag=True, help="Fetch and reconcile once; exit 1 if an error remains.")
@click.option("--interval", type=DurationType(), default="30s", show_default=True, help="The interval between fetches.")
@click.option("--kubeconfig", metavar="FILE", help="The cluster's kubeconfig. Default: as kubectl; in a pod its own.")
@click.option("--context", metavar="NAME", help="The kubeconfig's context. Default: its current one.")
@click.option(
    "--embedded",
    metavar="[FILE]",
    is_flag=False,
    flag_value=":memory:",
    help="Reconcile the embedded cluster instead, kept in FILE; in memory without FILE.",
)
@click.option(
    "--target", type=click.Choice(["kueue", "kai"]), help="Leave to this engine which jobs run: apply its objects."
)
@write_options
@click.option(
    "--jobs",
    metavar="N",
    type=click.IntRange(min=1),
    help="Declared jobs that it has memory for. Of more, the project with the most stays as it was. Default: any.",
)
@click.option("--workdir", metavar="DIR", type=click.Path(file_okay=False), help="Keeps the clone. Default: the cache.")
@click.option("--metrics-address", metavar="HOST:PORT", help="Serve /metrics, /healthz and /readyz there.")
@click.option("--history", metavar="FILE", type=click.Path(dir_okay=False), help="Keep the past there: gpuctl history.")
@click.option("--history-address", metavar="HOST:PORT", help="Answer questions about it there: a loopback address.")
@click.option("--dashboard-address", metavar="HOST:PORT", help="Serve the dashboard there.")
@click.option(
    "--dashboard-secret",
    metavar="FILE",
    help="Serve it to an authenticating proxy, which sends this text in X-Proxy-Secret; else to this machine alone.",
)
@click.option(
    "--dashboard-user-header",
    metavar="NAME",
    default="X-Forwarded-User",
    show_default=True,
    help="Where that proxy names the user.",
)
@click.option(
    "--dashboard-pod-ip",
    metavar="IP",
    type=IP,
    help="While it leads, have Service gpuctl-dashboard lead to this address of its pod.",
)
@click.option("--notify", metavar="DIR", help="Notify the receivers that files of this folder name: slack-url, ...")
@click.option("--push-address", metavar="HOST:PORT", help="Receive webhooks of GitHub and GitLab there, at /push.")
@click.option("--push-secret", metavar="FILE", help="The secret of these webhooks, 16 characters at least.")
@click.option(
    "--utilisation-prometheus", metavar="URL", help="Read what GPUs do in this Prometheus, which scrapes DCGM exporter."
)
@click.option(
    "--utilisation-match",
    metavar="MATCHERS",
    default="",
    help="Only series with these labels, as in PromQL: 'job=\"dcgm-exporter\"'.",
)
@click.option(
    "--utilisation-token", metavar="FILE", help="The bearer token for that Prometheus. Read anew for each request."
)
@click.option(
    "--utilisation-exporter",
    "exporters",
    metavar="URL",
    multiple=True,
    help="Read it in DCGM exporters themselves: each address of that name. Repeatable.",
)
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def reconcile(interval: int, **options: Any) -> None:
    """Follow a branch and make a cluster match it.

    It runs until SIGTERM or SIGINT. Of several replicas the one that holds the Lease writes; `gpuctl install` prints
    what they need in the cluster. A bad commit affects only the projects it breaks: they stay at their last good
    commit. Each event is one line of the log, on standard error.

    With --target, another engine decides: gpuctl writes the objects of `render --target`, prunes what is declared no
    more, and neither starts nor pauses a job.

    With --verify-signatures, a commit counts only if it is signed by a key that may sign: each commit since the last
    good one, or with "head" the newest alone, such as the merge commit.
    """
    from gpuctl import wiring  # noqa: PLC0415 - only now
    from gpuctl.app.report import Journal, LogForm  # noqa: PLC0415

    if interval < LEAST_INTERVAL_MS:
        raise Failure("GPU9002", "--interval is at least 200ms", hint=_HELP)
    _check(options)
    collect_seldom()
    follow = wiring.Follow(
        url=options["repo"],
        path=options["path"],
        branch=options["branch"],
        workdir=options["workdir"],
        verify=options["verify_signatures"],
        allowed_signers=options["allowed_signers"],
        openpgp_keys=options["openpgp_keys"],
        once=options["once"],
        interval_ms=interval,
        most_jobs=options["jobs"],
    )
    target = wiring.Target(
        embedded=options["embedded"],
        kubeconfig=options["kubeconfig"],
        context=options["context"],
        write_qps=options["write_qps"],
        write_burst=options["write_burst"],
        engine=options["target"],
    )
    served = wiring.Served(
        metrics_address=options["metrics_address"],
        history=options["history"],
        history_address=options["history_address"],
        notify=options["notify"],
        push_address=options["push_address"],
        push_secret=options["push_secret"],
        dashboard_address=options["dashboard_address"],
        dashboard_secret=options["dashboard_secret"],
        dashboard_user_header=options["dashboard_user_header"],
        dashboard_pod_ip=options["dashboard_pod_ip"],
    )
    measured = wiring.Measured(
        prometheus=options["utilisation_prometheus"],
        exporters=options["exporters"],
        matching=options["utilisation_match"],
        token=options["utilisation_token"],
    )
    journal = Journal(_write, LogForm(options["log_format"]))
    raise click.exceptions.Exit(wiring.reconcile(follow, target, served, journal, measured))


def _check(options: Mapping[str, Any]) -> None:
    """Refuse options that contradict one another."""
    check_signers(options)
    named = [f"--{name}" for name in ("embedded", "kubeconfig", "context") if options[name] is not None]
    if "--embedded" in named and len(named) > 1:
        raise Failure("GPU9002", f"{all_of(named)} name different clusters", hint="name one")
    if "--embedded" in named and (options["write_qps"] or options["write_burst"]):
        raise Failure(
            "GPU9002",
            "the embedded cluster has no API server, so there are no writes to bound",
            hint="leave out --write-*",
        )
    if "--embedded" in named and options["target"] is not None:
        raise Failure("GPU9002", "the embedded cluster has gpuctl's own engine alone", hint="leave out --target")
    if options["history_address"] is not None and options["history"] is None:
        raise Failure("GPU9002", "--history-address serves what --history keeps", hint="--history FILE")
    if (options["push_address"] is None) != (options["push_secret"] is None):
        raise Failure("GPU9002", "--push-address and --push-secret belong together", hint="gpuctl reconcile --help")
    if options["push_address"] is not None and options["embedded"] is not None:
        raise Failure("GPU9002", "pushes are passed on by an API server", hint="leave out --push-address")
    check_utilisation(options)
    address, secret = options["dashboard_address"], options["dashboard_secret"]
    for option in ("dashboard_secret", "dashboard_pod_ip"):
        if address is None and options[option] is not None:
            text = f"--{option.replace('_', '-')} is for --dashboard-address"
            raise Failure("GPU9002", text, hint="gpuctl reconcile --help")
    if options["dashboard_pod_ip"] is not None and options["embedded"] is not None:
        raise Failure("GPU9002", "the embedded cluster has no Services", hint="leave out --dashboard-pod-ip")
    if address is not None and secret is None and not is_loopback(address):
        raise Failure(
            "GPU9002",
            f"--dashboard-address {address} could be reached from other machines, by anybody",
            hint="name a loopback address, or --dashboard-secret FILE behind an authenticating proxy",
        )


def check_utilisation(options: Mapping[str, Any]) -> None:
    """Refuse options for the use of GPUs that contradict one another, or name no http address."""
    prometheus, exporters = options["utilisation_prometheus"], options["exporters"]
    if prometheus is not None and exporters:
        raise Failure("GPU9002", "--utilisation-prometheus and --utilisation-exporter exclude each other", hint=_HELP)
    if prometheus is None and (options["utilisation_match"] or options["utilisation_token"]):
        raise Failure("GPU9002", "--utilisation-match and -token are for --utilisation-prometheus", hint=_HELP)
    for url in (*([prometheus] if prometheus is not None else ()), *exporters):
        if not HTTP_URL.fits(url):
            raise Failure("GPU9002", f"{url!r} {HTTP_URL.words}", hint=_HELP)


def _write(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
