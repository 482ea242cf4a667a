"""A stand-in for CUDA's graphs: what is recorded changes nothing, and a replay runs the step again."""

from __future__ import annotations

from contextlib import contextmanager

import torch


class Recorder:
    """A step that notes its calls, and stands for `torch.cuda.graph` and `torch.cuda.CUDAGraph`."""

    def __init__(self, step, parameters):
        self.step, self.parameters = step, parameters
        self.calls, self.graphs, self.is_recording = [], [], False

    def installed(self, monkeypatch):
        monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 1))
        monkeypatch.setattr(torch.cuda, "current_stream", lambda: None)
        monkeypatch.setattr(torch.cuda, "CUDAGraph", self.new_graph)
        monkeypatch.setattr(torch.cuda, "graph", self.graph)
        return self

    @classmethod
    def of_trainer(cls, trainer, monkeypatch):
        """Record the steps of a trainer whose graphs are on; `inputs` are the batches."""
        recorder, run = cls(None, trainer.graphs.parameters).installed(monkeypatch), trainer.graphs.run
        recorder.inputs = []

        def noting_run(step, inputs, *settings):
            recorder.step = step
            recorder.inputs.append(inputs)
            return run(recorder, inputs, *settings)

        trainer.graphs.run = noting_run
        return recorder

    def __call__(self, batch):
        self.calls.append("recorded" if self.is_recording else "run")
        results = self.step(dict(batch))
        if self.is_recording:
            self.graphs[-1].work = batch, results
        return results

    @contextmanager
    def graph(self, graph, pool, capture_error_mode):
        before = [None if weight.grad is None else weight.grad.clone() for weight in self.parameters]
        self.graphs.append(graph)
        self.is_recording = True
        try:
            yield
        finally:
            self.is_recording = False
            for parameter, gradient in zip(self.parameters, before, strict=True):
                if gradient is not None:
                    parameter.grad.copy_(gradient)

    def new_graph(self):
        recorder = self

        class Graph:
            def replay(self):
                recorder.calls.append("replayed")
                batch, (loss, tallies) = self.work
                new_loss, new_tallies = recorder.step(dict(batch))
                loss.copy_(new_loss)
                for name, numbers in tallies.items():
                    for old, new in zip(numbers, new_tallies[name], strict=True):
                        old.copy_(new)

        return Graph()
