"""Runs commands and programs as processes of their own, forked from one that has imported what takes seconds.

What a command imports by itself is asked of processes forked from another, which has imported Typer alone.
"""

import atexit
import json
import socket
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace

ALL = """
import contextlib, io
import torch._dynamo  # by every training
import jinja2, matplotlib.figure  # by every report
import polars, sklearn.metrics, sklearn.model_selection, typer.rich_utils
import fracdnn.cli.app, fracdnn.cli.options, fracdnn.cli.predict, fracdnn.cli.train
import tests.cli.interrupted

with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(SystemExit):
    fracdnn.cli.app.app(["info", "nothing"])  # Typer imports pydantic when it first reads an argument
"""
PARENT = """
import json, os, resource, runpy, signal, sys, traceback, warnings

import fracdnn.cli.app
from fracdnn.cli import main

def child(request, rank):
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        flags = os.O_RDONLY if number == 0 else os.O_WRONLY
        name = name if number == 0 else f"{name}{rank}"
        os.dup2(os.open(os.path.join(request["files"], name), flags), number)
    os.chdir(request["cwd"][rank])
    os.environ.update(request["env"])
    if request["port"]:
        signal.alarm(120)  # whatever hangs ends
        count = str(request["count"])
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=count, LOCAL_WORLD_SIZE=count)
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(request["port"]))
        import torch
        torch.set_num_threads(1)
    sys.modules.update(dict.fromkeys(request["missing"]))
    if request["file_size"]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["file_size"],) * 2)
    if request["moment"]:
        from tests.cli.interrupted import interrupt_at
        interrupt_at(request["moment"])
    if request["program"]:
        warnings.simplefilter("error")
        runpy.run_path(request["program"], run_name="__main__")
    else:
        sys.argv = ["fracdnn", *request["arguments"]]
        main()

def forked(request, rank):
    pid = os.fork()
    if pid:
        return pid
    code = 0
    try:
        child(request, rank)
    except SystemExit as done:
        code = done.code or 0
    except BaseException:
        traceback.print_exc()
        code = 1
    if request["light"]:
        with open(os.path.join(request["files"], "imported"), "w", encoding="utf-8") as file:
            print(*sys.modules, file=file)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)

for line in sys.stdin:
    request = json.loads(line)
    pids = [forked(request, rank) for rank in range(request["count"])]
    print(*(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids), flush=True)
"""


@lru_cache
def _parent(light):
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT if light else ALL + PARENT],
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


def run(*arguments, cwd, stdin="", file_size=0, missing=(), moment=None, **environment):
    """`fracdnn` with these arguments: return code and what it wrote.

    `file_size` limits the files it may write; it cannot import modules that are `missing`; `moment` is when it gets
    Ctrl-C (see `interrupted`). Any other keyword is a variable of its environment.
    """
    request = {"arguments": [str(argument) for argument in arguments], "file_size": file_size, "missing": missing}
    return _done({**request, "moment": moment, "program": None}, cwd, stdin, environment=environment)[0]


def run_light(*arguments, cwd, **environment):
    """The same from a process that has imported no more than the list of commands; `imported` names all modules."""
    request = {"arguments": [str(argument) for argument in arguments], "file_size": 0, "missing": (), "moment": None}
    return _done({**request, "program": None}, cwd, light=True, environment=environment)[0]


def run_ranks(count, *arguments, cwd, file_size=0, moment=None):
    """`fracdnn` on so many processes at once, as torchrun starts them: what `run` gives, of each.

    `cwd` is a folder for all, or a list with one for each, as on machines with disks of their own.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    request = {"arguments": [str(argument) for argument in arguments], "file_size": file_size, "missing": ()}
    return _done({**request, "moment": moment, "program": None}, cwd, count=count, port=port)


def run_program(path, *, cwd):
    """A file of Python, with warnings as errors: return code and what it wrote."""
    return _done({"file_size": 0, "missing": (), "moment": None, "program": str(path)}, cwd)[0]


def _done(request, cwd, stdin="", count=1, port=0, light=False, environment=None):
    with tempfile.TemporaryDirectory() as files:
        written = [f"{name}{rank}" for name in ("stdout", "stderr") for rank in range(count)]
        for name in ("stdin", *written):
            (Path(files) / name).write_text(stdin if name == "stdin" else "", encoding="utf-8")
        folders = cwd if isinstance(cwd, list) else [cwd] * count
        request = {
            **request,
            "cwd": [str(each) for each in folders],
            "env": {"NO_COLOR": "1", "COLUMNS": "200", **(environment or {})},
            "files": files,
        }
        parent = _parent(light)
        parent.stdin.write(json.dumps({**request, "count": count, "port": port, "light": light}) + "\n")
        parent.stdin.flush()
        codes = [int(code) for code in parent.stdout.readline().split()]
        texts = [(Path(files) / name).read_text(encoding="utf-8") for name in written]
        imported = set((Path(files) / "imported").read_text(encoding="utf-8").split()) if light else None
    return [
        SimpleNamespace(returncode=code, stdout=out, stderr=err, imported=imported)
        for code, out, err in zip(codes, texts[:count], texts[count:], strict=True)
    ]
