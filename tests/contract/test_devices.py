"""On an accelerator nothing waits for the host: tried without one, on device "meta" and by counting what is read.

With SYNTAXFORMER_DEVICE=cuda, as `make gpu` sets it, steps also run there, and waiting is an error.

On "meta" an operation that meets a tensor of another device fails, and so does one that asks for a value. The
count says which operations of ours read a value or have a shape that depends on one; `plain_operations` makes a
CPU take the way of all other devices.
"""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import masking_utils

import syntaxformer as sf
from syntaxformer.nn.kernels.on_cpu import plain_operations
from syntaxformer.runs.step_graphs import StepGraphs
from tiny_hosts import BERT

DEVICE = torch.device(os.environ.get("SYNTAXFORMER_DEVICE", "cpu"))
READING = {"_local_scalar_dense", "nonzero", "masked_select", "unique2", "_unique2", "equal", "is_nonzero"}
ONE_HOT = "nn/infused_embedding.py"
"""The kind onehot_concat: `one_hot` checks its ids, but only on a CPU."""
OURS, HOSTS = Path(sf.__file__).parent, ("/transformers/", "/tests/")


class Reads(TorchDispatchMode):
    """Lists operations that read values, if our code asked for them."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        by_mask = name.startswith("index") and any(
            one is not None and one.dtype in (torch.bool, torch.uint8)
            for one in (args[1] if isinstance(args[1], list | tuple) else [])
        )
        asked = _asked_by() if name in READING or by_mask else None
        if asked and not asked.startswith(ONE_HOT):
            self.found.append(f"{name} at {asked}")
        return func(*args, **(kwargs or {}))


class AtomicAdds(TorchDispatchMode):
    """Lists operations that a GPU computes by atomic additions of floats, whose order differs in each run.

    The order does not matter for whole numbers, or where each sum has one term.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__.rstrip("_")
        adds = name in {"scatter_add", "index_add", "scatter_reduce", "index_reduce", "put"}
        if adds and args[0].is_floating_point():
            _, dim, index, terms = args[:4]
            if index.shape[dim] > 1 and not torch.equal(terms, terms.round()):
                self.found.append(f"{name} {tuple(args[0].shape)}")
        return func(*args, **(kwargs or {}))


def _asked_by() -> str | None:
    """The line of ours that called; None if a host or a test is nearer."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(str(OURS)):
            return f"{Path(name).relative_to(OURS)}, {frame.f_code.co_name}"
        if any(part in name for part in HOSTS):
            return None
        frame = frame.f_back
    return None


def _step(model: Any, batch: dict[str, torch.Tensor]) -> None:
    """A training step up to the gradients, and a forward pass in use."""
    model.train()(**batch).loss.backward()
    with torch.no_grad():
        model.eval()(**batch)


@pytest.fixture
def _no_question_of_the_host(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """In layers whose attention is the host's, the host asks whether there is padding, as it does when plain."""
    subject = request.getfixturevalue("subject")
    if not subject.is_translator and (subject.is_seq2seq or not subject.attends):
        monkeypatch.setattr(masking_utils, "_ignore_bidirectional_mask_sdpa", lambda *_, **__: False)


@pytest.mark.usefixtures("_no_question_of_the_host")
def test_a_step_runs_where_no_value_can_be_read(subject) -> None:
    model = subject.model().to("meta")
    _step(model, {name: tensor.to("meta") for name, tensor in subject.batch().items()})
    assert {one.grad.device.type for one in model.parameters() if one.grad is not None} == {"meta"}


def _gradients(subject: Any, device: torch.device) -> dict[str, torch.Tensor]:
    """Those of a step, and its loss, on a CPU."""
    model = subject.model().to(device).train()
    loss = model(**{name: tensor.to(device) for name, tensor in subject.batch().items()}).loss
    loss.backward()
    found = {name: one.grad.cpu() for name, one in model.named_parameters() if one.grad is not None}
    return {**found, "loss": loss.detach().cpu()}


def test_a_step_is_that_of_a_processor(subject) -> None:
    """Where there is no other device, the plain operations stand for it."""
    expected = _gradients(subject, torch.device("cpu"))
    with plain_operations() if DEVICE.type == "cpu" else nullcontext():
        found = _gradients(subject, DEVICE)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


if DEVICE.type == "cuda":  # nothing else tells what waits

    @pytest.mark.usefixtures("_no_question_of_the_host")
    def test_a_step_does_not_wait(subject) -> None:
        model, batch = (
            subject.model().to(DEVICE),
            {name: one.to(DEVICE) for name, one in subject.batch().items()},
        )
        _step(model, batch)  # fills caches
        torch.cuda.set_sync_debug_mode("error")
        try:
            _step(model, batch)  # raises where it waits
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert any(one.grad is not None for one in model.parameters())

    @pytest.mark.usefixtures("_no_question_of_the_host")
    def test_a_recorded_step_is_that_of_the_launches(subject) -> None:
        """With dropout, whose random numbers are the same; the batch of the replay is another one."""
        results = []
        for is_recorded in (False, True):
            model = subject.model().to(DEVICE).train()
            graphs, parameters = StepGraphs([*model.parameters()]), dict(model.named_parameters())

            def step(batch, model=model):
                loss = model(**batch).loss
                loss.backward()
                return loss.detach(), {}

            torch.manual_seed(4)
            for turn in range(4):
                model.zero_grad()
                batch = {name: one.to(DEVICE).roll(turn, 0) for name, one in subject.batch().items()}
                loss, _ = graphs.run(step, batch) if is_recorded else step(batch)
            assert len(graphs._recorded) == is_recorded
            gradients = {name: one.grad for name, one in parameters.items() if one.grad is not None}
            results.append({"loss": loss, **gradients})
        torch.testing.assert_close(*results)


def test_a_step_reads_nothing_from_the_device(subject) -> None:
    model, batch = subject.model(), subject.batch()
    with plain_operations():
        model(**batch)  # the first batch's settings are read
        with Reads() as reads:
            _step(model, batch)
    assert reads.found == []


def test_a_step_adds_in_the_same_order_each_time(subject) -> None:
    """So a run that was resumed on a GPU can equal an unbroken one."""
    with plain_operations(), AtomicAdds() as adds:
        _step(subject.model(), subject.batch())
    assert adds.found == []


def test_what_is_read_is_seen() -> None:
    """On a CPU the index of relations reads its largest id, so that rows get shorter."""
    from syntaxformer.nn import RelationIndex

    with Reads() as reads:
        RelationIndex.of(torch.zeros(2, 1, 3, 3, dtype=torch.uint8))
    assert reads.found
    assert all(one.startswith("_local_scalar_dense at nn/relation_index.py, ") for one in reads.found)


def test_atomic_additions_are_seen() -> None:
    """`gather` adds in its backward pass."""
    with AtomicAdds() as adds:
        states = torch.ones(2, 3, requires_grad=True)
        (states.gather(1, torch.zeros(2, 5, dtype=torch.int64)) * 0.3).sum().backward()
    assert adds.found == ["scatter_add (2, 3)"]


@pytest.mark.parametrize("names", ["masks", "relation_bias"])
def test_a_step_with_trees_left_out_reads_nothing(names: str) -> None:
    import transformers as hf

    model = sf.infuse(hf.BertForSequenceClassification(hf.BertConfig(**BERT)), names)
    model.infusion.leave_out("constituency", "sibling")
    batch = {
        "input_ids": torch.ones(3, 7, dtype=torch.int64),
        "syntax": torch.zeros(3, 2, 7, 7, dtype=torch.uint8),
        "labels": torch.zeros(3, dtype=torch.int64),
    }
    with plain_operations(), Reads() as reads:
        _step(model, batch)
    assert reads.found == []
    _step(model.to("meta"), {name: tensor.to("meta") for name, tensor in batch.items()})


def test_an_exported_graph_makes_its_tensors_on_the_devices_of_its_inputs() -> None:
    from syntaxformer.nn.syntax_graph import syntax_attention_graph

    states = [torch.zeros(3, 2, 7, 11, device="meta") for _ in range(3)]
    relations = torch.zeros(3, 2, 7, 7, dtype=torch.uint8, device="meta")
    active = [place % 3 > 0 for place in range(2 * 46 + 1)]
    found, _ = syntax_attention_graph(
        *states, relations, torch.zeros(2, 11, device="meta"), active=active, include_full=True
    )
    assert found.device.type == "meta"
