/** One command line as a process: runs it, flushes the output and exits. */
import { main } from "./program.ts";

export async function run(argv: readonly string[]): Promise<never> {
  const exitCode = await main(argv);
  // Open sockets and an open stdin must not keep the process alive; written output must be flushed first.
  await Promise.all([process.stdout, process.stderr].map(flush));
  process.exit(exitCode);
}

function flush(stream: NodeJS.WriteStream): Promise<void> {
  return new Promise((resolve) => {
    stream.once("error", () => resolve());
    if (stream.destroyed) resolve();
    else stream.write("", () => resolve());
  });
}
