"""Summaries of the parts of a table, merged in an order that does not depend on who reads which part.

A node of level l and index i covers the parts from i 2^l up to (i + 1) 2^l, of which those beyond the last are nothing:
it merges its two children, the left one first. Sums in floating point and sketches of quantiles are then the same bits
for any number of processes.
"""

import pickle
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Generic, Protocol, Self, TypeVar

import torch

from fracdnn.training import together


class Mergeable(Protocol):
    def merged(self, other: Self) -> Self:
        """The summary of both; `other` is of later parts."""


Summary = TypeVar("Summary", bound=Mergeable)


@dataclass(frozen=True)
class Node(Generic[Summary]):
    """A summary of the parts from index 2^level up to (index + 1) 2^level."""

    level: int
    index: int
    summary: Summary


@dataclass
class Tree(Generic[Summary]):
    """Of a range of parts that come in order, the nodes whose parents are not complete: 2 log2(parts) at most."""

    nodes: list[Node[Summary]] = field(default_factory=list)

    def add(self, node: Node[Summary]) -> None:
        """The node that follows the last one."""
        while node.index % 2 and self.nodes and self.nodes[-1].level == node.level:  # its left brother
            left = self.nodes.pop()
            node = Node(node.level + 1, node.index // 2, left.summary.merged(node.summary))
        self.nodes.append(node)

    def add_part(self, number: int, summary: Summary) -> None:
        self.add(Node(0, number, summary))

    def root(self) -> Summary:
        """Of all parts, where they are here from the first on; each node that is left has no brother but the next."""
        found = reversed([node.summary for node in self.nodes])
        return reduce(lambda later, each: each.merged(later), found)


def shared(tree: Tree[Summary]) -> Tree[Summary]:
    """The tree of all processes, on each of them; every one passes that of its range of parts, in their order.

    Nodes are sent one at a time, and merged at once.
    """
    if together.is_alone():
        return tree
    what = "the summary of the table"
    whole: Tree[Summary] = Tree()
    for rank, n_nodes in enumerate(together.numbers(len(tree.nodes), what)):
        for place in range(n_nodes):
            node = tree.nodes[place] if rank == together.rank() else None
            whole.add(unpacked(together.from_rank(rank, packed(node), what)))
    return whole


def packed(value: Any) -> torch.Tensor:
    """A value as bytes for the other processes of a training; None is no bytes. No file is ever read this way."""
    content = b"" if value is None else pickle.dumps(value)
    return torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else torch.empty(0, dtype=torch.uint8)


def unpacked(content: torch.Tensor) -> Any:
    """The inverse of `packed`."""
    return pickle.loads(content.numpy().tobytes()) if len(content) else None
