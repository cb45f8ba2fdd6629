"""Networks and solutions with memory, written out from their formulas in float64 for autograd; nothing of the library.

With steps τ_j = t_j − t_{j−1} and p = 1 − order,

    Y_j = Y_{j−1} − Σ_{k<j} w_jk (Y_k − Y_{k−1}) + Γ(2−order) τ_j^order f_{j−1}(Y_{j−1}),
    w_jk = τ_j^order / τ_k · [(t_j − t_{k−1})^p − (t_j − t_k)^p].
"""

import torch


def times_of(steps):
    return torch.cat([steps.new_zeros(1), steps.cumsum(0)])


def memory(order, t):
    """The weights w [N, N] and the factors [N] for times t [N + 1] and one order, or one for each step.

    A difference of powers is written as a^p − b^p = −a^p · expm1(p · log1p(−(a − b)/a)): as it stands it cancels, and
    its derivatives by t more so.
    """
    steps = t.diff()
    order = order.expand(len(steps)).unsqueeze(1)
    older = torch.ones(len(steps), len(steps), dtype=torch.bool).tril(-1)
    since = torch.where(older, t[1:].unsqueeze(1) - t[:-1], 2.0)
    share = torch.where(older, steps / since, 0.5)
    differences = -(since ** (1.0 - order)) * torch.expm1((1.0 - order) * torch.log1p(-share))
    scale = steps.unsqueeze(1) ** order
    weights = torch.where(older, scale / steps * differences, 0.0)
    return weights, (torch.exp(torch.lgamma(2.0 - order)) * scale).squeeze(1)


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
