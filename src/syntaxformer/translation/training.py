"""Trains a translator: the steps of a recipe in order, from two text files to a model folder."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import set_seed

from syntaxformer.annotate.wrappers import keep_annotator, stored_name
from syntaxformer.base.config import sections_in_words
from syntaxformer.base.errors import ConfigError
from syntaxformer.base.files import hash_file, read_json, write_json
from syntaxformer.base.languages import language_of_side, scripts_of
from syntaxformer.infusion import infuse
from syntaxformer.runs.checkpoints import average_weights, check_finite, load_weights
from syntaxformer.runs.loading import TRANSLATOR, longest_input, verify_folder
from syntaxformer.runs.run_folder import (
    RUN,
    Run,
    is_finished_without_checkpoints,
    last_checkpoint,
    running,
    same_data,
)
from syntaxformer.syntax import (
    FACTORS,
    FactorVocabulary,
    UnseenValues,
    WordColumns,
    build_vocabularies,
    check_factors,
    read_user_values,
)
from syntaxformer.syntax.inputs import SyntaxInputs, check_syntax
from syntaxformer.translation.batches import EncodedPairs
from syntaxformer.translation.checkpoint import (
    add_adapters,
    load_pretrained,
    save_adapter,
    stored_infusion,
    take_weights,
)
from syntaxformer.translation.checkpoint_pieces import (
    N_COMPARED,
    Checkpoint,
    compare,
    of_own_folder,
    open_checkpoint,
    special_pieces,
)
from syntaxformer.translation.corpora import (
    CorpusConfig,
    ParallelText,
    find_file,
    keeps_on_disk,
    read_split,
    read_train,
)
from syntaxformer.translation.data_report import FILE as REPORT
from syntaxformer.translation.data_report import UNKNOWN, DataReport, add_long, report_train
from syntaxformer.translation.decoding import generate_settings
from syntaxformer.translation.model import SyntaxTransformer, SyntaxTransformerConfig
from syntaxformer.translation.prepare import (
    annotated_columns,
    check_tags,
    compare_annotators,
    encode_pairs,
    get_tokenizers,
    nested_fraction,
    parse_labels,
    prepared_parts,
    stored_pairs,
    target_annotator,
    target_columns,
    target_encoder,
    target_tags,
)
from syntaxformer.translation.pretrained_tables import PieceVectors, check_tables, load_vectors, start_tables
from syntaxformer.translation.recipe import DROPOUTS, Recipe, completed
from syntaxformer.translation.scoring import reference_note, score_translator
from syntaxformer.translation.source import SourceEncoder
from syntaxformer.translation.subwords import BpeDropout
from syntaxformer.translation.trainer import SyntaxTrainer
from syntaxformer.translation.translator import (
    FolderInfo,
    Translator,
    load_source_encoder,
    read_info,
    write_side_files,
)

if TYPE_CHECKING:
    from syntaxformer.annotate import Annotator

_log = logging.getLogger("syntaxformer.training")

PACKAGES = ("syntaxformer", "torch", "transformers", "tokenizers", "spacy", "sacrebleu")


@dataclass(frozen=True)
class Prepared:
    """Data of a run: the encoders of both sides, the encoded pairs, and their text."""

    encoder: SourceEncoder
    info: FolderInfo
    train: EncodedPairs
    dev: EncodedPairs
    train_text: ParallelText
    dev_text: ParallelText
    annotator: Annotator | None
    target: SourceEncoder
    report: DataReport
    start: Checkpoint | None = None


def train_translator(recipe: Recipe, resume: bool = False, overwrite: bool = False) -> Path:
    """Train and write a model folder.

    Returns:
        The output folder.

    Raises:
        ConfigError: The output folder holds another run, the recipe does not fit the data, or training
            diverged.
        DataError: The data cannot be used, or the disk is full.
        BackendMissingError: The annotator is not installed.
    """
    with running(completed(recipe), resume, overwrite) as run:
        _train(run)
    return recipe.output


def _train(run: Run[Recipe]) -> None:
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
    trainer = SyntaxTrainer(
        model,
        recipe,
        data.train,
        data.dev,
        data.encoder.tokenizer.pad_token_id,
        lambda: dev_bleu(model, data, recipe),
    )
    trainer.train_from(checkpoint)
    chosen, scores = trainer.choose_checkpoints()
    if run.writes:
        metrics = {**scores, **pretrained, "data_sha256": data.info.data_sha256}
        if note := reference_note(data.info):
            metrics["references"] = note
        # A new network takes the weights, because the trained one may be in shards.
        model, adapters = build(recipe, data)
        search = recipe.decoding, recipe.data.max_pieces, longest_input(model), data.encoder.target_tokenizer
        model.generation_config.update(**generate_settings(*search))  # for those who call `generate`
        finish(run, model, chosen, metrics, adapters)
        trainer.clear_checkpoints()


def prepare(recipe: Recipe, resume: bool = False) -> Prepared:
    """Read, annotate and encode the data; this writes only to the cache.

    Raises:
        ConfigError: A file is missing, the annotator lacks what a factor needs, or a resumed run had other
            data.
        DataError: The data cannot be used.
    """
    if resume:  # an older run's lines are read as it began
        form = {"normalize": read_info(recipe.output).normalize}
        recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update=form)})
    data = recipe.data
    dev_text, all_pairs = read_split(data, data.dev), read_train(data)
    train_text, report = report_train(data, nested_fraction(all_pairs, data.fraction), dev_text)
    annotation = _annotate(recipe, train_text, dev_text)
    hashes = {"train": train_text.sha256, "dev": dev_text.sha256, "annotation": annotation.sha256}
    start, parent, parent_info = _open_start(recipe)
    if resume:
        info = read_info(recipe.output)
        same_data(hashes, info.data_sha256)
        encoder = load_source_encoder(recipe.output, info)
        start = start and replace(start, source=encoder.tokenizer, target=encoder.target_tokenizer)
    else:
        of_subwords = all_pairs if recipe.subwords.of_all_pairs else train_text
        encoder, start = _new_encoder(recipe, of_subwords, annotation, start, parent, report)
        scripts = scripts_of(train_text.src)
        info = _info(recipe, encoder, annotation.annotator, hashes, parent_info, scripts)
    encoder.syntax = annotation.syntax
    target = target_encoder(encoder, data, recipe.predict_target_pos is not None)
    _report_pieces(report, recipe, train_text, encoder, target)
    sides = (train_text, encoder, annotation.train, data.max_pieces, target, annotation.train_tags)
    if keeps_on_disk(data):
        train = stored_pairs(data.cache, *sides, annotators=annotation.identity)
    else:
        train = encode_pairs(*sides)
    if recipe.subwords.dropout:
        train.again = _cuts_anew(recipe, sides)
    # A pretrained translator has no positions for longer lines.
    longest = start.longest if start is not None else None
    dev = encode_pairs(dev_text, encoder, annotation.dev, longest, target, annotation.dev_tags)
    encoder.unseen.warn()
    check_tags(train.tgt, target)
    annotator = annotation.annotator
    return Prepared(encoder, info, train, dev, train_text, dev_text, annotator, target, report, start)


@dataclass(frozen=True)
class _Annotation:
    """Who annotates the text of a run, what its encoder reads of that, and the annotated words.

    Args:
        identity: All that the annotation of the training text depends on, except that text.
        sha256: Hash of this, and of the same for dev.
    """

    annotator: Annotator | None
    factors: tuple[str, ...]
    syntax: SyntaxInputs
    identity: list[str]
    sha256: str
    train: Sequence[WordColumns] | None = None
    dev: Sequence[WordColumns] | None = None
    train_tags: Sequence[WordColumns] | None = None
    dev_tags: Sequence[WordColumns] | None = None


def _annotate(recipe: Recipe, train_text: ParallelText, dev_text: ParallelText) -> _Annotation:
    """Annotate the source for factors and trees, and the target if the decoder learns its tags."""
    from syntaxformer import annotate

    data, section, tags = recipe.data, recipe.annotation, recipe.predict_target_pos
    splits = data.train_splits[0], data.dev
    factors = tuple(name for name, _ in recipe.width_plan().factors)
    syntax, annotator = recipe.syntax_inputs(training=True), None
    words: list[Sequence[WordColumns] | None] = [None, None]
    if factors or syntax.needs:
        annotator = annotate.prepare(
            section.annotator or "",
            needs=syntax.needs,
            words_given=data.tokenized,
            annotated=section.annotated,
        )
        check_syntax(syntax, annotator.provides, annotator.name)
        check_factors(factors, annotator.provides, data.factor_files, annotator=annotator.name)
        columns = {need for name in factors if name in FACTORS for need in FACTORS[name].needs}
        if syntax.needs:  # phrases take their heads from the parse, as they do when a line is translated
            columns |= {*syntax.needs, "governors"}
        words = [
            annotated_columns(text, annotator, data, split, factors, section.processes, columns)
            for text, split in zip((train_text, dev_text), splits, strict=True)
        ]
        if syntax.brackets is not None:
            syntax = syntax.model_copy(update={"brackets": parse_labels(words[0] or [])})
    tagger, target_words = None, [None, None]
    if tags is not None:
        tagger = target_annotator(tags.annotator, data.tokenized)
    identities = [
        [
            *(
                fact
                for who in (annotator, tagger)
                if who is not None
                for fact in (who.name, annotate.annotator_for(who, split).version)
            ),
            *(
                f"{name} {hash_file(find_file(data.dir or Path(), split, data.factor_files[name]))}"
                for name in factors
                if name in data.factor_files and data.dir is not None
            ),
        ]
        for split in splits
    ]
    if tagger is not None:
        target_words = [
            target_columns(text, tagger, data, split, section.processes)
            for text, split in zip((train_text, dev_text), splits, strict=True)
        ]
    sha256 = hashlib.sha256(json.dumps(identities).encode()).hexdigest()
    return _Annotation(annotator, factors, syntax, identities[0], sha256, *words, *target_words)


def _report_pieces(
    report: DataReport, recipe: Recipe, text: ParallelText, encoder: SourceEncoder, target: SourceEncoder
) -> None:
    """Add pairs that are too long, or have characters that a tokenizer of the user's does not know."""
    data, tokenizers = recipe.data, (encoder.tokenizer, target.tokenizer)
    sides = (text.src, data.preparation(data.src)), (text.tgt, data.preparation(data.tgt))
    add_long(report, zip(tokenizers, [prepared_parts(*side) for side in sides], strict=True), data.max_pieces)
    if recipe.subwords.tokenizer or recipe.pretrained_embeddings:
        lines = [prepared_parts(*side) for side in sides]
        rows = Checkpoint("", *tokenizers, 0, 0).missing_characters(lines, spelled=False)[1]
        report.add(UNKNOWN, {*rows})


def _cuts_anew(recipe: Recipe, sides: tuple[Any, ...]) -> Callable[[int], EncodedPairs]:
    """What encodes the training pairs with BPE-dropout for an epoch; `sides` as `encode_pairs` takes them."""
    if keeps_on_disk(recipe.data):
        raise ConfigError(
            "subwords.dropout: expected a training text in memory, which is cut anew in each epoch, got one "
            "on disk. Set data.on_disk=false, or subwords.dropout=0."
        )
    text, encoder, words, limit, target, tags = sides
    encoder, target = (replace(side, unseen=UnseenValues()) for side in (encoder, target))  # counted already
    longest = limit // (1 + len(encoder.factors) * (encoder.prepend is not None)) - bool(text.tag)

    def again(epoch: int) -> EncodedPairs:
        cut = BpeDropout(recipe.subwords.dropout, (recipe.seed, epoch), longest)
        return encode_pairs(text, encoder, words, limit, target, tags, cut)

    for side in (encoder, target):
        BpeDropout(recipe.subwords.dropout, 0, longest)(side.tokenizer, [])  # whether it can
    return again


def _new_encoder(
    recipe: Recipe,
    text: ParallelText,
    annotation: _Annotation,
    start: Checkpoint | None,
    parent: SourceEncoder | None,
    report: DataReport,
) -> tuple[SourceEncoder, Checkpoint | None]:
    """Pieces and factors of a run: learned on its text, or those of the translator that it starts from."""
    data = recipe.data
    if start is None:
        tokenizer, own_target = get_tokenizers(text, recipe.subwords, data, _pretrained_encoders(recipe))
        tokenizer.backend_tokenizer.add_special_tokens([data.tag] if data.tag else [])
    else:
        if recipe.model.add_characters and parent is not None and parent.own_target and not recipe.is_hosted:
            raise ConfigError(
                "model.add_characters: expected false, as the sides of model.init_from have two vocabularies."
            )
        start = fit_characters(start, text, data, recipe.model.add_characters, report)
        tokenizer, own_target = start.source, start.target
    vocabularies = build_vocabularies(annotation.train or [], annotation.factors, recipe.embedding.min_count)
    if parent is not None:
        vocabularies = parent.vocabularies or vocabularies
        own_target = None if parent.own_target is None else own_target
    encoder = SourceEncoder(
        tokenizer,
        vocabularies,
        preparation=data.preparation(data.src),
        own_target=own_target,
        prepend=recipe.embedding.tag_place,
    )
    return encoder, start


def _open_start(recipe: Recipe) -> tuple[Checkpoint | None, SourceEncoder | None, FolderInfo | None]:
    """The translator that training starts from, and how it encodes its source if `train` wrote it."""
    model, data = recipe.model, recipe.data
    if (path := recipe.start) is None:
        return None, None, None
    languages = tuple(language_of_side(data, side).code for side in (data.src, data.tgt))
    sides = tuple(code or side for code, side in zip(languages, (data.src, data.tgt), strict=True))
    if not (Path(path) / TRANSLATOR).is_file():
        codes = model.src_code, model.tgt_code
        start = open_checkpoint(path, languages, codes, model.add_codes, model.prompt)
        infusion = stored_infusion(path)
        known = infusion.vocabularies if infusion is not None else {}
        return start, SourceEncoder(start.source, known, own_target=start.target), None
    verify_folder(Path(path), TRANSLATOR)
    info = read_info(Path(path))
    encoder = load_source_encoder(Path(path), info)
    problems = [
        f"data.{key}: expected {value}, as model.init_from was trained with it, got {getattr(data, key)}."
        for key in _OF_LINES
        if (value := getattr(info, key)) != getattr(data, key)
    ]
    start = of_own_folder(path, encoder.tokenizer, encoder.target_tokenizer)
    if sides != info.languages and recipe.is_hosted and start.has_codes:
        problems.append(
            f"model.init_from: expected the languages {' and '.join(info.languages)}, whose codes or prompt "
            f"are in its pieces, got {' and '.join(sides)}. Start from the checkpoint that it came from."
        )
    elif sides == (*reversed(info.languages),):
        problems.append(
            f"model.init_from: expected a translator of {data.src} to {data.tgt}, got one of "
            f"{' to '.join(info.languages)}: the other direction."
        )
    if problems:
        raise ConfigError(problems)
    return start, encoder, info


def fit_characters(
    start: Checkpoint, text: ParallelText, data: CorpusConfig, adds: bool, report: DataReport
) -> Checkpoint:
    """Count the characters of the training text that a tokenizer does not know; add them if that is asked.

    This also compares a tokenizer that had to be rebuilt with the original.
    """
    sides = (text.src, data.preparation(data.src)), (text.tgt, data.preparation(data.tgt))
    compare(start, [preparation.prepare(lines[:N_COMPARED]).texts for lines, preparation in sides])
    counts, rows = start.missing_characters([prepared_parts(*side) for side in sides])
    report.add(UNKNOWN, set(rows))
    if not counts:
        return start
    shown = " ".join(f"{character!r} ({count})" for character, count in counts.most_common(10))
    unknown = f"{counts.total()} character{'s' * (counts.total() > 1)}, {len(counts)} different"
    unknown += f", in {len(rows)} line{'s' * (len(rows) > 1)}: {shown}"
    if adds:
        _log.info("model.add_characters: pieces are added for %s", unknown)
        return start.with_characters(counts)
    _log.warning(
        "model.init_from: the checkpoint's tokenizer does not know %s. The model %s; "
        "model.add_characters=true learns them.",
        unknown,
        "spells them by their bytes" if start.spells_bytes else "cannot read or write them",
    )
    return start


def _pretrained_encoders(recipe: Recipe) -> tuple[str | None, str | None]:
    section = recipe.pretrained_embeddings
    source, target = (section.source, section.target) if section is not None else (None, None)
    return source and source.model, target and target.model


def build(recipe: Recipe, data: Prepared) -> tuple[Any, Any]:
    """The network of a run before its first update, and PEFT's object if it has adapters."""
    if data.start is None:
        return build_model(recipe, data.encoder), None
    if not recipe.is_hosted:
        model = build_model(recipe, data.encoder)
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
    section, report = recipe.pretrained_embeddings, recipe.output / RUN
    if section is None:
        return {}
    done = {"pretrained_embeddings": start_tables(model, section, vectors)}
    if vectors is None:
        stored = read_json(report) if report.exists() else {}
        return {key: stored[key] for key in ("pretrained_embeddings",) if key in stored}
    if writes:
        write_json(report, done, indent=1)
    return done


def describe(recipe: Recipe, model: SyntaxTransformer, data: Prepared) -> str:
    """One line about the run: infusion, widths, number of parameters and pairs, precision."""
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    lengths, kind = data.train.tgt.lengths, f"{recipe.embedding.kind}: {recipe.width_plan().arithmetic()}"
    tags, parts = recipe.predict_target_pos, dict(recipe.infusion.parts)
    parts |= {} if tags is None else {"predict_target_pos": tags}
    if not recipe.is_hosted:
        parts.pop("embedding", None)  # its arithmetic tells more
    else:
        n_trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
        infusion = model.infusion.parameters() if hasattr(model, "infusion") else ()
        infused = sum(parameter.numel() for parameter in infusion)
        kind = f"{model.config.model_type} of {recipe.model.init_from}, {n_trained / 1e6:.2f}M trained, "
        kind += f"{infused / 1e6:.3f}M of them of syntax"
    return (
        f"{'; '.join(filter(None, [kind, sections_in_words(parts)]))}; {n_parameters / 1e6:.2f}M parameters, "
        f"{model.config.vocab_size} pieces; {len(data.train)} pairs, {int(lengths.sum())} target pieces; "
        f"{recipe.training.precision}"
    )


def dev_bleu(model: Any, data: Prepared, recipe: Recipe) -> dict[str, float]:
    """BLEU on the development set, and how many translations loop."""
    from syntaxformer.annotate import AnnotatedInOrder, annotate_cached, annotator_for

    corpus, was_training, lines = recipe.data, model.training, data.dev_text.src
    clean = data.info.model_copy(update={"unescape": False})  # the lines are already unescaped
    encoder = replace(data.encoder, syntax=data.info.syntax)  # without what is only learned
    annotator = data.annotator if encoder.needs_words else None
    if annotator is not None:  # `prepare` has put the annotation of these lines into the cache
        annotator = annotator_for(annotator, corpus.dev)
        annotator = AnnotatedInOrder(annotate_cached(lines, annotator, corpus.cache))
    translator = Translator(model.eval(), encoder, clean, annotator)
    user_factors = {
        name: read_user_values(find_file(corpus.dir, corpus.dev, corpus.factor_files[name]))
        for name in data.encoder.factors
        if name in corpus.factor_files
    }
    beam_size = recipe.training.dev_beam_size
    scored = score_translator(translator, lines, data.dev_text.tgt, beam_size, user_factors)
    model.train(was_training)
    return {"bleu": scored.scores.bleu, "n_loops": scored.n_loops}


def finish(
    run: Run[Recipe], model: Any, chosen: Sequence[Path], metrics: dict[str, Any], adapters: Any = None
) -> None:
    """Write the model folder with the weights of a checkpoint, or the mean of several; adapters are merged.

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

    run.write_model(save, metrics, PACKAGES)
    _log.info("wrote %s from %s", run.settings.output, ", ".join(metrics["checkpoints"]))


_OF_LINES = ("tokenized", "lowercase", "unescape", "moses", "normalize_punctuation", "normalize")
_OF_DATA = {"src", "tgt", "src_language", "tgt_language", *_OF_LINES}


def _info(
    recipe: Recipe,
    encoder: SourceEncoder,
    annotator: Annotator | None,
    data_sha256: dict[str, str],
    parent: FolderInfo | None,
    scripts: tuple[str, ...],
) -> FolderInfo:
    info = FolderInfo(
        **recipe.data.model_dump(include=_OF_DATA, exclude_none=True),
        forced=recipe.annotation.force,
        annotator=None if annotator is None else stored_name(annotator.name),
        annotator_version=None if annotator is None else annotator.version,
        target_specials=None if encoder.own_target is None else special_pieces(encoder.own_target),
        rewrites_target=_pretrained_encoders(recipe)[1] is not None,
        factors=list(encoder.vocabularies.values()),
        prepend=encoder.prepend,
        syntax=recipe.syntax_inputs(training=False),
        decoding=recipe.decoding,
        data_sha256=data_sha256,
        scripts=scripts,
    )
    if parent is not None:
        info.rewrites_target = parent.rewrites_target
        compare_annotators(parent, info)
    return info
