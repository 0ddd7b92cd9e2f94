// Ask the server what its models can do, and offer that: one section at a time, named in the address.

import { attention } from "./attention.js";
import { byId, el, whole } from "./drawing.js";
import { answer, entities } from "./passages.js";
import { makeSection } from "./section.js";
import { info, useKey } from "./server.js";
import { count } from "./shares.js";
import { classify, compare, fillMask, nextSentence } from "./texts.js";
import { words } from "./words.js";

const ALL = [fillMask, compare, words, nextSentence, classify, entities, answer, attention];
const can = (model, { route }) => model.can.includes(route);

function offer(models) {
  const sections = ALL.map((spec) => ({ spec, able: models.filter((model) => can(model, spec)) }))
    .filter(({ able }) => able.length).map(({ spec, able }) => makeSection(spec, able));
  byId("panels").replaceChildren(...sections.map(({ node }) => node));
  byId("sections").replaceChildren(...sections.map(({ id, short }) => el("li", {}, el("a", { href: "#" + id, onclick: (event) => again(event, id) }, short))));
  return sections;
}

function choose(sections, byHand) { // by the address; a heading takes the focus after a choice
  const named = location.hash.slice(1), found = sections.find(({ id }) => id === named) ?? sections[0];
  if (named === "main") return;
  for (const { id, node } of sections) node.hidden = id !== found.id;
  for (const link of byId("sections").querySelectorAll("a")) {
    if (link.hash === "#" + found.id) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  dispatchEvent(new Event("resize")); // figures that were hidden could not know their width
  document.title = `${found.title} · bertkit`;
  if (byHand) found.node.querySelector("h2").focus();
}

function again(event, id) { // the section that is shown already: the address does not change, the focus does
  if (location.hash !== "#" + id) return;
  event.preventDefault();
  choose(sections, true);
}

function tell(models, version) {
  byId("serving").textContent = models.length === 1 ? `serving ${models[0].name}` : `serving ${count(models.length, "model")}`;
  const names = ["model", "layers", "heads", "width", "longest text", "vocabulary", "labels"];
  const rows = models.map((model) => el("tr", {}, el("th", { scope: "row" }, model.name),
    [model.num_layers, model.num_heads, model.hidden_size, count(model.max_input_length, "token"), whole(model.vocab_size)].map((value) => el("td", {}, value)),
    el("td", {}, model.labels.join(", "))));
  byId("models").replaceChildren(el("table", {}, el("thead", {}, el("tr", {}, names.map((name) => el("th", { scope: "col" }, name)))), el("tbody", {}, rows)),
    el("p", {}, `bertkit ${version}`));
  byId("facts").hidden = false;
}

function fail(box, message) {
  byId(box).textContent = message;
  byId(box).hidden = false;
}

let sections = [];
async function start(tried = false) {
  try {
    const found = await info();
    byId("key").hidden = byId("failure").hidden = true;
    sections = offer(found.models);
    tell(found.models, found.version);
    if (sections.length) choose(sections, tried);
    else fail("failure", "None of the models served here can do anything that this page shows.");
  } catch (error) {
    byId("serving").textContent = "";
    if (error.status !== 401 && error.status !== 403) { fail("failure", error.message); return; }
    byId("key").hidden = false;
    if (tried) fail("key-error", error.message);
    byId("key-text").focus();
  }
}

addEventListener("hashchange", () => { if (sections.length) choose(sections, true); });
byId("key").addEventListener("submit", (event) => { event.preventDefault(); useKey(byId("key-text").value); start(true); });
start();
