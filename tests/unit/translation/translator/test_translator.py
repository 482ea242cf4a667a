"""Lines in, lines out: as many, in order, whatever they hold and however they are batched."""

from __future__ import annotations

import random
import threading

import pytest
import torch

from syntaxformer.base.errors import AlignmentError, ConfigError, DataError
from syntaxformer.translation import translator as translator_module
from syntaxformer.translation.decoding import batches_of
from syntaxformer.translation.torch_decoder import LengthLimit

WORDS = ["the", "cat", "sat", "cats", "dog", "mat", ".", "👍", "unseen"]


def _lines(n: int) -> list[str]:
    chosen = random.Random(3)
    return [" ".join(chosen.choices(WORDS, k=chosen.randint(1, 7))) for _ in range(n)]


def _texts(results) -> list[str]:
    return [best[0].text for best in results]


def test_empty_and_blank_lines_stay_in_their_places(infused):
    lines = ["", "the cat", "   ", "\t", "sat .", "\u2003", ""]
    texts = _texts(infused.translate(lines))
    assert len(texts) == 7
    assert [bool(text) for text in texts] == [False, True, False, False, True, False, False]
    assert texts[1] == _texts(infused.translate(["the cat"]))[0]


def test_what_byte_pieces_spell_can_be_read_again(plain):
    """A sample may have any bytes. `train` refuses tabs and NULs, and a line break would make two lines."""
    tokenizer = plain.encoder.target_tokenizer
    spelled = "a\tb\0c\r\nd\x85\u2028e\x1bf é\n".encode()
    (text,) = plain._as_text([tokenizer.convert_tokens_to_ids([f"<0x{byte:02X}>" for byte in spelled])])
    assert text == "a b c d e f é"


def test_a_string_is_no_list_of_lines(plain):
    message = r"^lines: expected a list of strings, got the string 'the cat'\. Put it into a list\.$"
    for call in (lambda: list(plain.translate("the cat")), lambda: plain.encode("the cat")):
        with pytest.raises(TypeError, match=message):
            call()
    with pytest.raises(TypeError, match=message):
        plain.as_written("the cat")


@pytest.mark.parametrize("cell", [None, float("nan"), 3, ["the cat"], "a half \ud83d"])
def test_a_cell_without_text_is_refused_by_its_number(plain, cell):
    """None once ended the lines: what came after it stood beside other lines."""
    for lines in ([cell], ["the cat", cell, "the dog"]):
        for call in (plain.encode, lambda lines: list(plain.translate(lines))):
            message = rf"^line {len(lines) // 2 + 1}: text: expected (a string|whole)"
            with pytest.raises(DataError, match=message):
                call(lines)
    with pytest.raises(TypeError, match=r"^lines: expected a list of strings, got a mapping\.$"):
        list(plain.translate({"text": "the cat"}))


@pytest.mark.parametrize("n_ahead", [0, 2])
def test_lines_go_in_and_come_out_in_order(plain, monkeypatch, n_ahead):
    monkeypatch.setattr(translator_module, "CHUNK_LINES", 101)
    monkeypatch.setattr(plain.decoder, "n_ahead", n_ahead, raising=False)
    distinct = _lines(13)
    alone = {line: _texts(plain.translate([line], beam_size=1))[0] for line in distinct}
    lines = [distinct[row * 7 % 13] if row % 11 else "" for row in range(300)]
    found = _texts(plain.translate(lines, beam_size=1, batch_size=64))
    assert found == [alone.get(line, "") for line in lines]


def test_lines_come_as_they_are_read(plain):
    """Constant memory: a chunk is translated before the next is read."""
    read = []

    def lines():
        for number in range(5000):
            read.append(number)
            yield ""

    next(plain.translate(lines()))
    assert len(read) == translator_module.CHUNK_LINES


@pytest.mark.parametrize("n_ahead", [0, 2])
def test_a_line_that_is_typed_is_translated_before_the_next_is_typed(plain, monkeypatch, n_ahead):
    monkeypatch.setattr(plain.decoder, "n_ahead", n_ahead, raising=False)

    class Typed:
        """Two lines at hand, and then somebody thinks."""

        def __init__(self):
            self.lines, self.taken = iter(["the cat", "sat", "cats"]), 0

        def __iter__(self):
            return self

        def __next__(self):
            self.taken += 1
            return next(self.lines)

        def is_waiting(self):
            return self.taken == 2

    typed = Typed()
    results = plain.translate(typed, beam_size=1)
    next(results)
    assert typed.taken == 2
    assert len(list(results)) == 2


def test_a_chunk_is_encoded_while_those_before_it_are_decoded(plain, monkeypatch):
    monkeypatch.setattr(translator_module, "CHUNK_LINES_AHEAD", 4)
    monkeypatch.setattr(plain.decoder, "n_ahead", 1, raising=False)
    decode, second_is_read = plain.decoder.decode, threading.Event()

    def decode_late(*arguments):
        assert second_is_read.wait(timeout=60)
        return decode(*arguments)

    def lines():
        yield from ["the cat", "sat", "cats", "sat"]
        second_is_read.set()
        yield "cats"

    monkeypatch.setattr(plain.decoder, "decode", decode_late)
    assert len(list(plain.translate(lines(), beam_size=1, batch_size=1))) == 5


@pytest.mark.parametrize("beam_size", [1, 4])
def test_the_result_does_not_depend_on_the_batch(infused, beam_size):
    lines = _lines(11)
    one = _texts(infused.translate(lines, beam_size, batch_size=1))
    assert _texts(infused.translate(lines, beam_size, batch_size=3)) == one
    assert _texts(infused.translate(lines, beam_size, batch_size=11)) == one
    assert _texts(infused.translate(lines[::-1], beam_size, batch_size=11))[::-1] == one


def test_control_characters_and_line_breaks_stay_inside_a_line(plain):
    lines = ["the\0cat", "the\x1fcat", "the\u2028cat", "the\x85cat", "a\vb\fc", "\ud7ff"]
    results = _texts(plain.translate(lines))
    assert len(results) == 6
    assert not any("\n" in text or "\r" in text for text in results)


def test_the_score_is_a_log_probability(plain):
    """By hand: one pass over the pieces that `generate` found, sum of their log-probabilities over length."""
    line, power = "cats sit .", 0.6
    ((best,),) = plain.translate([line], 3, power, n_best=1, scored=True)
    source = plain.encode([line])
    ids = torch.tensor(source.pieces, dtype=torch.long)[None]
    with torch.no_grad():
        found = plain.model.generate(
            input_ids=ids, max_new_tokens=99, num_beams=3, length_penalty=power, do_sample=False,
            logits_processor=[LengthLimit(torch.tensor([2 * len(source.pieces) + 10]), 2, 3, torch.device("cpu"))],
        )  # fmt: skip
        target = found[:, 1:]
        logits = plain.model(input_ids=ids, labels=target).logits
        total = float(logits.log_softmax(-1).gather(-1, target[..., None]).sum())
    assert plain.encoder.tokenizer.decode(target[0], skip_special_tokens=True).strip() == best.text
    assert best.score == pytest.approx(total / target.shape[1] ** power, rel=1e-4)


def test_output_has_no_special_pieces(new_translator):
    """Padding, start and unknown pieces are no output, however likely a bad model finds them."""
    translator = new_translator()
    with torch.no_grad():
        translator.model.decoder.norm.bias.fill_(3.0)
        translator.model.decoder.embedding.weight[[0, 1, 3]] = 3.0
    ids = torch.tensor([[7, 8, 2]])
    assert set(translator.model.generate(input_ids=ids, max_new_tokens=5)[0, 1:].tolist()) <= {0, 1, 3}
    ((best,),) = translator.translate(["the cat"])
    assert len(best.pieces) > 3
    assert not {0, 1, 3} & {*best.pieces}


def test_blank_lines_in_an_n_best_list(plain):
    (hypotheses,) = plain.translate([""], n_best=3, scored=True)
    assert [(one.text, one.score) for one in hypotheses] == [("", 0.0)] * 3


def test_long_lines_are_cut_with_one_counted_warning(infused, monkeypatch):
    monkeypatch.setattr(translator_module, "MAX_SOURCE_PIECES", 29)
    monkeypatch.setattr(translator_module, "CHUNK_LINES", 2)
    long = "the cat " * 40
    with pytest.warns(UserWarning, match="were cut") as caught:
        texts = _texts(infused.translate([long, "cats", long, "", long], beam_size=1))
    assert [str(one.message) for one in caught] == [
        "3 lines of more than 29 pieces were cut to 29: the rest of each is not translated. Split them "
        "into sentences."
    ]
    assert len(texts) == 5
    cut = infused.encode([long])
    assert cut.lengths.tolist() == [29]
    assert cut.pieces[-1] == 2  # the end piece stays


USER = {"tone": [["h"] * 7, ["l"] * 3, ["h", "l", "h", "l", "h", "l"]]}


@pytest.fixture
def toned(new_translator):
    return new_translator("add", ("pos", "tone"), USER)


def test_user_factors_reach_the_model(toned, monkeypatch):
    monkeypatch.setattr(translator_module, "CHUNK_LINES", 2)
    lines = ["the cat", "", "cats sit .", "the cat"]
    given = [["h", "l"], [], ["l"] * 3, ["l", "l"]]
    results = _texts(toned.translate(lines, user_factors={"tone": given}))
    assert len(results) == 4
    ids = toned.encode(lines, {"tone": given}).factors[:, 1]
    assert toned.encoder.vocabularies["tone"].decode(ids)[:2] == ["h", "l"]


@pytest.mark.parametrize(
    ("tones", "more", "message"),
    [
        ([["h", "h"]], {}, r"^line 3: column tone: expected 3 values, one per word, got"),
        ([["h", "h"]], {"first_line": 2049}, r"^line 2051: column tone: "),  # in a run that is continued
        ([], {}, "factor tone:"),
        ([["h"] * 3, [], []], {}, r"^factor tone: expected 3, one .*, got 5\.$"),
    ],
)
def test_user_factors_that_slip(toned, monkeypatch, tones, more, message):
    monkeypatch.setattr(translator_module, "CHUNK_LINES", 2)
    lines = ["the cat", "", "cats sit ."]
    with pytest.raises(ConfigError, match="user factors:"):
        list(toned.translate(lines))
    with pytest.raises(AlignmentError, match=message):
        list(toned.translate(lines, user_factors={"tone": [["h", "l"], [], *tones]}, **more))


def test_batches_have_a_budget_of_pieces():
    # 32 pieces for each of 3 lines, so 96: 2 × 48 fit, 2 × 49 do not, and a fourth line never does.
    assert batches_of([97, 48, 48, 40, 30, 9, 9, 9, 1], 3) == [
        slice(0, 1), slice(1, 3), slice(3, 5), slice(5, 8), slice(8, 9)
    ]  # fmt: skip
    assert batches_of([49, 49], 3) == [slice(0, 1), slice(1, 2)]
    assert batches_of([2, 90, 2], 3) == [slice(0, 1), slice(1, 2), slice(2, 3)]  # in any order
    assert batches_of([], 3) == []
    assert batches_of([50, 25, 24], 99) == [slice(0, 2), slice(2, 3)]  # 24 is less than half of 50


def test_a_long_line_costs_its_neighbours_nothing(plain):
    """31 short lines and one of 70 words cost what they cost apart, and are translated as one by one."""
    chosen = random.Random(5)
    short = [" ".join(chosen.choices(["cat", "sat", "the"], k=chosen.randint(1, 9))) for _ in range(31)]
    lines = [*short[:15], " ".join(["cat"] * 70), *short[15:]]
    costs = []
    counting = plain.model.register_forward_hook(lambda *called: costs.append(len(called[-1].logits)))

    def translated(chunk, batch_size=32):
        costs.clear()
        return _texts(plain.translate(chunk, beam_size=2, batch_size=batch_size)), sum(costs)

    try:
        (_, few), (_, one), (together, cost) = map(translated, (short, lines[15:16], lines))
        assert cost <= 1.3 * (few + one)
        assert translated(lines[11:19], 1)[0] == together[11:19]
    finally:
        counting.remove()


@pytest.fixture
def told(caplog):
    """What a translator says of lines: each sentence once in a process."""

    def call(translator, lines):
        translator_module.say_once.cache_clear()
        caplog.clear()
        list(translator.translate(lines))
        return [record.getMessage() for record in caplog.records]

    return call


def test_what_an_unfinished_translation_found_is_not_said_of_the_next(new_translator, told):
    model = new_translator(normalize="nfc")
    next(model.translate(["a\ta"] * 3))
    assert told(model, ["the cat"]) == []


@pytest.mark.parametrize("scripts", [(), ("LATIN",)])
def test_what_the_model_cannot_have_learned_is_said_once(new_translator, told, scripts):
    model = new_translator(normalize="nfc", scripts=scripts)
    lines = [
        "the cat",
        "\u043a\u043e\u0442 \u0441\u0438\u0434\u0438\u0442",
        "cats \u2603",
        "a\ta",
        "a\u00a0cat",
    ] * 2
    tabs, unseen = told(model, lines)
    assert "4 lines with characters, or in a script, that are not in the model's training text" in unseen
    assert "2 lines with a tab" in tabs
    assert told(model, ["the cat sat"]) == []


def test_known_characters_of_another_script(new_translator, told):
    """As of a joint vocabulary, whose other side has them."""
    (unseen,) = told(new_translator(normalize="nfc", scripts=("GREEK",)), ["the cat", "."])
    assert "1 line with characters" in unseen


def test_an_older_folder_says_what_is_in_another_form(new_translator, told):
    form, _ = told(new_translator(), ["the cat", "the\u00a0cat", "a  cat"])
    assert "1 line not in the form NFC" in form


def test_the_service_says_nothing_for_each_request(new_translator, caplog):
    model = new_translator()
    model.search(["\u043a"], model.encode(["\u043a"]), model.info.decoding)
    assert caplog.text == ""
