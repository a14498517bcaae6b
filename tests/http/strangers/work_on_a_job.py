"""Works on jobs with a client that openapi-python-client made of the served description.

Arguments: the folder of the generated package `sexton_client`, and the address of the HTTP listener.
"""

import sys

sys.path.insert(0, sys.argv[1])

from sexton_client import Client
from sexton_client.api.default import (
    ack_job,
    job,
    list_jobs,
    list_queues,
    next_queue,
    pop_jobs,
    push_job,
    push_jobs,
    release_job,
)
from sexton_client.models import (
    Changed,
    Claims,
    Deleted,
    JobClaim,
    JobWithBody,
    Pop,
    Problem,
    Push,
    PushAll,
    Pushed,
    PushedAll,
    Release,
)

client = Client(base_url=f"http://{sys.argv[2]}")
pushed = push_job.sync(client=client, body=Push(queue="t:mails", body="to: ann"))
assert isinstance(pushed, Pushed) and pushed.new, pushed
batch = [Push(queue="t:mails", body=f"to: {name}", dedup="k") for name in ("ben", "cat")]
several = push_jobs.sync(client=client, body=PushAll(jobs=batch))
assert isinstance(several, PushedAll) and [job.new for job in several.jobs] == [False, True], several

ready = next_queue.sync(client=client, types="mails")
assert (ready.queue, ready.tenant, ready.type_) == ("t:mails", "t", "mails"), ready
assert [queue.ready for queue in list_queues.sync(client=client).queues] == [2]
claims = pop_jobs.sync(client=client, body=Pop(queues=["t:mails"], count=10))
assert isinstance(claims, Claims) and [job.body for job in claims.jobs] == ["to: ann", "to: cat"], claims
first, second = claims.jobs
stale = ack_job.sync(client=client, body=JobClaim(id=first.id, token=second.token))
assert isinstance(stale, Problem) and (stale.status, stale.reason) == (409, "stale"), stale
done = ack_job.sync(client=client, body=JobClaim(id=first.id, token=first.token))
assert isinstance(done, Deleted) and done.deleted == 1, done
given = release_job.sync(client=client, body=Release(id=second.id, token=second.token, delay_ms=600_000))
assert isinstance(given, Changed) and given.phase == "delayed" and given.remaining_ms > 0, given
assert [job.id for job in list_jobs.sync(client=client, queue="t:mails").jobs] == [second.id]
left = job.sync(client=client, id=second.id)
assert isinstance(left, JobWithBody) and (left.body, left.attempts) == ("to: cat", 1), left
assert pop_jobs.sync(client=client, body=Pop(queues=["t:mails"])).jobs == []
print("added, claimed and done")
