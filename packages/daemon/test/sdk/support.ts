/** A sandbox of the SDK, whose operations are the test's. */
import type { SandboxInfo } from "@forkd/contract";
import type { Forkd, Sandbox } from "@forkd/sdk";
import { connect } from "@forkd/sdk/node";
import type { Handlers } from "../../src/http/handlers.ts";
import { sandboxId, startServer } from "../support.ts";

export const info: SandboxInfo = {
  id: sandboxId,
  snapshot_tag: "py",
  state: "running",
  created_at_unix: 1,
  index: 0,
  hostname: "h",
  labels: {},
  vcpus: 1,
  memory_mib: 128,
  accelerator: "tcg",
  languages: ["python"],
  ready_ms: 5,
  from: "pool",
  branch_count: 0,
};

export async function withSandbox(
  some: Partial<Handlers>,
): Promise<AsyncDisposable & { sandbox: Sandbox; forkd: Forkd }> {
  const server = await startServer({ getSandbox: () => info, ...some });
  const forkd = await connect({ socket: server.socket });
  const sandbox = await forkd.sandboxes.get(sandboxId);
  return { sandbox, forkd, [Symbol.asyncDispose]: () => server[Symbol.asyncDispose]() };
}
