// Makes HTML and SVG elements in one line of code. Text stays text: nothing is parsed as HTML.

function build(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, act] of Object.entries(value)) node.addEventListener(event, act);
    // The page's policy allows no style attributes, so styles are set in the object model.
    else if (name === "style") for (const [key, one] of Object.entries(value)) node.style.setProperty(key, one);
    else node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) if (child !== null && child !== undefined) node.append(child); // a call takes no 360,000
  return node;
}

export function element(tag, attributes = {}, ...children) {
  return build(document.createElement(tag), attributes, children);
}

export function drawn(tag, attributes = {}, ...children) {
  return build(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

let ruler = null;

/** The width of a text in pixels. */
export function widthOf(text, font = "14px system-ui, sans-serif") {
  ruler ??= document.createElement("canvas").getContext("2d");
  ruler.font = font;
  return ruler.measureText(text).width;
}

/** Shows the hint and the soft edges of a box that is wider than its place, and lets the keyboard reach it. */
function markRest(box) {
  const rest = box.scrollWidth - box.clientWidth;
  const [frame, hint] = [box.parentElement, box.parentElement?.previousElementSibling];
  if (!frame || !hint) return;
  hint.hidden = rest < 3;
  frame.classList.toggle("more-left", box.scrollLeft > 2);
  frame.classList.toggle("more-right", rest - box.scrollLeft > 2);
  if (box.getAttribute("role") === "region") box.tabIndex = rest < 3 ? -1 : 0;
}

const watcher = new ResizeObserver((changes) => changes.forEach((one) => markRest(one.target)));

/** A box that scrolls sideways if its content does not fit, and says so above it. */
export function scrolling(label, attributes, ...children) {
  const box = element("div", { class: "scroll", role: "region", "aria-label": label, ...attributes }, ...children);
  box.addEventListener("scroll", () => markRest(box), { passive: true });
  const hint = element("p", { class: "hint", hidden: true }, "Wider than this window: scroll sideways →");
  const outer = element("div", { class: "wide" }, hint, element("div", { class: "frame" }, box));
  watcher.observe(box);
  return outer;
}

/** An SVG that scrolls sideways if it does not fit. */
export function picture(width, height, label, ...children) {
  const svg = drawn("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, ...children);
  return scrolling(label, {}, svg);
}
