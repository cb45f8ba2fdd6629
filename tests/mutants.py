"""A mutation round over the numerical heart: small faults, drawn at random, each of which some test must notice.

    pytest --cov --cov-context=test --cov-report= TESTS     notes in .coverage which tests run which lines
    python -m tests.mutants --count 224 --seed 0            prints the mutants that survive

A mutant meets `--tests` tests that run its lines: small ones first, one of each function before the second of any.
"""

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from pathlib import Path
from queue import Queue

from coverage import CoverageData

ROOT = Path(__file__).parent.parent
HEART = "caputo/[!_]* memory/[!_]* optim/[!_]* nn/memory nn/stack nn/network nn/learned nn/operators"
HEART += " nn/architecture nn/stacked_pass training/objective training/evaluation"
SWAPPED = {ast.Add: ast.Sub, ast.Mult: ast.Div, ast.Lt: ast.LtE, ast.Gt: ast.GtE, ast.Eq: ast.NotEq, ast.And: ast.Or}
SWAPPED |= {ast.Is: ast.IsNot, ast.In: ast.NotIn}
SWAPPED |= {new: old for old, new in SWAPPED.items()}
KEYWORDS_LEFT_OUT = (None, "device", "strict", "maxsize")  # one device is all there is; checks and caches
TEXTS = (ast.Raise, ast.JoinedStr, ast.Assert, ast.Import, ast.ImportFrom)
TEXT_FUNCTIONS = ("extra_repr", "_described", "_shown")


def mutations_of(node):
    """What may go wrong with a node: the part to replace, and what to put there."""
    if isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in SWAPPED:
        yield node, changed(node, op=SWAPPED[type(node.op)]())
    elif isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in SWAPPED:
        yield node, changed(node, ops=[SWAPPED[type(node.ops[0])]()])
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node, node.operand
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield node, ast.Constant(node.value + 1 if type(node.value) is int else 2.0 * node.value or 1.0)
    elif isinstance(node, ast.Call):
        for word in node.keywords:
            if word.arg not in KEYWORDS_LEFT_OUT:
                yield node, changed(node, keywords=[each for each in node.keywords if each is not word])
    elif isinstance(node, ast.Return) and node.value and ast.unparse(node.value) != "None":
        yield node.value, ast.Constant(None)
    elif isinstance(node, ast.Subscript):
        for bound in (node.slice.lower, node.slice.upper) if isinstance(node.slice, ast.Slice) else (node.slice,):
            if isinstance(bound, ast.Name | ast.BinOp | ast.Attribute | ast.Call | ast.UnaryOp):
                yield bound, ast.BinOp(bound, ast.Add(), ast.Constant(1))
    if isinstance(node, ast.If | ast.IfExp):
        yield node.test, ast.Constant(True)
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        yield node.test, ast.Constant(False)
    if isinstance(node, ast.AugAssign) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        yield node, ast.Pass()


def changed(node, **fields):
    return type(node)(**({name: getattr(node, name) for name in node._fields} | fields))


def walk(node, statement=None, depth=0):
    """All nodes that may be mutated, each with its statement; no texts, errors, annotations or named constants."""
    named = depth == 1 and isinstance(node, ast.Assign | ast.AnnAssign) and not isinstance(node.value, ast.Dict)
    if named or isinstance(node, TEXTS) or getattr(node, "name", None) in TEXT_FUNCTIONS:
        return
    statement = node if isinstance(node, ast.stmt) else statement
    yield node, statement
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns", "decorator_list", "bases"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from walk(child, statement, depth + 1)


def mutants_of(file):
    """The file, the lines from the statement to the fault, the fault in words, and the whole file with it."""
    source = file.read_bytes()
    starts = [0, *accumulate(len(line) for line in source.splitlines(keepends=True))]
    for node, statement in walk(ast.parse(source)):
        for old, new in mutations_of(node):
            begin, end = starts[old.lineno - 1] + old.col_offset, starts[old.end_lineno - 1] + old.end_col_offset
            text = ast.unparse(ast.fix_missing_locations(new))
            put = (text if isinstance(new, ast.Pass) else f"({text})").encode()
            lines = range(min(statement.lineno, old.lineno), old.end_lineno + 1)
            yield file.relative_to(ROOT), lines, f"{ast.unparse(old)} → {text}", source[:begin] + put + source[end:]


def draw(count, seed):
    """So many mutants, file by file in turn."""
    dice = random.Random(seed)
    files = [file for part in HEART.split() for file in sorted((ROOT / "src/fracdnn").glob(f"{part}.py"))]
    decks = [dice.sample(deck, len(deck)) for deck in (list(mutants_of(file)) for file in files)]
    return [deck[turn] for turn in range(max(map(len, decks))) for deck in decks if turn < len(deck)][:count]


def tests_for(lines, tests_by_line, most):
    """The tests that run these lines; where only an import does, those of the whole file."""
    everywhere = Counter(name for names in tests_by_line.values() for name in names if name)
    touching = {name for line in lines for name in tests_by_line.get(line, ()) if name} or everywhere.keys()
    ranked, seen = {}, Counter()
    for name in sorted(touching, key=lambda name: (everywhere[name], name)):
        seen[name.partition("[")[0]] += 1
        ranked[name] = seen[name.partition("[")[0]]
    return [name.partition("|")[0] for name in sorted(ranked, key=ranked.get)[:most]]


def survives(file, source, tests, copies):
    copy = copies.get()
    # Without bytecode: two mutants of one size in one second would be taken for one.
    env = os.environ | {"PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    try:
        (copy / file).write_bytes(source)
        command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", *tests]
        run = subprocess.run(command, cwd=copy, env=env, capture_output=True, timeout=600)
        return run.returncode == 0 or b"ERROR: not found" in run.stderr  # a test whose name the mutant changes
    except subprocess.TimeoutExpired:
        return False
    finally:
        shutil.copy2(ROOT / file, copy / file)
        copies.put(copy)


def main():
    parser = argparse.ArgumentParser()
    for name, default in {"count": 224, "seed": 0, "tests": 100, "workers": 2}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    options, data, copies = parser.parse_args(), CoverageData(str(ROOT / ".coverage")), Queue()
    data.read()

    def judge(file, lines, fault, source):
        tests = tests_for(lines, data.contexts_by_lineno(str(ROOT / file)), options.tests)
        if not tests or survives(file, source, tests, copies):
            print(f"{file}:{lines[-1]}: {fault}", flush=True)
            return False
        return True

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.workers) as pool:
        for number in range(options.workers):
            copies.put(Path(shutil.copytree(ROOT, Path(folder, str(number)), ignore=shutil.ignore_patterns(".*"))))
        killed = list(pool.map(judge, *zip(*draw(options.count, options.seed), strict=True)))
    print(f"{sum(killed)} of {len(killed)} mutants killed")


if __name__ == "__main__":
    main()
