/**
 * The JSON body of a request. Its size, its cost and its pace are limited while it arrives. It is scanned and
 * decoded piece by piece, so that a long body does not block other requests.
 */
import { isUtf8 } from "node:buffer";
import type { IncomingMessage, ServerResponse } from "node:http";
import { AppError, errorMessage } from "@forkd/contract";
import { ByteBudget } from "./byte-budget.ts";
import { JsonScan } from "./json-scan.ts";

/** Bodies beyond this length count together */
const largeBytes = 64 * 1024;
const maxLargeBytes = 256 * 1024 * 1024;
const large = new ByteBudget({
  maxBytes: maxLargeBytes,
  which: "large requests",
  message: (inUse, limit) =>
    `Too many large requests are in progress (${inUse} bytes; the limit is ${limit})`,
  remedy: { action: "retry_later" },
});

/** How long a body may take: `ms`, and `msPerPiece` more for each `pieceBytes` that have arrived */
export type BodyPace = {
  readonly ms: number;
  readonly msPerPiece: number;
  readonly pieceBytes: number;
  /** how long the rest of a refused body is read and dropped, so that the client can read the answer */
  readonly lingerMs: number;
};
const usualPace: BodyPace = { ms: 30_000, msPerPiece: 1000, pieceBytes: 64 * 1024, lingerMs: 10_000 };

type JsonBodyOptions = { readonly maxBytes: number; readonly pace?: BodyPace | undefined };
type Exchange = { readonly incoming: IncomingMessage; readonly outgoing: ServerResponse };

/**
 * {} if there is no body. Throws `body_too_large`, `capacity_exhausted`, `cancelled` or `invalid_request`.
 */
export async function readJsonObject(exchange: Exchange, options: JsonBodyOptions): Promise<object> {
  const text = await readText(exchange, options);
  if (text === "") return {};
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    const why = errorMessage(error);
    throw new AppError("invalid_request", `Invalid request: the body is not JSON: ${why}`, { cause: error });
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new AppError("invalid_request", "Invalid request: the body must be a JSON object");
  }
  return value;
}

/**
 * Listeners rather than async iteration: most bodies come in one piece and should cost one turn of the event
 * loop.
 */
function readText(
  { incoming, outgoing }: Exchange,
  { maxBytes, pace = usualPace }: JsonBodyOptions,
): Promise<string> {
  return new Promise((resolve, reject) => {
    const text = new BodyText(outgoing, maxBytes);
    const deadline = new PaceTimer(
      pace,
      () => text.bytes,
      () => {
        // Do not wait for the rest of a body that is this slow.
        outgoing.shouldKeepAlive = false;
        refuse(tooSlow());
      },
    );
    const refuse = (error: unknown) => {
      deadline.stop();
      incoming.off("data", onData);
      dropRest(incoming, pace.lingerMs);
      reject(error as Error);
    };
    const onData = (chunk: Buffer) => {
      try {
        text.take(chunk);
      } catch (error) {
        refuse(error);
      }
    };
    if (Number(incoming.headers["content-length"] ?? 0) > maxBytes) return refuse(tooLarge(maxBytes));
    incoming.on("data", onData);
    incoming.once("end", () => {
      deadline.stop();
      try {
        resolve(text.end());
      } catch (error) {
        reject(error as Error);
      }
    });
    incoming.once("error", (error) => {
      deadline.stop();
      reject(clientLeft(error));
    });
  });
}

/** Decodes a body as it arrives; a body in one piece, at once. */
class BodyText {
  readonly #outgoing: ServerResponse;
  readonly #maxBytes: number;
  readonly #scan = new JsonScan();
  #first: Buffer | undefined;
  #decoder: InstanceType<typeof TextDecoder> | undefined;
  #text = "";
  #hold: ((bytes: number) => void) | undefined;
  bytes = 0;

  constructor(outgoing: ServerResponse, maxBytes: number) {
    this.#outgoing = outgoing;
    this.#maxBytes = maxBytes;
  }

  take(chunk: Buffer): void {
    this.bytes += chunk.length;
    if (this.bytes > this.#maxBytes) throw tooLarge(this.#maxBytes);
    this.#scan.take(chunk);
    if (this.bytes > largeBytes) this.#count(chunk.length);
    if (this.bytes === chunk.length) {
      this.#first = chunk;
      return;
    }
    this.#decoder ??= new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
    if (this.#first) this.#decode(this.#first);
    this.#first = undefined;
    this.#decode(chunk);
  }

  end(): string {
    if (this.#first) {
      if (!isUtf8(this.#first)) throw notUtf8();
      return this.#first.toString("utf8");
    }
    this.#decode(undefined);
    return this.#text;
  }

  #decode(chunk: Buffer | undefined): void {
    try {
      this.#text += this.#decoder?.decode(chunk, { stream: chunk !== undefined }) ?? "";
    } catch (error) {
      throw notUtf8(error);
    }
  }

  #count(bytes: number): void {
    if (this.#hold) return this.#hold(bytes);
    this.#hold = large.during(this.#outgoing);
    this.#hold(this.bytes);
  }
}

/** Calls `late` once when a body has taken longer than its bytes so far allow. */
class PaceTimer {
  readonly #startedAt = performance.now();
  #timer: NodeJS.Timeout | undefined;

  constructor(pace: BodyPace, bytes: () => number, late: () => void) {
    const wait = (ms: number) => {
      this.#timer = setTimeout(() => {
        const allowed = pace.ms + Math.floor(bytes() / pace.pieceBytes) * pace.msPerPiece;
        const left = allowed - (performance.now() - this.#startedAt);
        if (left > 0) wait(left);
        else late();
      }, ms);
    };
    wait(pace.ms);
  }

  stop(): void {
    clearTimeout(this.#timer);
  }
}

function dropRest(incoming: IncomingMessage, lingerMs: number): void {
  const { socket } = incoming;
  incoming.resume();
  const cut = setTimeout(() => socket.destroy(), lingerMs);
  const isOver = () => {
    clearTimeout(cut);
    socket.off("close", isOver);
  };
  incoming.once("end", isOver);
  socket.once("close", isOver);
}

export function clientLeft(cause: unknown): AppError {
  return new AppError("cancelled", "The client went away before the end of its request", { cause });
}

function tooLarge(maxBytes: number): AppError {
  return new AppError("body_too_large", `The JSON body is longer than ${maxBytes} bytes`, {
    details: { bytes: maxBytes },
  });
}

function tooSlow(): AppError {
  return new AppError("invalid_request", "Invalid request: its body did not come in time");
}

function notUtf8(cause?: unknown): AppError {
  return new AppError("invalid_request", "Invalid request: the body is not UTF-8", { cause });
}
