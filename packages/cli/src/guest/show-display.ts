/** A displayed result of an eval: its text for people, and its files in a directory. */
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { AppError, errorMessage } from "@forkd/contract/wire";
import type { EvalDisplay } from "@forkd/contract";
import type { Cli } from "../cli.ts";

const files = [
  ["png", "base64"],
  ["jpeg", "base64"],
  ["pdf", "base64"],
  ["svg", "utf8"],
  ["html", "utf8"],
] as const;

/**
 * Numbers the results of one eval. The text of a displayed object goes to stderr with the output; that of the
 * value is printed when the eval ends.
 */
export function displayWriter(cli: Cli, dir: string | undefined): (display: EvalDisplay) => Promise<void> {
  let number = 0;
  return async (display) => {
    number++;
    const text = display.text ?? display.markdown ?? display.latex ?? display.html;
    if (!display.is_main_result && text !== undefined) cli.out.report(text);
    if (dir === undefined) return;
    for (const [form, encoding] of files) {
      const content = display[form];
      if (content === undefined) continue;
      const path = join(dir, `result-${number}.${form}`);
      await save(path, dir, Buffer.from(content, encoding));
      cli.out.report(`forkd: Saved ${path}`);
    }
  };
}

async function save(path: string, dir: string, content: Buffer): Promise<void> {
  try {
    await mkdir(dir, { recursive: true });
    await writeFile(path, content);
  } catch (cause) {
    throw new AppError("invalid_request", `Cannot write "${path}": ${errorMessage(cause)}`, { cause });
  }
}
