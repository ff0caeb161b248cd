/** `read()`, one at a time: however many ask meanwhile, it is done once more. */
export function inTurn(read) {
  let [isUnderWay, isStale] = [false, false];
  return async () => {
    isStale = true;
    if (isUnderWay) return;
    isUnderWay = true;
    try {
      while (isStale) {
        isStale = false;
        await read();
      }
    } finally {
      isUnderWay = false;
    }
  };
}
