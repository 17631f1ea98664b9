/**
 * Output that is collected for a response. There is a limit for each call, and the limits of GuestBytes for
 * calls together, so that guests cannot use up the daemon's memory. Output above any of them is dropped, and
 * the response says so.
 */
import { isUtf8 } from "node:buffer";
import { StringDecoder } from "node:string_decoder";
import { nextTurn } from "@forkd/base";
import type { HeldBytes } from "./guest-bytes.ts";

/** Output is in memory as bytes and as text. */
const copies = 2;

const firstBytes = 4096;
const bytesPerTurn = 64 * 1024;

/** One buffer that doubles, so that a guest that sends single bytes does not cost an object for each. */
export class OutputBuffer {
  readonly #limit: number;
  readonly #held: Pick<HeldBytes, "take">;
  #buffer = Buffer.alloc(0);
  #bytes = 0;
  #cut = false;

  /** `held` counts the output until the answer is encoded. */
  constructor(limit: number, held: Pick<HeldBytes, "take">) {
    this.#limit = limit;
    this.#held = held;
  }

  get isCut(): boolean {
    return this.#cut;
  }

  push(bytes: Uint8Array): void {
    // Output after a gap would be misleading.
    if (this.#cut) return;
    const fitting = Math.min(bytes.length, this.#limit - this.#bytes);
    const kept = Math.floor(this.#held.take(fitting * copies) / copies);
    if (kept < bytes.length) this.#cut = true;
    const need = this.#bytes + kept;
    if (need > this.#buffer.length) {
      const grown = Buffer.allocUnsafe(
        Math.min(this.#limit, Math.max(need, this.#buffer.length * 2, firstBytes)),
      );
      this.#buffer.copy(grown, 0, 0, this.#bytes);
      this.#buffer = grown;
    }
    this.#buffer.set(bytes.subarray(0, kept), this.#bytes);
    this.#bytes = need;
  }

  /**
   * As UTF-8, with replacement characters for invalid bytes. These take long to decode: such output is decoded
   * in short turns of the event loop.
   */
  async text(): Promise<string> {
    const bytes = this.#buffer.subarray(0, this.#bytes);
    if (isUtf8(bytes)) return bytes.toString();
    const decoder = new StringDecoder("utf8");
    let text = "";
    for (let at = 0; at < bytes.length; at += bytesPerTurn) {
      if (at > 0) await nextTurn();
      text += decoder.write(bytes.subarray(at, at + bytesPerTurn));
    }
    return text + decoder.end();
  }
}
