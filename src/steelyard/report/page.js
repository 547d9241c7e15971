// Draws each figure into its box, and again where the box gets another width. Colours need nothing: the
// style sheet's variables are looked up in the SVG. `ast` has expressions interpreted, so that the page's
// policy can forbid code made from text.
"use strict";
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const drawn = new Map();

  async function draw(box) {
    const width = Math.floor(box.clientWidth);
    const last = drawn.get(box);
    if (!width || last?.width === width) return;
    const figure = figures[box.dataset.figure];
    const spec = { ...(width < 560 ? figure.narrow : figure.wide), width, datasets: figure.data };
    const now = { width };
    drawn.set(box, now);
    const sheet = document.createElement("div"); // Vega renames the role of what it draws into
    now.result = await vegaEmbed(sheet, spec, {
      mode: "vega-lite", renderer: "svg", actions: false, ast: true, defaultStyle: false,
      tooltip: { disableDefaultStyle: true }, logLevel: 2, // warnings
    });
    box.replaceChildren(sheet);
    last?.result?.finalize();
    box.dataset.drawn = String(width);
  }

  let due = 0;
  let queue = Promise.resolve();
  const boxes = [...document.querySelectorAll("[data-figure]")];
  const all = () => {
    queue = queue.then(async () => {
      if (matchMedia("print").matches) return; // paper scales what is there
      for (const box of boxes) await draw(box);
    });
  };
  new ResizeObserver(() => {
    clearTimeout(due);
    due = setTimeout(all, 120);
  }).observe(document.querySelector("main"));
  all();
})();
