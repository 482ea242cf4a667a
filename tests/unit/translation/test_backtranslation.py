"""Back-translation: the files that it writes, what it leaves out, and how it goes on after a kill."""

from __future__ import annotations

import json
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from syntaxformer.base.errors import AlignmentError, ConfigError
from syntaxformer.translation import backtranslation
from syntaxformer.translation.backtranslation import backtranslate
from syntaxformer.translation.decoding import Hypothesis

FAULTY = {"copy this line": "copy this line", "go round": "a a a a a a", "nothing": " ", "": ""}


class Reverser:
    """Reverses the letters of German lines; notes what it translates, and is killed at one line."""

    info, annotator = SimpleNamespace(src="de", tgt="en"), None

    def __init__(self, killed_at=None):
        self.killed_at, self.seen, self.settings, self.is_done = killed_at, [], None, False

    def translate(self, lines, user_factors, first_line, **settings):
        self.first_line, self.settings = first_line, settings
        self.factors = {name: [*rows] for name, rows in user_factors.items()}
        for line in lines:
            if line == self.killed_at:
                raise KeyboardInterrupt
            self.seen.append(line)
            yield [Hypothesis(FAULTY.get(line, line[::-1]), loops=line == "go round")]
        self.is_done = True


@pytest.fixture
def call(tmp_path, monkeypatch):
    monkeypatch.setattr(backtranslation, "PART_LINES", 3)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "manifest.json").write_text("{}")
    lines = ["eins\tzwei", *FAULTY, "drei", "vier", "fünf", "a b c", "OK"]
    (tmp_path / "mono.de").write_text("".join(f"{line}\n" for line in lines))

    def run(translator=None, factors=None, **search):
        paths = (tmp_path / "model", tmp_path / "mono.de", tmp_path / "pairs")
        return backtranslate(translator or Reverser(), *paths, factors, **{"seed": None, **search})

    return run


SOURCES = ["iewz\tsnie", "ierd", "reiv", "fnüf", "c b a", "KO"]
TARGETS = ["eins zwei", "drei", "vier", "fünf", "a b c", "OK"]
LEFT_OUT = {"untranslated copies": 1, "with a loop": 1, "with an empty side": 2}


def _check(tmp_path):
    pairs = tmp_path / "pairs"
    assert sorted(path.name for path in pairs.iterdir()) == ["backtranslation.json", "train.de", "train.en"]
    assert (pairs / "train.en").read_text().splitlines() == SOURCES
    assert (pairs / "train.de").read_text().splitlines() == TARGETS
    report = json.loads((pairs / "backtranslation.json").read_text())
    assert (report["src"], report["tgt"]) == ("en", "de")
    assert (report["lines"], report["pairs"], report["left_out"]) == (10, 6, LEFT_OUT)


def test_sources_are_written_beside_real_targets(call, tmp_path):
    reverser = Reverser()
    assert call(reverser, temperature=0.8, seed=3)["pairs"] == 6
    assert reverser.settings == {"temperature": 0.8, "seed": 3}
    assert reverser.is_done  # what the translator says at its end is said
    _check(tmp_path)
    again = call(Reverser("eins\tzwei"), temperature=0.8, seed=3)
    assert again["left_out"] == LEFT_OUT  # nothing is done again


@pytest.mark.parametrize(("killed_at", "n_kept"), [("eins\tzwei", 0), ("drei", 3), ("OK", 9)])
def test_a_killed_run_goes_on_where_it_stopped(call, tmp_path, killed_at, n_kept, caplog):
    with pytest.raises(KeyboardInterrupt):
        call(Reverser(killed_at))
    (tmp_path / "pairs" / ".train.en.abcdefgh.partial").write_text("half a l")
    again = Reverser()
    with caplog.at_level("INFO"):
        call(again)
    assert len(again.seen) == 10 - n_kept
    message = f"translating {tmp_path / 'mono.de'}, continued after line {n_kept}:"
    assert (message in caplog.text) == bool(n_kept)
    _check(tmp_path)


def test_values_of_the_user_s_own_factors_go_with_their_lines(call, tmp_path):
    (tmp_path / "mono.topic").write_text("".join(f"t{n} t{n}\n" for n in range(10)))
    factors = {"topic": tmp_path / "mono.topic"}
    with pytest.raises(KeyboardInterrupt):
        call(Reverser("drei"), factors)
    again, right = Reverser(), factors["topic"].read_text()
    for wrong in (right.replace("t2", "x"), right.replace("t8 t8\n", "")):
        factors["topic"].write_text(wrong)
        with pytest.raises((ConfigError, AlignmentError), match=r"with another --factor topic\.|topic:"):
            call(again, factors)
    factors["topic"].write_text(right.replace("t8", "mended"))  # values of lines that are not yet done
    call(again, factors)
    assert again.factors == {"topic": [[f"t{n}".replace("t8", "mended")] * 2 for n in range(3, 10)]}
    assert again.first_line == 4
    _check(tmp_path)
    factors["topic"].write_text("other\n" * 10)
    with pytest.raises(ConfigError, match=r"with another --factor topic\."):
        call(again, factors)


@pytest.mark.parametrize("is_finished", [True, False])
def test_another_model_text_or_option_is_refused(call, tmp_path, is_finished):
    with nullcontext() if is_finished else pytest.raises(KeyboardInterrupt):
        call(Reverser(None if is_finished else "OK"), temperature=1.0)
    with pytest.raises(ConfigError, match=r"^-o: expected a new folder, or one begun .*pairs, with another"):
        call(temperature=0.5)
    with pytest.raises(ConfigError, match=r"with another temperature, seed\.|with another seed,"):
        call(seed=1)
    tagged = Reverser()
    tagged.annotator = SimpleNamespace(name="de", version="2")
    with pytest.raises(ConfigError, match=r"with another annotator\."):
        call(tagged, temperature=1.0)
    (tmp_path / "mono.de").write_text("anders\n")
    (tmp_path / "model" / "manifest.json").write_text("[]")
    with pytest.raises(ConfigError, match=r"with another MODEL, MONO\."):
        call(temperature=1.0)


@pytest.mark.parametrize("line", ["fünf", "f\ufffdnf"])
def test_lost_characters_are_left_out(call, tmp_path, monkeypatch, line):
    """Bytes that are no UTF-8 become U+FFFD, in a sample or in the text itself."""
    (tmp_path / "mono.de").write_text(f"{line}\ndrei\n")
    monkeypatch.setitem(FAULTY, "fünf", "f\ufffdve")
    assert call()["left_out"] == {"with U+FFFD": 1}
    assert (tmp_path / "pairs" / "train.de").read_text() == "drei\n"


def test_foreign_folders_are_refused(call, tmp_path):
    (tmp_path / "pairs").mkdir()
    (tmp_path / "pairs" / "train.en").write_text("mine\n")
    with pytest.raises(ConfigError, match=r"expected a new folder, .*pairs, with another train\.en\."):
        call()
    assert (tmp_path / "pairs" / "train.en").read_text() == "mine\n"
