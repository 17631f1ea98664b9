/**
 * Memory for data of guests that is collected for answers: output, listings, values of evals, lists of
 * commands. A guest decides how much it sends, so there is a limit for each sandbox, for each caller and for
 * all together. Beyond one, output is cut, and a call that collects anything else fails; other calls are not
 * affected.
 */
import { AppError } from "@forkd/contract";

type GuestBytesLimits = {
  /** of each call, not counted: short answers are complete, whatever other calls hold */
  readonly free: number;
  readonly sandbox: number;
  readonly caller: number;
  readonly total: number;
};

const mib = 1024 * 1024;
export const guestBytesLimits: GuestBytesLimits = {
  free: 64 * 1024,
  sandbox: 32 * mib,
  caller: 48 * mib,
  total: 96 * mib,
};

/** When a refused call may be repeated: most answers have been sent by then. */
const retryAfterSecs = 1;

type Limit = Exclude<keyof GuestBytesLimits, "free">;
const which = { sandbox: "sandbox_guest_bytes", caller: "key_guest_bytes", total: "guest_bytes" } as const;

/** Bytes of one call. Disposing it releases them. */
export type HeldBytes = Disposable & {
  /** Throws `capacity_exhausted` beyond a limit. */
  readonly hold: (bytes: number) => void;
  /** Holds as many of the bytes as fit, and returns how many. */
  readonly take: (bytes: number) => number;
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
    return this.#sum("total", "");
  }

  /** For one call into the sandbox `id`. */
  open(id: string, caller: string | undefined): HeldBytes {
    const keys: readonly (readonly [Limit, string])[] = [
      ["sandbox", id],
      // The daemon's own calls have no caller.
      ...(caller === undefined ? [] : [["caller", caller] as const]),
      ["total", ""],
    ];
    let { free } = this.#limits;
    let held = 0;
    let isReleased = false;
    const add = (bytes: number) => {
      held += bytes;
      for (const [limit, key] of keys) this.#add(limit, key, bytes);
    };
    return {
      hold: (bytes) => {
        // Data that arrives after the call gave up must not be counted, because nothing releases it.
        if (isReleased) throw new AppError("cancelled", "Cannot collect this answer: its call has ended");
        const counted = Math.max(0, bytes - free);
        for (const [limit, key] of keys) this.#check(limit, key, counted);
        free -= bytes - counted;
        add(counted);
      },
      take: (bytes) => {
        if (isReleased) return 0;
        const room = keys.map(([limit, key]) => this.#limits[limit] - this.#sum(limit, key));
        const uncounted = Math.min(bytes, free);
        const counted = Math.min(bytes - uncounted, ...room);
        free -= uncounted;
        add(counted);
        return uncounted + counted;
      },
      [Symbol.dispose]: () => {
        isReleased = true;
        add(-held);
      },
    };
  }

  #check(limit: Limit, key: string, asked: number): void {
    const inUse = this.#sum(limit, key);
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

  #sum(limit: Limit, key: string): number {
    return this.#inUse[limit].get(key) ?? 0;
  }

  #add(limit: Limit, key: string, bytes: number): void {
    const sums = this.#inUse[limit];
    const sum = this.#sum(limit, key) + bytes;
    if (sum > 0) sums.set(key, sum);
    else sums.delete(key);
  }
}
