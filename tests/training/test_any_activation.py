"""Trainings of networks whose activation is no name: all kinds of training, checkpoints, several networks."""

import pytest
import torch
from torch import nn

from fracdnn.exceptions import FracdnnError
from fracdnn.nn import FractionalNetwork
from fracdnn.training import AdamTraining, Checkpoints, FullBatchTraining, Objective, Task


def task(activation):
    generator = torch.Generator().manual_seed(0)
    network = FractionalNetwork(2, 1, n_layers=3, width=5, activation=activation, generator=generator)
    x = torch.randn(60, 2, generator=generator)
    target = (x[:, :1] * x[:, 1:]).sin()
    return Task(network, Objective("squared_error"), x, target, generator=generator)


FULL, ADAM = FullBatchTraining(max_iter=25), AdamTraining(max_epochs=120, batch_size=20, lr=0.03)


@pytest.mark.parametrize(
    ("training", "activation"), [(FULL, torch.sin), (ADAM, nn.PReLU()), (FULL, lambda y: y / (1 + y.abs()))]
)
def test_it_trains(training, activation):
    made = task(activation)
    before = [parameter.detach().clone() for parameter in made.network.parameters()]
    losses = training.fit(made).column("loss")
    assert losses[-1] < 0.6 * losses[0]
    after = list(made.network.parameters())
    assert all(bool((old != new).any()) for old, new in zip(before, after, strict=True))


def test_a_checkpoint_knows_it_by_its_words(tmp_path):
    """Not by its place in memory, which another process would not have."""
    options = {"batch_size": 20, "lr": 0.02}
    whole = task(nn.PReLU())
    AdamTraining(max_epochs=8, **options).fit(whole)
    points = Checkpoints(tmp_path / "c", every=4)
    AdamTraining(max_epochs=8, **options, checkpoints=points).fit(task(nn.PReLU()))
    again = task(nn.PReLU())
    AdamTraining(max_epochs=8, **options, checkpoints=Checkpoints(tmp_path / "c", every=4, resume=True)).fit(again)
    for one, other in zip(whole.network.parameters(), again.network.parameters(), strict=True):
        assert torch.equal(one, other)
    resumed = Checkpoints(tmp_path / "c", every=4, resume=True)
    with pytest.raises(FracdnnError, match="network"):
        AdamTraining(max_epochs=8, **options, checkpoints=resumed).fit(task(torch.sin))
