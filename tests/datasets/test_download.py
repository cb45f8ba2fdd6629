"""Downloads from a server on this machine, over a real socket."""

import os
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

import fracdnn
from fracdnn.datasets import load_perfume
from fracdnn.datasets.download import cache_folder, download
from fracdnn.exceptions import DownloadError, FracdnnError, InvalidArgumentError
from tests.datasets.test_datasets import PERFUME, needs_perfume
from tests.datasets.test_perfume import REMEDY, as_csv, as_xlsx, as_zip, perfume_rows


class Visit(BaseHTTPRequestHandler):
    """Answers with the file of that name, or in the way the name says."""

    def do_GET(self):
        name = self.path.removeprefix("/")
        self.server.visits.append((name, self.headers["User-Agent"]))
        with suppress(ConnectionError):
            getattr(self, f"answer_{name}", self.answer_file)(name)

    def answer_file(self, name):
        if name not in self.server.files:
            return self.send_error(404)
        return self.send(self.server.files[name])

    def send(self, content, length=None):
        self.send_response(200)
        self.send_header("Content-Length", str(len(content) if length is None else length))
        self.end_headers()
        self.wfile.write(content)

    def answer_cut_off(self, name):
        self.send(b"half", length=8)

    def answer_silent(self, name):
        self.server.closing.wait(60)

    def answer_stalls(self, name):
        self.send(b"half", length=8)
        self.server.closing.wait(60)

    def answer_endless(self, name):
        self.send_response(200)
        self.end_headers()
        while not self.server.closing.is_set():
            self.wfile.write(bytes(65536))

    def answer_moved(self, name):
        self.redirect("/table")

    def redirect(self, address):
        self.send_response(302)
        self.send_header("Location", address)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def site(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), Visit) as server:
        server.files, server.visits, server.closing = {}, [], threading.Event()
        server.url = f"http://127.0.0.1:{server.server_port}/"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.closing.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def cache(monkeypatch, tmp_path):
    folder = tmp_path / "cache"
    monkeypatch.setenv("FRACDNN_CACHE", str(folder))
    return folder / "perfume.csv"


@pytest.fixture
def nowhere(monkeypatch):
    """An address where nobody listens."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{place.getsockname()[1]}/table"


def test_a_download_says_who_asks(site):
    site.files["table"] = b"content"
    assert download(site.url + "table") == b"content"
    assert site.visits == [("table", f"fracdnn/{fracdnn.__version__}")]
    assert download(site.url + "moved") == b"content"


def test_a_failed_download(site):
    with pytest.raises(
        DownloadError, match=r"/missing could not be downloaded: HTTP Error 404: Not Found; try again later$"
    ) as caught:
        download(site.url + "missing")
    assert isinstance(caught.value, FracdnnError)
    assert isinstance(caught.value, OSError)


@pytest.mark.parametrize("name", ["silent", "stalls"])
def test_a_slow_server(site, name):
    with pytest.raises(DownloadError, match=rf"{name} could not be downloaded: .*timed out"):
        download(site.url + name, timeout=0.3)


def test_a_download_is_bounded(site):
    site.files["exact"] = bytes(1_000_000)
    assert len(download(site.url + "exact")) == 1_000_000
    with pytest.raises(DownloadError, match="endless could not be downloaded: it is larger than 1000000 bytes"):
        download(site.url + "endless")


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://example.org/a", "perfume.csv", "", 303])
def test_bad_addresses(cache, url):
    with pytest.raises(InvalidArgumentError, match=r"url must start with https:// or http://, got .*; pass a web"):
        load_perfume(url=url)


def test_a_malformed_address():
    with pytest.raises(DownloadError, match=r"http://\[::1 could not be downloaded: Invalid IPv6 URL"):
        download("http://[::1")


FORMS = {
    "perfume.csv": as_csv,
    "perfume_data.xlsx": as_xlsx,
    "perfume+data.zip": lambda rows: as_zip({"perfume_data.xlsx": as_xlsx(rows)}),
}


@needs_perfume
@pytest.mark.parametrize("name", FORMS)
def test_the_table_is_downloaded_once(site, cache, nowhere, name):
    site.files[name] = FORMS[name](perfume_rows())
    expected = load_perfume(PERFUME)
    for url in (site.url + name, site.url + name, nowhere):
        perfume = load_perfume(url=url)
        np.testing.assert_array_equal(perfume.data, expected.data)
        assert perfume.target_names == expected.target_names
    assert len(site.visits) == 1
    assert [path.name for path in cache.parent.iterdir()] == ["perfume.csv"]
    np.testing.assert_array_equal(load_perfume(cache).data, expected.data)
    np.testing.assert_array_equal(load_perfume().data, expected.data)


def altered(rows):
    return [[row[0], *row[1:-1], row[-1] + 1] for row in rows]


@needs_perfume
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("altered.xlsx", " must hold the perfume table, got other readings"),
        ("truncated.xlsx", " must hold the perfume table, got neither a spreadsheet"),
        ("truncated.csv", " must hold the perfume table, got other readings, .19, 28"),
        ("page.html", " must hold the perfume table, got other readings, .1, 0"),
        ("missing.xlsx", " could not be downloaded: HTTP Error 404: Not Found"),
        ("cut_off", " must hold the perfume table, got other readings"),
    ],
)
def test_a_bad_table_is_not_kept(site, cache, name, reason):
    rows = perfume_rows()
    site.files = {
        "altered.xlsx": as_xlsx(altered(rows)),
        "truncated.xlsx": as_xlsx(rows)[:-100],
        "truncated.csv": as_csv(rows[:-1]),
        "page.html": b"<!DOCTYPE html>",
    }
    with pytest.raises(DownloadError, match=rf'{site.url}{name}{reason}.*{REMEDY}load_perfume\("perfume_data.xlsx"\)'):
        load_perfume(url=site.url + name)
    assert not cache.exists()


def test_no_network(cache, nowhere):
    with pytest.raises(
        DownloadError,
        match=rf'{nowhere} could not be downloaded: \[Errno.*refused.*{REMEDY}load_perfume\("perfume_data.xlsx"\)',
    ):
        load_perfume(url=nowhere)


@needs_perfume
@pytest.mark.parametrize(
    "damage",
    [
        lambda rows: as_csv(altered(rows)),
        lambda rows: as_csv(rows)[:-40],
        lambda rows: b"",
        lambda rows: b"PK\x03\x04",
        lambda rows: b"1" * 2_000_000,
    ],
    ids=["altered", "truncated", "empty", "not a zip", "large"],
)
def test_a_damaged_cache_is_replaced(site, cache, damage):
    rows = perfume_rows()
    cache.parent.mkdir()
    cache.write_bytes(damage(rows))
    site.files["table"] = as_xlsx(rows)
    assert load_perfume(url=site.url + "table").data.shape == (560, 2)
    assert load_perfume(url=site.url + "table").data.shape == (560, 2)
    assert len(site.visits) == 1
    assert load_perfume(cache).data.shape == (560, 2)


@needs_perfume
def test_a_cache_that_cannot_be_written_costs_a_warning(site, cache):
    cache.parent.write_text("a file where the folder should be", encoding="utf-8")
    site.files["table"] = as_csv(perfume_rows())
    with pytest.warns(UserWarning, match=f"could not be kept in {cache.parent}: .*; set FRACDNN_CACHE") as caught:
        perfume = load_perfume(url=site.url + "table")
    assert perfume.data.shape == (560, 2)
    assert caught[0].filename == __file__


def test_the_cache_folder(monkeypatch):
    home = Path.home()
    for name in ("FRACDNN_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    assert cache_folder("linux") == home / ".cache" / "fracdnn"
    assert cache_folder("darwin") == home / "Library" / "Caches" / "fracdnn"
    assert cache_folder("win32") == home / "AppData" / "Local" / "fracdnn"
    monkeypatch.setenv("LOCALAPPDATA", str(home / "local"))
    assert cache_folder("win32") == home / "local" / "fracdnn"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder("linux") == home / ".cache" / "fracdnn"
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "caches"))
    assert cache_folder("linux") == home / "caches" / "fracdnn"
    monkeypatch.setenv("FRACDNN_CACHE", "~/here")
    assert cache_folder() == home / "here"


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can become an unknown user")
def test_the_cache_folder_of_a_user_without_a_home():
    code = "import os; from fracdnn.datasets.download import cache_folder; os.setuid(54321); print(cache_folder())"
    environment = {name: value for name, value in os.environ.items() if name == "PYTHONPATH"}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert run.stdout.strip() == "/tmp/fracdnn"
