// Fill-mask, two sentences compared, next sentence, and classification: texts in, a few numbers out.

import { el, fixed, marked } from "./drawing.js";
import { bars, percent } from "./shares.js";

const MASK = "[MASK]";

function insertMask(fields) {
  const input = fields().find((field) => field.name === "text").input;
  const [start, end] = [input.selectionStart, input.selectionEnd], before = input.value.slice(0, start);
  const gap = before && !/\s$/.test(before) ? " " : "";
  input.setRangeText(gap + MASK, start, end, "end");
  input.focus();
}

function showMasks(masks, { text }) {
  const caption = (index) => (masks.length > 1 ? `Blank ${index + 1}` : null);
  const tables = masks.map(({ candidates }, index) =>
    bars(caption(index), candidates.map(({ token, probability }, rank) => ({ name: token, share: probability, best: rank === 0 }))));
  const said = masks.map(({ candidates }) => `${candidates[0].token}, ${percent(candidates[0].probability)}`).join("; ");
  return { nodes: [el("p", { class: "text" }, marked(text, masks, (_, { candidates }) => el("mark", {}, candidates[0].token))), tables], said };
}

export const fillMask = {
  id: "fill-mask", title: "Fill in the blanks", short: "Fill in blanks", route: "fill-mask", button: "Fill in",
  lead: "Write [MASK] where a word is missing; the model says which words it expects there, and how surely.",
  fields: [{ name: "text", label: "Text", rows: 2 }, { name: "top", label: "How many", choices: [5, 10, 20] }],
  buttons: (fields) => el("button", { type: "button", onclick: () => insertMask(fields) }, "Insert [MASK]"),
  examples: [
    { title: "The man went to the …", text: "The man went to the [MASK]." },
    { title: "Paris is …", text: "Paris is the [MASK] of France." },
    { title: "Two blanks", text: "She opened the [MASK] and read the [MASK]." },
  ],
  request: ({ text, top }) => ({ inputs: text, top_k: Number(top) }),
  show: (answer, asked) => showMasks(Array.isArray(answer[0]) ? answer[0] : answer, asked),
};

function gauge(cosine) { // a mark on the way from -1 to 1
  const place = (value) => 50 * (Math.max(-1, Math.min(1, value)) + 1) + "%", [low, high] = [Math.min(0, cosine), Math.max(0, cosine)];
  const ticks = [-1, -0.5, 0, 0.5, 1].map((value) => el("span", { style: { left: place(value) } }, fixed(value, value % 1 ? 1 : 0)));
  return el("div", { class: "gauge", "aria-hidden": "true" }, el("i", { style: { left: place(low), width: 50 * (high - low) + "%" } }), el("b", { style: { left: place(cosine) } }), ticks);
}

const compared = [];
function showCosine([cosine], { a, b }, _, model) {
  const before = compared.slice(0, 7);
  compared.unshift({ cosine, a, b, model: model.name });
  const rows = before.map((one) => el("tr", {}, el("td", { class: "number" }, fixed(one.cosine, 3)), el("td", {}, one.a), el("td", {}, one.b)));
  const earlier = el("div", { class: "scroll" }, el("table", { class: "earlier" },
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "cosine"), el("th", { scope: "col" }, "first"), el("th", { scope: "col" }, "second"))), el("tbody", {}, rows)));
  return {
    nodes: [el("p", { class: "big" }, fixed(cosine, 3)), el("p", { class: "soft small" }, "cosine of the two sentence vectors; 1 is the same direction"), gauge(cosine),
      before.length ? [el("h3", {}, "Compared before"), earlier] : null],
    said: `Cosine ${fixed(cosine, 3)}`,
  };
}

export const compare = {
  id: "compare", title: "Compare two sentences", short: "Two sentences", route: "similarity", button: "Compare",
  lead: "Each sentence becomes a vector; the cosine says how near they are. Compare cosines with each other: most models give even strangers more than 0.",
  fields: [{ name: "a", label: "First sentence", rows: 2 }, { name: "b", label: "Second sentence", rows: 2 }],
  examples: [
    { title: "Alike", a: "The dog sleeps on the sofa.", b: "A puppy is napping on the couch." },
    { title: "Not alike", a: "The dog sleeps on the sofa.", b: "Interest rates rose again in March." },
  ],
  request: ({ a, b }) => ({ inputs: { source_sentence: a, sentences: [b] } }),
  show: showCosine,
};

export const nextSentence = {
  id: "next-sentence", title: "Next sentence", route: "next-sentence", button: "Does it follow?",
  lead: "How probable does the model find it that the second text follows the first?",
  fields: [{ name: "a", label: "First", rows: 2 }, { name: "b", label: "Second", rows: 2 }],
  examples: [
    { title: "It follows", a: "The man went to the store.", b: "He bought a gallon of milk." },
    { title: "It does not", a: "The man went to the store.", b: "Penguins cannot fly." },
  ],
  request: ({ a, b }) => ({ inputs: [a, b] }),
  show: (answer) => {
    const { probability } = Array.isArray(answer) ? answer[0] : answer, follows = probability >= 0.5;
    const rows = [{ name: "follows", share: probability, best: follows }, { name: "does not follow", share: 1 - probability, best: !follows }];
    return { nodes: [bars(null, rows)], said: `Follows: ${percent(probability)}` };
  },
};

function showLabels(answer, _, __, model) {
  const scores = Array.isArray(answer[0]) ? answer[0] : answer;
  if (scores.length === 1 && model.labels.length < 2) { // a regression says a number, not a share
    return { nodes: [el("p", { class: "big" }, fixed(scores[0].score, 3)), el("p", { class: "soft small" }, scores[0].label)], said: fixed(scores[0].score, 3) };
  }
  const best = scores.reduce((one, other) => (other.score > one.score ? other : one));
  const rows = scores.map(({ label, score }) => ({ name: label, share: score, best: label === best.label }));
  return { nodes: [bars(null, rows)], said: `${best.label}, ${percent(best.score)}` };
}

export const classify = {
  id: "classify", title: "Sentiment and other labels", short: "Sentiment", route: "predict", button: "Classify",
  lead: "The model's labels for a text, or for a pair of texts, each with its probability.",
  fields: [{ name: "text", label: "Text", rows: 3 }, { name: "pair", label: "Second text", hint: "only for models of pairs", rows: 1, optional: true }],
  examples: [
    { title: "A happy viewer", text: "Amazing movie, I couldn't blink an eye." },
    { title: "An unhappy one", text: "The soup was cold and the waiter argued about the bill." },
    { title: "Neither one nor the other", text: "The food was good, but we waited an hour for it." },
  ],
  request: ({ text, pair }) => ({ inputs: pair.trim() ? [text, pair] : text }),
  show: showLabels,
};
