// A word in several sentences: the cosine of every two uses, and a map of them in two dimensions.

import { characters, count, css, cut, el, fixed, heat, inkOn, piece, svg } from "./drawing.js";

const COLOURS = ["#1f6f8b", "#a8560f", "#6b4fa0", "#2c7a4b", "#b03a5b", "#5b616e"];

function readLines({ word, sentences }) { // a line may name a word of its own: "unbiased = Tom deserves ..."
  const lines = sentences.split("\n").map((line) => line.trim()).filter(Boolean);
  return lines.map((line) => {
    const own = /^(\S+)\s+=\s+(.+)$/.exec(line);
    return own ? { word: own[1], text: own[2] } : { word: word.trim(), text: line };
  });
}

function makeBadge(uses) {
  const kinds = [...new Set(uses.map((use) => use.word.toLowerCase()))];
  const colour = (index) => COLOURS[kinds.indexOf(uses[index].word.toLowerCase()) % COLOURS.length];
  return { colour, badge: (index) => el("span", { class: "badge", style: { background: colour(index) } }, index + 1) };
}

function listUses(uses, badge) {
  return el("ol", { class: "uses" }, uses.map((use, index) => {
    const letters = characters(use.text);
    return el("li", {}, badge(index), el("span", {}, cut(letters, 0, use.start), el("mark", {}, cut(letters, use.start, use.end)), cut(letters, use.end),
      use.pieces.length > 1 ? use.pieces.map((part) => [" ", piece(part, 0)]) : null));
  }));
}

function matrix(space, uses, badge, label) {
  // Cosines of one model often lie close together, so colours run from the least of them to 1.
  const least = Math.min(...space.cosines.flat()), share = (cosine) => 0.85 * (cosine - least) / Math.max(1e-6, 1 - least);
  const head = el("tr", {}, el("td"), uses.map((_, index) => el("th", { scope: "col" }, badge(index))));
  const rows = space.cosines.map((row, index) => el("tr", {}, el("th", { scope: "row" }, badge(index)), row.map((cosine) => {
    const colour = heat(share(cosine));
    return el("td", { style: { background: css(colour), color: inkOn(colour) } }, fixed(cosine, 2));
  })));
  return el("div", { class: "scroll", tabindex: uses.length > 6 ? 0 : null, role: "group", "aria-label": label },
    el("table", { class: "cosines" }, el("thead", {}, head), el("tbody", {}, rows)));
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

function plane(space, uses, colour) {
  const width = 400, height = 290, { points } = space;
  const reach = (axis) => Math.max(1e-9, ...points.map((point) => Math.abs(point[axis])));
  const scale = Math.min((width / 2 - 90) / reach(0), (height / 2 - 30) / reach(1));
  const marks = groups(points, 24 / scale).map(({ point, members }) => {
    const [x, y] = [width / 2 + point[0] * scale, height / 2 - point[1] * scale], half = 13 + 7 * (members.length - 1);
    const names = [...new Set(members.map((index) => uses[index].word))].join(", "), right = x < width - 110;
    return svg("g", {}, svg("title", {}, members.map((index) => `${index + 1}: ${uses[index].text}`).join("\n")),
      svg("rect", { x: x - half, y: y - 13, width: 2 * half, height: 26, rx: 13, fill: colour(members[0]) }),
      svg("text", { x, y: y + 4.5, class: "in" }, members.map((index) => index + 1).join(" ")),
      svg("text", { x: right ? x + half + 6 : x - half - 6, y: y + 5, "text-anchor": right ? "start" : "end" }, names));
  });
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "plane", role: "img", "aria-label": `Map of ${count(uses.length, "use")}` },
    svg("line", { x1: 0, x2: width, y1: height / 2, y2: height / 2, class: "axis" }),
    svg("line", { y1: 0, y2: height, x1: width / 2, x2: width / 2, class: "axis" }), marks);
}

function nearest(space) { // the two uses that are most alike, for those who listen
  let best = null;
  space.cosines.forEach((row, one) => row.forEach((cosine, other) => { if (other > one && (best === null || cosine > best.cosine)) best = { one, other, cosine }; }));
  return best === null ? "One use, nothing to compare." : `Most alike: ${best.one + 1} and ${best.other + 1}, cosine ${fixed(best.cosine, 2)}`;
}

function showWords({ uses, fixed: table, contextual, notes }) {
  const { colour, badge } = makeBadge(uses), said = nearest(contextual), shares = contextual.shares.map((share) => Math.round(100 * share));
  const nodes = [
    listUses(uses, badge),
    el("div", { class: "pair" },
      el("div", {}, el("h3", {}, "Cosines"), matrix(contextual, uses, badge, "Cosines of the uses"), el("p", { class: "soft small" }, `${said}. Vectors: ${contextual.name}.`)),
      el("div", {}, el("h3", {}, "Map"), plane(contextual, uses, colour),
        el("p", { class: "soft small" }, `The two directions of greatest difference: ${shares[0]} % of the variance across, ${shares[1]} % up.`))),
    notes.map((line) => el("p", { class: "soft small" }, line)),
    el("details", {}, el("summary", {}, "The same with fixed vectors: one a word, whatever the sentence"),
      matrix(table, uses, badge, "Cosines of fixed vectors"), el("p", { class: "soft small" }, `Vectors: ${table.name}.`)),
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
