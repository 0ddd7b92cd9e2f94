// Uses of words side by side: in their sentences, by the cosine of every two, and on a map in two dimensions.
//
// Uses are [{word, text, start, end, pieces}], in the order of the rows of cosines and of the points.

import { css, el, fixed, inkOn, KIND_COLOURS, marked, piece, svg } from "./drawing.js";

export function colourUses(uses) { // a colour a word
  const kinds = [...new Set(uses.map((use) => use.word.toLowerCase()))];
  const colour = (index) => KIND_COLOURS[kinds.indexOf(uses[index].word.toLowerCase()) % KIND_COLOURS.length];
  return { colour, badge: (index) => el("span", { class: "badge", style: { background: colour(index) } }, index + 1) };
}

export function listUses(uses, badge) {
  return el("ol", { class: "uses" }, uses.map((use, index) => el("li", {}, badge(index),
    el("span", {}, marked(use.text, [{ start: use.start, end: use.end }]), use.pieces.length > 1 ? use.pieces.map((part) => [" ", piece(part)]) : null))));
}

export function cosineTable(cosines, heading, shade, digits = 3) { // heading(index, isRow)
  const head = el("tr", {}, el("th"), cosines.map((_, index) => el("th", { scope: "col" }, heading(index, false))));
  const rows = cosines.map((row, index) => el("tr", {}, el("th", { scope: "row" }, heading(index, true)), row.map((cosine) => {
    const colour = shade(cosine);
    return el("td", { style: { background: css(colour), color: inkOn(colour) } }, fixed(cosine, digits));
  })));
  return el("table", { class: "cosines" }, el("thead", {}, head), el("tbody", {}, rows));
}

function groups(points, near) { // uses that lie on one spot share one mark
  const found = [];
  points.forEach((point, index) => {
    const group = found.find((other) => Math.hypot(other.point[0] - point[0], other.point[1] - point[1]) < near);
    if (group) group.members.push(index);
    else found.push({ point, members: [index] });
  });
  return found;
}

export function plane(points, uses, colour) {
  const width = 400, height = 290, reach = (axis) => Math.max(1e-9, ...points.map((point) => Math.abs(point[axis])));
  const scale = Math.min((width / 2 - 90) / reach(0), (height / 2 - 40) / reach(1));
  const exact = (index) => `${index + 1}: ${uses[index].text} (${fixed(points[index][0], 3)}, ${fixed(points[index][1], 3)})`;
  const marks = groups(points, 24 / scale).map(({ point, members }) => {
    const [x, y] = [width / 2 + point[0] * scale, height / 2 - point[1] * scale], half = 13 + 7 * (members.length - 1);
    const names = [...new Set(members.map((index) => uses[index].word))].join(", "), right = x < width - 110;
    return svg("g", {}, svg("title", {}, members.map(exact).join("\n")),
      svg("rect", { x: x - half, y: y - 13, width: 2 * half, height: 26, rx: 13, fill: colour(members[0]) }),
      svg("text", { x, y: y + 4.5, class: "in" }, members.map((index) => index + 1).join(" ")),
      svg("text", { x: right ? x + half + 6 : x - half - 6, y: y + 5, "text-anchor": right ? "start" : "end" }, names));
  });
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "plane", role: "img", "aria-label": `Map of the ${uses.length} uses` },
    svg("line", { x1: 0, x2: width, y1: height / 2, y2: height / 2, class: "axis" }),
    svg("line", { y1: 0, y2: height, x1: width / 2, x2: width / 2, class: "axis" }), marks);
}
