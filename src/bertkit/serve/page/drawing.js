// Elements whose text is only ever text, number formats, bars and colours: what every section draws with.

const SVG = document.getElementById("svg").namespaceURI; // read from the parser, so that no address stands here

function build(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "style") Object.assign(node.style, value);
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  const shown = children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
  node.append(...shown.map((child) => (child instanceof Node ? child : String(child))));
  return node;
}
export const el = (tag, attributes, ...children) => build(document.createElement(tag), attributes, children);
export const svg = (tag, attributes, ...children) => build(document.createElementNS(SVG, tag), attributes, children);

export const fixed = (value, digits = 3) => value.toFixed(digits).replace("-", "−");
export const whole = (value) => Math.round(value).toLocaleString("en-US");
export function percent(share) {
  if (share > 0 && share < 0.0001) return "< 0.01 %";
  return (100 * share).toFixed(share < 0.1 || share > 0.999 ? 2 : 1) + " %";
}
export const count = (number, one, several = one + "s") => `${whole(number)} ${number === 1 ? one : several}`;

export function bar(share) {
  return el("span", { class: "bar", "aria-hidden": "true" }, el("i", { style: { width: 100 * Math.max(0, Math.min(1, share)) + "%" } }));
}
export function bars(caption, rows) { // rows: [{name, share, best}]
  const lines = rows.map(({ name, share, best }) =>
    el("tr", { class: best ? "best" : null }, el("th", { scope: "row", title: name }, name), el("td", {}, bar(share)), el("td", { class: "number" }, percent(share))));
  return el("table", { class: "bars" }, caption ? el("caption", {}, caption) : null, el("tbody", {}, lines));
}

// Server offsets count characters as Python does (code points); JavaScript's strings count UTF-16 units.
export const characters = (text) => Array.from(text);
export const cut = (letters, start, end) => letters.slice(start, end).join("");

export const isSpecial = (token) => /^\[[A-Z]+\]$/.test(token);
export const piece = (token, segment) => el("span", { class: `piece ${isSpecial(token) ? "" : segment ? "b" : "a"}`, title: token }, token);

export const darkMode = matchMedia("(prefers-color-scheme: dark)");
const STOPS = {
  light: [[255, 255, 255], [198, 219, 239], [74, 138, 201], [8, 48, 107]],
  dark: [[27, 30, 37], [33, 66, 105], [78, 146, 214], [224, 240, 255]],
};
function ramp(stops) { // 256 colours between the stops
  return Array.from({ length: 256 }, (_, index) => {
    const place = (index / 255) * (stops.length - 1), low = Math.min(stops.length - 2, Math.floor(place));
    return stops[low].map((value, channel) => Math.round(value + (stops[low + 1][channel] - value) * (place - low)));
  });
}
const RAMPS = { light: ramp(STOPS.light), dark: ramp(STOPS.dark) };
export const heat = (share) => RAMPS[darkMode.matches ? "dark" : "light"][Math.round(255 * Math.max(0, Math.min(1, share)))];
export const css = ([red, green, blue]) => `rgb(${red} ${green} ${blue})`;
export const inkOn = ([red, green, blue]) => (red * 0.3 + green * 0.59 + blue * 0.11 > 140 ? "#14161b" : "#ffffff");
export const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export function sizeCanvas(canvas, width, height) { // in CSS pixels, sharp on dense screens
  const density = Math.min(2, devicePixelRatio || 1);
  Object.assign(canvas, { width: width * density, height: height * density });
  Object.assign(canvas.style, { width: width + "px", height: height + "px" });
  const context = canvas.getContext("2d");
  context.scale(density, density);
  return context;
}
