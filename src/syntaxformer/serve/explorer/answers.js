// What each model says: its translation, or its label with the probabilities.

import { element } from "./dom.js";
import { inWords } from "./glossary.js";
import { resultOf } from "./history.js";
import { label } from "./tips.js";

/** For each word of `words`, whether it is in the longest common subsequence with `others`. */
function shared(words, others) {
  const [n, m] = [words.length, others.length];
  const best = Array.from({ length: n + 1 }, () => new Uint16Array(m + 1));
  for (let i = n - 1; i >= 0; i--) {
    for (let j = m - 1; j >= 0; j--) {
      best[i][j] = words[i] === others[j] ? best[i + 1][j + 1] + 1 : Math.max(best[i + 1][j], best[i][j + 1]);
    }
  }
  const found = new Array(n).fill(false);
  for (let i = 0, j = 0; i < n && j < m; ) {
    if (words[i] === others[j]) { found[i] = true; i++; j++; }
    else if (best[i + 1][j] >= best[i][j + 1]) i++;
    else j++;
  }
  return found;
}

function translation(text, other) {
  if (!text) return element("p", { class: "output muted" }, "(empty)");
  if (other === undefined) return element("p", { class: "output" }, text);
  const words = text.split(" ");
  const same = shared(words, other.split(" "));
  const parts = words.flatMap((word, place) => [same[place] ? word : element("mark", {}, word), " "]);
  return element("p", { class: "output" }, parts);
}

/** Tags above their words; or the second text with the answer to the first marked in it. */
function parts(found, sentences) {
  const item = (one) => element("li", {}, label("span", { class: "tag" }, one.entity, inWords("tag", one.entity)), element("span", { class: "word" }, one.word));
  if (found.tags) return element("ol", { class: "words" }, found.tags.map(item));
  const { answer, start, end } = found.answer;
  const letters = [...sentences[1].text]; // places count characters, of which strings here may have two units
  return element("p", { class: "output" }, answer ? [letters.slice(0, start).join(""), element("mark", {}, answer), letters.slice(end).join("")] : "The text does not answer this.");
}

function classification(found, sentences) {
  if (found.tags ?? found.answer) return parts(found, sentences);
  if (!found.probabilities) return element("p", { class: "output" }, found.label ?? found.score?.toFixed(3) ?? resultOf({ classification: found }));
  const bars = Object.entries(found.probabilities).sort((x, y) => y[1] - x[1]).map(([name, value]) => [
    element("dt", { class: name === found.label || found.labels?.includes(name) ? "chosen" : "" }, name),
    element("dd", {},
      element("span", { class: "bar", style: { "--share": value }, "aria-hidden": "true" }),
      element("span", { class: "number" }, `${(100 * value).toFixed(1)} %`)),
  ]);
  return element("dl", { class: "bars" }, bars);
}

/** The direction, "de → en"; empty for a classifier. */
export const directionOf = (model) => [model.source_language, model.target_language].filter(Boolean).join(" → ");

function about(model) {
  const factors = model.factors?.length ? `factors ${model.factors.join(", ")}` : null;
  return [model.task, directionOf(model) || null, model.backend, factors].filter(Boolean).join(" · ");
}

/** One card for each side; `sides` are {model, answer, error}. */
export function answerCards(sides) {
  return sides.map((side, place) => {
    const other = sides[1 - place]?.answer?.translation;
    const { answer, error } = side;
    const body = error ? element("p", { class: "error", role: "alert" }, error)
      : !answer ? element("p", { class: "output muted" }, "…")
      : answer.classification ? classification(answer.classification, answer.sentences) : translation(answer.translation, other);
    // Sub-networks are rare: that a model has none is no news.
    const missing = Object.entries(answer?.missing ?? {}).filter(([name]) => name !== "networks");
    return element("article", { class: "card", "aria-label": side.model.name },
      element("h2", {}, side.model.name), element("p", { class: "muted small" }, about(side.model)), body,
      missing.map(([name, why]) => element("p", { class: "muted small" }, `No ${name}: ${why}`)));
  });
}
