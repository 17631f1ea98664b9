/** Text that is redrawn in place, at most as tall as the terminal. */
import { terminalSize, watchTerminalSize } from "./terminal.ts";

const home = "\u001b[H";
const eraseLine = "\u001b[K";
const eraseBelow = "\u001b[J";
const enter = "\u001b[?1049h\u001b[?25l";
const leave = "\u001b[?25h\u001b[?1049l";

type LiveScreen = Disposable & { draw(): void };

/** Uses the whole screen until disposed; redraws on `draw()`, on a resize, and every `everyMs`. */
export function liveScreen(render: () => string, everyMs: number): LiveScreen {
  const { stdout } = process;
  const draw = () => {
    const { rows, cols } = terminalSize();
    const lines = render().replace(/\n$/, "").split("\n");
    const shown =
      lines.length <= rows ? lines : [...lines.slice(0, rows - 1), `… and ${lines.length - rows + 1} more`];
    stdout.write(home + shown.map((line) => line.slice(0, cols - 1) + eraseLine).join("\n") + eraseBelow);
  };
  stdout.write(enter);
  const restore = () => void stdout.write(leave);
  process.once("exit", restore); // a second interrupt exits without disposing
  const resized = watchTerminalSize(draw);
  const timer = setInterval(draw, everyMs);
  return {
    draw,
    [Symbol.dispose]: () => {
      clearInterval(timer);
      resized[Symbol.dispose]();
      process.off("exit", restore);
      restore();
    },
  };
}
