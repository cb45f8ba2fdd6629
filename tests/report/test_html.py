"""The report of a fitted estimator: what the file holds, and what a reader sees and does with it in a browser."""

import base64
import json
import re
import shutil
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris, make_blobs
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.metrics import confusion_matrix, log_loss, r2_score
from sklearn.model_selection import train_test_split

from fracdnn import FractionalClassifier, FractionalRegressor
from fracdnn.caputo import memory_matrix
from fracdnn.datasets import make_level_set, make_peaks
from fracdnn.estimators.reliability import calibration_error
from fracdnn.exceptions import InvalidArgumentError, InvalidTypeError
from fracdnn.report.html import write_report
from fracdnn.report.plots import class_style, log_axis, picked
from fracdnn.report.subject import subject_of
from fracdnn.training import History

INJECTION = "</script><script>alert(1)</script>"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Elements(HTMLParser):
    """The elements of a page, and the text that is not in a script or a style."""

    def __init__(self, page):
        super().__init__()
        self.found, self.text, self._inside = [], "", ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        self._inside = tag

    def handle_endtag(self, tag):
        self._inside = ""

    def handle_data(self, data):
        if self._inside not in ("script", "style"):
            self.text += data

    def all(self, tag):
        return [attributes for name, attributes in self.found if name == tag]


def page_of(path):
    return path.read_text(encoding="utf-8")


def plots_of(path):
    found = re.search(r'<script type="application/json" id="report-data">(.*?)</script>', page_of(path))
    return json.loads(found[1])


def quick(kind=FractionalClassifier, **options):
    return kind(**{"n_members": 2, "n_layers": 3, "max_iter": 8, "random_state": 0, **options})


def iris():
    X, y = load_iris(return_X_y=True, as_frame=True)
    return train_test_split(X, np.array(["setosa", "versicolor", "virginica"])[y], random_state=0)


def level_set():
    return train_test_split(*make_level_set(5000, random_state=0), test_size=0.5, random_state=0)


def blobs(n_features, centers, n=400):
    return train_test_split(*make_blobs(n, n_features, centers=centers, random_state=1), random_state=0)


def peaks():
    return train_test_split(*make_peaks(600, random_state=0), random_state=0)


def bad_names():
    X, X_test, y, y_test = blobs(2, 2)
    columns, classes = [INJECTION, "$x$"], np.array([INJECTION, "<b>%{x} & y"])
    return pd.DataFrame(X, columns=columns), pd.DataFrame(X_test, columns=columns), classes[y], classes[y_test]


CASES = {
    "iris": (iris, quick(n_layers=4, early_stopping=True, learn_order=True)),
    "level set": (level_set, quick(width=None, n_layers=5)),
    "space": (lambda: blobs(3, 4), quick(width=None)),
    "peaks": (peaks, quick(FractionalRegressor)),
    "twenty": (lambda: blobs(2, 20), quick()),
    "bad names": (bad_names, quick()),
}


@pytest.fixture(scope="module")
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


class TestFile:
    def test_says_what_it_shows(self, cases):
        estimator, X, y, path = cases["iris"]
        page = Elements(page_of(path))
        assert page.all("html") == [{"lang": "en"}]
        assert "Report of iris" in page.text
        assert f"{estimator.score(X, y):.1%}" in page.text
        assert estimator.history_.status in page.text
        assert f"{estimator.order_:.4g}" in page.text
        for heading in (
            "Confusion matrix",
            "Confidence and accuracy",
            "Importance of columns",
            "Decision regions",
            "Flow through the layers",
            "Memory",
            "Training",
            "Gradi",
        ):
            assert heading in page.text
        for row in ("file", "solver", "adam", "torch"):
            assert row in page.text
        assert "all other components at their mean" in page.text
        captioned = {f"{a['id']}-caption" for a in page.all("div") if a.get("class", "").startswith("plot ")}
        assert captioned <= {a["id"] for a in page.all("figcaption")}

    @pytest.mark.parametrize("name", CASES)
    def test_every_plot_is_one_that_plotly_knows(self, cases, name):
        from plotly.graph_objects import Figure

        plots = plots_of(cases[name][3])
        assert len(plots) == (7 if name == "peaks" else 8)
        for plot in plots.values():
            Figure(data=plot["data"], layout=plot["layout"])

    @pytest.mark.parametrize("name", CASES)
    def test_is_below_8_mb(self, cases, name):
        assert cases[name][3].stat().st_size < 8e6

    def test_confusion_matrix_counts(self, cases):
        estimator, X, y, path = cases["twenty"]
        heat = plots_of(path)["confusion"]["data"][0]
        assert heat["customdata"] == confusion_matrix(y, estimator.predict(X)).tolist()

    def test_reliability_is_told_and_shown(self, cases):
        estimator, X, y, path = cases["iris"]
        probabilities = estimator.predict_proba(X)
        text = Elements(page_of(path)).text
        assert f"{log_loss(y, probabilities):.4f}" in text
        assert f"{calibration_error(y, probabilities, estimator.classes_):.4f}" in text
        dots = plots_of(path)["reliability"]["data"][1]
        assert sum(dots["customdata"]) == len(y)
        assert np.average(dots["x"], weights=dots["customdata"]) == pytest.approx(probabilities.max(1).mean(), rel=1e-4)
        assert np.average(dots["y"], weights=dots["customdata"]) == pytest.approx(estimator.score(X, y), rel=1e-4)

    def test_regression_shows_score_and_values(self, cases):
        estimator, X, y, path = cases["peaks"]
        page = Elements(page_of(path))
        assert f"{r2_score(y, estimator.predict(X)):.4f}" in page.text
        dots = plots_of(path)["prediction"]["data"][1]
        np.testing.assert_allclose(dots["x"], y, rtol=1e-4)
        np.testing.assert_allclose(dots["y"], estimator.predict(X), rtol=1e-4)

    def test_memory_weights_are_the_last_row_of_the_memory_matrix(self, cases):
        estimator, _, _, path = cases["iris"]
        weights = plots_of(path)["memory"]["data"][0]["y"]
        np.testing.assert_allclose(weights, memory_matrix(estimator.order_, 4)[-1], rtol=1e-4)
        assert sum(weights) == pytest.approx(1, abs=1e-4)

    def test_gradients_are_those_of_the_history(self, cases):
        estimator, _, _, path = cases["level set"]
        heat = plots_of(path)["gradients"]["data"][0]
        norms = np.array(estimator.history_.column("layer_gradients")).T
        np.testing.assert_allclose(10 ** np.array(heat["z"]), norms, rtol=1e-2)

    def test_curves_are_those_of_the_history(self, cases):
        estimator, _, _, path = cases["iris"]
        loss, validation, accuracy = (trace["y"] for trace in plots_of(path)["training"]["data"])
        for found, name in ((loss, "loss"), (validation, "validation_score"), (accuracy, "accuracy")):
            np.testing.assert_allclose(found, estimator.history_.column(name), rtol=1e-4)

    def test_regions_are_the_classifier_s_answers(self, cases):
        estimator, _, _, path = cases["level set"]
        regions = plots_of(path)["regions"]["data"][0]
        z = np.array(regions["z"])
        across, up = np.meshgrid(regions["x"], regions["y"])
        probability = estimator.predict_proba(np.column_stack([across.ravel(), up.ravel()]))
        sure = probability.max(axis=1) > 0.51
        assert (np.floor(z).ravel() == probability.argmax(axis=1))[sure].all()

    def test_flow_of_two_coordinates_is_the_trajectory(self, cases):
        estimator, X, _, path = cases["level set"]
        places = flow_of(path)
        everywhere = estimator.trajectory(X)
        assert places.shape == (6, 2000, 2)
        nearest = np.abs(places[3][:50, None] - everywhere[3][None]).sum(axis=2).min(axis=1)
        assert nearest.max() < 1e-5
        assert "Shown are 2,000 of 2,500 samples" in page_of(path)

    def test_flow_of_many_coordinates_is_along_principal_components(self, cases):
        estimator, X, y, path = cases["iris"]
        order = np.argsort(np.searchsorted(estimator.classes_, y), kind="stable")
        states = estimator.trajectory(X)[:, order]
        expected = PCA(2).fit_transform(states.reshape(-1, states.shape[2])).reshape(5, -1, 2)
        np.testing.assert_allclose(np.abs(flow_of(path)), np.abs(expected), atol=1e-4)

    def test_names_are_never_markup(self, cases):
        path = cases["bad names"][3]
        page = page_of(path)
        assert INJECTION not in page
        elements = Elements(page)
        assert elements.text.count(INJECTION) >= 5  # title twice, details, and the key of two plots
        assert len(elements.all("script")) == 3
        assert not elements.all("b")

    def test_same_numbers_give_the_same_file(self, cases, tmp_path):
        estimator, X, y, path = cases["iris"]
        again = write_report(
            str(tmp_path / "again.html"), estimator, X, y, title="Report of iris", details={"file": "Report of iris"}
        )
        assert again.read_bytes() == path.read_bytes()

    def test_takes_arrays_where_a_table_was_fitted(self, cases, tmp_path):
        estimator, X, y, _ = cases["iris"]
        path = write_report(tmp_path / "report.html", estimator, X.to_numpy(), y, title="array")
        assert "Details" not in Elements(page_of(path)).text


def flow_of(path):
    """The places of the samples, [states, samples, axes]."""
    states = plots_of(path)["flow"]["states"]
    values = np.frombuffer(base64.b64decode(states["values"]), dtype="<f4")
    return values.reshape(len(states["layers"]), len(states["axes"]), sum(states["sizes"])).transpose(0, 2, 1)


class TestEdges:
    def write(self, tmp_path, estimator, X, y):
        return write_report(tmp_path / "report.html", estimator, X, y, title="edge")

    def test_one_class(self, tmp_path):
        X, y = np.arange(12.0).reshape(6, 2), np.zeros(6, dtype=int)
        path = self.write(tmp_path, quick().fit(X, y), X, y)
        assert "100.0%" in page_of(path)

    @pytest.mark.parametrize("kind", [FractionalClassifier, FractionalRegressor])
    @pytest.mark.parametrize("n_features", [1, 2, 5])
    def test_one_sample(self, tmp_path, kind, n_features):
        X, y = make_blobs(30, n_features, centers=2, random_state=0)
        path = self.write(tmp_path, quick(kind, width=n_features).fit(X, y), X[:1], y[:1])
        assert ("undefined" in Elements(page_of(path)).text) == (kind is FractionalRegressor)

    def test_no_history(self, tmp_path):
        X, y = make_blobs(30, 2, centers=2, random_state=0)
        estimator = quick().fit(X, y)
        estimator.history_ = History()
        path = self.write(tmp_path, estimator, X, y)
        assert "ended before its first iteration" in page_of(path)
        assert plots_of(path).keys() == {"confusion", "reliability", "importance", "regions", "flow", "memory"}

    def test_losses_that_are_not_finite(self, tmp_path):
        X, y = make_blobs(30, 2, centers=2, random_state=0)
        estimator = quick().fit(X, y)
        document = estimator.history_.to_dict()
        document["records"][-1] |= {"loss": float("nan"), "layer_gradients": [0.0, float("inf"), 1.0]}
        estimator.history_ = History.from_dict(document)
        plots = plots_of(self.write(tmp_path, estimator, X, y))
        assert plots["training"]["data"][0]["y"][-1] is None
        assert [row[-1] for row in plots["gradients"]["data"][0]["z"]] == [None, None, 0]

    def test_class_that_training_has_not_seen(self, tmp_path):
        X, y = make_blobs(60, 2, centers=3, random_state=0)
        path = self.write(tmp_path, quick().fit(X[y < 2], y[y < 2]), X, y)
        counts = np.array(plots_of(path)["confusion"]["data"][0]["customdata"])
        assert counts.sum(axis=1).tolist() == [20, 20, 20]
        assert counts[:, 2].tolist() == [0, 0, 0]
        assert "undefined" in Elements(page_of(path)).text  # the log-loss

    def test_several_outputs(self, tmp_path):
        X, y = make_peaks(50, random_state=0)
        path = self.write(tmp_path, quick(FractionalRegressor).fit(X, np.c_[y, -y]), X, np.c_[y, -y])
        assert [trace["name"] for trace in plots_of(path)["prediction"]["data"]] == ["equal", "output 1", "output 2"]

    def test_order_one_remembers_one_state(self, tmp_path):
        X, y = make_blobs(30, 2, centers=2, random_state=0)
        path = self.write(tmp_path, quick(order=1.0).fit(X, y), X, y)
        assert plots_of(path)["memory"]["data"][0]["y"] == [None, None, 1]

    def test_deep_network_is_thinned(self, tmp_path):
        X, y = make_level_set(3000, random_state=0)
        estimator = quick(width=None, n_layers=300, max_iter=1).fit(X[:50], y[:50])
        path = self.write(tmp_path, estimator, X, y)
        states = plots_of(path)["flow"]["states"]
        assert (len(states["layers"]), states["layers"][0], states["layers"][-1]) == (101, 0, 300)
        assert "The slider stops at 101 states" in page_of(path)
        assert path.stat().st_size < 8e6

    def test_errors_name_the_argument(self, cases, tmp_path):
        estimator, X, y, _ = cases["iris"]
        path = tmp_path / "report.html"
        with pytest.raises(InvalidTypeError, match="estimator must be a FractionalClassifier or"):
            write_report(path, PCA(), X, y, title="")
        with pytest.raises(NotFittedError):
            write_report(path, FractionalClassifier(), X, y, title="")
        with pytest.raises(InvalidArgumentError, match="y must hold a label for each of the 38 samples"):
            write_report(path, estimator, X, y[:-1], title="")
        regressor, X, y, _ = cases["peaks"]
        with pytest.raises(InvalidArgumentError, match="y must have 1 columns as in fit"):
            write_report(path, regressor, X, np.c_[y, y], title="")
        assert not path.exists()


class TestParts:
    def test_classes_differ_in_colour_or_shape(self):
        styles = [tuple(class_style(k).values()) for k in range(100)]
        assert len(set(styles)) == 100
        assert len({colour for colour, _ in styles[:24]}) == 24

    def test_ends_are_always_picked(self):
        assert picked(5, 10).tolist() == [0, 1, 2, 3, 4]
        assert picked(1000, 3)[[0, -1]].tolist() == [0, 999]

    @pytest.mark.parametrize(
        ("values", "ticks"),
        [
            ([0.02, 1.1], ["0.02", "0.05", "0.1", "0.2", "0.5", "1"]),
            ([1e-5, 2.0, None, 0.0], ["1e-05", "0.0001", "0.001", "0.01", "0.1", "1"]),
            ([0.5, 0.6], None),
            ([], None),
        ],
    )
    def test_ticks_of_a_logarithmic_axis(self, values, ticks):
        assert log_axis("", values).get("ticktext") == ticks


@pytest.fixture(scope="module")
def playwright():
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine: install the package chromium to test the report in a browser")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as running:
        yield running


ARGUMENTS = ["--no-sandbox", "--disable-gpu"]


@pytest.fixture(scope="module")
def browser(playwright):
    found = playwright.chromium.launch(executable_path=CHROMIUM, args=[*ARGUMENTS, "--enable-unsafe-swiftshader"])
    yield found
    found.close()


def opened(browser, path, **options):
    """The page, and a list of what must stay empty: errors, dialogs and requests that leave the file."""
    page = browser.new_page(**{"viewport": {"width": 1280, "height": 900}, **options})
    wrong = []
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
    page.on("request", lambda r: None if r.url.startswith(("file:", "data:", "blob:")) else wrong.append(r.url))
    page.goto(path.as_uri())
    page.wait_for_selector("#theme", state="visible")
    return page, wrong


def plotted(page, name="flow", axis="x"):
    return page.evaluate(f"document.getElementById('{name}').data.map((trace) => Array.from(trace.{axis}))")


def joined(parts):
    return [number for part in parts for number in part]


def overflow(page):
    return page.evaluate("document.documentElement.scrollWidth - window.innerWidth")


class TestBrowser:
    def test_slider_moves_the_points(self, browser, cases):
        path = cases["iris"][3]
        page, wrong = opened(browser, path)
        places = flow_of(path)
        assert joined(plotted(page)) == pytest.approx(places[0, :, 0].tolist())
        page.focus("#state")
        page.keyboard.press("ArrowRight")
        assert joined(plotted(page)) == pytest.approx(places[1, :, 0].tolist())
        assert joined(plotted(page, axis="y")) == pytest.approx(places[1, :, 1].tolist())
        assert page.inner_text("#state-name") == "state 1 of 4"
        ranges = page.evaluate("document.getElementById('flow').layout.xaxis.range")
        box = page.locator("#state").bounding_box()
        page.mouse.click(box["x"] + box["width"] - 3, box["y"] + box["height"] / 2)
        assert joined(plotted(page)) == pytest.approx(places[4, :, 0].tolist())
        assert page.evaluate("document.getElementById('flow').layout.xaxis.range") == ranges
        page.click("#play")
        assert page.inner_text("#play") == "Pause"
        page.wait_for_selector("text=state 2 of 4")
        page.click("#play")
        assert page.inner_text("#play") == "Play"
        assert wrong == []
        page.close()

    def test_theme_follows_the_system_and_the_button(self, browser, cases, tmp_path):
        page, wrong = opened(browser, cases["iris"][3], color_scheme="dark")
        colour = "document.getElementById('training').layout.font.color"
        assert page.evaluate(colour) == "#e4e9f0"
        dark = page.screenshot(path=tmp_path / "dark.png")
        page.get_by_role("button", name="switch to light colours").click()
        assert page.evaluate(colour) == "#1c2430"
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(244, 245, 247)"
        assert page.screenshot(path=tmp_path / "light.png") != dark
        page.emulate_media(color_scheme="light")
        page.get_by_role("button", name="switch to dark colours").click()
        assert page.evaluate(colour) == "#e4e9f0"
        assert wrong == []
        page.close()

    def test_phone_shows_one_column_without_sideways_scrolling(self, browser, cases):
        phone = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
        page, wrong = opened(browser, cases["twenty"][3], **phone)
        assert overflow(page) <= 0
        assert page.locator("#state").bounding_box()["height"] >= 44
        first, second = (page.locator(f"#{name}").bounding_box() for name in ("confusion", "regions"))
        assert first["x"] == second["x"]
        before = plotted(page)
        box = page.locator("#state").bounding_box()
        page.locator("#state").tap(position={"x": box["width"] - 3, "y": box["height"] / 2})
        assert plotted(page) != before
        assert wrong == []
        page.close()

    def test_classes_are_hidden_and_shown_by_the_key(self, browser, cases):
        page, wrong = opened(browser, cases["level set"][3])
        visible = "document.getElementById('regions').data.map((trace) => trace.visible !== false)"
        button = page.locator("section", has=page.locator("#regions")).get_by_role("button", name="1")
        button.click()
        assert page.evaluate(visible) == [True, True, False]
        button.click()
        assert page.evaluate(visible) == [True, True, True]
        assert wrong == []
        page.close()

    @pytest.mark.parametrize("webgl", [True, False])
    def test_three_coordinates_are_seen_in_space_or_flat_without_webgl(self, playwright, browser, cases, webgl):
        path = cases["space"][3]
        one = (
            browser
            if webgl
            else playwright.chromium.launch(executable_path=CHROMIUM, args=[*ARGUMENTS, "--disable-3d-apis"])
        )
        page, wrong = opened(one, path)
        assert page.evaluate("document.getElementById('flow').data[0].type") == ("scatter3d" if webgl else "scatter")
        page.focus("#state")
        page.keyboard.press("End")
        assert joined(plotted(page, axis="y")) == pytest.approx(flow_of(path)[-1, :, 1].tolist())
        assert wrong == []
        page.close()
        if not webgl:
            one.close()

    def test_regression(self, browser, cases):
        path = cases["peaks"][3]
        page, wrong = opened(browser, path)
        page.focus("#state")
        page.keyboard.press("End")
        assert plotted(page)[0] == pytest.approx(flow_of(path)[-1, :, 0].tolist())
        assert wrong == []
        page.close()

    def test_names_are_shown_as_they_are(self, browser, cases):
        page, wrong = opened(browser, cases["bad names"][3])
        assert page.title() == INJECTION
        assert page.inner_text("h1") == INJECTION
        ticks = page.locator("#confusion .ytick text").all_text_contents()
        assert ticks == ["</script><script>…", "<b>%{x} & y"]
        assert page.locator("#regions .xtitle").text_content().startswith("</script><script>")
        assert page.locator("#regions .ytitle").text_content() == "$x$"
        assert wrong == []
        page.close()


@pytest.mark.parametrize("kind", [FractionalClassifier, FractionalRegressor])
def test_frames_with_categories_and_holes(kind, tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"colour": rng.choice(["red", "blue"], 80), "length": rng.normal(size=80)})
    y = ((frame["colour"] == "red") ^ (frame["length"] > 0)).astype(int).to_numpy()
    frame.loc[::9, "length"] = np.nan
    estimator = quick(kind).fit(frame[:60], y[:60])
    subject = subject_of(estimator, frame[60:], y[60:])
    assert subject.features == ["colour=blue", "colour=red", "length", "length is missing"]
    np.testing.assert_array_equal(subject.predicted.reshape(-1), estimator.predict(frame[60:]))
    page = page_of(write_report(tmp_path / "report.html", estimator, frame[60:], y[60:], title="Frames"))
    score = estimator.score(frame[60:], y[60:])
    assert (f"{score:.1%}" if kind is FractionalClassifier else f"{score:.4f}") in page
    assert estimator.n_features_in_ == 2
    assert not estimator.encoding_.is_plain
