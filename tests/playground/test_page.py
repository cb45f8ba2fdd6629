"""What a user sees and does in the playground, in Chromium."""

import json
import math
import re

import pytest

from tests.browser.axe import serious_faults
from tests.browser.chromium import PATIENCE, PHONE
from tests.playground.pages import ADDRESS, STATIC, inside, opened, picture, settled, until, until_told
from tests.slow import slow_but

SMALL = "layers=6&points=100"
BOUNDARY, FLOW = "#boundaries canvas", "#flows canvas"


class TestTraining:
    def test_lowers_the_loss_until_it_is_paused(self, browser):
        page, wrong = opened(browser, f"{SMALL}&speed=0&data=moons")
        before, start = picture(page, BOUNDARY), inside(page, "playground.arms[0].loss")
        flow, losses = picture(page, FLOW), picture(page, "#losses")
        page.click("#play")
        assert page.inner_text("#play") == "Pause"
        until(page, "Number(document.getElementById('steps').textContent) >= 60")
        page.click("#play")
        assert page.inner_text("#play") == "Play"
        steps, loss = inside(page, "[playground.arms[0].steps, playground.arms[0].loss]")
        assert steps >= 60
        assert loss < 0.5 * start
        assert page.inner_text("#status").startswith(f"Paused. Step {steps:,}: loss ")
        assert picture(page, BOUNDARY) != before
        assert picture(page, FLOW) != flow
        assert picture(page, "#losses") != losses
        page.wait_for_timeout(200)
        assert inside(page, "playground.arms[0].steps") == steps
        assert int(page.inner_text("#steps")) == steps
        assert wrong == []
        page.close()

    @pytest.mark.parametrize("compare", slow_but(["residual"], ["residual", "matched", "plain"]))
    def test_both_pictures_follow_it(self, browser, compare):
        """In turns: while the first is drawn eight times, so is the second, but for those under way."""
        page, wrong = opened(browser, f"{SMALL}&data=moons&compare={compare}")
        page.click("#play")
        changes = page.evaluate(
            """async (patience) => {
            const canvases = [...document.querySelectorAll("#boundaries canvas")], end = performance.now() + patience;
            const seen = canvases.map((canvas) => canvas.toDataURL()), changes = canvases.map(() => 0);
            while (changes[0] < 8 && performance.now() < end) {
                await new Promise(requestAnimationFrame);
                canvases.forEach((canvas, i) => {
                    const now = canvas.toDataURL();
                    changes[i] += now !== seen[i];
                    seen[i] = now;
                });
            }
            return changes;
        }""",
            1000 * PATIENCE,
        )
        assert changes[0] == 8
        assert 6 <= changes[1] <= 10
        assert page.inner_text("#play") == "Pause", "it is still training"
        assert wrong == []
        page.close()

    def test_by_single_steps_and_back(self, browser):
        page, wrong = opened(browser, SMALL)
        start = inside(page, "playground.arms[0].loss")
        for _ in range(3):
            page.click("#step")
        settled(page)
        assert page.inner_text("#steps") == "3"
        assert inside(page, "playground.arms[0].loss") < start
        page.click("#reset")
        settled(page)
        assert page.inner_text("#steps") == "0"
        assert inside(page, "playground.arms[0].loss") == start
        assert wrong == []
        page.close()

    def test_follows_the_gradient_that_is_chosen(self, browser):
        """The first step of Adam moves every parameter by the rate against the sign of what it follows."""
        page, wrong = opened(browser, f"{SMALL}&gradient=printed&rate=0.1")
        moved = """(() => {
            const [arm] = playground.arms, before = [...arm.network.weights.K], { printed, gradient } = arm.pass;
            const [p, g] = [[...printed.K], [...gradient.K]];
            arm.step();
            const moves = arm.network.weights.K.map((value, i) => value - before[i]);
            const agreeing = (a) => a.filter((value, i) => value * moves[i] < 0).length / a.length;
            return [agreeing(p), agreeing(g)];
        })()"""
        printed, exact = inside(page, moved)
        assert printed == 1
        assert exact < 1
        assert "not the gradient" in page.inner_text("#gradient-note")
        assert wrong == []
        page.close()

    def test_stops_where_numbers_are_no_longer_finite(self, browser):
        page, wrong = opened(browser, "activation=identity&order=1&tau=1&layers=60&width=8&rate=0.1&points=50")
        inside(page, "playground.arms[0].network.weights.K.fill(1e300)")
        page.click("#play")
        until_told(page, "finite number")
        assert "smaller learning rate" in page.inner_text("#status")
        assert page.inner_text("#play") == "Play"
        assert wrong == []
        page.close()

    def test_at_the_speed_that_is_chosen(self, browser):
        """Steps for the time that frames say has passed, whatever the machine does meanwhile."""
        page, wrong = opened(browser, SMALL)
        steps = "[0.06, 0.06, 0.9, 0.05].map((seconds) => (playground._train(seconds), playground.arms[0].steps))"
        page.select_option("#speed", "1")
        page.click("#reset")
        assert inside(page, steps) == [0, 0, 1, 1]
        page.select_option("#speed", "10")
        page.click("#reset")
        found = inside(page, steps)
        assert found[:2] == [0, 1]
        assert found[2] in (2, 3)  # never many at once after a pause, and one at least
        page.select_option("#speed", "0")
        page.click("#play")
        until(page, "Number(document.getElementById('steps').textContent) >= 10")
        assert wrong == []
        page.close()


# By control: the keys that are pressed on it, what has to change, and to what.
RANGES = [
    ("points", "playground.data.train.n", 300, 350),
    ("classes", "playground.data.classes", 3, 4),
    ("order", "playground.arms[0].network.order", 0.5, 0.55),
    ("layers", "playground.arms[0].network.nLayers", 20, 21),
    ("width", "playground.arms[0].network.width", 4, 5),
    ("tau", "playground.arms[0].network.stepSize", 0.2, 0.25),
]
CHOICES = [
    ("activation", "relu", "playground.arms[0].network.activation", "relu"),
    ("compare", "residual", "playground.arms.map((arm) => arm.network.order)", [0.5, 1]),
    ("compare", "plain", "playground.arms.map((arm) => arm.network.residual)", [True, False]),
    ("compare", "none", "playground.arms.length", 1),
    ("rate", "0.1", "playground.arms[0].adam.rate", 0.1),
]


class TestExperiments:
    def test_each_is_a_link_to_all_its_settings(self, browser):
        page, wrong = opened(browser, SMALL)
        links = page.locator("#experiments a")
        assert links.count() == 5
        for number, link in enumerate(links.all()):
            link.click()
            assert page.inner_text("#play") == "Pause"
            assert link.get_attribute("aria-current") == "true"
            settings = inside(page, "playground.settings")
            page.click("#play")
            assert wrong == []
            if number in (1, 4):  # opening a page takes a second
                other, also_wrong = opened(browser, link.get_attribute("href")[1:])
                assert inside(other, "playground.settings") == settings
                other.close()
                assert also_wrong == []
        page.click("#heldout")
        assert page.locator("#experiments [aria-current=true]").count() == 0
        page.close()

    def test_the_residual_network_wins_on_the_first_data(self, browser):
        page, _ = opened(browser, "compare=matched")
        losses = "(playground._stepAll(), playground.arms.map((arm) => arm.loss))"
        memory, residual = inside(page, f"Array.from({{ length: 100 }}, () => {losses})")[-1]
        assert residual < 0.5 * memory
        assert "The residual network wins here" in page.inner_text("#experiments")
        page.close()

    def test_status_and_counter_agree(self, browser):
        page, wrong = opened(browser, SMALL)
        page.click("#step")
        settled(page)
        assert (page.inner_text("#status")[:7], page.inner_text("#steps")) == ("Step 1:", "1")
        page.select_option("#rate", "0.1")
        settled(page)
        assert (page.inner_text("#status"), page.inner_text("#steps")) == ("Ready: press Play.", "0")
        page.click("#play")
        assert page.inner_text("#status") == "Training."
        assert wrong == []
        page.close()

    def test_the_network_has_a_line_for_every_weight(self, browser):
        """The highest point of the line from the input to the last layer, which order 1 does not have."""
        page, _ = opened(browser, "order=0.1&layers=6")
        ink = """(() => {
            const canvas = document.getElementById("memory"), { width, height } = canvas;
            const { data } = canvas.getContext("2d").getImageData(Math.round(width / 2), 0, 1, Math.round(height / 8));
            return data.some((value, i) => i % 4 === 3 && value > 0);
        })()"""
        settled(page)
        assert page.evaluate(ink)
        page.focus("#order")
        page.keyboard.press("End")
        settled(page)
        assert not page.evaluate(ink)
        page.close()

    def test_terms_are_defined(self, browser):
        page, wrong = opened(browser, SMALL)
        for button, text in zip(page.locator(".tip").all(), ("residual network", "c = Γ", "cosine"), strict=True):
            button.click()
            tip = page.locator(f"#{button.get_attribute('popovertarget')}")
            assert text in tip.inner_text()
            page.keyboard.press("Escape")
            assert not tip.is_visible()
        assert wrong == []
        page.close()


class TestControls:
    def test_sliders(self, browser):
        page, wrong = opened(browser)
        for name, what, before, after in RANGES:
            assert inside(page, what) == before
            start = picture(page, BOUNDARY)
            page.focus(f"#{name}")
            page.keyboard.press("ArrowRight")
            assert inside(page, what) == after, name
            assert float(page.inner_text(f"output[for={name}]")) == after
            assert float(page.get_attribute(f"#{name}", "aria-valuetext")) == after
            assert picture(page, BOUNDARY) != start, name
        places = inside(page, "[...playground.data.train.x]")
        page.focus("#noise")
        page.keyboard.press("End")
        assert inside(page, "[...playground.data.train.x]") != places
        assert page.inner_text("output[for=noise]") == "1.00"
        assert wrong == []
        page.close()

    def test_choices(self, browser):
        page, wrong = opened(browser, SMALL)
        for name, value, what, after in CHOICES:
            page.select_option(f"#{name}", value)
            assert inside(page, what) == after, name
            assert len(page.query_selector_all("#flows canvas")) == inside(page, "playground.arms.length")
        page.select_option("#compare", "matched")
        factors = inside(page, "playground.arms.map((arm) => arm.network.factor.value)")
        assert factors[0] == pytest.approx(factors[1], rel=1e-14)
        assert page.is_disabled("#gradient")  # not for relu
        page.select_option("#activation", "tanh")
        page.select_option("#gradient", "printed")
        assert inside(page, "playground.arms.every((arm) => arm.usesPrinted)")
        assert wrong == []
        page.close()

    def test_data(self, browser):
        page, wrong = opened(browser, SMALL)
        seen = set()
        for name, classes in (("level-set", 2), ("moons", 2), ("circles", 3), ("clouds", 3), ("spirals", 3)):
            page.check(f"#data-{name}")
            assert inside(page, "[playground.settings.data, playground.data.classes]") == [name, classes]
            assert page.is_disabled("#classes") == (classes == 2)
            assert len(page.query_selector_all("#legend li")) == classes
            seen.add(json.dumps(inside(page, "[...playground.data.train.x]")))
        assert len(seen) == 5
        below, labels = inside(
            page,
            """await (async () => {
            const { x, labels } = drawn("level-set", { n: 200, noise: 0, classes: 2, seed: 1 });
            return [Array.from(labels, (_, s) => Number(x[2 * s] <= x[2 * s + 1])), [...labels]];
        })()""",
        )
        assert below == labels
        assert wrong == []
        page.close()

    def test_seed_and_held_out_points(self, browser):
        page, wrong = opened(browser, SMALL)
        weights = "[...playground.arms[0].network.weights.all]"
        start, shown = inside(page, weights), picture(page, BOUNDARY)
        page.check("#heldout")
        assert picture(page, BOUNDARY) != shown
        assert inside(page, weights) == start
        page.fill("#seed", "7")
        page.press("#seed", "Enter")
        assert inside(page, "playground.settings.seed") == 7
        other = inside(page, weights)
        assert other != start
        page.fill("#seed", "1")
        page.press("#seed", "Tab")
        assert inside(page, weights) == start
        page.click("#new-seed")
        assert inside(page, "playground.settings.seed") == int(page.input_value("#seed"))
        assert inside(page, weights) != start
        assert wrong == []
        page.close()

    def test_a_learned_order_moves(self, browser):
        page, wrong = opened(browser, f"{SMALL}&order=1&speed=0&rate=0.1")
        page.check("#learn")
        assert page.inner_text("#status") == "An order of 1 cannot be learned from; it starts at 0.95."
        assert inside(page, "playground.arms[0].network.order") == pytest.approx(0.95)
        page.click("#play")
        until(page, "Number(document.getElementById('steps').textContent) >= 10")
        page.click("#play")
        settled(page)
        order = inside(page, "playground.arms[0].network.order")
        assert abs(order - 0.95) > 0.001
        assert page.inner_text("output[for=order]") == f"0.95 → {order:.3f}"
        step = math.gamma(2 - order) * 0.2**order
        assert f" = {step:.3f} times" in page.inner_text("#effective")
        assert wrong == []
        page.close()

    def test_the_scrubber_shows_a_layer(self, browser):
        page, wrong = opened(browser, f"{SMALL}&order=0.5")
        weights = "memoryWeights(0.5, 6)"
        last, first = inside(page, f"[{weights}[5], {weights}[0]]")
        settled(page)
        assert page.inner_text("#layer-name") == "layer 6, last"
        note = page.inner_text("#memory-note")
        assert f"Layer 6 is {100 * last:.0f} % of the state before it" in note
        assert f"{100 * first:.0f} % of the first" in note
        charts = [picture(page, name) for name in ("#memory", "#gradients", FLOW)]
        page.focus("#layer")
        page.keyboard.press("ArrowLeft")
        settled(page)
        assert page.inner_text("#layer-name") == "layer 5"
        assert page.inner_text("#memory-note") != note
        assert all(
            picture(page, name) != old for name, old in zip(("#memory", "#gradients", FLOW), charts, strict=True)
        )
        page.keyboard.press("Home")
        settled(page)
        assert page.inner_text("#layer-name") == "input"
        page.click("#flow-play")
        assert page.inner_text("#flow-play") == "Stop"
        until(page, "document.getElementById('layer-name').textContent === 'layer 6, last'")
        until(page, "document.getElementById('flow-play').textContent === 'Run through'")
        assert wrong == []
        page.close()

    def test_a_frame_that_began_earlier_turns_no_time_back(self, browser):
        """On a busy machine, a frame's time may lie seconds before the click that it comes after."""
        page, wrong = opened(browser, f"{SMALL}&layer=0&speed=1")
        settled(page)
        late = """(() => {
            playground.toggleFlow();
            playground.running = true;
            playground.owed = 0;
            playground._frame(performance.now() - 5000);
            playground.running = playground.flowing = false;
            return [playground.position, playground.owed];
        })()"""
        position, owed = inside(page, late)
        assert position >= 0
        assert owed >= 0
        assert wrong == []
        page.close()

    def test_numbers_are_those_of_the_charts(self, browser):
        page, wrong = opened(browser, SMALL)
        page.click("#numbers summary")
        settled(page)
        cells = [row.inner_text().split("\t") for row in page.query_selector_all("#numbers tbody tr")]
        norms, printed = inside(
            page, "[[...playground.arms[0].norms], [...playground.arms[0].printedGradient().norms]]"
        )
        assert [float(row[2]) for row in cells] == pytest.approx(norms, rel=0.06)
        assert [float(row[3]) for row in cells] == pytest.approx(printed, rel=0.06)
        assert sum(float(row[1].rstrip(" %")) for row in cells) == pytest.approx(100, abs=2)
        assert wrong == []
        page.close()


class TestAddress:
    def test_restores_everything(self, browser):
        page, wrong = opened(browser, "layers=7&points=150")
        page.check("#data-circles")
        page.select_option("#activation", "silu")
        page.select_option("#speed", "0")
        page.check("#heldout")
        for name in ("order", "layers", "width", "tau", "points", "noise", "classes", "layer"):
            page.focus(f"#{name}")
            page.keyboard.press("ArrowLeft")
        page.select_option("#compare", "plain")
        page.fill("#seed", "12")
        page.press("#seed", "Tab")
        settings = inside(page, "playground.settings")
        losses = inside(page, "Array.from({ length: 3 }, () => (playground._stepAll(), playground.arms[0].loss))")
        until(page, "location.hash.includes('seed=12')")
        page.reload()
        until(page, "document.getElementById('status').textContent !== ''")
        assert inside(page, "playground.settings") == settings
        assert (
            inside(page, "Array.from({ length: 3 }, () => (playground._stepAll(), playground.arms[0].loss))") == losses
        )
        assert page.input_value("#layers") == "6"
        assert page.input_value("#activation") == "silu"
        assert page.is_checked("#data-circles")
        page.focus(".skip")
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "boundary-title"
        assert inside(page, "playground.settings") == settings
        page.evaluate("location.hash = 'layers=3&learn=1'")
        until(page, "document.getElementById('layers').value === '3'")
        assert page.is_checked("#learn")
        assert inside(page, "playground.arms[0].network.learnOrder")
        assert wrong == []
        page.close()

    def test_is_not_trusted(self, browser):
        given = (
            "layers=1e9&order=-3&width=x&data=<b>&seed=NaN&activation=__proto__&learn=2&points=Infinity&tau=&layer=-1"
        )
        page, wrong = opened(browser, f"{given}&noise=0.123&classes=3.4&rate=7&constructor=1")
        wanted = {"layers": 60, "order": 0.05, "width": 4, "data": "spirals", "seed": 1, "activation": "tanh"}
        wanted |= {"learn": False, "points": 1000, "tau": 0.2, "layer": 0, "noise": 0.1, "classes": 3, "rate": "0.01"}
        assert inside(page, "playground.settings").items() >= wanted.items()
        assert wrong == []
        page.close()

    def test_is_copied(self, browser):
        page, wrong = opened(browser, "layers=7", permissions=["clipboard-read", "clipboard-write"])
        page.click("#share")
        until_told(page, "The link is copied: it holds all settings.")
        assert page.evaluate("navigator.clipboard.readText()") == f"{ADDRESS}#layers=7"
        take(page, CSV)
        until_told(page, "30 rows")
        page.click("#share")
        until_told(page, "The link is copied: it holds all settings, but not your table.")
        assert wrong == []
        page.close()

    def test_names_no_table_of_ones_own(self, browser):
        page, wrong = opened(browser, "data=own")
        assert inside(page, "playground.settings.data") == "spirals"
        assert "not part of the link" in page.inner_text("#status")
        assert wrong == []
        page.close()


ROWS = [(f"{0.1 * i:.1f}", f"{(i * 7) % 5}", "yes" if i % 3 else "no") for i in range(30)]
CSV = "a,b,kind\n" + "\n".join(",".join(row) for row in ROWS)
TEXTS = {
    "commas": CSV,
    "semicolons": "kind;a;b\r\n" + "\r\n".join(f"{kind};{a.replace('.', ',')};{b}" for a, b, kind in ROWS),
    "tabs": '\ufeff"a, in m"\tb\tkind\n' + "\n".join(f'"{a}"\t{b}\t"{kind}"' for a, b, kind in ROWS) + "\n\n1\t\tno\n",
}


def take(page, text, name="points.csv"):
    content = text if isinstance(text, bytes) else text.encode()
    page.set_input_files("#file", {"name": name, "mimeType": "text/csv", "buffer": content})


class TestOwnTable:
    def test_is_taken(self, browser):
        page, wrong = opened(browser, "layers=2")
        for name, text in TEXTS.items():
            take(page, text, f"{name}.csv")
            until_told(page, f"{name}.csv: 30 rows, 2 classes.")
            found = inside(page, "[[...playground.table.x], [...playground.table.labels], playground.data.classNames]")
            assert found[0] == [float(cell) for row in ROWS for cell in row[:2]], name
            assert found[1:] == [[["no", "yes"].index(row[2]) for row in ROWS], ["no", "yes"]], name
        assert page.is_checked("#data-own")
        assert page.is_disabled("#points")
        assert page.inner_text("#legend").split("\n") == ["class no", "class yes"]
        page.click("#step")
        settled(page)
        assert page.inner_text("#steps") == "1"
        assert wrong == []
        page.close()

    def test_is_refused_kindly(self, browser):
        page, wrong = opened(browser, SMALL)
        thousands = "a,b,kind\n" + "\n".join(f'"{i},500",2,{"yes" if i % 2 else "no"}' for i in range(1, 20))
        for text, message in [
            ("", "The file must hold a table, but it is empty."),
            ("a,b\n1,2\n", "The table must have three columns or more, two of numbers and one of classes, but has 2"),
            (CSV + "\n1,2", "Every row must have 3 cells, but row 31 has 2"),
            ("a,b,kind\nx,y,z\n", 'Two columns must hold numbers, but "a" and "b" and "kind" hold something else'),
            (CSV.replace("no", "yes"), "must hold 2 to 5 classes, but holds 1"),
            ("a,b,c\n" + "\n".join(f"{i},{i},{i}" for i in range(20)), "must hold 2 to 5 classes, but holds 20"),
            ("a,b,kind\n1,2,x\n1,2,y\n", "must have at least 10 rows without missing values, but has 2"),
            (b"\x00\x01" * 20, "The file must be text in UTF-8"),
            (thousands, 'Column "a" has commas that may be decimal points or thousands, such as 1,500'),
            ("x" * 2_000_001, "The file must be at most 2 MB, but has 2.0 MB"),
        ]:
            take(page, text)
            until_told(page, message)
        assert inside(page, "[playground.table, playground.settings.data]") == [None, "spirals"]
        assert wrong == []
        page.close()

    def test_is_chosen_by_its_tile_and_offers_its_columns(self, browser):
        page, wrong = opened(browser, "layers=2")
        rows = [f"{i},{i % 7},,{'xyz'[i % 3]},{'no' if i % 2 else 'yes'}" for i in range(1, 31)]
        text = "\n".join(["place,size,empty,kind,answer", *rows])
        with page.expect_file_chooser() as chooser:
            page.locator("label", has=page.locator("#data-own")).click()
        assert inside(page, "playground.settings.data") == "spirals"  # until there is one
        chooser.value.set_files({"name": "more.csv", "mimeType": "text/csv", "buffer": text.encode()})
        until_told(page, "more.csv: 30 rows, 3 classes.")
        assert page.locator("#columns select").evaluate_all(
            "(all) => all.map((one) => one.selectedOptions[0].text)"
        ) == [
            "place",
            "size",
            "kind",
        ]
        page.select_option("#column-2", label="answer")
        until_told(page, "more.csv: 30 rows, 2 classes.")
        page.select_option("#column-1", label="empty")
        until_told(page, "must hold 2 to 5 classes, but holds 0")
        page.select_option("#column-1", label="place")
        until_told(page, "more.csv: 30 rows, 2 classes.")
        assert inside(page, "[...playground.table.x].slice(0, 4)") == [1, 1, 2, 2]
        assert wrong == []
        page.close()

    def test_of_many_rows_some_are_taken(self, browser):
        page, wrong = opened(browser, "layers=2")
        take(page, "a,b,kind\n" + "\n".join(f"{i},{i % 7},{i % 2}" for i in range(5000)))
        until_told(page, "points.csv: 2000 of 5000 rows, 2 classes.")
        assert inside(page, "playground.data.train.n + playground.data.test.n") == 2000
        assert wrong == []
        page.close()


class TestLook:
    @pytest.mark.parametrize("scheme", slow_but(["dark"], ["light", "dark"]))
    def test_has_no_accessibility_fault(self, browser, scheme):
        page, wrong = opened(browser, f"{SMALL}&compare=residual&classes=5", color_scheme=scheme)
        page.click("#numbers summary")
        page.click("#step")
        settled(page)
        assert wrong == []
        assert serious_faults(page) == []  # axe loads the style sheet in its own way, which files refuse
        page.close()

    def test_colors_follow_the_system_and_the_button(self, browser):
        page, wrong = opened(browser, SMALL, color_scheme="dark")
        background = "getComputedStyle(document.body).backgroundColor"
        dark = picture(page, BOUNDARY)
        assert page.evaluate(background) == "rgb(14, 18, 23)"
        page.emulate_media(color_scheme="light")
        until(page, f"{background} === 'rgb(244, 245, 247)'")
        assert picture(page, BOUNDARY) != dark
        page.get_by_role("button", name="Dark").click()
        assert page.evaluate(background) == "rgb(14, 18, 23)"
        assert picture(page, BOUNDARY) == dark
        page.reload()
        assert page.evaluate(background) == "rgb(14, 18, 23)"
        assert wrong == []
        page.close()

    def test_phone_has_one_column(self, browser):
        page, wrong = opened(browser, f"{SMALL}&compare=residual", **PHONE)
        for name in ("Data", "Network", "Training"):
            page.locator("summary", has_text=name).tap()
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        lefts = {
            page.locator(name).bounding_box()["x"]
            for name in (".card >> nth=0", ".card >> nth=3", ".controls details >> nth=0")
        }
        assert len(lefts) == 1
        assert all(
            page.locator(f"#{name}").bounding_box()["height"] >= 44 for name in ("play", "step", "reset", "rate")
        )
        assert wrong == []
        assert serious_faults(page) == []  # axe loads the style sheet in its own way, which files refuse
        page.close()

    def test_is_used_by_keyboard_and_read_aloud(self, browser):
        page, wrong = opened(browser, SMALL)
        reached = []
        for _ in range(60):
            page.keyboard.press("Tab")
            reached.append(page.evaluate("document.activeElement.id || document.activeElement.className"))
        assert reached.count("tip") == 3
        wanted = [
            "share",
            "theme",
            "play",
            "step",
            "reset",
            "data-spirals",
            "file",
            "points",
            "noise",
            "classes",
            "heldout",
        ]
        wanted += [
            "order",
            "learn",
            "layers",
            "width",
            "tau",
            "activation",
            "compare",
            "rate",
            "gradient",
            "speed",
            "seed",
        ]
        places = [reached.index(name) for name in [*wanted, "new-seed", "flow-play", "layer"]]
        assert places == sorted(places)
        page.focus("#step")
        page.keyboard.press("Enter")
        assert page.locator("[role=status]").inner_text().startswith("Step 1: loss ")
        settled(page)
        for canvas in page.query_selector_all("canvas:not([aria-hidden])"):
            name = canvas.get_attribute("aria-label") or page.inner_text(f"#{canvas.get_attribute('aria-labelledby')}")
            assert len(name) > 30
        assert wrong == []
        page.close()


class TestFiles:
    @pytest.mark.parametrize("path", sorted(STATIC.iterdir()), ids=lambda path: path.name)
    def test_are_small_and_name_no_other_place(self, path):
        text = path.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= 400
        if path.suffix == ".js":
            assert max(map(len, text.splitlines())) <= 120
        places = re.findall(r"(?:https?:)?//[\w.-]+\.\w+", text)
        assert [place for place in places if place != "http://www.w3.org"] == []

    def test_link_to_pages_of_the_documentation(self):
        linked = re.findall(r'href="\.\./([^"]+)\.html"', (STATIC / "index.html").read_text(encoding="utf-8"))
        assert len(linked) == 5
        assert all((STATIC.parent / f"{name}.md").exists() for name in linked)
