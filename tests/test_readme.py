"""What the README shows was run, and prints what it says."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def test_the_python_in_the_readme_prints_what_its_comments_say():
    for code in re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL):
        run = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        said = [
            number
            for line in code.splitlines()
            if line.startswith("print(")
            for number in re.findall(r"\d+\.\d+", line.rpartition("#")[2].partition("(")[0])
        ]
        printed = [float(number) for number in run.stdout.split()]
        assert len(said) == len(printed) > 0
        for text, value in zip(said, printed, strict=True):
            decimals = len(text.partition(".")[2])
            assert abs(float(text) - value) <= 0.51 * 10**-decimals
