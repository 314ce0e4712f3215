// Tiles, controls, claims, and the tables with the provenance of each cell.

const VERDICTS = { holds: ["holds", "good"], fails: ["fails", "bad"], "not enough data": ["unknown", "open"] };

function tiles() {
  const s = setup(), count = (verdict) => s.claims.filter((c) => c.verdict === verdict).length;
  const tile = (value, words, kind = "") => el("div", { class: `tile ${kind}` }, el("b", {}, String(value)), el("span", {}, words));
  return [tile(s.agents.toLocaleString("en"), "agents trained"), tile(s.cells.length, "cells"), tile((s.agents * s.episodes).toLocaleString("en"), "episodes"),
    tile(count("holds"), "claims hold", "good"), tile(count("fails"), "fail", "bad"), tile(count("not enough data"), "need data", "open")];
}

function mainControls() {
  const backbones = unique(setup().cells.map((c) => c.backbone));
  return [
    selectControl("Setup", "setup", DATA.setups.map((s) => [s.key, s.title]), "wide"),
    segments("Backbone", "backbone", backbones.map((b) => [b, b.toUpperCase()])),
    selectControl("Task", "task", tasksOf(state.backbone).map((t) => [t, t])),
  ];
}

function claimsSection() {
  const mark = { true: ["✓", "yes"], false: ["✗", "no"], null: ["·", "open"] };
  const claim = (c) => el("details", { class: "claim" },
    el("summary", {}, el("span", { class: `chip ${VERDICTS[c.verdict][0]}` }, c.verdict), el("span", {}, c.text)),
    el("ul", { class: "checks" }, c.checks.map(([text, ok]) => el("li", {}, el("span", { class: mark[String(ok)][1] }, mark[String(ok)][0]), text))));
  return section("claims", "What the paper claims, and what was found",
    "Each claim is taken apart into comparisons of means; a comparison counts once both sides have five seeds. A claim fails as soon as one of its comparisons does.",
    el("div", {}, setup().claims.map(claim)));
}

// --- the tables ---------------------------------------------------------------------------------------------------

function tableMethods() {
  const there = cellsOf((c) => c.backbone === state.backbone && c.published && c.method !== "scalarization");
  const others = unique(there.map((c) => c.method)).filter((m) => !DATA.table.includes(m));
  return [...DATA.table, ...others].filter((m) => there.some((c) => c.method === m));
}

function bestOf(task, measure) {
  if (measure === "length") return null;
  const cells = DATA.table.map((m) => published(state.backbone, task, m)).filter((c) => c && c.values[measure]);
  const sign = measure === "return" ? -1 : 1;
  return cells.length > 1 ? cells.reduce((a, b) => (sign * b.values[measure][0] < sign * a.values[measure][0] ? b : a)) : null;
}

function spreadText([mean, overSeeds, pooled, , low, high], measure) {
  if (state.spread === "interval") return low === null ? "" : `${three(low)}${low < 0 ? " … " : "–"}${three(high)}`;
  const value = state.spread === "seeds" ? overSeeds : pooled;
  return value === null ? "" : `(${number(value, measure, mean)})`;
}

function tableCell(cell, measure, best) {
  const values = cell && cell.values[measure];
  if (!values) return el("td", { class: "gap", "data-has": "no" }, "–");
  const notes = (cell.seeds.length === 5 ? "" : ` n=${cell.seeds.length}`) + (cell.frozen.length ? " †" : "");
  const paper = state.paper === "yes" && cell.paper[measure];
  return el("td", { "data-has": "yes" }, el("button", { type: "button", class: cell === best ? "cell best" : "cell", title: "Seeds, versions and command", onclick: () => showCell(cell) },
    el("b", {}, number(values[0], measure)), el("small", {}, spreadText(values, measure) + notes || "one seed"),
    paper ? el("small", { class: "paper" }, `${number(paper[0], measure)} (${number(paper[1], measure, paper[0])})`) : null));
}

function tableSection() {
  const measures = state.pair.split(","), tasks = tasksOf(state.backbone), methods = tableMethods();
  const head = [el("tr", {}, el("th"), tasks.map((t) => el("th", { class: "task", colspan: measures.length }, t))),
    el("tr", {}, el("th", {}, "Method"), tasks.flatMap(() => measures.map((m) => el("th", {}, DATA.measures[m] + (m === "return" ? " ↑" : m === "length" ? "" : " ↓")))))];
  const best = Object.fromEntries(tasks.flatMap((t) => measures.map((m) => [`${t} ${m}`, bestOf(t, m)])));
  const row = (method) => el("tr", { class: method === "damper" ? "ours" : "" },
    el("td", { class: "name" }, dot(method), cellsOf((c) => c.method === method && c.backbone === state.backbone)[0].title),
    tasks.flatMap((t) => measures.map((m) => tableCell(published(state.backbone, t, method), m, best[`${t} ${m}`]))));
  const main = methods.filter((m) => DATA.table.includes(m)), others = methods.filter((m) => !DATA.table.includes(m));
  const divider = el("tr", { class: "group" }, el("td", { colspan: 1 + tasks.length * measures.length }, "Beyond the table: ablations, the PEGrad-based baseline and others"));
  const spread = { interval: "95 % bootstrap interval over seeds", seeds: "standard deviation over seeds", pooled: "standard deviation over all episodes" }[state.spread];
  return section("table", `${state.backbone.toUpperCase()} results`,
    `Mean, ${spread}${state.paper === "yes" ? "; in italics what the paper prints" : ""}. The best of the seven methods is coloured; † marks a cell with a diverged seed. Choose a cell to see its seeds, versions and command.`,
    el("div", { class: "controls" },
      segments("Measures", "pair", [["return,smoothness", "return, sm"], ["mean_change,spectral_roughness", "|Δa|, roughness"], ["length", "length"]]),
      segments("Spread", "spread", [["interval", "95 %"], ["seeds", "over seeds"], ["pooled", "pooled"]]),
      segments("The paper's", "paper", [["yes", "show"], ["no", "hide"]])),
    methods.length ? el("div", { class: "scroll" }, el("table", {}, el("thead", {}, head), el("tbody", {}, main.map(row), others.length ? [divider, others.map(row)] : []))) : nothing("No cell of this backbone yet."));
}

// --- provenance of a cell -----------------------------------------------------------------------------------------

function sourceList(source) {
  const versions = Object.entries(source.versions).map(([name, v]) => `${name} ${v}`).join(", ");
  const hardware = Object.entries(source.hardware).map(([name, v]) => `${name}: ${v}`).join(", ");
  return el("dl", {}, el("dt", {}, "command"), el("dd", {}, el("code", {}, source.command)), el("dt", {}, "commit"), el("dd", {}, el("code", {}, source.commit || "unknown")),
    el("dt", {}, "versions"), el("dd", {}, versions), el("dt", {}, "machine"), el("dd", {}, hardware));
}

function showCell(cell) {
  const dialog = document.getElementById("dialog"), body = document.getElementById("dialog-body");
  const measures = DATA.order;
  const row = (a) => el("tr", {}, el("td", { class: "text" }, String(a.seed), a.frozen === null ? "" : ` † diverged at update ${a.frozen}`),
    measures.map((m) => el("td", { class: "text" }, number(a.means[m], m))),
    el("td", { class: "text" }, a.run.steps_per_second ? `${short(a.run.steps_per_second)}/s × ${a.run.agents}` : "–"));
  const settings = Object.entries(cell.settings).map(([name, value]) => `${name} ${value}`).join(", ");
  body.replaceChildren(
    el("button", { type: "button", class: "plainbutton close", onclick: () => dialog.close() }, "Close"),
    el("h2", {}, `${cell.task}, ${cell.backbone.toUpperCase()}, ${cell.label}`), el("p", { class: "what" }, settings || "No settings of its own."),
    el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, el("th", {}, "seed"), measures.map((m) => el("th", {}, DATA.measures[m])), el("th", {}, "steps/s × agents"))), el("tbody", {}, cell.agents.map(row)))),
    ...unique(cell.agents.map((a) => a.source)).map((i) => sourceList(DATA.sources[i])));
  if (!dialog.open) dialog.showModal();
}
