"""Networks with random biases, what they compute by definition, and a layer that can be looked into."""

import gc

import torch
from torch import nn

from fracdnn.caputo import l1_step_factor, memory_matrix, memory_weights_on_grid
from fracdnn.memory import reference
from fracdnn.nn import FractionalNetwork
from fracdnn.nn.operators import ACTIVATIONS


def network(n_features=3, n_outputs=4, n_layers=5, dtype=torch.float64, *, seed=0, **options):
    generator = torch.Generator().manual_seed(seed)
    net = FractionalNetwork(n_features, n_outputs, n_layers=n_layers, generator=generator, **options).to(dtype)
    if net.b is not None:
        torch.nn.init.normal_(net.b, 0.0, 0.3, generator=generator)
    return net


def batch(n=6, width=3, dtype=torch.float64, seed=3):
    x = torch.randn(n, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(dtype)
    return x.requires_grad_()


def outputs_by_definition(net, x):
    """W Y_N of a dense network, by `memory.reference` and autograd."""
    n_layers, order, steps = len(net.K), net.memory.order, net.memory.step_size
    activation = ACTIVATIONS[net.options["activation"]]
    if steps.dim():
        times = torch.cat([torch.zeros(1, dtype=torch.float64), steps.cumsum(0)])
        matrix, factors = memory_weights_on_grid(order, times), l1_step_factor(order, steps)
    else:
        matrix, factors = memory_matrix(order, n_layers), l1_step_factor(order, steps).expand(n_layers)

    def step(j, y):
        return activation(y @ net.K[j].T + (0.0 if net.b is None else net.b[j]))

    y = x
    if net.input_weight is not None:
        y = x @ net.input_weight.T + net.input_bias
        y = activation(y) if net.options["activate_input"] else y
    return reference.propagate(matrix, factors, step, y)[-1] @ net.W.T


def bytes_held(call):
    """Memory of the tensors that a call makes and that are there when it has returned, with what it returns."""
    before = gc.get_objects()  # holds them all, so that none has the place of another
    known, result = set(map(id, before)), call()
    new = [each for each in gc.get_objects() if type(each) is torch.Tensor and id(each) not in known]
    storages = [each.untyped_storage() for each in (*new, result)]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


class Seen(nn.Module):
    """A layer that lets others look at the state it is given."""

    def __init__(self, layer, look):
        super().__init__()
        self.layer, self.look = layer, look

    def forward(self, y):
        self.look(y)
        return self.layer(y)
