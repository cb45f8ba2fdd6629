"""`python tools/smoke.py`: everything that README shows, by the fracdnn that this Python has installed.

It takes the standard library alone, for an environment that holds a wheel and nothing else. Each block of Python runs
in a process of its own with warnings as errors, and must print what its comments say; commands run on a small table.
Where extras are missing, what needs them must name the extra in one line. `--times` also holds imports to their limits.
"""

import argparse
import ast
import csv
import random
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"
# What a program says without an extra: fracdnn's own line, or, where it imports scikit-learn itself, Python's.
MISSING = re.compile(r"\S+ is missing: run pip install 'fracdnn\[\w+\]'|No module named 'sklearn'")
# What README only names, of extras that nothing else here runs; it must print True.
FURTHER = {
    "export to ONNX": """
from pathlib import Path
from sklearn.datasets import load_iris
from fracdnn import FractionalClassifier
FractionalClassifier(max_iter=5, random_state=0).fit(*load_iris(return_X_y=True)).export("iris.onnx")
print(Path("iris.onnx").stat().st_size > 1000)
""",
    "a fit": """
import fracdnn, torch
t = torch.linspace(0, 1, 20, dtype=torch.float64)
result = fracdnn.fit(lambda t, a: a * t, {"a": 1.0}, t, 2 * t + 0.01 * torch.sin(9 * t))
print(abs(result.values["a"] - 2) < 0.1)
""",
}
# Seconds of CPU, the least of some tries.
LIMITS = {"import fracdnn": 0.1, "from fracdnn.nn import FractionalStack": 0.2}


def python_blocks(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


def commands(text: str) -> list[str]:
    """Return the lines that start with the command, without their comments."""
    return re.findall(r"^ {4}(fracdnn .*?)(?: +#.*)?$", text, flags=re.MULTILINE)


def differences(code: str, printed: str) -> list[str]:
    """Where a program printed something else than the comments of its calls `print(…)` say, to their digits."""
    lines = code.splitlines()
    comments = [lines[end - 1].rpartition("# ")[2].partition(" (")[0] for end in last_lines_of_prints(code)]
    said, found = " ".join(comments).split(), printed.split()
    if len(said) != len(found) or not said:
        return [f"{len(said)} values announced, {len(found)} printed: {printed!r}"]
    return [
        f"{text} announced, {value} printed" for text, value in zip(said, found, strict=True) if not agree(text, value)
    ]


def last_lines_of_prints(code: str) -> list[int]:
    """Where the calls of `print` end, by number from 1; those in functions and loops do not count."""
    calls = [each.value for each in ast.parse(code).body if isinstance(each, ast.Expr)]
    return [
        call.end_lineno or 0
        for call in calls
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "print"
    ]


def agree(text: str, value: str) -> bool:
    if re.fullmatch(r"-?\d+\.\d+", text):
        return abs(float(text) - float(value)) <= 0.51 * 10 ** -len(text.partition(".")[2])
    return text == value


def run(*arguments: str, cwd: str) -> subprocess.CompletedProcess[str]:
    """Run Python without the folder it is in or PYTHONPATH, so that only what is installed is imported."""
    return subprocess.run([sys.executable, "-I", *arguments], cwd=cwd, capture_output=True, text=True)


def write_tables(folder: Path) -> None:
    """`measurements.csv` with two kinds of rows, and `new.csv` without their labels."""
    draw = random.Random(0)
    kinds = {"low": -1.0, "high": 1.0}
    rows = [(draw.gauss(at, 0.4), draw.gauss(-at, 0.4), label) for label, at in kinds.items() for _ in range(40)]
    for name, width in (("measurements.csv", 3), ("new.csv", 2)):
        with (folder / name).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("x", "y", "label")[:width], *(row[:width] for row in rows)])


def faults(text: str, folder: Path) -> list[str]:
    """What did not go as README says; prints a line for each part."""
    found = []
    for number, code in enumerate(python_blocks(text), 1):
        done = run("-W", "error", "-c", code, cwd=str(folder))
        wrong = differences(code, done.stdout) if done.returncode == 0 else [done.stderr]
        found += report(f"Python, block {number}", done, wrong)
    for what, code in FURTHER.items():
        done = run("-W", "error", "-W", "ignore::DeprecationWarning", "-c", code, cwd=str(folder))
        found += report(what, done, [] if done.stdout.endswith("True\n") else [done.stdout + done.stderr])
    write_tables(folder)
    for line in commands(text):
        done = run("-W", "error", "-m", *shlex.split(line), cwd=str(folder))
        found += report(line, done, [] if done.returncode == 0 else [done.stderr])
    return found


def report(what: str, done: subprocess.CompletedProcess[str], wrong: list[str]) -> list[str]:
    missing = MISSING.search(done.stderr)
    if missing and done.returncode != 0:
        print(f"as it should be without an extra: {what}: {missing[0]}")
        return []
    print(f"{'FAILED' if wrong else 'passed'}: {what}")
    return [f"{what}: {each}" for each in wrong]


def seconds(before: str, statement: str, folder: str, tries: int = 7) -> float:
    """CPU time of a statement after another, the least of some new processes."""
    code = f"{before}\nimport time\nstart = time.process_time()\n{statement}\nprint(time.process_time() - start)"
    return min(float(run("-W", "error", "-c", code, cwd=folder).stdout) for _ in range(tries))


def slow_imports(folder: str) -> list[str]:
    found = []
    for statement, limit in LIMITS.items():
        before = "import torch" if "fracdnn.nn" in statement else ""
        taken = seconds(before, statement, folder)
        print(f"{statement}{' after torch' if before else ''}: {taken:.3f} s (at most {limit} s)")
        found += [f"{statement} takes {taken:.3f} s, more than {limit} s"] if taken > limit else []
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Run all that README shows, by what is installed.")
    parser.add_argument("--extras", action="store_true", help="fail where an extra is missing")
    parser.add_argument("--times", action="store_true", help="hold imports to their limits")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        where = run("-c", "import fracdnn; print(fracdnn.__file__)", cwd=folder)
        if where.returncode:
            sys.exit(where.stderr)
        print(f"fracdnn of {Path(where.stdout.strip()).parent}")
        if options.extras and run("-c", "import lmfit, onnx, typer", cwd=folder).returncode:
            sys.exit("not all extras are installed: run pip install 'fracdnn[all]'")
        print(run("-m", "fracdnn", "info", "--system", cwd=folder).stdout)
        found = faults(README.read_text(encoding="utf-8"), Path(folder))
        found += slow_imports(folder) if options.times else []
    if found:
        sys.exit("\n".join(["", *found]))


if __name__ == "__main__":
    main()
