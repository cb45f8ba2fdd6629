"""The diagrams of batches, delays and diffusion, on small sizes."""

from benchmarks import work_precision
from benchmarks.diffusion import Diffusion


def test_errors_fall_with_the_tolerance_and_with_steps(monkeypatch, tmp_path):
    monkeypatch.setattr(work_precision, "RTOLS", (1e-2, 1e-6))
    monkeypatch.setattr(work_precision, "SAMPLES", 20)
    monkeypatch.setattr(work_precision, "LOOPED", 2)
    results = {"batch": work_precision.batches(), "delay": work_precision.with_delay()}
    for curves in results.values():
        for points in curves.values():
            assert points[-1][1] < min(1e-5, points[0][1])
    work_precision.draw(results, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 1000


def test_the_implicit_l1_scheme_converges():
    diffusion = Diffusion(6)
    errors = [float((work_precision.l1_implicit(diffusion, 6, n) - diffusion.exact()).abs().max()) for n in (20, 80)]
    assert errors[1] < errors[0] / 4
