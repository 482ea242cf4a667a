// One bubble that says in words what is under the mouse, the finger or the focus: the `data-tip` of an element.

import { drawn, element } from "./dom.js";

const GAP = 8;

/** Shows the tip of `owner` below it, or above it where there is no room. */
function show(bubble, owner) {
  bubble.textContent = owner.dataset.tip;
  bubble.hidden = false;
  const at = owner.getBoundingClientRect();
  const size = bubble.getBoundingClientRect();
  const left = Math.max(GAP, Math.min(at.left + at.width / 2 - size.width / 2, innerWidth - size.width - GAP));
  const below = at.bottom + GAP + size.height <= innerHeight;
  bubble.style.setProperty("left", `${left}px`);
  bubble.style.setProperty("top", `${below ? at.bottom + GAP : at.top - GAP - size.height}px`);
}

export function wireTips() {
  const bubble = document.getElementById("tip");
  const hide = () => { bubble.hidden = true; };
  const look = (event) => {
    const owner = event.target.closest?.("[data-tip]");
    if (owner) show(bubble, owner);
    else hide();
  };
  for (const type of ["pointerover", "click", "focusin"]) addEventListener(type, look);
  addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
  addEventListener("scroll", hide, { capture: true, passive: true });
}

/** A label whose meaning the bubble says; plain where it has none. */
export const label = (tag, attributes, text, meaning) =>
  element(tag, { ...attributes, "data-tip": meaning ? `${text}: ${meaning}` : null }, text);

/** The same in a drawing. */
export const drawnLabel = (attributes, text, meaning) =>
  drawn("text", { ...attributes, "data-tip": meaning ? `${text}: ${meaning}` : null }, text);
