"""Summaries of the parts of a table, merged in an order that does not depend on who reads which part.

A node of level l and index i covers the parts from i 2^l up to (i + 1) 2^l, of which those beyond the last are nothing:
it merges its two children, the left one first. Sums in floating point and sketches of quantiles are then the same bits
for any number of processes.
"""

from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, Self, TypeVar

import torch

from fracdnn.columns.summaries import as_document, from_document
from fracdnn.container import document_bytes, read_document
from fracdnn.training import together


class Mergeable(Protocol):
    def merged(self, other: Self) -> Self:
        """Of both together, `other` being of later parts."""


Summary = TypeVar("Summary", bound=Mergeable)


@dataclass(frozen=True)
class Node(Generic[Summary]):
    """A summary of the parts from index 2^level up to (index + 1) 2^level."""

    level: int
    index: int
    summary: Summary

    def follows(self, other: "Node[Summary]") -> bool:
        """Whether both are the children of a node, the other being the left one."""
        return self.level == other.level and self.index % 2 == 1 and self.index == other.index + 1


@dataclass
class Tree(Generic[Summary]):
    """Of a range of parts that come in order, the nodes whose parents are not complete: 2 log2(parts) at most."""

    nodes: list[Node[Summary]] = field(default_factory=list)

    def add(self, node: Node[Summary]) -> None:
        """The node that follows the last one."""
        while self.nodes and node.follows(self.nodes[-1]):
            left = self.nodes.pop()
            node = Node(node.level + 1, node.index // 2, left.summary.merged(node.summary))
        self.nodes.append(node)

    def add_part(self, number: int, summary: Summary) -> None:
        self.add(Node(0, number, summary))

    def root(self) -> Summary:
        """Of all parts, where they are here from the first on; each node that is left has no brother but the next."""
        *others, last = (node.summary for node in self.nodes)
        for each in reversed(others):
            last = each.merged(last)
        return last


def shared(tree: Tree[Summary], kind: type[Summary]) -> Tree[Summary]:
    """The tree of all processes, on each of them, where every one has that of its range of parts, in their order.

    One node at a time is sent, and merged at once.
    """
    if together.is_alone():
        return tree
    what = "the summary of the table"
    whole: Tree[Summary] = Tree()
    for rank, n_nodes in enumerate(together.numbers(len(tree.nodes), what)):
        for place in range(n_nodes):
            if rank == together.rank():
                together.from_rank(rank, _packed(tree.nodes[place]), what)
                whole.add(tree.nodes[place])
            else:
                found = together.from_rank(rank, torch.empty(0, dtype=torch.uint8), what)
                whole.add(_unpacked(found, rank, kind))
    return whole


def _packed(node: Node[Any]) -> torch.Tensor:
    return torch.frombuffer(bytearray(document_bytes("summary", as_document(node))), dtype=torch.uint8)


def _unpacked(content: torch.Tensor, rank: int, kind: type[Summary]) -> Node[Summary]:
    document = read_document(f"what rank {rank} sent", "summary", content.numpy().tobytes())
    return Node(document["level"], document["index"], from_document(kind, document["summary"]))
