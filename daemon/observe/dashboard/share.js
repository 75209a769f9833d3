// A round as one file: the picture, the decision and the numbers, which opens in any
// browser without a daemon and has no program in it.

function share(r) {
  const o = now.overview || {}, when = new Date(Date.parse(now.epoch) + r.start_ns / MS);
  const panel = byId("decision").cloneNode(true), picture = byId("timeline").cloneNode(true);
  for (const button of panel.querySelectorAll("button")) button.remove();
  panel.hidden = false;
  const main = html("main", {},
    html("p", { class: "device" }, [o.device, "policy " + o.policy, when.toISOString()].join(" · ")),
    o.emulated ? html("p", { class: "notice" }, "The device is emulated: nothing was computed.") : null,
    html("section", {}, byId("legend").cloneNode(true), picture), panel,
    html("section", {}, html("details", {}, html("summary", {}, "All numbers of the round, times in nanoseconds since the daemon started"),
      html("pre", {}, JSON.stringify({ round: r, services: now.services.map(s => s.name), epoch: now.epoch }, null, 1)))));
  const title = "overlapd: round " + r.round;
  const text = "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">" +
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"><title>" + title + "</title><style>" +
    document.querySelector("style").textContent + "</style></head>" +
    new XMLSerializer().serializeToString(html("body", { class: "shared" }, html("header", {}, html("h1", {}, title)), main)) + "</html>";
  const address = URL.createObjectURL(new Blob([text], { type: "text/html" }));
  html("a", { href: address, download: "overlapd-round-" + r.round + ".html" }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60000);
}
