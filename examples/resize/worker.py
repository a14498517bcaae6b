#!/usr/bin/env python3
"""A worker that shrinks pictures, with greenstalk, on sexton or beanstalkd. Ends when no job is ready.

    pip install greenstalk
    sexton queue push resize 'cat.ppm 40'
    ./worker.py 127.0.0.1 11300

`resize` in the same directory does this as a plain script under `sexton work`.
"""
import sys

import greenstalk
import picture

TRIES_MAX = 3

with greenstalk.Client((sys.argv[1], int(sys.argv[2])), watch="resize") as queue:
    while True:
        try:
            job = queue.reserve(timeout=0)
        except greenstalk.TimedOutError:
            break
        try:
            print(picture.shrink(job.body))
        except Exception as error:
            # The protocol cannot record the reason: it is only in this worker's output.
            print(f"job {job.id}: {error}", file=sys.stderr)
            if queue.stats_job(job)["reserves"] < TRIES_MAX:
                queue.release(job, delay=60)
            else:
                queue.bury(job)
        else:
            queue.delete(job)
