/** Output of commands: events → bytes → text. */
import { maxBufferedOutput } from "@forkd/contract/wire";

/** Who gets the output as it arrives. A function that returns a promise slows the output down. */
export type OutputCallbacks = {
  /** Receives text of stdout as it arrives, bytes that are not UTF-8 as U+FFFD; default: none. */
  onStdout?: ((text: string) => void | Promise<void>) | undefined;
  /** Receives text of stderr as it arrives, bytes that are not UTF-8 as U+FFFD; default: none. */
  onStderr?: ((text: string) => void | Promise<void>) | undefined;
};

type Encoded = { data: string; encoding: "utf8" | "base64" };
type OutputName = "stdout" | "stderr";

/** Passes output to the callbacks as text; joins characters that arrive in two pieces. */
export function outputReaders({
  onStdout,
  onStderr,
}: OutputCallbacks): ((name: OutputName, event: Encoded) => void | Promise<void>) | undefined {
  if (onStdout === undefined && onStderr === undefined) return undefined;
  const readers = {
    stdout: { receive: onStdout, decoder: new TextDecoder("utf-8", { ignoreBOM: true }) },
    stderr: { receive: onStderr, decoder: new TextDecoder("utf-8", { ignoreBOM: true }) },
  };
  return (name, event) => {
    const { receive, decoder } = readers[name];
    const text = receive && decoder.decode(outputBytes(event), { stream: true });
    return text === undefined || text === "" ? undefined : receive?.(text);
  };
}

/** Returns the bytes of a stdout or stderr event. */
export function outputBytes(event: Encoded): Uint8Array {
  return event.encoding === "utf8" ? new TextEncoder().encode(event.data) : fromBase64(event.data);
}

export function fromBase64(text: string): Uint8Array {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

export function toBase64(bytes: Uint8Array): string {
  let text = "";
  // In pieces, because the bytes become arguments of one call.
  for (let at = 0; at < bytes.length; at += 8192)
    text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return btoa(text);
}

export function concat(chunks: readonly Uint8Array[]): Uint8Array {
  const all = new Uint8Array(chunks.reduce((sum, chunk) => sum + chunk.length, 0));
  let at = 0;
  for (const chunk of chunks) {
    all.set(chunk, at);
    at += chunk.length;
  }
  return all;
}

/** Keeps the first `maxBufferedOutput` bytes. */
export class OutputBuffer {
  readonly #chunks: Uint8Array[] = [];
  #size = 0;
  #truncated = false;

  get truncated(): boolean {
    return this.#truncated;
  }

  push(bytes: Uint8Array): void {
    const kept = bytes.subarray(0, maxBufferedOutput - this.#size);
    if (kept.length < bytes.length) this.#truncated = true;
    if (kept.length === 0) return;
    this.#chunks.push(kept);
    this.#size += kept.length;
  }

  toString(): string {
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(concat(this.#chunks));
  }
}
