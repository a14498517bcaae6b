"""Works on jobs through greenstalk until the server ends: crash.py HOST PORT LOG SEED NUMBER.

Logs each request before it is sent and each reply after it arrived, one unbuffered line each, which begins with the
nanoseconds of CLOCK_MONOTONIC. Exits with 0 when the server closes the connection, and with an error otherwise.
"""

import os
import random
import socket
import sys
import time

import greenstalk

TUBES = ("shared-0", "shared-1")
FOR_EVER_S = 1_000_000
HELD_MAX = 4
PATIENCE_S = 60

ADDRESS = (sys.argv[1], int(sys.argv[2]))
LOG = os.open(sys.argv[3], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
SEED, NUMBER = sys.argv[4:6]
CHANCE = random.Random(f"{SEED} {NUMBER}")
bodies = 0


def note(*words):
    line = " ".join(str(word) for word in (time.monotonic_ns(), *words))
    os.write(LOG, f"{line}\n".encode())


def put(client):
    global bodies
    bodies += 1
    body = f"greenstalk-{SEED}-{NUMBER}-{bodies}"
    client.use(CHANCE.choice(TUBES))
    note("putting", body)
    id = client.put(body, priority=CHANCE.randrange(3), ttr=FOR_EVER_S)
    note("inserted", id, body)


def reserve(client, held):
    note("reserving")
    try:
        job = client.reserve(timeout=CHANCE.randrange(2))
    except greenstalk.TimedOutError:
        note("timed-out")
        return
    note("reserved", job.id, job.body)
    held.append(job)


def finish(client, held):
    job = held.pop(0)
    if CHANCE.randrange(4) > 0:
        note("deleting", job.id)
        client.delete(job)
        note("deleted", job.id)
    else:
        note("releasing", job.id)
        client.release(job, priority=1)
        note("released", job.id)


def work(client, held):
    for _ in range(20 + CHANCE.randrange(200)):
        choice = CHANCE.randrange(10)
        if choice < 4:
            put(client)
        elif choice < 7 and len(held) < HELD_MAX or not held:
            reserve(client, held)
        else:
            finish(client, held)


def connection():
    """Works for a while, then closes with jobs still reserved, which go back."""
    held = []
    with socket.create_connection(ADDRESS, PATIENCE_S) as connected:
        try:
            work(greenstalk.Client(connected, watch=TUBES), held)
        except AssertionError:
            # greenstalk asserts that a reply is complete: it may be cut off by the end of the connection, and by nothing else.
            if connected.recv(1) != b"":
                raise
            raise ConnectionError("closed in the middle of a reply") from None
        finally:
            for job in held:
                note("parting", job.id)


try:
    while True:
        connection()
except TimeoutError:
    raise
except OSError:
    pass  # The server is gone.
