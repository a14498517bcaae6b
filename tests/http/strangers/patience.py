"""No request waits longer than a second: the one that asks has its own patience, and gives up before a lock is free."""

import schemathesis

LONGEST = 1

# Requests that wait for a minute if they do not set `wait`.
PATIENT = ("/v1/leases/reset", "/v1/leases/wait", "/v1/locks/watch")


def shortened(members, path):
    if not isinstance(members, dict):
        return members
    wait = members.get("wait", 60 if path in PATIENT else 0)
    # Values that the description does not allow are sent unchanged.
    if isinstance(wait, int) and not isinstance(wait, bool) and LONGEST < wait <= 3600:
        return {**members, "wait": LONGEST}
    return members


@schemathesis.hook
def map_body(context, body):
    return shortened(body, context.operation.path)


@schemathesis.hook
def map_query(context, query):
    return shortened(query, context.operation.path)
