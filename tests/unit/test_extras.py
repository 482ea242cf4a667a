"""Errors of what is not installed."""

from __future__ import annotations

import sys

import pytest

from syntaxformer.base.errors import BackendMissingError, needs_extra

MISSING = {
    "matplotlib.figure": ("plots", "import syntaxformer.study.plots"),
    "sacremoses": ("moses", "from syntaxformer.translation.source import detokenize; detokenize('a', 'lv')"),
    "fastapi": ("serve", "from syntaxformer.cli.serve import serve; serve([])"),
}


@pytest.mark.parametrize("package", MISSING)
def test_a_package_of_an_extra_is_named_with_its_command(monkeypatch, package):
    extra, script = MISSING[package]
    monkeypatch.setitem(sys.modules, package, None)
    for name in [
        name for name in sys.modules if name.startswith(("syntaxformer.study.plots", "syntaxformer.serve"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(BackendMissingError) as caught:
        exec(script)
    assert caught.value.install == f'python -m pip install "syntaxformer[{extra}]"'
    assert package in str(caught.value)


def test_other_errors_pass():
    with pytest.raises(ValueError, match="mine"), needs_extra("plots", "draws"):
        raise ValueError("mine")
