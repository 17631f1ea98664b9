/** Files in a sandbox. */
import type { FileEntry, ParsedOf, WatchEvent } from "@forkd/contract";
import * as guest from "@forkd/machine";
import type { Context } from "../context.ts";
import type { Runtime } from "../runtime.ts";
import { collectFromGuest, intoGuest, streamFromGuest } from "../sandbox/into-guest.ts";

function octal(mode: string | undefined): { mode?: number } {
  return mode === undefined ? {} : { mode: Number.parseInt(mode, 8) };
}

/** Resolves once the file is open, so that an error can still become a status. */
export function readFile(
  runtime: Runtime,
  request: ParsedOf<"readFile">,
  context: Context,
): Promise<AsyncIterable<Uint8Array>> {
  const { id, path, offset, limit, user } = request;
  const { signal } = context;
  return streamFromGuest(runtime, { ...context, id }, ({ agent }) =>
    guest.readFile(agent, path, { offset, limit, user, signal }),
  );
}

export function writeFile(
  runtime: Runtime,
  request: ParsedOf<"writeFile"> & { content: AsyncIterable<Uint8Array> },
  context: Context,
): Promise<FileEntry> {
  const { id, path, content, user, append, exclusive, in_place: inPlace, mode } = request;
  const { signal } = context;
  return intoGuest(runtime, { ...context, id }, async ({ agent }) => {
    await guest.writeFile(agent, path, content, {
      ...{ user, append, exclusive, inPlace, signal },
      ...octal(mode),
    });
    return guest.statFile(agent, path, { user, follow: true });
  });
}

export function listFiles(
  runtime: Runtime,
  { id, path, user, depth }: ParsedOf<"listFiles">,
  context: Context,
): Promise<FileEntry[]> {
  const { signal } = context;
  return collectFromGuest(runtime, { ...context, id }, ({ agent }, { hold }) =>
    guest.listFiles(agent, path, { user, depth, signal, hold }),
  );
}

/** Events of a watch, for one reader. */
type WatchedFiles = AsyncIterable<WatchEvent> & {
  /** Resolves when the reader has got all events of changes that were made before the call. */
  sync(): Promise<void>;
};

/** Resolves once the directory is watched, so that an error can still become a status. */
export async function watchFiles(
  runtime: Runtime,
  request: ParsedOf<"watchFiles">,
  context: Context,
): Promise<WatchedFiles> {
  const { id, path, user, recursive, include_entry: includeEntry } = request;
  const { signal } = context;
  let watch: guest.FileWatch | undefined;
  const events = await streamFromGuest(runtime, { ...context, id }, async ({ agent }) => {
    watch = await guest.watchFiles(agent, path, { user, recursive, includeEntry, signal });
    return watch;
  });
  return {
    [Symbol.asyncIterator]: () => events[Symbol.asyncIterator](),
    sync: async () => watch?.sync(),
  };
}

export function statFile(
  runtime: Runtime,
  { id, path, user, follow }: ParsedOf<"statFile">,
  context: Context,
): Promise<FileEntry> {
  const { signal } = context;
  return intoGuest(runtime, { ...context, id }, ({ agent }) =>
    guest.statFile(agent, path, { user, follow, signal }),
  );
}

export function makeDirectory(
  runtime: Runtime,
  { id, path, user, parents: recursive, mode }: ParsedOf<"makeDirectory">,
  context: Context,
): Promise<void> {
  const { signal } = context;
  return intoGuest(runtime, { ...context, id }, ({ agent }) =>
    guest.makeDirectory(agent, path, { user, recursive, signal, ...octal(mode) }),
  );
}

export function moveFile(
  runtime: Runtime,
  { id, from, to, user }: ParsedOf<"moveFile">,
  context: Context,
): Promise<void> {
  const { signal } = context;
  return intoGuest(runtime, { ...context, id }, ({ agent }) =>
    guest.moveFile(agent, from, to, { user, signal }),
  );
}

export function removeFile(
  runtime: Runtime,
  { id, path, user, recursive }: ParsedOf<"removeFile">,
  context: Context,
): Promise<void> {
  const { signal } = context;
  return intoGuest(runtime, { ...context, id }, ({ agent }) =>
    guest.removeFile(agent, path, { user, recursive, signal }),
  );
}

export function chmodFile(
  runtime: Runtime,
  { id, path, user, recursive, mode }: ParsedOf<"chmodFile">,
  context: Context,
): Promise<void> {
  const { signal } = context;
  return intoGuest(runtime, { ...context, id }, ({ agent }) =>
    guest.changeMode(agent, path, Number.parseInt(mode, 8), { user, recursive, signal }),
  );
}
