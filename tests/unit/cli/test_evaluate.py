"""`evaluate --baseline`: two models are compared in one way, whichever is named first."""

from __future__ import annotations

import pytest

from syntaxformer.base.errors import ConfigError
from syntaxformer.cli.evaluate import _common_scoring
from syntaxformer.translation.model_folder import FolderInfo


def _info(**more) -> FolderInfo:
    return FolderInfo(src="en", tgt="de", annotator=None, annotator_version=None, factors=[], **more)


def test_a_cased_and_a_lower_case_model_are_compared_in_lower_case():
    for infos in ((_info(), _info(lowercase=True)), (_info(lowercase=True), _info())):
        assert _common_scoring(infos) == {"lowercase": True, "tokenize": "13a"}
    assert _common_scoring([_info()]) == {"lowercase": False, "tokenize": "13a"}


def test_tokenised_output_is_not_compared_with_text():
    with pytest.raises(ConfigError) as caught:
        _common_scoring([_info(tokenized=True), _info()])
    assert str(caught.value) == (
        "--baseline: expected two models whose words are divided alike for BLEU, got none and 13a."
    )
