"""The reports are made once for all tests."""

import pytest

from fracdnn.report.html import write_report
from tests.browser.chromium import ARGUMENTS, CHROMIUM, playwright  # noqa: F401
from tests.report.cases import CASES, INJECTION


@pytest.fixture(scope="session")
def cases(tmp_path_factory):
    """For each case the fitted estimator, held-out samples and the report's path."""
    folder = tmp_path_factory.mktemp("reports")
    made = {}
    for name, (data, estimator) in CASES.items():
        X, X_test, y, y_test = data()
        estimator.fit(X, y)
        title = INJECTION if name == "bad names" else f"Report of {name}"
        path = write_report(folder / f"{name}.html", estimator, X_test, y_test, title=title, details={"file": title})
        made[name] = (estimator, X_test, y_test, path)
    return made


@pytest.fixture(scope="module")
def browser(playwright):  # noqa: F811
    found = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
    yield found
    found.close()
