/**
 * Files with holes, which Node can neither find nor keep. A failure is an Error whose `code` is that of the
 * system call.
 */
import { nativeTool } from "./native-tool.ts";
import { ProgramFailure, runProgram } from "./run-program.ts";

const tool = "forkd-pages";
/** a range is at most 40 bytes of text */
const maxOutput = 64 << 20;

/**
 * Makes `to`, which must not exist, equal to `from`: shares its blocks where the file system can, and copies
 * its data otherwise.
 */
export async function copySparse(
  from: string,
  to: string,
): Promise<{ reflinked: boolean; copiedBytes: number }> {
  const output = await run(["copy", from, to], `Cannot copy ${from} to ${to}`);
  const [, how, copied] = /^(reflink|copy) \d+ (\d+)\n$/.exec(output) ?? [];
  if (how === undefined) throw new Error(`Cannot copy ${from}: ${tool} answered "${output.slice(0, 80)}"`);
  return { reflinked: how === "reflink", copiedBytes: Number(copied) };
}

/** The parts of a file that are not holes, ascending. */
export async function dataRanges(path: string): Promise<{ start: number; end: number }[]> {
  const output = await run(["ranges", path], `Cannot find the data of ${path}`);
  return Array.from(output.matchAll(/^(\d+) (\d+)$/gm), ([, start, end]) => ({
    start: Number(start),
    end: Number(end),
  }));
}

async function run(args: readonly string[], what: string): Promise<string> {
  try {
    return (await runProgram(nativeTool(tool), args, { keep: maxOutput })).stdout;
  } catch (error) {
    if (!(error instanceof ProgramFailure)) throw error;
    const [, code, text] = /^error (E\w+) (.*)$/m.exec(error.stdout) ?? [];
    if (code !== undefined) throw Object.assign(new Error(`${what}: ${code}, ${text}`), { code });
    const why = error.isMissing ? `${tool} is not built, run make -C native` : error.message;
    throw new Error(`${what}: ${why}`, { cause: error });
  }
}
