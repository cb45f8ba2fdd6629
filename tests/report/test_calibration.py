"""Confidence and accuracy: the dots lie where the bins are."""

import re

from fracdnn.report.drawings import _calibration
from tests.report.samples import classified


def test_every_bin_with_rows_has_a_dot():
    subject = classified("a" * 40 + "b" * 20, "a" * 30 + "b" * 30)
    assert subject.reliability.counts.sum() == 60
    assert subject.reliability.hits.sum() == 50
    (svg,) = _calibration(subject, None).panels
    dots = re.search(r'id="PathCollection_1">(.*?)</g>\s*</g>', svg, re.DOTALL)
    assert dots[1].count("<use") + dots[1].count("<path") >= (subject.reliability.counts > 0).sum()
