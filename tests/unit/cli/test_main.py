"""The command itself: its verbs, its help, and how it fails."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from typing import get_type_hints

import pytest
from typer.main import get_command

from syntaxformer import __version__
from syntaxformer.base.errors import BackendMissingError, CheckpointError, ConfigError, DataError
from syntaxformer.base.files import MAX_LINE_BYTES
from syntaxformer.cli import main as cli_main
from syntaxformer.cli import options


def _commands(command, *path):
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from _commands(below, *path, name)


COMMANDS = dict(_commands(get_command(cli_main.app)))


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_has_help_for_itself_and_each_option(run, monkeypatch, path):
    monkeypatch.setenv("COLUMNS", "80")
    command, (code, out, err) = COMMANDS[path], run(*path, "-h")
    assert (code, err) == (0, "")
    assert f"Usage: syntaxformer {' '.join(path)}".rstrip() in out
    assert max(map(len, out.splitlines())) <= 80
    names = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
    assert not [name for name in names if name.startswith("--") and name not in out], "whole names"
    assert command.help.splitlines()[0][:60] in out
    assert out.count(f"syntaxformer {' '.join(path)} ") >= 2 or command.hidden or path in ((), ("doctor",))
    assert isinstance(command, options.Command | options.Group), "which refuse options that are repeated"


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["translate", "m", "--beam-size=2", "--beam-size", "3"], "beam-size"),
        (["translate", "m", "-o", "a", "--output=b"], "output"),
        (["translate", "m", "--inject", "--no-inject"], "inject"),
        (["experiment", "run", "spec.yaml", "--jobs", "2", "--jobs", "3"], "jobs"),
        (["data", "report", "a", "b", "--json", "--json"], "json"),
        (["--quiet", "--quiet", "doctor"], "quiet"),
        (["evaluate", "m", "--ref", "a", "--ref", "b", "--src", "a", "--src", "b"], "src"),
    ],
)
def test_an_option_of_one_value_is_given_once(run, arguments, option):
    assert run(*arguments) == (2, "", f"error: --{option}: expected it once, got it 2 times.\n")


@pytest.mark.parametrize(
    "verb",
    [
        ("train", "tiny"),
        ("demo",),
        ("finetune", "--task", "cola", "--model", "m", "--data", "d", "-o", "o", "--set"),
        ("experiment", "run", "spec.yaml", "--set"),
        ("experiment", "report", "spec.yaml", "--set"),
    ],
)
def test_a_setting_has_one_value(run, verb):
    again = verb[-1:] if verb[-1] == "--set" else ()
    message = "error: seed: expected one value, got another of seed before it. Leave one out.\n"
    assert run(*verb, "seed=3", *again, "seed=5") == (2, "", message)


@pytest.mark.parametrize("verb", cli_main.VERBS, ids=lambda verb: verb.__name__)
def test_every_argument_is_described(verb):
    hints = get_type_hints(verb, include_extras=True)
    metadata = {name: getattr(hint, "__metadata__", ()) for name, hint in hints.items() if name != "return"}
    described = {
        name for name, extras in metadata.items() for extra in extras if getattr(extra, "help", None)
    }
    assert described == metadata.keys()


def test_help_is_quick_and_imports_no_torch():
    command = [sys.executable, "-X", "importtime", "-m", "syntaxformer.cli.main", "--help"]
    seconds = []
    for _ in range(3):
        start = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        seconds.append(time.monotonic() - start)
    imported = {line.rsplit("|", 1)[-1].strip().split(".")[0] for line in done.stderr.splitlines()}
    assert not imported & {"torch", "transformers", "spacy", "numpy", "pyarrow", "pydantic", "matplotlib"}
    assert sorted(seconds)[1] < 1.0  # 0.5 s on a machine with nothing else to do


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["translate"], "error: Missing argument 'MODEL... [IN]'. See `syntaxformer translate --help`."),
        (["frobnicate"], "error: No such command 'frobnicate'. See `syntaxformer --help`."),
        (["doctor", "--fix"], "error: No such option: --fix. See `syntaxformer doctor --help`."),
        (["--debug", "doctor", "--fix"], "error: No such option: --fix. See `syntaxformer doctor --help`."),
        (["annotate", "a.txt", "-o", "a.parquet", "--language", "german"], "error: Invalid value for '--language': expected the code of "
         "a language, such as de, deu or de-DE, got 'german'. Did you mean 'de'? See `syntaxformer annotate --help`."),
        (["doctor", "--debug"], "error: No such option: --debug. Put it before the verb: `syntaxformer --debug doctor …`."),
    ],
)  # fmt: skip
def test_usage_errors_are_one_line(run, arguments, line):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    # The words are the library's: their case and quotes differ between its versions.
    plain, expected = (text.lower().replace('"', "").replace("'", "") for text in (err, f"{line}\n"))
    assert plain == expected


@pytest.mark.parametrize(
    ("error", "lines"),
    [
        (DataError("expected a, got b.", "f.txt", 3), ["error: f.txt:3: expected a, got b."]),
        (ConfigError(["one.", "two."]), ["error: one.", "error: two."]),
        (CheckpointError("broken\nin two"), ["error: broken in two"]),
        (BackendMissingError("stanza", "pip install stanza"), ["error: stanza is not installed. Run: pip install stanza"]),
        (PermissionError(13, "Permission denied", "/x"), ["error: /x: expected to read or write it, got: Permission denied."]),
        (OSError(28, "No space left on device"), ["error: output: expected to read or write it, got: No space left on device."]),
    ],
)  # fmt: skip
def test_what_the_user_can_cause_is_a_line_a_problem(run, monkeypatch, error, lines):
    def fail(**_):
        raise error

    monkeypatch.setattr(cli_main, "app", fail)
    monkeypatch.setattr("os.dup2", lambda *_: None)
    code, out, err = run("doctor")
    assert (code, out, err.splitlines()) == (2, "", lines)


@pytest.mark.parametrize(("flags", "place"), [((), False), (("--debug",), True)])
def test_warnings_of_libraries_are_for_debugging_and_our_own_for_everyone(monkeypatch, capsys, flags, place):
    monkeypatch.setattr(sys, "argv", ["syntaxformer", *flags, "doctor"])
    cli_main._show_warning("trees may differ.", UserWarning, cli_main.__file__, 7)
    cli_main._show_warning("slow kernel", FutureWarning, "/lib/torch/nn.py", 7)
    of_library = "warning: /lib/torch/nn.py:7: FutureWarning: slow kernel\n" if place else ""
    assert capsys.readouterr().err == f"warning: trees may differ.\n{of_library}"


def test_a_full_output_device():
    command = f"{sys.executable} -m syntaxformer.cli.main --version > /dev/full"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "error: output: expected to read or write it, got: No space left on device.\n"


@pytest.mark.parametrize(
    ("script", "closed", "told"),
    [
        (["-m", "syntaxformer.cli.main", "--version"], ">&-", ""),
        (["-m", "syntaxformer.cli.main", "nothing"], "2>&-", ""),
        (["-c", '"from syntaxformer.base.progress import standard_input; standard_input()"'], "<&-",
         "DataError: standard input: expected one, got none: it is closed. Give a file, or /dev/null.\n"),
    ],
)  # fmt: skip
def test_closed_standard_streams(script, closed, told):
    """As daemons have them."""
    command = " ".join([sys.executable, *script, closed])
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.stderr.rpartition("syntaxformer.base.errors.")[2] == told
    assert done.returncode == {">&-": 0, "2>&-": 2, "<&-": 1}[closed]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--quiet", "annotate", "a"], "interrupted: the same command continues the work\n"),
        (["--max-line-bytes", "9", "annotate", "a"], "interrupted: the same command continues the work\n"),
        (["translate", "runs/sit"], "interrupted\n"),
        *(
            (["translate", "m", "a", *output], "interrupted: the same command continues the work if --resume is added\n")
            for output in (["-o", "b"], ["-ob"], ["--output=b"])
        ),
    ],
)  # fmt: skip
def test_who_interrupts_a_command_reads_how_it_goes_on(run, monkeypatch, arguments, message):
    monkeypatch.setattr(cli_main, "app", lambda **_: 130)
    assert run(*arguments) == (130, "", message)


def test_the_package_runs_as_a_module_and_has_a_version():
    done = subprocess.run([sys.executable, "-m", "syntaxformer", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{__version__}\n", "")


def test_a_typo_on_the_command_line_is_not_blamed_on_the_file(run, tmp_path):
    (tmp_path / "own.yaml").write_text("output: x\ndata:\n  tgtt: de\n  dir: none\nmodel:\n  d_ff: wide\n")
    code, _, err = run("train", str(tmp_path / "own.yaml"), "infusion.kidn=none", "model.d_ff=wider", "sed=1")
    assert code == 2
    keys = sorted(line.removeprefix("error: ").split(": ")[:2] for line in err.splitlines())
    assert keys == [
        [str(tmp_path / "own.yaml"), "data.tgtt"],
        ["command line", "infusion.kidn"],
        ["command line", "model.d_ff"],
        ["command line", "sed"],
    ]


def test_no_data_commands_the_terminal(run, monkeypatch, capsys):
    data = "caf\u00e9\tx\x1b]0;t\x07\x9b2J\n"
    safe = "caf\u00e9\tx\\x1b]0;t\\x07\\x9b2J\n"
    options.echo(data)
    options.echo(data, err=True)
    assert capsys.readouterr() == (f"{data}\n", f"{safe}\n")  # a pipe gets the data themselves
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    options.echo_table([[data.strip(), "1"]])
    assert capsys.readouterr().out == f"{safe.strip()}       1\n"
    record = logging.LogRecord("x", logging.INFO, "", 1, "%s", (data,), None)
    assert cli_main._Visible().format(record) == safe
    cli_main._show_warning(data, UserWarning, cli_main.__file__, 7)
    assert capsys.readouterr().err == f"warning: {safe}\n"

    def fail(**_):
        raise DataError(data.strip())

    monkeypatch.setattr(cli_main, "app", fail)
    assert run("doctor")[2] == f"error: {safe}"


def test_the_bound_of_lines_stands_before_the_verb(run, tmp_path, monkeypatch):
    monkeypatch.setenv(MAX_LINE_BYTES, "9")  # so that the test's end restores it
    (tmp_path / "in.en").write_text("four\n")
    paths = str(tmp_path / "in.en"), "-o", str(tmp_path / "a.parquet")
    code, _, err = run("--max-line-bytes", "3", "annotate", *paths)
    assert code == 2
    assert f"{tmp_path / 'in.en'}:1: expected at most 3 bytes" in err
    assert "--max-line-bytes 30 " in err
    assert "before the verb" in run("annotate", "x", "-o", "y", "--max-line-bytes", "3")[2]


@pytest.mark.parametrize(
    ("flags", "error"), [(["--debug"], DataError("expected a, got b.")), ([], IndexError("ours"))]
)
def test_debug_and_errors_of_ours_show_the_traceback(monkeypatch, flags, error):
    def fail(**_):
        raise error

    monkeypatch.setattr(cli_main, "app", fail)
    monkeypatch.setattr(sys, "argv", ["syntaxformer", *flags, "doctor"])
    with pytest.raises(type(error)):
        cli_main.main()


@pytest.mark.slow
def test_a_reader_that_has_gone():
    """`syntaxformer … | head -1` ends quietly."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "syntaxformer.cli.main", "--help"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert done.stderr == ""
