// Throttle drawing: at most once a frame, and less often when a frame is costly.

const REST = 8; // a frame that took 1 ms is followed by at least 8 ms without one
const REST_MS_MAX = 500;

/** Return a function that schedules `draw`; however often it is called, the main thread stays free. */
export function paced(draw) {
  let asked = false;
  let resting = false;
  const rested = () => {
    resting = false;
    if (asked) requestAnimationFrame(frame);
  };
  const frame = () => {
    asked = false;
    resting = true;
    const start = performance.now();
    try {
      draw();
    } finally {
      behindFrame(() => setTimeout(rested, Math.min(REST * (performance.now() - start), REST_MS_MAX)));
    }
  };
  return () => {
    if (asked) return;
    asked = true;
    if (!resting) requestAnimationFrame(frame);
  };
}

/** Call back after the frame is drawn: a message waits for style, layout and paint, which cost more than scripts. */
function behindFrame(callback) {
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = () => {
    port1.close();
    callback();
  };
  port2.postMessage(null);
}
