// The last groups as a picture: a row for the device and one for each service.

const TOP = 30, PAD = 5;
const MEDIAN_PX = 46;   // of a round, where there is room
const GAP_PX = 48;      // of a time in which nothing ran, however long
const AHEAD = 0.14;     // of the width is for what is predicted
const LEAST_MARKED = 7; // pixels that a round has to have for its prediction to be drawn
const MOST_FLAGS = 150; // rounds in a picture, with more of which only missed deadlines are drawn
const MOST_ZOOM = 12;   // steps in either direction, of 2 or 2.5 each

let ROW = 40;           // height, less where there are many services or little room

// nice returns a number of the row 1, 2, 5, 10, 20, … that is at least x, or the one
// some steps further.
function nice(x, further) {
  const k = Math.ceil(3 * Math.log10(Math.max(x, 1)) - 0.1) + further;
  return [1, 2, 5][((k % 3) + 3) % 3] * 10 ** Math.floor(k / 3);
}

// nsPer100 chooses the scale: one for all that is seen. The median of the latest
// rounds has a width that one can see, unless people have zoomed.
function nsPer100(rounds, width, zoom) {
  const last = rounds.slice(-48).map(r => r.end_ns - r.start_ns).sort((a, b) => a - b);
  return nice((last[last.length >> 1] || 10 * MS) / (width < 560 ? MEDIAN_PX / 2 : MEDIAN_PX) * 100, -zoom);
}

// layout says where the times of the rounds are: the last ends where the prediction
// begins, or as many pixels further right as the picture was moved. Times in which
// nothing ran are drawn short. It goes back to the left edge, or to the round until.
function layout(view, width, left, until) {
  const { rounds, live } = view, right = left + (width - left) * (1 - AHEAD), end = right + view.pan;
  const per = nsPer100(rounds, width, view.zoom) / 100, last = rounds.length - 1;
  const pieces = []; // {from, to, x0, x1, idle}, the latest first
  const shown = [];
  let x = end, t = rounds[last].end_ns, wall = t, i = last;
  const add = (from, to, idle) => {
    const w = idle ? GAP_PX : (to - from) / per;
    pieces.push({ from, to, x0: x - w, x1: x, idle });
    x -= w;
  };
  if (live) {
    wall = live.now;
    const busyFrom = live.running ? live.running.start_ns : wall;
    if (live.running) add(busyFrom, wall, (wall - busyFrom) / per > right - left);
    if (busyFrom - t > 0) add(t, busyFrom, (busyFrom - t) / per > GAP_PX);
  }
  for (; i >= 0 && (x > left || rounds[i].round >= until); i--) {
    const r = rounds[i];
    if (x > left && x - (r.end_ns - r.start_ns) / per < width) shown.unshift(r); // the first may be cut off
    add(r.start_ns, r.end_ns, false);
    t = i > 0 ? rounds[i - 1].end_ns : r.start_ns;
    if (i > 0 && r.start_ns > t) add(t, r.start_ns, (r.start_ns - t) / per > GAP_PX);
  }
  pieces.reverse();
  const pieceAt = (value, edge) => { // the last that begins before it, or the first
    let low = 0, high = pieces.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (pieces[middle][edge] <= value) low = middle; else high = middle - 1;
    }
    return pieces[low];
  };
  const at = time => {
    if (time >= wall) return end + (time - wall) / per;
    const p = pieceAt(time, "from");
    if (time < p.from) return -1;
    return p.x0 + (p.x1 - p.x0) * Math.min(1, (time - p.from) / Math.max(1, p.to - p.from));
  };
  const timeAt = px => { // the inverse
    if (px >= end) return wall + (px - end) * per;
    const p = pieceAt(px, "x0");
    return p.from + (p.to - p.from) * Math.min(1, Math.max(0, (px - p.x0) / Math.max(1, p.x1 - p.x0)));
  };
  return { per, end, right, left, width, shown, pieces, at, timeAt, blank: i < 0 ? x - left : 0 };
}

// planOf lays a view out in an element, and moves it back where there would be nothing
// but what was before the first round.
function planOf(box, view, until) {
  const width = Math.max(300, box.clientWidth), left = width < 560 ? 70 : 120;
  const plan = layout(view, width, left, until);
  if (view.pan === 0 || plan.blank <= 0) return plan;
  view.pan = Math.max(0, view.pan - plan.blank);
  return layout(view, width, left, until);
}

// zoomTo changes the scale so that what is at a place stays there.
function zoomTo(box, view, zoom, x) {
  const time = planOf(box, view).timeAt(x);
  view.zoom = Math.max(-MOST_ZOOM, Math.min(MOST_ZOOM, zoom));
  const to = planOf(box, view, 0).at(time);
  if (isFinite(to)) view.pan = Math.max(0, view.pan + x - to);
}

// reveal moves the picture so that a round is in it.
function reveal(box, view, r) {
  const plan = planOf(box, view, r.round), x0 = plan.at(r.start_ns), x1 = plan.at(r.end_ns);
  if (x0 < plan.left || x1 > plan.right) view.pan = Math.max(0, view.pan + (plan.left + plan.right) / 2 - (x0 + x1) / 2);
}

// draw fills the picture.
function draw(box, view, services, chosen) {
  ROW = services.length > 12 || innerWidth < 560 ? 26 : 40;
  const plan = planOf(box, view), { width, left } = plan;
  const height = TOP + ROW * services.length + 4;
  const clip = svg("clipPath", { id: "plot" }, svg("rect", { x: left, y: 0, width: width - left, height }));
  const plot = svg("g", { "clip-path": "url(#plot)" });
  const picture = svg("svg", { viewBox: "0 0 " + width + " " + height, height, "aria-hidden": false, role: "presentation" },
    svg("defs", {}, clip), lanes(services, left, width), plot);
  for (const p of plan.pieces) if (p.idle) plot.append(...idle(p, height));
  for (const r of plan.shown) plot.append(group(r, plan, services, chosen, height));
  const live = view.live || {};
  if (live.running) plot.append(...inFlight(live.running, live.now, plan));
  plot.append(...deadlines(plan.shown, live.running, live.now, plan), ...plan.shown.flatMap(r => labels(r, plan)));
  if (view.live) plot.append(svg("line", { class: "here", x1: plan.end, x2: plan.end, y1: 0, y2: height }));
  box.replaceChildren(picture);
  byId("scale").replaceChildren(html("span", {}, duration(plan.per * 100)));
}

function lanes(services, left, width) {
  const g = svg("g", { "aria-hidden": true }, svg("text", { class: "label", x: 0, y: 18 }, "device"));
  services.forEach((s, i) => {
    const y = TOP + ROW * i;
    g.append(svg("rect", { class: "lane", x: left, y: y + 1, width: width - left, height: ROW - 2, rx: 3 }));
    g.append(svg("text", { x: 0, y: y + ROW / 2 + 4 }, fitText(s.gone ? s.name + " (gone)" : s.name, left - 8)));
  });
  return g;
}

// fitText cuts a name so that it fits a width, that of a variant in front: its end says which.
function fitText(name, width) {
  const most = Math.floor(width / 6.6);
  if (name.length <= most) return name;
  const keep = Math.max(1, most - 1);
  return name.includes("/") ? "…" + name.slice(-keep) : name.slice(0, keep) + "…";
}

function idle(p, height) {
  const x = (p.x0 + p.x1) / 2;
  return [
    svg("line", { class: "gap", x1: x, x2: x, y1: 28, y2: height }),
    svg("text", { class: "label", x, y: 20, "text-anchor": "middle", "aria-hidden": true }, duration(p.to - p.from).replace(NEAR, "\u2009")),
  ];
}

// describe says what a round was, for those who do not see it.
function describe(r, services) {
  const parts = r.spans.map(s => services[s.service].name + " operators " + s.start + " to " + s.end + " of " + s.of + ", batch of " + s.size);
  return "round " + r.round + ": " + parts.join("; ") + "; predicted " + duration(r.predicted_ns) + ", took " + duration(ranFor(r));
}

function group(r, plan, services, chosen, height) {
  const x0 = plan.at(r.start_ns), x1 = Math.max(x0 + 1.5, plan.at(r.end_ns));
  const picked = r.round === chosen;
  const g = svg("g", {
    class: picked ? "round chosen" : "round", id: "round-" + r.round, role: "option",
    "aria-selected": picked, "aria-label": describe(r, services), "data-round": r.round,
  });
  const over = ranFor(r) > r.bound_ns && r.bound_ns > 0;
  g.append(svg("rect", { class: over ? "took over" : "took", x: x0 + 0.5, y: PAD + 3, width: Math.max(1, x1 - x0 - 1), height: 14, rx: 2 }));
  for (const s of r.spans) g.append(...span(s, r, x0, x1, plan));
  if (r.predicted_ns > 0 && x1 - x0 > LEAST_MARKED) g.append(...prediction(r, plan));
  g.append(svg("rect", { class: "hit", x: x0, y: 1, width: Math.max(4, x1 - x0), height: height - 2, rx: 3 }));
  return g;
}

// prediction draws when the group was predicted to end, and by when 99 of 100
// would have ended.
function prediction(r, plan) {
  const x = plan.at(r.start_ns + r.predicted_ns), b = plan.at(r.start_ns + r.bound_ns), out = [];
  if (isFinite(b) && isFinite(x) && b > x) out.push(svg("line", { class: "bounded", x1: x, x2: b, y1: PAD, y2: PAD }));
  if (isFinite(x)) out.push(svg("line", { class: "predicted", x1: x, x2: x, y1: PAD - 3, y2: PAD + 20 }));
  return out;
}

// span draws the operators of one service: the dark part says which of the
// model they were.
function span(s, r, x0, x1, plan) {
  const y = TOP + ROW * s.service, w = Math.max(1.5, x1 - x0 - 1), out = [];
  out.push(svg("rect", { class: "span " + colour(s.service) + (failed(s) ? " wrong" : ""), x: x0 + 0.5, y: y + 3, width: w, height: ROW - 6, rx: 2 }));
  out.push(svg("rect", { class: "part " + colour(s.service), x: x0 + 0.5 + w * s.start / s.of, y: y + ROW - 7, width: Math.max(1, w * (s.end - s.start) / s.of), height: 4 }));
  return out;
}

const failed = s => s.status !== "done" && s.status !== "running";

// labels says what a group ran of each service, where that fits: above the
// deadlines, and inside the picture if the group began before it.
function labels(r, plan) {
  const x0 = Math.max(plan.left, plan.at(r.start_ns)), w = plan.at(r.end_ns) - x0 - 1, out = [];
  for (const s of r.spans) {
    const part = s.start === 0 && s.end === s.of ? "" : s.start + "–" + s.end;
    const label = failed(s) ? s.status : part + (part ? " " : "") + "×" + s.size;
    if (w > label.length * 6.2 + 6) out.push(svg("text", { class: "inside", x: x0 + 5, y: TOP + ROW * s.service + ROW / 2 + 2, "aria-hidden": true }, label));
  }
  return out;
}

// deadlines draws each of them once, above all spans, which would hide it: when
// the batch is due, red if it was still running then.
function deadlines(rounds, running, now, plan) {
  const due = new Map();
  const see = (r, end) => {
    for (const s of r.spans) {
      if (!s.deadline_ns) continue;
      const key = s.service + " " + s.deadline_ns, seen = due.get(key);
      due.set(key, { service: s.service, at: s.deadline_ns, late: end > s.deadline_ns || !!seen && seen.late });
    }
  };
  for (const r of rounds) see(r, r.end_ns);
  if (running) see(running, now);
  const out = [];
  for (const d of due.values()) {
    const x = plan.at(d.at), y = TOP + ROW * d.service;
    if (!isFinite(x) || x < plan.left || rounds.length > MOST_FLAGS && !d.late) continue;
    const path = "M" + (x - 4.5) + " " + (y - 1) + "h9l-4 7V" + (y + ROW - 2) + "h-1V" + (y + 6) + "z";
    out.push(svg("path", { class: "deadline " + colour(d.service) + (d.late ? " late" : ""), d: path, "aria-hidden": true }));
  }
  return out;
}

// inFlight draws the round that runs now.
function inFlight(r, now, plan) {
  const x0 = plan.at(r.start_ns), end = plan.at(Math.max(now, r.start_ns + r.predicted_ns)), out = [];
  const w = Math.max(2, end - x0 - 1);
  out.push(svg("rect", { class: "took now", x: x0 + 1, y: PAD + 4, width: w, height: 12, rx: 2 }));
  for (const s of r.spans) {
    out.push(svg("rect", { class: "span " + colour(s.service), opacity: 0.55, x: x0 + 0.5, y: TOP + ROW * s.service + 3, width: w, height: ROW - 6, rx: 2 }));
  }
  return out;
}
