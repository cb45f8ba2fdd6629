"""Every private interface of torch that the package uses, with the test that notices when torch changes it.

Read this file when a new torch breaks something. Add a line here when the package takes another one: a scan of
the sources compares.
"""

import ast
from importlib import import_module
from pathlib import Path

import pytest
import torch
from torch import nn

import fracdnn

PACKAGE, TESTS = Path(fracdnn.__file__).parent, Path(__file__).parent
TRACING = "tracing.py"
MAPPED = "solver/test_torch.py::test_vmap_of_the_default_gives_each_sample_its_own_grid"
# Where it is used, and the test of it. `Tensor`, `Module`, `Node` and `MultiheadAttention` are objects of torch.
PRIVATE = {
    "torch._C._are_functorch_transforms_active": (TRACING, "test_tracing.py::test_what_is_traced"),
    "torch._C._functorch.is_functorch_wrapped_tensor": (TRACING, "test_tracing.py::test_what_carries_a_derivative"),
    "torch._C._functorch.is_legacy_batchedtensor": (TRACING, "test_tracing.py::test_batches_of_cotangents"),
    "torch._C._functorch.is_batchedtensor": (TRACING, "test_tracing.py::test_batches_of_cotangents"),
    "torch._C._functorch._add_batch_dim": (TRACING, MAPPED),
    "torch._C._functorch._remove_batch_dim": (TRACING, MAPPED),
    "torch._C._functorch.CVmapInterpreterPtr": (TRACING, MAPPED),
    "torch._C._functorch.peek_interpreter_stack": (TRACING, MAPPED),
    "torch._C._functorch.TransformType.Vmap": (TRACING, MAPPED),
    "torch._C._current_graph_task_id": (TRACING, "test_tracing.py::test_backward_passes_have_numbers_and_ends"),
    "torch._functorch.pyfunctorch.temporarily_clear_interpreter_stack": (TRACING, MAPPED),
    "torch._functorch.pyfunctorch.temporarily_restore_interpreter_stack": (TRACING, MAPPED),
    "torch._dynamo": ("app.py", "cli/test_loading.py::test_commands_that_train_are_ready_for_an_optimizer"),
    "torch._dynamo.compiled_autograd": (TRACING, "test_tracing.py::test_what_a_backward_pass_will_be"),
    "torch.autograd.Variable._execution_engine.queue_callback": (
        TRACING,
        "test_tracing.py::test_backward_passes_have_numbers_and_ends",
    ),
    "torch.autograd.forward_ad._current_level": (TRACING, "test_tracing.py::test_what_carries_a_derivative"),
    "torch.utils._python_dispatch._get_current_dispatch_mode_stack": (
        TRACING,
        "test_tracing.py::test_selective_checkpoints",
    ),
    **dict.fromkeys(
        (
            "torch._C._autograd._top_saved_tensors_default_hooks",
            "torch._C._autograd._pop_saved_tensors_default_hooks",
            "torch._C._autograd._push_saved_tensors_default_hooks",
        ),
        (TRACING, "test_tracing.py::test_hooks_on_saved_tensors_are_taken_away_and_put_back"),
    ),
    "torch._C.DisableTorchFunction": (TRACING, "test_tracing.py::test_constants_are_made_outside_of_all_modes"),
    "torch.utils._python_dispatch._disable_current_modes": (
        TRACING,
        "test_tracing.py::test_constants_are_made_outside_of_all_modes",
    ),
    "Module._compiled_call_impl": (TRACING, "test_tracing.py::test_hooks_on_a_module"),
    "Tensor._version": (TRACING, "memory/test_engine.py::test_versions_count_what_is_written_but_in_inference_mode"),
    "Module._load_from_state_dict": (
        "memory.py",
        "nn/test_stack.py::test_a_state_dict_of_other_orders_or_steps_is_refused",
    ),
    "MultiheadAttention._reset_parameters": ("memory.py", "nn/test_network.py::test_a_stack_resets_attention_whole"),
}
# An attribute of the package's own scores, and of sparse tensors, which it does not touch.
OURS = "_values"
# The key of what `get_extra_state` gives is documented; torch keeps its name for it private.
EXTRA_STATE = "_extra_state"
OBJECTS = {
    "Tensor": torch.ones(1),
    "Module": nn.Module(),
    "Node": torch.ones(1, requires_grad=True).sum().grad_fn,
    "MultiheadAttention": nn.MultiheadAttention(2, 1),
}
ATTRIBUTES = {name for each in OBJECTS.values() for name in dir(each) if name[0] == "_" and name[1] != "_"}


def private_names(text):
    """Private names of torch in a program: dotted ones by any alias, in strings, and attributes of its objects."""
    tree, found, aliases = ast.parse(text), set(), {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module.partition(".")[0] == "torch":
            aliases |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            aliases |= {alias.asname or alias.name: alias.name for alias in node.names if alias.name == "torch"}
            found |= {alias.name for alias in node.names if alias.name.startswith("torch.")}
    found |= set(aliases.values())
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in inner:
            found.add(_dotted(node, aliases))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            is_name = node.value.startswith("torch.") and " " not in node.value
            found |= {node.value} if is_name or node.value in ATTRIBUTES else set()
    return {name for name in found if any(part[:1] == "_" and part[:2] != "__" for part in name.split("."))}


def _dotted(node, aliases):
    """`torch._C.name` of an attribute of torch; `_name` of one that its objects have, but `self`; else nothing."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    base = node.id if isinstance(node, ast.Name) else ""
    if base in aliases:
        return ".".join([aliases[base], *reversed(parts)])
    return next((part for part in parts if part in ATTRIBUTES and base not in ("self", "cls")), "")


def listed(name):
    """As the scan finds it."""
    return name.partition(".")[2] if name.partition(".")[0] in OBJECTS else name


def test_every_private_name_of_torch_is_listed():
    found = {
        (name, path.name) for path in PACKAGE.rglob("*.py") for name in private_names(path.read_text(encoding="utf-8"))
    }
    names = {name for name, _ in found} - {EXTRA_STATE, OURS}
    assert names == {listed(name) for name in PRIVATE}
    assert {(listed(name), file) for name, (file, _) in PRIVATE.items()} <= found


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("import torch\ntorch._C._new(x)", "torch._C._new"),
        ("from torch.nn.modules import module as m\nm._global", "torch.nn.modules.module._global"),
        ("from torch.utils._pytree import tree_map", "torch.utils._pytree.tree_map"),
        ("x.grad_fn._saved_self._version", "_version"),
        ("getattr(module, '_buffers')", "_buffers"),
        ("import torch._inductor", "torch._inductor"),
    ],
)
def test_a_private_name_would_be_found(code, name):
    assert private_names(code) == {name}


@pytest.mark.parametrize("name", PRIVATE)
def test_torch_has_it(name):
    first, *parts = name.split(".")
    there = OBJECTS.get(first, torch)
    for part in parts:
        if not hasattr(there, part) and first == "torch":
            import_module(f"{there.__name__}.{part}")
        there = getattr(there, part)


def test_each_has_a_test():
    for _, test in PRIVATE.values():
        file, _, function = test.partition("::")
        assert f"\ndef {function}(" in (TESTS / file).read_text(encoding="utf-8"), test
