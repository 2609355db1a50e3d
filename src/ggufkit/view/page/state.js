// The state of the page is in the hash of its address, so that an address keeps what is shown.

export function read() {
  const [view, parameters] = location.hash.slice(1).split("?");
  return { view: view || "overview", ...Object.fromEntries(new URLSearchParams(parameters ?? "")) };
}

/** The address of a state; what is empty is left out. */
export function link({ view, ...rest }) {
  const entries = Object.entries(rest).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const text = new URLSearchParams(entries).toString();
  return `#${view}${text ? `?${text}` : ""}`;
}

/** Goes to a state, as a link does. */
export function go(state) {
  location.hash = link(state);
}

/** Changes parts of the state without drawing the page again. */
export function note(changes) {
  history.replaceState(null, "", link({ ...read(), ...changes }));
}
