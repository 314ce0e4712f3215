// Sweeps over the fixed weight and over η, aggregates over tasks, times, and where everything came from.

function weightCharts(task, cells) {
  const sorted = cells.filter((c) => c.values.sm && c.values.return).sort((a, b) => a.settings.weight - b.settings.weight);
  if (!sorted.length) return null;
  const damper = published("td3", task, "damper"), moving = sorted.filter((c) => !c.mostlyConstant), best = (moving.length ? moving : sorted).reduce((a, b) => (b.values.sm[0] < a.values.sm[0] ? b : a));
  const panel = (measure, label) => {
    const point = (c) => [c.settings.weight, c.values[measure][0]];
    const band = sorted.filter((c) => c.values[measure][3] !== null).map((c) => [c.settings.weight, c.values[measure][3], c.values[measure][4]]);
    const series = [{ name: "fixed weight", colour: "var(--m-scalarization)", points: sorted.map(point), band, marker: "circle", size: 2.8, width: 1.2, labels: sorted.map((c) => c.label) },
      { name: "smoothest", colour: "var(--m-pave)", points: [point(best)], marker: "diamond", size: 5, labels: [`smoothest: ${best.label}`] }];
    const levels = damper && damper.values[measure] ? [{ y: damper.values[measure][0], colour: "var(--m-damper)" }] : [];
    return chart({ title: measure === "sm" ? task : "", series, levels, x: { label: "λ", domain: [0, 1.05], ticks: [0, 0.25, 0.5, 0.75, 1] }, y: { label }, height: 165 });
  };
  return el("div", { class: "panel" }, panel("sm", "sm"), panel("return", "return"));
}

function weightSection() {
  const cells = cellsOf((c) => c.backbone === "td3" && c.method === "scalarization"), tasks = unique(cells.map((c) => c.task));
  return section("weights", "Fixed weights against DAMPER",
    "TD3 trained on the actor's loss plus λ times the temporal loss, for up to twenty λ: means with 95 % intervals. The dashed line is DAMPER, which has no such weight. The diamond is the smoothest weight among those whose agents do not mostly hold one constant action.",
    tasks.length ? el("div", { class: "grid" }, tasks.map((t) => weightCharts(t, cells.filter((c) => c.task === t)))) : nothing("No sweep over weights on record in this setup."));
}

function etaSection() {
  const cells = cellsOf((c) => c.backbone === "td3" && c.method === "damper" && c.values.sm);
  const swept = (own) => DATA.etas.every((eta) => own.some((c) => c.settings.eta === eta)) && !own.some((c) => c.mostlyConstant);
  const tasks = unique(cells.map((c) => c.task)).filter((t) => swept(cells.filter((c) => c.task === t)));
  const what = "TD3, on tasks with every η on record and no cell in which most agents hold one constant action. First normalised as in the paper, so that 0 is a task's smoothest η and 1 its roughest; then sm itself.";
  if (!tasks.length) return section("etas", "The interpolation parameter η", what, nothing("No such sweep over η on record in this setup."));
  const lines = tasks.map((t, i) => {
    const own = cells.filter((c) => c.task === t).sort((a, b) => a.settings.eta - b.settings.eta), values = own.map((c) => c.values.sm[0]);
    const low = Math.min(...values), high = Math.max(...values), style = { name: t, colour: ["var(--m-damper)", "var(--m-pave)", "var(--m-grad-caps)", "var(--m-l2c2)", "var(--m-caps)", "var(--m-asap)"][i % 6], marker: ["circle", "square", "up", "diamond"][i % 4], size: 3.6, width: 1.9, labels: own.map((c) => `${t}, η = ${c.settings.eta}`) };
    return { style, normal: own.map((c, j) => [c.settings.eta, high > low ? (values[j] - low) / (high - low) : 0]), plain: own.map((c, j) => [c.settings.eta, values[j]]) };
  });
  const x = { label: "η", domain: [-0.03, 1.03], ticks: DATA.etas };
  return section("etas", "The interpolation parameter η", what,
    el("div", { class: "legend" }, lines.map((l) => el("span", {}, el("span", { class: "dot", style: `background:${l.style.colour}` }), l.style.name, " "))),
    el("div", { class: "grid two" }, chart({ title: "Smoothness, normalised per task", series: lines.map((l) => ({ ...l.style, points: l.normal })), x, y: { label: "normalised sm" } }),
      chart({ title: "Smoothness", series: lines.map((l) => ({ ...l.style, points: l.plain })), x, y: { label: "sm", log: true } })));
}

// --- aggregates ---------------------------------------------------------------------------------------------------

function forest(title, rows, centre, format) {
  const host = el("div", { class: "panel" }, el("h3", {}, title));
  host.draw = () => {
    while (host.lastChild.tagName !== "H3") host.lastChild.remove();
    if (!rows.length) return void host.append(nothing("No comparison yet: each side needs two seeds, and most of its agents must not hold one constant action."));
    const width = Math.max(host.clientWidth, 240), left = 84, right = 48, step = 25, height = rows.length * step + 26;
    const domain = extent([centre, ...rows.flatMap((r) => r.value)], false, 0.05), X = scale(domain, [left, width - right], false);
    const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": title });
    root.append(svg("line", { x1: X(centre), x2: X(centre), y1: 0, y2: height - 20, class: "axis", "stroke-dasharray": "3 3" }));
    rows.forEach((r, i) => {
      const y = i * step + 13, [value, low, high] = r.value;
      root.append(svg("text", { x: 0, y: y + 4 }, r.label), svg("line", { x1: X(low), x2: X(high), y1: y, y2: y, style: `stroke:${colour(r.method)}`, "stroke-width": 2.4, "stroke-linecap": "round" }), mark({ colour: colour(r.method), size: 4.4 }, X(value), y), svg("text", { x: width, y: y + 4, "text-anchor": "end" }, format(value)));
    });
    for (const v of ticks(...domain, false, 4)) root.append(svg("text", { x: X(v), y: height - 5, "text-anchor": "middle" }, format(v)));
    return void host.append(root);
  };
  LIVE.push(host);
  return host;
}

function aggregateSection() {
  const rows = setup().aggregates.filter((a) => a.backbone === state.backbone), percent = (v) => `${Math.round(100 * v)} %`.replace("-", "−");
  const names = { return: "return", sm: "sm", mean_change: "mean |Δa|" };
  const title = (a) => published(state.backbone, tasksOf(state.backbone).find((t) => published(state.backbone, t, a.method)), a.method).title;
  const panels = Object.entries(names).map(([measure, words]) => forest(`P(DAMPER better), ${words}`, rows.filter((a) => a.measure === measure && a.improvement).map((a) => ({ label: `${title(a)} (${a.tasks})`, method: a.method, value: a.improvement })), 0.5, percent));
  const change = ["return", "sm"].map((measure) => forest(`Change from ${state.backbone.toUpperCase()}, ${names[measure]}`, rows.filter((a) => a.measure === measure && a.change).map((a) => ({ label: `${title(a)} (${a.changeTasks})`, method: a.method, value: a.change })), 0, (v) => (v > 0 ? "+" : "") + percent(v)));
  return section("aggregates", `Over tasks, ${state.backbone.toUpperCase()}`,
    `P(DAMPER better) is the probability that a DAMPER seed beats a seed of the other method, averaged over the tasks that both have (their number is in brackets). The change is the interquartile mean of a method's change from plain ${state.backbone.toUpperCase()}. Bars are 95 % intervals over seeds: a score interval for the probability, a jackknife of both sides for the change.`,
    rows.some((a) => a.improvement || a.change) ? el("div", { class: "grid" }, panels, change) : nothing("Needs two seeds of DAMPER and of another method on the same task."));
}

// --- times and sources --------------------------------------------------------------------------------------------

function plainTable(header, rows) {
  return el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, header.map((h) => el("th", {}, h)))), el("tbody", {}, rows.map((row) => el("tr", {}, row.map((text) => el("td", { class: "text" }, text)))))));
}

function timeSection() {
  const speed = setup()?.speed;
  return section("times", "Time", "Milliseconds per update as measured by python -m paper bench, and how many times plain's that is, with the range of the middle nine tenths of the rounds where they were kept; then how fast populations trained.",
    DATA.cost.length ? DATA.cost.map((c) => [el("h3", {}, c.caption), plainTable(c.header, c.rows)]) : nothing("No update times on record: python -m paper bench writes them."),
    DATA.timeClaims.length ? [el("h3", { class: "code" }, "The paper's claims about time, on each machine that was measured"), el("div", {}, DATA.timeClaims.map(claimRow))] : null,
    speed ? el("details", {}, el("summary", { class: "what" }, "Training speed of the populations"), plainTable(speed.header, speed.rows)) : null);
}

function sourceSection() {
  const counts = new Map();
  for (const c of setup().cells) for (const a of c.agents) counts.set(a.source, (counts.get(a.source) || 0) + 1);
  return section("sources", "Where this came from",
    `Setup ${setup().title}, ${setup().episodes} episodes per agent. Records with other settings, budgets or simulator versions are never mixed in` + (setup().others.length ? `: ${setup().others.join("; ")}.` : "; there are none."),
    [...counts].sort((a, b) => b[1] - a[1]).map(([i, n]) => el("div", { class: "sources" }, el("h3", {}, n === 1 ? "1 agent" : `${n} agents`), sourceList(DATA.sources[i]))));
}
