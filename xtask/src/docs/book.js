// Search, the list of chapters on narrow windows, and buttons that copy examples. Pages can be read without it.
"use strict";

const root = document.currentScript.dataset.root;
const field = document.getElementById("search");
const found = document.getElementById("found");
const menu = document.getElementById("menu");
const chapters = document.getElementById("chapters");
const MOST = 30;
let index = null;

// search.js calls this with a row for each section: page, heading, address, text.
function searchIndex(rows) {
  index = rows.map(([page, heading, address, text]) => ({
    page, heading, address, text,
    low: [page, heading, text].map((part) => part.toLowerCase()),
  }));
  search();
}

function loadIndex() {
  if (!document.querySelector("script[data-index]")) {
    const script = document.createElement("script");
    script.src = `${root}search.js`;
    script.dataset.index = "";
    document.head.append(script);
  }
}

// A section is found if it has all words. Words in headings count more.
function score(section, words) {
  let sum = 0;
  for (const word of words) {
    const [page, heading, text] = section.low.map((part) => part.includes(word));
    if (!page && !heading && !text) return 0;
    sum += (heading ? 8 : 0) + (page ? 4 : 0) + (text ? 1 : 0);
  }
  return sum;
}

function excerpt(section, word) {
  const place = Math.max(0, section.low[2].indexOf(word) - 50);
  return (place > 0 ? "… " : "") + section.text.slice(place, place + 150);
}

function search() {
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  found.hidden = words.length === 0;
  if (found.hidden || !index) return;
  const ranked = index
    .map((section) => [score(section, words), section])
    .filter(([points]) => points > 0)
    .sort(([a], [b]) => b - a);
  const list = document.createElement("ol");
  for (const [, section] of ranked.slice(0, MOST)) {
    const item = document.createElement("li");
    const link = document.createElement("a");
    link.href = root + section.address;
    link.textContent = section.heading === section.page ? section.page : `${section.page}: ${section.heading}`;
    const text = document.createElement("p");
    text.textContent = excerpt(section, words[0]);
    item.append(link, text);
    list.append(item);
  }
  const count = document.createElement("p");
  count.textContent = ranked.length === 0 ? "Nothing found." : `${ranked.length} sections`;
  found.replaceChildren(count, list);
}

field.addEventListener("focus", loadIndex);
field.addEventListener("input", search);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    field.value = "";
    search();
    open(false);
  } else if (event.key === "/" && document.activeElement !== field) {
    event.preventDefault();
    field.focus();
  }
});

function open(wanted) {
  chapters.classList.toggle("open", wanted);
  menu.setAttribute("aria-expanded", String(wanted));
}
menu.addEventListener("click", () => open(!chapters.classList.contains("open")));
chapters.querySelector("[aria-current]")?.scrollIntoView({ block: "center" });

for (const block of document.querySelectorAll("pre")) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(block.querySelector("code").textContent);
    button.textContent = "Copied";
  });
  block.append(button);
}
