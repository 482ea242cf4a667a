"""Stanza models small enough to train in two seconds: their analyses are poor, their files are real."""

import json
import logging

import torch

CONLLU = """\
# text = John slipped.
1	John	John	PROPN	NNP	_	2	nsubj	_	_
2	slipped	slip	VERB	VBD	_	0	root	_	SpaceAfter=No
3	.	.	PUNCT	.	_	2	punct	_	_

# text = The dog can't bark!
1	The	the	DET	DT	_	2	det	_	_
2	dog	dog	NOUN	NN	_	5	nsubj	_	_
3-4	can't	_	_	_	_	_	_	_	_
3	ca	can	AUX	MD	_	5	aux	_	_
4	n't	not	PART	RB	_	5	advmod	_	_
5	bark	bark	VERB	VB	_	0	root	_	SpaceAfter=No
6	!	!	PUNCT	.	_	5	punct	_	_

"""
TREES = "(ROOT (S (NP (NNP John)) (VP (VBD slipped)) (. .)))\n(ROOT (S (NP (DT The) (NN dog)) (VP (MD ca) (RB n't) (VP (VB bark))) (. !)))\n"
TEXT = "John slipped.\n\nThe dog can't bark!\n\n"
RESOURCES = {
    "lang_name": "English",
    "packages": {
        "default": dict.fromkeys(("tokenize", "pos", "depparse", "constituency"), "tiny")
        | {"lemma": "identity"}
    },
    "tokenize": {"tiny": {}},
    "pos": {"tiny": {}},
    "depparse": {"tiny": {}},
    "constituency": {"tiny": {"dependencies": [{"model": "pretrain", "package": "tiny"}]}},
    "lemma": {"identity": {}},
    "pretrain": {"tiny": {}},
}
SMALL = "--hidden_dim 16 --char_hidden_dim 16 --deep_biaff_hidden_dim 16 --word_emb_dim 8"
SMALL += " --char_emb_dim 8 --tag_emb_dim 8 --transformed_dim 8 --num_layers 1"


def train(root):
    """Write models and Stanza's list of them to a folder, as `stanza.download` would."""
    logging.getLogger("stanza").setLevel(logging.ERROR)
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    english = root / "en"
    for processor in ("tokenize", "pos", "depparse", "constituency", "pretrain"):
        (english / processor).mkdir(parents=True)
    _tokenizer(root)
    _tagger_and_parser(root)
    _constituency(root)
    (root / "resources.json").write_text(json.dumps({"en": RESOURCES}))
    torch.set_num_threads(n_threads)


def _labels():
    """A digit a character, as Stanza's tokenizer learns: 1 ends a word, 2 a sentence, 3 a multiword token."""
    lines = ["0001" + "0" + "0000001" + "2", "001" + "0" + "001" + "0" + "00003" + "0" + "0001" + "2"]
    assert [len(line) for line in lines] == [len(line) for line in TEXT.split("\n\n")[:2]]
    return "\n\n".join(lines) + "\n\n"


def _tokenizer(root):
    from stanza.models import tokenizer

    (root / "text.txt").write_text(TEXT)
    (root / "text.label").write_text(_labels())
    (root / "mwt.json").write_text(json.dumps([[["can't", ["ca", "n't"]], 1]]))
    files = {name: str(root / f"text.{name}") for name in ("txt", "label")}
    files = {f"{split}{name}_file": file for name, file in files.items() for split in ("", "dev_")}
    files |= {"mwt_json_file": str(root / "mwt.json"), "save_dir": str(root / "en" / "tokenize")}
    options = "--lang en --shorthand en_tiny --device cpu --save_name tiny.pt --steps 120 --eval_steps 60"
    options += " --hidden_dim 16 --emb_dim 8 --lr0 0.02 --dropout 0 --unit_dropout 0 --sent_drop_prob 0"
    options += " --last_char_drop_prob 0 --augment_final_punct_prob 0"
    tokenizer.main([*options.split(), *_arguments(files)])


def _arguments(values):
    return [argument for name, value in values.items() for argument in (f"--{name}", str(value))]


def _tagger_and_parser(root):
    from stanza.models import parser, tagger

    (root / "trees.conllu").write_text(CONLLU)
    trees = root / "trees.conllu"
    files = {"train_file": trees, "eval_file": trees, "output_file": root / "out.conllu"}
    options = "--no_pretrain --no_char --eval_interval 20 --max_steps 20 --word_cutoff 0 --shorthand en_tiny"
    common = [*f"{options} --lang en --save_name tiny.pt --device cpu {SMALL}".split(), *_arguments(files)]
    tagger.main([*common, "--save_dir", str(root / "en" / "pos"), "--augment_nopunct", "0.0"])
    parser.main([*common, "--save_dir", str(root / "en" / "depparse")])


def _constituency(root):
    from stanza.models import constituency_parser
    from stanza.models.common.foundation_cache import FoundationCache
    from stanza.models.common.pretrain import Pretrain
    from stanza.models.constituency import parser_training, tree_reader

    vectors = root / "en" / "pretrain" / "tiny.pt"
    (root / "vectors.txt").write_text("2 3\nthe 1 2 3\ndog 1 2 1\n")
    Pretrain(str(vectors), str(root / "vectors.txt")).load()
    options = "--hidden_size 16 --transition_hidden_size 8 --transition_embedding_dim 8 --tag_embedding_dim 8"
    options += " --delta_embedding_dim 8 --lattn_d_proj 0 --pattn_num_layers 0 --num_lstm_layers 1"
    target = root / "en" / "constituency"
    files = {"wordvec_pretrain_file": vectors, "save_dir": target}
    options += " --device cpu --save_name tiny.pt"
    arguments = constituency_parser.parse_args([*options.split(), *_arguments(files)])
    trees = tree_reader.read_trees(TREES)
    trainer, *_ = parser_training.build_trainer(arguments, trees, trees, [], FoundationCache(), None)
    trainer.save(str(target / "tiny.pt"), save_optimizer=False)
