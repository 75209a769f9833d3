// Why a group was chosen.

// groups reports whether a policy forms groups of several services.
const groups = policy => policy === "overlap" || policy === "abacus";

function explain(r, services, policy) {
  const name = i => services[i].name;
  const out = [html("div", { class: "bar" },
    html("h2", {}, "Round " + count(r.round)),
    html("p", { class: "badge" }, r.planned ? "chosen while the round before it ran" : "chosen when the device was free"),
    html("button", { id: "before", type: "button", "aria-label": "previous round" }, "←"),
    html("button", { id: "after", type: "button", "aria-label": "next round" }, "→"),
    html("button", { id: "share", type: "button", title: "save this round as a self-contained file" }, "Share"),
    html("button", { id: "close", type: "button" }, "Close"))];
  out.push(html("p", { class: "why" }, sentence(r, name, policy)));
  out.push(compare(r));
  if (r.candidates.length > 0) out.push(candidates(r, name, policy));
  if (r.dropped.length > 0) out.push(dropped(r, name));
  return out;
}

// sentence tells the decision as one would to a colleague.
function sentence(r, name, policy) {
  const first = r.candidates.find(c => c.place === 1);
  const parts = [];
  if (first) parts.push("The most urgent that ran was " + name(first.service) + ", due in " + duration(first.headroom_ns) + ".");
  const with_ = r.spans.slice(1).map(s => name(s.service));
  if (with_.length > 0) {
    parts.push("With it ran " + with_.join(" and ") + ": together predicted to take " + duration(r.predicted_ns) +
      (r.solo_ns > r.predicted_ns ? ", " + percent(1 - r.predicted_ns / r.solo_ns, 0) + " less than one after another" : "") + ".");
  } else if (r.candidates.length > 1) {
    parts.push(groups(policy) ? "It ran alone: no operators of the others would have met the deadlines and gained." : "The policy " + policy + " runs one batch at a time.");
  } else {
    parts.push("There was nothing else to run.");
  }
  if (r.asked.groups > 0) parts.push("The predictor predicted " + many(r.asked.groups, "group", "groups") + " in " + many(r.asked.calls, "call", "calls") + ".");
  return parts.join(" ");
}

// compare draws the times that matter on one scale.
function compare(r) {
  const rows = [];
  if (r.solo_ns > 0 && r.spans.length > 1) rows.push(["one after another", r.solo_ns, "", ""]);
  if (r.predicted_ns > 0) rows.push(["predicted", r.predicted_ns, "mine", "bound " + duration(r.bound_ns)]);
  if (r.end_ns > 0) {
    const took = ranFor(r);
    const error = r.predicted_ns > 0 ? signed(took / r.predicted_ns - 1) : "";
    rows.push(["took", took, r.bound_ns > 0 && took > r.bound_ns ? "over" : "", error]);
    if (r.late_ns > 0) rows.push(["host delay", r.late_ns, "", ""]);
  }
  if (r.headroom_ns > 0) rows.push(["headroom", r.headroom_ns, "room", "limit"]);
  const most = Math.max(1, ...rows.map(row => row[1]));
  const box = html("div", { class: "compare" });
  for (const [what, ns, style, more] of rows) {
    const bar = html("b", { class: style });
    bar.style.width = "calc((100% - var(--room)) * " + (ns / most).toFixed(4) + ")";
    box.append(html("span", { class: "soft" }, what), html("span", { class: "track" }, bar, duration(ns), html("span", { class: "soft wide" }, more)));
  }
  return box;
}

function candidates(r, name, policy) {
  const head = ["place", "service", "headroom", "alone", "result"];
  const order = c => c.place || r.candidates.length + 1; // what did not run comes last
  const rows = r.candidates.slice().sort((a, b) => order(a) - order(b)).map(c => {
    const s = r.spans.find(s => s.service === c.service && c.place > 0);
    return html("tr", { class: colour(c.service) },
      html("td", { class: "n" }, c.place || "–"),
      html("td", {}, html("div", { class: "name" }, html("i", {}), html("span", {}, name(c.service))),
        html("div", { class: "sub" }, "alone " + (c.solo_ns ? duration(c.solo_ns) : "–"))),
      html("td", { class: "n" + (c.headroom_ns < 0 ? " bad" : "") }, duration(c.headroom_ns)),
      html("td", { class: "n wide" }, c.solo_ns ? duration(c.solo_ns) : "–"),
      html("td", {}, verdict(c, s, policy)));
  });
  return html("table", { class: "candidates" },
    html("thead", {}, html("tr", {}, ...head.map((h, i) => html("th", { scope: "col", class: ["n", "", "n", "n wide", ""][i] }, h)))),
    html("tbody", {}, ...rows));
}

// verdict says what became of one candidate.
function verdict(c, s, policy) {
  const work = (c.batch && c.start > 0 ? "batch " + c.batch + " from operator " + c.start : "a new batch of " + c.size);
  if (!s) {
    if (!groups(policy)) return work + ": stays queued, less urgent";
    return work + ": left out" + (against(c) || ", no part of it fits or gains");
  }
  const ran = "operators " + s.start + " to " + s.end + " of " + s.of + ", " + many(s.queries, "query", "queries");
  if (c.place === 1) return ran + ": first, with all its remaining operators";
  return ran + (s.end === s.of ? ": fits to its end" : ": more operators would not fit or gain" + (against(c) && "; all of it" + against(c)));
}

// against says in numbers what speaks against the group with all of a candidate.
function against(c) {
  const t = c.tried;
  if (!t) return "";
  const took = t.predicted_ns ? " " + duration(t.predicted_ns) : "";
  if (t.headroom_ns && t.bound_ns > t.headroom_ns) return ": with it" + took + (took && ",") + " bound " + duration(t.bound_ns) + " > headroom " + duration(t.headroom_ns);
  return ": with it" + took + ", and one after another " + duration(t.apart_ns) + ": no gain";
}

function dropped(r, name) {
  const items = r.dropped.map(d => name(d.service) + ": query " + d.query + ", due in " + duration(d.headroom_ns));
  if (r.dropped_more) items.push("and " + count(r.dropped_more) + " more");
  return html("p", { class: "why" }, html("span", { class: "bad" }, "Dropped"), ", since even alone they would have ended too late: " + items.join("; ") + ".");
}
