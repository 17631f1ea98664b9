/** The services that a snapshot's recipe started: their state, and what they have written. */
import { AppError, type ParsedOf, type ServiceInfo } from "@forkd/contract";
import { GuestProgress, whileAnswering, type AgentClient, type AgentProcess } from "@forkd/machine";
import type { Context } from "../context.ts";
import { withReplyDeadline } from "../guest/deadline.ts";
import { LastLines } from "../guest/last-lines.ts";
import { servicesAmong } from "../guest/service-names.ts";
import type { Runtime } from "../runtime.ts";
import { followProcess } from "../sandbox/follow-process.ts";
import { collectFromGuest, streamFromGuest } from "../sandbox/into-guest.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";

type AgentListing = Awaited<ReturnType<AgentClient["list"]>>[number];

const unlisted = "its services cannot be listed";

export async function listServices(
  runtime: Runtime,
  { id }: ParsedOf<"listServices">,
  context: Context,
): Promise<ServiceInfo[]> {
  const listings = await collectFromGuest(runtime, { ...context, id }, ({ agent }, { hold }) =>
    withReplyDeadline(agent, unlisted, agent.list(hold)),
  );
  return servicesAmong(listings).map(({ name, process }) => ({
    name,
    state: process.finished ? "exited" : "running",
    exec_id: process.id,
    pid: process.pid,
    command: process.command,
    stdout_bytes: process.offsets[0],
    stderr_bytes: process.offsets[1],
    ...(process.finished && {
      exit_code: process.signal === undefined ? (process.code ?? 0) : 128 + process.signal,
    }),
  }));
}

/** What the guest has kept of the service's output, in the parent too, and with `follow` what comes after it. */
export function serviceLogs(
  runtime: Runtime,
  request: ParsedOf<"serviceLogs">,
  context: Context,
): Promise<AsyncIterable<Uint8Array>> {
  return streamFromGuest(runtime, { ...context, id: request.id }, async (sandbox) => {
    const listing = await findService(sandbox, request.name);
    return readLog(sandbox, listing, { ...request, signal: context.signal });
  });
}

async function findService(sandbox: Sandbox, name: string): Promise<AgentListing> {
  const services = servicesAmong(await withReplyDeadline(sandbox.agent, unlisted, sandbox.agent.list()));
  const found = services.find((each) => each.name === name);
  if (found) return found.process;
  const names = services.map((each) => each.name);
  const known = names.length === 0 ? "its snapshot has none" : `its services are ${names.join(", ")}`;
  throw new AppError("exec_not_found", `Cannot find service "${name}" in ${sandbox.id}: ${known}`, {
    details: { name, services: names },
  });
}

type LogOptions = {
  follow?: boolean | undefined;
  tail?: number | undefined;
  signal: AbortSignal | undefined;
};

async function* readLog(
  sandbox: Sandbox,
  listing: AgentListing,
  { follow, tail, signal }: LogOptions,
): AsyncGenerator<Uint8Array> {
  const followed = await followProcess(sandbox, () => attach(sandbox, listing.id), {
    id: listing.id,
    offsets: [0, 0],
  });
  const { output } = followed;
  const close = () => output.close();
  signal?.addEventListener("abort", close, { once: true });
  let hasEnded = false;
  try {
    const progress = new GuestProgress(sandbox.agent, "read the log");
    const last = tail === undefined ? undefined : new LastLines(tail);
    const seen = [0, 0, 0, 0];
    // Both streams have at least as many bytes as were listed.
    const isBehind = () => (seen[1] ?? 0) < listing.offsets[0] || (seen[2] ?? 0) < listing.offsets[1];
    while (!hasEnded && isBehind()) {
      const next = await progress.next(output.next());
      hasEnded = next.done === true;
      if (next.done) break;
      const { stream, offset, bytes } = next.value;
      seen[stream] = offset + bytes.length;
      if (last) last.push(bytes);
      else yield bytes;
    }
    if (last) yield last.bytes();
    while (follow && !hasEnded) {
      // It lasts as long as the service, which may be silent, and its agent answers.
      const next = await whileAnswering(sandbox.agent, "follow the service", output.next());
      hasEnded = next.done === true;
      if (!next.done) yield next.value.bytes;
    }
  } finally {
    signal?.removeEventListener("abort", close);
    await followed.leave();
  }
}

async function attach(sandbox: Sandbox, id: number): Promise<AgentProcess> {
  const process = sandbox.agent.attach(id, [0, 0, 0]);
  process.exit.catch(() => undefined);
  await withReplyDeadline(sandbox.agent, "the service cannot be attached to", process.started);
  return process;
}
