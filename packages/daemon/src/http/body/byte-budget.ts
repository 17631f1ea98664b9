/** A limit for the bytes that the requests of all connections keep in memory together. */
import type { ServerResponse } from "node:http";
import { AppError, type Remedy } from "@forkd/contract";

type HeldBytesOptions = {
  readonly maxBytes: number;
  /** of the error */
  readonly which: string;
  readonly message: (inUse: number, limit: number) => string;
  readonly remedy: Remedy;
};

export class ByteBudget {
  readonly #options: HeldBytesOptions;
  #bytes = 0;

  constructor(options: HeldBytesOptions) {
    this.#options = options;
  }

  /**
   * Counts bytes until the exchange is over. The returned function throws `capacity_exhausted` beyond the
   * limit.
   */
  during(outgoing: ServerResponse): (bytes: number) => void {
    let held = 0;
    outgoing.once("close", () => (this.#bytes -= held));
    return (bytes) => {
      const { maxBytes, which, message, remedy } = this.#options;
      if (this.#bytes + bytes > maxBytes) {
        throw new AppError("capacity_exhausted", message(this.#bytes, maxBytes), {
          details: { which, asked: bytes, in_use: this.#bytes, limit: maxBytes },
          remedy,
        });
      }
      if (outgoing.closed) return;
      held += bytes;
      this.#bytes += bytes;
    };
  }
}
