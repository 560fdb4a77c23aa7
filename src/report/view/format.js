"use strict";
// Numbers and elements as the page shows them.

/** Makes an element: make("p", {class: "soft"}, "text", other elements). Texts never become markup. */
function make(name, attributes, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
  element.append(...children.filter((c) => c !== null && c !== undefined));
  return element;
}

function makeSvg(name, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

const isNumber = (x) => typeof x === "number" && Number.isFinite(x);

/** Rounds to `digits` significant digits, without a tail of zeros. */
function round(x, digits = 4) {
  if (!isNumber(x)) return "–";
  if (x === 0) return "0";
  const size = Math.abs(x);
  if (size < 1e-3 || size >= 1e9) return x.toExponential(Math.max(0, digits - 2)).replace(/\.?0+e/, "e").replace("e+", "e");
  return String(Number(x.toPrecision(digits)));
}

function scaled(x, base, units, digits = 3) {
  if (!isNumber(x)) return "–";
  let i = 0;
  while (Math.abs(x) >= base && i + 1 < units.length) {
    x /= base;
    i++;
  }
  return `${Number(x.toPrecision(Math.abs(x) >= 100 ? 4 : digits))}${units[i]}`;
}

const bytes = (x) => scaled(x, 1024, [" B", " KiB", " MiB", " GiB", " TiB", " PiB"]);
const count = (x) => scaled(x, 1000, ["", "k", "M", "G", "T", "P"]);
const whole = (x) => (isNumber(x) ? Math.round(x).toString().replace(/\B(?=(\d{3})+$)/g, ",") : "–");
const percent = (x) => (isNumber(x) ? `${Number((100 * x).toPrecision(3))}%` : "–");
const plain = (x) => round(x, 4);

function seconds(x) {
  if (!isNumber(x)) return "–";
  const size = Math.abs(x);
  if (size === 0) return "0 s";
  if (size < 1e-3) return `${round(1e6 * x, 3)} µs`;
  if (size < 1) return `${round(1e3 * x, 3)} ms`;
  if (size < 120) return `${round(x, 3)} s`;
  if (size < 7200) return `${round(x / 60, 3)} min`;
  return size < 172800 ? `${round(x / 3600, 3)} h` : `${round(x / 86400, 3)} days`;
}

const color = (i) => `var(--c${i % 9})`;
