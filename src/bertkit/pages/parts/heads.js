// The figures of attention heads: small maps to pick from, and one head as a large map and as lines.
//
// Weights of a head are one flat list, a row for each token that looks; tokens are [{text, segment}].

import { ARROWS, css, el, fixed, heat, inkOn, isSpecial, piece, sizeCanvas, tip, variable } from "./drawing.js";

// The strongest colour: the largest weight, but at least five even shares, so that a head that looks everywhere is pale.
const strongest = (weights, size) => weights.reduce((most, weight) => Math.max(most, weight), Math.min(1, 5 / size));
const shade = (weight, most) => heat(Math.sqrt(weight / most));
const STOPS_SHOWN = [0, 0.05, 0.15, 0.3, 0.5, 0.75, 1];
export const gradient = () => `linear-gradient(90deg, ${STOPS_SHOWN.map((share) => `${css(shade(share, 1))} ${100 * share}%`).join(", ")})`;

export function drawSmall(canvas, weights, room) { // in a square of `room` pixels; where weights share one, the largest is seen
  const T = Math.sqrt(weights.length), most = strongest(weights, T), size = Math.min(T, 2 * room), pooled = new Float32Array(size * size);
  const scaled = Array.from({ length: T }, (_, index) => Math.floor(index * size / T));
  weights.forEach((weight, index) => {
    const pixel = scaled[Math.floor(index / T)] * size + scaled[index % T];
    if (weight > pooled[pixel]) pooled[pixel] = weight;
  });
  canvas.width = canvas.height = size;
  canvas.style.imageRendering = size < room ? "pixelated" : "auto";
  const context = canvas.getContext("2d"), image = context.createImageData(size, size);
  pooled.forEach((weight, index) => image.data.set([...shade(weight, most), 255], 4 * index));
  context.putImageData(image, 0, 0);
}

export function makePicker(names, columns, pick) { // a button a small map, in rows; one of them is in the order of focus
  const rows = names.length / columns;
  const buttons = names.map((name, index) => el("button", { type: "button", "aria-label": name, title: name, onclick: () => pick(index) }, el("canvas")));
  let chosen = 0;
  const mark = (index) => {
    chosen = index;
    buttons.forEach((button, place) => {
      button.setAttribute("aria-pressed", place === index);
      button.tabIndex = place === index ? 0 : -1;
    });
  };
  const move = (event) => {
    if (!ARROWS[event.key]) return;
    event.preventDefault();
    const [down, right] = rows === 1 ? [0, ARROWS[event.key][0] + ARROWS[event.key][1]] : ARROWS[event.key];
    pick((Math.floor(chosen / columns) + down + rows) % rows * columns + (chosen % columns + right + columns) % columns);
    buttons[chosen].focus();
  };
  return { buttons, mark, move };
}

function drawLabels(pen, tokens, label, cell) { // a strip of its segment's colour beside every token
  const filled = cell - (cell > 8), every = Math.ceil(12 / cell); // room for some labels only
  tokens.forEach(({ text, segment }, index) => {
    const start = label + index * cell, short = text.length > 15 ? text.slice(0, 14) + "…" : text;
    pen.fillStyle = variable(segment ? "--b" : "--a");
    pen.fillRect(label - 5, start, 3, filled);
    pen.fillRect(start, label - 5, filled, 3);
    if (index % every) return;
    pen.fillStyle = variable(isSpecial(text) ? "--soft" : "--ink");
    pen.textAlign = "right";
    pen.fillText(short, label - 9, start + cell / 2);
    pen.save();
    pen.translate(start + cell / 2, label - 9);
    pen.rotate(-Math.PI / 2);
    pen.textAlign = "left";
    pen.fillText(short, 0, 0);
    pen.restore();
  });
}
function drawCells(pen, weights, size, label, cell) {
  const most = strongest(weights, size), filled = cell - (cell > 8);
  Object.assign(pen, { font: "11px " + variable("--text"), textAlign: "center" });
  weights.forEach((weight, index) => {
    const x = label + (index % size) * cell, y = label + Math.floor(index / size) * cell, colour = shade(weight, most);
    pen.fillStyle = css(colour);
    pen.fillRect(x, y, filled, filled);
    if (cell < 34) return;
    pen.fillStyle = inkOn(colour);
    pen.fillText(fixed(weight, 2).replace(/^0/, ""), x + cell / 2, y + cell / 2);
  });
}

export function makeMap(tokens, current, explained) { // the chosen head as a matrix that pointer and arrow keys read
  const T = tokens.length, value = el("output", { id: "map-value", class: "small" }), zoom = el("button", { type: "button", onclick: () => { zoomed = !zoomed; draw(); } });
  const canvas = el("canvas", { tabindex: 0, role: "img", "aria-describedby": "map-value", "aria-label": `Heat map of ${T} by ${T} attention weights; arrow keys read them one by one` });
  let marked = null, zoomed = false, label = 0, cell = 0;
  const said = ([from, to]) => `${tokens[from].text} → ${tokens[to].text}   ${fixed(current()[from * T + to])}`;
  function measure() {
    const pen = canvas.getContext("2d"), room = canvas.parentElement.clientWidth;
    pen.font = "12px " + variable("--mono");
    label = Math.min(130, Math.max(...tokens.map(({ text }) => pen.measureText(text).width)) + 14);
    const fitting = Math.min(46, Math.floor((room - label - 4) / T));
    cell = Math.max(zoomed ? 13 : 3, fitting);
    zoom.hidden = fitting >= 13;
    zoom.textContent = zoomed ? "Show the whole map" : "Larger squares";
  }
  function draw() {
    measure();
    const side = Math.ceil(label + cell * T + 2), pen = sizeCanvas(canvas, side, side);
    Object.assign(pen, { font: "12px " + variable("--mono"), textBaseline: "middle" });
    drawLabels(pen, tokens, label, cell);
    drawCells(pen, current(), T, label, cell);
    Object.assign(pen, { strokeStyle: variable("--b"), lineWidth: 2 });
    if (marked) pen.strokeRect(label + marked[1] * cell, label + marked[0] * cell, cell - 1, cell - 1);
    value.textContent = marked ? `${said(marked)}   (position ${marked[0]} looks at position ${marked[1]})` : explained;
  }
  const markCell = (found) => { marked = found; draw(); };
  const cellAt = (event) => {
    const box = canvas.getBoundingClientRect();
    const found = [event.clientY - box.top, event.clientX - box.left].map((place) => Math.floor((place - label) / cell));
    return found.every((index) => index >= 0 && index < T) ? found : null;
  };
  canvas.addEventListener("pointermove", (event) => { const found = cellAt(event); tip(found && said(found), event.clientX, event.clientY); });
  canvas.addEventListener("pointerleave", () => tip(null));
  canvas.addEventListener("click", (event) => { const found = cellAt(event); if (found) markCell(found); });
  canvas.addEventListener("keydown", (event) => {
    const step = ARROWS[event.key];
    if (!step) return;
    event.preventDefault();
    markCell(marked ? marked.map((index, axis) => (index + step[axis] + T) % T) : [0, 0]);
  });
  return { canvas, value, zoom, draw, strongest: () => strongest(current(), T) };
}

function drawLines(canvas, weights, size, step, only) {
  const width = canvas.parentElement.clientWidth, pen = sizeCanvas(canvas, width, size * step);
  Object.assign(pen, { strokeStyle: variable("--accent"), lineWidth: 1.8 });
  weights.forEach((weight, place) => {
    const from = Math.floor(place / size), to = place % size, start = (from + 0.5) * step, end = (to + 0.5) * step;
    if (weight < 0.01 || (only && only.index !== (only.side === "left" ? from : to))) return;
    pen.globalAlpha = Math.min(1, weight);
    pen.beginPath();
    pen.moveTo(2, start);
    pen.bezierCurveTo(width * 0.35, start, width * 0.65, end, width - 2, end);
    pen.stroke();
  });
}

export function makeLines(tokens, current) { // the chosen head as lines from the left to the right
  const T = tokens.length, step = T > 48 ? 18 : 25, canvas = el("canvas", { "aria-hidden": "true" });
  let held = null, pointed = null;
  const same = (one, other) => one !== null && one.side === other.side && one.index === other.index;
  const hold = (place) => { held = place; draw(); };
  const point = (place) => { pointed = place; draw(); };
  const items = (side) => tokens.map(({ text, segment }, index) => {
    const share = el("b"), label = piece(text, segment), place = { side, index };
    const item = el("li", { onclick: () => hold(same(held, place) ? null : place), onpointerenter: () => point(place), onpointerleave: () => point(null) },
      side === "left" ? [share, label] : [label, share]);
    return { item, share };
  });
  const sides = { left: items("left"), right: items("right") }, list = (side) => el("ol", { class: side }, sides[side].map(({ item }) => item));
  const node = el("div", { class: "stage", tabindex: 0, role: "group", "aria-label": "Attention as lines; arrow keys choose a token, Escape lets go" },
    list("left"), el("div", {}, canvas), list("right"));
  node.style.setProperty("--step", step + "px");
  node.addEventListener("keydown", (event) => {
    const [down, right] = ARROWS[event.key] ?? [0, 0];
    if (event.key !== "Escape" && !down && !right) return;
    event.preventDefault();
    const { side, index } = held ?? { side: "left", index: down === 1 ? -1 : 0 };
    if (event.key === "Escape") hold(null);
    else hold(down ? { side, index: (index + down + T) % T } : { side: right < 0 ? "left" : "right", index });
  });
  function draw() {
    const only = pointed ?? held, weights = current();
    drawLines(canvas, weights, T, step, only);
    for (const side of ["left", "right"]) sides[side].forEach(({ item, share }, index) => {
      const other = only !== null && only.side !== side;
      const weight = other ? weights[only.side === "left" ? only.index * T + index : index * T + only.index] : null;
      share.textContent = other ? fixed(weight, 3) : "";
      item.style.opacity = only === null || same(only, { side, index }) ? 1 : other ? 0.35 + 0.65 * Math.min(1, 4 * weight) : 0.3;
      item.toggleAttribute("aria-current", same(held, { side, index }));
    });
  }
  return { node, draw };
}
