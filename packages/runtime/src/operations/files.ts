/** Files in a sandbox. */
import type { FileEntry, ParsedOf } from "@forkd/contract";
import * as guest from "@forkd/machine";
import type { Context } from "../context.ts";
import type { Runtime } from "../runtime.ts";

function agentOf(runtime: Runtime, { id }: { id: string }): guest.AgentClient {
  return runtime.registry.get(id).agent;
}

function octal(mode: string | undefined): { mode?: number } {
  return mode === undefined ? {} : { mode: Number.parseInt(mode, 8) };
}

/** Resolves once the file is open, so that an error can still become a status. */
export function readFile(
  runtime: Runtime,
  request: ParsedOf<"readFile">,
  { signal }: Context,
): Promise<AsyncIterable<Uint8Array>> {
  const { path, offset, limit, user } = request;
  return guest.readFile(agentOf(runtime, request), path, { offset, limit, user, signal });
}

export async function writeFile(
  runtime: Runtime,
  request: ParsedOf<"writeFile">,
  content: AsyncIterable<Uint8Array>,
  { signal }: Context,
): Promise<FileEntry> {
  const agent = agentOf(runtime, request);
  const { path, user, append, exclusive } = request;
  await guest.writeFile(agent, path, content, { user, append, exclusive, signal, ...octal(request.mode) });
  return guest.statFile(agent, path, { user, follow: true });
}

export async function listFiles(
  runtime: Runtime,
  request: ParsedOf<"listFiles">,
  { signal }: Context,
): Promise<FileEntry[]> {
  return guest.listFiles(agentOf(runtime, request), request.path, { user: request.user, signal });
}

export async function statFile(
  runtime: Runtime,
  request: ParsedOf<"statFile">,
  { signal }: Context,
): Promise<FileEntry> {
  const { path, user, follow } = request;
  return guest.statFile(agentOf(runtime, request), path, { user, follow, signal });
}

export async function makeDirectory(
  runtime: Runtime,
  request: ParsedOf<"makeDirectory">,
  { signal }: Context,
): Promise<void> {
  const { path, user, parents } = request;
  await guest.makeDirectory(agentOf(runtime, request), path, {
    user,
    recursive: parents,
    signal,
    ...octal(request.mode),
  });
}

export async function moveFile(
  runtime: Runtime,
  request: ParsedOf<"moveFile">,
  { signal }: Context,
): Promise<void> {
  await guest.moveFile(agentOf(runtime, request), request.from, request.to, { user: request.user, signal });
}

export async function removeFile(
  runtime: Runtime,
  request: ParsedOf<"removeFile">,
  { signal }: Context,
): Promise<void> {
  const { path, user, recursive } = request;
  await guest.removeFile(agentOf(runtime, request), path, { user, recursive, signal });
}

export async function chmodFile(
  runtime: Runtime,
  request: ParsedOf<"chmodFile">,
  { signal }: Context,
): Promise<void> {
  const { path, user, recursive, mode } = request;
  await guest.changeMode(agentOf(runtime, request), path, Number.parseInt(mode, 8), {
    user,
    recursive,
    signal,
  });
}
