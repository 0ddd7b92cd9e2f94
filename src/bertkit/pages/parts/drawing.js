// Elements whose text is only ever text, number formats, marks and colours: what every page draws with.
//
// The files of this folder are modules of the served page, and stand inside the pages that are one file (see frame.py).

// The namespace is read from the parser, so that no address stands here.
const SVG = new DOMParser().parseFromString("<svg></svg>", "text/html").body.firstChild.namespaceURI;

const isShown = (child) => child !== null && child !== undefined && child !== false;
export function build(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "style") Object.assign(node.style, value);
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (isShown(value)) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter(isShown).map((child) => (child instanceof Node ? child : String(child))));
  return node;
}
export const el = (tag, attributes, ...children) => build(document.createElement(tag), attributes, children);
export const svg = (tag, attributes, ...children) => build(document.createElementNS(SVG, tag), attributes, children);
export const byId = (id) => document.getElementById(id);

export const fixed = (value, digits = 4) => value.toFixed(digits).replace("-", "−");
export const whole = (value) => Math.round(value).toLocaleString("en-US");

export const isSpecial = (token) => /^\[[A-Z]+\]$/.test(token);
export const piece = (token, segment) =>
  el("span", { class: "piece " + (["a", "b"][segment] ?? "") + (isSpecial(token) ? " special" : ""), title: token }, token);
export const bar = (share, kind = "") =>
  el("span", { class: "bar " + kind, "aria-hidden": "true" }, el("i", { style: { width: 100 * Math.max(0, Math.min(1, share)) + "%" } }));

// A text whose spans are marked; of two that overlap the first is shown. Offsets count characters as Python does (code
// points), while JavaScript's strings count UTF-16 units.
const mark = (inner, { kind, label }) => el("mark", { class: kind }, inner, label ? el("small", {}, label) : null);
export function marked(text, spans, make = mark) {
  const letters = Array.from(text), cut = (start, end) => letters.slice(start, end).join(""), parts = [];
  let place = 0;
  for (const span of [...spans].sort((one, other) => one.start - other.start)) {
    if (span.start < place) continue;
    parts.push(cut(place, span.start), make(cut(span.start, span.end), span));
    place = span.end;
  }
  return [...parts, cut(place)];
}

export const KIND_COLOURS = ["#1f6f8b", "#a8560f", "#6b4fa0", "#2c7a4b", "#b03a5b", "#5b616e"]; // white can be read on each
export const darkMode = matchMedia("(prefers-color-scheme: dark)");
const STOPS = {
  light: [[255, 255, 255], [198, 219, 239], [74, 138, 201], [8, 48, 107]],
  dark: [[27, 30, 37], [33, 66, 105], [78, 146, 214], [224, 240, 255]],
  lightBoth: [[33, 102, 172], [146, 197, 222], [250, 250, 248], [244, 165, 130], [178, 24, 43]],
  darkBoth: [[120, 190, 255], [48, 96, 140], [36, 39, 47], [140, 74, 54], [255, 140, 112]],
};
function ramp(stops) { // 256 colours between the stops
  return Array.from({ length: 256 }, (_, index) => {
    const place = (index / 255) * (stops.length - 1), low = Math.min(stops.length - 2, Math.floor(place));
    return stops[low].map((value, channel) => Math.round(value + (stops[low + 1][channel] - value) * (place - low)));
  });
}
const RAMPS = Object.fromEntries(Object.entries(STOPS).map(([name, stops]) => [name, ramp(stops)]));
const theme = () => (darkMode.matches ? "dark" : "light");
export const heat = (share) => RAMPS[theme()][Math.round(255 * Math.max(0, Math.min(1, share)))]; // 0 to 1
export const diverging = (share) => RAMPS[theme() + "Both"][Math.round(127.5 * (1 + Math.max(-1, Math.min(1, share))))]; // -1 to 1
export const css = ([red, green, blue]) => `rgb(${red} ${green} ${blue})`;
export const inkOn = ([red, green, blue]) => (red * 0.3 + green * 0.59 + blue * 0.11 > 140 ? "#14161b" : "#ffffff");
export const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export const ARROWS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }; // rows, columns
export function sizeCanvas(canvas, width, height) { // in CSS pixels, sharp on dense screens
  const density = Math.min(2, devicePixelRatio || 1);
  Object.assign(canvas, { width: width * density, height: height * density });
  Object.assign(canvas.style, { width: width + "px", height: height + "px" });
  const context = canvas.getContext("2d");
  context.scale(density, density);
  return context;
}
export function tip(text, x, y) { // a few words beside the pointer; nothing takes them away
  const box = byId("tip") ?? document.body.appendChild(el("div", { id: "tip", role: "status" }));
  box.hidden = !text;
  if (!text) return;
  box.textContent = text;
  box.style.left = Math.max(6, Math.min(innerWidth - box.offsetWidth - 6, x + 14)) + "px";
  box.style.top = Math.max(6, y - box.offsetHeight - 12) + "px";
}
