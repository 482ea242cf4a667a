// Chooses dark or light before anything is drawn, so that the page does not flash. Modules would run too late.
const THEMES = { auto: "as the system", light: "light", dark: "dark" };

const applyTheme = (name) => { document.documentElement.dataset.theme = name; };

function storedTheme() {
  const stored = localStorage.getItem("theme");
  return Object.hasOwn(THEMES, stored) ? stored : "auto";
}

applyTheme(storedTheme());

addEventListener("DOMContentLoaded", () => {
  const button = document.getElementById("theme");
  const show = (name) => {
    button.textContent = name[0].toUpperCase() + name.slice(1);
    button.setAttribute("aria-label", `${button.textContent}: colours ${THEMES[name]}`);
  };
  show(storedTheme());
  button.addEventListener("click", () => {
    const names = Object.keys(THEMES);
    const next = names[(names.indexOf(storedTheme()) + 1) % names.length];
    localStorage.setItem("theme", next);
    applyTheme(next);
    show(next);
  });
});
