// Asks the server once a second what it does, while somebody looks, and shows it.
"use strict";

const INTERVAL_MS = 1000;
const PATIENCE_MS = 10000;
// A trend has so many points.
const TREND_POINTS = 60;
// A trend of fewer points shows nothing.
const FEWEST_POINTS = 5;
// More free slots of an instance are a number.
const SHOWN_FREE_SLOTS = 64;
const SVG = "http://www.w3.org/2000/svg";
const DRAWN = new Set(["svg", "rect", "polyline", "title"]);

const byId = (id) => document.getElementById(id);

function element(name, attributes = {}, ...children) {
  const made = DRAWN.has(name) ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

/** Changes a part of the page into another one, and leaves alone what is equal: the focus, the scrolling, what is open. */
function morph(shown, wanted) {
  for (const name of shown.getAttributeNames()) {
    if (!wanted.hasAttribute(name) && name !== "open") shown.removeAttribute(name);
  }
  for (const name of wanted.getAttributeNames()) {
    if (shown.getAttribute(name) !== wanted.getAttribute(name)) shown.setAttribute(name, wanted.getAttribute(name));
  }
  const next = [...wanted.childNodes];
  next.forEach((child, place) => {
    const old = shown.childNodes[place];
    if (!old) shown.append(child);
    else if (old.nodeName !== child.nodeName || (old.id || "") !== (child.id || "")) old.replaceWith(child);
    else if (child.nodeType === Node.TEXT_NODE) {
      if (old.data !== child.data) old.data = child.data;
    } else morph(old, child);
  });
  while (shown.childNodes.length > next.length) shown.lastChild.remove();
}

// Numbers as people read them.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const count = (number) => whole.format(number ?? 0);
const rate = (number) => (number === null ? "–" : number >= 100 ? whole.format(number) : short.format(number));
const percent = (share) => `${share > 0 && share < 0.01 ? short.format(share * 100) : whole.format(share * 100)} %`;

function time(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds >= 1) return `${short.format(seconds)} s`;
  return seconds >= 0.001 ? `${short.format(seconds * 1e3)} ms` : `${short.format(seconds * 1e6)} µs`;
}

function bytes(number) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; number >= 1024 && unit < units.length - 1; unit++) number /= 1024;
  return `${short.format(number)} ${units[unit]}`;
}

const plural = (number, one, many) => `${count(number)} ${number === 1 ? one : many}`;

// What the server said before, for rates and trends.

const known = new Map();

function keyOf(model) {
  return JSON.stringify([model.namespace, model.name, model.version, model.generation]);
}

/** The requests per second since the last answer, and the trends. */
function follow(model, now) {
  const key = keyOf(model);
  const before = known.get(key);
  const ended = Object.values(model.requests).reduce((sum, one) => sum + one, 0);
  const passed = before && (now - before.at) / 1000;
  const perSecond = before && passed > 0 ? Math.max(0, ended - before.ended) / passed : null;
  const trend = (points, value) => [...(points || []), value].slice(-TREND_POINTS);
  const state = {
    at: now,
    ended,
    perSecond,
    rates: perSecond === null ? [] : trend(before.rates, perSecond),
    queues: trend(before && before.queues, model.queue.requests),
  };
  known.set(key, state);
  return state;
}

function forgetOthers(models) {
  const present = new Set(models.map(keyOf));
  for (const key of known.keys()) if (!present.has(key)) known.delete(key);
}

// Parts of the page.

const meanTime = (sum) => (sum.count ? sum.seconds / sum.count : null);
const meanRows = (model) => {
  const batches = model.batches.sizes.reduce((sum, size) => sum + size.count, 0);
  return batches ? model.batches.sizes.reduce((sum, size) => sum + size.rows * size.count, 0) / batches : null;
};
const anchor = (model) => `model-${encodeURIComponent([model.namespace, model.name, model.version].filter(Boolean).join("/"))}`;

function bar(share) {
  const width = Math.max(0, Math.min(100, share * 100)).toFixed(1);
  const drawing = element("svg", { viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" });
  drawing.append(element("rect", { width, height: "8", rx: "1" }));
  return drawing;
}

function trendOf(points) {
  if (points.length < FEWEST_POINTS) return null;
  const most = Math.max(...points, 1);
  const at = (value, place) => `${(place * 100) / (TREND_POINTS - 1)},${(19 - (value / most) * 18).toFixed(1)}`;
  const drawing = element("svg", { viewBox: "0 0 100 20", preserveAspectRatio: "none", "aria-hidden": "true" });
  drawing.append(element("polyline", { points: points.map(at).join(" ") }));
  return drawing;
}

const stateOf = (model, more = "") =>
  element("span", { class: `${more}state ${model.state || ""}` }, model.state || "not loaded");
const header = (text, more = {}) => element("th", { scope: "col", ...more }, text);

/** What is not ready stands first. Otherwise the order is that of the names, so that no line moves while somebody reads. */
function inOrder(models) {
  const rank = ({ state, reason }) => (state === "READY" ? 1 : state && reason !== "unloaded" ? 0 : 2);
  const compare = (one, other) => (one < other ? -1 : one > other ? 1 : 0);
  return [...models].sort(
    (one, other) =>
      rank(one) - rank(other) ||
      compare(one.name, other.name) ||
      compare(one.namespace ?? "", other.namespace ?? "") ||
      Number(one.version ?? 0) - Number(other.version ?? 0),
  );
}

function overview(models, leftOut, filter) {
  const wide = { class: "wide" };
  const rows = models.map(({ model, state }) => {
    const cells = state
      ? [
          [rate(state.perSecond)],
          [count(model.queue.requests)],
          [time(model.queue.oldest_seconds), wide],
          [time(meanTime(model.times.request)), wide],
          [time(model.times.request.quantiles?.p99), wide],
          [model.instances.count ? `${model.instances.busy}/${model.instances.count}` : "–", wide],
          [meanRows(model) === null ? "–" : short.format(meanRows(model)), wide],
        ]
      : [["–"], ["–"], ...Array(5).fill(["–", wide])];
    const name = element("a", { href: `#${anchor(model)}` }, model.name);
    const version = model.version ? element("span", { class: "quiet" }, ` version ${model.version}`) : null;
    return element(
      "tr",
      {},
      element("th", { scope: "row" }, element("span", { class: "name" }, name, version), stateOf(model, "narrow ")),
      element("td", wide, stateOf(model)),
      cells.map(([text, more]) => element("td", more || {}, text)),
    );
  });
  const heads = [header("Model"), header("State", wide), header("Req./s"), header("Waiting")];
  heads.push(...["Oldest", "Mean time", "99 % up to", "Busy", "Rows per batch"].map((text) => header(text, wide)));
  const table = element("table", { class: "overview" }, element("caption", {}, "Models"));
  table.append(element("thead", {}, element("tr", {}, heads)), element("tbody", {}, rows));
  const none = filter && !models.length ? element("p", { class: "quiet" }, `No model has '${filter}' in its name.`) : null;
  const hidden = plural(leftOut, "more version is", "more versions are");
  const more = leftOut ? element("p", { class: "quiet" }, `${hidden} not shown, which do less. Find them by a part of the name.`) : null;
  return element("section", { "aria-label": "Overview" }, table, none, more);
}

function findings(model) {
  const lines = model.findings.map((one) =>
    element(
      "li",
      { class: one.advice ? "advised" : "" },
      one.fact,
      one.advice ? element("span", { class: "advice" }, one.advice) : null,
    ),
  );
  return element("ul", { class: "findings" }, lines);
}

function figures(pairs) {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined);
  return element(
    "dl",
    { class: "figures" },
    shown.map(([name, value, trend]) =>
      element("div", {}, element("dt", {}, name), element("dd", {}, value), trend ? element("dd", { class: "trend" }, trend) : null),
    ),
  );
}

function phases(model) {
  const whole = model.times.request.seconds;
  if (!whole) return null;
  const parts = [
    ["queue", "queue", model.times.queue.seconds],
    ["input", "inputs", model.times.compute_input.seconds],
    ["infer", "computing", model.times.compute_infer.seconds],
    ["output", "outputs", model.times.compute_output.seconds],
  ];
  // Looking up in the cache, passing requests to other models, and what the backend does besides.
  const other = whole - parts.reduce((sum, [, , seconds]) => sum + seconds, 0);
  if (other / whole >= 0.005) parts.push(["other", model.steps ? "queues of the steps, and between them" : "other", other]);
  const drawing = element("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" });
  let left = 0;
  for (const [name, , seconds] of parts) {
    const width = (seconds / whole) * 100;
    drawing.append(element("rect", { class: name, x: left.toFixed(2), width: width.toFixed(2), height: "10" }));
    left += width;
  }
  const legend = parts.map(([name, text, seconds]) =>
    element("li", {}, element("span", { class: `mark ${name}` }), element("span", {}, `${text} ${percent(seconds / whole)}`)),
  );
  return element("div", { class: "phases" }, element("h3", {}, "Where the time of a request goes"), drawing, element("ul", {}, legend));
}

function barTable(caption, heads, rows) {
  if (!rows.length) return null;
  const most = Math.max(...rows.map(([, number]) => number), Number.MIN_VALUE);
  const lines = rows.map(([name, number, text]) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, element("span", { class: "name" }, name)),
      element("td", {}, text ?? count(number)),
      element("td", { class: "bar", "aria-hidden": "true" }, bar(number / most)),
    ),
  );
  const head = element("tr", {}, heads.map((text) => header(text)), element("td", { "aria-hidden": "true" }));
  return element(
    "table",
    { class: "bars" },
    element("caption", {}, caption),
    element("thead", {}, head),
    element("tbody", {}, lines),
  );
}

const ENDS = {
  full: "full",
  preferred_size: "preferred size",
  delay: "queue delay over",
  shape: "other shape",
  strategy: "batching strategy",
  idle_instance: "instance idle",
  drain: "model drains",
  unbatched: "runs alone",
};

function sequences(model) {
  const { slots, slots_per_instance: perInstance, slots_left_out: leftOut, backlog, first_backlogged: first } = model.sequences;
  const numbers = model.instances.each.map((instance) => instance.number);
  const grids = numbers.map((number) => {
    const held = slots.filter((slot) => slot.instance === number);
    const cells = held.map((slot) => {
      const does = slot.running ? "running" : slot.waiting ? "waiting" : "silent";
      const text = slot.waiting ? `${does}, ${slot.waiting} more` : does;
      const id = slot.sequence ?? "leaving";
      return element("li", { class: does, title: `slot ${slot.slot}: ${id}` }, element("b", {}, id), text);
    });
    const free = Math.max(0, perInstance - held.length);
    for (let cell = 0; cell < Math.min(free, SHOWN_FREE_SLOTS); cell++) cells.push(element("li", { class: "free" }, "free"));
    if (free > SHOWN_FREE_SLOTS) cells.push(element("li", { class: "free" }, `${count(free - SHOWN_FREE_SLOTS)} more free`));
    return element("div", {}, element("h3", {}, `Slots of instance ${number}`), element("ul", { class: "slots" }, cells));
  });
  const waits = backlog
    ? `${plural(backlog, "sequence waits", "sequences wait")} for a slot: ${first.map((one) => one.sequence).join(", ")}${backlog > first.length ? " …" : ""}`
    : "No sequence waits for a slot.";
  const more = leftOut ? element("p", { class: "quiet" }, `${plural(leftOut, "held slot is", "held slots are")} not shown.`) : null;
  return element("div", { class: "whole" }, element("div", { class: "maps" }, grids), more, element("p", { class: "quiet" }, waits));
}

function describe(model) {
  const { kind, max_queue_delay_seconds: delay } = model.scheduler;
  const parts = [
    model.backend,
    kind === "unbatched" ? "one request at a time" : kind.replace("_", " "),
    model.max_batch_size && `up to ${model.max_batch_size} rows`,
    delay && `delay ${time(delay)}`,
  ];
  return parts.filter(Boolean).join(", ");
}

function article({ model, state }) {
  const id = anchor(model);
  const title = element(
    "div",
    { class: "title" },
    element("h2", { id: `${id}-title` }, model.version ? `${model.name}, version ${model.version}` : model.name),
    stateOf(model),
    state ? element("span", { class: "quiet" }, describe(model)) : null,
  );
  const section = element("section", { id, "aria-labelledby": `${id}-title` }, title, findings(model));
  if (!state) return section;
  const asked = model.cache && model.cache.hits + model.cache.misses;
  section.append(
    figures([
      ["requests/s", rate(state.perSecond), trendOf(state.rates)],
      ["waiting", count(model.queue.requests), trendOf(state.queues)],
      ["oldest", time(model.queue.oldest_seconds)],
      ["in flight", count(model.in_flight)],
      ["instances busy", model.instances.count ? `${model.instances.busy} of ${model.instances.count}` : null],
      ["waiting bytes", model.queue.requests ? bytes(model.queue.bytes) : null],
      ["half up to", time(model.times.request.quantiles?.p50)],
      ["99 % up to", time(model.times.request.quantiles?.p99)],
      ["cache hits", asked ? percent(model.cache.hits / asked) : null],
      ["memory", model.memory ? bytes(model.memory.reduce((sum, one) => sum + one.byte_size, 0)) : null],
    ]),
  );
  const ends = Object.entries(model.batches.ends).sort((one, other) => other[1] - one[1]);
  const columns = [
    phases(model),
    barTable("Batch sizes", ["Rows", "Batches"], model.batches.sizes.map((size) => [String(size.rows), size.count])),
    barTable("Why batches end", ["Reason", "Batches"], ends.map(([reason, number]) => [ENDS[reason] || reason, number])),
    model.steps
      ? barTable("Steps", ["Member", "Share of time"], model.steps.map((step) => [step.model, step.share, percent(step.share)]))
      : null,
    model.sequences ? sequences(model) : null,
  ];
  section.append(element("div", { class: "columns" }, columns.filter(Boolean)));
  return section;
}

function shared(answer) {
  const parts = [
    figures([
      ["bytes of requests", bytes(answer.server.held_bytes)],
      ["their limit", bytes(answer.server.held_bytes_limit)],
      ["cached answers", answer.cache?.entries === undefined ? null : count(answer.cache.entries)],
      ["cache", answer.cache?.used_bytes === undefined ? null : bytes(answer.cache.used_bytes)],
      ["its limit", answer.cache?.limit_bytes === undefined ? null : bytes(answer.cache.limit_bytes)],
      ["evictions", answer.cache?.evictions === undefined ? null : count(answer.cache.evictions)],
      ["memory of models", answer.model_memory ? bytes(answer.model_memory.used_bytes) : null],
      ["its budget", answer.model_memory ? bytes(answer.model_memory.budget_bytes) : null],
      ["loads on demand", answer.model_memory ? count(answer.model_memory.loads) : null],
      ["instances that wait for resources", answer.rate_limiter ? count(answer.rate_limiter.waiting_instances) : null],
    ]),
  ];
  const resources = answer.rate_limiter?.resources ?? [];
  const rows = resources.map((one) => [one.name, one.capacity ? one.used / one.capacity : 0, `${one.used} of ${one.capacity}`]);
  if (rows.length) parts.push(barTable("Resources of the rate limiter", ["Resource", "In use"], rows));
  return element("section", { "aria-labelledby": "shared-title" }, element("h2", { id: "shared-title" }, "Shared by all models"), parts);
}

/* Models that are loaded on demand, and why each is in memory or not. */
function modelMemory({ models, models_left_out: leftOut }) {
  const cells = (one) => [
    element("th", { scope: "row" }, one.name),
    element("td", {}, one.place),
    element("td", { class: "number" }, bytes(one.bytes)),
    element("td", {}, one.why),
  ];
  const head = ["Model", "Place", "Memory", "Why"].map((text) => element("th", { scope: "col" }, text));
  const table = element(
    "table",
    { class: "memory" },
    element("thead", {}, element("tr", {}, head)),
    element("tbody", {}, models.map((one) => element("tr", {}, cells(one)))),
  );
  const more = leftOut ? element("p", {}, `${count(leftOut)} more are not shown.`) : "";
  return element("section", { "aria-labelledby": "memory-title" }, element("h2", { id: "memory-title" }, "Memory of models"), table, more);
}

function log(lines) {
  const title = element("h2", { id: "log-title" }, "Log");
  const list = element(
    "ul",
    { class: "log", tabindex: "0", "aria-labelledby": "log-title", id: "log" },
    lines.map((line) => element("li", { class: line.level }, line.text)),
  );
  return element("section", { "aria-labelledby": "log-title" }, title, list);
}

// Asking.

let timer = null;
let isAsking = false;
let isPaused = false;

function show(answer, filter) {
  const now = performance.now();
  const models = inOrder(answer.models).map((model) => ({ model, state: model.queue ? follow(model, now) : null }));
  forgetOthers(answer.models);
  const wanted = element("main", { id: "main", "aria-busy": "false" });
  wanted.append(overview(models, answer.models_left_out, filter), ...models.map(article), shared(answer));
  if (answer.model_memory) wanted.append(modelMemory(answer.model_memory));
  if (answer.log) wanted.append(log(answer.log));
  const list = byId("log");
  const follows = !list || list.scrollTop + list.clientHeight >= list.scrollHeight - 4;
  morph(byId("main"), wanted);
  if (follows && byId("log")) byId("log").scrollTop = byId("log").scrollHeight;
  const { name, version, nereid_version: own } = answer.server;
  byId("server").textContent = `Nereid ${own} (${name} ${version})`;
  byId("time").textContent = new Date().toLocaleTimeString();
}

function tell(trouble) {
  // Only changes are spoken.
  if (byId("trouble").textContent !== trouble) byId("trouble").textContent = trouble;
}

const filterText = () => byId("filter").value.trim();

async function ask() {
  if (isAsking) return;
  isAsking = true;
  const filter = filterText();
  try {
    const headers = {};
    if (byId("header-name").value.trim()) headers[byId("header-name").value.trim()] = byId("header-value").value;
    const reply = await fetch(`v2/explain${filter && `?name=${encodeURIComponent(filter)}`}`, { headers, cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
    const answer = await reply.json();
    if (reply.ok) {
      show(answer, filter);
      tell("");
    } else {
      if (reply.status === 401 || reply.status === 403) byId("access").open = true;
      byId("main").setAttribute("aria-busy", "false");
      tell(`The server refuses: ${answer.error}`);
    }
  } catch (error) {
    tell(`The server does not answer: ${error.message}`);
  }
  isAsking = false;
  // The reader has typed more while the server answered.
  if (filterText() !== filter) ask();
  else schedule();
}

/** The next question, if somebody looks. */
function schedule() {
  clearTimeout(timer);
  if (!isPaused && !document.hidden) timer = setTimeout(ask, INTERVAL_MS);
}

byId("pause").addEventListener("click", () => {
  isPaused = !isPaused;
  byId("pause").setAttribute("aria-pressed", String(isPaused));
  schedule();
});
document.addEventListener("visibilitychange", () => (document.hidden ? schedule() : ask()));
byId("filter").addEventListener("input", ask);
for (const id of ["header-name", "header-value"]) byId(id).addEventListener("change", ask);
ask();
