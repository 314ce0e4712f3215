// One chart for everything: lines with bands, points, dashed levels; linear or logarithmic axes.

// Each method's marker, as in the figures (report/figures/style.py), within [-1, 1]².
const MARKERS = { damper: "circle", plain: "square", caps: "up", "grad-caps": "diamond", asap: "down", l2c2: "plus", pave: "cross",
  pegrad: "left", "unconditional-sum": "right", "unconditional-projection": "hexagon", scalarization: "pentagon" };
const SHAPES = { square: [[-1, -1], [1, -1], [1, 1], [-1, 1]], up: [[0, -1.3], [1.2, 1], [-1.2, 1]], down: [[0, 1.3], [1.2, -1], [-1.2, -1]],
  left: [[-1.3, 0], [1, -1.2], [1, 1.2]], right: [[1.3, 0], [-1, -1.2], [-1, 1.2]], diamond: [[0, -1.4], [1.4, 0], [0, 1.4], [-1.4, 0]],
  plus: [[-0.45, -1.3], [0.45, -1.3], [0.45, -0.45], [1.3, -0.45], [1.3, 0.45], [0.45, 0.45], [0.45, 1.3], [-0.45, 1.3], [-0.45, 0.45], [-1.3, 0.45], [-1.3, -0.45], [-0.45, -0.45]],
  hexagon: [[0, -1.2], [1.05, -0.6], [1.05, 0.6], [0, 1.2], [-1.05, 0.6], [-1.05, -0.6]], pentagon: [[0, -1.2], [1.15, -0.35], [0.7, 1], [-0.7, 1], [-1.15, -0.35]] };
SHAPES.cross = SHAPES.plus.map(([x, y]) => [(x - y) * Math.SQRT1_2, (x + y) * Math.SQRT1_2]);
const marker = (method) => MARKERS[method] || "diamond";

function ticks(low, high, log, count) {
  if (log) {
    const found = [];
    const decades = Math.log10(high / low), steps = decades < 0.7 ? [1, 1.5, 2, 3, 4, 6, 8] : decades < 1.7 ? [1, 2, 5] : [1];
    const every = Math.ceil(decades / 6);
    for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++)
      if (e % every === 0) for (const m of steps) if (m * 10 ** e >= low * 0.999 && m * 10 ** e <= high * 1.001) found.push(m * 10 ** e);
    return found.length > 1 ? found : [low, high];
  }
  const raw = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
  const found = [];
  for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-9; v += step) found.push(Math.abs(v) < step * 1e-9 ? 0 : v);
  return found;
}

function extent(values, log, pad) {
  const sound = values.filter((v) => Number.isFinite(v) && (!log || v > 0));
  if (!sound.length) return null;
  let low = Math.min(...sound), high = Math.max(...sound);
  if (log) return low === high ? [low / 2, high * 2] : [low / (high / low) ** pad, high * (high / low) ** pad];
  if (low === high) { const by = Math.abs(low) * 0.1 || 1; return [low - by, high + by]; }
  const by = (high - low) * pad;
  return [low - by, high + by];
}

function scale([low, high], [start, end], log) {
  const f = log ? Math.log : (v) => v;
  return (v) => start + ((f(v) - f(low)) / (f(high) - f(low))) * (end - start);
}

// Each series: {name, colour, points: [[x, y]], band: [[x, low, high]], dash, width, marker, size, faint, hollow, labels}.
function chart(spec) {
  const host = el("div", { class: "panel" }, spec.title ? el("h3", {}, spec.title) : null);
  host.draw = () => {
    while (host.lastChild && host.lastChild.tagName !== "H3") host.lastChild.remove();
    host.append(drawChart(spec, Math.max(host.clientWidth, 240)));
  };
  LIVE.push(host);
  return host;
}

function drawChart(spec, width) {
  const series = spec.series.filter((s) => s.points.length || (s.band || []).length);
  const xs = series.flatMap((s) => s.points.map((p) => p[0])), ys = series.flatMap((s) => [...s.points.map((p) => p[1]), ...(s.band || []).flatMap((b) => [b[1], b[2]])]);
  const levels = (spec.levels || []).filter((l) => l.y !== null && l.y !== undefined);
  const x = spec.x.domain || extent(xs, spec.x.log, spec.x.pad ?? 0), y = spec.y.domain || extent([...ys, ...levels.map((l) => l.y)], spec.y.log, 0.06);
  if (!x || !y) return nothing(spec.empty || "Nothing measured yet.");
  const yt = ticks(...y, spec.y.log, 4), widest = Math.max(...yt.map((v) => short(v).length));
  const height = spec.height || 210, left = Math.max(50, 24 + 7 * widest), right = 10, top = 8, bottom = 36;
  const X = scale(x, [left, width - right], spec.x.log), Y = scale(y, [height - bottom, top], spec.y.log);
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": `${spec.title || ""} ${spec.y.label} over ${spec.x.label}` });
  axes(root, spec, { x, yt, X, Y, left, right, top, bottom, width, height });
  for (const level of levels) {
    root.append(svg("line", { x1: left, x2: width - right, y1: Y(level.y), y2: Y(level.y), style: `stroke:${level.colour}`, "stroke-width": 1.6, "stroke-dasharray": "6 4", class: "level" }));
  }
  for (const s of series) drawSeries(root, s, X, Y, x, y, spec);
  hover(root, series, X, Y, spec);
  return root;
}

function axes(root, spec, f) {
  const xt = spec.x.ticks || ticks(...f.x, spec.x.log, Math.max(2, f.width / 90));
  for (const v of f.yt) {
    root.append(svg("line", { x1: f.left, x2: f.width - f.right, y1: f.Y(v), y2: f.Y(v), class: "gridline" }));
    root.append(svg("text", { x: f.left - 6, y: f.Y(v) + 4, "text-anchor": "end" }, short(v)));
  }
  root.append(svg("line", { x1: f.left, x2: f.width - f.right, y1: f.height - f.bottom, y2: f.height - f.bottom, class: "axis" }));
  for (const v of xt) root.append(svg("text", { x: f.X(v), y: f.height - f.bottom + 15, "text-anchor": "middle" }, short(v)));
  root.append(svg("text", { x: (f.left + f.width - f.right) / 2, y: f.height - 4, "text-anchor": "middle" }, spec.x.label));
  root.append(svg("text", { transform: `translate(11 ${(f.top + f.height - f.bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, spec.y.label));
}

function drawSeries(root, s, X, Y, xd, yd, spec) {
  const inside = (p) => Number.isFinite(p[0]) && Number.isFinite(p[1]) && (!spec.x.log || p[0] > 0) && (!spec.y.log || p[1] > 0);
  const clampY = (v) => Math.min(Math.max(v, yd[0]), yd[1]);
  const band = (s.band || []).filter((b) => inside(b) && inside([b[0], b[2]]));
  if (band.length > 1) {
    const up = band.map((b) => `${X(b[0]).toFixed(1)} ${Y(clampY(b[2])).toFixed(1)}`), down = band.map((b) => `${X(b[0]).toFixed(1)} ${Y(clampY(b[1])).toFixed(1)}`).reverse();
    root.append(svg("path", { d: `M${[...up, ...down].join("L")}Z`, style: `fill:${s.colour}`, opacity: s.width > 2 ? 0.2 : 0.1 }));
  }
  const points = s.points.filter(inside);
  if (s.line !== false && points.length > 1) {
    const d = points.map((p, i) => {
      const before = i && s.step ? `H${X(p[0]).toFixed(1)}V${Y(p[1]).toFixed(1)}` : `${i ? "L" : "M"}${X(p[0]).toFixed(1)} ${Y(p[1]).toFixed(1)}`;
      return before;
    }).join("");
    root.append(svg("path", { d, fill: "none", style: `stroke:${s.colour}`, "stroke-width": s.width || 1.7, "stroke-linejoin": "round", ...(s.dash ? { "stroke-dasharray": s.dash } : {}), class: "mark" }));
  }
  if (s.marker || points.length === 1) for (const p of points) root.append(mark(s, X(p[0]), Y(p[1])));
}

function mark(s, x, y) {
  const r = s.size || 3.2;
  const shape = SHAPES[s.marker];
  const d = shape ? `M${shape.map((p) => p.map((v) => (v * r).toFixed(2)).join(" ")).join("L")}Z` : `M${-r} 0a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`;
  const paint = s.hollow ? `fill:var(--card);stroke:${s.colour};stroke-width:1.6` : `fill:${s.colour};stroke:var(--card);stroke-width:${s.faint ? 0 : 1}`;
  return svg("path", { d, transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})`, style: paint, opacity: s.faint ? 0.34 : 1, class: "mark" });
}

function hover(root, series, X, Y, spec) {
  const tip = document.getElementById("tip");
  root.addEventListener("pointerleave", () => tip.classList.remove("on"));
  root.addEventListener("pointermove", (event) => {
    const box = root.getBoundingClientRect();
    const [px, py] = [event.clientX - box.left, event.clientY - box.top];
    let best = null;
    for (const s of series) s.points.forEach((p, i) => {
      if (!Number.isFinite(p[0]) || !Number.isFinite(p[1])) return;
      const distance = Math.hypot(X(p[0]) - px, (Y(p[1]) - py) * (spec.byX ? 0.3 : 1));
      if (distance < 40 && (!best || distance < best.distance)) best = { distance, s, p, i };
    });
    tip.classList.toggle("on", best !== null);
    if (!best) return;
    tip.textContent = "";
    tip.append(el("b", {}, best.s.labels ? best.s.labels[best.i] : best.s.name), el("br"), `${spec.x.label} ${short(best.p[0])}, ${spec.y.label} ${short(best.p[1])}`);
    tip.style.left = `${Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)}px`;
    tip.style.top = `${event.clientY + 16}px`;
  });
}
