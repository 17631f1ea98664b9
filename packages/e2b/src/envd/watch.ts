/** Changes of directories, as a stream and as watchers that clients poll. */
import { randomBytes } from "node:crypto";
import { AppError, fromErrorBody, toAppError, type WatchEvent } from "@forkd/contract";
import { watchFiles } from "@forkd/runtime";
import { accountOf, asUserOrRoot, pathOf, type EnvdCall } from "./call.ts";
import { entryInfo, type EntryInfo } from "./entry.ts";
import { requireDirectory } from "./filesystem.ts";

type WatchRequest = { path: string; recursive: boolean; includeEntry: boolean };

type FilesystemEvent = { name: string; type: string; entry?: EntryInfo };

type Watched = Awaited<ReturnType<typeof watchFiles>>;

const eventTypes = {
  create: "EVENT_TYPE_CREATE",
  write: "EVENT_TYPE_WRITE",
  remove: "EVENT_TYPE_REMOVE",
  rename: "EVENT_TYPE_RENAME",
  chmod: "EVENT_TYPE_CHMOD",
} as const;

/** Events that a client has not fetched; a watcher with more fails. */
const maxEvents = 10_000;
const maxWatchers = 64;

/** The stream of WatchDir. */
export async function watchDirectory(call: EnvdCall, request: WatchRequest): Promise<AsyncIterable<object>> {
  const watched = await open(call, request);
  return streamEvents(watched);
}

async function* streamEvents(watched: Watched): AsyncGenerator<object> {
  for await (const event of watched) {
    if (event.type === "started") yield { start: {} };
    else {
      const shown = filesystemEvent(event);
      if (shown) yield { filesystem: shown };
    }
  }
}

async function open(call: EnvdCall, { path, recursive, includeEntry }: WatchRequest): Promise<Watched> {
  const account = await accountOf(call);
  const resolved = pathOf(call, account, path);
  await requireDirectory(call, account, resolved);
  const { runtime, id, context } = call;
  const request = { id, path: resolved, recursive, include_entry: includeEntry };
  return asUserOrRoot(account, (user) => watchFiles(runtime, { ...request, user }, context));
}

/** undefined for what clients have no word for */
function filesystemEvent(event: WatchEvent): FilesystemEvent | undefined {
  if (event.type === "error") throw fromErrorBody(event);
  if (event.type === "overflow")
    throw new AppError("capacity_exhausted", `Changes below "${event.path}" were lost: there were too many`);
  if (event.type === "started") return undefined;
  const entry = "entry" in event ? event.entry : undefined;
  const type = eventTypes[event.type];
  return { name: event.path, type, ...(entry && { entry: entryInfo(entry) }) };
}

/** One watcher of CreateWatcher. */
class Watcher {
  readonly #watched: Watched;
  readonly #stop: AbortController;
  #events: FilesystemEvent[] = [];
  #failure: AppError | undefined;

  constructor(watched: Watched, stop: AbortController) {
    this.#watched = watched;
    this.#stop = stop;
    void this.#follow();
  }

  /** Never rejects. What was not fetched by then is not kept for a client that may never ask. */
  async #follow(): Promise<void> {
    const ended = () => new AppError("cancelled", "The watch has ended");
    const why = await this.#read().then(ended, toAppError);
    this.#failure ??= why;
    this.#events = [];
    this.#stop.abort(this.#failure);
  }

  async #read(): Promise<void> {
    for await (const event of this.#watched) {
      const shown = filesystemEvent(event);
      if (!shown) continue;
      if (this.#events.push(shown) > maxEvents)
        throw new AppError(
          "capacity_exhausted",
          `The watcher has more than ${maxEvents} events that were not fetched`,
        );
    }
  }

  get isEnded(): boolean {
    return this.#failure !== undefined;
  }

  /** Everything that happened before the call. */
  async events(): Promise<FilesystemEvent[]> {
    if (!this.#failure) await this.#watched.sync();
    if (this.#failure) throw this.#failure;
    return this.#events.splice(0);
  }

  stop(): void {
    this.#failure ??= new AppError("cancelled", "The watcher was removed");
    this.#stop.abort(this.#failure);
  }
}

/** The watchers of all sandboxes. They last until they are removed or their sandbox ends or is paused. */
export class Watchers {
  /** undefined: not open yet */
  readonly #watchers = new Map<string, Map<string, Watcher | undefined>>();

  async create(call: EnvdCall, request: WatchRequest): Promise<{ watcherId: string }> {
    for (const id of this.#watchers.keys()) if (!call.runtime.registry.find(id)) this.#watchers.delete(id);
    const own = this.#of(call.id);
    for (const [id, watcher] of own) if (watcher?.isEnded) own.delete(id);
    if (own.size >= maxWatchers)
      throw new AppError("capacity_exhausted", `Cannot watch: the sandbox has ${maxWatchers} watchers`);
    const watcherId = `w${randomBytes(12).toString("hex")}`;
    // Its place is taken before it is open: many may be asked for at the same time.
    own.set(watcherId, undefined);
    const stop = new AbortController();
    // It outlives the request.
    const context = { ...call.context, signal: stop.signal };
    try {
      own.set(watcherId, new Watcher(await open({ ...call, context }, request), stop));
    } catch (error) {
      this.#forget(call.id, watcherId);
      throw error;
    }
    return { watcherId };
  }

  async events(call: EnvdCall, id: string): Promise<{ events: FilesystemEvent[] }> {
    const watcher = this.#find(call, id);
    try {
      return { events: await watcher.events() };
    } catch (error) {
      this.#forget(call.id, id);
      throw error;
    }
  }

  remove(call: EnvdCall, id: string): void {
    this.#find(call, id).stop();
    this.#forget(call.id, id);
  }

  #of(sandbox: string): Map<string, Watcher | undefined> {
    const known = this.#watchers.get(sandbox);
    if (known) return known;
    const made = new Map<string, Watcher | undefined>();
    this.#watchers.set(sandbox, made);
    return made;
  }

  #find(call: EnvdCall, id: string): Watcher {
    const watcher = this.#watchers.get(call.id)?.get(id);
    if (watcher) return watcher;
    throw new AppError("not_found", `watcher with id ${id} not found`, { details: { watcher: id } });
  }

  #forget(sandbox: string, id: string): void {
    const own = this.#watchers.get(sandbox);
    own?.get(id)?.stop();
    own?.delete(id);
    if (own?.size === 0) this.#watchers.delete(sandbox);
  }
}
