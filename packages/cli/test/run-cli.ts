/** Runs the compiled CLI as a process. */
import { spawn, type ChildProcess } from "node:child_process";
import { fileURLToPath } from "node:url";

const mainPath = fileURLToPath(new URL("../bundle/forkd.cjs", import.meta.url));

export type Finished = { code: number | null; stdout: string; stderr: string };
export type CliOptions = {
  socket?: string;
  env?: Record<string, string>;
  stdin?: string;
  cwd?: string;
  onStart?: (child: ChildProcess) => void;
  onStdout?: (text: string, child: ChildProcess) => void;
  onStderr?: (text: string, child: ChildProcess) => void;
};

export function runCli(args: readonly string[], options: CliOptions = {}): Promise<Finished> {
  const env = {
    PATH: process.env["PATH"],
    HOME: "/nonexistent",
    FORKD_SOCKET: options.socket ?? "/nonexistent/s",
    ...options.env,
  };
  const child = spawn(process.execPath, [mainPath, ...args], { env, cwd: options.cwd });
  child.stdin.end(options.stdin ?? "");
  options.onStart?.(child);
  let [stdout, stderr] = ["", ""];
  child.stdout.on("data", (chunk: Buffer) => {
    stdout += chunk.toString();
    options.onStdout?.(stdout, child);
  });
  child.stderr.on("data", (chunk: Buffer) => {
    stderr += chunk.toString();
    options.onStderr?.(stderr, child);
  });
  return new Promise((resolve) => child.on("close", (code) => resolve({ code, stdout, stderr })));
}

/** The values of output with one JSON document per line. */
export function jsonLines(text: string): unknown[] {
  return text
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as unknown);
}
