"""A small pretrained translator, since none can be downloaded here: Marian, English to German, on Tatoeba.

    python experiments/split_tatoeba.py ../shared/data/tatoeba runs/tatoeba
    export MALLOC_TRIM_THRESHOLD_=4294967296 MALLOC_MMAP_THRESHOLD_=4294967296 MALLOC_TOP_PAD_=268435456
    python experiments/pretrain_marian.py runs/tatoeba runs/marian experiments/marian_tatoeba_en_de

The three variables let glibc keep freed memory: an update then takes less than half the time. Nothing of
syntaxformer takes part but the split: the class is OPUS-MT's `MarianMTModel` (4 + 4 layers of width 256),
the tokenizer consists of two SentencePiece models, the training is `Seq2SeqTrainer`. A run that was
stopped goes on from its newest checkpoint. At the end the folder OUTPUT holds the weights in half
precision, the tokenizer and a model card with BLEU on Tatoeba's test.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import sacrebleu
import sentencepiece
import torch
from transformers import (
    DataCollatorForSeq2Seq,
    MarianConfig,
    MarianMTModel,
    MarianTokenizer,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    set_seed,
)
from transformers.trainer_utils import get_last_checkpoint

SEED, PIECES, LONGEST = 20261125, 6000, 64
CARD = """---
language: [en, de]
license: cc-by-2.0
pipeline_tag: translation
---
# A Marian translator of everyday sentences, English to German

Trained from random weights by `experiments/pretrain_marian.py` on {pairs:,} sentence pairs of Tatoeba
(https://tatoeba.org, CC BY 2.0 FR; the pairs of https://www.manythings.org/anki, 2018)
in {updates:,} updates.
{parameters:,} parameters in half precision. BLEU on 2,000 held-out sentences: {bleu:.1f} (sacreBLEU, beam 5).
It knows short everyday sentences only, and is a starting point for experiments with little data.
"""


def read_pairs(folder: Path, split: str) -> list[tuple[str, str]]:
    """Read SPLIT.en and SPLIT.de of a folder."""
    sides = [(folder / f"{split}.{language}").read_text("utf-8").splitlines() for language in ("en", "de")]
    return list(zip(*sides, strict=True))


def make_tokenizer(pairs: list[tuple[str, str]], folder: Path) -> MarianTokenizer:
    """Train one SentencePiece model a side and write the joint vocabulary as OPUS-MT has it."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "vocab.json").exists():
        vocabulary = {"</s>": 0, "<unk>": 1}
        for place, side in enumerate(("source", "target")):
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=(pair[place] for pair in pairs),
                model_prefix=str(folder / side),
                vocab_size=PIECES,
                character_coverage=1.0,
                num_threads=1,
                minloglevel=2,
            )
            (folder / f"{side}.model").rename(folder / f"{side}.spm")
            (folder / f"{side}.vocab").unlink()
            pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{side}.spm"))
            for number in range(pieces.get_piece_size()):
                if not pieces.is_control(number):
                    vocabulary.setdefault(pieces.id_to_piece(number), len(vocabulary))
        vocabulary["<pad>"] = len(vocabulary)
        (folder / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False, indent=0), "utf-8")
    return MarianTokenizer(
        source_spm=str(folder / "source.spm"),
        target_spm=str(folder / "target.spm"),
        vocab=str(folder / "vocab.json"),
        source_lang="en",
        target_lang="de",
        model_max_length=512,
    )


def make_model(tokenizer: MarianTokenizer, layers: int, width: int) -> MarianMTModel:
    """Build OPUS-MT's architecture with random weights."""
    padding = tokenizer.pad_token_id
    return MarianMTModel(
        MarianConfig(
            vocab_size=len(tokenizer),
            d_model=width,
            encoder_layers=layers,
            decoder_layers=layers,
            encoder_attention_heads=width // 64,
            decoder_attention_heads=width // 64,
            encoder_ffn_dim=4 * width,
            decoder_ffn_dim=4 * width,
            max_position_embeddings=512,
            activation_function="swish",
            scale_embedding=True,
            static_position_embeddings=True,
            dropout=0.1,
            pad_token_id=padding,
            eos_token_id=tokenizer.eos_token_id,
            decoder_start_token_id=padding,
            forced_eos_token_id=tokenizer.eos_token_id,
        )
    )


def encode(tokenizer: MarianTokenizer, pairs: list[tuple[str, str]]) -> list[dict]:
    """Turn pairs into rows of ids, each side cut at `LONGEST` pieces."""
    sources = tokenizer([pair[0] for pair in pairs], truncation=True, max_length=LONGEST)["input_ids"]
    labels = tokenizer(text_target=[pair[1] for pair in pairs], truncation=True, max_length=LONGEST)[
        "input_ids"
    ]
    return [{"input_ids": one, "labels": other} for one, other in zip(sources, labels, strict=True)]


@torch.no_grad()
def translate(model: MarianMTModel, tokenizer: MarianTokenizer, lines: list[str]) -> list[str]:
    """Translate lines with beam 5, the longest first so that a batch has lines of one length."""
    order = sorted(range(len(lines)), key=lambda place: -len(lines[place]))
    answers: dict[int, str] = {}
    for start in range(0, len(order), 64):
        places = order[start : start + 64]
        rows = tokenizer([lines[place] for place in places], return_tensors="pt", padding=True)
        found = model.generate(**rows, num_beams=5, max_length=128)
        answers.update(zip(places, tokenizer.batch_decode(found, skip_special_tokens=True), strict=True))
    return [answers[place] for place in range(len(lines))]


def main() -> None:
    """Train, or go on with training; then write the folder that is committed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="the folder that split_tatoeba.py wrote")
    parser.add_argument("run", type=Path, help="folder of the tokenizer and the checkpoints")
    parser.add_argument("output", type=Path, help="folder of the finished model")
    parser.add_argument("--updates", type=int, default=3000)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--batch", type=int, default=256, help="sentence pairs an update")
    asked = parser.parse_args()
    set_seed(SEED)
    train = read_pairs(asked.data, "train")
    dev, test = read_pairs(asked.data, "dev"), read_pairs(asked.data, "test")
    held_out = {side for pair in (*dev, *test) for side in pair}
    train = [pair for pair in train if not held_out.intersection(pair)]
    tokenizer = make_tokenizer(train, asked.run / "tokenizer")
    model = make_model(tokenizer, asked.layers, asked.width)
    trainer = Seq2SeqTrainer(
        model,
        Seq2SeqTrainingArguments(
            output_dir=str(asked.run / "checkpoints"),
            max_steps=asked.updates,
            per_device_train_batch_size=asked.batch,
            per_device_eval_batch_size=asked.batch,
            train_sampling_strategy="group_by_length",
            learning_rate=1e-3,
            warmup_steps=600,
            lr_scheduler_type="cosine",
            adam_beta2=0.98,
            label_smoothing_factor=0.1,
            max_grad_norm=1.0,
            bf16=True,
            use_cpu=True,
            eval_strategy="steps",
            eval_steps=500,
            save_steps=100,
            save_total_limit=2,
            logging_steps=100,
            report_to="none",
            disable_tqdm=True,
            seed=SEED,
        ),
        data_collator=DataCollatorForSeq2Seq(tokenizer, model, pad_to_multiple_of=8),
        train_dataset=encode(tokenizer, train),
        eval_dataset=encode(tokenizer, dev),
    )
    checkpoints = asked.run / "checkpoints"
    trainer.train(
        resume_from_checkpoint=get_last_checkpoint(str(checkpoints)) if checkpoints.exists() else None
    )
    model = model.half().float().eval()
    answers = translate(model, tokenizer, [pair[0] for pair in test])
    bleu = sacrebleu.corpus_bleu(answers, [[pair[1] for pair in test]]).score
    tokenizer.save_pretrained(asked.output)
    model.generation_config.update(num_beams=5, max_length=128)
    model.half().save_pretrained(asked.output)
    card = CARD.format(pairs=len(train), updates=asked.updates, parameters=model.num_parameters(), bleu=bleu)
    (asked.output / "README.md").write_text(card, "utf-8")
    print(f"BLEU {bleu:.2f} on {len(test)} sentences; {asked.output}")


if __name__ == "__main__":
    main()
