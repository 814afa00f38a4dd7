
"use strict";
(() => {
  const cards = [...document.querySelectorAll("#samples > article")];
  const keys = cards.map((card) => card.dataset.key.toLowerCase());
  const search = document.getElementById("search");
  const found = document.getElementById("found");
  const none = document.getElementById("none");
  const all = found.textContent;

  const look = () => {
    const wanted = search.value.toLowerCase();
    let count = 0;
    cards.forEach((card, place) => {
      card.hidden = !keys[place].includes(wanted);
      count += !card.hidden;
    });
    found.textContent = wanted ? `${count} of ${all}` : all;
    none.hidden = count > 0 || cards.length === 0;
  };
  search.addEventListener("input", look);
  look();  // a browser may remember what was typed

  const themes = { "": "as the system", light: "light", dark: "dark" };
  const names = Object.keys(themes);
  const button = document.getElementById("theme");
  const root = document.documentElement;
  const show = (name) => {
    if (name) root.dataset.theme = name; else delete root.dataset.theme;
    button.textContent = `Colours: ${themes[name]}`;
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
