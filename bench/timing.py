"""Times of repeated calls, for peers_steps.py and peers_predict.py."""
import time


def sorted_seconds(call, count):
    """Calls three times to warm up, then `count` times; returns the seconds of each, shortest first."""
    for _ in range(3):
        call()
    seconds = []
    for _ in range(count):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return sorted(seconds)
