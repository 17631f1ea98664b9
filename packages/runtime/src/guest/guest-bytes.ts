/**
 * Memory for data of guests that is collected for answers: listings, values of evals, lists of commands. A
 * guest decides how much it sends, so there is a limit for each sandbox, for each caller and for all together.
 * The call that exceeds one fails; others are not affected.
 */
import { AppError } from "@forkd/contract";

type GuestBytesLimits = {
  readonly sandbox: number;
  readonly caller: number;
  readonly total: number;
};

const mib = 1024 * 1024;
export const guestBytesLimits: GuestBytesLimits = { sandbox: 64 * mib, caller: 96 * mib, total: 128 * mib };

/** When a refused call may be repeated: most answers have been sent by then. */
const retryAfterSecs = 1;

type Limit = keyof GuestBytesLimits;
const which = { sandbox: "sandbox_guest_bytes", caller: "key_guest_bytes", total: "guest_bytes" } as const;

/** Bytes of one call. Disposing it releases them. */
type HeldBytes = Disposable & {
  /** Throws `capacity_exhausted` beyond a limit. */
  hold(bytes: number): void;
};

export class GuestBytes {
  readonly #limits: GuestBytesLimits;
  /** by sandbox, by caller, and one entry for all */
  readonly #inUse: Readonly<Record<Limit, Map<string, number>>> = {
    sandbox: new Map(),
    caller: new Map(),
    total: new Map(),
  };

  constructor(limits: GuestBytesLimits = guestBytesLimits) {
    this.#limits = limits;
  }

  /** Bytes of all calls. */
  get total(): number {
    return this.#inUse.total.get("") ?? 0;
  }

  /** For one call into the sandbox `id`. */
  open(id: string, caller: string | undefined): HeldBytes {
    const keys: readonly (readonly [Limit, string])[] = [
      ["sandbox", id],
      // The daemon's own calls have no caller.
      ...(caller === undefined ? [] : [["caller", caller] as const]),
      ["total", ""],
    ];
    let held = 0;
    let isReleased = false;
    return {
      hold: (bytes) => {
        // Data that arrives after the call gave up must not be counted, because nothing releases it.
        if (isReleased) throw new AppError("cancelled", "Cannot collect this answer: its call has ended");
        for (const [limit, key] of keys) this.#check(limit, key, bytes);
        held += bytes;
        for (const [limit, key] of keys) this.#add(limit, key, bytes);
      },
      [Symbol.dispose]: () => {
        isReleased = true;
        for (const [limit, key] of keys) this.#add(limit, key, -held);
        held = 0;
      },
    };
  }

  #check(limit: Limit, key: string, asked: number): void {
    const inUse = this.#inUse[limit].get(key) ?? 0;
    const max = this.#limits[limit];
    if (inUse + asked <= max) return;
    const whose = { sandbox: `sandbox ${key}`, caller: `the key "${key}"`, total: "all sandboxes" }[limit];
    throw new AppError(
      "capacity_exhausted",
      `Cannot collect this answer: data from guests for ${whose} would exceed ${max} bytes`,
      {
        details: { which: which[limit], asked, in_use: inUse, limit: max, retry_after_secs: retryAfterSecs },
        remedy: { action: "retry_later" },
      },
    );
  }

  #add(limit: Limit, key: string, bytes: number): void {
    const sums = this.#inUse[limit];
    const sum = (sums.get(key) ?? 0) + bytes;
    if (sum > 0) sums.set(key, sum);
    else sums.delete(key);
  }
}
