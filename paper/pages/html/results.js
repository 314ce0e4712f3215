// Tiles, controls, claims, and the tables with the provenance of each cell.

const VERDICTS = { holds: ["holds", "✓"], "better than claimed": ["better", "✓"], leans: ["leans", "~"], "leans against": ["against", "≁"], "constant actions": ["constant", "="], fails: ["fails", "✗"], "not enough data": ["unknown", "·"], "not judged": ["unknown", "·"] };

function tiles() {
  const s = setup(), count = (verdict) => s.claims.filter((c) => c.verdict === verdict).length;
  const tile = (value, words, kind = "") => el("div", { class: `tile ${kind}` }, el("b", {}, String(value)), el("span", {}, words));
  const claims = [["holds", "good"], ["better than claimed", "good"], ["leans", "open"], ["leans against", "open"], ["constant actions", "bad"], ["fails", "bad"], ["not enough data"]];
  const rare = ["better than claimed", "constant actions"];  // shown only where there are some
  return [tile(s.agents.toLocaleString("en"), "agents trained"), tile(s.cells.length, "cells"), tile((s.agents * s.episodes).toLocaleString("en"), "episodes"),
    ...(s.claims.length ? claims.filter(([verdict]) => count(verdict) || !rare.includes(verdict)).map(([verdict, kind]) => tile(count(verdict), `claims: ${verdict}`, kind)) : [])];
}

function mainControls() {
  const backbones = unique(setup().cells.map((c) => c.backbone));
  return [
    selectControl("Setup", "setup", DATA.setups.map((s) => [s.key, s.title]), "wide"),
    segments("Backbone", "backbone", backbones.map((b) => [b, b.toUpperCase()])),
    selectControl("Task", "task", tasksOf(state.backbone).map((t) => [t, t])),
  ];
}

function chip(claim, where = "") {
  return el("span", { class: `chip ${VERDICTS[claim.verdict][0]}` }, where ? el("small", {}, where) : null, claim.verdict);
}

function checkList(title, checks) {
  const row = ([text, verdict]) => el("li", {}, el("span", { class: VERDICTS[verdict][0], title: verdict }, VERDICTS[verdict][1]), text);
  return [title ? el("h3", { class: "checks-title" }, title) : null, el("ul", { class: "checks" }, checks.map(row))];
}

function knownChecks(checks) {
  const words = Object.keys(VERDICTS).map((w) => [w, checks.filter(([, verdict]) => verdict === w).length]).filter(([w, n]) => n && !w.startsWith("not "));
  return words.length && words.reduce((sum, [, n]) => sum + n, 0) < checks.length ? `so far, of ${checks.length} comparisons: ${words.map(([w, n]) => `${w} ${n}`).join(", ")}` : "";
}

function claimRow(claim) {
  const one = claim.one, eta = `η = ${DATA.oneEta.eta}`;
  return el("details", { class: "claim" },
    el("summary", {}, el("span", { class: "chips" }, chip(claim), one ? chip(one, eta) : null), el("span", {}, claim.text, [claim.note, knownChecks(claim.checks)].map((words) => el("small", { class: "known" }, words)))),
    checkList(one ? "With the paper's η" : "", claim.checks), one ? checkList(`With ${eta} everywhere`, one.checks) : null);
}

function meanings() {
  const rows = Object.keys(VERDICTS).map((verdict) => [el("dt", {}, chip({ verdict })), el("dd", {}, DATA.meanings[verdict])]);
  return el("details", { class: "what" }, el("summary", {}, "What the verdicts mean"), el("dl", {}, rows), el("p", {}, DATA.caution.replaceAll("*", "")));
}

// Nothing where no claim has a comparison with enough seeds: tasks of one's own, say.
function claimsSection() {
  return !setup().claims.length ? [] : section("claims", "What the paper claims, and what was found",
    `A claim is split into comparisons of means over five seeds or more, and is as good as its worst one: open a claim to see them. The paper chooses η per task and backbone. A second verdict is that with η = ${DATA.oneEta.eta} on every task, where that changes what is compared.`,
    meanings(), el("div", {}, setup().claims.map(claimRow)));
}

// --- the tables ---------------------------------------------------------------------------------------------------

function tableMethods() {
  const there = cellsOf((c) => c.backbone === state.backbone && c.published && c.method !== "scalarization");
  const others = unique(there.map((c) => c.method)).filter((m) => !DATA.table.includes(m));
  return [...DATA.table, ...others].filter((m) => there.some((c) => c.method === m));
}

function spreadOf([mean, overSeeds, pooled, low, high], measure) {
  if (state.spread === "interval") return low === null ? "" : `${number(low, measure, mean)}${low < 0 ? "…" : "–"}${number(high, measure, mean)}`;
  const value = state.spread === "seeds" ? overSeeds : pooled;
  return value === null ? "" : `(${number(value, measure, mean)})`;
}

// Every seed as a dot on the scale of the column's main rows (what lies beyond stands at the edge), the median as a stroke: one seed can carry a mean.
function seedStrip(cell, measure, [low, high]) {
  const X = (value) => 4 + 72 * Math.min(1, Math.max(0, (value - low) / (high - low || 1))), values = seedValues(cell, measure);
  const root = svg("svg", { viewBox: "0 0 80 10", class: "strip", role: "img", "aria-label": `seeds: ${values.map((v) => number(v, measure)).join(", ")}` });
  const median = X(cell.values[measure][5]);
  root.append(svg("line", { x1: median, x2: median, y1: 0, y2: 10 }), ...values.map((v) => svg("circle", { cx: X(v), cy: 5, r: 2.1, style: `fill:${colour(cell.method)}` })));
  return root;
}

const seedValues = (cell, measure) => cell.agents.map((a) => a.means[measure]).filter((v) => v !== null);

function tableCell(cell, measure, domain) {
  const values = cell && cell.values[measure];
  if (!values) return el("td", { class: "gap", "data-has": "no" }, "–");
  const seeds = seedValues(cell, measure).length, notes = (seeds === 5 ? "" : ` n=${seeds}`) + (cell.frozen.length ? " †" : "");
  const paper = state.paper === "yes" && cell.paper[measure], several = seeds > 1;
  return el("td", { "data-has": "yes" }, el("button", { type: "button", class: cell.best.includes(measure) ? "cell best" : "cell", title: "Seeds, versions and command", onclick: () => showCell(cell) },
    el("b", {}, number(values[0], measure)), el("small", {}, spreadOf(values, measure) + notes || (several ? "" : "one seed")),
    cell.constant.length ? el("small", { class: "flag" }, `constant, ${cell.constant.length} of ${cell.seeds.length}`) : null,
    several ? el("small", {}, `med. ${number(values[5], measure, values[0])}`) : null, several ? seedStrip(cell, measure, domain) : null,
    paper ? el("small", { class: "paper" }, `${number(paper[0], measure)} (${number(paper[1], measure, paper[0])})`) : null));
}

function tableRows() {
  const row = (method) => ({ method, label: cellsOf((c) => c.method === method && c.backbone === state.backbone)[0].title, cell: (task) => published(state.backbone, task, method) });
  const at = (task) => cellsOf((c) => c.oneEta && c.backbone === state.backbone && c.task === task)[0];
  const one = { method: "damper", label: DATA.oneEta.label, cell: at }, methods = tableMethods();
  const main = methods.filter((m) => DATA.table.includes(m)).map(row), others = methods.filter((m) => !DATA.table.includes(m)).map(row);
  return { main: tasksOf(state.backbone).some((t) => at(t)) ? [...main, one] : main, others };
}

function tableSection() {
  const measures = state.pair.split(","), tasks = tasksOf(state.backbone), { main, others } = tableRows();
  const head = [el("tr", {}, el("th"), tasks.map((t) => el("th", { class: "task", colspan: measures.length }, t))),
    el("tr", {}, el("th", {}, "Method"), tasks.flatMap(() => measures.map((m) => el("th", {}, DATA.measures[m] + (m === "return" ? " ↑" : m === "length" ? "" : " ↓")))))];
  const columns = tasks.flatMap((t) => measures.map((m) => {
    const seeds = (main.length ? main : others).map((r) => r.cell(t)).filter(Boolean).flatMap((c) => seedValues(c, m));
    return { t, m, domain: [Math.min(...seeds), Math.max(...seeds)] };
  }));
  const row = (r) => el("tr", { class: r.method === "damper" ? "ours" : "" }, el("td", { class: "name" }, dot(r.method), r.label),
    columns.map(({ t, m, domain }) => tableCell(r.cell(t), m, domain)));
  const divider = el("tr", { class: "group" }, el("td", { colspan: 1 + columns.length }, "Not in the paper's main tables: ablations, the PEGrad-based baseline and others"));
  const spread = { interval: "95 % interval over seeds (Student's t)", seeds: "standard deviation over seeds", pooled: "standard deviation over all episodes" }[state.spread];
  const code = Object.entries(setup().code[state.backbone]).map(([task, text]) => el("li", { class: text.includes("⚠") ? "flag" : "" }, `${task}: ${text}`));
  return section("table", `${state.backbone.toUpperCase()} results`,
    `Each cell shows the mean, its ${spread}, the median, and every seed as a dot, with the median as a stroke${state.paper === "yes" ? "; in italics is what the paper prints" : ""}. The best mean (ties too) among cells of five seeds or more is coloured. † marks a diverged seed, and "constant" agents that hold one action throughout an episode; a cell with such agents is never the best in smoothness. Intervals are conditional on the ten fixed starts that all policies see. Click a cell to see its seeds, versions and command.`,
    el("div", { class: "controls" },
      segments("Measures", "pair", [["mean_change,return", "|Δa|, return"], ["sm,spectral_roughness", "sm, roughness"], ["length", "length"]]),
      segments("Spread", "spread", [["interval", "95 %"], ["seeds", "over seeds"], ["pooled", "pooled"]]),
      segments("The paper's", "paper", [["yes", "show"], ["no", "hide"]])),
    main.length + others.length ? el("div", { class: "scroll" }, el("table", {}, el("thead", {}, head), el("tbody", {}, main.map(row), others.length ? [divider, others.map(row)] : []))) : nothing("No cell of this backbone yet."),
    code.length ? [el("h3", { class: "code" }, "Code that trained these agents"), el("ul", { class: "code" }, code)] : null);
}

// --- provenance of a cell -----------------------------------------------------------------------------------------

function sourceList(source) {
  const versions = Object.entries(source.versions).map(([name, v]) => `${name} ${v}`).join(", ");
  const hardware = Object.entries(source.hardware).map(([name, v]) => `${name}: ${v}`).join(", ");
  return el("dl", {}, el("dt", {}, "command"), el("dd", {}, el("code", {}, source.command)), el("dt", {}, "code"), el("dd", { class: /uncommitted|unknown| then /.test(source.code) ? "flag" : "" }, source.code, source.commit ? ["; commit ", el("code", {}, source.commit)] : ""),
    el("dt", {}, "versions"), el("dd", {}, versions), el("dt", {}, "machine"), el("dd", {}, hardware));
}

function showCell(cell) {
  const dialog = document.getElementById("dialog"), body = document.getElementById("dialog-body");
  const measures = DATA.order;
  const row = (a) => el("tr", {}, el("td", { class: "text" }, String(a.seed), a.frozen === null ? "" : ` † diverged at update ${a.frozen}`, cell.constant.includes(a.seed) ? ", constant action" : ""),
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
