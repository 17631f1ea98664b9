/** Forks children from a snapshot. */
import { AppError } from "@forkd/contract/wire";
import type { RequestOf } from "@forkd/contract";
import type { Client } from "./client.ts";
import { requestOf } from "./convert/request.ts";
import type { ForkError } from "./errors.ts";
import type { ForkOptions, SandboxOptions } from "./sandbox-options.ts";
import { Sandbox, toChildren, wholeNumber } from "./sandbox.ts";

export async function fork(
  client: Client,
  tag: string,
  n: number,
  options: ForkOptions,
): Promise<(Sandbox | ForkError)[]> {
  // Options in place of the number would otherwise fork one child.
  if (typeof n !== "number") wholeNumber("n", n);
  return forkAs(client, { snapshot_tag: tag, n }, options);
}

export async function forkOne(client: Client, tag: string, options: SandboxOptions): Promise<Sandbox> {
  const [child] = await forkAs(client, { snapshot_tag: tag, n: 1, vary: undefined }, options);
  if (child instanceof Sandbox) return child;
  throw child ?? new AppError("internal", `The daemon answered a fork of "${tag}" with no child`);
}

async function forkAs(
  client: Client,
  fixed: Partial<RequestOf<"fork">>,
  options: ForkOptions,
): Promise<(Sandbox | ForkError)[]> {
  const request = requestOf("fork", fixed, options, ["idempotencyKey"]);
  return toChildren(client, await client.call("fork", request, options));
}
