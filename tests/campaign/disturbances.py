"""`python -m tests.campaign.disturbances COUNT FOLDER SEED`: trainings in a folder, disturbed at random moments.

Each is `fracdnn train --run --resume`, by one process or by torchrun with two, begun again after each disturbance until
it ends by itself. It must end at the bits of an undisturbed run, say in one line why it stopped before, and not train
again when it is done. Prints for each run its number of processes, disturbances and exit codes as JSON.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch

import fracdnn
from fracdnn.cli import main as command
from fracdnn.container import read_document
from fracdnn.datasets import make_level_set
from tests.campaign.kills import same

WAYS = ("SIGKILL", "SIGTERM", "SIGINT", "SIGSTOP, SIGCONT", "SIGSTOP, SIGKILL", "full disk")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
TORCHRUN += ["--monitor-interval", "0.1", "-m", "--", "fracdnn"]
OPTIONS = ["train", "table.csv", "--target", "y", "--resume", "--max-iter", "150"]
OPTIONS += ["--optimizer", "lbfgs", "--width", "6", "--activation", "tanh"]
ENDS = {"SIGKILL": -signal.SIGKILL, "SIGTERM": 143, "SIGINT": 130, "SIGSTOP, SIGKILL": -signal.SIGKILL, "full disk": 1}


class Attempt:
    """A process that trains in a folder `run`: a fork of this one, which has imported all, or torchrun."""

    def __init__(self, folder: Path, run: str, *, by_torchrun: bool) -> None:
        self.said = folder / "stderr"
        arguments = [*OPTIONS, "--run", run]
        self.job = None
        if by_torchrun:
            with self.said.open("wb") as said:
                self.job = subprocess.Popen([*TORCHRUN, *arguments], cwd=folder, stdout=subprocess.DEVNULL, stderr=said)
            self.pid = self.job.pid
            return
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                os.chdir(folder)
                os.dup2(os.open(self.said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
                signal.signal(signal.SIGINT, signal.default_int_handler)
                sys.argv = ["fracdnn", *arguments]
                command()
                code = 0
            except SystemExit as done:
                code = done.code or 0
            finally:
                sys.stderr.flush()
                os._exit(code)

    def send(self, number: signal.Signals) -> None:
        if not self.ended:
            os.kill(self.pid, number)

    @property
    def ended(self) -> bool:
        if self.job is not None:
            return self.job.poll() is not None
        found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return found is not None

    def end(self) -> tuple[int, str]:
        """The exit code, and what it said of errors."""
        code = self.job.wait(300) if self.job else os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        text = self.said.read_text(encoding="utf-8")
        if self.job is None and "Traceback" in text:
            raise SystemExit(f"an error without its line:\n{text}")
        return code, text


def whole(folder: Path, *, by_torchrun: bool) -> float:
    """Seconds of an undisturbed run, in the folder `whole`."""
    start = time.monotonic()
    code, said = Attempt(folder, "whole", by_torchrun=by_torchrun).end()
    if code:
        raise SystemExit(f"the undisturbed run ended with {code}: {said}")
    return time.monotonic() - start


def holds_lock(attempt: Attempt, lock: Path) -> bool:
    """Not one that a kill has left, which anybody may take."""
    return lock.exists() and f"process {attempt.pid} on " in lock.read_text(encoding="utf-8") and not attempt.ended


def disturb(folder: Path, way: str, chosen: random.Random, seconds: float) -> int:
    """One attempt by one process, disturbed so; its exit code."""
    run = folder / "run"
    if way == "full disk":
        run.mkdir(exist_ok=True)
        kept = {path.name: path.read_bytes() for path in run.iterdir()}
        size = sum(-(-len(content) // 4096) * 4 for content in kept.values()) + chosen.randint(8, 40)  # whole pages
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}k", "none", run], check=True)
        try:
            for name, content in kept.items():
                (run / name).write_bytes(content)
            code, said = Attempt(folder, "run", by_torchrun=False).end()
            left = {path.name: path.read_bytes() for path in run.iterdir()}
        finally:
            subprocess.run(["umount", run], check=True)
        shutil.rmtree(run)
        run.mkdir()
        for name, content in left.items():
            (run / name).write_bytes(content)
        if code and [line for line in said.splitlines() if "No space left" in line] != said.splitlines()[-1:]:
            raise SystemExit(f"a full disk must be told in one last line, got:\n{said}")
        return code
    attempt = Attempt(folder, "run", by_torchrun=False)
    time.sleep(chosen.uniform(0.0, seconds))
    for name in way.split(", "):
        attempt.send(signal.Signals[name])
        if name == "SIGSTOP" and holds_lock(attempt, run / "train.lock"):
            shutil.move(attempt.said, folder / "stopped")
            code, said = Attempt(folder, "run", by_torchrun=False).end()
            shutil.move(folder / "stopped", attempt.said)
            if code != 1 or "is in use by the training of" not in said:
                raise SystemExit(f"a second training must be refused, got {code}:\n{said}")
    return attempt.end()[0]


def disturb_launcher(folder: Path, way: str, chosen: random.Random, seconds: float) -> list[int]:
    """Torchrun killed or told to end, then started again until it is done; exit codes."""
    attempt = Attempt(folder, "run", by_torchrun=True)
    time.sleep(chosen.uniform(0.3, 1.0) * seconds)
    attempt.send(signal.Signals[way])
    codes = [attempt.end()[0]]
    for _ in range(60):
        code, said = Attempt(folder, "run", by_torchrun=True).end()
        codes.append(code)
        if code == 0:
            return codes
        told = [line for line in said.splitlines() if line.startswith("fracdnn: ")]
        if not told or "is in use by the training of" not in told[-1]:
            raise SystemExit(f"must be refused while the workers go on, got {code}:\n{said}")
        time.sleep(0.5)
    raise SystemExit(f"did not end: {codes}")


def check(folder: Path, *, by_torchrun: bool) -> None:
    """The same bits as the undisturbed run; once more it has nothing to do."""
    ours, theirs = (read_document(folder / name / "model.fracdnn", "model") for name in ("run", "whole"))
    if not same(ours, theirs):
        raise SystemExit(f"{folder}: not the model of the undisturbed run")
    files = {path: path.read_bytes() for path in (folder / "run").iterdir()}
    code, said = Attempt(folder, "run", by_torchrun=by_torchrun).end()
    if code or files != {path: path.read_bytes() for path in (folder / "run").iterdir()}:
        raise SystemExit(f"{folder}: what is done must stay as it is, got {code}:\n{said}")


def main(count: int, place: Path, seed: int) -> None:
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    X, y = make_level_set(200, random_state=0)
    # By hand: Polars must not have worked before a fork.
    rows = [f"{a},{b},{label}" for (a, b), label in zip(X, y, strict=True)]
    fracdnn.FractionalClassifier(max_iter=1, width=6, activation="tanh", optimizer="lbfgs").fit(X, y)  # imports all
    seconds = {}
    for by_torchrun in (False, True):
        folder = place / f"whole-{by_torchrun}"
        folder.mkdir(parents=True)
        (folder / "table.csv").write_text("a,b,y\n" + "\n".join(rows), encoding="utf-8")
        seconds[by_torchrun] = whole(folder, by_torchrun=by_torchrun)
    chosen = random.Random(seed)
    for number in range(count):
        by_torchrun = number % 6 == 5
        folder = place / str(number)
        shutil.copytree(place / f"whole-{by_torchrun}", folder)
        if by_torchrun:
            ways = [chosen.choice(["SIGKILL", "SIGTERM"])]
            codes = disturb_launcher(folder, ways[0], chosen, seconds[True])
        else:
            ways = [chosen.choice(WAYS) for _ in range(chosen.randint(1, 4))]
            codes = [disturb(folder, way, chosen, seconds[False]) for way in ways]
            for way, code in zip(ways, codes, strict=True):
                if code not in (0, ENDS.get(way, 0)):
                    raise SystemExit(f"{folder}: {way} must end with {ENDS.get(way, 0)}, got {code}")
            code, said = Attempt(folder, "run", by_torchrun=False).end()
            if code:
                raise SystemExit(f"{folder}: the last attempt ended with {code}:\n{said}")
        check(folder, by_torchrun=by_torchrun)
        print(json.dumps({"processes": 1 + by_torchrun, "ways": ways, "codes": codes}), flush=True)
        shutil.rmtree(folder)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
