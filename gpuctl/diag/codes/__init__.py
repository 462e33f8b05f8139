"""All codes, one module a family: 1 YAML, 2 schema, 3 references and capacity (39 in scenarios), 4 policy,
5 reasons of decisions, 6 guards, 7 cluster, 8 Git, 9 internal."""

from __future__ import annotations

from gpuctl.diag.catalogue import catalogue
from gpuctl.diag.codes import (
    beginning,
    checks,
    cluster,
    connection,
    containers,
    editing,
    forge,
    git,
    guards,
    importing,
    internal,
    manifests,
    measuring,
    nodes,
    pending,
    policy,
    references,
    scenarios,
    schema,
    security,
    service,
    sessions,
    sharing,
    sweeps,
    targets,
    templates,
    yaml,
)

CODES = catalogue(
    family.ENTRIES
    for family in (
        yaml,
        schema,
        references,
        sharing,
        security,
        templates,
        sweeps,
        manifests,
        containers,
        scenarios,
        policy,
        pending,
        guards,
        checks,
        editing,
        forge,
        beginning,
        importing,
        targets,
        cluster,
        connection,
        service,
        sessions,
        nodes,
        measuring,
        git,
        internal,
    )
)
