"""The campaign's seed at its start, so that every process has the same, and what was tried at its end."""

from tests.campaign import budget


def pytest_configure():
    budget.seed()


def pytest_terminal_summary(terminalreporter):
    if not budget.full():
        return
    reports = [r for key in ("passed", "failed") for r in terminalreporter.getreports(key)]
    lines = [line for r in reports for line in r.capstdout.splitlines() if line.startswith("campaign: ")]
    terminalreporter.section(f"campaign, seed {budget.seed()}")
    for line in sorted(lines):
        terminalreporter.line(line.removeprefix("campaign: "))
