/**
 * Finds the values of secrets in a response and puts their placeholders in their place.
 *
 * This keeps a value from a guest when a host repeats what it received: debug endpoints, error messages,
 * redirects. It is not a wall against a host that works with the guest: such a host can encode the value in
 * any way.
 */
import type { ResponseFilter } from "../proxy/intercept.ts";

/** Shorter values occur in ordinary text, and replacing them would damage it. */
const minLength = 8;

export type Needle = {
  /** what must not reach the guest; ASCII */
  readonly text: string;
  readonly placeholder: string;
};

/** The value as it is, and as it stands in a URL or in JSON. */
export function needlesOf(secret: { readonly value: string; readonly placeholder: string }): Needle[] {
  const { value, placeholder } = secret;
  const forms = new Set([value, encodeURIComponent(value), JSON.stringify(value).slice(1, -1)]);
  return [...forms].map((text) => ({ text, placeholder }));
}

/** For one response: keeps the end of a chunk while it may be the start of a value. */
export class Scrubber implements ResponseFilter {
  readonly #needles: readonly (Needle & { readonly bytes: Buffer; readonly mask: Buffer })[];
  #held: Buffer = Buffer.alloc(0);

  constructor(needles: readonly Needle[]) {
    this.#needles = needles
      .filter(({ text }) => text.length >= minLength)
      .map(({ text, placeholder }) => ({
        text,
        placeholder,
        bytes: Buffer.from(text, "latin1"),
        // Of the same length, so that Content-Length stays true.
        mask: Buffer.from(placeholder.padEnd(text.length, "*").slice(0, text.length), "latin1"),
      }));
  }

  /** Nothing to look for. */
  get isEmpty(): boolean {
    return this.#needles.length === 0;
  }

  text(text: string): string {
    return this.#needles.reduce((rest, needle) => rest.replaceAll(needle.text, needle.placeholder), text);
  }

  headers(rawHeaders: readonly string[]): string[] {
    return rawHeaders.map((part) => this.text(part));
  }

  push(chunk: Buffer): Buffer {
    if (this.isEmpty) return chunk;
    let isOwn = this.#held.length > 0;
    let data = isOwn ? Buffer.concat([this.#held, chunk]) : chunk;
    for (const { bytes, mask } of this.#needles) {
      for (let at = data.indexOf(bytes); at >= 0; at = data.indexOf(bytes, at + bytes.length)) {
        // Others may still read the chunk.
        if (!isOwn) data = Buffer.from(data);
        isOwn = true;
        mask.copy(data, at);
      }
    }
    const kept = Math.max(...this.#needles.map(({ bytes }) => startAtEnd(data, bytes)));
    this.#held = data.subarray(data.length - kept);
    return data.subarray(0, data.length - kept);
  }

  end(): Buffer {
    const held = this.#held;
    this.#held = Buffer.alloc(0);
    return held;
  }
}

/** How many bytes at the end of `data` are the start of `needle`. */
function startAtEnd(data: Buffer, needle: Buffer): number {
  const first = needle[0] ?? 0;
  let at = data.indexOf(first, Math.max(0, data.length - needle.length + 1));
  for (; at >= 0; at = data.indexOf(first, at + 1)) {
    const length = data.length - at;
    if (data.compare(needle, 0, length, at) === 0) return length;
  }
  return 0;
}
