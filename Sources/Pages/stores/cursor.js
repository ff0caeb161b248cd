// A row's place among both directions: `12` is the twelfth that came, `12.3` our third, sent after that.

export function parts(cursor) {
  const [message, outgoing] = String(cursor ?? "0").split(".");
  return [Number(message) || 0, Number(outgoing) || 0];
}

export function compare(a, b) {
  const [x, y] = [parts(a), parts(b)];
  return x[0] - y[0] || x[1] - y[1];
}
