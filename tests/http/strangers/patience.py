"""No request waits longer than a second: the one that asks has its own patience, and gives up before a lock is free."""

import schemathesis

LONGEST = 1


def shortened(members):
    if isinstance(members, dict):
        wait = members.get("wait")
        # What the description does not allow is sent as it is.
        if isinstance(wait, int) and not isinstance(wait, bool) and LONGEST < wait <= 3600:
            members = {**members, "wait": LONGEST}
    return members


@schemathesis.hook
def map_body(context, body):
    return shortened(body)


@schemathesis.hook
def map_query(context, query):
    return shortened(query)
