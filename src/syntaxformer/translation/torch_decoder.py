"""Beam search and sampling in PyTorch, with our own translators and pretrained ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel
from transformers.generation import LogitsProcessor
from transformers.modeling_outputs import BaseModelOutput

from syntaxformer.base.errors import CheckpointError, ConfigError
from syntaxformer.nn.kernels.memory import keep_freed_memory
from syntaxformer.runs.loading import check_outputs, longest_input
from syntaxformer.translation.alignment import AlignmentHead
from syntaxformer.translation.decoding import (
    Hypothesis,
    Search,
    batches_of,
    generate_settings,
    n_best_lists,
    normalised,
    source_pad_id,
)
from syntaxformer.translation.model import CACHE, TranslationCache
from syntaxformer.translation.source import EncodedText, source_batch


class TorchDecoder:
    """Beam search by `generate` of transformers, one batch at a time; `others` join as an `Ensembling`."""

    n_ahead = 0

    def __init__(self, model: PreTrainedModel, tokenizer: Any, others: Sequence[Any] = ()) -> None:
        self.model, self.tokenizer, self.models = model, tokenizer, (model, *others)
        self.longest = min(map(longest_input, self.models))

    def decode(self, source: EncodedText, rows: Sequence[int], search: Search) -> list[list[Hypothesis]]:
        """See `PieceDecoder`.

        Raises:
            ConfigError: There is a coverage penalty, which the search of transformers cannot count.
        """
        if search.coverage_penalty:
            raise ConfigError(
                f"coverage_penalty: expected none in PyTorch, whose search sees no attention, got "
                f"{search.coverage_penalty:g}. Give it to the model that `syntaxformer export` wrote."
            )
        if self.model.device.type == "cpu":
            keep_freed_memory()
        hypotheses: list[list[Hypothesis]] = []
        for batch in batches_of(source.lengths[list(rows)], search.batch_size):
            hypotheses += self._decode_batch(source, rows[batch], search)
        return hypotheses

    @torch.inference_mode()
    def _decode_batch(
        self, source: EncodedText, rows: Sequence[int], search: Search
    ) -> list[list[Hypothesis]]:
        tokenizer, n_best = self.tokenizer, search.n_best
        if search.temperature is not None:
            rows, n_best = np.repeat(rows, n_best).tolist(), 1
            search = search.model_copy(update={"beam_size": 1})
        n_beams, device, end_id = search.beam_size, self.model.device, tokenizer.eos_token_id
        batches, cache = self._inputs(source, rows), TranslationCache(len(source.others))
        limits = torch.from_numpy(search.limits(source, rows, self.longest))
        longest = int(limits.max())
        n_before = 1 + (self.model.generation_config.forced_bos_token_id is not None)
        limit = LengthLimit(limits, end_id, n_beams, device, search.min_length + n_before)
        processors: list[Any] = [Watch(search), limit]
        if source.others:
            processors.insert(1, Ensembling(self.models[1:], batches[1:], cache.others, n_beams))
        if source.prefixes is not None:
            prefixes = [source.prefix_of(row) for row in rows]
            processors.append(Prefixes(prefixes, n_beams, n_before, device))
        if search.temperature is not None:
            drawn = draws(source, rows, longest, search).to(device)
            processors.append(Sampling(drawn, search.temperature, search.top_k))
        usual = generate_settings(search, int(source.text_lengths[rows].max()), self.longest, tokenizer)
        sequences = self.model.generate(
            **batches[0],
            **{**usual, "max_new_tokens": longest},
            num_return_sequences=n_best,
            do_sample=False,
            logits_processor=processors,
            **{CACHE: cache},
        )
        check_outputs(limit.total)
        # `generate` may fill up with the end piece, so everything after the first end is padding.
        ends = sequences[:, 1:] == end_id
        is_text = ends.cumsum(1) - ends.long() == 0
        lengths = is_text.sum(1)
        pieces = [row[:n] for row, n in zip(sequences[:, 1:].tolist(), lengths.tolist(), strict=True)]
        scores = attention = None
        if search.scored:
            log_probs = self._log_probs(batches, sequences).where(is_text, 0.0)
            scores = normalised(log_probs.sum(1), lengths, search.length_penalty).tolist()
        if (head := search.alignment) is not None:
            repeated = _repeated(batches[0], len(sequences))
            weights = aligning_attention(cross_attentions(self.model, repeated, sequences), head)
            widths = np.repeat(source.lengths[rows], n_best).tolist()
            attention = [
                row[head.shift : head.shift + len(ids), :width]
                for row, ids, width in zip(weights, pieces, widths, strict=True)
            ]
        return n_best_lists(pieces, scores, search.n_best, attention)

    def _inputs(self, source: EncodedText, rows: Sequence[int]) -> list[dict[str, Tensor]]:
        """The encoder's inputs for some rows, for each model."""
        batches = []
        for model, text in zip(self.models, (source, *source.others), strict=True):
            batch = source_batch(text, rows, source_pad_id(model))
            if (batch["input_ids"] == self.tokenizer.pad_token_id).any():
                # In a separate source vocabulary this id may be a word: `generate` would take it for padding.
                batch.setdefault("attention_mask", torch.ones_like(batch["input_ids"]))
            batches.append({name: tensor.to(model.device) for name, tensor in batch.items()})
        return batches

    @torch.inference_mode()
    def score(
        self, source: EncodedText, pairs: Sequence[tuple[int, Sequence[int]]], batch_size: int
    ) -> list[list[float]]:
        """See `PieceDecoder`."""
        if self.model.device.type == "cpu":
            keep_freed_memory()
        lengths = [max(int(source.lengths[row]), len(pieces)) for row, pieces in pairs]
        start, pad_id = self.model.config.decoder_start_token_id, self.tokenizer.pad_token_id
        results = []
        for batch in batches_of(lengths, batch_size):
            rows, translations = zip(*pairs[batch], strict=True)
            longest = max(map(len, translations))
            padded = [[start, *pieces] + [pad_id] * (longest - len(pieces)) for pieces in translations]
            sequences = torch.tensor(padded, device=self.model.device)
            log_probs = self._log_probs(self._inputs(source, rows), sequences)
            check_outputs(log_probs)
            logs = log_probs.tolist()
            results += [log[: len(pieces)] for log, pieces in zip(logs, translations, strict=True)]
        return results

    def _log_probs(self, batches: Sequence[dict[str, Tensor]], sequences: Tensor) -> Tensor:
        """Mean log-probability by the models of each piece, `[translations, pieces]`, in one pass of each."""
        of_models = []
        for model, batch in zip(self.models, batches, strict=True):
            logits = model(**_repeated(batch, len(sequences)), decoder_input_ids=sequences[:, :-1]).logits
            of_models.append(logits.float().log_softmax(-1).gather(-1, sequences[:, 1:, None])[..., 0])
        log_probs = torch.stack(of_models).mean(0)
        if self.model.generation_config.forced_bos_token_id is not None:
            log_probs[:, 0] = 0.0  # as in the search, a language code is no choice
        return log_probs


def _repeated(batch: dict[str, Tensor], n_rows: int) -> dict[str, Tensor]:
    """A batch with each line as many times as it has translations."""
    n_best = n_rows // len(batch["input_ids"])
    return {name: tensor.repeat_interleave(n_best, 0) for name, tensor in batch.items()}


@contextmanager
def shown_attention(network: Any) -> Iterator[None]:
    """A network of transformers gives its weights only where its attention is the plain one."""
    config = network.config
    before = config._attn_implementation
    config._attn_implementation = "eager"
    try:
        yield
    finally:
        config._attn_implementation = before


@torch.inference_mode()
def cross_attentions(model: Any, batch: dict[str, Tensor], sequences: Tensor) -> Sequence[Tensor]:
    """Attention of each layer, `[sentences, heads, tgt, src]`, while the decoder reads some sequences.

    Raises:
        CheckpointError: It is not finite.
    """
    inputs = {name: tensor.to(model.device) for name, tensor in batch.items()}
    inputs["decoder_input_ids"] = sequences.to(model.device)
    with shown_attention(model.get_decoder()):
        weights = model(**inputs, use_cache=False, output_attentions=True).cross_attentions
    check_outputs(*weights)
    return weights


def aligning_attention(layers: Sequence[Tensor], chosen: AlignmentHead) -> NDArray[np.float32]:
    """The attention of the aligning head, `[sentences, tgt, src]`.

    Raises:
        CheckpointError: The network has no such head.
    """
    n_layers, n_heads = len(layers), layers[0].shape[1]
    if chosen.layer >= n_layers or chosen.head >= n_heads:
        raise CheckpointError(
            f"syntaxformer.json: alignment: expected layer and head below {n_layers} and {n_heads}, got "
            f"{chosen.layer} and {chosen.head}. It was altered."
        )
    return layers[chosen.layer][:, chosen.head].float().cpu().numpy()


class Ensembling(LogitsProcessor):
    """Averages the log-probabilities of M models at each step: 1/M · Σ_m log p_m(y_t | y_<t, x).

    The search itself runs the first model, with `n_beams` beams; here are the sources and caches of the
    others. Without beams its scores are logits, which differ by the same number for all pieces.
    """

    def __init__(self, others: Sequence[Any], batches: Sequence[Any], caches: Sequence[Any], n_beams: int):
        self.members: list[tuple[Any, dict[str, Any]]] = []
        for model, batch, cache in zip(others, batches, caches, strict=True):
            start = torch.full_like(batch["input_ids"][:, :1], model.config.decoder_start_token_id)
            states = model(**batch, decoder_input_ids=start).encoder_last_hidden_state
            inputs: dict[str, Any] = {key: rows.repeat_interleave(n_beams, 0) for key, rows in batch.items()}
            inputs["encoder_outputs"] = BaseModelOutput(states.repeat_interleave(n_beams, 0))
            self.members.append((model, {**inputs, "use_cache": True, CACHE: cache}))

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Let each model read the last piece of each beam."""
        for model, inputs in self.members:
            logits = model(**inputs, decoder_input_ids=input_ids[:, -1:]).logits[:, -1]
            scores = scores + logits.float().log_softmax(-1)
        return scores / (1 + len(self.members))


class Watch(LogitsProcessor):  # a plain function would have its signature parsed at each step
    """Looks between two steps whether a search should end, see `Search`."""

    def __init__(self, search: Search) -> None:
        self.search = search

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Leave the scores as they are."""
        self.search.check_length(input_ids.shape[1])
        if self.search.is_over is not None and self.search.is_over():
            raise TimeoutError("expected a search that ends in time, got a longer one")
        return scores


class LengthLimit(LogitsProcessor):
    """Ends each translation at its own limit, so that it does not depend on the other lines of its batch.

    Before it has `first_end` pieces, with the one before all, it may not end. `total` is a sum of scores over
    all steps, which is finite as long as all logits are.
    """

    def __init__(
        self, limits: Tensor, end_id: int, n_beams: int, device: torch.device, first_end: int = 0
    ) -> None:
        self.limits, self.first_end = limits.repeat_interleave(n_beams).to(device), first_end
        self.smallest = int(limits.min())
        self.end_id, self.n_beams, self.total = end_id, n_beams, torch.zeros((), device=device)

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Leave only the end piece where the limit is reached."""
        # With beams these are log-probabilities: if a logit is not finite, all of its row are NaN.
        looked = scores.amax(-1) if self.n_beams == 1 else scores[:, self.end_id].clamp(min=-1e9)
        self.total = self.total + looked.sum()
        if input_ids.shape[1] < self.first_end:  # no limit is lower
            return scores.index_fill(1, torch.tensor([self.end_id], device=scores.device), -torch.inf)
        n_pieces = input_ids.shape[1]  # with the one that is chosen now, without the start
        if n_pieces < self.smallest:
            return scores
        end_scores = scores[:, self.end_id].clone()
        scores = scores.masked_fill((self.limits <= n_pieces)[:, None], -torch.inf)
        scores[:, self.end_id] = end_scores
        return scores


class Prefixes(LogitsProcessor):
    """Lets each translation begin with given pieces, whose log-probabilities count as in any other.

    Args:
        prefixes: Of each line, without what stands before them in all (`n_before` pieces).
        n_beams: Translations of each line.
    """

    def __init__(
        self, prefixes: Sequence[Sequence[int]], n_beams: int, n_before: int, device: torch.device
    ) -> None:
        longest = max(map(len, prefixes))
        padded = torch.tensor([[*prefix, *[-1] * (longest - len(prefix))] for prefix in prefixes])
        self.pieces, self.n_before = padded.repeat_interleave(n_beams, 0).to(device), n_before

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Leave only the next piece of the prefix; of one that something else forbids, the score is 0."""
        if not 0 <= (step := input_ids.shape[1] - self.n_before) < self.pieces.shape[1]:
            return scores
        column = self.pieces[:, step : step + 1]
        log_probs = scores.gather(1, column.clamp(min=0)).nan_to_num(neginf=0.0)
        forced = torch.full_like(scores, -torch.inf).scatter(1, column.clamp(min=0), log_probs)
        return forced.where(column >= 0, scores)


def draws(source: EncodedText, rows: Sequence[int], longest: int, search: Search) -> Tensor:
    """Uniform random numbers in (0, 1] for sampling, `[samples, longest]`.

    They depend on the seed, the line's pieces and the number of the sample alone: a line gets the same
    samples whatever lines are around it, in whatever batches. `rows` are the lines of the samples; the
    samples of a line are neighbours.
    """
    numbers = np.empty((len(rows), longest))
    for sample, row in enumerate(rows):
        pieces = source.pieces[source.splits[row] : source.splits[row + 1]].astype(np.int64)
        of_line = (search.seed or 0, sample % search.n_best, crc32(pieces.tobytes()))
        numbers[sample] = 1 - np.random.default_rng(of_line).random(longest)
    return torch.from_numpy(numbers).float()


class Sampling(LogitsProcessor):
    """Leaves one piece of each translation, drawn from softmax(logits / temperature) over the best `top_k`.

    `drawn` is the result of `draws`; a `top_k` of None draws from all pieces.

    Source: Fan et al. (2018), top-k sampling.
    """

    def __init__(self, drawn: Tensor, temperature: float, top_k: int | None) -> None:
        self.drawn, self.temperature, self.top_k = drawn, temperature, top_k

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Draw by the cumulative distribution; a piece of probability 0 is never drawn."""
        nowhere = torch.full_like(scores, -torch.inf)
        if self.top_k is not None:
            best = scores.topk(min(self.top_k, scores.shape[1]))
            scores = nowhere.scatter(1, best.indices, best.values)
        sums = (scores.float() / self.temperature).softmax(-1).cumsum(-1)
        check_outputs(sums[:, -1])
        thresholds = self.drawn[:, input_ids.shape[1] - 1, None] * sums[:, -1:]
        return nowhere.scatter(1, torch.searchsorted(sums, thresholds), 0.0)
