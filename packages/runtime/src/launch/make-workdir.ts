import { AppError } from "@forkd/contract";
import { makeDirectory, type AgentClient } from "@forkd/machine";

/** Creates the working directory of commands in the guest, unless it is there. */
export async function makeWorkdir(agent: AgentClient, path: string | undefined): Promise<void> {
  if (path === undefined || path === "/") return;
  try {
    await makeDirectory(agent, path, { recursive: true, mode: 0o755 });
  } catch (error) {
    // If it is a file, the command reports it.
    if (!(error instanceof AppError) || error.code !== "already_exists") throw error;
  }
}
