"""Networks and solutions with memory, written out from their formulas in float64 for autograd; nothing of the library.

With steps τ_j = t_j − t_{j−1} and p = 1 − order,

    Y_j = Y_{j−1} − Σ_{k<j} w_jk (Y_k − Y_{k−1}) + Γ(2−order) τ_j^order f_{j−1}(Y_{j−1}),
    w_jk = τ_j^order / τ_k · [(t_j − t_{k−1})^p − (t_j − t_k)^p].
"""

import torch


def times_of(steps):
    return torch.cat([steps.new_zeros(1), steps.cumsum(0)])


def memory(order, t):
    """The weights w [N, N] and the factors [N] for times t [N + 1] and one order, or one for each step."""
    steps = t.diff()
    order = order.expand(len(steps)).unsqueeze(1)
    gap = t[1:].unsqueeze(1) - t
    later = gap > 0
    powers = torch.where(later, torch.where(later, gap, 1.0) ** (1.0 - order), 0.0)
    scale = steps.unsqueeze(1) ** order
    factors = torch.exp(torch.lgamma(2.0 - order)) * scale
    return scale / steps * (powers[:, :-1] - powers[:, 1:]), factors.squeeze(1)


def states(step, y0, order, t):
    """Y_0, …, Y_N, where `step(j, Y_j)` is f_j."""
    weights, factors = memory(order, t)
    history, differences = [y0], []
    for j, factor in enumerate(factors):
        y = history[-1] + factor * step(j, history[-1])
        if j:
            y = y - torch.tensordot(weights[j, :j], torch.stack(differences), 1)
        differences.append(y - history[-1])
        history.append(y)
    return history
