from hypothesis import given
from hypothesis import strategies as st

from syntaxformer.trees import Sentence, depths_of, format_conllu, format_tree, parse_conllu, parse_tree
from syntaxformer.trees.constituency import Tree

# Characters that a line of a text file can hold.
CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\0")
VALUES = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\0\t"), min_size=1, max_size=5
)


@st.composite
def sentences(draw):
    text = draw(st.text(CHARACTERS, max_size=30))
    words = tuple(draw(st.lists(VALUES, max_size=7)))
    position = st.integers(0, len(text))
    offsets = tuple(tuple(sorted(draw(st.tuples(position, position)))) for _ in words)

    def column():
        values = st.tuples(*[VALUES for _ in words])
        # A column of nothing but "_" is CoNLL-U for "no value".
        return draw(st.none() | values.filter(lambda column: any(value != "_" for value in column)))

    order = draw(st.permutations(range(len(words))))
    governors = [-1] * len(words)
    for rank, word in enumerate(order[1:], 1):
        governors[word] = draw(st.sampled_from([-1, *order[:rank]]))
    return Sentence(
        text,
        words,
        offsets,
        upos=column(),
        xpos=column(),
        lemmas=column(),
        deprels=column(),
        governors=tuple(governors) if words and draw(st.booleans()) else None,
    )


@st.composite
def plain_sentences(draw):
    """Words that stand in the text one after the other, some of them grouped as multiword tokens."""
    blank_free = st.text(st.characters(categories=["L", "N", "P", "S", "Cf"]), min_size=1, max_size=6)
    tokens = draw(st.lists(st.tuples(blank_free, st.sampled_from(["", " ", "  ", "\u00a0"])), max_size=7))
    text, words, offsets = "", [], []
    for token, gap in tokens:
        start, text = len(text), text + token
        parts = draw(st.sampled_from([[token], ["teil", token]]))
        words += parts
        offsets += [(start, len(text))] * len(parts)
        text += gap
    return Sentence(text, tuple(words), tuple(offsets))


def read_back(sentence):
    (again,) = parse_conllu(format_conllu(sentence).split("\n"))
    return again


@given(sentences())
def test_any_sentence_survives(sentence):
    assert read_back(sentence) == sentence


@given(plain_sentences())
def test_words_in_the_order_of_the_text_need_no_ranges(sentence):
    assert read_back(sentence) == sentence
    assert "TextRange" not in format_conllu(sentence)


@given(sentences())
def test_a_governor_is_one_edge_nearer_to_the_root(sentence):
    depths = depths_of(sentence.governors or ())
    for word, governor in enumerate(sentence.governors or ()):
        assert depths[word] == (0 if governor == -1 else depths[governor] + 1)


LABELS = st.sampled_from(["S", "NP-SBJ", "-NONE-", "3", "-LRB-"])
WORDS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters=" \t\r\n\0-"), min_size=1, max_size=4
)
TREES = st.recursive(
    st.builds(lambda label, word: Tree(label, (word,)), LABELS, WORDS),
    lambda trees: st.builds(
        lambda label, children: Tree(label, tuple(children)),
        LABELS,
        st.lists(trees | WORDS, min_size=1, max_size=3),
    ),
)


@given(TREES)
def test_a_constituency_tree_survives(tree):
    assert parse_tree(format_tree(tree)) == tree
