"""What the network is and how its training ended, in words."""

from fracdnn.report.memory import kept_states
from fracdnn.report.subject import Subject
from fracdnn.report.texts import count, number
from fracdnn.report.training import LEAST_LAYERS, gradient_ratio, why_ended


def network_facts(subject: Subject) -> dict[str, str]:
    estimator = subject.estimator
    shape, n_members = estimator.network_.architecture, len(estimator.members_)
    order = f"learned, from {estimator.order:.4g}" if estimator.learn_order else "fixed"
    facts = {
        "order": f"{estimator.order_:.4g}, {order}",
        "layers": f"{shape.n_layers}, of width {shape.width}, {shape.activation}",
        "last layer keeps": kept_states(subject),
        "members": count(n_members, "network") + (", whose answers are averaged" if n_members > 1 else ""),
        "features": count(len(subject.features), "input"),
        "training": why_ended(estimator.history_),
    }
    ratio = gradient_ratio(estimator.history_)
    if ratio is not None and 1 < subject.n_layers < LEAST_LAYERS:
        facts["gradient of the first layer"] = f"{number(ratio, 2)} times that of the last, in the median"
    if estimator.temperature_ is not None:
        facts["temperature"] = number(estimator.temperature_)
    return {name: text for name, text in facts.items() if text}
