/** Reads a secret. It is never an argument or a variable: other processes could read those. */
import { open } from "node:fs/promises";
import { addAbortSignal, type Readable } from "node:stream";
import { AppError } from "@forkd/contract/wire";
import { usage } from "../options/arguments.ts";
import type { Interrupts } from "./interrupts.ts";
import { unreadable } from "./unreadable.ts";
import { watchKeys } from "./terminal.ts";

const maxBytes = 65_536;
const [controlC, controlD, controlU, backspace, del] = ["\u0003", "\u0004", "\u0015", "\b", "\u007f"];

/** From the file, from a pipe, or typed at a prompt that shows nothing. Without the last line break. */
export async function readSecret(options: {
  file: string | undefined;
  prompt: string;
  interrupts: Interrupts;
}): Promise<string> {
  const { file, prompt, interrupts } = options;
  const given = await (file !== undefined
    ? readSecretFile(file)
    : process.stdin.isTTY
      ? ask(prompt, interrupts)
      : readAll(addAbortSignal(interrupts.signal, process.stdin)));
  const value = given.replace(/\r?\n$/, "");
  if (value === "") throw usage("The value is empty");
  return value;
}

async function readSecretFile(path: string): Promise<string> {
  try {
    await using file = await open(path, "r");
    return await readAll(file.createReadStream({ autoClose: false }));
  } catch (cause) {
    throw cause instanceof AppError ? cause : unreadable(path, cause);
  }
}

async function readAll(stream: Readable): Promise<string> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of stream as AsyncIterable<Buffer>) {
    length += chunk.length;
    if (length > maxBytes + 2)
      throw new AppError("invalid_request", `The value is longer than ${maxBytes} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}

/** Without echo. Enter ends it; Ctrl-C and Ctrl-D cancel it. */
async function ask(prompt: string, interrupts: Interrupts): Promise<string> {
  let keys: Disposable | undefined;
  try {
    return await new Promise<string>((resolve, reject) => {
      let typed = "";
      const cancel = () => reject(new AppError("cancelled", "No value was given"));
      interrupts.signal.addEventListener("abort", cancel, { once: true });
      keys = watchKeys((key) => {
        if (key === controlC) interrupts.abort("SIGINT");
        else if (key === controlD) cancel();
        // A key is one byte; a character may have several.
        else if (key === "\r" || key === "\n") resolve(Buffer.from(typed, "latin1").toString("utf8"));
        else if (key === backspace || key === del) typed = typed.slice(0, -1);
        else if (key === controlU) typed = "";
        else if (typed.length < maxBytes) typed += key;
      });
      // Last: from now on the terminal shows nothing that is typed.
      process.stderr.write(prompt);
    });
  } finally {
    keys?.[Symbol.dispose]();
    process.stderr.write("\n");
  }
}
