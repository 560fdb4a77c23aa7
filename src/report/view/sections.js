// Sections of the page: each function takes the runs and returns an element, or null where there is nothing to show.

const total = (list) => (list || []).reduce((sum, v) => sum + (v || 0), 0);
const curvesOf = (run) => run.history.curves;
const most = (list) => (list || []).reduce((a, v) => (isNumber(v) && !(a >= v) ? v : a), undefined);

/** Returns the running sum of a curve. */
function summed(list) {
  let sum = 0;
  return (list || []).map((v) => (sum += v || 0));
}

/** Returns a curve divided by another one. */
const ratio = (a, b) => (a || []).map((v, i) => (isNumber(v) && b && b[i] > 0 ? v / b[i] : null));

/** Returns the sum of seconds of each point: means times the steps that have one. */
function secondsOf(run) {
  const c = curvesOf(run);
  let before = run.history.first_step - 1;
  return (c.seconds || []).map((v, i) => {
    const steps = c.step[i] - before;
    before = c.step[i];
    return (v || 0) * steps;
  });
}

/** Returns the x values of a run's points by the page's axis: steps, tokens or hours. */
function axisOf(run, axis) {
  if (axis === "tokens") return summed(curvesOf(run).tokens);
  if (axis === "hours") return summed(secondsOf(run)).map((s) => s / 3600);
  return curvesOf(run).step;
}

/** Returns the x value of a step. */
function placeOf(run, xs, step) {
  const steps = curvesOf(run).step;
  const i = steps.findIndex((s) => s >= step);
  return i < 0 ? xs[xs.length - 1] : xs[i];
}

const axes = {
  steps: { xName: "step", xFormat: (v) => (Number.isInteger(v) ? whole(v) : "") },
  tokens: { xName: "tokens", xFormat: count },
  hours: { xName: "hours", xFormat: (v) => round(v, 3) },
};

// ---- figures ----

function figuresOf(run) {
  const c = curvesOf(run), h = run.history, card = run.card, plan = run.plan;
  const time = total(secondsOf(run)), evaluations = h.evaluations, last = evaluations[evaluations.length - 1];
  const step = plan.step || {};
  return [
    ["model", card.base ? card.base.name || card.base.id || "" : (plan.model || {}).name || ""],
    ["parameters", count(card.parameters), card.trained_parameters < card.parameters ? `${count(card.trained_parameters)} trained` : ""],
    ["tokens a sequence", whole(most(c.seq_len))],
    ["steps", whole(h.steps), h.skipped ? `${whole(h.skipped)} skipped` : ""],
    ["tokens", count(total(c.tokens)), `${count(total(c.target_tokens))} supervised`],
    ["last loss", round(h.last_loss, 5)],
    ["held-out loss", last ? round(last.loss, 5) : "–", last ? `step ${whole(last.step)}` : ""],
    ["time of steps", seconds(time)],
    ["tokens/s", count(total(c.tokens) / time), step.tokens_per_second ? `planned ${count(step.tokens_per_second)}` : ""],
    ["MFU", percent(total((c.mfu || []).map((v, i) => (v || 0) * secondsOf(run)[i])) / time), h.mfu_reference ? `of: ${h.mfu_reference}` : ""],
    ["compute stands still", percent(total(c.stall_seconds) / time)],
    ["written to drives", bytes(total(c.written_bytes))],
  ];
}

function showFigures(runs) {
  if (runs.length === 1)
    return make("div", { class: "tiles" }, ...figuresOf(runs[0]).map(([name, value, more]) =>
      make("div", { class: "tile" }, make("span", {}, name), make("b", {}, value), make("span", {}, more || ""))));
  const figures = runs.map(figuresOf);
  const head = make("tr", {}, make("th", {}), ...runs.map((r, i) =>
    make("th", {}, make("i", { class: "key", style: `background:${color(i)}` }), r.label)));
  const rows = figures[0].map(([name], k) =>
    make("tr", {}, make("td", { class: "soft" }, name), ...figures.map((f) =>
      make("td", {}, f[k][1], f[k][2] ? make("span", { class: "soft" }, ` ${f[k][2]}`) : null))));
  return make("div", { class: "card scroll" }, make("table", {}, head, ...rows));
}

// ---- curves ----

/** Makes a line for every run from one curve. */
function linesOf(runs, axis, pick, options = {}) {
  return runs.flatMap((run, i) => {
    const x = axisOf(run, axis), found = pick(curvesOf(run), run);
    if (!found) return [];
    const line = found.y ? found : { y: found };
    return [{ name: run.label, color: color(i), x, ...line, ...options }];
  });
}

function lossLines(runs, axis) {
  const trained = linesOf(runs, axis, (c) => ({ y: c.loss || [], low: c.loss_low, high: c.loss_high }));
  const held = runs.flatMap((run, i) => {
    const xs = axisOf(run, axis), e = run.history.evaluations;
    if (!e.length) return [];
    return [{ name: runs.length > 1 ? `${run.label}, held out` : "held out", color: runs.length > 1 ? color(i) : color(1), dots: true, dash: "5 3",
      x: e.map((v) => (v.step === 0 ? xs[0] : placeOf(run, xs, v.step))), y: e.map((v) => v.loss) }];
  });
  if (runs.length === 1 && trained[0]) trained[0].name = "training";
  return [...trained, ...held];
}

function marksOf(runs, axis) {
  return runs.flatMap((run) => run.history.events.map((e) => ({ x: placeOf(run, axisOf(run, axis), e.step),
    color: e.what === "skipped" ? "var(--bad)" : "var(--soft)" })));
}

function showCurves(runs, state) {
  const common = { ...axes[state.axis], marks: marksOf(runs, state.axis) };
  const lines = (pick, options) => linesOf(runs, state.axis, pick, options);
  const key = (name) => (c) => c[name];
  const charts = [
    { title: "Loss", unit: "nats a token", lines: lossLines(runs, state.axis), log: state.log ? 10 : 0, format: plain, wide: true },
    { title: "Gradient norm", lines: lines((c) => ({ y: c.grad_norm || [], low: c.grad_norm_low, high: c.grad_norm_high })), log: 10, format: plain },
    { title: "Learning rate", lines: lines(key("lr")), zero: true, format: plain },
    { title: "Tokens a second", lines: lines((c, run) => ratio(c.tokens, secondsOf(run))), zero: true, format: count },
    { title: "MFU", unit: runs[0].history.mfu_reference ? `of: ${runs[0].history.mfu_reference}` : "", lines: lines(key("mfu")), zero: true, format: percent },
    { title: "Seconds a step", unit: "measured, and planned (dashed)", zero: true, format: seconds,
      lines: [...lines((c) => ({ y: c.seconds || [], low: c.seconds_low, high: c.seconds_high })),
        ...lines((c, run) => ratio(c.planned_seconds, stepsOf(run)), { dash: "5 3" }).map((l) => ({ ...l, name: `${l.name}, planned` }))] },
    { title: "Transfers behind compute", unit: "share of their time", lines: lines(key("hidden")), zero: true, format: percent },
    { title: "Written to drives", unit: "from the start on", lines: lines((c) => summed(c.written_bytes)), zero: true, format: bytes },
    { title: "Sequence length", unit: "tokens", lines: runs.some((r) => new Set(curvesOf(r).seq_len).size > 1) ? lines(key("seq_len")) : [], log: 2, format: whole },
    { title: "Load of experts", unit: "the busiest by the mean; least even layer dashed", format: plain,
      lines: [...lines(key("expert_load")), ...lines(key("expert_load_worst"), { dash: "5 3" })] },
    { title: "Entropy of experts", unit: "1: all have equally many tokens", lines: lines(key("expert_entropy")), format: plain },
    { title: "Experts without a token", lines: lines(key("experts_unhit")), zero: true, format: plain },
    { title: "Auxiliary loss", unit: "without its coefficient", lines: lines(key("aux_loss")), format: plain },
  ];
  return make("div", { class: "charts" }, ...charts.map((c) => drawChart({ ...common, ...c })));
}

/** Returns the number of steps of each point. */
function stepsOf(run) {
  let before = run.history.first_step - 1;
  return curvesOf(run).step.map((s) => {
    const n = s - before;
    before = s;
    return n;
  });
}

// ---- loss by position ----

function showPositions(runs) {
  const cards = runs.map((run) => {
    const all = run.history.evaluations.filter((e) => e.by_position.length > 1);
    if (!all.length) return null;
    const picked = [...new Set([0, 0.33, 0.67, 1].map((f) => Math.round(f * (all.length - 1))))].map((i) => all[i]);
    const lines = picked.map((e, k) => ({ name: `step ${whole(e.step)}`, color: color(k), dots: true, x: e.by_position.map((p) => p[0]), y: e.by_position.map((p) => p[1]) }));
    return drawChart({ title: run.label, unit: "held-out loss by the tokens that a prediction sees", lines, named: true, xLog: 2, format: plain, xName: "tokens seen, at least", xFormat: (v) => scaled(v, 1024, ["", "k", "m", "g"]) });
  });
  return cards.some((c) => c) ? make("div", { class: "charts" }, ...cards) : null;
}

// ---- memory ----

const tiers = [["device", "device_peak_bytes"], ["host", "host_peak_bytes"], ["nvme", "nvme_bytes"]];

/** Draws a tier's planned bytes by class, what steps have taken and the limit as one bar. */
function tierBar(tier, plan, measured, scale, y) {
  const classes = Object.entries(plan.classes || {}), group = makeSvg("g", {});
  const left = 70, width = 470, at = (v) => left + (width * v) / scale;
  const planned = (plan.peak || {})[tier] || 0, limit = (plan.limit || {})[tier];
  const sum = total(classes.map(([, c]) => (c.peak || {})[tier])) || 1;
  let from = 0;
  group.append(makeSvg("text", { x: left - 8, y: y + 14, "text-anchor": "end" }, tier));
  classes.forEach(([name, c], k) => {
    const part = (((c.peak || {})[tier] || 0) / sum) * planned;
    const box = makeSvg("rect", { x: at(from), y, width: Math.max(0, at(from + part) - at(from)), height: 20, fill: color(k) });
    box.append(makeSvg("title", {}, `${name}: at most ${bytes((c.peak || {})[tier] || 0)}`));
    if (part > 0) group.append(box);
    from += part;
  });
  if (isNumber(measured)) group.append(makeSvg("line", { x1: at(measured), x2: at(measured), y1: y - 3, y2: y + 23, stroke: "var(--ink)", "stroke-width": 2 }));
  if (isNumber(limit) && limit <= scale) group.append(makeSvg("line", { x1: at(limit), x2: at(limit), y1: y - 3, y2: y + 23, stroke: "var(--bad)", "stroke-width": 2, "stroke-dasharray": "3 2" }));
  group.append(makeSvg("text", { x: left, y: y + 36 },
    `planned ${bytes(planned)}, taken ${bytes(measured)}, limit ${isNumber(limit) ? bytes(limit) : "none"}`));
  return group;
}

function showMemory(runs) {
  const cards = runs.filter((r) => r.plan.peak).map((run) => {
    const used = tiers.filter(([tier, key]) => run.plan.peak[tier] > 0 || most(curvesOf(run)[key]) > 0);
    const svg = makeSvg("svg", { viewBox: `0 0 560 ${54 * used.length + 3}`, role: "img", "aria-label": "memory by tier" });
    used.forEach(([tier, key], k) => {
      const measured = most(curvesOf(run)[key]), planned = run.plan.peak[tier] || 0;
      svg.append(tierBar(tier, run.plan, measured, Math.max(planned, measured || 0, 1) * 1.08, 4 + 54 * k));
    });
    const legend = make("div", { class: "legend" },
      ...Object.keys(run.plan.classes || {}).map((name, k) => make("span", {}, make("i", { style: `background:${color(k)}` }), name)),
      make("span", { class: "soft" }, "black line: taken; red: limit; each tier has a scale of its own"));
    return make("div", { class: "card" }, make("h3", {}, run.label, make("small", {}, " memory of one rank, planned by class")), svg, legend);
  });
  return cards.length ? make("div", { class: "charts" }, ...cards) : null;
}

// ---- stalls ----

function showStalls(runs, state) {
  const cards = runs.flatMap((run) => {
    const lanes = Object.entries(run.history.stalls);
    if (!lanes.length) return [];
    const x = axisOf(run, state.axis), n = stepsOf(run);
    let below = x.map(() => 0);
    const lines = lanes.map(([name, s], k) => {
      const low = below, high = ratio(s.curve, n).map((v, i) => low[i] + (v || 0));
      below = high;
      return { name, color: color(k), x, y: high, low, high, solid: true };
    });
    const classes = [...new Set(lanes.flatMap(([, s]) => Object.keys(s.classes)))];
    const rows = lanes.map(([name, s]) => make("tr", {}, make("td", {}, name), ...classes.map((c) =>
      make("td", { class: "number" }, s.classes[c] ? seconds(s.classes[c]) : "")), make("td", { class: "number" }, seconds(total(Object.values(s.classes))))));
    const head = make("tr", {}, make("th", {}, "waited for"), ...classes.map((c) => make("th", { class: "number" }, c)), make("th", { class: "number" }, "all"));
    return [drawChart({ ...axes[state.axis], title: run.label, unit: "seconds a step during which compute waits, by lane", lines, wide: true, named: true, zero: true, format: seconds }),
      make("div", { class: "card wide scroll" }, make("h3", {}, run.label, make("small", {}, " seconds waited in all steps")), make("table", {}, head, ...rows))];
  });
  return cards.length ? make("div", { class: "charts" }, ...cards) : null;
}

// ---- traced steps ----

const phases = { i: "input", u: "update", f: "forward", l: "loss", b: "backward" };
const phaseColor = (letter) => { const k = Object.keys(phases).indexOf(letter); return k < 0 ? "var(--soft)" : color([8, 3, 0, 6, 1][k]); };

function drawTrace(run, trace) {
  const height = 26, left = 74, width = 1000, at = (t) => left + ((width - left - 8) * t) / trace.end;
  const svg = makeSvg("svg", { viewBox: `0 0 ${width} ${trace.lanes.length * height + 22}`, role: "img", "aria-label": "lanes of a traced step" });
  trace.lanes.forEach((lane, k) => {
    const y = k * height;
    svg.append(makeSvg("text", { x: left - 8, y: y + 15, "text-anchor": "end" }, lane.name));
    svg.append(makeSvg("line", { class: "grid", x1: left, x2: width - 8, y1: y + height - 3, y2: y + height - 3 }));
    for (const letter of [...new Set(lane.bars.map((b) => b[2]))]) {
      const d = lane.bars.filter((b) => b[2] === letter).map(([a, b]) => `M${digitsOf(at(a))} ${y + 3}H${digitsOf(Math.max(at(b), at(a) + 0.4))}v17H${digitsOf(at(a))}Z`).join("");
      svg.append(makeSvg("path", { d, fill: phaseColor(letter) }));
    }
    if (lane.name === "compute")
      for (const [a, b, by] of trace.waits) {
        const box = makeSvg("rect", { x: at(a), y: y + 9, width: Math.max(0.4, at(b) - at(a)), height: 5, fill: "var(--bad)" });
        box.append(makeSvg("title", {}, `waits ${seconds((b - a) * 1e-6)} for ${by}`));
        svg.append(box);
      }
  });
  for (const t of ticks(0, trace.end, 8))
    svg.append(makeSvg("text", { x: at(t), y: trace.lanes.length * height + 14, "text-anchor": "middle" }, seconds(t * 1e-6)));
  const legend = make("div", { class: "legend" },
    ...Object.entries(phases).map(([k, name]) => make("span", {}, make("i", { style: `background:${phaseColor(k)}` }), name)),
    make("span", {}, make("i", { style: "background:var(--bad)" }), "compute waits for another lane"));
  const rows = trace.longest.map(([a, b, by, name, before]) => make("tr", {}, make("td", { class: "number" }, seconds((b - a) * 1e-6)),
    make("td", { class: "number" }, seconds(a * 1e-6)), make("td", {}, by), make("td", {}, name), make("td", {}, before)));
  const table = rows.length ? make("div", { class: "scroll" }, make("h3", {}, "Longest waits of compute"), make("table", {},
    make("tr", {}, ...["wait", "at", "for lane", "instruction", "which needs"].map((t, k) => make("th", { class: k < 2 ? "number" : "" }, t))), ...rows)) : null;
  return make("div", { class: "card wide" }, make("h3", {}, `${run.label}: ${trace.file}`, make("small", {}, ` ${seconds(trace.end * 1e-6)}, one rank`)), svg, legend, table);
}

function showTraces(runs) {
  const cards = runs.flatMap((run) => run.traces.map((t) => drawTrace(run, t)));
  return cards.length ? make("div", { class: "charts" }, ...cards) : null;
}

// ---- scores ----

function drawScores(scores, task) {
  const of = scores.results.filter((r) => r.task === task), unique = (key) => [...new Set(of.map((r) => r[key]))].sort((a, b) => a - b);
  const lengths = unique("length"), depths = unique("depth"), cell = 46, left = 60;
  const svg = makeSvg("svg", { viewBox: `0 0 ${Math.max(560, left + lengths.length * cell)} ${depths.length * 26 + 40}`, role: "img", "aria-label": `${task} by length and depth` });
  depths.forEach((d, j) => svg.append(makeSvg("text", { x: left - 6, y: j * 26 + 18, "text-anchor": "end" }, d < 0 ? "all" : `${round(d, 3)}%`)));
  lengths.forEach((n, i) => svg.append(makeSvg("text", { x: left + i * cell + cell / 2, y: depths.length * 26 + 16, "text-anchor": "middle" }, scaled(n, 1024, ["", "k", "m", "g"]))));
  for (const r of of) {
    const x = left + lengths.indexOf(r.length) * cell, y = depths.indexOf(r.depth) * 26;
    const box = makeSvg("rect", { x, y, width: cell - 2, height: 24, fill: `hsl(${Math.round(120 * r.score)} 55% 50%)`, rx: 3 });
    box.append(makeSvg("title", {}, `${whole(r.length)} tokens, depth ${r.depth < 0 ? "any" : `${r.depth}%`}: ${percent(r.score)} of ${r.answers} answers`));
    svg.append(box, makeSvg("text", { x: x + cell / 2 - 1, y: y + 16, "text-anchor": "middle", style: "fill:#111" }, percent(r.score)));
  }
  return make("div", { class: "card" }, make("h3", {}, task, make("small", {}, ` ${scores.model}; score by tokens (across) and depth of the answer in the text`)), svg);
}

function showScores(all) {
  const cards = all.flatMap((s) => [...new Set(s.results.map((r) => r.task))].map((task) => drawScores(s, task)));
  return cards.length ? make("div", { class: "charts" }, ...cards) : null;
}

// ---- settings and what happened ----

function showSettings(runs) {
  const keys = [...new Set(runs.flatMap((r) => r.settings.map(([k]) => k)))], maps = runs.map((r) => new Map(r.settings));
  const differs = (k) => new Set(maps.map((m) => m.get(k))).size > 1;
  const ordered = [...keys.filter(differs), ...keys.filter((k) => !differs(k))];
  if (!ordered.length) return null;
  const rows = ordered.map((k) => make("tr", differs(k) ? { class: "differs" } : {}, make("td", {}, make("code", {}, k)), ...maps.map((m) => make("td", {}, make("code", {}, m.get(k) ?? "–")))));
  const head = make("tr", {}, make("th", {}, "key"), ...runs.map((r) => make("th", {}, r.label)));
  return make("div", { class: "card scroll" }, runs.length > 1 ? make("p", { class: "plain soft" }, "What differs comes first.") : null, make("table", {}, head, ...rows));
}

function showEvents(runs) {
  return make("div", { class: "charts" }, ...runs.map((run) => {
    const h = run.history, list = make("ul", {});
    const add = (text, code) => list.append(make("li", {}, text, code ? make("code", {}, code) : null));
    for (const command of run.card.commands || []) add("", command);
    for (const what of ["resumed", "skipped"]) {
      const steps = h.events.filter((e) => e.what === what).map((e) => whole(e.step)), n = h[what];
      if (n) add(`${what}: step${n > 1 ? "s" : ""} ${steps.slice(0, 40).join(", ")}${n > 40 ? `, and ${whole(n - Math.min(40, steps.length))} more` : ""}`);
    }
    if (run.checkpoints.length) add(`checkpoints there: ${run.checkpoints.join(", ")}`);
    if (run.card.ltrain) add(run.card.ltrain);
    for (const note of run.notes) add(note);
    return make("div", { class: "card" }, make("h3", {}, run.label), list);
  }));
}
