// What comes from the daemon, and what people do.

const KEPT = 2048;         // rounds, as many as the daemon remembers
const STALE_MS = 3500;     // without a frame the connection counts as lost
const RETRY_MS = 2000;
const HISTORY_MS = 5000;

const now = { overview: null, services: [], recent: {}, rounds: [], running: [], at: 0, epoch: null, frame: 0, broken: false };
let held = null;           // the rounds that are looked at while others come
let chosen = null;         // the number of the round that is explained
let open = false;          // its decision is shown
let zoom = 0;              // steps from the scale that the page would choose

function take(frame) {
  const t = frame.timeline;
  if (t.epoch !== now.epoch) {                    // another daemon, or it was started again
    now.rounds = []; past.length = 0; now.epoch = t.epoch;
    if (chosen !== null && held) follow();
  }
  const have = new Set(now.rounds.map(r => r.round)); // in the order in which they end, which is not that of numbers on several devices
  now.rounds.push(...t.rounds.filter(r => !have.has(r.round)));
  now.rounds.splice(0, Math.max(0, now.rounds.length - KEPT));
  now.running = [t.running, ...(t.beside || [])].filter(r => r);
  now.services = t.services;
  now.recent = Object.fromEntries(frame.recent.map(s => [s.name, s]));
  now.at = t.now_ns;
  now.frame = performance.now();
  now.overview = frame.overview;
  if (frame.overview) remember(frame.overview);
  show();
}

function show() {
  const o = now.overview;
  if (o) { showOverview(o, now.recent); showGain(o); }
  if (o) showDevices(o.devices || []);
  showLink();
  if (!now.epoch) return;
  if (!held) render();
}

// showLink says how the connection and the daemon stand.
function showLink() {
  const barred = !byId("door").hidden;
  const quiet = performance.now() - now.frame, lost = !barred && (now.broken || now.frame > 0 && quiet > STALE_MS);
  const link = byId("link"), notice = byId("notice");
  const text = barred ? "token required" : lost ? "connection lost" : now.frame ? "live" : "connecting";
  if (link.textContent !== text) link.textContent = text;
  link.className = "link " + (lost ? "lost" : now.frame && !barred ? "live" : "");
  let say = "", bad = false;
  if (lost) {
    say = now.frame ? "The connection to the daemon is lost; this page is " + ago(quiet / 1000) + " old. Reconnecting." : "No daemon answers here, or too many pages are open. Reconnecting.";
    bad = true;
  } else if (now.frame && !barred && !now.overview) {
    say = "The scheduler does not respond: see the log of the daemon.";
    bad = true;
  } else if (now.overview) {
    const waits = now.overview.services.filter(s => !s.ready), loading = waits.filter(s => !s.fault && (!s.state || s.state === "loading"));
    const faults = waits.filter(s => s.fault).map(s => (s.state ? "The model of " + s.name + " could not be loaded: " : s.name + " has failed permanently: ") + s.fault + ".");
    bad = faults.length > 0;
    say = [...faults, ...(loading.length > 0 ? ["Loading: " + loading.map(s => s.name).join(", ") + "."] : [])].join(" ");
  }
  if (!say && now.overview && now.overview.not_stored) say = "Not stored: " + now.overview.not_stored.join(". ") + ".";
  notice.hidden = say === "";
  notice.className = bad ? "notice bad" : "notice";
  if (notice.textContent !== say) notice.textContent = say;
}

// following returns what is to be drawn while nothing is held.
const following = rounds => ({ rounds: rounds.filter(shown), pan: 0, zoom, live: { now: now.at, running: now.running.find(shown) || null } });

// hold keeps the picture as it is.
function hold() {
  if (held || now.rounds.length === 0) return;
  held = following(now.rounds.slice());
  byId("held").hidden = false;
}

// follow shows what comes again.
function follow() {
  held = null; chosen = null; open = false;
  byId("held").hidden = true;
  byId("decision").hidden = true;
  history.replaceState(null, "", location.pathname + location.search);
  render();
}

// close leaves the decision for the picture, for the keyboard, too.
function close() {
  follow();
  byId("timeline").focus();
}

function render() {
  const box = byId("timeline");
  const empty = now.rounds.length === 0 && !held;
  byId("legend").hidden = byId("keys").hidden = byId("tools").hidden = empty;
  if (empty) {
    const serving = now.services.find(s => !s.gone), first = serving ? serving.name : "NAME";
    box.replaceChildren(html("p", { class: "empty" }, "No group has run yet. To see some:",
      html("code", {}, "overlapd bench serve --url " + location.origin + " --service " + first + " --rate 20 --duration 10s")));
    return;
  }
  draw(box, held || following(now.rounds), now.services, chosen);
  if (chosen !== null) box.setAttribute("aria-activedescendant", "round-" + chosen);
  else box.removeAttribute("aria-activedescendant");
}

// choose marks a round, brings it into the picture, and explains it if asked.
function choose(number, explained) {
  hold();
  if (!held) return;
  const index = held.rounds.findIndex(r => r.round === number);
  if (index < 0) return;
  chosen = number; open = explained;
  reveal(byId("timeline"), held, held.rounds[index]);
  render();
  const panel = byId("decision");
  panel.hidden = !open;
  if (!open) return;
  panel.replaceChildren(...explain(held.rounds[index], now.services, now.overview ? now.overview.policy : ""));
  byId("before").onclick = () => step(-1);
  byId("after").onclick = () => step(1);
  byId("close").onclick = close;
  byId("share").onclick = () => share(held.rounds[index]);
  history.replaceState(null, "", "#select=" + number);
}

// step goes to a neighbour of the round that is chosen.
function step(by) {
  hold();
  if (!held) return;
  const at = held.rounds.findIndex(r => r.round === chosen);
  const to = at < 0 ? held.rounds.length - 1 : Math.min(held.rounds.length - 1, Math.max(0, at + by));
  const button = document.activeElement && document.activeElement.id;
  choose(held.rounds[to].round, open);
  if (button === "before" || button === "after") byId(button).focus();
}

// moveBy moves the picture, and zoomBy changes its scale, around a place in it.
function moveBy(px) {
  hold();
  if (!held) return;
  held.pan = Math.max(0, held.pan + px);
  requestAnimationFrame(render);
}
function zoomBy(steps, x) {
  hold();
  if (!held) return;
  const box = byId("timeline");
  zoomTo(box, held, held.zoom + steps, x === undefined ? middle(box) : x);
  zoom = held.zoom;
  requestAnimationFrame(render);
}

// middle is where the round is that is chosen, or else the middle of the picture.
function middle(box) {
  const r = held.rounds.find(r => r.round === chosen), plan = planOf(box, held);
  const x = r ? (plan.at(r.start_ns) + plan.at(r.end_ns)) / 2 : 0;
  return x > plan.left && x < plan.width ? x : box.clientWidth / 2;
}
const place = e => e.clientX - byId("timeline").getBoundingClientRect().left;

let dragged = null; // where the pointer was that moves the picture, and how far it went
byId("timeline").addEventListener("pointerdown", e => { if (e.button === 0) dragged = { x: e.clientX, far: 0 }; });
byId("timeline").addEventListener("pointermove", e => {
  if (!dragged || !e.buttons) return;
  const by = e.clientX - dragged.x;
  dragged.far += Math.abs(by);
  if (dragged.far < 5) return;
  dragged.x = e.clientX;
  byId("timeline").setPointerCapture(e.pointerId);
  moveBy(by);
});
byId("timeline").addEventListener("wheel", e => {
  if (e.ctrlKey || e.metaKey) zoomBy(e.deltaY < 0 ? 1 : -1, place(e));
  else if (Math.abs(e.deltaX) > Math.abs(e.deltaY)) moveBy(-e.deltaX);
  else if (e.shiftKey) moveBy(-e.deltaY);
  else return;
  e.preventDefault();
}, { passive: false });
byId("zoom-in").onclick = () => zoomBy(1);
byId("zoom-out").onclick = () => zoomBy(-1);
byId("earlier").onclick = () => moveBy(byId("timeline").clientWidth / 2);
byId("later").onclick = () => moveBy(-byId("timeline").clientWidth / 2);
byId("follow").onclick = () => { zoom = 0; follow(); };
byId("timeline").addEventListener("click", e => {
  if (dragged && dragged.far >= 5) return;
  const g = e.target.closest("[data-round]");
  if (g) choose(Number(g.dataset.round), true);
});
byId("timeline").addEventListener("pointerenter", e => { if (e.pointerType === "mouse") hold(); });
byId("timeline").addEventListener("pointerleave", () => { if (chosen === null && held && held.pan === 0) follow(); });
byId("timeline").addEventListener("keydown", e => {
  const keys = {
    ArrowLeft: () => step(-1), ArrowRight: () => step(1),
    Home: () => { hold(); if (held) choose(held.rounds[0].round, open); },
    End: () => { hold(); if (held) choose(held.rounds[held.rounds.length - 1].round, open); },
    Enter: () => { if (chosen === null) step(0); if (chosen !== null) choose(chosen, true); },
    " ": () => { if (held) follow(); else hold(); },
    "+": () => zoomBy(1), "-": () => zoomBy(-1), PageUp: () => byId("earlier").click(), PageDown: () => byId("later").click(),
  };
  if (keys[e.key] && !e.ctrlKey && !e.metaKey && !e.altKey) { keys[e.key](); e.preventDefault(); }
});
document.addEventListener("keydown", e => { if (e.key === "Escape" && (held || !byId("decision").hidden)) close(); });
new ResizeObserver(() => { if (now.epoch) render(); }).observe(byId("timeline"));

// fromFragment opens the round that the address names, once.
async function fromFragment() {
  const m = /^#select=(\d{1,15})$/.exec(location.hash);
  if (!m) return;
  const number = Number(m[1]);
  if (!now.rounds.some(r => r.round === number)) {
    const answer = await ask("overlapd/timeline?since=" + (number - 1));
    const page = answer.ok ? await answer.json() : { rounds: [] };
    if (!page.rounds.length || page.rounds[0].round !== number) {
      byId("decision").hidden = false;
      byId("decision").replaceChildren(html("div", { class: "bar" },
        html("p", {}, "Round " + number + " is no longer stored, or has not run yet."),
        html("button", { id: "close", type: "button" }, "Close")));
      byId("close").onclick = close;
      return;
    }
    held = { rounds: page.rounds, pan: 0, zoom, live: null };
    byId("held").hidden = false;
  }
  choose(number, true);
}

let device = null;         // of a pool, whose lane is shown
let source = null;

// shown reports whether a round is in the lane that is shown.
function shown(r) { return device === null || r.device === device; }

// showDevices offers the devices of a pool.
function showDevices(all) {
  const box = byId("devices");
  box.hidden = all.length < 2;
  if (box.hidden || box.childElementCount === all.length) return;
  device = all[0].name;
  box.replaceChildren(...all.map((o, i) => {
    const b = html("button", { type: "button", "aria-pressed": String(i === 0), title: o.device }, o.name);
    b.onclick = () => {
      device = o.name;
      [...box.children].forEach((c, j) => c.setAttribute("aria-pressed", j === i));
      if (held) follow();
      show();
    };
    return b;
  }));
}

// refreshHistory asks for the history, for as long as the page is looked at.
async function refreshHistory() {
  if (document.hidden || !byId("door").hidden) return;
  try {
    const answer = await ask("overlapd/history");
    if (answer.ok) showHistory(await answer.json());
  } catch (e) {
    if (!(e instanceof TypeError)) console.error(e); // else the daemon is away, which the connection says
  }
}
setInterval(refreshHistory, HISTORY_MS);
document.addEventListener("visibilitychange", refreshHistory);

// connect shows what the daemon tells until the connection ends, and tries
// again. EventSource could not send a token.
async function connect() {
  const end = source = new AbortController();
  try {
    const answer = await ask("overlapd/events", end.signal);
    if (answer.status === 401) { wantToken(); return; }
    if (!answer.ok) throw new Error(answer.status);
    admitted();
    refreshHistory();
    let first = true;
    await eachEvent(answer.body, text => {
      now.broken = false;
      take(JSON.parse(text));
      if (first) { first = false; if (chosen === null) fromFragment(); }
    });
  } catch (e) {
    if (!end.signal.aborted && e.name === "SyntaxError") console.error(e);
  }
  if (end.signal.aborted) return;
  now.broken = true;
  showLink();
  setTimeout(() => { if (source === end) connect(); }, RETRY_MS);
}
setInterval(showLink, 1000);
window.addEventListener("hashchange", () => { if (chosen === null) fromFragment(); });
connect();
