// Chooses dark or light before anything is drawn, so that the page does not flash. Modules would run too late.
const THEMES = ["auto", "light", "dark"];

const applyTheme = (name) => { document.documentElement.dataset.theme = name; };

function storedTheme() {
  const stored = localStorage.getItem("theme");
  return THEMES.includes(stored) ? stored : "auto";
}

applyTheme(storedTheme());

addEventListener("DOMContentLoaded", () => {
  const button = document.getElementById("theme");
  const titles = { auto: "as the system", light: "light", dark: "dark" };
  const show = (name) => {
    button.textContent = name[0].toUpperCase() + name.slice(1);
    button.setAttribute("aria-label", `${button.textContent}: colours ${titles[name]}`);
  };
  show(storedTheme());
  button.addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(storedTheme()) + 1) % THEMES.length];
    localStorage.setItem("theme", next);
    applyTheme(next);
    show(next);
  });
});
