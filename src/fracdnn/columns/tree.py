"""Summaries of the parts of a table, merged in an order that does not depend on who reads which part.

A node of level l and place i covers the parts from i 2^l up to (i + 1) 2^l, of which those beyond the last are nothing:
it merges its two children, the left one first. Sums in floating point and sketches of quantiles are then the same bits
for any number of processes.
"""

from functools import reduce
from io import BytesIO
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch

from fracdnn.columns.late import pl
from fracdnn.columns.summaries import Sums
from fracdnn.container import document_bytes, read_document
from fracdnn.training import together

Summary = TypeVar("Summary")


class Node(NamedTuple):
    """A summary of the parts from place 2^level up to (place + 1) 2^level."""

    level: int
    place: int
    summary: Any


class Tree(Generic[Summary]):
    """Of a range of parts that come in order, the nodes whose parents are not complete: 2 log2(parts) at most."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def add(self, node: Node) -> None:
        """The node that follows the last one."""
        while node.place % 2 and self.nodes and self.nodes[-1].level == node.level:  # its left brother
            left = self.nodes.pop()
            node = Node(node.level + 1, node.place // 2, left.summary.merged(node.summary))
        self.nodes.append(node)

    def add_part(self, number: int, summary: Summary) -> None:
        self.add(Node(0, number, summary))

    def root(self) -> Summary:
        """Of all parts, where they are here from the first on; each node that is left has no brother but the next."""
        return reduce(lambda later, each: each.merged(later), (node.summary for node in reversed(self.nodes)))


def shared(tree: Tree[Summary]) -> Tree[Summary]:
    """The tree of all processes, on each of them, where every one has that of its range of parts, in their order.

    One node at a time is sent, and merged at once.
    """
    if together.is_alone():
        return tree
    what, nothing = "the summary of the table", torch.empty(0, dtype=torch.uint8)
    whole: Tree[Summary] = Tree()
    for rank, n_nodes in enumerate(together.numbers(len(tree.nodes), what)):
        for place in range(n_nodes):
            is_mine = rank == together.rank()
            content = document_bytes("summary", {"node": as_document(tree.nodes[place])}) if is_mine else b""
            mine = torch.frombuffer(bytearray(content), dtype=torch.uint8) if is_mine else nothing
            sent = together.from_rank(rank, mine, what).numpy().tobytes()
            whole.add(Node(*from_document(read_document(f"what rank {rank} sent", "summary", sent)["node"])))
    return whole


def as_document(summary: Any) -> Any:
    """Summaries as dicts with their kind, arrays and frames as tensors, at any depth; exact."""
    if isinstance(summary, Sums):
        summary = {"kind": type(summary).__name__, **vars(summary)}
    if isinstance(summary, dict):
        return {name: as_document(each) for name, each in summary.items()}
    if isinstance(summary, tuple):
        return [as_document(each) for each in summary]
    if isinstance(summary, np.ndarray):
        return torch.from_numpy(summary)
    return {"frame": as_ipc(summary)} if isinstance(summary, pl.DataFrame) else summary


def from_document(value: Any) -> Any:
    """The inverse of `as_document`."""
    if isinstance(value, list):
        return tuple(map(from_document, value))
    if not isinstance(value, dict):
        return value.numpy() if isinstance(value, torch.Tensor) else value
    if "frame" in value:
        return from_ipc(value["frame"])
    parts = {name: from_document(each) for name, each in value.items()}
    return Sums.kinds[parts.pop("kind")](**parts) if "kind" in parts else parts


def as_ipc(frame: "pl.DataFrame") -> torch.Tensor:
    content = BytesIO()
    frame.write_ipc(content)
    return torch.frombuffer(bytearray(content.getvalue()), dtype=torch.uint8)


def from_ipc(content: torch.Tensor) -> "pl.DataFrame":
    return pl.read_ipc(content.numpy().tobytes())
