// Apart from api.js, as the first view asks for nothing in particular.

/** A path with what is asked. */
export function query(path, values) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) if (value !== undefined && value !== null && value !== "") search.set(name, value);
  const text = search.toString();
  return text ? `${path}?${text}` : path;
}
