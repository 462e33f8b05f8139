"""GPU310x: jobs that are objects of other controllers."""

from __future__ import annotations

from gpuctl.diag.catalogue import CodeEntry

ENTRIES: tuple[CodeEntry, ...] = (
    CodeEntry(
        code="GPU3100",
        title="a manifest of a kind that is not known",
        message="a job's manifest can't be {found}: gpuctl does not know where such an object has its pods",
        why="What a job holds is counted in its pod templates, and it is stopped by a field of its object. Both are "
        "known of the kinds that the fix names. A kind that can't be stopped could not wait for its place.",
        fix="write one of the kinds that are known, or a job with an image",
    ),
    CodeEntry(
        code="GPU3101",
        title="a field that a manifest can't have",
        message='a manifest can\'t have the field "{field}" here',
        why="A manifest may have no more than a job of gpuctl's own fields. Where pods run, under which account, in "
        "which order and for how long gpuctl says; the node's own network, processes and devices are for no job; and a "
        "field that gpuctl does not know could change what a job holds without being counted.",
        fix="remove it",
    ),
    CodeEntry(
        code="GPU3102",
        title="pods of one manifest with different numbers of GPUs",
        message='pods of "{name}" ask for {found} GPUs, those of "{other}" for {others}',
        why="The workers of a job are equal: each has as many GPUs as the others. Pods without GPUs may stand beside "
        "them.",
        fix="give all pods that have GPUs as many, or declare two jobs",
    ),
    CodeEntry(
        code="GPU3103",
        title="an amount that is not counted",
        message='pods of a manifest can\'t ask for "{found}"',
        why="gpuctl counts cpu, memory, ephemeral-storage and whole GPUs, nvidia.com/gpu. A slice, a part of a GPU or "
        "a claim is asked for in a way that depends on the pool in which a worker gets its place, and on the devices "
        "that it gets there; the object's controller refuses any change of its pod templates once it is made.",
        fix="ask for nvidia.com/gpu; a job that needs a part of a GPU is written with an image, and gpus: 0.5",
    ),
    CodeEntry(
        code="GPU3104",
        title="pods with GPUs that start one after the other",
        message="pods with GPUs would start only after others with GPUs",
        why="A job holds the GPUs of all its workers from its start. Those of the last would be idle until the first "
        "are ready.",
        fix="let them start together; or declare two jobs, one with after",
    ),
    CodeEntry(
        code="GPU3105",
        title="a name that the manifest's controller refuses",
        message='"{name}", as {what} would be called, {problem}',
        why="The object is called after the job and its run, and its controller calls its pods after that and their "
        "own names and numbers.",
        fix="shorten the name of the job, or those in the manifest",
    ),
    CodeEntry(
        code="GPU3106",
        title="a manifest in pools that do not hand out whole GPUs by number",
        message="no pool of this job gives its pods GPUs as they ask for them: {pools}",
        why="The pods of a manifest ask for nvidia.com/gpu, which pools with sharing: device-plugin or mig give. In "
        "other pools GPUs come by a claim, or by another scheduler, and gpuctl leaves the containers as they are.",
        fix="name a pool with sharing: device-plugin in nodePools",
    ),
    CodeEntry(
        code="GPU3107",
        title="a pod that Pod Security would refuse",
        message='Pod Security level restricted of project "{project}" lets no pod have {found}',
        why="The API server would refuse the pods of this job. The level is the Cluster's security.podSecurity, or the "
        "project's entry in security.exceptions.",
        fix="remove it",
    ),
    CodeEntry(
        code="GPU3130",
        title="a kind that a Cluster can't declare",
        message="workloadKinds can't have {found}: {why}",
        why="gpuctl makes objects of a declared kind for whoever may declare jobs, and gets the right to write all of "
        "them. So only workloads of other controllers may be declared, none of them twice, and nothing that gives "
        "rights or GPUs.",
        fix="declare the kind that runs the pods; objects of other kinds are made beside gpuctl",
    ),
    CodeEntry(
        code="GPU3131",
        title="paths of a kind that overlap",
        message='"{found}" and "{other}" are the same field of the kind, or one is within the other',
        why="Each field of such an object has one meaning: a pod template, a count, a name, what stops it, or one that "
        "the team may write as it likes. A field that is two of them could change what is counted.",
        fix="leave one of the two out",
    ),
    CodeEntry(
        code="GPU3132",
        title="a kind that nothing stops",
        message="nothing stops a {kind}: it has neither suspend nor scaleToZero",
        why="A job is made without pods, waits for its place as an object, and is let go and paused by that field. One "
        "that can't be stopped would start where it finds room, before gpuctl has given it a place.",
        fix="name the field that leaves it without pods: suspend as true, or scaleToZero as 0",
    ),
    CodeEntry(
        code="GPU3133",
        title="a kind that is still in use",
        message="the Cluster declares {kind} no more, and there are jobs that are one, such as {jobs}",
        why="gpuctl reads the objects of kinds that are declared. It could neither count nor delete these any more, so "
        "the commit waits.",
        fix="keep the kind until its jobs are removed, in a commit before",
    ),
)
