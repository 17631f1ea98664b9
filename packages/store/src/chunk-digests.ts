/**
 * sha256 of pieces of a file. Hashing runs in the thread pool; a few pieces are read and hashed ahead, so
 * that disk and processors work at the same time and the event loop only copies.
 */
import { webcrypto } from "node:crypto";
import type { FileHandle } from "node:fs/promises";

export const chunkBytes = 1 << 20;
const ahead = 4;

export type Piece = { position: number; length: number };
/** `bytes` is valid until the next piece is requested. */
type HashedPiece = Piece & { bytes: Buffer; digest: Buffer };

export async function sha256(bytes: Uint8Array): Promise<Buffer> {
  return Buffer.from(await webcrypto.subtle.digest("SHA-256", bytes));
}

/** Splits `length` bytes that start at `position` into pieces of at most `most` bytes. */
export function* piecesOf(position: number, length: number, most = chunkBytes): Generator<Piece> {
  for (let done = 0; done < length; done += most) {
    yield { position: position + done, length: Math.min(most, length - done) };
  }
}

/** Yields the digests in the order of `pieces`. A piece is at most `chunkBytes` long. */
export async function* chunkDigests(
  file: FileHandle,
  pieces: Iterable<Piece>,
  options: { signal?: AbortSignal | undefined; hash?: (bytes: Buffer) => Promise<Buffer> | Buffer } = {},
): AsyncGenerator<HashedPiece> {
  const hash = options.hash ?? sha256;
  const free: Buffer[] = [];
  const pending: Promise<HashedPiece>[] = [];
  const start = async ({ position, length }: Piece, buffer: Buffer): Promise<HashedPiece> => {
    options.signal?.throwIfAborted();
    const bytes = buffer.subarray(0, length);
    await readFully(file, bytes, position);
    return { position, length, bytes, digest: await hash(bytes) };
  };
  const source = pieces[Symbol.iterator]();
  const fill = (): void => {
    while (pending.length < ahead) {
      const next = source.next();
      if (next.done === true) return;
      const work = start(next.value, free.pop() ?? Buffer.allocUnsafeSlow(chunkBytes));
      // The loop below throws a failure when its turn comes; until then it must not be an unhandled
      // rejection.
      work.catch(() => undefined);
      pending.push(work);
    }
  };
  try {
    for (fill(); ; fill()) {
      const first = pending.shift();
      if (first === undefined) return;
      const piece = await first;
      yield piece;
      free.push(Buffer.from(piece.bytes.buffer));
    }
  } finally {
    await Promise.allSettled(pending);
  }
}

/** Throws if the file ends early. */
export async function readFully(file: FileHandle, bytes: Buffer, position: number): Promise<void> {
  for (let done = 0; done < bytes.length;) {
    const { bytesRead } = await file.read(bytes, done, bytes.length - done, position + done);
    if (bytesRead === 0) throw new Error("Cannot read the file: it became shorter");
    done += bytesRead;
  }
}

export async function writeFully(file: FileHandle, bytes: Buffer, position: number): Promise<void> {
  for (let done = 0; done < bytes.length;) {
    const { bytesWritten } = await file.write(bytes, done, bytes.length - done, position + done);
    done += bytesWritten;
  }
}
