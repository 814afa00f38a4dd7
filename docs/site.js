// Options stay on one line: browsers break --where behind its hyphens, which no style prevents inside of longer code.
for (const code of document.querySelectorAll("article code, .md-nav code")) {
  if (code.children.length || code.closest("pre") || !code.textContent.includes("-")) continue;
  code.replaceChildren(
    ...code.textContent.split(/((?<![^\s])--?[a-z][\w-]*)/).map((part, at) => {
      if (at % 2 === 0) return part;
      const option = document.createElement("span");
      option.style.whiteSpace = "nowrap";
      option.textContent = part;
      return option;
    }),
  );
}
