// Data, state and small helpers. The state lives in the address's hash, so that a view can be linked to.
"use strict";
const DATA = JSON.parse(document.getElementById("data").textContent);
const ERRORS = [];
window.addEventListener("error", (event) => ERRORS.push(String(event.message)));

function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// --- state --------------------------------------------------------------------------------------------------------

const state = { setup: "", backbone: "td3", task: "", pair: "mean_change,return", spread: "interval", paper: "yes", curve: "mean_change,return",
  first: "plain", second: "damper", seed: "", dimension: "0", window: "200", hidden: "" };
const DEFAULTS = { ...state };

function readHash() {
  for (const part of location.hash.slice(1).split("&")) {
    const [name, value] = part.split("=");
    if (name in state && value !== undefined) state[name] = decodeURIComponent(value);
  }
}

function writeHash() {
  const changed = Object.keys(state).filter((name) => state[name] !== DEFAULTS[name]);
  const text = changed.map((name) => `${name}=${encodeURIComponent(state[name])}`).join("&");
  try { history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search); } catch { /* a sandboxed frame has no address */ }
}

function choose(changes) {
  Object.assign(state, changes);
  render();
  writeHash();
}

// --- what is there ------------------------------------------------------------------------------------------------

const setup = () => DATA.setups.find((one) => one.key === state.setup) || DATA.setups[0];
const unique = (values) => [...new Set(values)];
const cellsOf = (test) => setup().cells.filter(test);
const published = (backbone, task, method) => cellsOf((c) => c.published && c.backbone === backbone && c.task === task && c.method === method)[0];
const shown = (backbone, task) => cellsOf((c) => c.backbone === backbone && c.task === task && c.published && c.method !== "scalarization");
const hidden = () => new Set(state.hidden.split(",").filter(Boolean));
const tasksOf = (backbone) => unique(cellsOf((c) => c.backbone === backbone).map((c) => c.task));

function settle() {
  // A choice that the records do not offer falls back to one that they do.
  const pick = (value, offered, fallback) => (offered.includes(value) ? value : offered.includes(fallback) ? fallback : offered[0] ?? "");
  state.setup = setup().key;
  state.backbone = pick(state.backbone, unique(setup().cells.map((c) => c.backbone)), "td3");
  state.task = pick(state.task, tasksOf(state.backbone), "Hopper");
  const traced = tracedCells();
  state.first = pick(state.first, traced.map((c) => c.method), "plain");
  state.second = pick(state.second, traced.map((c) => c.method), "damper");
  state.seed = pick(state.seed, traceSeeds(), "");
  state.dimension = pick(state.dimension, traceDimensions(), "0");
}

const tracedCells = () => shown(state.backbone, state.task).filter((c) => c.traces.length);
const traceSeeds = () => unique(tracedCells().flatMap((c) => c.traces.map((t) => String(t.agent))));
const traceDimensions = () => [...Array(tracedCells()[0]?.traces[0].shape[1] ?? 0).keys()].map(String);

// --- words and numbers --------------------------------------------------------------------------------------------

function number(value, measure, like = value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(like); // a spread is written like its mean
  let digits = measure === "sm" ? 3 : 4;
  if (measure === "return" || measure === "length") digits = size >= 1000 ? 0 : size >= 20 ? 1 : 2;
  return value.toFixed(digits).replace(/^-(?=[0.]*$)/, "").replace("-", "−");
}

const short = (value) => (value === 0 ? "0" : Math.abs(value) >= 1e6 ? `${+(value / 1e6).toPrecision(3)}M` : Math.abs(value) >= 1e4 ? `${+(value / 1e3).toPrecision(3)}k` : String(+value.toPrecision(3)).replace("-", "−"));
const KNOWN = ["damper", "plain", "caps", "grad-caps", "asap", "l2c2", "pave", "pegrad", "unconditional-sum", "unconditional-projection", "scalarization"];
const colour = (method) => `var(--m-${KNOWN.includes(method) ? method : "other"})`;
const dot = (method) => el("span", { class: "sign" }, svg("svg", { viewBox: "-6 -6 12 12", "aria-hidden": "true" }, mark({ marker: marker(method), size: 4.2, colour: colour(method) }, 0, 0)));

// --- controls -----------------------------------------------------------------------------------------------------

function selectControl(label, name, options, extra = "") {
  const select = el("select", { "data-state": name, "aria-label": label, onchange: (event) => choose({ [name]: event.target.value }) },
    options.map(([value, text]) => el("option", { value, selected: value === state[name] }, text)));
  return el("label", { class: `control ${extra}` }, label, select);
}

function segments(label, name, options) {
  const buttons = options.map(([value, text]) => el("button", { type: "button", "data-state": name, "aria-pressed": String(value === state[name]), onclick: () => choose({ [name]: value }) }, text));
  return el("div", { class: "control", role: "group", "aria-label": label }, label, el("div", { class: "segments" }, buttons));
}

function section(id, title, what, ...children) {
  return el("section", { id }, el("h2", {}, title), el("p", { class: "what" }, what), ...children);
}

const nothing = (text) => el("p", { class: "none" }, text);

function legend(cells) {
  const off = hidden();
  const toggle = (method) => { off.has(method) ? off.delete(method) : off.add(method); choose({ hidden: [...off].join(",") }); };
  return el("div", { class: "legend" }, cells.map((c) => el("button", { type: "button", "data-state": "hidden", "aria-pressed": String(!off.has(c.method)), onclick: () => toggle(c.method) }, dot(c.method), c.label)));
}
