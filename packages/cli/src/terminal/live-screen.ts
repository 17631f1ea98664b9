/** Text that is redrawn in place, at most as tall as the terminal, until q or Ctrl-C. */
import type { Interrupts } from "./interrupts.ts";
import { terminalSize, watchKeys, watchTerminalSize } from "./terminal.ts";

const home = "\u001b[H";
const eraseLine = "\u001b[K";
const eraseBelow = "\u001b[J";
const enter = "\u001b[?1049h\u001b[?25l";
const leave = "\u001b[?25h\u001b[?1049l";

/** A terminal in raw mode sends this key and no SIGINT. */
const controlC = "\u0003";

type LiveScreen = Disposable & { draw(): void };
type LiveOptions = {
  readonly render: () => string;
  readonly everyMs: number;
  readonly interrupts: Interrupts;
};

/** Uses the whole screen until disposed; redraws on `draw()`, on a resize, and every `everyMs`. */
export function liveScreen({ render, everyMs, interrupts }: LiveOptions): LiveScreen {
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
  const keys = watchKeys((key) => {
    if (key === "q" || key === "Q") interrupts.quit();
    if (key === controlC) interrupts.abort("SIGINT");
  });
  return {
    draw,
    [Symbol.dispose]: () => {
      clearInterval(timer);
      keys[Symbol.dispose]();
      resized[Symbol.dispose]();
      process.off("exit", restore);
      restore();
    },
  };
}
