// What was gained, answered and lost in the last twenty minutes. uPlot draws it.

const LEAST_SPAN = 120;    // seconds that a chart shows, also of a daemon that has just started
const CHART_HEIGHT = 170;

// The reasons for which queries are lost, with the colours of their areas, the usual
// ones first. Others come after them.
const REASONS = { late: "warn", deadline_passed: "s3", cannot_finish: "s0", queue_full: "s1", worker_lost: "bad", model_failed: "s4", draining: "s7" };
const reasonName = reason => reason === "none" ? "bad query" : reason.replaceAll("_", " ");
const reasonOrder = lost => [...Object.keys(REASONS).filter(r => lost[r]), ...Object.keys(lost).filter(r => !REASONS[r])];
const colourNamed = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

const charts = new Map();  // the chart in each element
let lastHistory = null;

function showHistory(h) {
  lastHistory = h;
  const step = h.step_ns / SECOND, n = Math.max(1, h.busy_ns.length - 1); // the last step is not over
  const began = Date.parse(h.epoch) / 1000 + h.first * step;
  const x = Array.from({ length: n }, (_, i) => began + (i + 1) * step);
  const perSecond = (values, unit) => values.slice(0, n).map(v => v / unit / step);
  const line = (label, values, colour, show) => ({ label, values, colour, show });
  plot("saved", x, [
    line("spent", perSecond(h.busy_ns, SECOND), "soft", fixed),
    line("saved by overlapping", perSecond(h.overlap_ns, SECOND), "s0", fixed),
    line("saved by batching", perSecond(h.merge_ns, SECOND), "s1", fixed)]);
  plot("answered", x, [
    line("in time", perSecond(h.in_time, 1), "good", rate),
    line("lost", perSecond(h.in_time.map((_, i) => sumAt(h.lost, i)), 1), "bad", rate)]);
  const reasons = reasonOrder(h.lost);
  plot("lost", x, stacked(reasons.map(r => line(reasonName(r), perSecond(h.lost[r], 1), REASONS[r] || "s5", rate))));
  const position = name => Math.max(0, now.services.findIndex(s => s.name === name));
  plot("slowest", x, h.services.map(s => line(s.name, s.slowest_ns.slice(0, n).map(ns => 100 * ns / s.target_ns || null), "s" + position(s.name) % 8, v => v === null ? "–" : v.toFixed(0) + NEAR + "%")));
  showSums(h, reasons);
}

const sumAt = (lists, i) => Object.values(lists).reduce((sum, list) => sum + list[i], 0);
const sum = list => list.reduce((a, b) => a + b, 0);

// stacked puts areas upon each other: what is drawn last is the lowest and hides what
// is behind it. The legend has the values by themselves.
function stacked(lines) {
  let below = null;
  return lines.map(l => {
    below = l.values.map((v, i) => v + (below ? below[i] : 0));
    return { ...l, area: below };
  }).reverse();
}

// showSums says in numbers what the charts show.
function showSums(h, reasons) {
  const answered = sum(h.in_time), counts = reasons.map(r => [r, sum(h.lost[r])]), lost = sum(counts.map(c => c[1]));
  const span = ago(h.busy_ns.length * h.step_ns / SECOND);
  byId("in-time").textContent = answered + lost > 0 ? percent(answered / (answered + lost), 2) : "–";
  byId("in-time-of").textContent = "of " + count(answered + lost) + " queries were answered in time in the last " + span;
  byId("lost-sum").textContent = count(lost);
  byId("lost-why").textContent = lost === 0 ? "queries were lost in this time"
    : "were lost: " + counts.sort((a, b) => b[1] - a[1]).map(([r, n]) => reasonName(r) + " " + count(n)).join(", ");
}

// showGain says what overlapping saves now, over a device that merges as this one does,
// and beside it what merging saves.
function showGain(o) {
  const g = o.gain, times = saved => o.busy_seconds > 0 ? "×" + NEAR + Math.max(0, (o.busy_seconds + saved) / o.busy_seconds).toFixed(2) : "–";
  byId("saved-now").textContent = fixed(g.overlap_now) + NEAR + "s";
  byId("saved-by").textContent = "of device time saved per second by overlapping, and " + fixed(g.merge_now) + NEAR + "s by batching";
  byId("speed-up").textContent = times(g.overlap_seconds);
  byId("speed-up-of").textContent = "the work of a device that runs the same batches one after another, and " + times(g.overlap_seconds + g.merge_seconds) + " that of one without batching, since the start";
}
const fixed = v => (v < 0 ? "−" : "") + Math.abs(v).toFixed(2);

// plot draws lines in an element, in the chart that is there if it has the same lines.
function plot(name, x, lines) {
  const box = byId("chart-" + name), labels = lines.map(l => l.label).join();
  let chart = charts.get(name);
  const data = [x, ...lines.map(l => l.area || l.values)];
  const shown = { lines, from: x[0], to: x[x.length - 1] };
  if (chart && chart.labels === labels) {
    Object.assign(chart, shown);
    chart.drawn.setData(data);
    return;
  }
  if (chart) chart.drawn.destroy();
  chart = { labels, ...shown };
  charts.set(name, chart);
  chart.drawn = new uPlot(chartOptions(box, chart), data, box);
}

function chartOptions(box, chart) {
  const axis = { stroke: () => colourNamed("soft"), font: "11px system-ui, sans-serif", grid: { stroke: () => colourNamed("line"), width: 1 }, ticks: { show: false } };
  const clock = t => new Date(t * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  return {
    width: box.clientWidth, height: CHART_HEIGHT,
    cursor: { sync: { key: "history" }, drag: { x: false, y: false } },
    legend: { markers: { width: 0, fill: (u, i) => colourNamed(chart.lines[i - 1].colour) } },
    scales: {
      x: { range: () => [Math.min(chart.from, chart.to - LEAST_SPAN), chart.to] },
      y: { range: (u, from, to) => [Math.min(0, from * 1.1), Math.max(0.1, to * 1.15)] },
    },
    axes: [{ ...axis, space: 70, size: 24, values: (u, at) => at.map(clock) }, { ...axis, size: 40, space: 34 }],
    series: [{ label: "time", value: (u, t) => t === null ? "–" : new Date(t * 1000).toLocaleTimeString() }, ...chart.lines.map((l, i) => ({
      label: l.label, width: l.area ? 0 : 1.5, points: { size: 4 },
      stroke: () => colourNamed(l.colour), fill: () => colourNamed(l.colour) + (l.area ? "" : "1c"),
      value: (u, v, s, at) => at === null || at === undefined ? "–" : l.show(chart.lines[i].values[at]),
    }))],
  };
}

// Charts follow the width of the page and its colours.
new ResizeObserver(() => { for (const [name, c] of charts) c.drawn.setSize({ width: byId("chart-" + name).clientWidth, height: CHART_HEIGHT }); }).observe(byId("charts"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { for (const c of charts.values()) c.drawn.redraw(false, false); });
