/** The official SDK of E2B, pointed at a daemon by what `forkd e2b env` prints. */
import { join } from "node:path";
import { Sandbox } from "@e2b/code-interpreter";
import { command } from "../deadline.ts";
import { repository } from "../run.ts";
import type { ScratchDaemon } from "../scratch-daemon.ts";
import type { CreateE2b } from "./first-code.ts";

const cli = join(repository, "packages/cli/dist/bundle/forkd.cjs");

/** Makes sandboxes of a template with E2B's SDK. */
export async function e2bClient({ dir, socket }: ScratchDaemon, template: string): Promise<CreateE2b> {
  const env = { ...process.env, FORKD_SOCKET: socket, FORKD_DATA_DIR: dir };
  const { stdout } = await command(process.execPath, [cli, "e2b", "env", "--json"], { env });
  const printed = JSON.parse(stdout) as Record<"E2B_API_URL" | "E2B_SANDBOX_URL" | "E2B_API_KEY", string>;
  const options = {
    apiUrl: printed.E2B_API_URL,
    sandboxUrl: printed.E2B_SANDBOX_URL,
    apiKey: printed.E2B_API_KEY,
  };
  return () => Sandbox.create(template, options);
}
