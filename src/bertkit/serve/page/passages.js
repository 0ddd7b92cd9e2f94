// Entities highlighted in their text, and a question's answer marked in its passage.

import { el, KIND_COLOURS, marked } from "./drawing.js";
import { count, percent } from "./shares.js";

function showEntities(answer, { text }) {
  const { entities } = Array.isArray(answer) ? answer[0] : answer, kinds = [...new Set(entities.map((entity) => entity.kind))].sort();
  const colour = (kind) => KIND_COLOURS[kinds.indexOf(kind) % KIND_COLOURS.length];
  const tinted = (inner, { kind, confidence }) => el("span", { class: "entity", title: percent(confidence), style: { background: `color-mix(in srgb, ${colour(kind)} 26%, transparent)` } },
    inner, el("small", { style: { background: colour(kind) } }, kind));
  const rows = entities.map((entity) => el("tr", {}, el("td", {}, entity.text), el("td", {}, entity.kind), el("td", { class: "number" }, percent(entity.confidence))));
  const list = el("div", { class: "scroll" }, el("table", {},
    el("thead", {}, el("tr", {}, ["entity", "kind", "confidence"].map((name) => el("th", { scope: "col" }, name)))), el("tbody", {}, rows)));
  const said = entities.length ? `${count(entities.length, "entity", "entities")}: ${entities.map((entity) => `${entity.text}, ${entity.kind}`).join("; ")}` : "No entities found.";
  return { nodes: [el("p", { class: "text" }, marked(text, entities, tinted)), entities.length ? list : el("p", { class: "soft" }, said)], said };
}

export const entities = {
  id: "entities", title: "Entities in a text", short: "Entities", route: "entities", button: "Find entities",
  lead: "Persons, places, organisations, or whatever kinds the model was trained to find, marked where they stand.",
  fields: [{ name: "text", label: "Text", rows: 4 }],
  examples: [
    { title: "A scientist", text: "Marie Curie moved from Warsaw to Paris in 1891 and studied at the Sorbonne." },
    { title: "A trip", text: "Last summer Tom flew from New York City to Nairobi with Kenya Airways." },
  ],
  request: ({ text }) => ({ inputs: text }),
  show: showEntities,
};

function showAnswer(answer, { context }) {
  const best = answer.text ? [answer] : [], spans = [...best, ...answer.runners_up];
  const place = el("div");
  const buttons = spans.map((span, index) =>
    el("button", { type: "button", onclick: () => point(index) }, el("span", {}, span.text), el("b", {}, percent(span.confidence))));
  function point(chosen) {
    buttons.forEach((button, index) => button.setAttribute("aria-pressed", index === chosen));
    place.replaceChildren(el("p", { class: "text" }, marked(context, chosen === null ? [] : [spans[chosen]])));
  }
  point(answer.text ? 0 : null);
  const list = (items) => el("ul", { class: "answers" }, items.map((item) => el("li", {}, item)));
  const nodes = [
    answer.text ? [el("h3", {}, "Answer"), list(buttons.slice(0, 1))] : el("p", {}, "The passage does not tell, says the model."),
    el("h3", {}, "In the passage"), place,
    buttons.length > best.length ? [el("h3", {}, answer.text ? "Runners-up" : "Closest guesses"), list(buttons.slice(best.length))] : null,
    answer.num_cut ? el("p", { class: "note" }, `The question is long: ${count(answer.num_cut, "token")} of it left out.`) : null,
  ];
  return { nodes, said: answer.text ? `Answer: ${answer.text}, ${percent(answer.confidence)}` : "The passage does not tell." };
}

const PASSAGE = "The third lighthouse on the Eddystone rocks was built by the engineer John Smeaton and first lit in 1759, with "
  + "candles. Its granite blocks were cut to lock into one another. When the sea had worn away the rock beneath it, a new tower was built, and in 1882 "
  + "the upper part of the old one was moved to Plymouth Hoe, where it still stands.";

export const answer = {
  id: "answer", title: "Question and passage", short: "Answers", route: "answer", button: "Find the answer",
  lead: "The stretch of the passage that answers the question, and its runners-up. Choose one to see where it stands.",
  fields: [{ name: "question", label: "Question" }, { name: "context", label: "Passage", rows: 6 }],
  examples: [
    { title: "Who?", question: "Who built the lighthouse?", context: PASSAGE },
    { title: "When?", question: "When was the lighthouse first lit?", context: PASSAGE },
    { title: "Where?", question: "Where was the upper part moved?", context: PASSAGE },
  ],
  request: ({ question, context }) => ({ question, context }),
  show: showAnswer,
};
