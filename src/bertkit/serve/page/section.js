// One thing to try: a labelled form, a request, and its result with latency, tokens and notes.
//
// A section is described by {id, title, lead, route, button, fields, examples, request(values, model), show(answer, values, again, model)};
// `show` returns {nodes, said}: what is drawn, and the same in one sentence for those who listen.

import { el, whole } from "./drawing.js";
import { ask } from "./server.js";

export function makeSection(spec, models) {
  const fields = spec.fields.map((field) => makeField(spec, field));
  const chooser = makeChooser(spec, models);
  const submit = el("button", { class: "main" }, spec.button);
  const extras = fields.filter((field) => field.inRow).map((field) => field.node);
  const form = el("form", { "aria-label": spec.title },
    fields.filter((field) => !field.inRow).map((field) => field.node),
    el("div", { class: "row" }, submit, spec.buttons?.(() => fields), extras, chooser.node));
  const said = el("p", { class: "listen", role: "status" });
  const result = el("div", { class: "result", hidden: true });
  const node = el("section", { class: "card", id: spec.id, "aria-labelledby": spec.id + "-title", hidden: true },
    el("h2", { id: spec.id + "-title", tabindex: -1 }, spec.title), el("p", { class: "soft" }, spec.lead), form,
    makeExamples(spec, fields, form), said, result);

  const values = () => Object.fromEntries(fields.map((field) => [field.name, field.input.value]));
  let running = null;
  async function run(extra = {}) {
    running?.abort();
    const mine = (running = new AbortController()), asked = { ...values(), ...extra };
    submit.setAttribute("aria-busy", "true");
    try {
      const model = chooser.chosen(), body = { ...spec.request(asked, model), model: model.name };
      const { answer, figures } = await ask(spec.route, body, mine.signal);
      const drawn = spec.show(answer, asked, run, model);
      put(result, notes(figures), drawn.nodes, took(figures, model));
      spec.drawn?.(result, asked);
      said.textContent = drawn.said;
    } catch (error) {
      if (error.name === "AbortError") return;
      said.textContent = "";
      put(result, el("p", { class: "error", role: "alert" }, error.message));
    } finally {
      if (running === mine) submit.removeAttribute("aria-busy");
    }
  }
  form.addEventListener("submit", (event) => { event.preventDefault(); run(); });
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); form.requestSubmit(); }
  });
  return { id: spec.id, title: spec.title, short: spec.short ?? spec.title, node };
}

function put(result, ...children) {
  result.hidden = false;
  result.replaceChildren(el("div", {}, ...children));
}

function makeField(spec, field) {
  const id = `${spec.id}-${field.name}`;
  if (field.choices) {
    const input = el("select", { id }, field.choices.map((choice) => el("option", { value: choice }, choice)));
    return { name: field.name, input, inRow: true, node: el("label", { for: id }, field.label, input) };
  }
  const common = { id, required: !field.optional, spellcheck: "false", autocomplete: "off" };
  const input = field.rows ? el("textarea", { ...common, rows: field.rows }) : el("input", { ...common, type: "text" });
  input.value = spec.examples[0]?.[field.name] ?? "";
  const label = el("label", { for: id }, field.label, field.hint ? [" ", el("span", { class: "hint" }, field.hint)] : null);
  return { name: field.name, input, node: el("div", { class: "field" }, label, input) };
}

function makeChooser(spec, models) {
  const select = el("select", { id: spec.id + "-model" }, models.map((model) => el("option", { value: model.name }, model.name)));
  const node = models.length > 1 ? el("label", { for: select.id }, "Model", select) : null;
  return { node, chosen: () => models[Math.max(0, select.selectedIndex)] };
}

function makeExamples(spec, fields, form) {
  if (spec.examples.length < 2) return null;
  const use = (example) => {
    fields.filter((field) => !field.inRow).forEach((field) => { field.input.value = example[field.name] ?? ""; });
    form.requestSubmit();
  };
  return el("div", { class: "examples", role: "group", "aria-label": "Examples" }, el("span", { class: "soft" }, "Examples:"),
    spec.examples.map((example) => el("button", { type: "button", onclick: () => use(example) }, example.title)));
}

function notes(figures) { // nothing is cut or split in silence
  const lines = [];
  if (figures.truncated) lines.push("The text is longer than this model reads: a part of it was left out.");
  if (figures.windows) lines.push("The text is longer than this model reads at once: it was read in windows" + (figures.truncated ? "." : ", and nothing was left out."));
  return lines.map((line) => el("p", { class: "note" }, line));
}

function took({ total, server, tokens }, model) {
  const time = (ms) => (ms < 10 ? ms.toFixed(1) : whole(ms)) + " ms";
  const parts = [el("span", {}, el("b", {}, time(total)), " in all")];
  if (server !== null) parts.push(el("span", {}, el("b", {}, time(server)), " on the server"));
  if (tokens !== null) parts.push(el("span", {}, el("b", {}, whole(tokens)), tokens === 1 ? " token" : " tokens"));
  parts.push(el("span", {}, model.name));
  return el("p", { class: "figures" }, parts.flatMap((part, index) => (index ? [" · ", part] : [part])));
}
