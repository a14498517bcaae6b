"""What an application does with greenstalk, against the server at HOST PORT. Ends with the line `ok`."""

import sys
import threading

import greenstalk

ADDRESS = (sys.argv[1], int(sys.argv[2]))


def refused(kind, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except kind:
        return
    raise AssertionError(f"{kind.__name__} was expected of {call}")


def a_job_is_put_reserved_and_deleted():
    with greenstalk.Client(ADDRESS, use="mail", watch="mail") as client:
        later = client.put("later", priority=10)
        sooner = client.put("søoner\r\n", priority=1)
        job = client.reserve()
        assert (job.id, job.body) == (sooner, "søoner\r\n"), job
        client.touch(job)
        client.release(job, priority=20)
        job = client.reserve(timeout=0)
        assert job.id == later, job
        client.bury(job)
        assert client.peek_buried().id == later
        assert client.kick(5) == 1
        assert client.stats_job(later)["kicks"] == 1
        for id in (later, sooner):
            client.delete(id)
        refused(greenstalk.NotFoundError, client.delete, later)
        refused(greenstalk.TimedOutError, client.reserve, timeout=0)
        assert client.stats_tube("mail")["cmd-delete"] == 2


def time_passes():
    with greenstalk.Client(ADDRESS, use="slow", watch="slow") as client:
        delayed = client.put("delayed", delay=1, ttr=1)
        assert client.peek_delayed().id == delayed
        job = client.reserve(timeout=30)
        assert job.id == delayed
        refused(greenstalk.DeadlineSoonError, client.reserve, timeout=30)
        with greenstalk.Client(ADDRESS, watch="slow") as other:
            again = other.reserve(timeout=30)
            assert again.id == delayed
            assert other.stats_job(delayed)["timeouts"] == 1
            refused(greenstalk.NotFoundError, client.delete, job)
            other.delete(again)


def whoever_goes_gives_back():
    with greenstalk.Client(ADDRESS, use="shared", watch="shared") as producer:
        worker = greenstalk.Client(ADDRESS, watch="shared")
        id = producer.put(b"\x00\xff")
        # Bytes as they are need no encoding, and a client that has one cannot read them.
        worker.encoding = None
        job = worker.reserve()
        assert (job.id, job.body) == (id, b"\x00\xff"), job
        worker.close()
        producer.encoding = None
        assert producer.reserve(timeout=30).id == id
        producer.delete(id)


def several_work_at_once():
    jobs, workers = 400, 8
    done, lock = [], threading.Lock()

    def work():
        with greenstalk.Client(ADDRESS, watch="many") as client:
            while True:
                job = client.reserve()
                client.delete(job)
                if job.body == "stop":
                    return
                with lock:
                    done.append(int(job.body))

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    with greenstalk.Client(ADDRESS, use="many") as client:
        for number in range(jobs):
            client.put(str(number))
        for _ in threads:
            client.put("stop", priority=2**32 - 1)
    for thread in threads:
        thread.join()
    assert sorted(done) == list(range(jobs)), done


a_job_is_put_reserved_and_deleted()
time_passes()
whoever_goes_gives_back()
several_work_at_once()
print("ok")
