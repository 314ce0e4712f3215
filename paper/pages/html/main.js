// Put it together; and, asked for by #selftest, try every control and say what happened.

const LIVE = [];

function render() {
  const main = document.getElementById("main");
  if (!DATA.setups.length) return void main.replaceChildren(section("empty", "No agents on record yet", "python -m paper reproduce td3-table trains some; python -m paper report then fills this page."), ...(DATA.cost.length ? [timeSection()] : []));
  settle();
  LIVE.length = 0;
  const open = new Set([...document.querySelectorAll("details[open]")].map((d) => d.textContent));
  document.getElementById("tiles").replaceChildren(...tiles());
  document.getElementById("controls").replaceChildren(...mainControls());
  main.replaceChildren(...[tableSection, frontSection, aggregateSection, claimsSection, curveSection, traceSection, gradientSection, weightSection, etaSection, timeSection, sourceSection].flatMap((make) => make()));
  for (const details of document.querySelectorAll("details")) details.open = open.has(details.textContent);
  LIVE.forEach((host) => host.draw());
}

let pending = 0;
window.addEventListener("resize", () => { clearTimeout(pending); pending = setTimeout(() => LIVE.forEach((host) => host.draw()), 120); });
window.addEventListener("hashchange", () => { Object.assign(state, DEFAULTS); readHash(); render(); });

// Pairs of a picture's texts that lie on each other.
function overlaps(picture) {
  const texts = [...picture.querySelectorAll("text")].map((node) => [node.textContent, node.getBoundingClientRect()]);
  const lie = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4;
  return texts.flatMap(([one, a], i) => texts.slice(i + 1).filter(([, b]) => lie(a, b)).map(([other]) => [one, other]));
}

// Every value of every control, one after another; every section must draw or say why not.
function selftest() {
  const tried = [];
  const look = (where) => {
    for (const part of document.querySelectorAll("section")) {
      if (part.querySelector("svg, table, details, .none, dl")) continue;
      ERRORS.push(`${where}: section ${part.id} is empty`);
    }
    for (const host of LIVE) if (!host.querySelector(".mark, .none")) ERRORS.push(`${where}: chart ${host.textContent} is empty`);
    for (const picture of document.querySelectorAll("svg[role=img]")) for (const [a, b] of overlaps(picture)) ERRORS.push(`${where}: ${picture.getAttribute("aria-label")}: ${a} covers ${b}`);
    for (const td of document.querySelectorAll("td[data-has=yes]")) if (!/\d/.test(td.querySelector("b").textContent)) ERRORS.push(`${where}: a table cell is empty`);
    if (/NaN|undefined|\[object/.test(document.getElementById("main").textContent)) ERRORS.push(`${where}: a number is not written`);
    if (document.documentElement.scrollWidth > innerWidth + 1) ERRORS.push(`${where}: the page is wider than the window`);
  };
  const attempt = (where, action) => { try { action(); look(where); tried.push(where); } catch (error) { ERRORS.push(`${where}: ${error.message}`); } };
  for (const one of DATA.setups) {
    attempt(`setup ${one.key}`, () => choose({ setup: one.key }));
    for (const name of ["backbone", "task", "pair", "spread", "paper", "curve", "first", "second", "seed", "dimension", "window", "hidden"]) {
      const count = document.querySelectorAll(`select[data-state=${name}] option, button[data-state=${name}]`).length;
      for (let i = 0; i < count; i++) {
        attempt(`${one.key} ${name} ${i}`, () => {
          const control = document.querySelectorAll(`select[data-state=${name}] option, button[data-state=${name}]`)[i];
          if (!control) return;
          if (control.tagName === "BUTTON") control.click();
          else { control.parentNode.value = control.value; control.parentNode.dispatchEvent(new Event("change")); }
        });
      }
      attempt(`${one.key} all shown`, () => choose({ hidden: "" }));
    }
    const cell = document.querySelector("button.cell");
    if (cell) attempt(`${one.key} cell`, () => { cell.click(); if (!document.querySelector("dialog[open] code")) ERRORS.push("a cell shows no command"); document.getElementById("dialog").close(); });
  }
  const cells = document.querySelectorAll("td[data-has=yes]").length;
  const found = JSON.stringify({ errors: unique(ERRORS), tried: tried.length, cells, width: innerWidth });
  document.body.append(el("pre", { id: "selftest" }, found));
  if (parent !== window) parent.postMessage(found, "*"); // a test at a phone's width frames the page
}

readHash();
render();
if (location.hash === "#selftest") selftest();
