"""What ranks send to each other; tests/cli/test_ranks.py trains with several."""

import pytest
from torch import distributed

from fracdnn.exceptions import RankError
from fracdnn.training import processes


def test_a_rank_that_ended_is_told_in_words(monkeypatch):
    def broadcast(values):
        raise RuntimeError("[pair.cc:553] Connection closed by peer [127.0.0.1]:19334")

    monkeypatch.setattr(processes, "count", lambda: 2)
    monkeypatch.setattr(distributed, "broadcast_object_list", broadcast)
    words = r"all 2 processes must run until the training ends, but one ended or did not answer \(.*closed by peer"
    with pytest.raises(RankError, match=words):
        processes.from_first("seed")
