"""Summaries of the parts of a table, merged in an order that does not depend on who reads which part.

A node of level l and place i covers the parts from i 2^l up to (i + 1) 2^l, of which those beyond the last are nothing:
it merges its two children, the left one first. Sums in floating point and sketches of quantiles are then the same bits
for any number of processes.
"""

from functools import reduce
from typing import Any, Generic, NamedTuple, TypeVar

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
    what, whole = "the summary of the table", Tree[Summary]()
    for rank, n_nodes in enumerate(together.numbers(len(tree.nodes), what)):
        for place in range(n_nodes):
            mine = tree.nodes[place] if rank == together.rank() else None
            whole.add(together.from_rank(rank, mine, what))
    return whole
