"""Steps of training as CUDA graphs: all launches of a batch's passes are recorded for its shape and replayed.

In 16 bits a GPU computes a small network faster than a program can start its operations one by one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from syntaxformer.base.errors import one_line

_log = logging.getLogger("syntaxformer.training")

Tallies = dict[str, tuple[Tensor, Tensor]]
"""Right answers and all answers, by the name of their accuracy."""

Step = Callable[[dict[str, Tensor]], tuple[Tensor, Tallies]]
"""Adds the gradients of a batch to those of the parameters; returns the loss, and answers that it counted."""

_SOME_BATCHES = "some parameters have gradients in some batches alone"


@dataclass(frozen=True)
class _Recorded:
    """A step of one shape: it reads `inputs` and writes `results`, both always at the same place."""

    graph: torch.cuda.CUDAGraph
    inputs: dict[str, Tensor]
    results: tuple[Tensor, Tallies]


@dataclass
class StepGraphs:
    """Runs the first batch of a shape as usual, records the second, and replays that for all others.

    Gradients stay at the same place from update to update. Random numbers are those of steps that are not
    recorded. A step that cannot be recorded, since it waits for the device, say, is told of once; from then
    on all run as usual. So they do once a batch has gradients for other parameters than the first: a
    parameter whose gradient is 0 is moved by an optimizer, one without a gradient is not.

    Args:
        parameters: All that the step adds gradients to.
        most: Shapes that are recorded; batches of further ones run as usual.
    """

    parameters: Iterable[torch.nn.Parameter]
    most: int = 256
    _seen: set[Any] = field(default_factory=set)
    _recorded: dict[Any, _Recorded] = field(default_factory=dict)
    _gradients: dict[torch.nn.Parameter, Tensor] = field(default_factory=dict)
    _pool: Any = None
    _is_off: bool = False

    def run(self, step: Step, inputs: Mapping[str, Tensor], *settings: Any) -> tuple[Tensor, Tallies]:
        """The results of a step on a batch; `settings` are other values that it depends on."""
        if self._is_off:
            return step(dict(inputs))
        cleared = self._put_gradients()
        key = (*((name, tensor.dtype, *tensor.shape) for name, tensor in inputs.items()), *settings)
        if key in self._seen and key not in self._recorded and len(self._recorded) < self.most:
            self._record(step, inputs, key)
        self._seen.add(key)
        if (recorded := self._recorded.get(key)) is None:
            return self._run_as_usual(step, inputs, cleared)
        for name, tensor in inputs.items():
            recorded.inputs[name].copy_(tensor, non_blocking=True)
        recorded.graph.replay()
        loss, tallies = recorded.results
        return loss.clone(), {name: (right.clone(), n.clone()) for name, (right, n) in tallies.items()}

    def _put_gradients(self) -> list[torch.nn.Parameter]:
        """Where an optimizer has let go of gradients, put them back, set to 0; returns their parameters."""
        cleared = [parameter for parameter in self._gradients if parameter.grad is None]
        for parameter in cleared:
            parameter.grad = self._gradients[parameter]
        if cleared:
            torch._foreach_zero_([parameter.grad for parameter in cleared])
        return cleared

    def _run_as_usual(
        self, step: Step, inputs: Mapping[str, Tensor], cleared: Sequence[torch.nn.Parameter]
    ) -> tuple[Tensor, Tallies]:
        """Run a step, and compare the parameters that get gradients with those of the first batch."""
        versions = {parameter: gradient._version for parameter, gradient in self._gradients.items()}
        results = step(dict(inputs))
        gradients = {
            parameter: parameter.grad
            for parameter in self.parameters
            if parameter.grad is not None and parameter.grad._version != versions.get(parameter)
        }
        if not self._gradients:
            self._gradients = gradients
        elif gradients.keys() != self._gradients.keys() and not self._is_off:
            self._end(_SOME_BATCHES)
        if self._is_off:  # an optimizer would move the parameters whose gradients nothing has added to
            for parameter in cleared:
                if parameter not in gradients:
                    parameter.grad = None
        return results

    def _record(self, step: Step, inputs: Mapping[str, Tensor], key: Any) -> None:
        """Record a step, or end recording if it cannot be."""
        static = {name: tensor.clone() for name, tensor in inputs.items()}
        # Where a recording fails, PyTorch leaves generators as if it went on, and the stream that it was on.
        generators = [(generator, generator.clone_state()) for generator in torch.cuda.default_generators]
        try:
            # Steps of all shapes share their memory.
            self._pool = self._pool or torch.cuda.graph_pool_handle()
            graph = torch.cuda.CUDAGraph()
            with (
                torch.cuda.stream(torch.cuda.current_stream()),
                # Other threads may pin memory meanwhile.
                torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"),
            ):
                results = step(dict(static))
            if any(parameter.grad is not self._gradients.get(parameter) for parameter in self.parameters):
                raise RuntimeError(_SOME_BATCHES)
        except RuntimeError as error:
            for parameter in self.parameters:  # what a recording allocates holds no numbers
                parameter.grad = self._gradients.get(parameter)
            for generator, state in generators:
                generator.graphsafe_set_state(state)
            self._end(one_line(error.__context__ or error))  # which the end of a broken recording hides
        else:
            self._recorded[key] = _Recorded(graph, static, results)

    def _end(self, reason: str) -> None:
        """Let all further steps run as usual."""
        self._is_off = True
        self._recorded.clear()
        _log.warning(
            "training.cuda_graphs: expected a step that can be recorded, got one that cannot (%s). "
            "Training goes on without graphs. Set it to false.",
            reason,
        )
