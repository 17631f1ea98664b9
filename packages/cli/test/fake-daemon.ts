/** A fake daemon: canned answers over HTTP on a unix socket, and a record of the requests. */
import { EventEmitter, once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import http from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";

export type Asked = { method: string; path: string; body: string };
export type Answer = {
  status?: number;
  json?: unknown;
  lines?: unknown[];
  bytes?: string;
  hold?: true;
  cut?: true;
};
type Answers = Readonly<Record<string, Answer | ((asked: Asked) => Answer)>>;

export type FakeDaemon = AsyncDisposable & {
  readonly socket: string;
  readonly dir: string;
  readonly asked: Asked[];
  /** Ends the held answers with these lines. */
  release(lines: unknown[]): void;
  /** Resolves after a request whose path ends with `ending`. */
  askedFor(ending: string): Promise<void>;
};

/** Keys of `answers` look like "GET /v1/sandboxes", without the query. */
export async function openFakeDaemon(answers: Answers): Promise<FakeDaemon> {
  const dir = await mkdtemp(join(tmpdir(), "forkd-cli-"));
  const socket = join(dir, "s");
  const asked: Asked[] = [];
  const arrivals = new EventEmitter();
  const held: http.ServerResponse[] = [];
  const all: Answers = {
    "GET /healthz": { json: { ok: true } },
    [`GET /v1/sandboxes/${idA}`]: { json: sandbox(idA) },
    [`GET /v1/sandboxes/${idB}`]: { json: sandbox(idB, 1) },
    ...answers,
  };
  const server = http.createServer((incoming, outgoing) => {
    const chunks: Buffer[] = [];
    incoming.on("data", (chunk: Buffer) => chunks.push(chunk));
    incoming.on("end", () => {
      const request = {
        method: incoming.method!,
        path: incoming.url!,
        body: Buffer.concat(chunks).toString(),
      };
      if (!request.path.startsWith("/healthz")) asked.push(request);
      arrivals.emit("request");
      const found = all[`${request.method} ${request.path.split("?")[0]}`];
      const answer = typeof found === "function" ? found(request) : (found ?? unknownRoute(request));
      // Like a daemon that exits during a request.
      if (answer.cut) return void incoming.socket.destroy();
      send(outgoing, answer);
      if (answer.hold) held.push(outgoing);
    });
  });
  await new Promise<void>((resolve) => server.listen(socket, resolve));
  return {
    socket,
    dir,
    asked,
    release: (lines) => {
      for (const outgoing of held) outgoing.end(lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
    },
    askedFor: async (ending) => {
      while (!asked.some(({ path }) => path.endsWith(ending))) await once(arrivals, "request");
    },
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      await rm(dir, { recursive: true });
    },
  };
}

function unknownRoute({ method, path }: Asked): Answer {
  return { status: 404, json: { error: `no ${method} ${path}`, code: "not_found", details: {} } };
}

function send(outgoing: http.ServerResponse, answer: Answer): void {
  const status =
    answer.status ?? (answer.json === undefined && !answer.lines && answer.bytes === undefined ? 204 : 200);
  outgoing.writeHead(status, { "content-type": "application/json" });
  if (answer.json !== undefined) outgoing.write(JSON.stringify(answer.json));
  for (const line of answer.lines ?? []) outgoing.write(`${JSON.stringify(line)}\n`);
  if (answer.bytes !== undefined) outgoing.write(answer.bytes);
  if (!answer.hold) outgoing.end();
}

export const idA = "sb-aa0000000000000000000001";
export const idB = "sb-ab0000000000000000000002";

export function sandbox(id: string, index = 0): Record<string, unknown> {
  return {
    id,
    snapshot_tag: "py",
    state: "running",
    created_at_unix: 1_700_000_000,
    index,
    hostname: "forkd",
    labels: { job: "42" },
    vcpus: 1,
    memory_mib: 512,
    accelerator: "tcg",
    languages: ["python"],
    ready_ms: 12.34,
    from: "pool",
    branch_count: 0,
  };
}

export function snapshot(tag: string): Record<string, unknown> {
  return {
    tag,
    dir: `/data/${tag}`,
    created_at_unix: 1_700_000_000,
    status: "ready",
    bootable: true,
    memory_mib: 512,
    vcpus: 1,
    accelerator: "tcg",
    languages: [],
    physical_bytes: 1024,
  };
}
