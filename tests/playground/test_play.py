"""`fracdnn play` and its server: a real process on a real port, and what it refuses."""

import http.client
import json
import re
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from importlib.metadata import metadata
from pathlib import Path
from threading import Thread
from urllib.request import urlopen

import pytest

from fracdnn.exceptions import InvalidArgumentError, TableError
from fracdnn.playground import STATIC, Server
from fracdnn.playground.server import PORT
from fracdnn.playground.table import table_document
from tests.playground.pages import inside, opened

ROWS = [(f"{0.1 * i:.1f}", f"{(i * 7) % 5}", "yes" if i % 3 else "no") for i in range(30)]
CSV = "a;b;kind\n" + "\n".join(";".join(row) for row in ROWS) + "\n1.5;;no\n"


def started(*arguments, cwd):
    """The process, and where it serves, as it says itself."""
    process = subprocess.Popen(
        [sys.executable, "-m", "fracdnn", "play", *arguments],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Jobs in the background ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    line = process.stdout.readline()
    found = re.fullmatch(r"The playground is at (http://127\.0\.0\.1:\d+/) until you press Ctrl-C\.\n", line)
    if found is None:
        process.kill()
        pytest.fail(line + process.communicate()[1])
    return process, found[1]


def ended(process):
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    return process.returncode, out, err


def test_a_table_is_served_until_ctrl_c(tmp_path, browser):
    (tmp_path / "points.csv").write_text(CSV, encoding="utf-8")
    process, address = started("points.csv", "--port", "0", "--no-browser", cwd=tmp_path)
    try:
        page, wrong = opened(browser, type("At", (), {"address": address}))
        assert page.inner_text("#status") == "Your table: 30 rows, 2 classes."
        assert inside(page, "[...playground.table.x]") == [float(cell) for row in ROWS for cell in row[:2]]
        assert inside(page, "[playground.settings.data, playground.data.classNames]") == ["own", ["no", "yes"]]
        assert inside(page, "playground.table.columns") == ["a", "b"]
        assert wrong == []
        page.close()
    finally:
        code = ended(process)
    assert code == (0, "", "fracdnn: the playground is closed\n")
    with pytest.raises(OSError, match="refused"):
        urlopen(address)


def test_a_table_of_four_columns_is_served_as_it_is(tmp_path):
    (tmp_path / "t.csv").write_text("a,b,c,d\n" + "1,2,3,u\n4,5,6,v\n" * 6, encoding="utf-8")
    process, address = started("t.csv", "--port", "0", "--no-browser", cwd=tmp_path)
    with urlopen(f"{address}table.json") as answer:
        assert json.load(answer)["csv"].startswith("a,b,c,d\n1,2,3,u\n")
    assert ended(process) == (0, "", "fracdnn: the playground is closed\n")


def test_without_a_table_torch_is_not_needed(tmp_path):
    blocked = (
        "import sys; sys.modules.update(torch=None, polars=None, numpy=None); from fracdnn.cli import main; main()"
    )
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-c", blocked, "play", "--no-browser", "--port", port]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    message = f"port must be a free one, got {port} (Address already in use); pass another, or 0 for any that is free"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"fracdnn: {message}\n")


def test_the_usual_port_may_be_taken():
    with Server() as first, Server() as second:
        assert first.port != second.port
        assert second.port != PORT
        with pytest.raises(InvalidArgumentError, match=f"port must be a free one, got {first.port} "):
            Server(port=first.port)


def asked(server, path, method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.putrequest(method, path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    found = answer.status, answer.read(), dict(answer.getheaders())
    connection.close()
    return found


class TestFiles:
    @pytest.mark.parametrize("path", sorted(STATIC.iterdir()), ids=lambda path: path.name)
    def test_are_small_and_name_no_other_place(self, path):
        text = path.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= 400
        if path.suffix == ".js":
            assert max(map(len, text.splitlines())) <= 120
        places = re.findall(r"(?:https?:)?//[\w.-]+\.\w+", text)
        assert [place for place in places if place != "http://www.w3.org"] == []


class TestServer:
    def test_serves_every_file(self, served):
        assert served.server_address[0] == "127.0.0.1"
        for path in STATIC.iterdir():
            status, content, headers = asked(served, f"/{path.name}?x=1")
            assert (status, content) == (200, path.read_bytes())
            assert "default-src 'self'" in headers["Content-Security-Policy"]
        assert asked(served, "/")[1] == (STATIC / "index.html").read_bytes()
        assert asked(served, "/main.js")[2]["Content-Type"] == "text/javascript; charset=utf-8"
        assert asked(served, "/main.js", "HEAD")[:2] == (200, b"")
        assert asked(served, "/table.json")[1] == b"null\n"

    @pytest.mark.parametrize(
        "path",
        [
            "/../server.py",
            "/%2e%2e/server.py",
            "/static/../../server.py",
            "//etc/passwd",
            "/main.js/",
            "/..",
            "main.js",
            "/x",
        ],
    )
    def test_nothing_else(self, served, path):
        assert asked(served, path)[0] == 404

    def test_pages_of_the_documentation_are_elsewhere(self, served):
        places = dict(place.split(", ", 1) for place in metadata("fracdnn").get_all("Project-URL", []))
        root = places.get("Documentation", "").rstrip("/")
        status, _, headers = asked(served, "/how-to/order.html")
        assert (status, headers.get("Location")) == ((302, f"{root}/how-to/order.html") if root else (404, None))
        served.elsewhere["/x.html"] = "https://docs.example/x.html"
        assert asked(served, "/x.html")[2]["Location"] == "https://docs.example/x.html"
        linked = re.findall(r'href="\.\./([^"]+)\.html"', (STATIC / "index.html").read_text(encoding="utf-8"))
        docs = Path(__file__).parents[2] / "docs"
        assert len(linked) == 5
        assert all((docs / f"{name}.md").exists() for name in linked)

    def test_to_nobody_else(self, served):
        for host in ("evil.example", f"evil.example:{served.port}", "127.0.0.1", ""):
            assert asked(served, "/table.json", Host=host)[0] == 403
        assert asked(served, "/table.json", Host=f"localhost:{served.port}")[0] == 200
        assert asked(served, "/", "POST")[0] == 501


@contextmanager
def shown(table, browser):
    """A page of the table."""
    with Server(table_document(str(table)), port=0) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        page, wrong = opened(browser, server)
        yield page
        assert wrong == []
        page.close()
        server.shutdown()


class TestTable:
    @pytest.mark.parametrize(
        ("text", "target"),
        [("a,b,kind\n{a},{b},{kind}", "kind"), ("kind\ta\tb\n{kind}\t{a}\t{b}", "kind"), ("a,b,c\n{a},{b},{c}", "c")],
        ids=["last", "first", "numbers"],
    )
    def test_the_classes_are_found(self, tmp_path, browser, text, target):
        path, (heading, line) = tmp_path / "t.csv", text.split("\n")
        cells = [{"a": a, "b": b, "kind": kind, "c": len(kind)} for a, b, kind in ROWS]
        path.write_text("\n".join([heading, *(line.format(**row) for row in cells)]), encoding="utf-8")
        with shown(path, browser) as page:
            assert inside(page, "playground.table.columns") == ["a", "b"]
            assert inside(page, "[...playground.table.x]") == [float(cell) for row in ROWS for cell in row[:2]]
            labels = inside(page, "[...playground.table.labels].map((k) => playground.table.classNames[k])")
            assert labels == [str(row[target]) for row in cells]

    def test_of_many_columns_the_page_takes_some(self, tmp_path, browser):
        path = tmp_path / "t.csv"
        path.write_text("a,b,c,d\n" + "\n".join(f"{i},{i % 7},{i},{i % 2}" for i in range(5000)), encoding="utf-8")
        assert table_document(str(path))["left"] == 3000
        with shown(path, browser) as page:
            assert page.inner_text("#status") == "Your table: 2000 rows, 2 classes."
            assert page.is_visible("#columns")
            assert inside(page, "[...playground.table.x].slice(0, 6)") == [0, 0, 2, 2, 5, 5]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("a,b,c\n" + "x,y,1\n" * 12, 'Two columns must hold numbers, but "a" and "b" hold something else'),
            ("a,b,c\n" + "1,2,u\n" * 12, "The class column must hold 2 to 5 classes, but holds 1; keep some"),
            ("a,b,c\n" + "".join(f"1,2,{i}\n" for i in range(12)), "must hold 2 to 5 classes, but holds 12"),
            ("a,b,c\n" + "1,2,u\n3,4,v\n" * 4 + "1,,u\n" * 9, "must have at least 10 rows without missing values"),
            ("a,b,c\n" + "inf,2,u\n1,2,v\n" * 6, 'Two columns must hold numbers, but "a" and "c" hold something'),
        ],
    )
    def test_the_page_says_what_is_wrong(self, tmp_path, browser, text, message):
        path = tmp_path / "t.csv"
        path.write_text(text, encoding="utf-8")
        with shown(path, browser) as page:
            assert message in page.inner_text("#status")

    def test_two_columns_are_refused_at_once(self, tmp_path):
        path = tmp_path / "t.csv"
        path.write_text("a,b\n1,2\n", encoding="utf-8")
        message = "must have three columns or more, two of numbers and one of classes, got 'a', 'b'; add what"
        with pytest.raises(TableError, match=re.escape(message)):
            table_document(str(path))
