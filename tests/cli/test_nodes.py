"""Two machines in one: network namespaces with a cable between them; one machine is lost and replaced."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import polars as pl
import pytest

from fracdnn.container import read_document
from tests.campaign.kills import same

HOSTS = {"fracdnn-a": "10.213.77.1", "fracdnn-b": "10.213.77.2"}
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
TORCHRUN += ["--max-restarts", "5", "--rdzv-backend", "c10d", "--rdzv-endpoint", "10.213.77.1:29511"]
TRAIN = [
    "-m",
    "--",
    "fracdnn",
    "train",
    "t.csv",
    "--target",
    "y",
    "--resume",
    "--timeout",
    "60",
    "--optimizer",
    "lbfgs",
]
TRAIN += ["--max-iter", "400", "--n-members", "1"]


def ip(*arguments, check=True):
    return subprocess.run(["ip", *arguments], check=check, capture_output=True).returncode


@pytest.fixture
def hosts():
    if os.geteuid() or ip("netns", "add", "fracdnn-a", check=False):
        pytest.skip("network namespaces need the rights of root")
    try:
        ip("netns", "add", "fracdnn-b")
        ip("link", "add", "fdn-a", "netns", "fracdnn-a", "type", "veth", "peer", "name", "fdn-b", "netns", "fracdnn-b")
        for name, address in HOSTS.items():
            ip("-n", name, "addr", "add", f"{address}/24", "dev", f"fdn-{name[-1]}")
            for device in ("lo", f"fdn-{name[-1]}"):
                ip("-n", name, "link", "set", device, "up")
        yield list(HOSTS)
    finally:
        for name in HOSTS:
            ip("netns", "del", name, check=False)


def started(host, folder, run, log):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    environment |= {"GLOO_SOCKET_IFNAME": f"fdn-{host[-1]}"}
    command = ["ip", "netns", "exec", host, *TORCHRUN, "--rdzv-id", run, "--local-addr", HOSTS[host]]
    command += ["--rdzv-conf", f"is_host={int(host == 'fracdnn-a')}"]  # both have this machine's name
    with (folder / log).open("w") as said:
        return subprocess.Popen([*command, *TRAIN, "--run", run], cwd=folder, env=environment, stderr=said, stdout=said)


def processes_of(host):
    return [int(pid) for pid in subprocess.check_output(["ip", "netns", "pids", host]).split()]


@pytest.mark.slow
@pytest.mark.parametrize("lost", list(HOSTS)[1:])
def test_a_machine_that_is_lost_and_replaced(lost, hosts, tmp_path):
    """The documented line on two machines: it goes on from the checkpoint, to the bits of an undisturbed run."""
    a, b = np.random.default_rng(0).standard_normal((2, 400))
    pl.DataFrame({"a": a, "b": b, "y": np.sin(3 * a) * b}).write_csv(tmp_path / "t.csv")
    jobs = [started(host, tmp_path, "whole", f"whole-{host}") for host in hosts]
    assert [job.wait(300) for job in jobs] == [0, 0], (tmp_path / "whole-fracdnn-a").read_text()

    jobs = {host: started(host, tmp_path, "run", f"run-{host}") for host in hosts}
    checkpoint = tmp_path / "run" / "model.ckpt"
    end = time.monotonic() + 120
    while not checkpoint.exists() and time.monotonic() < end:
        time.sleep(0.05)
    for pid in processes_of(lost):
        os.kill(pid, signal.SIGKILL)
    jobs[lost].wait()
    jobs[lost] = started(lost, tmp_path, "run", "replaced")
    codes = [job.wait(300) for job in jobs.values()]
    said = "\n".join((tmp_path / name).read_text() for name in ("run-fracdnn-a", "replaced"))
    assert codes == [0, 0], said
    assert "--resume continues after iteration" in said
    ours, theirs = (read_document(tmp_path / name / "model.fracdnn", "model") for name in ("run", "whole"))
    assert same(ours, theirs)
