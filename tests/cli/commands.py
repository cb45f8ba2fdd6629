"""Runs commands and programs as processes of their own, forked from one that has imported what takes seconds."""

import atexit
import json
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace

PARENT = """
import json, os, resource, runpy, sys, traceback, warnings

import torch._dynamo  # by every training
import fracdnn.cli.app, fracdnn.cli.train
from fracdnn.cli import main
from tests.cli.interrupted import interrupt_at

def child(request):
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        flags = os.O_RDONLY if number == 0 else os.O_WRONLY
        os.dup2(os.open(os.path.join(request["files"], name), flags), number)
    os.chdir(request["cwd"])
    os.environ.update(request["env"])
    sys.modules.update(dict.fromkeys(request["missing"]))
    if request["file_size"]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["file_size"],) * 2)
    if request["moment"]:
        interrupt_at(request["moment"])
    if request["program"]:
        warnings.simplefilter("error")
        runpy.run_path(request["program"], run_name="__main__")
    else:
        sys.argv = ["fracdnn", *request["arguments"]]
        main()

for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        code = 0
        try:
            child(json.loads(line))
        except SystemExit as done:
            code = done.code or 0
        except BaseException:
            traceback.print_exc()
            code = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


@lru_cache(maxsize=1)
def _parent():
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )

    def end():
        process.stdin.close()
        process.wait()
        process.stdout.close()

    atexit.register(end)
    return process


def run(*arguments, cwd, stdin="", file_size=0, missing=(), moment=None):
    """`fracdnn` with these arguments: return code and what it wrote.

    `file_size` limits the files it may write; it cannot import modules that are `missing`; `moment` is when it gets
    Ctrl-C (see `interrupted`).
    """
    request = {"arguments": [str(argument) for argument in arguments], "file_size": file_size, "missing": missing}
    return _done({**request, "moment": moment, "program": None}, cwd, stdin)


def run_program(path, *, cwd):
    """A file of Python, with warnings as errors: return code and what it wrote."""
    return _done({"file_size": 0, "missing": (), "moment": None, "program": str(path)}, cwd)


def _done(request, cwd, stdin=""):
    with tempfile.TemporaryDirectory() as files:
        for name in ("stdin", "stdout", "stderr"):
            (Path(files) / name).write_text(stdin if name == "stdin" else "", encoding="utf-8")
        request = {**request, "cwd": str(cwd), "env": {"NO_COLOR": "1", "COLUMNS": "200"}, "files": files}
        parent = _parent()
        parent.stdin.write(json.dumps(request) + "\n")
        parent.stdin.flush()
        code = int(parent.stdout.readline())
        out, err = ((Path(files) / name).read_text(encoding="utf-8") for name in ("stdout", "stderr"))
    return SimpleNamespace(returncode=code, stdout=out, stderr=err)
