"use strict";
// Elements and words. Whatever comes from the daemon goes in as text, never as
// markup.

const byId = id => document.getElementById(id);

function put(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== undefined && value !== null && value !== false) node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.filter(c => c !== null && c !== undefined).map(c => c instanceof Node ? c : String(c)));
  return node;
}
const html = (tag, attributes, ...children) => put(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => put(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

const MS = 1e6, SECOND = 1e9;
const NEAR = "\u00a0";     // between a number and its unit: no line ends there

function duration(ns) {
  const a = Math.abs(ns);
  if (a === 0) return "0";
  if (a < 1000 * 100) return (ns / 1e3).toFixed(a < 1e4 ? 1 : 0) + NEAR + "µs";
  if (a < 10 * MS) return (ns / MS).toFixed(2) + NEAR + "ms";
  if (a < 100 * MS) return (ns / MS).toFixed(1) + NEAR + "ms";
  if (a < SECOND) return (ns / MS).toFixed(0) + NEAR + "ms";
  if (a < 120 * SECOND) return (ns / SECOND).toFixed(a < 10 * SECOND ? 2 : 1) + NEAR + "s";
  return ago(ns / SECOND);
}

// ago writes whole seconds as days, hours and minutes.
function ago(seconds) {
  const s = Math.round(seconds), parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const first = parts.findIndex(([size]) => s >= size);
  if (first < 0) return "0" + NEAR + "s";
  return parts.slice(first, first + 2).map(([size, unit], i) => Math.floor((i ? s % parts[first][0] : s) / size) + NEAR + unit).join(" ");
}

const count = n => Math.round(n).toLocaleString("en");
const rate = n => n < 10 ? n.toFixed(1) : count(n);
const percent = (share, digits = 1) => (100 * share).toFixed(digits) + NEAR + "%";
const signed = share => (share >= 0 ? "+" : "−") + percent(Math.abs(share));
const total = counts => Object.values(counts || {}).reduce((a, b) => a + b, 0);
const many = (n, one, more) => count(n) + " " + (n === 1 ? one : more);
// ranFor is how long the device took for a round, without what the host was late.
const ranFor = r => r.took_ns - (r.late_ns || 0);
const colour = service => "c" + service % 8;
