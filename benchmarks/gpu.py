"""What this package does on an accelerator, on one page: is it right, does it wait, how fast is it.

    make gpu PYTHON=python3 DEVICE=cuda                     # writes docs/measurements/gpu-CARD.md
    python benchmarks/gpu.py --only encoders,losses         # these sections alone
    make gpu DEVICE=cpu                                     # tiny sizes, writes runs/gpu/cpu.md
    python benchmarks/gpu.py --prepare ../shared/data/multi30k    # where the data are: runs/gpu/multi30k.npz

It needs torch, transformers and pydantic, no network and no data: batches are random, but for two epochs of
Multi30k, whose pairs are prepared beforehand together with the processor's losses. Each section stands for
itself: one that fails says why on the page, and the command then ends with status 1.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks")]


def _stand_in_for_jaxtyping() -> None:
    """Where it is not installed, shapes in signatures are words only."""
    stand_in = ModuleType("jaxtyping")
    for name in ("Bool", "Float", "Int", "Int16", "UInt8"):
        setattr(stand_in, name, type(name, (), {"__class_getitem__": classmethod(lambda *_: Any)}))
    sys.modules["jaxtyping"] = stand_in


MISSING = [name for name in ("pytest", "jaxtyping") if importlib.util.find_spec(name) is None]
if "jaxtyping" in MISSING:
    _stand_in_for_jaxtyping()

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
import transformers as hf  # noqa: E402
from infusion_cost import Work, compare, medians, random_batch, random_relations  # noqa: E402
from torch import Tensor  # noqa: E402

from syntaxformer.infusion import InfusionConfig, infuse  # noqa: E402
from syntaxformer.infusion.cost import twins  # noqa: E402
from syntaxformer.nn import plan_widths  # noqa: E402
from syntaxformer.runs.step_graphs import StepGraphs  # noqa: E402
from syntaxformer.syntax import TreeOptions  # noqa: E402
from syntaxformer.translation.batches import (  # noqa: E402
    EncodedPairs,
    TokenBudgetBatches,
    TranslationCollator,
)
from syntaxformer.translation.model import SyntaxTransformer, SyntaxTransformerConfig  # noqa: E402
from syntaxformer.translation.source import EncodedText  # noqa: E402

INFUSIONS = ("masks", "relation_bias", "lisa", "pos_add", "masks,lisa,pos_add")
TRANSLATORS: dict[str, dict[str, Any]] = {
    "none": {}, "sum_then_concat": {}, "onehot_concat": {}, "prepend": {}, "masks": {"masks": {}},
    "relation_bias": {"relation_bias": {}}, "lisa": {"lisa": {}},
}  # fmt: skip
FACTORS = {"pos": 20, "case": 4, "subword": 6}
CHECKPOINT = ROOT / "experiments" / "marian_tatoeba_en_de"
SENTENCES = ("I have a dog .", "Tom is my friend .", "I do not know him .", "She is at home .")
FP32, BF16 = torch.float32, torch.bfloat16

Rows = Iterator[tuple[Any, ...]]
"""The heading of a table, then its rows."""


class Skipped(Exception):
    """Why a section was left out."""


class Sizes:
    """Real ones on an accelerator, tiny ones on a processor; the tests take the tiniest."""

    def __init__(self, is_tiny: bool, is_test: bool = False) -> None:
        bert = {
            "hidden_size": 768,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "intermediate_size": 3072,
        }
        small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
        small["initializer_range"] = 0.1  # so that attention matters
        self.is_tiny, self.is_test = is_tiny, is_test
        self.bert = hf.BertConfig(**(small if is_tiny else bert), vocab_size=211 if is_tiny else 30522)
        self.lengths = (8,) if is_test else (32, 128, 512)
        self.cells = 16 if is_test else 512 if is_tiny else 8192
        self.rounds = 1 if is_test else 3 if is_tiny else 7
        self.translator = {
            "d_model": 32 if is_tiny else 512, "d_ff": 64 if is_tiny else 2048,
            "n_heads": 2 if is_tiny else 8, "encoder_layers": 1 if is_tiny else 3,
            "decoder_layers": 1 if is_tiny else 3, "vocab_size": 211 if is_tiny else 8000,
        }  # fmt: skip
        self.line = 8 if is_test else 32  # pieces of a line of a translator

    def encoder(self, names: str, **more: Any) -> Any:
        config = hf.BertConfig(**{**self.bert.to_dict(), **more})
        return twins(config, InfusionConfig.parse(names).fitted())[names != "none"]

    def own(self, name: str, **more: Any) -> SyntaxTransformer:
        kind = name if name in ("none", "sum_then_concat", "onehot_concat", "prepend") else "none"
        shape = {**self.translator, **more}
        plan = plan_widths(kind, shape["d_model"])
        sizes = {factor: FACTORS[factor] for factor, _ in plan.factors}
        torch.manual_seed(0)
        infusion = {"infusion": plan.as_dict(), "factor_sizes": sizes, **TRANSLATORS[name]}
        return SyntaxTransformer(SyntaxTransformerConfig(**shape, **infusion))

    def subjects(self) -> Iterator[tuple[str, Any, int, int]]:
        """Name, model without dropout, lines and pieces of each."""
        encoders, translators = ("none", *INFUSIONS), tuple(TRANSLATORS)
        if self.is_test:
            encoders, translators = ("masks",), ("sum_then_concat",)
        for names in encoders:
            model = self.encoder(names, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
            yield f"BERT, {names}", _opened(model), 2 if self.is_test else 8, self.lengths[0]
        for name in translators:
            model = self.own(name, dropout=0.0, attention_dropout=0.0)
            yield f"translator, {name}", _opened(model), 2 if self.is_test else 8, self.line


def _opened(model: Any) -> Any:
    """What is new does something, whatever it starts as: gates, topical queries, biases, tags."""
    torch.manual_seed(2)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.requires_grad and (".infusion." in f".{name}" or not parameter.any()):
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def _padded(model: Any, n_rows: int, n_pieces: int) -> dict[str, Any]:
    """A batch with a shorter last line; where tags are pieces, every second piece is one."""
    batch = random_batch(model, n_rows, n_pieces)
    pieces = batch["input_ids"]
    if (getattr(model.config, "infusion", None) or {}).get("kind") == "prepend":
        pieces[:, ::2] = model.config.vocab_size + pieces[:, ::2] % FACTORS["pos"]
    n_kept = pieces.shape[1] - 3
    batch["attention_mask"] = torch.ones_like(pieces)
    for name in {"attention_mask", "first_pieces"} & batch.keys():
        batch[name][-1, n_kept:] = 0
    if "governors" in batch:
        batch["governors"].clamp_(max=n_kept - 1)
    if batch["labels"].dim() > 1:
        batch["labels"][-1, -3:] = -100
    return batch


# Is it right?


def device_tests(sizes: Sizes, device: torch.device) -> Rows:
    """The suite's tests of devices."""
    if MISSING or sizes.is_test:
        raise Skipped(f"{' and '.join(MISSING)} not installed" if MISSING else "this is a test itself")
    options = ("-o", "addopts=", "-o", "filterwarnings=", "-p", "no:cacheprovider", "--import-mode=importlib")
    command = [sys.executable, "-m", "pytest", "-q", *options, "tests/contract/test_devices.py"]
    paths = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    given = {**os.environ, "PYTHONPATH": paths, "SYNTAXFORMER_DEVICE": str(device)}
    done = subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True)
    last = [line for line in done.stdout.splitlines() if line.strip()]
    yield "tests/contract/test_devices.py", "result"
    yield "", last[-1] if last else done.stderr[-300:]
    yield from (("", line) for line in last if line.startswith(("FAILED", "ERROR")))
    if done.returncode:
        raise AssertionError("a test failed: see the rows")


def waits(sizes: Sizes, device: torch.device) -> Rows:
    """A training step and a forward pass in which asking the device for a value is an error."""
    yield "model", "training step", "forward pass"
    if device.type != "cuda":
        raise Skipped("only CUDA can tell")
    failed = False
    for name, model, n_rows, n_pieces in sizes.subjects():
        work = Work(model.to(device), random_batch(model, n_rows, n_pieces), FP32)
        found = []
        for one in (work.step, work.use):
            one()  # compiles and fills caches
            torch.cuda.synchronize()
            torch.cuda.set_sync_debug_mode("error")
            try:
                one()
                found.append("does not wait")
            except RuntimeError as error:
                failed = True
                found.append(f"waits: {_where(error)}")
            finally:
                torch.cuda.set_sync_debug_mode("default")
        yield name, *found
    if failed:
        raise AssertionError("something waits for the device: see the rows")


def _where(error: BaseException) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(last.filename).name}:{last.lineno} {str(error).splitlines()[0][:80]}"


def losses(sizes: Sizes, device: torch.device) -> Rows:
    """A batch without dropout: loss and gradients by the processor and the device, each tensor for itself."""
    of_losses = ("loss on the processor", "on the device, fp32", "bf16", "bf16 − fp32")
    yield "model", *of_losses, "largest gradient difference"
    worst = 0.0
    for name, model, n_rows, n_pieces in sizes.subjects():
        batch, found, gradients = _padded(model, n_rows, n_pieces), [], []
        for place, dtype in ((torch.device("cpu"), FP32), (device, FP32), (device, BF16)):
            given = {key: one.to(place) for key, one in batch.items()}
            work = Work(model.to(place).train(), given, dtype)
            loss = work.forward().loss
            found.append(float(loss.detach()))
            model.zero_grad()
            loss.backward()
            of_all = [one.grad for one in model.parameters() if one.grad is not None]
            # Copies, since a model that moves takes its gradients along.
            gradients.append([one.to("cpu", torch.float32, copy=True) for one in of_all])
        # Norms, since a unit of ReLU near 0 may fall on either side and changes one row.
        heights = [float(one.norm()) for one in gradients[0]]
        rounding = 1e-6 * max(heights)  # biases of keys may have no other gradient
        gaps = [float((a - b).norm()) for a, b in zip(*gradients[:2], strict=True)]
        apart = max(gap / (height + rounding) for gap, height in zip(gaps, heights, strict=True))
        worst = max(worst, apart, 10 * abs(found[1] - found[0]) / abs(found[0]))
        worst = max(worst, abs(found[2] - found[1]) / abs(found[1]))
        yield (
            name,
            *(f"{one:.6f}" for one in found),
            f"{found[2] - found[1]:+.1e}",
            f"{apart:.1e} of its tensor's norm",
        )
        model.to("cpu")
    if not worst < 1e-2:  # or it is not a number
        told = "losses to 1e-3 (bf16: 1e-2) and gradients to 1e-2"
        raise AssertionError(f"expected the processor's {told}, got {worst:.1e} in place of 1e-2")


# How fast is it?


def encoders(sizes: Sizes, device: torch.device) -> Rows:
    """BERT beside its infused forms: all take turns, times are medians, ratios are to the plain model."""
    names = ("none", "masks") if sizes.is_test else ("none", *INFUSIONS)
    models = {name: sizes.encoder(name).to(device) for name in names}
    measures = ("step, ms", "ratio", "pass, ms", "ratio", "peak, MiB", "ratio", "recorded step, ms", "ratio")
    yield "pieces", "lines", "type", "infused with", *measures
    for n_pieces in sizes.lengths:
        n_rows = max(1, sizes.cells // n_pieces)
        for dtype in (FP32, BF16):
            found: dict[str, Any] = compare(models, n_rows, n_pieces, sizes.rounds, dtype)
            batches = {name: random_batch(model, n_rows, n_pieces) for name, model in models.items()}
            found["recorded_s"] = _recorded(models, batches, dtype, sizes.rounds)
            for name in names:
                cells = []
                for key, factor in (("step_s", 1000), ("use_s", 1000), ("peak_mib", 1), ("recorded_s", 1000)):
                    value, plain = found[key][name], found[key]["none"]
                    cells += [f"{factor * value:,.2f}", f"{value / plain:.2f}"] if value else ["–", "–"]
                yield n_pieces, n_rows, _short(dtype), name, *cells


def _recorded(
    models: dict[str, Any], batches: dict[str, Any], dtype: torch.dtype, rounds: int
) -> dict[str, float | None]:
    """Median seconds of training steps whose passes are recorded, as with `training.cuda_graphs`."""
    device = next(iter(models.values())).device
    if device.type != "cuda":
        return dict.fromkeys(models)

    def made(model: Any, batch: dict[str, Tensor]) -> Callable[[], Tensor]:
        work, graphs = Work(model, batch, dtype), StepGraphs([*model.parameters()])

        def passes(inputs: dict[str, Tensor]) -> tuple[Tensor, dict[str, Any]]:
            with torch.autocast("cuda", dtype, enabled=dtype != FP32):
                loss = model(**inputs).loss
            loss.backward()
            return loss.detach(), {}

        def step() -> Tensor:
            model.train()
            loss, _ = graphs.run(passes, batch)
            work.optimizer.step()
            work.optimizer.zero_grad()
            return loss

        for _ in range(2):  # the second is recorded
            step()
        return step

    return {**medians({name: made(models[name], batches[name]) for name in models}, device, rounds)}


def translators(sizes: Sizes, device: torch.device) -> Rows:
    """Our translator: target pieces a second, by steps over lines of one length; beam search is of beam 5."""
    names = ("none", "masks") if sizes.is_test else tuple(TRANSLATORS)
    n_rows = max(1, sizes.cells // sizes.line // 2)
    models = {name: sizes.own(name).to(device) for name in names}
    batches = {name: random_batch(model, n_rows, sizes.line) for name, model in models.items()}
    of_steps = ("trained, fp32", "trained, bf16", "trained by recorded steps, fp32", "bf16")
    yield "infused with", *of_steps, "written by beam search, fp32", "bf16"
    speeds: dict[str, list[float]] = {name: [] for name in names}
    for dtype in (FP32, BF16):
        steps = {name: Work(models[name], batches[name], dtype).step for name in names}
        for name, seconds in medians(steps, device, sizes.rounds).items():
            speeds[name].append(n_rows * sizes.line / seconds)
    for dtype in (FP32, BF16):
        for name, seconds in _recorded(models, batches, dtype, sizes.rounds).items():
            speeds[name].append(n_rows * sizes.line / seconds if seconds else 0.0)
    for dtype in (FP32, BF16):
        written = {
            name: partial(_write, models[name].eval(), batches[name], sizes.line, dtype) for name in names
        }
        for name, seconds in medians(written, device, 1).items():
            speeds[name].append(n_rows * sizes.line / seconds)
    for name, found in speeds.items():
        yield name, *(f"{speed:,.0f}" if speed else "–" for speed in found)


@torch.inference_mode()
def _write(model: Any, batch: dict[str, Tensor], length: int, dtype: torch.dtype, n_beams: int = 5) -> Tensor:
    source = {key: one for key, one in batch.items() if key not in ("labels", "first_pieces")}
    with torch.autocast(model.device.type, dtype, enabled=dtype != FP32):
        return model.generate(**source, num_beams=n_beams, min_new_tokens=length, max_new_tokens=length)


def flex_attention(sizes: Sizes, device: torch.device) -> Rows:
    """A layer's attention with biases by relation: SDPA takes one of each pair, FlexAttention looks it up.

    With gradients where FlexAttention has them, which is not on a processor.
    """
    from torch.nn.attention.flex_attention import flex_attention as flex

    learns = device.type != "cpu"
    run: Any = torch.compile(flex) if learns else flex
    n_heads, width = (2, 16) if sizes.is_tiny else (12, 64)
    yield "pieces", "lines", "type", "SDPA, ms", "FlexAttention, ms", "ratio", "largest relative difference"
    for n_pieces in sizes.lengths:
        n_rows = max(1, sizes.cells // n_pieces)
        ids = random_relations(n_rows, n_pieces, TreeOptions(trees=("dependency",)))[:, 0].to(device).long()
        for dtype in (FP32, BF16):
            torch.manual_seed(0)
            shape = (n_rows, n_heads, n_pieces, width)
            states = [torch.randn(shape, device=device, dtype=dtype, requires_grad=learns) for _ in range(3)]
            table = torch.randn(n_heads, 47, device=device, dtype=dtype, requires_grad=learns)
            leaves = [*states, table]
            works = {
                "sdpa": partial(_both_ways, partial(_sdpa, states, table, ids), leaves),
                "flex": partial(
                    _both_ways, partial(run, *states, score_mod=_by_relation(table, ids)), leaves
                ),
            }
            results = [work() for work in works.values()]
            apart = max(
                float((a - b).float().norm() / a.float().norm()) for a, b in zip(*results, strict=True)
            )
            taken = medians(works, device, sizes.rounds)
            times = [f"{1000 * one:.2f}" for one in taken.values()]
            ratio = f"{taken['flex'] / taken['sdpa']:.2f}"
            yield n_pieces, n_rows, _short(dtype), *times, ratio, f"{apart:.1e}"


def _sdpa(states: list[Tensor], table: Tensor, ids: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(*states, attn_mask=table[:, ids].transpose(0, 1))


def _by_relation(table: Tensor, ids: Tensor) -> Callable[..., Tensor]:
    return lambda score, row, head, query, key: score + table[head, ids[row, query, key]]


def _both_ways(work: Callable[[], Tensor], leaves: list[Tensor]) -> list[Tensor]:
    """The output and the gradients of its sum of squares."""
    output = work()
    learns = leaves[0].requires_grad
    return [output.detach(), *(torch.autograd.grad(output.float().square().sum(), leaves) if learns else ())]


# Does it learn?


def training(pairs: Path | None, sizes: Sizes, device: torch.device) -> Rows:
    """Two epochs in fp32 without dropout, of the same weights and batches; dev loss for each target piece."""
    if sizes.is_tiny and pairs is None:
        content = _random_pairs(sizes.translator["vocab_size"], 24 if sizes.is_test else 300)
        content["processor"] = np.array(_two_epochs(content, sizes, torch.device("cpu"))[0])
    else:
        path = pairs or PAIRS
        if not path.is_file():
            raise Skipped(f"no prepared pairs at {path}; where the data are, run: {_PREPARE}")
        content = dict(np.load(path, allow_pickle=False))
    found, seconds = _two_epochs(content, sizes, device)
    yield "epoch", "dev loss", "the processor's", "difference"
    apart = [one - other for one, other in zip(found, content["processor"], strict=True)]
    for epoch, (loss, difference) in enumerate(zip(found, apart, strict=True), 1):
        yield epoch, f"{loss:.4f}", f"{loss - difference:.4f}", f"{difference:+.4f}"
    n_pieces = 2 * len(content["train_tgt_pieces"])
    yield "", f"{n_pieces:,} target pieces in {seconds:.1f} s", f"{n_pieces / seconds:,.0f} a second", ""
    if max(map(abs, apart)) > 0.05:
        raise AssertionError("expected the processor's dev losses to 0.05: see the rows")


PAIRS = ROOT / "runs" / "gpu" / "multi30k.npz"
_PREPARE = "python benchmarks/gpu.py --prepare DATA/multi30k"
_SIDES = [(split, side) for split in ("train", "dev") for side in ("src", "tgt")]


def _two_epochs(content: dict[str, Any], sizes: Sizes, device: torch.device) -> tuple[list[float], float]:
    """Dev losses after each epoch, and the seconds of both."""
    arrays = ("pieces", "splits", "factors")
    texts = {
        (split, side): EncodedText(*(content[f"{split}_{side}_{array}"] for array in arrays))
        for split, side in _SIDES
    }
    train, dev = (EncodedPairs(texts[split, "src"], texts[split, "tgt"]) for split in ("train", "dev"))
    shape = {"d_model": 256, "d_ff": 512, "n_heads": 4, "vocab_size": int(content["vocab_size"])}
    shape |= {"encoder_layers": 3, "decoder_layers": 3}
    no_dropout = {"dropout": 0.0, "attention_dropout": 0.0, "label_smoothing": 0.1}
    is_random = sizes.is_tiny and shape["vocab_size"] == sizes.translator["vocab_size"]
    model = sizes.own("sum_then_concat", **({} if is_random else shape), **no_dropout).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98), fused=True)
    warm = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda done: min(1.0, (done + 1) / 200))
    batches, found, seconds = TokenBudgetBatches(train.src.lengths, train.tgt.lengths, 2048, seed=1), [], 0.0
    for epoch in range(2):
        batches.set_epoch(epoch)
        model.train()
        start = time.perf_counter()
        for batch in _on(device, train, batches):
            (model(**batch, num_items_in_batch=(batch["labels"] >= 0).sum()).loss).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            warm.step()
            optimizer.zero_grad()
        found.append(_dev_loss(model, device, dev))  # waits
        seconds += time.perf_counter() - start
    return found, seconds


@torch.no_grad()
def _dev_loss(model: Any, device: torch.device, dev: EncodedPairs) -> float:
    model.eval()
    batches = TokenBudgetBatches(dev.src.lengths, dev.tgt.lengths, 2048, shuffle=False)
    total = torch.stack(
        [model(**batch, num_items_in_batch=1).loss for batch in _on(device, dev, batches)]
    ).sum()
    return float(total) / len(dev.tgt.pieces)


def _on(device: torch.device, pairs: EncodedPairs, batches: Any) -> Iterator[dict[str, Tensor]]:
    collate, pins = TranslationCollator(pairs, 0), device.type == "cuda"
    for rows in batches:
        batch = collate(rows)
        yield {
            key: (one.pin_memory() if pins else one).to(device, non_blocking=pins)
            for key, one in batch.items()
        }


def _random_pairs(vocab: int, n_pairs: int) -> dict[str, Any]:
    """The target is the source backwards."""
    random, content = np.random.default_rng(1), {"vocab_size": np.array(vocab)}
    for split, n in (("train", n_pairs), ("dev", n_pairs // 4)):
        lengths = random.integers(3, 8, n)
        splits = np.concatenate([[0], np.cumsum(lengths)])
        lines = [random.integers(4, 20, length) for length in lengths]
        for side, step in (("src", 1), ("tgt", -1)):
            pieces = np.concatenate([np.append(line[:-1][::step], 2) for line in lines]).astype(np.int32)
            factors = np.zeros((len(pieces), len(FACTORS) * (side == "src")), np.int32)
            content |= {f"{split}_{side}_pieces": pieces, f"{split}_{side}_splits": splits}
            content[f"{split}_{side}_factors"] = factors
    return content


def prepare(data: Path, pairs: Path, n_pairs: int | None) -> None:
    """Encode Multi30k with tags, train on the processor, and write pairs and dev losses into one file."""
    from syntaxformer.annotate import load_annotator
    from syntaxformer.base.files import read_lines
    from syntaxformer.syntax import WordColumns, build_vocabularies
    from syntaxformer.translation.source import SourceEncoder
    from syntaxformer.translation.subwords import SubwordConfig, train_subwords

    text = {
        (split, side): list(read_lines(data / f"{name}.{ending}.gz"))[:n_pairs]
        for split, name in (("train", "train"), ("dev", "val"))
        for side, ending in (("src", "en"), ("tgt", "de"))
    }
    tokenizer = train_subwords(text["train", "src"] + text["train", "tgt"], SubwordConfig(vocab_size=8000))
    encoder, plain = SourceEncoder(tokenizer, build_vocabularies([], list(FACTORS))), SourceEncoder(tokenizer)
    annotator, content = load_annotator("en"), {"vocab_size": np.array(len(tokenizer))}
    for split, side in _SIDES:
        lines = text[split, side]
        words = WordColumns.from_sentences(annotator.annotate(lines)) if side == "src" else None
        encoded = (encoder if side == "src" else plain).encode(lines, words)
        for part in ("pieces", "splits", "factors"):
            content[f"{split}_{side}_{part}"] = getattr(encoded, part)
    content["processor"] = np.array(_two_epochs(content, Sizes(is_tiny=False), torch.device("cpu"))[0])
    pairs.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(pairs, **content)
    print(f"{pairs}: dev losses {content['processor']}")


def checkpoint(sizes: Sizes, device: torch.device) -> Rows:
    """A pretrained Marian translator with masks, as a run that starts from it begins: words in, words out."""
    yield "", "on the processor", "on the device"
    vocabulary = json.loads((CHECKPOINT / "vocab.json").read_text("utf-8"))
    names, found = {row: piece for piece, row in vocabulary.items()}, []
    lines = [[vocabulary[word if word == "." else f"▁{word}"] for word in line.split()] for line in SENTENCES]
    length = 1 + max(map(len, lines))
    hf.utils.logging.disable_progress_bar()
    model: Any = hf.MarianMTModel.from_pretrained(CHECKPOINT, dtype=FP32, local_files_only=True)
    pad, end = model.config.pad_token_id, model.config.eos_token_id
    model.generation_config.max_length = None
    model = infuse(model, InfusionConfig.parse("masks"))
    pieces = torch.tensor([[*line, end, *[pad] * (length - 1 - len(line))] for line in lines])
    batch = {"input_ids": pieces, "attention_mask": (pieces != pad).long()}
    batch["syntax"] = random_relations(len(lines), length, model.infusion.config.tree_options)
    labels = pieces.masked_fill(pieces == pad, -100)
    for place in (torch.device("cpu"), device):
        given = {key: one.to(place) for key, one in batch.items()}
        loss = model.to(place).eval()(**given, labels=labels.to(place)).loss
        search = {"num_beams": 5, "max_new_tokens": 32}
        written = _write(model, given, 12, FP32, 2) if sizes.is_test else model.generate(**given, **search)
        texts = ["".join(names[row] for row in line if row not in (pad, end)) for line in written.tolist()]
        found.append([f"{float(loss):.5f}", *(text.replace("▁", " ").strip() for text in texts)])
    yield from zip(["loss of copying", *SENTENCES], *found, strict=True)
    if found[0][1:] != found[1][1:] or abs(float(found[0][0]) - float(found[1][0])) > 1e-3:
        raise AssertionError("expected the processor's translations and loss: see the rows")


def _short(dtype: torch.dtype) -> str:
    return "fp32" if dtype == FP32 else "bf16"


# The page.


def sections(pairs: Path | None) -> dict[str, Callable[[Sizes, torch.device], Rows]]:
    return {
        "Tests of devices": device_tests,
        "Does anything wait?": waits,
        "Losses and gradients": losses,
        "Encoders beside the plain model": encoders,
        "Our translator, target pieces a second": translators,
        "FlexAttention against SDPA": flex_attention,
        "Two epochs of Multi30k": partial(training, pairs),
        "A translator started from a checkpoint": checkpoint,
    }


def page(
    sizes: Sizes, device: torch.device, pairs: Path | None, only: set[str] | None = None
) -> tuple[str, bool]:
    """The page in Markdown, and whether every section went well; `only` names functions of sections."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    parts, is_well = [f"# On {name}", "", *_conditions(sizes, device)], True
    for title, work in sections(pairs).items():
        if only is not None and getattr(work, "func", work).__name__ not in only:
            continue
        start, rows, said = time.perf_counter(), [], ""
        try:
            with exact_fp32():
                for row in work(sizes, device):
                    rows.append(row)
        except Skipped as reason:
            said = f"Skipped: {reason}."
        except Exception as error:
            said, is_well = f"**Failed**: {type(error).__name__}: {_where(error)}", False
            traceback.print_exc()
        about = (getattr(work, "func", work).__doc__ or "").split("\n\n")[0]
        parts += ["", f"## {title}", "", " ".join(about.split()), "", *_table(rows)]
        parts += ["", said] if said else []
        seconds = time.perf_counter() - start
        print(f"{title}: {said or 'done'} ({seconds:.1f} s)", file=sys.stderr, flush=True)
    return "\n".join(parts) + "\n", is_well


@contextmanager
def exact_fp32() -> Iterator[None]:
    """Products of fp32 are not rounded to TF32, and libraries' warnings are not on the way."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = False
        yield


def _conditions(sizes: Sizes, device: torch.device) -> Iterator[str]:
    command = "python benchmarks/gpu.py" if sizes.is_test else f"make gpu DEVICE={device}"
    yield f"Written by `{command}`, {time.strftime('%d %B %Y')}."
    yield "Weights and batches are random unless a section says otherwise. Products in fp32 are exact (no"
    yield "TF32), those in bf16 are by autocast." + " Sizes are tiny." * sizes.is_tiny
    yield ""
    yield "| what | version |"
    yield "|---|---|"
    yield f"| commit | {_commit()} |"
    if device.type == "cuda":
        card = torch.cuda.get_device_properties(device)
        memory = f"{card.total_memory / 2**30:.0f} GiB"
        yield f"| card | {card.name}, {memory}, capability {card.major}.{card.minor} |"
        yield f"| CUDA of PyTorch | {torch.version.cuda} |"
    threads = torch.get_num_threads()
    yield f"| machine | {platform.machine()}, {os.cpu_count()} processors, {threads} threads |"
    yield f"| Python | {platform.python_version()} |"
    for package in ("torch", "transformers", "pydantic", "triton"):
        try:
            yield f"| {package} | {version(package)} |"
        except PackageNotFoundError:
            yield f"| {package} | none |"


def _commit() -> str:
    """The commit of this clone, or the one that COMMIT names where the clone's history is absent."""
    command = ["git", "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    except FileNotFoundError:
        return os.environ.get("COMMIT", "unknown")
    return done.stdout.strip() or os.environ.get("COMMIT", "unknown")


def _table(rows: list[tuple[Any, ...]]) -> Iterator[str]:
    for number, row in enumerate(rows):
        yield f"| {' | '.join(str(one).replace('|', '/') for one in row)} |"
        if number == 0:
            yield "|" + "---|" * len(row)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument(
        "--output", type=Path, help="default: docs/measurements/gpu-CARD.md, or runs/gpu/cpu.md"
    )
    parser.add_argument(
        "--pairs", type=Path, help="default: runs/gpu/multi30k.npz, on a processor random ones"
    )
    parser.add_argument(
        "--prepare", type=Path, metavar="DIR", help="folder of Multi30k: write --pairs and leave"
    )
    parser.add_argument("--lines", type=int, help="with --prepare: only so many pairs")
    parser.add_argument("--smallest", action="store_true", help="one model of each kind, as the test runs it")
    names = [getattr(work, "func", work).__name__ for work in sections(None).values()]
    parser.add_argument("--only", metavar="NAMES", help=f"sections to run, with commas: {', '.join(names)}")
    given = parser.parse_args()
    only = set(given.only.split(",")) if given.only else None
    if only is not None and not only <= set(names):
        parser.error(f"--only: expected some of {', '.join(names)}, got {given.only}")
    if given.prepare is not None:
        prepare(given.prepare, given.pairs or PAIRS, given.lines)
        return
    device = torch.device(given.device)
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = " ".join(str(error).split())[:200]
        sys.exit(f"error: DEVICE: expected a device of this machine, got {device}. PyTorch says: {reason}")
    card = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    slug = "".join(one if one.isalnum() else "-" for one in card.lower()).strip("-")
    name = "runs/gpu/cpu.md" if device.type == "cpu" else f"docs/measurements/gpu-{slug}.md"
    to = given.output or ROOT / name
    text, is_well = page(Sizes(device.type == "cpu", given.smallest), device, given.pairs, only)
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text(text, "utf-8")
    print(to)
    sys.exit(not is_well)


if __name__ == "__main__":
    main()
