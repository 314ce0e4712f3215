// Return against smoothness, learning curves, action traces with spectra, and what the gradients did.

const visible = (cells) => cells.filter((c) => !hidden().has(c.method));

function frontSection() {
  const backbone = state.backbone, tasks = tasksOf(backbone);
  const everyone = unique(tasks.flatMap((t) => shown(backbone, t).map((c) => c.method))).map((m) => cellsOf((c) => c.method === m && c.published && c.backbone === backbone)[0]);
  return section("fronts", "Return against smoothness",
    "Small points are seeds, large points means, hollow points the paper's means. Up and left is better; sm below 0.01 is drawn at the edge. The line joins the means that no other method beats in both measures; methods most of whose agents hold one constant action are left out of it.",
    legend(everyone), el("div", { class: "grid" }, tasks.map((t) => frontChart(t, visible(shown(backbone, t))))));
}

function front(points) {
  const kept = [];
  for (const p of [...points].sort((a, b) => b[1] - a[1] || a[0] - b[0])) if (!kept.length || p[0] < kept[kept.length - 1][0]) kept.push(p);
  return kept;
}

function frontChart(task, cells) {
  const both = cells.filter((c) => c.values.return && c.values.sm);
  const edge = (sm) => Math.max(sm, 0.01); // a policy that does nothing is as smooth as rounding lets it
  const means = both.map((c) => [edge(c.values.sm[0]), c.values.return[0]]);
  const moving = means.filter((_, i) => !both[i].mostlyConstant);
  const series = [{ name: "front", colour: "var(--faint)", points: front(moving), dash: "2 3", width: 1.4 }];
  both.forEach((c, i) => {
    const shape = marker(c.method), seeds = c.agents.filter((a) => a.means.sm !== null && a.means.return !== null);
    series.push({ name: c.label, colour: colour(c.method), points: seeds.map((a) => [edge(a.means.sm), a.means.return]), line: false, marker: shape, size: 2.4, faint: true, labels: seeds.map((a) => `${c.label}, seed ${a.seed}`) });
    if (state.paper === "yes" && c.paper.return && c.paper.sm) series.push({ name: `${c.label}, the paper's`, colour: colour(c.method), points: [[edge(c.paper.sm[0]), c.paper.return[0]]], line: false, marker: shape, size: 3.6, hollow: true });
    series.push({ name: c.label, colour: colour(c.method), points: [means[i]], line: false, marker: shape, size: 4.6 });
  });
  return chart({ title: task, series, x: { label: "sm", log: true, pad: 0.08 }, y: { label: "return" }, height: 230 });
}

// --- learning curves ----------------------------------------------------------------------------------------------

const CURVES = { mean_change: "mean |Δa|", return: "return", sm: "sm", length: "episode length" };

// Shades of many methods hide each other: beyond three, plain's and DAMPER's remain.
function curveChart(name, cells) {
  const drawn = cells.filter((c) => c.curve[name]), strong = (c) => drawn.length <= 3 || c.method === "damper" || c.method === "plain";
  const series = drawn.map((c) => {
    const [mean, low, high] = c.curve[name];
    const points = c.curve.step.map((s, i) => [s, mean[i]]).filter((p) => p[1] !== null);
    const band = low && strong(c) ? c.curve.step.map((s, i) => [s, low[i], high[i]]).filter((p) => p[1] !== null) : [];
    return { name: c.label, colour: colour(c.method), points, band, width: strong(c) ? 2.4 : 1.3 };
  });
  return { series, x: { label: "step" }, byX: true };
}

function curveSection() {
  const cells = shown(state.backbone, state.task);
  const panels = state.curve.split(",").map((name) => chart({ ...curveChart(name, visible(cells)), title: CURVES[name], y: { label: CURVES[name], log: name === "sm" || name === "mean_change" }, height: 260 }));
  return section("curves", `Learning curves: ${state.task}, ${state.backbone.toUpperCase()}`,
    "Training episodes: the return includes exploration noise, smoothness is that of the policy's own actions. Lines are means over seeds, shades their range. With more than three methods only plain and DAMPER have shades: click methods away to see those of others.",
    el("div", { class: "controls" }, segments("Show", "curve", [["mean_change,return", "|Δa| and return"], ["sm,length", "sm and length"]])),
    legend(cells), el("div", { class: "grid two" }, panels));
}

// --- action traces ------------------------------------------------------------------------------------------------

// Both are slow enough to be worth remembering: a spectrum is a plain sum over all pairs of step and frequency.
const REMEMBERED = new Map();
function remember(key, make) {
  if (!REMEMBERED.has(key)) REMEMBERED.set(key, make());
  return REMEMBERED.get(key);
}

function unpack(trace) {
  const text = atob(trace.data), [steps, dims] = trace.shape, out = [];
  for (let d = 0; d < dims; d++) {
    const row = new Float64Array(steps), span = trace.high[d] - trace.low[d];
    for (let t = 0; t < steps; t++) {
      const at = 2 * (d * steps + t);
      let level = text.charCodeAt(at) | (text.charCodeAt(at + 1) << 8);
      if (level > 32767) level -= 65536;
      row[t] = trace.low[d] + (level / 65534 + 0.5) * span;
    }
    out.push(row);
  }
  return out;
}

function spectrum(row) {
  const T = row.length, bins = Math.floor(T / 2), out = [];
  for (let k = 0; k <= bins; k++) {
    let re = 0, im = 0;
    for (let t = 0; t < T; t++) { const a = (2 * Math.PI * ((k * t) % T)) / T; re += row[t] * Math.cos(a); im -= row[t] * Math.sin(a); }
    const weight = k === 0 || (k === bins && T % 2 === 0) ? 1 : 2;
    out.push([k / T, (weight * Math.hypot(re, im)) / T]);
  }
  return out.slice(1); // the mean is no motion
}

function variation(rows) {
  const out = [];
  for (let t = 1; t < rows[0].length; t++) out.push([t, Math.sqrt(rows.reduce((sum, row) => sum + (row[t] - row[t - 1]) ** 2, 0))]);
  return out;
}

function traceSection() {
  const traced = tracedCells(), title = `Actions: ${state.task}, ${state.backbone.toUpperCase()}`;
  const what = "The first evaluation episode of one training seed: the action sent to the environment, the amplitude spectrum of its motion, and how far it moves per step, ‖aₜ − aₜ₋₁‖.";
  if (!traced.length) return section("traces", title, what, nothing("No action trace on record for this task and backbone."));
  const options = traced.map((c) => [c.method, c.label]), dims = traceDimensions();
  const chosen = unique([state.first, state.second]).map((m) => traced.find((c) => c.method === m)).filter(Boolean)
    .map((c) => ({ c, trace: c.traces.find((t) => String(t.agent) === state.seed) || c.traces[0] })).map((o) => ({ ...o, rows: remember(o.trace, () => unpack(o.trace)) }));
  const d = Number(state.dimension), length = state.window === "all" ? Infinity : Number(state.window);
  const line = (o, points, extra) => ({ name: `${o.c.label}, seed ${o.trace.agent}`, colour: colour(o.c.method), points, width: 1.2, ...extra });
  const window = (o) => [...o.rows[d]].slice(0, length).map((v, t) => [t, v]);
  const bounds = [Math.min(...chosen.map((o) => o.trace.low[d])), Math.max(...chosen.map((o) => o.trace.high[d]))], range = bounds[1] - bounds[0];
  const domain = [bounds[0] - 0.06 * range, bounds[1] + 0.06 * range], levels = bounds.map((y) => ({ y, colour: "var(--faint)" }));
  const traces = chosen.map((o) => chart({ title: o.c.label, series: [line(o, window(o), { step: true })], x: { label: "step" }, y: { label: `action ${d + 1}`, domain }, levels, height: 170, byX: true }));
  const shared = { byX: true, height: 220 };
  return section("traces", title, what,
    el("div", { class: "controls" }, selectControl("Method", "first", options), selectControl("compared with", "second", options), selectControl("seed", "seed", traceSeeds().map((s) => [s, s])),
      dims.length > 1 ? selectControl("dimension", "dimension", dims.map((v) => [v, String(Number(v) + 1)])) : null, segments("Steps", "window", [["200", "first 200"], ["all", "all"]])),
    el("div", { class: "grid two" }, traces,
      chart({ title: "Spectrum", series: chosen.map((o) => line(o, remember(o.rows[d], () => spectrum(o.rows[d])).map(([f, a]) => [f, Math.max(a / range, 1e-4)]), {})), x: { label: "cycles per step" }, y: { label: "share of range", log: true, domain: [1e-4, 1] }, ...shared }),
      chart({ title: "Movement per step", series: chosen.map((o) => line(o, variation(o.rows), {})), x: { label: "step" }, y: { label: "‖Δa‖" }, ...shared })));
}

// --- gradients ----------------------------------------------------------------------------------------------------

const GRADIENTS = { conflict: ["Share of updates in conflict", "share"], cosine: ["Cosine of the two gradients", "cosine"], norm_ratio: ["Norm of the temporal gradient over the actor's", "ratio"], weight: ["Weight w of the temporal direction", "w"] };

function gradientSection() {
  const cells = shown(state.backbone, state.task).filter((c) => Object.keys(GRADIENTS).some((name) => c.curve[name]));
  const title = `What the gradients did: ${state.task}, ${state.backbone.toUpperCase()}`, what = "Methods whose two gradients were recorded. Each point is a mean over seeds and over the updates since the point before.";
  if (!cells.length) return section("gradients", title, what, nothing("No method here has its two gradients on record."));
  const panels = Object.entries(GRADIENTS).map(([name, [words, label]]) => chart({ ...curveChart(name, visible(cells)), title: words, y: { label, log: name === "norm_ratio" }, height: 200 }));
  return section("gradients", title, what, legend(cells), el("div", { class: "grid two" }, panels));
}
