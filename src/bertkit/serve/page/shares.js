// Shares as percentages and as rows of bars, and counts of things in words.

import { bar, el, whole } from "./drawing.js";

export function percent(share) {
  if (share > 0 && share < 0.0001) return "< 0.01 %";
  return (100 * share).toFixed(share < 0.1 || share > 0.999 ? 2 : 1) + " %";
}
export const count = (number, one, several = one + "s") => `${whole(number)} ${number === 1 ? one : several}`;

export function bars(caption, rows) { // rows: [{name, share, best}]
  const lines = rows.map(({ name, share, best }) =>
    el("tr", { class: best ? "best" : null }, el("th", { scope: "row", title: name }, name), el("td", {}, bar(share)), el("td", { class: "number" }, percent(share))));
  return el("table", { class: "bars" }, caption ? el("caption", {}, caption) : null, el("tbody", {}, lines));
}
