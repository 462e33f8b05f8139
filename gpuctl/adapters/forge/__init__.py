"""The code hosts. `address` and `environment`: which host, with which token. `requests`: bounded exchanges, and when
one is repeated. `github` and `gitlab`: the port Forge, each with its own endpoints."""

from collections.abc import Mapping

from gpuctl.adapters.forge.address import ForgeAddress
from gpuctl.adapters.forge.environment import ForgeOptions, address_of, number_of
from gpuctl.adapters.forge.github import GitHub
from gpuctl.adapters.forge.gitlab import GitLab
from gpuctl.app.ports import VirtualTime

__all__ = ["ForgeAddress", "ForgeOptions", "GitHub", "GitLab", "address_of", "number_of", "open_forge"]


def open_forge(options: ForgeOptions, environment: Mapping[str, str], time: VirtualTime) -> GitHub | GitLab:
    """The client of the code host that the options and a CI job's environment name. Raises ForgeFault: GPU6201,
    GPU6202."""
    make = GitHub if options.host == "github" else GitLab
    return make(address_of(options, environment), time)
