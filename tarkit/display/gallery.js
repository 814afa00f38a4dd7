
"use strict";
(() => {
  const by = (id) => document.getElementById(id);
  const cards = [...document.querySelectorAll("#samples > article")];

  // ---- search and classes
  const search = by("search"), classes = by("classes"), found = by("found"), none = by("none");
  const all = found.textContent;
  const own = cards.map((card) => new Set([...card.querySelectorAll(".chip")].map((chip) => chip.dataset.class)));
  let texts = null;
  const textOf = (card) =>
    [...card.querySelectorAll("h2, .caption, .chip, .says, pre")].map((part) => part.textContent).join("\n").toLowerCase();

  const filter = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = classes.value;
    if (words.length && !texts) texts = cards.map(textOf);
    let count = 0;
    cards.forEach((card, at) => {
      const fits = (!wanted || own[at].has(wanted)) && words.every((word) => texts[at].includes(word));
      card.hidden = !fits;
      count += fits;
    });
    found.textContent = words.length || wanted ? `${count} of ${all}` : all;
    none.hidden = count > 0 || cards.length === 0;
    for (const each of document.querySelectorAll("[data-class]"))
      each.setAttribute("aria-pressed", String(each.dataset.class === wanted));
  };
  search.addEventListener("input", filter);
  classes.addEventListener("change", filter);
  classes.hidden = classes.options.length < 2;
  document.addEventListener("click", (event) => {
    const picked = event.target.closest("[data-class]");
    if (!picked) return;
    classes.value = classes.value === picked.dataset.class ? "" : picked.dataset.class;
    filter();
  });
  filter();  // a browser may remember what was typed

  // ---- histograms: closed where they are above the samples
  const charts = document.querySelector("#charts > details");
  if (charts) charts.open = matchMedia("(min-width: 1000px)").matches;

  // ---- one picture, large
  const viewer = by("viewer"), large = by("large"), stage = large.parentElement;
  let shown = null;
  const open = () => [...document.querySelectorAll("#samples > article:not([hidden]) .open")];
  const view = (button) => {
    if (!button) return;
    shown = button;
    const image = button.querySelector("img"), card = button.closest("article"), every = open();
    large.src = image.src;
    large.alt = image.alt;
    large.className = image.className;
    by("large-count").textContent = `${every.indexOf(button) + 1} of ${every.length}`;
    const words = card.querySelector(".words").cloneNode(true);
    for (const chip of words.querySelectorAll("button")) chip.replaceWith(label(chip));
    by("large-words").replaceChildren(words);
    if (!viewer.open) viewer.showModal();
  };
  const label = (chip) => {
    const plain = document.createElement("span");
    plain.className = chip.className;
    plain.textContent = chip.textContent;
    return plain;
  };
  const move = (step) => {
    const every = open();
    view(every[(every.indexOf(shown) + step + every.length) % every.length]);
  };
  document.addEventListener("click", (event) => view(event.target.closest(".open")));
  by("previous").addEventListener("click", () => move(-1));
  by("next").addEventListener("click", () => move(1));
  by("close").addEventListener("click", () => viewer.close());
  viewer.addEventListener("click", (event) => { if (event.target === viewer || event.target === stage) viewer.close(); });
  viewer.addEventListener("close", () => {
    large.removeAttribute("src");
    if (shown) { shown.focus({ preventScroll: true }); shown.scrollIntoView({ block: "nearest" }); }
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (viewer.open) {
      const steps = { ArrowLeft: -1, ArrowUp: -1, k: -1, ArrowRight: 1, ArrowDown: 1, j: 1 };
      const every = open();
      if (event.key in steps) move(steps[event.key]);
      else if (event.key === "Home") view(every[0]);
      else if (event.key === "End") view(every[every.length - 1]);
      else return;
      event.preventDefault();
    } else if (event.key === "/" && !event.target.closest("input, select, textarea")) {
      event.preventDefault();
      search.focus();
    }
  });

  // ---- light and dark
  const themes = { "": "system", light: "light", dark: "dark" };
  const names = Object.keys(themes);
  const button = by("theme");
  const root = document.documentElement;
  const show = (name) => {
    if (name) root.dataset.theme = name; else delete root.dataset.theme;
    button.textContent = `Theme: ${themes[name]}`;
  };
  let theme = "";
  try { theme = localStorage.getItem("tarkit-theme") || ""; } catch { /* a page of a file may have no storage */ }
  if (!(theme in themes)) theme = "";
  show(theme);
  button.hidden = false;
  button.addEventListener("click", () => {
    theme = names[(names.indexOf(theme) + 1) % names.length];
    show(theme);
    try { localStorage.setItem("tarkit-theme", theme); } catch { /* then it is not remembered */ }
  });
})();
