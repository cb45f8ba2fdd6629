/* Before the first paint: light or dark, as chosen here last time or as the system has it. */
(() => {
  let theme = null;
  try {
    theme = localStorage.getItem("fracdnn-theme");
  } catch {
    /* A browser that keeps nothing. */
  }
  const known = theme === "dark" || theme === "light", dark = matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = known ? theme : dark ? "dark" : "light";
})();
