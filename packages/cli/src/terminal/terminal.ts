/** The user's terminal: its size, and its keys in raw mode. */

type TerminalSize = { rows: number; cols: number };

export function terminalSize(): TerminalSize {
  return { rows: process.stdout.rows || 24, cols: process.stdout.columns || 80 };
}

/** Raw mode until disposed. Does nothing if stdin is not a terminal. */
export function openRawTerminal(): Disposable {
  const { stdin } = process;
  if (!stdin.isTTY) return { [Symbol.dispose]: () => {} };
  stdin.setRawMode(true);
  const restore = () => void stdin.setRawMode(false);
  process.once("exit", restore); // a second interrupt exits without disposing
  return {
    [Symbol.dispose]: () => {
      process.off("exit", restore);
      restore();
    },
  };
}

/** Passes every key to `pressed` until disposed. Does nothing if stdin is not a terminal. */
export function watchKeys(pressed: (key: string) => void): Disposable {
  const { stdin } = process;
  if (!stdin.isTTY) return { [Symbol.dispose]: () => {} };
  const raw = openRawTerminal();
  const listener = (chunk: Buffer) => {
    for (const key of chunk.toString("latin1")) pressed(key);
  };
  stdin.on("data", listener);
  // An earlier question may have paused it.
  stdin.resume();
  return {
    [Symbol.dispose]: () => {
      stdin.off("data", listener);
      stdin.pause();
      raw[Symbol.dispose]();
    },
  };
}

/** Calls `changed` when the size of the window changes, until disposed. */
export function watchTerminalSize(changed: (size: TerminalSize) => void): Disposable {
  const listener = () => changed(terminalSize());
  process.stdout.on("resize", listener);
  return { [Symbol.dispose]: () => void process.stdout.off("resize", listener) };
}
