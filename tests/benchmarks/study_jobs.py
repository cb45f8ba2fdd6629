"""Jobs for processes of the study's runner: light to import, since each process does."""

import os


def upper(job):
    if job == "dies":
        os._exit(1)
    return job.upper()
