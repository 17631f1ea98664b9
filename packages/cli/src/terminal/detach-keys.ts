/** Finds Ctrl-P Ctrl-Q in what the user types: it detaches from a command that gets all other keys. */

const ctrlP = 0x10;
const ctrlQ = 0x11;

export class DetachKeys {
  readonly #detach: () => void;
  /** Ctrl-P was typed and is not passed on yet. */
  #isPending = false;

  constructor(detach: () => void) {
    this.#detach = detach;
  }

  /** The bytes for the command. A Ctrl-P is kept back until the next key. */
  pass(typed: Uint8Array): Uint8Array {
    const passed: number[] = [];
    for (const key of typed) {
      if (this.#isPending && key === ctrlQ) {
        this.#isPending = false;
        this.#detach();
        break;
      }
      if (this.#isPending) passed.push(ctrlP);
      this.#isPending = key === ctrlP;
      if (!this.#isPending) passed.push(key);
    }
    return Uint8Array.from(passed);
  }
}
