"""Recorded steps, with a stand-in for CUDA's graphs: what is recorded changes nothing, and replays run it again."""

from __future__ import annotations

import pytest
import torch

from recorder import Recorder
from syntaxformer.base.errors import ConfigError
from syntaxformer.runs.processes import check_graphs
from syntaxformer.runs.step_graphs import StepGraphs


@pytest.fixture
def recorder(monkeypatch):
    """Makes a recorder of a step of some parameters."""
    return lambda step, parameters: Recorder(step, parameters).installed(monkeypatch)


def _linear():
    torch.manual_seed(0)
    model, unused = torch.nn.Linear(3, 1), torch.nn.Parameter(torch.ones(2))

    def step(batch):
        errors = (model(batch["x"]) - batch["y"]).squeeze(-1)
        loss = errors.square().mean()
        loss.backward()
        return loss.detach(), {"small": ((errors.abs() < 1).sum(), torch.tensor(len(errors)))}

    return model, [*model.parameters(), unused], step


def _batch(n, seed):
    numbers = torch.Generator().manual_seed(seed)
    return {"x": torch.randn(n, 3, generator=numbers), "y": torch.randn(n, 1, generator=numbers)}


def test_the_second_batch_of_a_shape_is_recorded_and_further_ones_are_replayed(recorder):
    """Two batches to an update; results and gradients are those of the step itself."""
    model, parameters, step = _linear()
    recorded = recorder(step, parameters)
    graphs, of_graphs, of_step = StepGraphs(parameters), [], []
    for results, run in ((of_step, step), (of_graphs, lambda batch: graphs.run(recorded, batch))):
        for update in range(4):
            model.zero_grad()
            for n in (4, 5):
                results.append(run(_batch(n, seed=10 * update + n)))
            results.append([weight.grad.clone() for weight in model.parameters()])
    torch.testing.assert_close(of_graphs, of_step, rtol=0, atol=0)
    assert recorded.calls == ["run"] * 2 + ["recorded", "replayed"] * 2 + ["replayed"] * 4
    assert parameters[-1].grad is None  # an optimizer would move it if it had one


def test_gradients_stay_in_place_and_begin_at_zero(recorder):
    model, parameters, step = _linear()
    graphs, batch = StepGraphs(parameters), _batch(4, seed=1)
    recorded = recorder(step, parameters)
    addresses = []
    for _ in range(3):
        model.zero_grad()
        graphs.run(recorded, batch)
        addresses.append(model.weight.grad.data_ptr())
    assert len({*addresses}) == 1
    expected = torch.autograd.grad((model(batch["x"]) - batch["y"]).square().mean(), model.weight)[0]
    torch.testing.assert_close(model.weight.grad, expected)


def test_other_settings_and_other_shapes_are_other_steps(recorder):
    _, parameters, step = _linear()
    recorded = recorder(step, parameters)
    graphs = StepGraphs(parameters, most=1)
    for settings in (1, 2, 1, 2, 1):
        graphs.run(recorded, _batch(4, seed=1), settings)
    # The second setting finds no room, and runs as usual.
    assert recorded.calls == ["run", "run", "recorded", "replayed", "run", "replayed"]


def test_what_cannot_be_recorded_runs_as_usual_and_is_told_once(caplog):
    """As on a processor, which has no graphs."""
    model, parameters, step = _linear()
    graphs, batch = StepGraphs(parameters), _batch(4, seed=1)
    losses = [float(graphs.run(step, batch)[0]) for _ in range(4)]
    with torch.no_grad():
        assert losses == [float((model(batch["x"]) - batch["y"]).square().mean())] * 4
    (message,) = caplog.messages
    assert message.startswith("training.cuda_graphs: expected a step that can be recorded")
    assert message.endswith("Training goes on without graphs. Set it to false.")


class _Generator:
    """What is drawn in a recording that fails leaves PyTorch's own generators in a state of recording."""

    def __init__(self, state="drawing"):
        self.state = state

    def clone_state(self):
        return _Generator(self.state)

    def graphsafe_set_state(self, other):
        self.state = other.state


def test_a_recording_that_fails_half_way_leaves_nothing(recorder, caplog, monkeypatch):
    """No gradient that was never computed, no generator that cannot draw, and the error that came first."""
    model, parameters, step = _linear()
    generator = _Generator()
    monkeypatch.setattr(torch.cuda, "default_generators", (generator,))

    def waiting(batch):
        if recorded.is_recording:
            generator.state = "recording"
            parameters[-1].grad = torch.full((2,), torch.nan)
            try:
                raise RuntimeError("the step waits for the device")
            finally:  # as the end of a broken recording does
                raise RuntimeError("the recording was invalid")
        return step(batch)

    recorded, graphs, batch = recorder(waiting, parameters), StepGraphs(parameters), _batch(4, seed=1)
    for _ in range(3):
        model.zero_grad()
        graphs.run(recorded, batch)
    assert recorded.calls == ["run", "recorded", "run", "run"]
    assert generator.state == "drawing"
    assert parameters[-1].grad is None
    expected = torch.autograd.grad((model(batch["x"]) - batch["y"]).square().mean(), model.weight)[0]
    torch.testing.assert_close(model.weight.grad, expected)
    (message,) = caplog.messages
    assert "(the step waits for the device)" in message


@pytest.mark.parametrize("comes_first", [False, True])
def test_a_parameter_with_a_gradient_in_some_batches_alone_is_told(recorder, caplog, comes_first):
    """Its gradient of 0 in the others would still move it."""
    _, parameters, step = _linear()

    def odd(batch):
        results = step(batch)
        if "also" in batch:
            batch["also"].mul(parameters[-1]).sum().backward()
        return results

    recorded, graphs, batch = recorder(odd, parameters), StepGraphs(parameters), _batch(4, seed=1)
    batches = [batch, batch, batch | {"also": torch.ones(1)}, batch]
    for number in (2, 0, 0) if comes_first else (0, 1, 2, 3):
        for parameter in parameters:
            parameter.grad = None
        graphs.run(recorded, batches[number])
        if comes_first and number == 0:
            assert parameters[-1].grad is None, "in the batch that shows it, too"
    assert "some parameters have gradients in some batches alone" in caplog.text
    assert recorded.calls[-1] == "run"
    assert parameters[-1].grad is None


def test_settings_that_stand_against_graphs_are_refused(tmp_path):
    from syntaxformer.translation.recipe import load_recipe

    recipe = load_recipe("tiny", [f"output={tmp_path}", "training.compile=true"])
    with pytest.raises(
        ConfigError, match=r"cuda_graphs: expected false without a GPU and with 2 processes and with"
    ):
        check_graphs(recipe, 2)
