"""What `precision: auto` is, and where `compile` is refused."""

from __future__ import annotations

import time

import pytest
import torch
import torch.nn.functional as F

from syntaxformer.base.errors import BackendMissingError, ConfigError
from syntaxformer.runs import processes as precision
from syntaxformer.runs.config import RunTraining
from syntaxformer.runs.processes import check_compiler, pick_precision


@pytest.fixture
def processor(monkeypatch):
    """Gives the processor that is asked another gain by bf16; returns how often it was measured."""
    measured = []

    def become(gain: float | None, *, instructions: bool = True) -> list[float]:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        monkeypatch.setattr(precision, "_has_bf16", lambda: instructions)
        monkeypatch.setattr(precision, "_bf16_gain", lambda: measured.append(gain) or gain)
        precision._fast_precision.cache_clear()
        return measured

    yield become
    precision._fast_precision.cache_clear()


@pytest.mark.parametrize(
    ("setting", "has_instructions", "gain", "expected"),
    [
        *(("auto", True, 0.6, "fp32"), ("auto", True, 1.1, "fp32"), ("auto", True, 2.0, "bf16")),
        *(("auto", False, None, "fp32"), ("fp32", True, None, "fp32"), ("bf16", True, None, "bf16")),
    ],
)
def test_auto_is_bf16_only_where_it_is_faster(processor, setting, has_instructions, gain, expected):
    """It is measured once, and only where that decides."""
    measured = processor(gain, instructions=has_instructions)
    assert [pick_precision(setting), pick_precision(setting)] == [expected] * 2
    assert measured == ([] if gain is None else [gain])


def test_the_measurement_is_that_of_bf16_against_fp32(monkeypatch):
    def slow_in_fp32(rows, weight):  # without products: a busy processor must not decide
        time.sleep(0.1 if rows.dtype == torch.float32 else 0.01)
        return rows

    monkeypatch.setattr(precision, "_REPEATS", 3)
    assert precision._bf16_gain() > 0
    monkeypatch.setattr(F, "linear", slow_in_fp32)
    assert precision._bf16_gain() > 1.5


def test_compile_is_refused_where_there_is_no_compiler(processor):
    import torch._inductor.config

    processor(1.0)
    with (
        torch._inductor.config.patch({"cpp.cxx": ("no-such-compiler",)}),
        pytest.raises(BackendMissingError, match=(
            r"^training\.compile: a C\+\+ compiler .* is not installed\. Run: apt-get install g\+\+ "
            r"python3-dev, or set training\.compile=false\.$"
        )),
    ):  # fmt: skip
        check_compiler(RunTraining(compile=True))


def test_compile_is_refused_beside_shards():
    with pytest.raises(ConfigError, match=r"^training\.compile: expected false with"):
        check_compiler(RunTraining(compile=True, sharded=True))
