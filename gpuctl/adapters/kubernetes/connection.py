"""The address of the API server and gpuctl's identity there: connections by the `kubernetes` package's configuration.

The package is imported when a connection is made, as that takes 0.2 s. It is used for the laborious, proven parts
(kubeconfig files, contexts, exec plugins, OIDC, in-cluster tokens, TLS, proxies), never for its typed calls.
"""

from __future__ import annotations

import logging
import os
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from gpuctl import __version__
from gpuctl.adapters.kubernetes.impersonation import Headers, headers_of
from gpuctl.adapters.kubernetes.servertime import ServerTime
from gpuctl.app.ports import ClusterUnavailable
from gpuctl.diag.wording import all_of, message

if TYPE_CHECKING:
    from kubernetes.client import Configuration
    from urllib3 import PoolManager

_SECOND_NS = 1_000_000_000
_HEADER_LIFE_NS = 10 * _SECOND_NS
_RENEWAL_PAUSE_NS = 10 * _SECOND_NS
_POOL_SIZE = 64
"""More connections than all threads together use, so that none is thrown away."""
IN_CLUSTER = "the pod's service account"


def connect(kubeconfig: str | None = None, context: str | None = None) -> Connection:
    """The connection that a kubeconfig describes; by default that of KUBECONFIG, ~/.kube/config, else of the pod.

    Nothing is sent yet. Raises ClusterUnavailable: GPU7010 no kubeconfig, GPU7011 it can't be used, GPU7012 no such
    context, GPU7013 no credentials. Cost: 0.2 s once for the package.
    """
    return Connection(lambda: _read(kubeconfig, context))


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Further facts of a kubeconfig's context: its namespace, if any, and as whom its user acts."""

    namespace: str = ""
    acts_as: Headers = ()


class Connection:
    """A connection to one API server under one identity. Safe for threads. Changed credentials are read again."""

    def __init__(self, read: Callable[[], tuple[str, Configuration, Context]]) -> None:
        self._read = read
        self._lock = Lock()
        self._renewed_ns = -_RENEWAL_PAUSE_NS
        self.time = ServerTime()
        self._take(*read())

    @property
    def server(self) -> str:
        """The address, without a slash at its end."""
        return str(self.configuration.host).rstrip("/")

    def headers(self) -> Mapping[str, str]:
        """The headers of every request, with credentials. Refreshes short-lived tokens. Raises ClusterUnavailable."""
        if time.monotonic_ns() < self._fresh_until_ns:
            return self._headers
        with self._lock:
            if time.monotonic_ns() >= self._fresh_until_ns:
                self._keep(_headers(self.where, self.configuration, self.context.acts_as))
            return self._headers

    def renew(self, used: Mapping[str, str]) -> bool:
        """Read everything anew after a 401 with these headers, or if the server is not trusted; at most every ten
        seconds. Returns True if the configuration is another one now."""
        with self._lock:
            if used is not self._headers and dict(used) != dict(self._headers):
                return True
            now = time.monotonic_ns()
            if now - self._renewed_ns < _RENEWAL_PAUSE_NS:
                return False
            self._renewed_ns = now
            old, identity = self.pool, self._identity()
            self._take(*self._read())
            _end(old)
            return self._identity() != identity

    def close(self) -> None:
        """Close the idle connections; those in use are closed when they are done."""
        _end(self.pool)

    def _take(self, where: str, configuration: Configuration, context: Context) -> None:
        from kubernetes.client.rest import RESTClientObject  # noqa: PLC0415 - only when a connection is made

        headers = _headers(where, configuration, context.acts_as)
        configuration.connection_pool_maxsize = _POOL_SIZE
        try:
            self.pool: PoolManager = RESTClientObject(configuration).pool_manager
        except Exception as error:  # a proxy's address can be anything
            raise _fault("GPU7011", where=where, why=f"its proxy: {_first_line(error)}") from error
        self.where, self.configuration = where, configuration
        self.context = context
        self._keep(headers)

    def _keep(self, headers: Mapping[str, str]) -> None:
        self._headers = headers
        self._fresh_until_ns = time.monotonic_ns() + _HEADER_LIFE_NS

    def _identity(self) -> tuple[object, ...]:
        made = self.configuration
        return (dict(self._headers), made.host, made.cert_file, made.key_file, made.ssl_ca_cert)


def _end(pool: PoolManager) -> None:
    """Close a pool's idle connections now. `clear` only drops them: anything that still refers to one, such as the
    traceback of an exception, keeps its socket open until the next garbage collection, which is rare in a
    controller."""
    for key in pool.pools.keys():  # noqa: SIM118 - it forbids iteration, which would not be safe for threads
        each = pool.pools.get(key)
        if each is not None:
            each.close()
    pool.clear()


def _headers(where: str, configuration: Configuration, acts_as: Headers) -> Mapping[str, str]:
    """The headers with the credentials, refreshed by the package. Raises ClusterUnavailable if there are none."""
    from urllib3 import HTTPHeaderDict  # noqa: PLC0415 - only when a connection is made

    headers = HTTPHeaderDict({"accept": "application/json", "user-agent": f"gpuctl/{__version__}"})
    for name, value in acts_as:
        headers.add(name, value)
    with _overheard() as told:
        try:
            settings: Mapping[str, Any] = configuration.auth_settings()
        except Exception as error:  # the package raises whatever files, commands and identity providers raise
            raise _fault("GPU7013", where=where, why=_first_line(error)) from error
    token = str((settings.get("BearerToken") or {}).get("value") or "").strip()
    if token:
        headers["authorization"] = token
    elif not configuration.cert_file and str(configuration.host).startswith("https"):
        why = told[-1] if told else "it names no token, certificate or command that gives one"
        raise _fault("GPU7013", where=where, why=why)
    return headers


def _read(kubeconfig: str | None, context: str | None) -> tuple[str, Configuration, Context]:
    """Where the configuration comes from in words, the configuration, and further facts of its context."""
    paths = kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
    if any(_is_there(path) for path in paths.split(os.pathsep) if path):
        return paths, *_from_files(paths, context)
    if kubeconfig is None and context is None and "KUBERNETES_SERVICE_HOST" in os.environ:
        return IN_CLUSTER, _from_pod(), Context()
    place = "" if kubeconfig else ", and this is no pod of a cluster"
    raise _fault("GPU7010", looked=f"{paths} does not exist{place}")


def _is_there(path: str) -> bool:
    """Whether the file exists, as far as can be seen; a container's user may have no home folder."""
    try:
        return Path(path).expanduser().exists()
    except (OSError, RuntimeError):
        return False


def _from_pod() -> Configuration:
    from kubernetes.client import Configuration  # noqa: PLC0415 - only when a connection is made
    from kubernetes.config import ConfigException, load_incluster_config  # noqa: PLC0415

    made = Configuration()
    try:
        load_incluster_config(client_configuration=made)
    except (ConfigException, OSError) as error:
        raise _fault("GPU7013", where=IN_CLUSTER, why=_first_line(error)) from error
    return made


def _from_files(paths: str, context: str | None) -> tuple[Configuration, Context]:
    """Read and check the kubeconfig: the context, its user, certificates that can be loaded, credentials."""
    from kubernetes.client import Configuration  # noqa: PLC0415 - only when a connection is made
    from kubernetes.config import load_kube_config  # noqa: PLC0415

    made = Configuration()
    found = _checked_context(paths, context)
    with _overheard() as told:
        try:
            load_kube_config(config_file=paths, context=context, client_configuration=made)
        except Exception as error:  # it raises whatever YAML, base64, commands and identity providers raise
            raise _fault("GPU7011", where=paths, why=_first_line(error)) from error
    if told and "BearerToken" not in made.api_key and not made.cert_file:
        raise _fault("GPU7013", where=paths, why=told[-1])
    _check_tls(paths, made)
    return made, found


def _checked_context(paths: str, context: str | None) -> Context:
    """The facts of the context that the package leaves out. Raises ClusterUnavailable for a context that can't be
    used."""
    from kubernetes.config.kube_config import KubeConfigMerger  # noqa: PLC0415 - only when a connection is made

    try:
        merged = KubeConfigMerger(paths).config.value
        known = {str(entry["name"]): entry.value.get("context") or {} for entry in merged["contexts"]}
        wanted = context or merged.get("current-context") or ""
        users = {str(entry["name"]): entry.value.get("user") or {} for entry in merged.get("users") or ()}
        acts_as = headers_of(users.get(str(known.get(wanted, {}).get("user"))) or {})
    except Exception as error:  # a file that is no kubeconfig can contain anything
        raise _fault("GPU7011", where=paths, why=_first_line(error)) from error
    if wanted not in known:
        named = f"named {wanted}" if wanted else "chosen"
        raise _fault("GPU7012", where=paths, context=named, known=all_of(sorted(known)) or "none")
    return Context(namespace=str(known[wanted].get("namespace") or ""), acts_as=acts_as)


def _check_tls(paths: str, made: Configuration) -> None:
    """Load the certificates once, so that a broken one is reported as such."""
    if not str(made.host).startswith("https"):
        return
    try:
        trust = ssl.create_default_context(cafile=made.ssl_ca_cert)
        if made.cert_file:
            trust.load_cert_chain(made.cert_file, made.key_file)
    except (OSError, ValueError) as error:
        raise _fault("GPU7011", where=paths, why=f"its certificates: {_first_line(error)}") from error
    if not made.verify_ssl:
        import urllib3  # noqa: PLC0415 - only when a connection is made

        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)  # the kubeconfig asks for it


@contextmanager
def _overheard() -> Iterator[list[str]]:
    """Collect what the package logs about failing exec plugins: it goes on without credentials and reports them nowhere
    else."""
    told: list[str] = []

    def other(record: logging.LogRecord) -> bool:
        if record.module != "kube_config":
            return True
        told.append(_first_line(record.getMessage()))
        return False

    root, silent = logging.getLogger(), logging.NullHandler()
    root.addFilter(other)
    root.addHandler(silent)  # else the first message would set up logging for the whole process
    try:
        yield told
    finally:
        root.removeHandler(silent)
        root.removeFilter(other)


def _first_line(error: object) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _fault(code: str, **params: str) -> ClusterUnavailable:
    return ClusterUnavailable(code, message(code, params))
