"""GPU5xxx: reasons of decisions. 500x: the job runs, 501x-502x: it waits, 503x: it is paused, 504x: its declaration or
a limit stopped it, 505x: it has ended. Amounts in parameters are GPUs as people write them; no parameter is a time or a
queue position."""

from __future__ import annotations

from gpuctl.diag.catalogue import CodeEntry

RUNS = (
    CodeEntry(
        code="GPU5001",
        title="runs within quota",
        message="runs within the quota of {project}",
        why="With this job the project holds no more GPUs than its quota guarantees.",
        fix="Nothing to do.",
    ),
    CodeEntry(
        code="GPU5002",
        title="runs over quota, within fair share",
        message="runs over the quota of {project}, within its fair share of spare GPUs",
        why="Other projects leave GPUs unused, and this project's fair share of them covers the job.",
        fix="Nothing to do. The job may be paused when those projects need the GPUs; a higher quota prevents that.",
    ),
    CodeEntry(
        code="GPU5003",
        title="runs on idle GPUs",
        message="runs on idle GPUs, beyond the fair share of {project}",
        why="No other job can use these GPUs now.",
        fix="Nothing to do. It is among the first jobs to be paused when another job is entitled to those GPUs.",
    ),
    CodeEntry(
        code="GPU5004",
        title="runs without a GPU",
        message="runs without a GPU",
        why="The job requests no GPU, only CPU and memory.",
        fix="Nothing to do.",
    ),
    CodeEntry(
        code="GPU5005",
        title="runs over quota",
        message="runs over the quota of {project}, on GPUs that other projects leave unused",
        why="The project holds more GPUs than its quota. The cluster's objects alone do not tell its fair share.",
        fix="Nothing to do. `gpuctl explain JOB DIR` tells whether the project is within its fair share. The job may "
        "be paused when other projects need the GPUs.",
    ),
)

WAITS = (
    CodeEntry(
        code="GPU5010",
        title="no free GPUs",
        message="waits for {gpus} GPUs in {pools}: too few are free, and none in use can be reclaimed or preempted for "
        "it",
        why="The job is within its project's fair share, but the jobs that hold GPUs now are protected from a pause: "
        "they are within their quotas, can't be preempted, or started less than minRuntime ago.",
        fix="It starts when jobs end, or have run for minRuntime: `gpuctl explain JOB DIR` forecasts when. Widen its "
        "nodePools, or request fewer GPUs.",
    ),
    CodeEntry(
        code="GPU5011",
        title="over the fair share",
        message="waits: {gpus} GPUs more would put {project} above its fair share, and too few GPUs are idle",
        why="Beyond its fair share a project gets only idle GPUs.",
        fix="It starts when GPUs become idle or another job of the project ends; a higher quota starts it now.",
    ),
    CodeEntry(
        code="GPU5012",
        title="over the limit",
        message="waits: {gpus} GPUs more would put {owner} above its limit of {limit} GPUs",
        why="A limit is a ceiling, even when GPUs are idle.",
        fix="It starts when other jobs under that limit end. Or raise spec.limit.",
    ),
    CodeEntry(
        code="GPU5013",
        title="not preemptible, beyond quota",
        message="waits: not preemptible, and {gpus} GPUs more would put {project} above the {quota} GPUs "
        "that its quota guarantees",
        why="GPUs above the quota are lent, so only preemptible jobs may use them. Quotas that add up to more GPUs "
        "than there are guarantee less than they say.",
        fix="Set preemptible: true, stop another non-preemptible job of the project, or raise its quota.",
    ),
    CodeEntry(
        code="GPU5014",
        title="no node is large enough",
        message="can't run: {pools} could not hold {workers} x {gpus} GPUs even if all nodes were empty",
        why="The GPUs, CPU, memory, health or sharing of the nodes do not suffice, whatever else runs.",
        fix="Request less per worker, widen nodePools, or add nodes.",
    ),
    CodeEntry(
        code="GPU5015",
        title="free GPUs are fragmented",
        message="waits for {gpus} GPUs: enough are free in {pools}, but not on one node or device",
        why="All GPUs of a worker must be on one node, and a fraction on one device.",
        fix="It starts when enough GPUs of one node are free; smaller workers fit sooner.",
    ),
    CodeEntry(
        code="GPU5016",
        title="not all workers fit",
        message="waits: {workers} workers with {gpus} GPUs each do not fit in {pools} at once",
        why="The workers of a gang start together or not at all.",
        fix="It starts when enough GPUs are free; fewer or smaller workers start sooner.",
    ),
    CodeEntry(
        code="GPU5017",
        title="CPU or memory is short",
        message="waits for CPU or memory in {pools}: too few nodes have all free that a worker asks for",
        why="A worker needs CPU, memory and GPUs, if it asks for any, on one node. GPUs are not what is short.",
        fix="Lower resources.cpu or resources.memory if the job needs less. Otherwise it starts when jobs end.",
    ),
    CodeEntry(
        code="GPU5018",
        title="waits for paused jobs to stop",
        message="starts when the GPUs reserved for it are released by {victims}",
        why="These jobs were paused for this one and are still stopping.",
        fix="Nothing to do. A long terminationGracePeriod of these jobs delays it; GPU7027 tells of pods that hang.",
    ),
    CodeEntry(
        code="GPU5019",
        title="waits for jobs that are stopping",
        message="starts when the GPUs reserved for it are released by jobs that are stopping",
        why="Enough GPUs are being released; no job needs to be paused.",
        fix="Nothing to do.",
    ),
    CodeEntry(
        code="GPU5020",
        title="still stopping",
        message="waits until its own pods are gone",
        why="The run was paused and its pods have not ended yet.",
        fix="Nothing to do.",
    ),
    CodeEntry(
        code="GPU5021",
        title="its project is on hold",
        message="left unchanged: project {project} is on hold",
        why="No good commit of the project's files can be read, its namespace has another owner, or its ledger is "
        "damaged. Until that is fixed, nothing of the project is started, paused or removed.",
        fix="See what `gpuctl reconcile` reports of the project (GPU8010, GPU6004, GPU6006 or GPU7008).",
    ),
    CodeEntry(
        code="GPU5022",
        title="its project is not declared",
        message="can't run: project {project} is not declared",
        why="Only a declared project has a share of the GPUs.",
        fix="Declare the project.",
    ),
    CodeEntry(
        code="GPU5023",
        title="waits until another job's pods have nodes",
        message="starts once the pods of {other} have nodes: its GPUs are reserved, and both jobs start on the same "
        "nodes",
        why="All workers of a job share one pod template, so kube-scheduler may bind each to any of the job's nodes "
        "and GPUs. Of two jobs that could get each other's GPUs, one starts first.",
        fix="Nothing to do: it takes a few seconds.",
    ),
    CodeEntry(
        code="GPU5024",
        title="the search was cut off",
        message="waits for {gpus} GPUs in {pools}: no place was found, but the search for jobs that could make way was "
        "cut off at its bound, so there may be some",
        why="With many candidates not every set of jobs that could be paused or moved is tried: the number of sets is "
        "bounded, so that a decision takes milliseconds. docs/concepts.md (How far the search goes) has the numbers.",
        fix="It is tried again whenever something changes. Smaller or fewer workers are found a place sooner; or pause "
        "a job by hand with suspend: true.",
    ),
    CodeEntry(
        code="GPU5025",
        title="comes after jobs that have not ended",
        message="not queued yet: comes after {jobs}",
        why="Its declaration names these jobs in after, and they have not ended. Until then it demands no GPUs.",
        fix="Nothing to do. It is queued from the moment at which the last of them ends.",
    ),
    CodeEntry(
        code="GPU5026",
        title="comes after a job that did not succeed",
        message="not queued: comes after {job}, which has to succeed and ended as {state}",
        why="Its declaration names that job in after, and what it would work on may not be there.",
        fix="Raise runIndex of that job to run it again; this one is queued when it has succeeded. Or take it out of "
        "after, or write {job: NAME, result: any}.",
    ),
    CodeEntry(
        code="GPU5027",
        title="waits for its turn in a sweep",
        message="not queued yet: sweep {sweep} has {parallelism} jobs queued or running, as many as its parallelism",
        why="sweep.parallelism says how many of its jobs may run at a time. The others demand no GPUs.",
        fix="Nothing to do: jobs are queued in the order of their indices, as others end. Or raise sweep.parallelism.",
    ),
    CodeEntry(
        code="GPU5028",
        title="other jobs would take its place",
        message="waits for {gpus} GPUs in {pools}: other jobs would take the place that could be made for it",
        why="Jobs could be paused or moved for it, but looking ahead shows that it would not run in the end.",
        fix="It is tried again whenever something changes. `gpuctl explain JOB DIR` tells what would let it start.",
    ),
)

PAUSED = (
    CodeEntry(
        code="GPU5030",
        title="paused under the quota guarantee",
        message="paused for {beneficiary}, which is within its project's quota",
        why="It held GPUs above its project's quota or CPU alone, and another project needs them within its own quota.",
        fix="It starts again when there is room; a higher quota or preemptible: false (within quota) protects it.",
    ),
    CodeEntry(
        code="GPU5031",
        title="paused for a fairer share",
        message="paused for {beneficiary}, whose project has less than its fair share",
        why="Without this job its own project still holds at least its fair share, or loses CPU and memory alone.",
        fix="It starts again when there is room; a higher quota or overQuotaWeight protects more jobs.",
    ),
    CodeEntry(
        code="GPU5032",
        title="paused for a job of higher priority",
        message="paused for {beneficiary}, a job of its own project with higher priority",
        why="Within a project, jobs of higher priority go first.",
        fix="It starts again when GPUs are free; or raise its priority.",
    ),
    CodeEntry(
        code="GPU5033",
        title="paused for an interactive job",
        message="paused for {beneficiary}, an interactive or inference job of its own project within quota",
        why="Within a project, interactive and inference jobs go before training.",
        fix="It starts again when GPUs are free.",
    ),
    CodeEntry(
        code="GPU5034",
        title="its node is lost",
        message="paused because node {node} is gone or unreachable",
        why="Kubernetes has tainted it as unreachable, or it is gone; one that is not ready keeps its runs until their "
        "pods are evicted. A job needs all its workers, or minWorkers; an elastic training job those of lowest index.",
        fix="It starts on other nodes once they have room; check the node.",
    ),
    CodeEntry(
        code="GPU5035",
        title="its GPU is overcommitted",
        message="paused because more of a GPU of node {node} is allocated than it has",
        why="Pods were placed by hand, the node lost devices, or kube-scheduler preempted its pods for a higher class.",
        fix="It starts again when GPUs are free.",
    ),
    CodeEntry(
        code="GPU5036",
        title="its node takes no new pods",
        message="paused because node {node} takes no new pods and some pods of the job are missing there",
        why="The node was cordoned or tainted before all pods of the job were bound, or while one was being replaced.",
        fix="It starts on other nodes once they have room; uncordon the node when it may be used again.",
    ),
    CodeEntry(
        code="GPU5037",
        title="left to another engine",
        message="{engine} decides when it runs",
        why="gpuctl reconciles this cluster with --target: it writes the objects that are declared, and another engine "
        "admits jobs and pauses them.",
        fix="Ask that engine: its queues and workloads say what a job waits for.",
    ),
)

STOPPED = (
    CodeEntry(
        code="GPU5040",
        title="suspended in its declaration",
        message="suspended in its declaration",
        why="The declaration has suspend: true.",
        fix="Remove suspend: true.",
    ),
    CodeEntry(
        code="GPU5041",
        title="maxDuration reached",
        message="ended after its maxDuration",
        why="The job, or its project for jobs of this type, limits the time of a run.",
        fix="Raise maxDuration, then runIndex to run it again.",
    ),
    CodeEntry(
        code="GPU5042",
        title="idle too long",
        message="ended because its GPUs were idle longer than its idleTimeout",
        why="The project ends interactive jobs that leave their GPUs unused.",
        fix="Raise runIndex to run it again, or the project's interactive.idleTimeout.",
    ),
    CodeEntry(
        code="GPU5043",
        title="scaled to zero",
        message="scaled to zero: its metric says that there is no load",
        why="The service has minWorkers: 0, and its autoscaler has taken the last worker. It holds no GPU and demands "
        "none. Once there is load it waits for a place as any job of its project does, from that moment on.",
        fix="Nothing to do. With minWorkers: 1 it keeps a worker; `kubectl describe hpa` tells what is measured.",
    ),
)

ENDED = (
    CodeEntry(
        code="GPU5050",
        title="succeeded",
        message="succeeded",
        why="Its pods ended without an error.",
        fix="Raise runIndex to run it again.",
    ),
    CodeEntry(
        code="GPU5051",
        title="failed",
        message="failed",
        why="Its pods ended with an error more often than retries allows.",
        fix="Read its logs; raise runIndex to run it again.",
    ),
    CodeEntry(
        code="GPU5052",
        title="timed out",
        message="ended by a time limit",
        why="maxDuration or idleTimeout ended the run.",
        fix="Raise the limit and runIndex to run it again.",
    ),
    CodeEntry(
        code="GPU5053",
        title="deleted",
        message="its object was deleted in the cluster; it is not started again",
        why="The run's object was removed by hand, and gpuctl never repeats a run by itself.",
        fix="Raise runIndex to run it again, or remove the declaration.",
    ),
)

BARRED = (
    CodeEntry(
        code="GPU5070",
        title="the API server refuses its object",
        message="the API server refuses {object}: {what}",
        why="The object breaks a rule of the server, of one of its admission policies, or of a quota of the namespace. "
        "No GPUs are reserved for the job until its object can be written. gpuctl tries again every minute, and when "
        "the files of its project or of the cluster change.",
        fix="Correct what the server names, delete an object of others in its place, or ask the administrators.",
    ),
    CodeEntry(
        code="GPU5071",
        title="waits until the change is confirmed",
        message="its old run keeps running until the change is confirmed",
        why="Too many running jobs were changed at once: GPU6007.",
        fix="See `gpuctl explain GPU6007`.",
    ),
    CodeEntry(
        code="GPU5072",
        title="another object has a name that it needs",
        message="{object}, which gpuctl did not create, has the name of an object of the job",
        why="gpuctl only uses objects that it created, and changes and removes no others.",
        fix="Delete the object, or give it another name. One that is not a run's can be handed over instead: GPU7060.",
    ),
    CodeEntry(
        code="GPU5073",
        title="its object can't be read",
        message="its object can't be read and is left unchanged; gpuctl's log says why",
        why="The object has unexpected content. No decision is made about the job; if it runs, it keeps running.",
        fix="Undo changes to the object. If there were none, report it: gpuctl should be able to read the object.",
    ),
    CodeEntry(
        code="GPU5074",
        title="its kind is not there",
        message="it is a {kind}: the server has none or can't read it, or gpuctl has no right; gpuctl's log says which",
        why="A job with a manifest is an object of another controller's kind. Its definition comes with that; the "
        "rights come with gpuctl's installation, for a kind of the Cluster with `gpuctl install --cluster DIR`.",
        fix="Install the controller, or apply what `gpuctl install` prints now. The job then goes on by itself.",
    ),
)

KEPT = (
    CodeEntry(
        code="GPU5080",
        title="GPUs are reserved for it as they become free",
        message="has waited longest for GPUs in {pool}: GPUs there are reserved for it as they become free",
        why="It has waited longer than starvationGuard. The reserved GPUs are those expected to be free first, by the "
        "remaining maxDuration of the jobs there. Other jobs start on them only if they end before that.",
        fix="Nothing to do. With a maxDuration on other jobs the start is known, and short jobs can be backfilled.",
    ),
    CodeEntry(
        code="GPU5081",
        title="free GPUs are reserved for another job",
        message="waits: free GPUs are reserved for {oldest}, which has waited longest",
        why="If every GPU that becomes free went to a small job, a large job would never start. So after "
        "starvationGuard GPUs are reserved for the job that has waited longest.",
        fix="It starts after that job, or now with a maxDuration that ends before that job can start.",
    ),
    CodeEntry(
        code="GPU5082",
        title="moved to make room",
        message="paused to start again elsewhere: {beneficiary} fits only where it ran",
        why="Enough GPUs were free, but fragmented. Of all ways to consolidate them this one loses the least work.",
        fix="Nothing to do: GPUs are reserved for it elsewhere. scheduling.consolidation: false turns this off.",
    ),
)

ELASTIC = (
    CodeEntry(
        code="GPU5090",
        title="scaled down",
        message="runs with {workers} of its {declared} workers: scaled down for {beneficiary}",
        why="Another job was entitled to the GPUs, and minWorkers says that this one can run without them. Elastic "
        "jobs are scaled down before any job is paused.",
        fix="Nothing to do. It scales up when GPUs are idle on nodes that its pods can use, or at its next start.",
    ),
    CodeEntry(
        code="GPU5091",
        title="scaled down without a node",
        message="runs with {workers} of its {declared} workers: node {node} is gone, unreachable, or takes no new pods",
        why="minWorkers says that the job can run without them. A service goes on with its other replicas; training "
        "goes on with the workers below the first that it lost, because a Job can drop only its highest indexes.",
        fix="Check the node. It scales up when GPUs are idle on nodes that its pods can use, or at its next start.",
    ),
)

STARTS = (
    CodeEntry(
        code="GPU5092",
        title="does not start",
        message="failed starts in a row: {starts}, the last by {problem}; takes idle GPUs from {retry:instant}, has "
        "its full rights again from {rights:instant}; correct the job or raise its runIndex to have it tried at once",
        why="Its workers did not all run within scheduling.startTimeout, or the server refused its start though not a "
        "dry run: its GPUs went to others. After 1 minute, then 5, then 30 it is tried again on GPUs that no other job "
        "takes: no run is paused for it. Two hours after it began to wait it has its full rights again, for one start.",
        fix="Correct what the reason names: the image, a Secret or ConfigMap, a claim. A changed declaration or a "
        "higher spec.runIndex is a new run with full rights. Large images need a larger scheduling.startTimeout.",
    ),
)

ENTRIES: tuple[CodeEntry, ...] = (*RUNS, *WAITS, *BARRED, *PAUSED, *STOPPED, *ENDED, *KEPT, *ELASTIC, *STARTS)
