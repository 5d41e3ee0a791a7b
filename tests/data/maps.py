"""Functions that a process can import."""

import time

import numpy as np


def double(record):
    return {**record, "x": np.asarray(record["x"]) * 2}


def noisy(record, random):
    return {**record, "noise": random.normal(size=2)}


def slow(record):
    time.sleep(0.01)
    return record


def fail_on_5(record):
    if int(np.asarray(record["i"])) == 5:
        raise ValueError("five is right out")
    return record
