/** Version of the zstd program; the compressed bytes may differ between versions. */
import { ProgramFailure, runProgram } from "@forkd/base";
import { zstdMissing } from "../zstd.ts";

export async function zstdVersion(): Promise<string> {
  try {
    const { stdout } = await runProgram("zstd", ["-q", "--version"], { timeoutMs: 10_000 });
    return /v?(\d+\.\d+\.\d+)/.exec(stdout)?.[1] ?? stdout.trim().slice(0, 64);
  } catch (error) {
    if (error instanceof ProgramFailure && error.isMissing) throw zstdMissing(error);
    throw error;
  }
}
