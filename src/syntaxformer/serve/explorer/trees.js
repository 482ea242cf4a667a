// Draws a dependency tree as arcs, and a tree of phrases, as SVG.

import { drawn, picture, widthOf } from "./dom.js";
import { inWords } from "./glossary.js";
import { drawnLabel } from "./tips.js";

const FONT = "15px system-ui, sans-serif";
const SMALL = "12px system-ui, sans-serif";

/** The x coordinate of the middle of each word, and the total width. */
function layOut(words, others, gap) {
  let x = 14;
  const middles = words.map((word, place) => {
    const wide = Math.max(widthOf(word, FONT), widthOf(others[place] ?? "", SMALL), 18);
    const middle = x + wide / 2;
    x += wide + gap;
    return middle;
  });
  return { middles, width: Math.ceil(x - gap + 14) };
}

/** The height of each arc, above all arcs that it spans. */
function levelsOf(arcs) {
  const order = [...arcs].sort((x, y) => x.right - x.left - (y.right - y.left));
  for (const arc of order) {
    const inside = order.filter((one) => one !== arc && one.level && one.left >= arc.left && one.right <= arc.right);
    arc.level = 1 + Math.max(0, ...inside.map((one) => one.level));
  }
  return Math.max(1, ...arcs.map((arc) => arc.level));
}

export function arcs(sentence) {
  const { words, governors, deprels, upos } = sentence;
  const { middles, width } = layOut(words, upos ?? [], 22);
  const found = governors.flatMap((governor, word) => (governor < 0 ? [] : [{ governor, word, left: Math.min(governor, word), right: Math.max(governor, word) }]));
  const step = 30;
  const base = 26 + step * (levelsOf(found) + 0.6);
  const lines = found.map(({ governor, word, level }) => {
    const from = middles[governor] + (word > governor ? 5 : -5);
    const to = middles[word];
    const high = base - step * level;
    const bend = high - (base - high) / 3;
    return drawn("g", { class: "arc" },
      drawn("path", { d: `M${from} ${base}C${from} ${bend} ${to} ${bend} ${to} ${base - 5}` }),
      drawn("path", { class: "tip", d: `M${to - 4} ${base - 7}L${to + 4} ${base - 7}L${to} ${base}Z` }),
      drawnLabel({ x: (from + to) / 2, y: high + 4, "text-anchor": "middle" }, deprels?.[word] ?? "", inWords("relation", deprels?.[word] ?? "")));
  });
  const roots = governors.flatMap((governor, word) => governor >= 0 ? [] : [
    drawn("g", { class: "arc root" },
      drawn("path", { d: `M${middles[word]} 22V${base - 5}` }),
      drawn("path", { class: "tip", d: `M${middles[word] - 4} ${base - 7}L${middles[word] + 4} ${base - 7}L${middles[word]} ${base}Z` }),
      drawnLabel({ x: middles[word], y: 16, "text-anchor": "middle" }, "root", inWords("relation", "root"))),
  ]);
  const names = words.map((word, place) => drawn("g", {},
    drawn("text", { x: middles[place], y: base + 20, "text-anchor": "middle", class: "word" }, word),
    drawnLabel({ x: middles[place], y: base + 37, "text-anchor": "middle", class: "tag" }, upos?.[place] ?? "", inWords("tag", upos?.[place] ?? ""))));
  const told = words.map((word, place) => governors[place] < 0 ? `${word} is a root` : `${word} is ${deprels?.[place] ?? "below"} of ${words[governors[place]]}`);
  return picture(width, base + 48, `Dependency tree: ${told.join(", ")}`, roots, lines, names);
}

/** Give each phrase its children and its height above the words; parents come first. */
function nest(phrases, nWords) {
  const words = Array.from({ length: nWords }, (_, place) => ({ word: place, children: [], level: 0 }));
  const nodes = phrases.map(([label, start, end]) => ({ label, start, end, children: [] }));
  const open = [];
  const tops = [];
  for (const node of nodes) {
    while (open.length && open.at(-1).end <= node.start) open.pop();
    (open.at(-1)?.children ?? tops).push(node);
    open.push(node);
  }
  for (const node of [...nodes].reverse()) {
    const covered = new Set(node.children.flatMap((child) => Array.from({ length: child.end - child.start }, (_, k) => child.start + k)));
    for (let place = node.start; place < node.end; place++) if (!covered.has(place)) node.children.push(words[place]);
    node.children.sort((x, y) => (x.start ?? x.word) - (y.start ?? y.word));
    node.level = 1 + Math.max(...node.children.map((child) => child.level));
  }
  return { nodes, words, tops };
}

export function phraseTree(sentence) {
  const tags = sentence.phrases.filter(([, start, end]) => end - start === 1);
  const wide = sentence.words.map((_, place) => tags.find(([, start]) => start === place)?.[0] ?? "");
  const { middles, width } = layOut(sentence.words, wide, 18);
  const { nodes, words } = nest(sentence.phrases, sentence.words.length);
  const step = 40;
  const highest = Math.max(0, ...nodes.map((node) => node.level));
  const y = (level) => 22 + step * (highest - level);
  words.forEach((word) => { word.x = middles[word.word]; });
  for (const node of [...nodes].reverse()) node.x = (node.children[0].x + node.children.at(-1).x) / 2;
  const lines = nodes.flatMap((node) => node.children.map((child) => drawn("path", { class: "branch", d: `M${node.x} ${y(node.level) + 6}V${y(node.level) + 13}H${child.x}V${y(child.level) - 14}` })));
  const names = nodes.map((node) => drawnLabel({ x: node.x, y: y(node.level), "text-anchor": "middle", class: node.end - node.start > 1 ? "phrase" : "tag" }, node.label || "·", inWords("phrase", node.label)));
  const leaves = words.map((word) => drawn("text", { x: word.x, y: y(0), "text-anchor": "middle", class: "word" }, sentence.words[word.word]));
  return picture(width, y(0) + 14, `Phrases: ${sentence.constituency}`, lines, names, leaves);
}
