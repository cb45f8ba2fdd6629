"""The reports are made once in a process."""

import pytest

from fracdnn.report.html import write_report
from tests.browser.chromium import ARGUMENTS, CHROMIUM, playwright  # noqa: F401
from tests.report.cases import CASES, INJECTION


class Cases(dict):
    """By name the fitted estimator, held-out samples and the report's path: each made when a test first asks for it."""

    def __init__(self, folder):
        super().__init__()
        self.folder = folder

    def __missing__(self, name):
        data, estimator = CASES[name]
        X, X_test, y, y_test = data()
        estimator.fit(X, y)
        title = INJECTION if name == "bad names" else f"Report of {name}"
        path = self.folder / f"{name}.html"
        write_report(path, estimator, X_test, y_test, title=title, details={"file": title})
        self[name] = (estimator, X_test, y_test, path)
        return self[name]


@pytest.fixture(scope="session")
def cases(tmp_path_factory):
    return Cases(tmp_path_factory.mktemp("reports"))


@pytest.fixture(scope="module")
def browser(playwright):  # noqa: F811
    found = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
    yield found
    found.close()
