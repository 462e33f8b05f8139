"""GPU7xxx: the cluster. Most messages are the API server's own words."""

from __future__ import annotations

from gpuctl.diag.catalogue import CodeEntry

ENTRIES: tuple[CodeEntry, ...] = (
    CodeEntry(
        code="GPU7001",
        title="the API server does not answer",
        message="{what}",
        why="The API server can't be reached, or is overloaded. Nothing is lost: when it answers again, gpuctl "
        "computes its writes from the state of the cluster.",
        fix="Check that the API server is up and reachable. The controller retries by itself, with growing intervals.",
    ),
    CodeEntry(
        code="GPU7002",
        title="the API server forbids it",
        message="{what}",
        why="gpuctl's account lacks the right for this request, or a ResourceQuota of the namespace is used up.",
        fix="Give the account the rights that `gpuctl install` lists, or raise the quota that the message names.",
    ),
    CodeEntry(
        code="GPU7003",
        title="the object does not exist",
        message="{what}",
        why="The object or its namespace was deleted at that moment, or the server does not serve the kind.",
        fix="Usually nothing: the next cycle reads it again. A missing kind needs a newer Kubernetes.",
    ),
    CodeEntry(
        code="GPU7004",
        title="the object was changed by another client",
        message="{what}",
        why="Another client wrote or deleted the object between gpuctl's read and its write, or its namespace is being "
        "deleted.",
        fix="Usually nothing: the next cycle reads it again. If it repeats, find the other client that writes the "
        "object.",
    ),
    CodeEntry(
        code="GPU7005",
        title="the watch can't be continued",
        message="{what}",
        why="The server no longer has the resource version of the watch. gpuctl lists the objects again.",
        fix="Nothing to do.",
    ),
    CodeEntry(
        code="GPU7006",
        title="the API server refuses the object",
        message="{what}",
        why="The rendered object breaks a rule of the server that gpuctl does not check itself. gpuctl never deletes "
        "an object because of that.",
        fix="Correct the declaration that the object comes from; its annotation `gpuctl.dev/source` names the line.",
    ),
    CodeEntry(
        code="GPU7007",
        title="an object is changed back again and again",
        message="{object} was written {times} times of late, and differs again ({what}); {rival}",
        why="Another client keeps changing fields that gpuctl writes, an admission policy or webhook changes them in "
        "each write, or gpuctl itself alternates between two values. Fields that matter to no other team are written "
        "after growing delays, up to five minutes; an object that is written twelve times in a minute is left alone "
        "until the minute is over. What takes GPUs back from a run is written every five seconds all the same, and all "
        "other objects are written as before.",
        fix="Find the other client with `kubectl get -o yaml --show-managed-fields` and stop it; without one, look for "
        "policies and webhooks that change this kind (`kubectl get mutatingadmissionpolicies,"
        "mutatingwebhookconfigurations`) and exempt gpuctl's objects, or declare the value that they want. If there "
        "is neither, this is a bug in gpuctl: report it with the log.",
    ),
    CodeEntry(
        code="GPU7009",
        title="an object can't be read",
        message="{object} can't be read ({what}); it is left unchanged",
        why="The object has content that gpuctl does not expect. The GPUs that it holds are counted as far as they can "
        "be read; all other objects are read as usual.",
        fix="Undo changes to the object. If there were none, report it: gpuctl should be able to read the object.",
    ),
    CodeEntry(
        code="GPU7008",
        title="a ledger of gpuctl is damaged",
        message="{ledger}: its part {part} can't be read",
        why="The ledger in namespace gpuctl-system was edited by hand. It records which runs have ended and what may "
        "be pruned. Without it, the project is left unchanged: nothing of it is started, paused or removed.",
        fix="Restore the ConfigMaps from a backup. Without a backup, delete the ledger: gpuctl creates it again from "
        "the objects in the cluster, and an ended run without an object may then start again.",
    ),
    CodeEntry(
        code="GPU7023",
        title="a project's namespace is not gone yet",
        message="namespace {namespace} of project {project} was deleted at {since} and is not gone yet: until then "
        "nothing of the project can be created",
        why="The API server takes nothing new into a namespace that is being deleted, and the namespace is there until "
        "all in it is gone. An object with a finalizer stays until whatever set the finalizer takes it off.",
        fix="`kubectl describe namespace NAME` says what is left in it. Delete that, or have its finalizers taken off. "
        "gpuctl then creates the namespace anew, and jobs that had no object in it start. Those whose objects were "
        "deleted with it do not (GPU5053): raise their runIndex.",
    ),
    CodeEntry(
        code="GPU7024",
        title="a deleted run is not gone",
        message="{object} of {job} was deleted at {since} and is not gone: finalizers hold it ({finalizers})",
        why="A finalizer keeps an object until whatever set the finalizer takes it off. Pods of a Job or Deployment "
        "are deleted after a minute all the same, those of another kind by its own controller. Until the object is "
        "gone, the run counts as one that stops; its job, if it is declared, waits, and no place is kept for it.",
        fix="Find out what set the finalizer. If it is not needed: `kubectl patch` the object with "
        '`{"metadata":{"finalizers":null}}`. `gpuctl install --guard` keeps tenants from setting any.',
    ),
    CodeEntry(
        code="GPU7027",
        title="pods do not end",
        message="pods of {job} were to have ended by {since} and hold their GPUs still: {pods}",
        why="The run is paused, removed or has given up workers, and its pods had their time to end. A process that "
        "waits for the driver of its GPU can't be ended, and neither can one on a node whose kubelet hangs. The jobs "
        "that wait for these GPUs (GPU5018) start once the pods have ended.",
        fix="Look at a pod with `kubectl describe pod`, at its node with `nvidia-smi` there. Where nothing ends it, "
        "restart the node. To force the pod off gives its GPUs to others while its process still has them.",
    ),
)
