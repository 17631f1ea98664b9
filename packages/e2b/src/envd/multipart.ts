/** Files of a multipart/form-data body, one after the other, as they arrive. */
import type { Readable } from "node:stream";
import { pipeline } from "node:stream";
import { Busboy } from "@fastify/busboy";
import { AsyncQueue } from "@forkd/base";
import { AppError } from "@forkd/contract";

type UploadedPart = { readonly filename: string | undefined; readonly content: Readable };

/** Field that holds files; others are ignored */
const fileField = "file";
const limits = {
  files: 1000,
  fields: 100,
  fieldSize: 64 * 1024,
  headerPairs: 32,
  headerSize: 16 * 1024,
};

/**
 * The caller has to read each file before it takes the next one. The body is read no faster than that.
 */
export async function* uploadedParts(
  body: AsyncIterable<Buffer>,
  contentType: string,
): AsyncGenerator<UploadedPart> {
  const parts = new AsyncQueue<UploadedPart>();
  const parser = createParser(contentType);
  let current: Readable | undefined;
  parser.on("file", (field: string, content: Readable, filename: string | undefined) => {
    // The reader may stop before it comes to this file; its error then has no other listener.
    content.on("error", () => undefined);
    current = content;
    if (field === fileField) parts.push({ filename: filename || undefined, content });
    else content.resume();
  });
  parser.on("filesLimit", () => parts.fail(badForm(`it has more than ${limits.files} files`)));
  pipeline(body, parser, (error) => {
    if (!error) return parts.end();
    const failure = badForm(error.message, error);
    parts.fail(failure);
    // The parser leaves a file whose rest does not come open for ever.
    current?.destroy(failure);
  });
  try {
    yield* parts;
  } finally {
    for (const { content } of parts.clear()) content.destroy();
  }
}

function createParser(contentType: string): ReturnType<typeof Busboy> {
  try {
    return Busboy({ headers: { "content-type": contentType }, preservePath: true, limits });
  } catch (error) {
    throw badForm(error instanceof Error ? error.message : String(error), error);
  }
}

function badForm(why: string, cause?: unknown): AppError {
  return new AppError("invalid_request", `Cannot read the form: ${why}`, { cause });
}
