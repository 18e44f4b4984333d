// Drawing at the page's own pace: at most once a frame, and less often when a frame is costly.

const REST = 8; // a drawing that took 1 ms is followed by at least 8 ms without one

/** A function that asks for `draw` to be called soon; however often it is called, the main thread stays free. */
export function paced(draw) {
  let asked = false;
  let notBefore = 0;
  const frame = () => {
    const now = performance.now();
    if (now < notBefore) {
      setTimeout(() => requestAnimationFrame(frame), notBefore - now);
      return;
    }
    asked = false;
    draw();
    const end = performance.now();
    notBefore = end + Math.min(REST * (end - now), 500);
  };
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(frame);
  };
}
