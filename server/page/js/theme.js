// Runs before the first paint, so that a chosen theme does not flash. "auto" follows the system.
(() => {
  let chosen = null;
  try { chosen = localStorage.getItem('runebook.theme'); } catch { /* storage is switched off: follow the system */ }
  if (chosen === 'light' || chosen === 'dark') document.documentElement.dataset.theme = chosen;
})();
