"""GPU7xxx: cluster. The API server's own words follow most of these codes."""

from __future__ import annotations

from gpuctl.diag.catalogue import CodeEntry

ENTRIES: tuple[CodeEntry, ...] = (
    CodeEntry(
        code="GPU7001",
        title="the API server does not answer",
        message="{what}",
        why="The API server is away, or says it can't now. Nothing is lost: what was to be written is worked out anew "
        "from what is there when it answers again.",
        fix="Check that the API server is up and reachable. gpuctl asks again by itself, less and less often.",
    ),
    CodeEntry(
        code="GPU7002",
        title="the API server forbids it",
        message="{what}",
        why="gpuctl's account may not do that, or a ResourceQuota of the namespace is used up.",
        fix="Give the account the rights that `gpuctl install` lists, or raise the quota that the message names.",
    ),
    CodeEntry(
        code="GPU7003",
        title="the API server knows no such object",
        message="{what}",
        why="The object or its namespace was deleted at that moment, or the server does not serve the kind.",
        fix="Usually nothing: the next cycle looks again. A kind that is missing needs a newer Kubernetes.",
    ),
    CodeEntry(
        code="GPU7004",
        title="the object has changed meanwhile",
        message="{what}",
        why="Somebody wrote or deleted the object between gpuctl's look and its write, or its namespace is being "
        "deleted.",
        fix="Usually nothing: the next cycle looks again. If it goes on, find who else writes the object.",
    ),
    CodeEntry(
        code="GPU7005",
        title="the watch can't be continued",
        message="{what}",
        why="The server has forgotten the version the watch was at. gpuctl lists again.",
        fix="Nothing to do.",
    ),
    CodeEntry(
        code="GPU7006",
        title="the API server refuses the object",
        message="{what}",
        why="The object as rendered breaks a rule of the server that gpuctl does not check itself. It is never deleted "
        "for that.",
        fix="Correct the declaration that the object comes from; its annotation `gpuctl.dev/source` names the line.",
    ),
    CodeEntry(
        code="GPU7007",
        title="an object is fought over",
        message="{object} was written {times} times within a minute; {rival}",
        why="Somebody else keeps changing what gpuctl writes, or gpuctl itself goes back and forth. The object is left "
        "alone until the minute is over; everything else goes on.",
        fix="See who else writes the object, `kubectl get -o yaml --show-managed-fields`, and stop that. If nobody "
        "else does, it is a bug of gpuctl: report it with the log.",
    ),
    CodeEntry(
        code="GPU7009",
        title="an object can't be read",
        message="{object} can't be read ({what}); it is left alone",
        why="Something in the object is not what gpuctl expects of any. What it holds counts as far as that can be "
        "seen; all other objects are read.",
        fix="Put back what was changed in the object. If it was nothing, report it: gpuctl should have read it.",
    ),
    CodeEntry(
        code="GPU7008",
        title="a record of gpuctl's is damaged",
        message="{ledger}: its part {part} can't be read",
        why="The ledger in namespace gpuctl-system was edited by hand. It says which runs have ended and what may be "
        "pruned; until that is known again, the project is left as it is: nothing of it is started, paused or removed.",
        fix="Restore the ConfigMaps from a backup. Without one, delete the ledger: it is written anew from what is "
        "there, and a run that had ended and whose object is gone may then start again.",
    ),
)
