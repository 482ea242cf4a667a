"""What an export takes of a model folder."""

from __future__ import annotations

from syntaxformer.base.files import write_manifest
from syntaxformer.runs.export import copy_side_files, output_problems


def test_only_what_the_manifest_lists_is_copied(tmp_path):
    model, output = tmp_path / "model", tmp_path / "export"
    model.mkdir()
    output.mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (model / name).write_text("{}")
    write_manifest(model)
    for name in ("training_args.bin", "notes.py", ".hidden"):
        (model / name).write_text("put there later")
    copy_side_files(output, model, ("*.safetensors",))
    assert sorted(file.name for file in output.iterdir()) == ["config.json", "tokenizer.json"]


def test_what_stands_in_the_way_is_named(tmp_path):
    output = tmp_path / "export"
    output.write_text("mine")
    assert output_problems(output, "export.json", False) == [
        f"output: expected a new folder, got {output}, a file."
    ]
    output.unlink()
    output.mkdir()
    assert output_problems(output, "export.json", False) == []
    (output / "mine").touch()
    assert output_problems(output, "export.json", True)[0].endswith("which holds other files.")
    (output / "export.json").touch()
    assert output_problems(output, "export.json", True) == []
    assert output_problems(output, "export.json", False)[0].endswith("Give --overwrite.")
