"""Ranks as threads of one process, which really wait for one another: who waits in vain fails."""

import threading

LIMIT = 30.0  # seconds after which a rank that should have been joined by the others is a failure


class ThreadGroup:
    """One of `size` ranks that meet at a barrier."""

    def __init__(self, rank, size, box, barrier):
        self.rank, self.size, self.box, self.barrier, self.calls = rank, size, box, barrier, 0

    def all_gather(self, data):
        self.calls += 1
        self.box[self.rank] = data
        self.barrier.wait(LIMIT)
        every = list(self.box)
        self.barrier.wait(LIMIT)
        return every

    def broadcast(self, data):
        return self.all_gather(data or b"")[0]


def on_all(size, task):
    """What `task(group)` gave, or raised, on each of `size` ranks."""
    box, barrier, answers = [b""] * size, threading.Barrier(size), [None] * size

    def one(rank):
        try:
            answers[rank] = task(ThreadGroup(rank, size, box, barrier))
        except BaseException as raised:
            answers[rank] = raised

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers
