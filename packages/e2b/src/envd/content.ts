/** The content of files: downloads and uploads. */
import type { IncomingMessage, ServerResponse } from "node:http";
import { pipeline } from "node:stream";
import { Readable } from "node:stream";
import { createGunzip, createGzip } from "node:zlib";
import { posix } from "node:path";
import { drained } from "@forkd/base";
import { advice, AppError, toAppError } from "@forkd/contract";
import { readFile, writeFile } from "@forkd/runtime";
import { bodyPieces } from "../http/body.ts";
import type { Account } from "./accounts.ts";
import { accountOf, asUserOrRoot, pathOf, type EnvdCall } from "./call.ts";
import { uploadedParts } from "./multipart.ts";
import { openForWriting } from "./ownership.ts";

type WrittenFile = { name: string; path: string; type: "file" };

/** Answers with the content. Throws if the file cannot be read; after the first byte it breaks the connection. */
export async function sendFile(
  call: EnvdCall,
  { path, acceptEncoding }: { path: string; acceptEncoding: string | undefined },
  outgoing: ServerResponse,
): Promise<AppError | undefined> {
  const account = await accountOf(call);
  const resolved = pathOf(call, account, path);
  const { runtime, id, context } = call;
  const content = await asUserOrRoot(account, (user) =>
    readFile(runtime, { id, path: resolved, user, offset: 0, limit: 0 }, context),
  );
  const pieces = content[Symbol.asyncIterator]();
  const first = await pieces.next();
  const name = encodeURIComponent(posix.basename(resolved) || "file");
  const headers = {
    "content-type": "application/octet-stream",
    "content-disposition": `inline; filename*=utf-8''${name}`,
    vary: "accept-encoding",
  };
  if (first.done) {
    // Clients recognise an empty file by it.
    outgoing.writeHead(200, { ...headers, "content-length": 0 }).end();
    return undefined;
  }
  const all = withFirst(first.value, pieces);
  if (!asksForGzip(acceptEncoding)) {
    outgoing.writeHead(200, headers);
    return copy(all, outgoing);
  }
  outgoing.writeHead(200, { ...headers, "content-encoding": "gzip" });
  const compressed = Readable.from(all, { objectMode: false }).compose(createGzip({ level: 1 }));
  return copy(compressed as AsyncIterable<Uint8Array>, outgoing);
}

/**
 * Clients list gzip among others by default, where it would cost more than the loopback saves. One that names
 * only gzip was asked to use it.
 */
function asksForGzip(acceptEncoding: string | undefined): boolean {
  return /^\s*gzip\s*$/i.test(acceptEncoding ?? "");
}

async function* withFirst(first: Uint8Array, rest: AsyncIterator<Uint8Array>): AsyncGenerator<Uint8Array> {
  try {
    yield first;
    for (;;) {
      const { done, value } = await rest.next();
      if (done) return;
      yield value;
    }
  } finally {
    await rest.return?.();
  }
}

async function copy(
  content: AsyncIterable<Uint8Array>,
  outgoing: ServerResponse,
): Promise<AppError | undefined> {
  try {
    for await (const piece of content) {
      if (outgoing.destroyed) return undefined;
      if (!outgoing.write(piece)) await drained(outgoing);
    }
    outgoing.end();
    return undefined;
  } catch (error) {
    // Without its last chunk the client sees that the answer is not complete.
    outgoing.destroy();
    return toAppError(error);
  }
}

/** Writes the file, or the files of a form. `path` is that of the query. */
export async function receiveFiles(
  call: EnvdCall,
  path: string | undefined,
  incoming: IncomingMessage,
): Promise<WrittenFile[]> {
  refuseMetadata(incoming);
  const account = await accountOf(call);
  const contentType = incoming.headers["content-type"] ?? "";
  const body = decoded(incoming);
  if (/^application\/octet-stream\b/i.test(contentType)) {
    if (!path) throw new AppError("invalid_request", 'Cannot write the file: the query has no "path"');
    return [await write(call, account, path, body)];
  }
  if (!/^multipart\/form-data\b/i.test(contentType))
    throw new AppError(
      "invalid_request",
      'Cannot write the file: the content type must be "multipart/form-data" or "application/octet-stream"',
    );
  const written: WrittenFile[] = [];
  for await (const { filename, content } of uploadedParts(body, contentType)) {
    const target = path || filename;
    if (!target)
      throw new AppError("invalid_request", "Cannot write the file: neither the query nor the part names it");
    if (path && written.length > 0)
      throw new AppError(
        "invalid_request",
        'Cannot write several files to one "path": leave it out of the query',
      );
    written.push(await write(call, account, target, content));
  }
  if (written.length === 0)
    throw new AppError("invalid_request", 'Cannot write the file: the form has no part "file"');
  return written;
}

function refuseMetadata({ headers }: IncomingMessage): void {
  if (!Object.keys(headers).some((name) => name.startsWith("x-metadata-"))) return;
  throw new AppError("invalid_request", "Cannot write the file: metadata of files is not supported", {
    remedy: advice('Leave out the option "metadata".'),
  });
}

/** The body as it was before the client compressed it. */
function decoded(incoming: IncomingMessage): AsyncIterable<Buffer> {
  const encoding = (incoming.headers["content-encoding"] ?? "identity").toLowerCase();
  if (encoding === "identity") return bodyPieces(incoming);
  if (encoding === "gzip") {
    const plain = createGunzip();
    pipeline(bodyPieces(incoming), plain, () => undefined);
    return plain;
  }
  throw new AppError(
    "invalid_request",
    `Cannot read the request: its encoding "${encoding}" is not supported`,
  );
}

async function write(
  call: EnvdCall,
  account: Account,
  path: string,
  content: AsyncIterable<Buffer>,
): Promise<WrittenFile> {
  const resolved = pathOf(call, account, path);
  const { runtime, id, context } = call;
  const target = await openForWriting(call, account, resolved);
  await writeFile(
    runtime,
    {
      id,
      path: resolved,
      user: target.user,
      append: false,
      exclusive: false,
      in_place: true,
      content: wellFormed(content),
    },
    context,
  );
  await target.own();
  return { name: posix.basename(resolved), path: resolved, type: "file" };
}

/** Errors of the body are errors of the request. */
async function* wellFormed(content: AsyncIterable<Buffer>): AsyncGenerator<Uint8Array> {
  try {
    yield* content;
  } catch (error) {
    if (error instanceof AppError) throw error;
    const why = error instanceof Error ? error.message : String(error);
    throw new AppError("invalid_request", `Cannot read the content of the request: ${why}`, { cause: error });
  }
}
