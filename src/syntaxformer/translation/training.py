"""Trains a translator: the steps of a recipe in order, from two text files to a model folder; its Trainer."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from accelerate.utils.memory import clear_device_cache, should_reduce_batch_size
from torch import Tensor
from transformers import PreTrainedModel, Trainer, TrainerCallback, TrainingArguments, set_seed

from syntaxformer.annotate.registry import keep_annotator
from syntaxformer.base.config import sections_in_words
from syntaxformer.base.errors import ConfigError
from syntaxformer.base.files import read_json, write_json
from syntaxformer.infusion import infuse
from syntaxformer.nn.kernels.cross_entropy import IGNORED_LABEL
from syntaxformer.runs.checkpoints import (
    average_weights,
    check_finite,
    load_weights,
    numbered_checkpoints,
    step_of,
)
from syntaxformer.runs.loading import TRANSLATOR, longest_input
from syntaxformer.runs.run_folder import RUN, Run, is_finished_without_checkpoints, last_checkpoint, running
from syntaxformer.runs.trainer import (
    JUDGED_BY,
    SCHEDULES,
    RunTrainer,
    TallyBook,
    best_step,
    evaluations,
    run_arguments,
    scores_at,
)
from syntaxformer.syntax import FactorVocabulary, read_user_values
from syntaxformer.syntax.inputs import EpochDraws
from syntaxformer.translation.alignment import choose_head
from syntaxformer.translation.batches import EncodedPairs, TokenBudgetBatches, TranslationCollator
from syntaxformer.translation.checkpoint import (
    add_adapters,
    host_output,
    load_pretrained,
    save_adapter,
    stored_infusion,
    take_weights,
)
from syntaxformer.translation.corpora import ParallelText, find_file
from syntaxformer.translation.data_report import FILE as REPORT
from syntaxformer.translation.decoding import generate_settings
from syntaxformer.translation.model import OF_INFUSION, SyntaxTransformer, SyntaxTransformerConfig
from syntaxformer.translation.model_folder import FolderInfo, write_side_files
from syntaxformer.translation.prepare import Prepared, prepare, target_tags
from syntaxformer.translation.pretrained_tables import PieceVectors, check_tables, load_vectors, start_tables
from syntaxformer.translation.recipe import DROPOUTS, Recipe
from syntaxformer.translation.scoring import reference_note, score_translator
from syntaxformer.translation.source import SourceEncoder
from syntaxformer.translation.translator import Translator

_log = logging.getLogger("syntaxformer.training")

PACKAGES = ("syntaxformer", "torch", "transformers", "tokenizers", "spacy", "sacrebleu")


AtEvaluation = Callable[[Translator, int], None]
"""Called at each evaluation on dev with the model as it is, and the number of updates so far."""


def train_translator(
    recipe: Recipe, resume: bool = False, overwrite: bool = False, at_evaluation: AtEvaluation | None = None
) -> Path:
    """Train and write a model folder.

    `at_evaluation` may look at the model during training; it must leave it as it is.

    Returns:
        The output folder.

    Raises:
        ConfigError: The output folder holds another run, the recipe does not fit the data, or training
            diverged.
        DataError: The data cannot be used, or the disk is full.
        BackendMissingError: The annotator is not installed.
    """
    with running(recipe.completed(), resume, overwrite) as run:
        _train(run, at_evaluation)
    return recipe.output


def _train(run: Run[Recipe], at_evaluation: AtEvaluation | None) -> None:
    recipe, resume = run.settings, run.resume
    if resume and is_finished_without_checkpoints(recipe):
        return
    checkpoint = last_checkpoint(recipe.output) if resume else None
    section, widths = recipe.pretrained_embeddings, (recipe.width_plan().word_width, recipe.model.d_model)
    vectors = None  # a resumed run has its pretrained tables from the checkpoint
    if section is not None and checkpoint is None:
        check_tables(section, widths)
    with run.team.main_process_first():  # the other processes then find the annotation in the cache
        data = prepare(recipe, resume=checkpoint is not None)
    if section is not None and checkpoint is None:
        text = data.train_text.src, data.train_text.tgt
        vectors = load_vectors(section, widths, (data.encoder, data.target), text)
    set_seed(recipe.seed)
    model, _ = build(recipe, data)
    if run.writes:
        run.open()  # only now, so that an older run is not deleted before what may be refused
        data.report.tell()
        if checkpoint is None:  # a resumed run has these files already, and a failed write would lose them
            write_json(recipe.output / REPORT, data.report.to_dict(), indent=1)
            write_side_files(recipe.output, data.info, data.encoder.tokenizer, data.encoder.own_target)
            keep_annotator(data.annotator and data.annotator.name, recipe.output)
    run.team.wait_for_everyone()
    _log.info("%s", describe(recipe, model, data))
    if recipe.is_hosted and recipe.infusion.warning and stored_infusion(str(recipe.start)) is None:
        _log.warning("%s", recipe.infusion.warning)
    pretrained = _start_tables(recipe, model, vectors, run.writes)
    pairs, pad_id = (data.train, data.dev), data.encoder.tokenizer.pad_token_id
    trainer = SyntaxTrainer(model, recipe, *pairs, pad_id, lambda: dev_bleu(model, data, recipe))
    if at_evaluation is not None and run.writes:
        trainer.add_callback(_Evaluations(at_evaluation, data))
    trainer.train_from(checkpoint)
    chosen, scores = trainer.choose_checkpoints()
    if run.writes:
        metrics = {**scores, **pretrained, "data_sha256": data.info.data_sha256}
        if data.report.corpora:
            metrics["corpora"] = data.report.corpora
        if note := reference_note(data.info):
            metrics["references"] = note
        # A new network takes the weights, because the trained one may be in shards.
        model, adapters = build(recipe, data)
        search = recipe.decoding, recipe.data.max_pieces, longest_input(model), data.encoder.target_tokenizer
        model.generation_config.update(**generate_settings(*search))  # for those who call `generate`
        finish(run, model, chosen, metrics, data, adapters)
        trainer.clear_checkpoints()


def build(recipe: Recipe, data: Prepared) -> tuple[Any, Any]:
    """The network of a run before its first update, and PEFT's object if it has adapters."""
    if data.start is None or not recipe.is_hosted:
        model = build_model(recipe, data.encoder)
        if data.start is not None:
            take_weights(model, data.start)
        return model, None
    rates = {name: getattr(recipe.model, name) for name in sorted(DROPOUTS)}
    model, lora = load_pretrained(data.start, rates), recipe.training.lora
    if recipe.data.max_pieces > (longest := longest_input(model)):
        raise ConfigError(
            f"data.max_pieces: expected up to {longest}, the positions of model.init_from, got "
            f"{recipe.data.max_pieces}."
        )
    infusion = recipe.host_infusion(data.encoder.vocabularies)
    if not (hasattr(model, "infusion") or infusion.is_plain):
        model = infuse(model, infusion)
    if lora is None:
        return model, None
    adapters = add_adapters(model, lora.r, lora.alpha, lora.dropout, lora.targets)
    if data.start.n_pieces > data.start.n_known:
        if lora.keep_adapter:
            raise ConfigError(
                "training.lora.keep_adapter: expected false with new pieces, which adapters do not hold, "
                "got true."
            )
        for table in (model.get_input_embeddings(), model.get_output_embeddings()):
            table.weight.requires_grad_(True)
    return model, adapters


def build_model(recipe: Recipe, encoder: SourceEncoder) -> SyntaxTransformer:
    """The network of a recipe, initialised from torch's random state."""
    tokenizer = encoder.target_tokenizer
    source_tokenizer = None if encoder.own_target is None else encoder.tokenizer
    pretrained, tags, plan = recipe.pretrained_embeddings, recipe.predict_target_pos, recipe.width_plan()
    table_width = pretrained and pretrained.source and pretrained.source.width
    parse, labels = recipe.parse_task, FactorVocabulary("parse_task", encoder.syntax.brackets or ()).entries
    start = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.pad_token_id
    config = SyntaxTransformerConfig(
        **recipe.model.model_dump(),
        vocab_size=len(tokenizer),
        source_vocab_size=source_tokenizer and len(source_tokenizer),
        source_pad_token_id=source_tokenizer and source_tokenizer.pad_token_id,
        infusion=plan.as_dict(),
        tag_layers=recipe.embedding.tag_layers or 1,
        **recipe.infusion.sections_of_translator,
        target_pos=tags and {"tags": list(target_tags()), "weight": tags.weight},
        parse_task=parse and {"labels": list(labels), "weight": parse.weight},
        # A narrower source table has a map that widens it to the word width.
        source_table_width=table_width if table_width and table_width < plan.word_width else None,
        factor_sizes={name: len(vocabulary) for name, vocabulary in encoder.vocabularies.items()},
        label_smoothing=recipe.training.label_smoothing,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=start,
    )
    return SyntaxTransformer(config)


def _start_tables(
    recipe: Recipe, model: SyntaxTransformer, vectors: dict[str, PieceVectors] | None, writes: bool
) -> dict[str, Any]:
    """Fill and freeze pretrained tables; the report is stored for runs that are resumed."""
    section, file, key = recipe.pretrained_embeddings, recipe.output / RUN, "pretrained_embeddings"
    if section is None:
        return {}
    report = {key: start_tables(model, section, vectors)}
    if vectors is None:
        stored = read_json(file) if file.exists() else {}
        return {key: stored[key]} if key in stored else {}
    if writes:
        write_json(file, report, indent=1)
    return report


def describe(recipe: Recipe, model: SyntaxTransformer, data: Prepared) -> str:
    """One line about the run: infusion, widths, number of parameters and pairs, precision."""
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    lengths, kind = data.train.tgt.lengths, f"{recipe.embedding.kind}: {recipe.width_plan().arithmetic()}"
    parts = dict(recipe.infusion.parts)
    if recipe.predict_target_pos is not None:
        parts["predict_target_pos"] = recipe.predict_target_pos
    if not recipe.is_hosted:
        parts.pop("embedding", None)  # its arithmetic tells more
    else:
        n_trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
        infusion = model.infusion.parameters() if hasattr(model, "infusion") else ()
        n_infused = sum(parameter.numel() for parameter in infusion)
        kind = f"{model.config.model_type} of {recipe.model.init_from}, {n_trained / 1e6:.2f}M trained, "
        kind += f"{n_infused / 1e6:.3f}M of them of syntax"
    return (
        f"{'; '.join(filter(None, [kind, sections_in_words(parts)]))}; {n_parameters / 1e6:.2f}M parameters, "
        f"{model.config.vocab_size} pieces; {len(data.train)} pairs, {int(lengths.sum())} target pieces; "
        f"{recipe.training.precision}"
    )


class _Evaluations(TrainerCallback):
    """Calls a function of the user's with the model at each evaluation."""

    def __init__(self, at_evaluation: AtEvaluation, data: Prepared) -> None:
        self.at_evaluation, self.data = at_evaluation, data

    def on_evaluate(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        """Call it with a translator of the current weights."""
        was_training = model.training
        self.at_evaluation(_translator_of(model, self.data, self.data.info), state.global_step)
        model.train(was_training)


def _translator_of(model: Any, data: Prepared, info: FolderInfo) -> Translator:
    """A translator of a run's current weights, set to evaluation, and without what is only learned."""
    encoder = replace(data.encoder, syntax=data.info.syntax)
    return Translator(model.eval(), encoder, info, data.annotator if encoder.needs_words else None)


def dev_bleu(model: Any, data: Prepared, recipe: Recipe) -> dict[str, float]:
    """BLEU on the development set, and how many translations loop; of several languages also each one's."""
    text, scores = data.dev_text, dict[str, float]()
    if not recipe.data.directions:
        return _bleu_of(model, data, recipe, text, None)
    corpora, n_loops = text.corpora_of(np.arange(len(text))), 0.0
    for number, language in enumerate(recipe.data.directions):
        rows = np.flatnonzero(corpora == number).tolist()
        of_language = _bleu_of(model, data, recipe, text.select(rows), language)
        scores[f"bleu_{language}"], n_loops = of_language["bleu"], n_loops + of_language["n_loops"]
    return {"bleu": fmean(scores.values()), **scores, "n_loops": n_loops}


def _bleu_of(
    model: Any, data: Prepared, recipe: Recipe, text: ParallelText, language: str | None
) -> dict[str, float]:
    from syntaxformer.annotate import AnnotatedInOrder, annotate_cached, annotator_for

    corpus, was_training, lines = recipe.data, model.training, text.src
    clean = data.info.model_copy(update={"unescape": False})  # the lines are already unescaped
    translator = _translator_of(model, data, clean)
    if translator.annotator is not None:  # `prepare` has put the annotation of these lines into the cache
        annotator = annotator_for(translator.annotator, corpus.dev, text.rows)
        translator.annotator = AnnotatedInOrder(annotate_cached(lines, annotator, corpus.cache))
    translator = translator.to(language)
    user_factors = {
        name: read_user_values(find_file(corpus.dir, corpus.dev, corpus.factor_files[name]))
        for name in data.encoder.factors
        if name in corpus.factor_files
    }
    beam_size = recipe.training.dev_beam_size
    scored = score_translator(translator, lines, text.tgt, beam_size, user_factors)
    model.train(was_training)
    return {"bleu": scored.scores.bleu, "n_loops": scored.n_loops}


def finish(
    run: Run[Recipe],
    model: Any,
    chosen: Sequence[Path],
    metrics: dict[str, Any],
    data: Prepared,
    adapters: Any = None,
) -> None:
    """Write the model folder with the weights of a checkpoint, or the mean of several; adapters are merged.

    The head that aligns is chosen on the data.

    Raises:
        ConfigError: Some weights are NaN or infinite.
        CheckpointError: A checkpoint cannot be read.
        DataError: The folder cannot be written.
    """
    weights = average_weights(chosen)
    metrics["checkpoints"] = [path.name for path in chosen]
    check_finite(weights, ", ".join(metrics["checkpoints"]))
    load_weights(model, weights, chosen[0])
    if isinstance(model, SyntaxTransformer):
        metrics["source_table"] = "shared" if model.config.shares_source_table else "own"

    def save(folder: Path) -> None:
        if adapters is not None:
            if run.settings.training.lora.keep_adapter:
                save_adapter(model, adapters, folder / "lora")
            adapters.merge_and_unload()
        model.eval().save_pretrained(folder)
        info = data.info.model_copy(update={"alignment": choose_head(model, data.dev, data.train)})
        (folder / TRANSLATOR).write_text(info.model_dump_json(indent=1), "utf-8")

    run.write_model(save, metrics, PACKAGES)
    _log.info("wrote %s from %s", run.settings.output, ", ".join(metrics["checkpoints"]))


def training_arguments(recipe: Recipe) -> TrainingArguments:
    """The trainer settings for a recipe; the processes share the batches of each update."""
    config = recipe.training
    arguments = run_arguments(
        config,
        recipe.output / "checkpoints",
        recipe.seed,
        max_steps=config.max_steps,
        learning_rate=config.learning_rate,
        adam_beta1=config.adam_beta1,
        adam_beta2=config.adam_beta2,
        adam_epsilon=config.adam_epsilon,
        per_device_train_batch_size=1,
        eval_strategy="steps",
        eval_steps=config.eval_every,
        save_strategy="steps",
        save_steps=config.eval_every,
        # LISA's head has no gradient when gold governors replace its attention, and labels of a parse have
        # none in batches without the task: processes would wait for each other for ever.
        ddp_find_unused_parameters=recipe.infusion.lisa is not None or recipe.parse_task is not None,
    )
    arguments.gradient_accumulation_steps = max(1, config.accumulate // arguments.world_size)
    return arguments


class SyntaxTrainer(RunTrainer, Trainer):
    """Trains a translator on encoded pairs."""

    def __init__(
        self,
        model: PreTrainedModel,
        recipe: Recipe,
        train_pairs: EncodedPairs,
        dev_pairs: EncodedPairs,
        pad_id: int,
        dev_bleu: Callable[[], dict[str, float]] | None = None,
    ) -> None:
        config, arguments = recipe.training, training_arguments(recipe)
        self.pad_id, self.dev_bleu = pad_id, dev_bleu
        self.is_hosted = not isinstance(model, SyntaxTransformer)
        self.languages = list(recipe.data.directions)
        self._most_rows = sys.maxsize  # pairs that fit in memory
        self._of_update: list[tuple[dict[str, Any], Any]] = []  # batches of the update that is being made
        train_pairs.set_epoch(0)  # pieces of BPE-dropout are more, and the budget counts them
        batches = TokenBudgetBatches(
            train_pairs.src.text_lengths,  # without tags, so that batches equal those of a run without tags
            train_pairs.tgt.lengths,
            config.max_batch_tokens,
            recipe.seed,
            per_update=config.accumulate,
            rank=arguments.process_index,  # the sampler gives each process its share
            world=arguments.world_size,
            at_epoch=train_pairs.set_epoch,
            shares=train_pairs.shares,
        )
        share = 1.0 if recipe.parse_task is None else recipe.parse_task.share
        formula, warmup, d_model = SCHEDULES[config.schedule], config.warmup_steps, model.config.d_model
        super().__init__(
            *(model, arguments, config, batches),
            rate=lambda done: formula(done + 1, warmup, d_model),  # the papers count updates from 1
            n_updates=config.max_steps,
            curves=recipe.output / "logs",
            best_by=config.best_by,
            data_collator=TranslationCollator(
                *(train_pairs, pad_id, share, EpochDraws(recipe.seed, batches), config.cuda_graphs)
            ),
            train_dataset=train_pairs,
            eval_dataset=dev_pairs,
        )
        self.model_accepts_loss_kwargs = True  # also of a pretrained translator, whose loss is made here

    def group_of(self, name: str, parameter: torch.nn.Parameter) -> tuple[int, float]:
        """Parameters that syntax adds may have a rate of their own."""
        (group, rate), own_rate = super().group_of(name, parameter), self.config.infusion_learning_rate
        is_new = OF_INFUSION.match(name) or "infusion" in name.split(".")
        return (group + 2, own_rate) if is_new and own_rate is not None else (group, rate)

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """The model's loss; answers to auxiliary tasks are counted on the way."""
        if self.is_hosted:
            smoothing = self.config.label_smoothing if model.training else 0.0
            outputs = host_output(model, inputs, smoothing, num_items_in_batch)
            loss: Any = outputs.loss
            loss = loss * self.args.world_size  # whose gradients are averaged, as the base class does
        else:
            loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        self.tallies.add(outputs.tallies)
        return (loss, outputs) if return_outputs else loss

    def training_step(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        """Gradients of a batch. One that does not fit in memory is halved, until it fits.

        The update stays the same but for dropout and for the mean of LISA's loss. Gradients that its batches
        have added so far may be half added, so they are all made anew.
        """
        if len(self._of_update) == self.args.gradient_accumulation_steps:
            self._of_update.clear()
        self._of_update.append((inputs, num_items_in_batch))
        try:
            return self._in_parts(model, inputs, num_items_in_batch)
        except RuntimeError as error:
            n_rows = min(len(inputs["labels"]), self._most_rows)
            if not should_reduce_batch_size(error) or n_rows < 2 or self.args.world_size > 1:
                raise
        clear_device_cache(garbage_collection=True)
        model.zero_grad()
        self._most_rows = -(-n_rows // 2)
        _log.warning(
            "a batch of %d pairs does not fit in memory: batches are divided into parts of at most %d pairs, "
            "which is slower. Lower training.max_batch_tokens and raise training.accumulate.",
            n_rows,
            self._most_rows,
        )
        again, loss = self._of_update.copy(), torch.zeros(())
        self._of_update.clear()
        for other in again:
            loss = self.training_step(model, *other)
        return loss

    def _in_parts(self, model: Any, inputs: dict[str, Any], n_items: Any) -> Tensor:
        """Gradients of a batch, in as many parts as fit in memory; the sum of their losses."""
        labels, most = inputs["labels"], self._most_rows
        if len(labels) <= most:
            return super().training_step(model, inputs, n_items)
        n_items = (labels != IGNORED_LABEL).sum() if n_items is None else n_items
        starts = range(0, len(labels), most)
        parts = ({name: tensor[start : start + most] for name, tensor in inputs.items()} for start in starts)
        losses = [super(SyntaxTrainer, self).training_step(model, rows, n_items) for rows in parts]
        return torch.stack(losses).sum()

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log the loss together with the accuracies since the last log."""
        super().log({**logs, **self.tallies.take()} if "loss" in logs else logs, start_time)

    @torch.no_grad()
    def dev_scores(self) -> dict[str, float]:
        """Loss per target piece on the development set, without smoothing, and BLEU if the recipe needs it.

        Every process computes the same scores on the whole set. A loss that is not finite ends the run.

        Raises:
            ConfigError: The loss is not finite, because training diverged.
        """
        pairs: Any = self.eval_dataset
        self.model.eval()
        collate, tallies = TranslationCollator(pairs, self.pad_id), TallyBook()
        totals: list[tuple[float, int]] = []
        budget = max(self.config.max_batch_tokens, int(pairs.tgt.lengths.max(initial=1)))
        groups = [np.flatnonzero(pairs.corpora == number) for number in range(len(self.languages))]
        for group in groups or [np.arange(len(pairs))]:
            total, n_pieces, lengths = 0.0, 0, (pairs.src.lengths[group], pairs.tgt.lengths[group])
            for places in TokenBudgetBatches(*lengths, budget, shuffle=False):
                batch = self._prepare_inputs(collate(rows := group[places].tolist()))
                with self.compute_loss_context_manager():
                    if self.is_hosted:
                        output = host_output(self.model, batch, n_items=1)
                    else:
                        output = self.model(**batch, num_items_in_batch=1)
                total += float(output.loss)
                tallies.add(output.tallies)
                n_pieces += int(pairs.tgt.lengths[rows].sum())
            totals.append((total, n_pieces))
        loss = sum(total for total, _ in totals) / max(sum(n for _, n in totals), 1)
        if not math.isfinite(loss):
            raise ConfigError(
                f"training.learning_rate: expected one that keeps the dev loss finite, got {loss} at "
                f"update {self.state.global_step} with {self.config.learning_rate:g}. Lower it."
            )
        of_languages = zip(self.languages, totals, strict=False)  # one total, if there are no languages
        scores = {f"loss_{language}": total / max(n, 1) for language, (total, n) in of_languages}
        scores = {"loss": loss, **scores, **tallies.take()}
        if self.dev_bleu is not None and "bleu" in JUDGED_BY[self.config.best_by]:
            scores |= self.dev_bleu()
        return scores

    def _determine_best_metric(self, metrics: dict[str, float], trial: Any) -> bool:
        """Keep the best evaluation so far, by the recipe's `best_by`."""
        best = self.state.best_global_step = best_step(self.state.log_history, self.config.best_by)
        self.state.best_metric = scores_at(best, self.state.log_history)[JUDGED_BY[self.config.best_by][0]]
        return best == self.state.global_step

    def retained_checkpoints(self, numbered: list[Path], n_last: int | None = None) -> list[Path]:
        """As in the base class; the recipe says how many are kept."""
        return super().retained_checkpoints(numbered, n_last or self.config.keep_checkpoints)

    def clear_checkpoints(self) -> None:
        """At the end of a run, delete what resuming it for more updates would not read; with 0 kept, all."""
        numbered = numbered_checkpoints(Path(self.args.output_dir))
        self.keep_only(self.retained_checkpoints(numbered, 1) if self.config.keep_checkpoints else ())

    def choose_checkpoints(self) -> tuple[list[Path], dict[str, Any]]:
        """What `best_checkpoints` chooses, and for `run.json` its dev scores and those of all evaluations."""
        (best, chosen, scores), history = self.best_checkpoints(), self.state.log_history
        dev = {f"dev_{name}": value for name, value in scores.items()}
        steps = {"best_step": step_of(best), "last_step": self.state.global_step}
        every = [{"step": step, **scores_at(step, history)} for step in evaluations(history)]
        return chosen, {**dev, **steps, "evaluations": every}
