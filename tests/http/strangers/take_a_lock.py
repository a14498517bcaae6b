"""Takes and gives back a lock with a client that openapi-python-client made of the served description.

Arguments: the folder of the generated package `sexton_client`, and the address of the HTTP listener.
"""

import sys

sys.path.insert(0, sys.argv[1])

from sexton_client import Client
from sexton_client.api.default import acquire_lock, list_locks, lock_owner, release_lock, status
from sexton_client.models import Acquire, EndedEntries, Granted, LockOwner, Locks, Problem, Target

client = Client(base_url=f"http://{sys.argv[2]}")
granted = acquire_lock.sync(client=client, body=Acquire(key="backup", owner="one", ttl=30))
assert isinstance(granted, Granted) and granted.place == 1 and granted.token > 0, granted
refused = acquire_lock.sync(client=client, body=Acquire(key="backup", owner="two"))
assert isinstance(refused, Problem) and (refused.status, refused.reason) == (409, "held"), refused
holder = lock_owner.sync(client=client, key="backup")
assert isinstance(holder, LockOwner) and holder.owner == "one", holder
locks = list_locks.sync(client=client)
assert isinstance(locks, Locks) and [lock.token for lock in locks.locks] == [granted.token], locks
assert status.sync(client=client).lock_owners == 1
stale = Target(key="backup", owner="one", token=granted.token - 1)
assert release_lock.sync(client=client, body=stale).status == 409
ended = release_lock.sync(client=client, body=Target(key="backup", owner="one", token=granted.token))
assert isinstance(ended, EndedEntries) and ended.ended == 1, ended
print("taken and given back")
