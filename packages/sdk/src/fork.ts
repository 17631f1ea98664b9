/** Forks children from a snapshot. */
import { AppError } from "@forkd/contract/wire";
import type { RequestOf } from "@forkd/contract";
import type { Client, CreateOptions } from "./client.ts";
import type { ForkError } from "./errors.ts";
import { lifeFields, networkFields, type LifeOptions, type NetworkOptions } from "./sandbox-options.ts";
import { Sandbox, toChildren } from "./sandbox.ts";

/** Options of `fork()` and `forkOne()`. */
export type ForkOptions = CreateOptions & {
  /** Environment of each child; default: that of the snapshot. */
  env?: Record<string, string> | undefined;
  /** Labels of each child; default: none. */
  labels?: Record<string, string> | undefined;
  /** Own environment and values for the children in order, at most one entry per child; default: none. */
  vary?: RequestOf<"fork">["vary"];
  /** Time to live of each child in seconds; default: no limit. */
  ttlSecs?: number | undefined;
} & LifeOptions &
  NetworkOptions;

export async function fork(
  client: Client,
  tag: string,
  options: ForkOptions & { n?: number | undefined },
): Promise<(Sandbox | ForkError)[]> {
  const { n, env, labels, vary, ttlSecs } = options;
  const life = { ttl_secs: ttlSecs, ...lifeFields(options) };
  const request = { snapshot_tag: tag, n, env, labels, vary, ...life, ...networkFields(options) };
  return toChildren(client, await client.call("fork", request, options));
}

export async function forkOne(client: Client, tag: string, options: ForkOptions): Promise<Sandbox> {
  const [child] = await fork(client, tag, { ...options, n: 1 });
  if (child instanceof Sandbox) return child;
  throw child ?? new AppError("internal", `The daemon answered a fork of "${tag}" with no child`);
}
