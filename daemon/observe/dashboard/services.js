// The services, the predictor and the daemon as a whole.

// The bar of a service ends at so many targets.
const BULLET = 1.25;
// A host that is late for so much of the time is named: queries of an emulated device wait for it.
const HOST_LATE = 0.05;
// Rates are those of so many milliseconds.
const RATE_WINDOW = 5000;

const past = [];

// remember keeps what rates are counted from.
function remember(overview) {
  past.push({
    at: performance.now(), rounds: overview.rounds, busy: overview.busy_seconds, late: overview.host_late_seconds || 0,
    finished: overview.services.map(s => s.finished),
  });
  while (past.length > 2 && past[0].at < performance.now() - RATE_WINDOW) past.shift();
}

// perSecond returns how fast a counter grows.
function perSecond(of) {
  const first = past[0], last = past[past.length - 1];
  const seconds = (last.at - first.at) / 1000;
  return seconds > 0.2 ? Math.max(0, (of(last) - of(first)) / seconds) : 0;
}

function showOverview(o, recent) {
  byId("device").textContent = o.device;
  const devices = Math.max(1, (o.devices || []).length), late = perSecond(h => h.late) / devices;
  byId("emulated").hidden = !o.emulated;
  byId("emulated").textContent = "emulated: nothing is computed" + (late >= HOST_LATE ? ", and this host was late " + percent(late, 0) + " of the time" : "");
  document.title = "overlapd: " + o.services.length + " on " + o.device;
  const facts = [
    ["policy", o.policy], ["up", ago(o.up_seconds)], ["rounds/s", rate(perSecond(h => h.rounds))],
    ["device busy", percent(Math.min(1, perSecond(h => h.busy) / devices), 0)],
  ];
  if (o.load.devices) facts.push(["demand", o.load.devices_demanded.toFixed(2) + NEAR + "of" + NEAR + o.load.devices.length + (o.load.devices.length === 1 ? " device" : " devices")]);
  if (o.plans.made > 0) facts.push(["chosen ahead", percent(o.plans.kept / Math.max(1, o.rounds), 0)]);
  if (o.predictor.file) facts.push(["prediction error", o.predictor.file.mape_test.toFixed(1) + NEAR + "%"]);
  if (o.memory) facts.push(["models in memory", o.services.filter(s => s.state === "in memory").length + " of " + o.services.length + ", " + mib(o.memory.used_bytes) + " of " + mib(o.memory.limit_bytes)]);
  facts.push(...deviceFacts(o));
  byId("facts").replaceChildren(...facts.map(([name, value]) => html("div", {}, html("dt", {}, name), html("dd", {}, value))));
  byId("memory").hidden = !o.services.some(s => s.resident_bytes > 0);
  byId("services").tBodies[0].replaceChildren(...o.services.map((s, i) => serviceRow(s, i, recent[s.name] || {}, (o.load.services || {})[s.name])));
  showPredictor(o.predictor);
}

// deviceFacts says what is known of each GPU or instance, if there is one.
function deviceFacts(o) {
  const facts = [];
  for (const g of o.gpu || []) {
    const which = (o.gpu.length > 1 ? (g.mig_profile || g.uuid) + " " : ""), s = g.sample || {};
    if (g.mig_profile && o.gpu.length === 1) facts.push(["MIG", g.mig_profile]);
    if (s.memory) facts.push([which + "memory", gib(s.memory.used_bytes) + " of " + gib(s.memory.total_bytes)]);
    if (s.utilization) facts.push([which + "kernels", s.utilization.gpu_percent + " % of the time"]);
    if (s.temperature_celsius) facts.push([which + "temperature", s.temperature_celsius + " °C"]);
    if (s.power_watts) facts.push([which + "power", s.power_watts.toFixed(0) + " W"]);
    if (g.mps) facts.push([which + "MPS", g.mps.phase + (g.mps.fault ? ": " + g.mps.fault : "")]);
    if (g.fault) facts.push([which + "GPU", g.fault]);
  }
  return facts;
}
const gib = bytes => ((bytes || 0) / 2 ** 30).toFixed(1) + " GiB";

function serviceRow(s, i, recent, load) {
  const target = s.target_ms * MS;
  const unanswered = total(s.refused) + total(s.dropped) + total(s.failed), lost = unanswered + s.late;
  const share = recent.recent ? recent.recent_missed / recent.recent : 0;
  const speed = rate(perSecond(h => h.finished[i] || 0));
  const late = recent.p99_ns > target ? "bad" : "";
  const state = s.ready ? (s.best_effort ? "best effort" : "") : s.fault ? "failed" : s.state || "loading";
  return html("tr", { class: s.ready ? colour(i) : colour(i) + " down" },
    html("td", {},
      html("div", { class: "name" }, html("i", {}), html("span", { title: variantOf(s) }, s.name), state ? html("span", { class: s.fault ? "badge warn" : "badge", title: s.fault }, state) : null),
      html("div", { class: "sub" }, duration(target) + " · " + speed + "/s")),
    html("td", { class: "n wide" }, duration(target)),
    html("td", { class: "wide" }, bullet(recent, target)),
    html("td", { class: "n" }, recent.recent ? duration(recent.p50_ns) : "–"),
    html("td", { class: "n " + late }, recent.recent ? duration(recent.p99_ns) : "–"),
    html("td", { class: "n wide" }, speed),
    html("td", { class: "n " + (share > 0.01 ? "bad" : share > 0 ? "warned" : "") }, recent.recent ? percent(share) : "–"),
    html("td", { class: "n wide", title: load ? load.device_seconds.toFixed(1) + " s of device time in the last minute" : "" }, load ? percent(load.headroom, 0) : "–"),
    html("td", { class: "n wide soft", title: losses(s) }, count(lost) + " of " + count(s.finished + unanswered)),
    html("td", { class: "n" }, count(s.queued) + (s.paused ? " +" + s.paused : "")),
    html("td", { class: "n wide", hidden: byId("memory").hidden, title: "intermediates: " + mib(s.intermediate_bytes) }, mib(s.memory_bytes || s.resident_bytes)));
}

// variantOf says how accurate a variant is, and on the first how the one is selected that answers.
const variantOf = s => s.name + (s.accuracy ? ", accuracy " + s.accuracy : "") + (s.selection ? "; variants are selected " + s.selection : "");
const mib = bytes => count(bytes / 2 ** 20) + NEAR + "MiB";

// losses says what became of the queries that were not answered in time.
function losses(s) {
  const parts = s.late ? ["late: " + s.late] : [];
  for (const [how, counts] of [["refused", s.refused], ["dropped", s.dropped], ["failed", s.failed]]) {
    for (const [reason, n] of Object.entries(counts || {})) parts.push(how + ", " + reason + ": " + n);
  }
  return parts.join("\n") || "no query was missed";
}

// bullet draws p99, p50 over it, and the target as a line.
function bullet(recent, target) {
  const at = ns => (100 * Math.min(1, (ns || 0) / (BULLET * target))).toFixed(1) + "%";
  const p99 = html("b", {}), p50 = html("b", {}), line = html("i", {});
  p99.style.width = at(recent.p99_ns);
  p50.style.width = at(recent.p50_ns);
  line.style.left = (100 / BULLET) + "%";
  const text = recent.recent ? "p50 " + duration(recent.p50_ns) + ", p99 " + duration(recent.p99_ns) + " of " + duration(target) : "no query yet";
  return html("div", { class: "bullet", role: "img", "aria-label": text, title: text }, p99, p50, line);
}

function showPredictor(p) {
  let phase = p.phase + (p.reason ? ": " + p.reason : "");
  if (p.measuring) phase += " (" + count(p.measuring.done) + " of " + count(p.measuring.total) + " measured" +
    (p.measuring.left_seconds ? ", " + ago(p.measuring.left_seconds) + " left for all" : "") + ")";
  byId("phase").textContent = phase;
  byId("shapes").hidden = p.shapes.length === 0;
  const ratio = r => r ? r.toFixed(2) : "–";
  byId("shapes").tBodies[0].replaceChildren(...p.shapes.map(s => html("tr", {},
    html("td", {}, s.services.join(" + ") || "others"), html("td", { class: "wide soft" }, s.source),
    html("td", { class: "n wide" }, count(s.runs)),
    html("td", { class: "n " + (s.mape > 15 ? "warned" : "") }, s.mape.toFixed(1) + NEAR + "%"),
    html("td", { class: "n wide" }, ratio(s.p50)), html("td", { class: "n" }, ratio(s.p99)),
    html("td", { class: "n" }, "× " + s.bound.toFixed(2)))));
}
