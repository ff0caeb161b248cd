/** 32 hexadecimal digits that nobody else has: what is sent twice under them is one message. */
export function freshID() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
