// A word in several sentences: the cosine of every two uses, and a map of them in two dimensions.

import { el, fixed, heat } from "./drawing.js";
import { colourUses, cosineTable, listUses, plane } from "./uses.js";

function readLines({ word, sentences }) { // a line may name a word of its own: "unbiased = Tom deserves ..."
  const lines = sentences.split("\n").map((line) => line.trim()).filter(Boolean);
  return lines.map((line) => {
    const own = /^(\S+)\s+=\s+(.+)$/.exec(line);
    return own ? { word: own[1], text: own[2] } : { word: word.trim(), text: line };
  });
}

function matrix({ cosines }, badge, label) {
  // Cosines of one model often lie close together, so colours run from the least of them to 1.
  const least = Math.min(...cosines.flat()), shade = (cosine) => heat(0.85 * (cosine - least) / Math.max(1e-6, 1 - least));
  return el("div", { class: "scroll", tabindex: cosines.length > 6 ? 0 : null, role: "group", "aria-label": label }, cosineTable(cosines, badge, shade, 2));
}

function nearest(space) { // the two uses that are most alike, for those who listen
  let best = null;
  space.cosines.forEach((row, one) => row.forEach((cosine, other) => { if (other > one && (best === null || cosine > best.cosine)) best = { one, other, cosine }; }));
  return best === null ? "One use, nothing to compare." : `Most alike: ${best.one + 1} and ${best.other + 1}, cosine ${fixed(best.cosine, 2)}`;
}

function showWords({ uses, fixed: table, contextual, notes }) {
  const { colour, badge } = colourUses(uses), said = nearest(contextual), shares = contextual.shares.map((share) => Math.round(100 * share));
  const nodes = [
    listUses(uses, badge),
    el("div", { class: "pair" },
      el("div", {}, el("h3", {}, "Cosines"), matrix(contextual, badge, "Cosines of the uses"), el("p", { class: "soft small" }, `${said}. Vectors: ${contextual.name}.`)),
      el("div", {}, el("h3", {}, "Map"), plane(contextual.points, uses, colour),
        el("p", { class: "soft small" }, `The two directions of greatest difference: ${shares[0]} % of the variance across, ${shares[1]} % up.`))),
    notes.map((line) => el("p", { class: "soft small" }, line)),
    el("details", {}, el("summary", {}, "The same with fixed vectors: one a word, whatever the sentence"),
      matrix(table, badge, "Cosines of fixed vectors"), el("p", { class: "soft small" }, `Vectors: ${table.name}.`)),
  ];
  return { nodes, said };
}

export const words = {
  id: "words", title: "A word in its sentences", short: "A word in context", route: "words", button: "Compare uses",
  lead: "The model gives a word another vector in every sentence. Uses that mean alike should come near each other.",
  fields: [
    { name: "word", label: "Word" },
    { name: "sentences", label: "Sentences, one a line", hint: "“other = a sentence with other” brings in another word", rows: 4 },
  ],
  examples: [
    { title: "fair", word: "fair", sentences: "He didn't receive fair treatment\nFun fair in New York city this summer\nThe judge was fair to both sides\nunbiased = Tom deserves unbiased judgement" },
    { title: "bank", word: "bank", sentences: "She paid the money into the bank\nThe bank raised its interest rates\nWe sat on the bank of the river\nWillows grow along the bank" },
  ],
  request: (values) => ({ inputs: readLines(values) }),
  show: showWords,
};
