/**
 * What a machine did, bounded: the last entries are kept, and a guest that repeats itself or floods is summed up. At most one
 * denial of a destination and some denials in all are reported per second.
 */
import type { LogEntry } from "../types.ts";

const kept = 1000;
const perSecond = { denials: 50, others: 200 };

export class MachineLog {
  readonly #entries: LogEntry[] = [];
  readonly #onEntry: (entry: LogEntry) => void;
  readonly #nowMs: () => number;
  /** oldest entry once the ring is full */
  #start = 0;
  #window = { startMs: Number.NEGATIVE_INFINITY, denials: 0, others: 0, seen: new Set<string>() };
  #suppressed = { denials: 0, others: 0 };

  constructor(onEntry: (entry: LogEntry) => void, nowMs: () => number = () => performance.now()) {
    this.#onEntry = onEntry;
    this.#nowMs = nowMs;
  }

  add(entry: Omit<LogEntry, "time">): void {
    const kind = entry.event === "denied" ? "denials" : "others";
    const window = this.#currentWindow();
    const key = `${entry.protocol} ${entry.name ?? ""} ${entry.address ?? ""} ${entry.port ?? ""}`;
    if (window[kind] >= perSecond[kind] || (kind === "denials" && window.seen.has(key))) {
      this.#suppressed[kind]++;
      return;
    }
    window[kind]++;
    if (kind === "denials") window.seen.add(key);
    const suppressed = this.#suppressed[kind];
    this.#suppressed[kind] = 0;
    this.#keep({ time: Date.now(), ...entry, ...(suppressed > 0 && { suppressed }) });
  }

  /** Oldest first. */
  entries(): LogEntry[] {
    return [...this.#entries.slice(this.#start), ...this.#entries.slice(0, this.#start)];
  }

  #keep(entry: LogEntry): void {
    if (this.#entries.length < kept) this.#entries.push(entry);
    else {
      this.#entries[this.#start] = entry;
      this.#start = (this.#start + 1) % kept;
    }
    this.#onEntry(entry);
  }

  #currentWindow(): { denials: number; others: number; seen: Set<string> } {
    const now = this.#nowMs();
    if (now - this.#window.startMs >= 1000)
      this.#window = { startMs: now, denials: 0, others: 0, seen: new Set() };
    return this.#window;
  }
}
