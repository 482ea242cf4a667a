"""Trees derived by hand from parses by hand; `word/TAG/governor/relation`, governors from 1, 0 for a root."""

import pytest

from syntaxformer.base.errors import TreeError
from syntaxformer.trees import (
    Sentence,
    format_tree,
    leaves_of,
    phrase_structure,
    spans_of,
    tags_of,
)


def sentence(text):
    rows = [item.rsplit("/", 3) for item in text.split()]
    words, upos, governors, deprels = zip(*rows, strict=True)
    return Sentence.from_words(
        words, upos=upos, governors=tuple(int(governor) - 1 for governor in governors), deprels=deprels
    )


CONSTRUCTIONS = """\
# subject and verb
Dogs/NOUN/2/nsubj bark/VERB/0/root ./PUNCT/2/punct
(S (NP (NOUN Dogs)) (VP (VERB bark)) (PUNCT .))
# base noun phrase with an adjective phrase
a/DET/4/det very/ADV/3/advmod old/ADJ/4/amod dog/NOUN/5/nsubj barks/VERB/0/root
(S (NP (DET a) (ADJP (ADV very) (ADJ old)) (NOUN dog)) (VP (VERB barks)))
# two objects and a preposition
He/PRON/2/nsubj gave/VERB/0/root her/PRON/2/iobj a/DET/5/det ring/NOUN/2/obj in/ADP/7/case Rome/PROPN/2/obl
(S (NP (PRON He)) (VP (VERB gave) (NP (PRON her)) (NP (DET a) (NOUN ring)) (PP (ADP in) (NP (PROPN Rome)))))
# post-modifiers stand around the base noun phrase
the/DET/2/det end/NOUN/0/root of/ADP/5/case the/DET/5/det day/NOUN/2/nmod
(NP (NP (DET the) (NOUN end)) (PP (ADP of) (NP (DET the) (NOUN day))))
# possessive
the/DET/2/det king/NOUN/4/nmod:poss 's/PART/2/case dog/NOUN/0/root
(NP (NP (DET the) (NOUN king) (PART 's)) (NOUN dog))
# compounds and names are flat
New/PROPN/2/compound York/PROPN/3/compound police/NOUN/4/nsubj met/VERB/0/root Mary/PROPN/4/obj Ann/PROPN/5/flat Lee/PROPN/5/flat
(S (NP (PROPN New) (PROPN York) (NOUN police)) (VP (VERB met) (NP (PROPN Mary) (PROPN Ann) (PROPN Lee))))
# every auxiliary is a verb phrase
It/PRON/5/nsubj:pass has/AUX/5/aux probably/ADV/5/advmod been/AUX/5/aux:pass sold/VERB/0/root
(S (NP (PRON It)) (VP (AUX has) (ADVP (ADV probably)) (VP (AUX been) (VP (VERB sold)))))
# adverb before the verb
He/PRON/3/nsubj often/ADV/3/advmod sings/VERB/0/root
(S (NP (PRON He)) (ADVP (ADV often)) (VP (VERB sings)))
# adjective as predicate
She/PRON/4/nsubj is/AUX/4/cop very/ADV/4/advmod fond/ADJ/0/root of/ADP/6/case it/PRON/4/obl
(S (NP (PRON She)) (VP (AUX is) (ADJP (ADV very) (ADJ fond) (PP (ADP of) (NP (PRON it))))))
# noun as predicate
She/PRON/6/nsubj is/AUX/6/cop not/PART/6/advmod still/ADV/6/advmod a/DET/6/det child/NOUN/0/root
(S (NP (PRON She)) (VP (AUX is) (PART not) (ADVP (ADV still)) (NP (DET a) (NOUN child))))
# prepositional phrase as predicate
He/PRON/4/nsubj is/AUX/4/cop in/ADP/4/case Rome/PROPN/0/root
(S (NP (PRON He)) (VP (AUX is) (PP (ADP in) (NP (PROPN Rome)))))
# infinitive
He/PRON/2/nsubj wants/VERB/0/root to/PART/4/mark go/VERB/2/xcomp
(S (NP (PRON He)) (VP (VERB wants) (S (VP (PART to) (VP (VERB go))))))
# object and what is said of it
Let/VERB/0/root it/PRON/1/obj go/VERB/1/xcomp
(S (VP (VERB Let) (S (NP (PRON it)) (VP (VERB go)))))
# complement clause
I/PRON/2/nsubj know/VERB/0/root that/SCONJ/5/mark he/PRON/5/nsubj lied/VERB/2/ccomp
(S (NP (PRON I)) (VP (VERB know) (SBAR (SCONJ that) (S (NP (PRON he)) (VP (VERB lied))))))
# adverbial clause in front
If/SCONJ/3/mark it/PRON/3/nsubj rains/VERB/6/advcl ,/PUNCT/3/punct we/PRON/6/nsubj stay/VERB/0/root
(S (SBAR (SCONJ If) (S (NP (PRON it)) (VP (VERB rains)))) (PUNCT ,) (NP (PRON we)) (VP (VERB stay)))
# relative clause, subject
men/NOUN/0/root who/PRON/3/nsubj sing/VERB/1/acl:relcl
(NP (NP (NOUN men)) (SBAR (WHNP (PRON who)) (S (VP (VERB sing)))))
# relative clause, preposition
men/NOUN/0/root to/ADP/3/case whom/PRON/5/obl I/PRON/5/nsubj spoke/VERB/1/acl:relcl
(NP (NP (NOUN men)) (SBAR (WHPP (ADP to) (NP (PRON whom))) (S (NP (PRON I)) (VP (VERB spoke)))))
# question
What/PRON/4/obj did/AUX/4/aux he/PRON/4/nsubj buy/VERB/0/root ?/PUNCT/4/punct
(SBARQ (WHNP (PRON What)) (S (AUX did) (NP (PRON he)) (VP (VERB buy))) (PUNCT ?))
# bare nouns in a list are flat
the/DET/2/det men/NOUN/0/root ,/PUNCT/4/punct women/NOUN/2/conj and/CCONJ/6/cc dogs/NOUN/2/conj
(NP (DET the) (NOUN men) (PUNCT ,) (NOUN women) (CCONJ and) (NOUN dogs))
# noun phrases in a list are not
men/NOUN/0/root ,/PUNCT/3/punct women/NOUN/1/conj and/CCONJ/6/cc a/DET/6/det dog/NOUN/1/conj
(NP (NP (NOUN men)) (PUNCT ,) (NP (NOUN women)) (CCONJ and) (NP (DET a) (NOUN dog)))
# prepositional phrases in a list
in/ADP/2/case Rome/PROPN/0/root or/CCONJ/5/cc in/ADP/5/case Bonn/PROPN/2/conj
(PP (PP (ADP in) (NP (PROPN Rome))) (CCONJ or) (PP (ADP in) (NP (PROPN Bonn))))
# verb phrases share a subject
He/PRON/2/nsubj came/VERB/0/root and/CCONJ/4/cc saw/VERB/2/conj it/PRON/4/obj
(S (NP (PRON He)) (VP (VP (VERB came)) (CCONJ and) (VP (VERB saw) (NP (PRON it)))))
# verb phrases share an auxiliary
It/PRON/3/nsubj:pass was/AUX/3/aux:pass made/VERB/0/root and/CCONJ/5/cc sold/VERB/3/conj
(S (NP (PRON It)) (VP (AUX was) (VP (VP (VERB made)) (CCONJ and) (VP (VERB sold)))))
# clauses in a list
He/PRON/2/nsubj came/VERB/0/root ,/PUNCT/6/punct but/CCONJ/6/cc she/PRON/6/nsubj left/VERB/2/conj ./PUNCT/2/punct
(S (S (NP (PRON He)) (VP (VERB came))) (PUNCT ,) (CCONJ but) (S (NP (PRON she)) (VP (VERB left))) (PUNCT .))
# a conjunction in front
But/CCONJ/3/cc he/PRON/3/nsubj left/VERB/0/root
(S (CCONJ But) (NP (PRON he)) (VP (VERB left)))
# apposition keeps its commas
Ann/PROPN/6/nsubj ,/PUNCT/4/punct a/DET/4/det nurse/NOUN/1/appos ,/PUNCT/4/punct left/VERB/0/root
(S (NP (NP (PROPN Ann)) (PUNCT ,) (NP (DET a) (NOUN nurse)) (PUNCT ,)) (VP (VERB left)))
# brackets
Ann/PROPN/5/nsubj (/PUNCT/3/punct left/ADJ/1/appos )/PUNCT/3/punct waved/VERB/0/root
(S (NP (NP (PROPN Ann)) (PRN (PUNCT -LRB-) (ADJP (ADJ left)) (PUNCT -RRB-))) (VP (VERB waved)))
# he said
Dogs/NOUN/6/nsubj ,/PUNCT/4/punct he/PRON/4/nsubj said/VERB/6/parataxis ,/PUNCT/4/punct bark/VERB/0/root
(S (NP (NOUN Dogs)) (PRN (PUNCT ,) (S (NP (PRON he)) (VP (VERB said))) (PUNCT ,)) (VP (VERB bark)))
# quotes that the tagger does not know
``/NOUN/3/nsubj He/PRON/3/nsubj left/VERB/6/ccomp ''/PUNCT/3/punct she/PRON/6/nsubj said/VERB/0/root
(S (NOUN ``) (S (NP (PRON He)) (VP (VERB left))) (PUNCT '') (NP (PRON she)) (VP (VERB said)))
# fixed preposition
because/ADP/3/case of/ADP/1/fixed rain/NOUN/0/root
(PP (ADP because) (ADP of) (NP (NOUN rain)))
# preposition that governs another
according/VERB/3/case to/ADP/1/fixed Ann/PROPN/0/root
(PP (VERB according) (PP (ADP to) (NP (PROPN Ann))))
# numbers
over/ADV/3/advmod 9/NUM/3/compound million/NUM/4/nummod men/NOUN/0/root
(NP (QP (ADV over) (NUM 9) (NUM million)) (NOUN men))
# money
a/DET/5/det $/SYM/5/compound 9/NUM/4/compound million/NUM/2/nummod loan/NOUN/0/root
(NP (DET a) (QP (SYM $) (NUM 9) (NUM million)) (NOUN loan))
# particle
He/PRON/2/nsubj gave/VERB/0/root up/ADP/2/compound:prt
(S (NP (PRON He)) (VP (VERB gave) (PRT (ADP up))))
# several roots
Come/VERB/0/root ./PUNCT/1/punct Dogs/NOUN/4/nsubj bark/VERB/0/root !/PUNCT/4/punct
(S (S (VP (VERB Come)) (PUNCT .)) (S (NP (NOUN Dogs)) (VP (VERB bark)) (PUNCT !)))
# German, verb last
dass/SCONJ/5/mark er/PRON/5/nsubj das/DET/4/det Buch/NOUN/5/obj gelesen/VERB/0/root hat/AUX/5/aux
(SBAR (SCONJ dass) (S (NP (PRON er)) (VP (VP (NP (DET das) (NOUN Buch)) (VERB gelesen)) (AUX hat))))
# German, verb second with a bracket
Er/PRON/5/nsubj hat/AUX/5/aux das/DET/4/det Buch/NOUN/5/obj gelesen/VERB/0/root
(S (NP (PRON Er)) (VP (AUX hat) (VP (NP (DET das) (NOUN Buch)) (VERB gelesen))))
# words that hang across others move up
A/DET/2/det hearing/NOUN/4/nsubj is/AUX/4/aux held/VERB/0/root on/ADP/6/case it/PRON/2/nmod
(S (NP (DET A) (NOUN hearing)) (VP (AUX is) (VP (VERB held) (PP (ADP on) (NP (PRON it))))))
# a parser that hangs a word from an auxiliary
who/PRON/2/nsubj was/AUX/3/cop there/ADV/0/root
(SBARQ (WHNP (PRON who)) (S (VP (AUX was) (ADVP (ADV there)))))
# an expletive is a subject: the object follows it
weil/SCONJ/4/mark es/PRON/4/expl ihn/PRON/4/obj friert/VERB/0/root
(SBAR (SCONJ weil) (S (NP (PRON es)) (VP (NP (PRON ihn)) (VERB friert))))
# German, an adverb behind the object
dass/SCONJ/6/mark er/PRON/6/nsubj das/DET/4/det Buch/NOUN/6/obj gestern/ADV/6/advmod las/VERB/0/root
(SBAR (SCONJ dass) (S (NP (PRON er)) (VP (NP (DET das) (NOUN Buch)) (ADVP (ADV gestern)) (VERB las))))
# German, auxiliaries on both sides
Er/PRON/3/nsubj wird/AUX/3/aux gelesen/VERB/0/root haben/AUX/3/aux
(S (NP (PRON Er)) (VP (AUX wird) (VP (VP (VERB gelesen)) (AUX haben))))
# German, question
Wen/PRON/4/obj hast/AUX/4/aux du/PRON/4/nsubj gesehen/VERB/0/root ?/PUNCT/4/punct
(SBARQ (WHNP (PRON Wen)) (S (AUX hast) (NP (PRON du)) (VP (VERB gesehen))) (PUNCT ?))
# German, relative clause
das/DET/2/det Buch/NOUN/0/root ,/PUNCT/6/punct das/PRON/6/obj er/PRON/6/nsubj las/VERB/2/acl:relcl
(NP (NP (DET das) (NOUN Buch)) (PUNCT ,) (SBAR (WHNP (PRON das)) (S (NP (PRON er)) (VP (VERB las)))))
# German, the same word is no question elsewhere
Das/PRON/2/obj weiß/VERB/0/root er/PRON/2/nsubj
(S (NP (PRON Das)) (VP (VERB weiß)) (NP (PRON er)))
# relative clause, object
books/NOUN/0/root that/PRON/4/obj he/PRON/4/nsubj read/VERB/1/acl:relcl
(NP (NP (NOUN books)) (SBAR (WHNP (PRON that)) (S (NP (PRON he)) (VP (VERB read)))))
# question, adverb
Why/ADV/4/advmod did/AUX/4/aux he/PRON/4/nsubj go/VERB/0/root
(SBARQ (WHADVP (ADV Why)) (S (AUX did) (NP (PRON he)) (VP (VERB go))))
# question, adjective
How/ADV/2/advmod old/ADJ/5/xcomp did/AUX/5/aux he/PRON/5/nsubj look/VERB/0/root
(SBARQ (WHADJP (ADV How) (ADJ old)) (S (AUX did) (NP (PRON he)) (VP (VERB look))))
# a clause before what is no clause
When/SCONJ/2/mark asked/VERB/4/advcl ,/PUNCT/2/punct silent/ADJ/0/root
(FRAG (SBAR (SCONJ When) (S (VP (VERB asked)))) (PUNCT ,) (ADJP (ADJ silent)))
# an interjection before what is no clause
Well/INTJ/2/discourse silent/ADJ/0/root
(FRAG (INTJ (INTJ Well)) (ADJP (ADJ silent)))
# verb phrases with an auxiliary each
He/PRON/3/nsubj has/AUX/3/aux come/VERB/0/root and/CCONJ/6/cc will/AUX/6/aux stay/VERB/3/conj
(S (NP (PRON He)) (VP (VP (AUX has) (VP (VERB come))) (CCONJ and) (VP (AUX will) (VP (VERB stay)))))
# subordinate clauses with a conjunction each
if/SCONJ/2/mark asked/VERB/0/root or/CCONJ/5/cc if/SCONJ/5/mark forced/VERB/2/conj
(SBAR (SBAR (SCONJ if) (S (VP (VERB asked)))) (CCONJ or) (SBAR (SCONJ if) (S (VP (VERB forced)))))
# numbers alone stand in the base noun phrase
Nov./PROPN/0/root 30/NUM/1/nmod ,/PUNCT/4/punct 1989/NUM/1/nmod
(NP (PROPN Nov.) (NUM 30) (PUNCT ,) (NUM 1989))
# a predicate noun with a clause of its own
She/PRON/4/nsubj is/AUX/4/cop a/DET/4/det nurse/NOUN/0/root singing/VERB/4/acl
(S (NP (PRON She)) (VP (AUX is) (NP (NP (DET a) (NOUN nurse)) (VP (VERB singing)))))
# the first half of a conjunction
He/PRON/2/nsubj met/VERB/0/root both/CCONJ/4/cc:preconj Ann/PROPN/2/obj and/CCONJ/6/cc Tom/PROPN/4/conj
(S (NP (PRON He)) (VP (VERB met) (NP (CCONJ both) (PROPN Ann) (CCONJ and) (PROPN Tom))))
# dashes
Ann/PROPN/6/nsubj –/PUNCT/4/punct a/DET/4/det nurse/NOUN/1/appos –/PUNCT/4/punct left/VERB/0/root
(S (NP (NP (PROPN Ann)) (PRN (PUNCT –) (NP (DET a) (NOUN nurse)) (PUNCT –))) (VP (VERB left)))
# quotes close where they open
Ann/PROPN/2/nsubj said/VERB/0/root "/PUNCT/5/punct dogs/NOUN/5/nsubj bark/VERB/2/ccomp "/PUNCT/5/punct ./PUNCT/2/punct
(S (NP (PROPN Ann)) (VP (VERB said) (PUNCT ") (S (NP (NOUN dogs)) (VP (VERB bark))) (PUNCT ")) (PUNCT .))
# adjectives in a list are flat
old/ADJ/4/amod and/CCONJ/3/cc grey/ADJ/1/conj dogs/NOUN/0/root
(NP (ADJ old) (CCONJ and) (ADJ grey) (NOUN dogs))
# a title before a name
former/ADJ/2/amod king/NOUN/3/nmod:desc Charles/PROPN/0/root
(NP (ADJ former) (NOUN king) (PROPN Charles))
# fixed adverb
more/ADV/3/advmod than/ADP/1/fixed ready/ADJ/0/root
(ADJP (ADV more) (ADP than) (ADJ ready))
# adverb with a place
away/ADV/0/root from/ADP/3/case home/NOUN/1/obl
(ADVP (ADV away) (PP (ADP from) (NP (NOUN home))))
# adjective that governs a preposition
due/ADJ/3/case to/ADP/1/fixed rain/NOUN/0/root
(PP (ADJ due) (PP (ADP to) (NP (NOUN rain))))
# one word
Yes/INTJ/0/root
(INTJ (INTJ Yes))
# nothing but punctuation
./PUNCT/2/punct !/PUNCT/0/root
(FRAG (PUNCT .) (PUNCT !))
""".splitlines()


@pytest.mark.parametrize("row", range(0, len(CONSTRUCTIONS), 3), ids=CONSTRUCTIONS[::3])
def test_construction(row):
    _, parse, tree = CONSTRUCTIONS[row : row + 3]
    assert format_tree(phrase_structure(sentence(parse))) == tree


@pytest.mark.parametrize("relation", ["obj", "nmod", "conj", "aux", "flat", "acl:relcl", "punct", "case"])
@pytest.mark.parametrize("step", [-1, 1])
def test_chains_of_3000_words_need_no_recursion(relation, step):
    n_words = 3000
    governors = [word + step for word in range(n_words)]
    governors[0 if step < 0 else -1] = -1
    chain = Sentence.from_words(
        ["w"] * n_words, upos=("VERB",) * n_words, governors=tuple(governors), deprels=(relation,) * n_words
    )
    tree = phrase_structure(chain)
    assert leaves_of(tree) == chain.words
    assert tags_of(tree) == chain.upos
    assert spans_of(tree)[0][1:] == (0, n_words)


@pytest.mark.parametrize(
    ("lacking", "what"),
    [
        (Sentence.from_words(["a"], upos=("X",), governors=(-1,)), "deprels"),
        (Sentence.from_words(["a"]), "upos, governors, deprels"),
        (Sentence("", (), (), upos=(), governors=(), deprels=()), "words"),
    ],
)
def test_a_sentence_without_a_parse_is_refused(lacking, what):
    with pytest.raises(ValueError, match=rf"^phrase structure: .*without {what}\.$"):
        phrase_structure(lacking)


def test_a_cycle_is_refused_with_its_words():
    looped = Sentence.from_words(["a", "b"], upos=("X", "X"), governors=(1, 0), deprels=("dep", "dep"))
    with pytest.raises(TreeError, match=r"^governors: .*got a cycle 'a' → 'b' → 'a'\."):
        phrase_structure(looped)
