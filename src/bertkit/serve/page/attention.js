// Attention by layer and head: every head of a layer as a small map, the chosen one large and as lines.

import { darkMode, el } from "./drawing.js";
import { drawSmall, makeLines, makeMap, makePicker } from "./heads.js";
import { count } from "./shares.js";

const SMALL = 46; // pixels of a small map
const chosen = { layer: 1, map: 0 }; // kept from one text to the next: a layer, from 1, and one of its small maps

function mean(maps) { // the layer's mean of all heads
  return maps[0].map((_, place) => maps.reduce((sum, map) => sum + map[place], 0) / maps.length);
}

let redraw = null, stands = null; // the figures that are shown now
const refresh = () => { if (stands?.offsetParent) redraw(); };
darkMode.addEventListener("change", refresh);
addEventListener("resize", refresh);

function showAttention({ tokens, layers, heads, weights }, _, again, model) {
  const each = weights[0].map((rows) => rows.flat()), maps = [...each, mean(each)], names = [...heads.map((head) => `Head ${head}`), "Mean of all heads"];
  chosen.map = Math.min(chosen.map, maps.length - 1);
  const current = () => maps[chosen.map], title = el("h3", { role: "status" });
  const picker = makePicker(names, names.length, pick), lines = makeLines(tokens, current);
  const map = makeMap(tokens, current, "A row looks at its columns and sums to 1. Point at a square, or focus the map and use the arrow keys.");
  const grid = el("div", { class: "heads", role: "group", "aria-label": "Heads", onkeydown: picker.move, style: { gridTemplateColumns: `repeat(auto-fill, ${SMALL}px)` } }, picker.buttons);
  const layer = el("select", { id: "attention-layer", onchange: () => { chosen.layer = Number(layer.value); again({ kept: "attention-layer" }); } },
    Array.from({ length: model.num_layers }, (_, index) => index + 1).map((number) => el("option", { value: number, selected: number === layers[0] }, number)));
  function pick(place) {
    chosen.map = place;
    title.textContent = `Layer ${layers[0]} of ${model.num_layers}, ${names[place].toLowerCase()}`;
    picker.mark(place);
    map.draw();
    lines.draw();
  }
  redraw = () => { picker.buttons.forEach((button, place) => drawSmall(button.firstChild, maps[place], SMALL)); pick(chosen.map); };
  stands = map.canvas;
  const nodes = [
    el("div", { class: "row field" }, el("label", { for: "attention-layer" }, "Layer", layer)),
    el("p", { class: "soft small" }, "Every head of this layer, the mean last. Choose one, also by the arrow keys."), el("div", { class: "scroll" }, grid),
    title, el("div", { class: "map" }, map.zoom, el("div", { class: "scroll" }, map.canvas), map.value), el("h3", {}, "The same as lines"),
    el("p", { class: "soft small" }, "Left looks at right. Point at a token to see it alone, click to hold it, or choose one by the arrow keys."), el("div", { class: "scroll" }, lines.node),
  ];
  return { nodes, said: `Layer ${layers[0]}, ${count(heads.length, "head")}, ${count(tokens.length, "token")}` };
}

export const attention = {
  id: "attention", title: "Attention", route: "attention", button: "Look inside",
  lead: "Who looks at whom: for each layer and head, how much every token takes from every other.",
  fields: [{ name: "a", label: "Text", rows: 2 }, { name: "b", label: "Second text", hint: "if you like", rows: 1, optional: true }],
  examples: [
    { title: "A pair", a: "My dog is cute", b: "he likes playing" },
    { title: "What is tired?", a: "The animal didn't cross the street because it was too tired." },
  ],
  request: ({ a, b }, model) => ({ inputs: b.trim() ? [a, b] : a, layer: Math.min(chosen.layer, model.num_layers) }),
  show: showAttention,
  drawn: (result, { kept }) => {
    redraw();
    if (kept) result.querySelector("#" + kept).focus(); // the select that was used is a new one now
  },
};
