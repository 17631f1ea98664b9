/** A snapshot → children. */
import { AppError } from "@forkd/contract/wire";
import type { RequestOf } from "@forkd/contract";
import type { Client, CreateOptions } from "./client.ts";
import type { ForkError } from "./errors.ts";
import { lifeFields, type LifeOptions } from "./sandbox-options.ts";
import { Sandbox, toChildren } from "./sandbox.ts";

export type ForkOptions = CreateOptions & {
  env?: Record<string, string> | undefined;
  labels?: Record<string, string> | undefined;
  /** one entry per child, in order; at most n */
  vary?: RequestOf<"fork">["vary"];
  ttlSecs?: number | undefined;
} & LifeOptions;

export async function fork(
  client: Client,
  tag: string,
  options: ForkOptions & { n?: number | undefined },
): Promise<(Sandbox | ForkError)[]> {
  const { n, env, labels, vary, ttlSecs } = options;
  const request = { snapshot_tag: tag, n, env, labels, vary, ttl_secs: ttlSecs, ...lifeFields(options) };
  return toChildren(client, await client.call("fork", request, options));
}

export async function forkOne(client: Client, tag: string, options: ForkOptions): Promise<Sandbox> {
  const [child] = await fork(client, tag, { ...options, n: 1 });
  if (child instanceof Sandbox) return child;
  throw child ?? new AppError("internal", `The daemon answered a fork of "${tag}" with no child`);
}
