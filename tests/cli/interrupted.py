"""Ctrl-C at a moment of a command's own work.

A moment is a number, the iteration or the tick of a progress bar at which the signal comes, or the name of a
file that is written and about to be put in its place. The signal is a real one and the process is a real one; only the
moment is no matter of time.
"""

import signal
from pathlib import Path

from rich.progress import Progress

from fracdnn.training.progress import Log

ticks = last_iteration = 0


def interrupt_at(moment):
    """In this process, at this moment."""

    def counted(method):
        def tick(self, *arguments, **options):
            global ticks, last_iteration
            is_tick = True
            if isinstance(self, Log):  # Members side by side count once per iteration, those in turn each for itself.
                is_tick = arguments[0].iteration != last_iteration
                last_iteration = arguments[0].iteration
            ticks += is_tick
            if is_tick and str(ticks) == moment:
                signal.raise_signal(signal.SIGINT)
            return method(self, *arguments, **options)

        return tick

    def watched(move):
        def into_place(temporary, path):
            if Path(path).name == moment:
                signal.raise_signal(signal.SIGINT)
            return move(temporary, path)

        return into_place

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    Progress.update, Log.add = counted(Progress.update), counted(Log.add)
    Path.replace = watched(Path.replace)
