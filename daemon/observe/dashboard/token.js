// How the page asks, and the token that it asks with where the daemon wants one.

// TOKEN names the token in the storage of this tab, which no other page, tab or
// request gets at: it goes out only in a header that this page sets, so that no
// foreign page can ask with it, and it is gone when the tab is closed.
const TOKEN = "overlapd-token";

// MAX_EVENT bounds what is kept of an event that does not end.
const MAX_EVENT = 64 << 20;

function ask(path, signal) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = token ? { Authorization: "Bearer " + token } : {};
  return fetch(path, { cache: "no-store", redirect: "error", headers, signal });
}

// wantToken shows the form, and says so if the token before was wrong.
function wantToken() {
  const wrong = sessionStorage.getItem(TOKEN) !== null;
  sessionStorage.removeItem(TOKEN);
  byId("door").hidden = false;
  byId("wrong").hidden = !wrong;
  byId("token").value = "";
  byId("token").focus();
  showLink();
}

function admitted() { byId("door").hidden = true; }

byId("door").addEventListener("submit", e => {
  e.preventDefault();
  const token = byId("token").value.trim();
  if (!/^[A-Za-z0-9._~+\/=-]+$/.test(token)) { byId("wrong").hidden = false; return; }
  sessionStorage.setItem(TOKEN, token);
  connect();
});

// eachEvent calls back with the data of each event of a stream.
async function eachEvent(stream, each) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = "";;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    if (rest.length > MAX_EVENT) throw new Error("an event does not end");
    for (const text of events) if (text.startsWith("data: ")) each(text.slice(6));
  }
}
