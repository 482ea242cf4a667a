"""`import syntaxformer`, in whatever order, and transformers' Auto classes know our kinds of model."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
import transformers as hf

import syntaxformer as sf
from tiny_hosts import EXHAUSTIVE


def _ran(code):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    torch.manual_seed(1)
    shape = {
        "vocab_size": 31, "d_model": 22, "n_heads": 2, "d_ff": 29, "encoder_layers": 1, "decoder_layers": 1,
    }  # fmt: skip
    translator = tmp_path_factory.mktemp("translator")
    sf.SyntaxTransformer(sf.translation.model.SyntaxTransformerConfig(**shape)).save_pretrained(translator)
    infused = tmp_path_factory.mktemp("infused")
    sizes = {"hidden_size": 22, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 29}
    sf.infuse(hf.BertModel(hf.BertConfig(vocab_size=31, **sizes)), "pos_add").save_pretrained(infused)
    return {"translator": translator, "infused": infused}


@pytest.mark.slow
@pytest.mark.parametrize("before", ["", *["transformers.models.auto.configuration_auto, "] * EXHAUSTIVE])
def test_both_kinds_are_known_after_import(before, folders):
    seen = _ran(
        f"import sys, {before}syntaxformer\n"
        "print('torch' in sys.modules or 'transformers' in sys.modules)\n"
        "from transformers import AutoTokenizer\n"
        "print('syntaxformer.translation.model' in sys.modules)\n"
        "from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM\n"
        f"print(type(AutoConfig.from_pretrained({str(folders['translator'])!r})).__name__)\n"
        f"print(type(AutoModelForSeq2SeqLM.from_pretrained({str(folders['translator'])!r})).__name__)\n"
        f"print(hasattr(AutoModel.from_pretrained({str(folders['infused'])!r}), 'infusion'))\n"
    )
    assert seen == [str(bool(before)), "False", "SyntaxTransformerConfig", "SyntaxTransformer", "True"]
