/** What a build wrote, bounded: a command may write for ever. */

const maxEntries = 20_000;
const maxMessage = 4096;
/** of all messages: the logs of many builds are kept */
const maxChars = 1024 * 1024;
/** as many as E2B sends at once */
const pageEntries = 100;

export type Level = "debug" | "info" | "warn" | "error";
export type LogEntry = {
  readonly timestamp: string;
  readonly message: string;
  readonly level: Level;
  readonly step?: string | undefined;
};

export class BuildLog {
  readonly #entries: LogEntry[] = [];
  #chars = 0;
  #isFull = false;

  add(message: string, { level = "info", step }: { level?: Level; step?: string | undefined } = {}): void {
    // How the build ended is said in every log.
    if (this.#isFull && level !== "error") return;
    this.#isFull = this.#entries.length >= maxEntries || this.#chars >= maxChars;
    const isCut = this.#isFull && level !== "error";
    const text = isCut ? "The log is full: further output is left out" : message.slice(0, maxMessage);
    this.#chars += text.length;
    this.#entries.push({
      timestamp: new Date().toISOString(),
      message: text,
      level: isCut ? "warn" : level,
      ...(step !== undefined && { step }),
    });
  }

  /** Empty past the end, by which clients notice it. */
  from(offset: number): LogEntry[] {
    return this.#entries.slice(offset, offset + pageEntries);
  }
}

/** Output of a command → lines of the log. */
export class LogLines {
  readonly #log: (line: string) => void;
  #rest = "";

  constructor(log: (line: string) => void) {
    this.#log = log;
  }

  push(text: string): void {
    const lines = (this.#rest + text).split("\n");
    this.#rest = lines.pop() ?? "";
    for (const line of lines) this.#log(line);
    if (this.#rest.length > maxMessage) this.end();
  }

  end(): void {
    if (this.#rest !== "") this.#log(this.#rest);
    this.#rest = "";
  }
}
