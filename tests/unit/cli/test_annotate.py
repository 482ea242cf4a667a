import gzip
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from syntaxformer.annotate import read_annotations
from syntaxformer.base.errors import ConfigError, DataError
from syntaxformer.cli.annotate import output_paths
from syntaxformer.cli.main import app
from syntaxformer.trees import Sentence, write_conllu


@pytest.fixture
def annotator(tmp_path):
    path = tmp_path / "parsed.conllu"
    write_conllu(path, [Sentence.from_words(["the", "cat"], upos=("DET", "NOUN"))])
    return f"conllu:{path}"


def run(*arguments):
    return CliRunner().invoke(app, ["annotate", *map(str, arguments)])


def test_one_file_to_one_file_and_several_to_a_folder(annotator, tmp_path):
    plain, packed, target = tmp_path / "a.en", tmp_path / "b.en.gz", tmp_path / "new" / "out.parquet"
    plain.write_text("the cat\n\n")
    done = run(plain, "-o", target, "--annotator", annotator)
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith(f"{target}: 2 lines, 2 words, conllu:")
    assert [sentence.upos for sentence in read_annotations(target)] == [("DET", "NOUN"), ()]
    packed.write_bytes(gzip.compress(b"the  cat\n"))
    done = run(plain, packed, "-o", tmp_path / "out", "--annotator", annotator)
    assert done.exit_code == 0, done.output
    assert read_annotations(tmp_path / "out" / "a.en.parquet")[0].text == "the cat"
    assert read_annotations(tmp_path / "out" / "b.en.parquet")[0].text == "the  cat"


def test_bad_bytes_stop_with_file_line_and_byte_and_write_nothing(annotator, tmp_path):
    source, target = tmp_path / "in.txt", tmp_path / "out.parquet"
    source.write_bytes(b"the cat\n\xff\n")
    done = run(source, "-o", target, "--annotator", annotator)
    assert isinstance(done.exception, DataError)
    assert str(done.exception).startswith(f"{source}:2: expected UTF-8, got byte 0xff at byte 1 of the line")
    assert not target.exists()


def test_a_pipe_is_refused(tmp_path):
    """It can be read once: neither its hash nor its shards could be."""
    os.mkfifo(tmp_path / "pipe")
    done = run(tmp_path / "pipe", "-o", tmp_path / "out.parquet", "--annotator", "en")
    assert str(done.exception) == (
        f"INPUT: expected a file, which can be read more than once, got the pipe {tmp_path / 'pipe'}. Save it."
    )


def test_outputs_of_one_and_of_several_inputs(tmp_path):
    a, b = Path("x/a.txt.gz"), Path("b")
    assert output_paths([a], Path("o")) == [Path("o")]
    assert output_paths([a], tmp_path) == [tmp_path / "a.txt.parquet"]
    assert output_paths([a, b], Path("o")) == [Path("o/a.txt.parquet"), Path("o/b.parquet")]


@pytest.mark.parametrize(
    ("inputs", "output", "message"),
    [
        (["a"], "s3://bucket/a.parquet", "-o: expected a path on a disk"),
        (["s3://bucket/a.txt"], "o", "INPUT: expected a file, got the URL s3://bucket/a.txt"),
        (["a", "b"], "o.parquet", "-o: expected a folder for 2 inputs, got the file o.parquet"),
        (["x/a", "y/a"], "o", "-o: expected inputs of different names, got two for o/a.parquet"),
        (["a"], "a", "-o: expected another file than the input, got a"),
        (["a"], "o.conllu", "-o: expected a file ending of .parquet, got o.conllu"),
    ],
)
def test_outputs_that_clash_are_refused(inputs, output, message):
    with pytest.raises(ConfigError) as caught:
        output_paths(inputs, Path(output))
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("names", "more", "message"),
    [
        (("in.txt",), (), "--annotator: expected an annotator's name, as in.txt names no language to choose one by, got none. "
         "Set --annotator=NAME, or --language=CODE."),
        (("in.deu",), ("--annotator", "en"), "--annotator: expected an annotator for de, the language of in.deu, got en. "
         "Set --annotator=de, or --language=CODE."),
        (("a.en.gz", "b.de_DE"), (), "IN: expected texts of one language, got some for de and for en."),
    ],
)  # fmt: skip
def test_nobody_is_chosen_in_silence(tmp_path, names, more, message):
    done = run(*(tmp_path / name for name in names), "-o", tmp_path / "out", *more)
    assert str(done.exception) == message


@pytest.mark.parametrize(
    ("name", "more", "chosen"),
    [("in.deu", (), "de"), ("in.tok.en", (), "en"), ("in.txt", ("--language", "ger"), "de"), ("in.fr", ("--language", "en"), "en")],
)  # fmt: skip
def test_the_language_chooses(tmp_path, name, more, chosen):
    (tmp_path / name).write_text("\n")
    done = run(tmp_path / name, "-o", tmp_path / "out.parquet", *more)
    assert done.exit_code == 0, done.exception
    assert f" 0 words, {chosen} " in done.output


def test_what_only_other_annotators_can_do(annotator, tmp_path):
    (source := tmp_path / "in.txt").write_text("the cat\n")
    expected = (
        f"expected an annotator that takes any line, got {annotator}, which is read in order. Leave it out."
    )
    for name, *option in (("--engine ray", "--engine", "ray"), ("--processes", "--processes", 2)):
        done = run(source, "-o", tmp_path / "out.parquet", "--annotator", annotator, *option)
        assert str(done.exception) == f"{name}: {expected}"


@pytest.mark.slow
def test_a_bundled_annotator_needs_no_torch(tmp_path):
    (source := tmp_path / "in.en").write_text("It works.\n")
    code = "import sys; from syntaxformer.cli.main import app; app(sys.argv[1:], standalone_mode=False); "
    code += "print(*{'torch', 'transformers'} & {*sys.modules})"
    command = [sys.executable, "-c", code, "annotate", source]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("# text = It works.\n1\tIt\t")
    assert done.stdout.endswith("\n\n\n")
