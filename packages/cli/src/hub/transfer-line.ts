/** The line of progress of a push or a pull. */
import type { TransferProgress } from "@forkd/sdk";
import { TransferRate } from "../terminal/transfer.ts";

export class TransferLine {
  #step = "";
  #rate = new TransferRate();

  /** `fetching …: 12 MiB of 80 MiB, 4 MiB/s, 17s left` */
  text({ step, message, doneBytes = 0, totalBytes }: TransferProgress): string {
    if (step !== this.#step) this.#rate = new TransferRate();
    this.#step = step;
    return doneBytes === 0 ? message : `${message}: ${this.#rate.words(doneBytes, totalBytes)}`;
  }
}
