// Shows openapi.json, and sends requests to the server that the page comes from.
"use strict";

// A longer reply is cut.
const SHOWN_CHARACTERS = 100000;
// A schema is shown to this depth.
const SHOWN_DEPTH = 8;

let description = {};

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

function byId(id) {
  return document.getElementById(id);
}

/** The schema that a reference means. */
function resolved(schema) {
  if (!schema || !schema.$ref) return schema || {};
  return schema.$ref.slice(2).split("/").reduce((part, name) => part[name], description);
}

/** In few words, what a value of the schema is. */
function typeOf(schema) {
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" or ");
  if (schema.anyOf) return schema.anyOf.map((one) => typeOf(resolved(one))).join(" or ");
  if (schema.prefixItems) return "[" + schema.prefixItems.map((item) => typeOf(item)).join(", ") + "]";
  const type = Array.isArray(schema.type) ? schema.type.join(" or ") : schema.type || "any value";
  const bounds = [schema.minimum, schema.maximum];
  if (bounds.every((bound) => bound === undefined)) return type;
  return `${type} (${bounds.map((bound) => bound ?? "").join(" to ")})`;
}

/** The members of an object, or of the items of an array, as nested lists. */
function showSchema(given, depth = 0) {
  const schema = resolved(given);
  const list = element("ul", { class: "schema" });
  if (depth > SHOWN_DEPTH) return list;
  for (const [name, member] of Object.entries(schema.properties || {})) {
    const value = resolved(member);
    const isRequired = (schema.required || []).includes(name);
    const line = element("li", {}, element("code", {}, name), `: ${typeOf(value)}${isRequired ? "" : ", optional"} `);
    if (value.description) line.append(element("span", { class: "quiet" }, value.description));
    line.append(showSchema(value, depth + 1));
    list.append(line);
  }
  const items = schema.items && resolved(schema.items);
  const inside = items ? items.anyOf || [items] : [];
  for (const one of inside.map(resolved)) {
    if (one.properties) list.append(element("li", {}, element("span", { class: "quiet" }, "each is"), showSchema(one, depth + 1)));
  }
  return list;
}

function showContent(content) {
  return Object.entries(content || {}).map(([type, { schema }]) => {
    const shown = resolved(schema);
    return element("div", {}, element("code", {}, type), ` ${typeOf(shown)}`, showSchema(shown));
  });
}

/** A valid body, as far as the description has one. */
function exampleOf(operation) {
  const body = operation.requestBody;
  const json = body && body.content["application/json"];
  if (!json) return "";
  const schema = resolved(json.schema);
  return JSON.stringify(schema.examples ? schema.examples[0] : {}, null, 2);
}

async function send(method, path, fields, body, shown) {
  const filled = path.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(fields[name].value));
  const headers = {};
  if (byId("header-name").value) headers[byId("header-name").value] = byId("header-value").value;
  const init = { method: method.toUpperCase(), headers, cache: "no-store" };
  if (body) init.body = body.value;
  shown.replaceChildren("waiting");
  try {
    const begun = performance.now();
    // The path begins with a slash. The page may be behind a prefix, so it is taken from where the page is.
    const reply = await fetch(filled.slice(1), init);
    const text = await reply.text();
    const spent = (performance.now() - begun).toFixed(1);
    const status = element("p", reply.ok ? {} : { class: "failed" }, `${reply.status} ${reply.statusText}, ${spent} ms`);
    shown.replaceChildren(status, element("pre", {}, pretty(text)));
  } catch (error) {
    shown.replaceChildren(element("p", { class: "failed" }, String(error)));
  }
}

function pretty(text) {
  let shown = text;
  try {
    shown = JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    // It is shown as it came.
  }
  return shown.length > SHOWN_CHARACTERS ? `${shown.slice(0, SHOWN_CHARACTERS)}\n(cut)` : shown;
}

function showOperation(path, method, operation, parameters) {
  const parts = [];
  const fields = {};
  if (operation.description) parts.push(element("p", {}, operation.description));
  const headers = operation.parameters || [];
  for (const { name, schema } of parameters) {
    fields[name] = element("input", { placeholder: name, "aria-label": name });
    if (schema.examples) fields[name].value = schema.examples[0];
    parts.push(element("p", {}, element("label", {}, `${name} `, fields[name])));
  }
  for (const { name, description } of headers) {
    parts.push(element("p", { class: "quiet" }, element("code", {}, name), `: ${description}`));
  }
  let body = null;
  if (operation.requestBody) {
    parts.push(element("h3", {}, "Request"), ...showContent(operation.requestBody.content));
    body = element("textarea", { "aria-label": "Body of the request", spellcheck: "false" });
    body.value = exampleOf(operation);
    parts.push(body);
  }
  const shown = element("div", { class: "reply", "aria-live": "polite" });
  parts.push(element("button", { type: "button", onclick: () => send(method, path, fields, body, shown) }, "Send"), shown);
  parts.push(element("h3", {}, "Replies"));
  for (const [status, reply] of Object.entries(operation.responses)) {
    parts.push(element("p", {}, element("code", {}, status), ` ${reply.description}`), ...showContent(reply.content));
  }
  return parts;
}

function operationElement(path, method, operation, parameters) {
  const summary = element(
    "summary",
    {},
    element("span", { class: `method ${method}` }, method.toUpperCase()),
    element("code", { class: "path" }, path),
    element("span", { class: "quiet" }, operation.summary),
  );
  const made = element("details", { class: "operation", id: operation.operationId }, summary);
  // What is inside is made when somebody looks: a server may have many models.
  made.addEventListener("toggle", () => {
    if (made.open && made.children.length === 1) {
      made.append(element("div", {}, ...showOperation(path, method, operation, parameters)));
    }
  });
  return made;
}

function showAll() {
  const groups = new Map(description.tags.map(({ name }) => [name, []]));
  for (const [path, item] of Object.entries(description.paths)) {
    for (const method of ["get", "post"].filter((method) => item[method])) {
      const made = operationElement(path, method, item[method], item.parameters || []);
      groups.get(item[method].tags[0]).push(made);
    }
  }
  const sections = [...groups].map(([tag, operations]) => element("section", {}, element("h2", {}, tag), ...operations));
  const main = byId("operations");
  main.replaceChildren(...sections);
  main.setAttribute("aria-busy", "false");
}

/** Shows the operations that have the text in their path, their summary or their group. */
function filter() {
  const wanted = byId("filter").value.toLowerCase();
  for (const section of document.querySelectorAll("section")) {
    const tag = section.firstChild.textContent.toLowerCase();
    const operations = [...section.querySelectorAll("details.operation")];
    for (const operation of operations) {
      const text = operation.firstChild.textContent.toLowerCase();
      operation.hidden = !tag.includes(wanted) && !text.includes(wanted);
    }
    section.hidden = operations.every((operation) => operation.hidden);
  }
}

async function load() {
  const reply = await fetch("openapi.json", { cache: "no-store" });
  if (!reply.ok) throw new Error(`openapi.json: ${reply.status} ${await reply.text()}`);
  description = await reply.json();
  byId("title").textContent = `${description.info.title} ${description.info.version}: HTTP interface`;
  byId("description").textContent = description.info.description.replaceAll("`", "");
  showAll();
}

byId("filter").addEventListener("input", filter);
load().catch((error) => {
  byId("operations").replaceChildren(element("p", { class: "failed" }, String(error)));
  byId("operations").setAttribute("aria-busy", "false");
});
