"""Jobs for processes of their own: light to import, since each process does."""

import os


def upper(job):
    if job == "dies":
        os._exit(1)
    if job == "raises":
        raise ArithmeticError("no such letter")
    return job.upper()
