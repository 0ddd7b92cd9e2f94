// Attention by layer and head: every head of a layer as a small map, the chosen one large and as lines.

import { count, css, darkMode, el, fixed, heat, piece, sizeCanvas, variable } from "./drawing.js";

const chosen = { layer: 0, head: 0 }; // kept from one text to the next

function mean(maps) { // the layer's mean of all heads
  return maps[0].map((row, from) => row.map((_, to) => maps.reduce((sum, map) => sum + map[from][to], 0) / maps.length));
}

// The strongest colour: the largest weight, but at least five even shares, so that a head that looks everywhere is pale.
const strongest = (map) => Math.max(Math.min(1, 5 / map.length), ...map.map((row) => Math.max(...row)));
const shade = (weight, most) => heat(Math.sqrt(weight / most));

function drawSmall(canvas, map) {
  const size = map.length, most = strongest(map), context = Object.assign(canvas, { width: size, height: size }).getContext("2d");
  const image = context.createImageData(size, size);
  map.forEach((row, from) => row.forEach((weight, to) => image.data.set([...shade(weight, most), 255], 4 * (from * size + to))));
  context.putImageData(image, 0, 0);
  canvas.style.imageRendering = size < 44 ? "pixelated" : "auto";
}

function drawMap(canvas, map, tokens, cell) {
  const room = canvas.parentElement.clientWidth, size = tokens.length, context = canvas.getContext("2d"), most = strongest(map);
  const font = "12px " + variable("--mono");
  context.font = font;
  const label = Math.min(100, Math.max(...tokens.map(({ text }) => context.measureText(text).width)) + 12);
  const side = Math.max(3, Math.min(44, Math.floor((room - label - 4) / size))), gap = side > 8 ? 1 : 0;
  const pen = sizeCanvas(canvas, label + side * size + 2, label + side * size + 2);
  Object.assign(pen, { font, textBaseline: "middle" });
  tokens.forEach(({ text, segment }, index) => {
    const middle = label + (index + 0.5) * side, short = text.length > 12 ? text.slice(0, 11) + "…" : text;
    if (index % Math.ceil(13 / side)) return; // room for some labels only
    pen.fillStyle = variable(segment ? "--b" : "--a");
    pen.textAlign = "right";
    pen.fillText(short, label - 7, middle);
    pen.save();
    pen.translate(middle, label - 7);
    pen.rotate(-Math.PI / 2);
    pen.textAlign = "left";
    pen.fillText(short, 0, 0);
    pen.restore();
  });
  map.forEach((row, from) => row.forEach((weight, to) => {
    pen.fillStyle = css(shade(weight, most));
    pen.fillRect(label + to * side, label + from * side, side - gap, side - gap);
  }));
  Object.assign(pen, { strokeStyle: variable("--b"), lineWidth: 2 });
  if (cell) pen.strokeRect(label + cell[1] * side, label + cell[0] * side, side - gap, side - gap);
  return (x, y) => [y, x].map((place) => Math.floor((place - label) / side));
}

function drawLines(canvas, map, step, only) {
  const width = canvas.parentElement.clientWidth, pen = sizeCanvas(canvas, width, map.length * step);
  Object.assign(pen, { strokeStyle: variable("--accent"), lineWidth: 1.8 });
  map.forEach((row, from) => row.forEach((weight, to) => {
    if (weight < 0.01 || (only !== null && only !== from)) return;
    const [start, end] = [(from + 0.5) * step, (to + 0.5) * step];
    pen.globalAlpha = Math.min(1, weight);
    pen.beginPath();
    pen.moveTo(2, start);
    pen.bezierCurveTo(width * 0.35, start, width * 0.65, end, width - 2, end);
    pen.stroke();
  }));
}

const ARROWS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

function makeHeads(maps, names, pick) { // a row of small maps; one of them is in the order of focus
  const buttons = maps.map((map, head) => el("button", { type: "button", "aria-label": names[head], title: names[head], onclick: () => pick(head) }, el("canvas")));
  const group = el("div", { class: "heads", role: "group", "aria-label": "Heads" }, buttons);
  group.style.gridTemplateColumns = `repeat(auto-fill, 46px)`;
  group.addEventListener("keydown", (event) => {
    const step = ARROWS[event.key];
    if (!step) return;
    event.preventDefault();
    pick((chosen.head + step[0] + step[1] + maps.length) % maps.length);
    buttons[chosen.head].focus();
  });
  const mark = () => buttons.forEach((button, head) => {
    button.setAttribute("aria-pressed", head === chosen.head);
    button.tabIndex = head === chosen.head ? 0 : -1;
  });
  return { group, mark, draw: () => buttons.forEach((button, head) => drawSmall(button.firstChild, maps[head])) };
}

function makeMap(tokens, current) { // the chosen head as a matrix that pointer and arrow keys read
  const canvas = el("canvas", { tabindex: 0, role: "img", "aria-label": `Attention weights, ${tokens.length} by ${tokens.length}; arrow keys read them one by one` });
  const value = el("output", { class: "small soft" });
  let cell = null, find = null;
  const draw = () => {
    find = drawMap(canvas, current(), tokens, cell);
    value.textContent = cell ? `${tokens[cell[0]].text} → ${tokens[cell[1]].text}   ${fixed(current()[cell[0]][cell[1]], 4)}`
      : "A row looks at its columns and sums to 1. Point at a square, or focus the map and use the arrow keys.";
  };
  canvas.addEventListener("keydown", (event) => {
    const step = ARROWS[event.key];
    if (!step) return;
    event.preventDefault();
    cell = cell ? cell.map((index, axis) => (index + step[axis] + tokens.length) % tokens.length) : [0, 0];
    draw();
  });
  canvas.addEventListener("pointermove", (event) => {
    const found = find(event.offsetX, event.offsetY);
    if (!found.every((index) => index >= 0 && index < tokens.length)) return;
    cell = found;
    draw();
  });
  return { node: el("div", { class: "map" }, el("div", { class: "scroll" }, canvas), value), draw };
}

function makeLines(tokens, current) { // the chosen head as lines from the left to the right
  const step = tokens.length > 48 ? 18 : 25, canvas = el("canvas", { "aria-hidden": "true" });
  let only = null;
  const hold = (index) => { only = only === index ? null : index; draw(); };
  const side = (name) => tokens.map(({ text, segment }, index) => {
    const share = el("b"), label = piece(text, segment);
    return { share, item: el("li", { onclick: name === "left" ? () => hold(index) : null }, name === "left" ? [share, label] : [label, share]) };
  });
  const [left, right] = [side("left"), side("right")];
  const stage = el("div", { class: "stage", tabindex: 0, role: "group", "aria-label": "Attention as lines; up and down choose a token, Escape lets go" },
    el("ol", { class: "left" }, left.map(({ item }) => item)), el("div", {}, canvas), el("ol", { class: "right" }, right.map(({ item }) => item)));
  stage.style.setProperty("--step", step + "px");
  stage.addEventListener("keydown", (event) => {
    if (event.key === "Escape") only = null;
    else if (event.key === "ArrowDown") only = only === null ? 0 : (only + 1) % tokens.length;
    else if (event.key === "ArrowUp") only = ((only ?? 0) + tokens.length - 1) % tokens.length;
    else return;
    event.preventDefault();
    draw();
  });
  function draw() {
    drawLines(canvas, current(), step, only);
    left.forEach(({ item }, index) => item.toggleAttribute("aria-current", index === only));
    right.forEach(({ item, share }, index) => {
      const weight = only === null ? null : current()[only][index];
      share.textContent = weight === null ? "" : fixed(weight, 2);
      item.style.opacity = weight === null ? 1 : 0.4 + 0.6 * Math.min(1, 4 * weight);
    });
  }
  return { node: stage, draw };
}

let redraw = null, stands = null; // the figures that are shown now
const refresh = () => { if (stands?.offsetParent) redraw(); };
darkMode.addEventListener("change", refresh);
addEventListener("resize", refresh);

function showAttention({ tokens, layers, heads, weights }, _, again, model) {
  const maps = [...weights[0], mean(weights[0])], names = [...heads.map((head) => `Head ${head + 1}`), "Mean of all heads"];
  chosen.head = Math.min(chosen.head, maps.length - 1);
  const current = () => maps[chosen.head];
  const title = el("h3", { role: "status" }), picker = makeHeads(maps, names, pick), map = makeMap(tokens, current), lines = makeLines(tokens, current);
  const layer = el("select", { id: "attention-layer", onchange: () => { chosen.layer = Number(layer.value); again({ kept: "attention-layer" }); } },
    Array.from({ length: model.num_layers }, (_, index) => el("option", { value: index, selected: index === layers[0] }, index + 1)));
  function pick(head) {
    chosen.head = head;
    title.textContent = `Layer ${layers[0] + 1} of ${model.num_layers}, ${names[head].toLowerCase()}`;
    picker.mark();
    map.draw();
    lines.draw();
  }
  redraw = () => { picker.draw(); pick(chosen.head); };
  stands = map.node;
  const nodes = [
    el("div", { class: "row field" }, el("label", { for: "attention-layer" }, "Layer", layer)),
    el("p", { class: "soft small" }, "Every head of this layer, the mean last. Choose one, also by the arrow keys."), el("div", { class: "scroll" }, picker.group),
    title, map.node, el("h3", {}, "The same as lines"),
    el("p", { class: "soft small" }, "Left looks at right. Choose a token at the left, or by the up and down keys, to see it alone."), el("div", { class: "scroll" }, lines.node),
  ];
  return { nodes, said: `Layer ${layers[0] + 1}, ${count(heads.length, "head")}, ${count(tokens.length, "token")}` };
}

export const attention = {
  id: "attention", title: "Attention", route: "attention", button: "Look inside",
  lead: "Who looks at whom: for each layer and head, how much every token takes from every other.",
  fields: [{ name: "a", label: "Text", rows: 2 }, { name: "b", label: "Second text", hint: "if you like", rows: 1, optional: true }],
  examples: [
    { title: "A pair", a: "My dog is cute", b: "he likes playing" },
    { title: "What is tired?", a: "The animal didn't cross the street because it was too tired." },
  ],
  request: ({ a, b }, model) => ({ inputs: b.trim() ? [a, b] : a, layer: Math.min(chosen.layer, model.num_layers - 1) }),
  show: showAttention,
  drawn: (result, { kept }) => {
    redraw();
    if (kept) result.querySelector("#" + kept).focus(); // the select that was used is a new one now
  },
};
