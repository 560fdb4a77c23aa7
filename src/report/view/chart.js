// Line charts: axes, curves with bands, stacked areas, and the values under the pointer.

const PLOT = { width: 560, height: 230, left: 58, right: 10, top: 8, bottom: 26 };
const WIDE = { ...PLOT, width: 1140, height: 290 };

/** Returns round numbers between two values, about `most` of them. base: 1024 for bytes, whose units are powers of it. */
function ticks(low, high, most, base = 0) {
  if (base) {
    const unit = base ** Math.max(0, Math.floor(Math.log(Math.max(Math.abs(low), Math.abs(high), 1)) / Math.log(base)));
    return ticks(low / unit, high / unit, most).map((t) => t * unit);
  }
  const raw = (high - low) / most, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((k) => k * power).find((s) => s >= raw * 0.999);
  const all = [];
  for (let t = Math.ceil(low / step - 1e-9) * step; t <= high + step * 1e-6; t += step) all.push(Math.abs(t) < step * 1e-6 ? 0 : t);
  return all;
}

/** Returns powers of `base` between two values, thinned out. */
function logTicks(low, high, base) {
  const log = (v) => Math.log(v) / Math.log(base);
  const first = Math.ceil(log(low) - 1e-9), last = Math.floor(log(high) + 1e-9), every = Math.max(1, Math.ceil((last - first + 1) / 6));
  const all = [];
  for (let k = first; k <= last; k += every) all.push(base ** k);
  return all.length >= 2 ? all : [low, Math.sqrt(low * high), high];
}

/** Makes the scale of one axis: {at(value), ticks}. */
function makeScale(values, from, to, { log = 0, zero = false, most = 6, base = 0 }) {
  let low = Infinity, high = -Infinity;
  for (const v of values)
    if (isNumber(v) && (!log || v > 0)) {
      low = Math.min(low, v);
      high = Math.max(high, v);
    }
  if (low === Infinity) return null;
  if (zero) low = Math.min(0, low);
  if (low === high) {
    low = log ? low / 2 : low - (Math.abs(low) || 1) * 0.05;
    high = log ? high * 2 : high + (Math.abs(high) || 1) * 0.05;
  }
  const f = log ? Math.log : (v) => v;
  return {
    at: (v) => (isNumber(v) && (!log || v > 0) ? from + ((to - from) * (f(v) - f(low))) / (f(high) - f(low)) : null),
    ticks: log ? logTicks(low, high, log) : ticks(low, high, most, base),
  };
}

const digitsOf = (v) => (Math.round(v * 10) / 10).toString();

/** Joins points into a path; gaps stay gaps. */
function pathOf(xs, ys, x, y) {
  let path = "", open = false;
  ys.forEach((v, i) => {
    const px = x.at(xs[i]), py = y.at(v);
    if (px === null || py === null) open = false;
    else {
      path += `${open ? "L" : "M"}${digitsOf(px)} ${digitsOf(py)}`;
      open = true;
    }
  });
  return path;
}

/** Closes the area between two curves, where both have values. */
function areaOf(xs, low, high, x, y) {
  const there = xs.map((_, i) => i).filter((i) => [x.at(xs[i]), y.at(low[i]), y.at(high[i])].every((v) => v !== null));
  if (there.length < 2) return "";
  const up = there.map((i) => `${digitsOf(x.at(xs[i]))} ${digitsOf(y.at(high[i]))}`);
  const back = there.reverse().map((i) => `${digitsOf(x.at(xs[i]))} ${digitsOf(y.at(low[i]))}`);
  return `M${up.join("L")}L${back.join("L")}Z`;
}

function drawLine(svg, line, x, y) {
  if (line.low && line.high)
    svg.append(makeSvg("path", { d: areaOf(line.x, line.low, line.high, x, y), fill: line.color, opacity: line.solid ? 0.75 : 0.18 }));
  if (!line.solid)
    svg.append(makeSvg("path", { d: pathOf(line.x, line.y, x, y), fill: "none", stroke: line.color, "stroke-width": 1.6,
      "stroke-linejoin": "round", "stroke-dasharray": line.dash || "none" }));
  if (line.dots || line.x.length < 3)
    line.x.forEach((v, i) => {
      const px = x.at(v), py = y.at(line.y[i]);
      if (px !== null && py !== null) svg.append(makeSvg("circle", { cx: px, cy: py, r: 2.6, fill: line.color }));
    });
}

function drawAxes(svg, x, y, chart) {
  const { width, height, left, right, top, bottom } = chart.plot;
  for (const t of y.ticks) {
    const at = y.at(t);
    svg.append(makeSvg("line", { class: "grid", x1: left, x2: width - right, y1: at, y2: at }));
    svg.append(makeSvg("text", { x: left - 6, y: at + 4, "text-anchor": "end" }, chart.format(t)));
  }
  for (const t of x.ticks)
    svg.append(makeSvg("text", { x: x.at(t), y: height - bottom + 16, "text-anchor": "middle" }, chart.xFormat(t)));
  svg.append(makeSvg("line", { class: "axis", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }));
  for (const mark of chart.marks || []) {
    const at = x.at(mark.x);
    if (at !== null && at >= left && at <= width - right)
      svg.append(makeSvg("line", { x1: at, x2: at, y1: top, y2: height - bottom, stroke: mark.color, "stroke-dasharray": "2 3" }));
  }
}

/** Makes the sign of a line in legends. */
function makeKey(line) {
  return line.dash ? make("i", { class: "dash", style: `color:${line.color}` }) : make("i", { style: `background:${line.color}` });
}

/** Shows the values nearest to the pointer in the legend, and a line where they are. */
function follow(svg, legend, chart, x) {
  const cursor = makeSvg("line", { class: "axis", y1: chart.plot.top, y2: chart.plot.height - chart.plot.bottom, visibility: "hidden" });
  const rest = legend.cloneNode(true).childNodes;
  svg.append(cursor);
  const nearest = (line, at) => {
    let best = -1, distance = Infinity;
    line.x.forEach((v, i) => {
      const d = Math.abs((x.at(v) ?? Infinity) - at);
      if (d < distance && isNumber(line.y[i])) {
        distance = d;
        best = i;
      }
    });
    return best;
  };
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect(), at = ((event.clientX - box.left) * chart.plot.width) / box.width;
    const entries = [];
    let where = null;
    for (const line of chart.lines) {
      const i = nearest(line, at);
      if (i < 0) continue;
      where ??= line.x[i];
      const band = line.low && !line.solid ? ` (${chart.format(line.low[i])} to ${chart.format(line.high[i])})` : "";
      const value = line.solid ? line.high[i] - line.low[i] : line.y[i];
      entries.push(make("span", {}, makeKey(line), `${line.name} ${chart.format(value)}${band}`));
    }
    if (where === null) return;
    cursor.setAttribute("x1", x.at(where));
    cursor.setAttribute("x2", x.at(where));
    cursor.setAttribute("visibility", "visible");
    legend.replaceChildren(make("span", { class: "soft" }, `${chart.xName} ${chart.xFormat(where)}`), ...entries);
  });
  svg.addEventListener("pointerleave", () => {
    cursor.setAttribute("visibility", "hidden");
    legend.replaceChildren(...[...rest].map((n) => n.cloneNode(true)));
  });
}

/**
 * Draws a chart as a card. chart: title, unit, lines [{name, color, x, y, low, high, solid, dots, dash}], log (base of a
 * logarithmic y axis), zero, format, xName, xFormat, xLog, marks. Returns null if there is nothing to draw.
 */
function drawChart(chart) {
  chart.lines = chart.lines.filter((l) => l.y.some(isNumber));
  chart.plot = chart.wide ? WIDE : PLOT;
  const { width, height, left, right, top, bottom } = chart.plot;
  const xs = chart.lines.flatMap((l) => l.x), ys = chart.lines.flatMap((l) => [...l.y, ...(l.low || []), ...(l.high || [])]);
  const x = makeScale(xs, left, width - right, { log: chart.xLog || 0, most: chart.wide ? 10 : 6 });
  const y = makeScale(ys, height - bottom, top, { log: chart.log || 0, zero: chart.zero, most: 5, base: chart.format === bytes ? 1024 : 0 });
  if (!x || !y) return null;
  const svg = makeSvg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": chart.title });
  const names = chart.lines.length > 1 || chart.named
    ? chart.lines.map((l) => make("span", {}, makeKey(l), l.name)) : [];
  const legend = make("div", { class: "legend" }, ...names);
  drawAxes(svg, x, y, chart);
  for (const line of chart.lines) drawLine(svg, line, x, y);
  follow(svg, legend, chart, x);
  const title = make("h3", {}, chart.title, chart.unit ? make("small", {}, ` ${chart.unit}`) : null);
  return make("div", { class: chart.wide ? "card wide" : "card" }, title, svg, legend);
}
