// Light or dark: the system's setting, until the user chooses.

const NAME = "tenure.theme";

export function applyTheme() {
  const chosen = localStorage.getItem(NAME);
  if (chosen) document.documentElement.dataset.theme = chosen;
}

export function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

export function toggleTheme() {
  const wanted = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = wanted;
  localStorage.setItem(NAME, wanted);
}
