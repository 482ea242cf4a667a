// What the page shows before anything is asked: what it is for, and three examples that fit the model.

import { element } from "./dom.js";
import { linkOf } from "./permalink.js";

/** Three sentences in each language: one to align, one with two readings, one with a clause inside another. */
const SENTENCES = {
  en: ["He asked me whether I had seen his car.", "I saw the man with the telescope.", "The cats that the dog chased were hungry."],
  de: ["Er fragte mich, ob ich sein Auto gesehen hätte.", "Ich sah den Mann mit dem Fernrohr.", "Die Katzen, die der Hund jagte, waren hungrig."],
  fr: ["Il m’a demandé si j’avais vu sa voiture.", "J’ai vu l’homme avec le télescope.", "Les chats que le chien poursuivait avaient faim."],
  es: ["Me preguntó si había visto su coche.", "Vi al hombre con el telescopio.", "Los gatos que el perro perseguía tenían hambre."],
  it: ["Mi ha chiesto se avevo visto la sua macchina.", "Ho visto l’uomo con il telescopio.", "I gatti che il cane inseguiva avevano fame."],
  nl: ["Hij vroeg me of ik zijn auto had gezien.", "Ik zag de man met de telescoop.", "De katten die de hond achternazat, hadden honger."],
  cs: ["Zeptal se mě, jestli jsem viděl jeho auto.", "Viděl jsem muže s dalekohledem.", "Kočky, které pes honil, měly hlad."],
};
const PAIRS = [
  ["Two dogs play in the snow.", "Animals are outside."], ["I saw the man with the telescope.", "The man had a telescope."],
  ["The cats that the dog chased were hungry.", "The dog was hungry."],
];
const VIEWS = ["attention", "dependencies", "relations"];
const CAPTIONS = {
  translation: ["Where each word of the translation looks", "Who has the telescope? The parser’s tree", "How each word is related to each other word"],
  classification: ["What each piece looks at", "Who has the telescope? The parser’s tree", "How each word is related to each other word"],
};

/** What an empty text field shows. */
export const placeholderOf = (model) => (model.n_texts === 2 ? PAIRS[0][0] : SENTENCES[model.source_language ?? "en"]?.[1] ?? "");

/** The language's English name, such as "German"; the code where there is none. */
function nameOf(code) {
  try { return new Intl.DisplayNames("en", { type: "language" }).of(code); } catch { return code; }
}

/** One sentence that says what the page shows of a model. */
export function leadOf(model) {
  const does = model.task === "translation" ? "translates" : model.n_texts === 2 ? "compares two texts" : "classifies a text";
  return `See how a model ${does}: the words and their grammar, the pieces that it reads, and what each piece looks at.`;
}

/** Three examples for a model, as links into the page. */
export function examplesFor(state, model) {
  const code = model.source_language ?? "en";
  const texts = model.n_texts === 2 ? PAIRS : (SENTENCES[code] ?? []).map((text) => [text, ""]);
  const example = ([text, second], place) => {
    const href = linkOf({ ...state, text, second, view: model.n_layers || place ? VIEWS[place] : "words" });
    return element("li", {}, element("a", { class: "example", href, "data-inside": true },
      element("span", { class: "quote" }, text), second ? element("span", { class: "quote" }, second) : null,
      element("span", { class: "muted small" }, CAPTIONS[model.task][place])));
  };
  return [
    texts.length ? element("h2", { class: "small muted" }, "Try one of these, or write your own above") : element("p", { class: "muted" }, `Write a sentence in ${nameOf(code)} above.`),
    texts.length ? element("ul", { class: "examples" }, texts.map(example)) : null,
  ].filter(Boolean);
}
