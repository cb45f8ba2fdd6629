"""Summaries of the parts of a table, merged in an order that does not depend on who reads which part.

A node of level l and index i covers the parts from i 2^l up to (i + 1) 2^l, of which those beyond the last are nothing:
it merges its two children, the left one first. Sums in floating point and sketches of quantiles are then the same bits
for any number of processes.
"""

from dataclasses import dataclass, field, fields, is_dataclass
from functools import reduce
from io import BytesIO
from types import UnionType
from typing import Any, Generic, Protocol, Self, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
import torch

from fracdnn.columns.late import pl
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
                node = tree.nodes[place]
                content = bytearray(document_bytes("summary", as_document(node)))
                together.from_rank(rank, torch.frombuffer(content, dtype=torch.uint8), what)
            else:
                sent = together.from_rank(rank, torch.empty(0, dtype=torch.uint8), what)
                document = read_document(f"what rank {rank} sent", "summary", sent.numpy().tobytes())
                node = Node(document["level"], document["index"], from_document(kind, document["summary"]))
            whole.add(node)
    return whole


def as_document(summary: Any) -> Any:
    """Dataclasses as dicts, arrays and frames as tensors, at any depth; exact."""
    if is_dataclass(summary):
        return {each.name: as_document(getattr(summary, each.name)) for each in fields(summary)}
    if isinstance(summary, tuple):
        return [as_document(each) for each in summary]
    if isinstance(summary, dict):
        return {name: as_document(each) for name, each in summary.items()}
    if isinstance(summary, np.ndarray):
        return torch.from_numpy(summary)
    return as_ipc(summary) if isinstance(summary, pl.DataFrame) else summary


def from_document(kind: Any, document: dict[str, Any]) -> Any:
    """The inverse of `as_document`, by the types of the fields."""
    types = get_type_hints(kind)
    return kind(**{name: _read(types[name], value) for name, value in document.items()})


def _read(hint: Any, value: Any) -> Any:
    if value is None:
        return None
    if get_origin(hint) in (Union, UnionType):  # with None
        return _read(get_args(hint)[0], value)
    if get_origin(hint) is tuple:
        hints = get_args(hint)
        return tuple(_read(hints[0] if hints[1:] == (...,) else hints[k], each) for k, each in enumerate(value))
    if get_origin(hint) is dict:
        return {name: _read(get_args(hint)[1], each) for name, each in value.items()}
    if is_dataclass(hint):
        return from_document(hint, value)
    if hint is np.ndarray:
        return value.numpy()
    return from_ipc(value) if hint is pl.DataFrame else value


def as_ipc(frame: "pl.DataFrame") -> torch.Tensor:
    content = BytesIO()
    frame.write_ipc(content)
    return torch.frombuffer(bytearray(content.getvalue()), dtype=torch.uint8)


def from_ipc(content: torch.Tensor) -> "pl.DataFrame":
    return pl.read_ipc(content.numpy().tobytes())
