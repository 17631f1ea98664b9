/** Runs the compiled CLI on a terminal of a given size, made by script(1). */
import { spawn, type ChildProcess } from "node:child_process";
import { fileURLToPath } from "node:url";

const mainPath = fileURLToPath(new URL("../bundle/forkd.cjs", import.meta.url));

export type TerminalOptions = {
  socket: string;
  cols: number;
  /** A command of the shell after the verb, on the same terminal. */
  afterwards?: string;
  env?: Record<string, string>;
  /** Called with everything on the screen so far; what it writes to stdin is typed. */
  onOutput?: (text: string, child: ChildProcess) => void;
};

/** Resolves to what appeared on the terminal, stdout and stderr, and to the exit code. */
export function runOnTerminal(
  args: readonly string[],
  options: TerminalOptions,
): Promise<{ code: number | null; lines: string[]; text: string }> {
  const quoted = [process.execPath, mainPath, ...args].map((word) => `'${word}'`).join(" ");
  const after = options.afterwards === undefined ? "" : `; code=$?; ${options.afterwards}; exit $code`;
  const line = `stty cols ${options.cols} rows 24; ${quoted}${after}`;
  const env = {
    PATH: process.env["PATH"],
    HOME: "/nonexistent",
    SHELL: "/bin/sh",
    TERM: "xterm",
    LANG: "C.UTF-8",
    NO_COLOR: "1",
    FORKD_SOCKET: options.socket,
    ...options.env,
  };
  const child = spawn("script", ["-qec", line, "/dev/null"], { env });
  let text = "";
  child.stdout.on("data", (chunk: Buffer) => {
    text += chunk.toString();
    options.onOutput?.(text, child);
  });
  if (options.onOutput === undefined) child.stdin.end();
  return new Promise((resolve) =>
    child.on("close", (code) => {
      resolve({ code, text, lines: text.replaceAll("\r", "").trimEnd().split("\n") });
    }),
  );
}
