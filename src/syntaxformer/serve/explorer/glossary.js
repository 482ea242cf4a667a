// Says in words what tags, relations, phrases and factors mean: for tips, for the list below a view, and for screen readers.

import { element } from "./dom.js";

/** Parts of speech of Universal Dependencies. */
const TAGS = {
  ADJ: "adjective", ADP: "preposition or postposition", ADV: "adverb", AUX: "auxiliary verb, such as “has” or “will”",
  CCONJ: "coordinating conjunction, such as “and”", DET: "determiner, such as “the” or “this”", INTJ: "interjection, such as “oh”",
  NOUN: "noun", NUM: "number", PART: "particle, such as “not” or the “to” of “to go”", PRON: "pronoun", PROPN: "proper noun: a name",
  PUNCT: "punctuation", SCONJ: "subordinating conjunction, such as “whether”", SYM: "symbol, such as “$”", VERB: "verb",
  X: "other, such as a foreign word", SPACE: "white space",
};

/** Relations of Universal Dependencies: what a word is to the word that it depends on. */
const RELATIONS = {
  acl: "clause that describes a noun", advcl: "adverbial clause", advmod: "adverb that modifies it", amod: "adjective that describes it",
  appos: "apposition: another name for it", aux: "auxiliary verb", case: "case marker or preposition", cc: "coordinating conjunction",
  ccomp: "clause with its own subject, as an object", clf: "classifier", compound: "part of a compound", conj: "member of a coordination",
  cop: "copula, such as “is”", csubj: "clause that is the subject", dep: "some dependent", det: "determiner", discourse: "discourse word, such as “well”",
  dislocated: "dislocated part", expl: "expletive, such as the “it” of “it rains”", fixed: "part of a fixed phrase", flat: "part of a name",
  goeswith: "rest of a word that was split", iobj: "indirect object", list: "member of a list", mark: "word that opens a clause, such as “that”",
  nmod: "noun phrase that modifies a noun", nsubj: "subject", nummod: "number that counts it", obj: "object",
  obl: "noun phrase that modifies a verb or adjective", orphan: "what is left of an ellipsis", parataxis: "loosely joined clause", punct: "punctuation",
  reparandum: "part that the speaker takes back", root: "it depends on no other word", vocative: "person who is spoken to",
  xcomp: "complement whose subject stands elsewhere",
};
/** What comes after the colon of a relation, such as in `nsubj:pass`. */
const SUBTYPES = {
  agent: "the agent of a passive", arg: "an argument", cleft: "of a cleft sentence", desc: "descriptive", foreign: "foreign", impers: "impersonal",
  lmod: "of place", lvc: "light verb", name: "of a name", npmod: "a noun phrase", outer: "of an outer clause", pass: "of a passive",
  poss: "possessive", preconj: "before the first member", predet: "before the determiner", prt: "particle of a verb", pv: "separable part of a verb",
  redup: "doubled", relcl: "relative clause", svc: "serial verbs", tmod: "of time", unmarked: "without a preposition",
};

/** Phrases of the Penn Treebank. */
const PHRASES = {
  ADJP: "adjective phrase", ADVP: "adverb phrase", CONJP: "conjunction phrase", FRAG: "fragment", INTJ: "interjection", LST: "list marker", NAC: "part that is not a phrase",
  NP: "noun phrase", NX: "head of a complex noun phrase", PP: "prepositional phrase", PRN: "parenthesis", PRT: "particle of a verb", QP: "quantity", ROOT: "root",
  RRC: "reduced relative clause", S: "clause", SBAR: "subordinate clause", SBARQ: "question with a question word", SINV: "clause with subject and verb inverted", SQ: "yes-no question",
  TOP: "root", UCP: "unlike parts, coordinated", VP: "verb phrase", WHADJP: "adjective phrase with a question word", WHADVP: "adverb phrase with a question word",
  WHNP: "noun phrase with a question word", WHPP: "prepositional phrase with a question word", X: "unknown",
};

/** Where a piece stands in its word. */
const PLACES = { B: "beginning of a word", M: "middle of a word", E: "end of a word", O: "a whole word" };

const FACTORS = {
  pos: "part of speech of the word", case: "whether the word begins with a capital letter", subword: "where the piece stands in its word: B, M, E, or O for a whole word",
  predicate: "whether the word is a verb or a root", deprel: "relation of the word to the one it depends on", depth: "steps from the word up to its root",
  lemma: "dictionary form of the word", feats: "grammatical features of the word, such as its case and number",
  term: "whether the word has a given translation or is one",
};
const VALUES = {
  pos: (value) => TAGS[value], subword: (value) => PLACES[value], deprel: (value) => inWords("relation", value),
  case: (value) => ({
    0: "no capital letter", 1: "begins with a capital letter", lower: "small letters", capital: "begins with a capital letter",
    upper: "capital letters", mixed: "small and capital letters",
  })[value],
  term: (value) => ({ source: "no term", source_term: "a term with a given translation", target_term: "a given translation" })[value],
  predicate: (value) => ({ 0: "neither a verb nor a root", 1: "a verb or a root" })[value],
  depth: (value) => (value === "0" ? "the root" : `${value.replace("15+", "15 or more")} ${value === "1" ? "step" : "steps"} below the root`),
};

const far = (steps) => (steps === "1" ? "one step" : `${steps} steps`);
const KINDS = {
  parent: (steps) => `${far(steps)} above the other word in the tree`,
  child: (steps) => `${far(steps)} below the other word in the tree`,
  sibling: (steps) => `in another branch of the tree, ${far(steps)} away`,
};
const lookUp = (table) => (name) => (Object.hasOwn(table, name) ? table[name] : undefined);
const MEANINGS = {
  tag: lookUp(TAGS), phrase: (name) => lookUp(PHRASES)(name) ?? lookUp(TAGS)(name), place: lookUp(PLACES), factor: lookUp(FACTORS),
  relation: (name) => {
    const [main, sub] = name.toLowerCase().split(":");
    const known = lookUp(RELATIONS)(main);
    return known && sub ? `${known} (${lookUp(SUBTYPES)(sub) ?? sub})` : known;
  },
  kind: (name) => {
    if (name === "pair") return "in the other sentence";
    const [kind, steps] = name.split(" ");
    return lookUp(KINDS)(kind)?.(steps);
  },
  network: (name) => {
    if (name === "full") return "Attends to all pieces, as without masks.";
    const [, tree, kind] = /^(\w+) (.*)$/.exec(name) ?? [];
    const meant = tree && inWords("kind", kind);
    return meant && `Attends to pieces only if the word that looks is ${meant.replace("the tree", `the ${tree} tree`)}.`;
  },
};

/** What a name of a kind (tag, relation, phrase, place, factor, kind, network) means; undefined for names of the user's own. */
export const inWords = (kind, name) => MEANINGS[kind](name);

/** What a value of a factor means. */
export const valueInWords = (factor, value) => (Object.hasOwn(VALUES, factor) ? VALUES[factor](value) : undefined);

/** A closed list of names with their meaning, each once, as they come; nothing if none has a meaning. */
export function legend(entries) {
  const meanings = new Map(entries.filter(([name, meaning]) => name && meaning));
  if (!meanings.size) return null;
  const rows = [...meanings].map(([name, meaning]) =>
    element("div", {}, element("dt", {}, name), element("dd", {}, meaning)));
  return element("details", { class: "legend" }, element("summary", {}, "What the labels mean"), element("dl", {}, rows));
}
