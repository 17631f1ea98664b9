/** Output of several commands on one terminal: whole lines, each with the name of its sandbox before it. */
import { ConsoleText } from "../terminal/console-text.ts";

/** A longer line is split, so that a guest without line ends cannot fill the memory. */
const longestLine = 16 * 1024;

export class PrefixedLines {
  readonly #prefix: string;
  readonly #write: (text: string) => Promise<void>;
  readonly #text = new ConsoleText();
  #line = "";

  constructor(prefix: string, write: (text: string) => Promise<void>) {
    this.#prefix = prefix;
    this.#write = write;
  }

  /** Control characters are removed: the lines of a guest must not look like those of another. */
  async push(bytes: Uint8Array): Promise<void> {
    await this.#add(this.#text.push(bytes));
  }

  /** Writes a last line that has no line end. */
  async end(): Promise<void> {
    await this.#add(this.#text.end());
    const rest = this.#line;
    this.#line = "";
    if (rest !== "") await this.#write(`${this.#prefix}${rest}\n`);
  }

  async #add(text: string): Promise<void> {
    const lines = (this.#line + text).split("\n");
    this.#line = lines.pop() ?? "";
    const whole = lines.flatMap(pieces);
    for (; this.#line.length > longestLine; this.#line = this.#line.slice(longestLine))
      whole.push(this.#line.slice(0, longestLine));
    if (whole.length > 0) await this.#write(whole.map((line) => `${this.#prefix}${line}\n`).join(""));
  }
}

function pieces(line: string): string[] {
  const count = Math.max(1, Math.ceil(line.length / longestLine));
  return Array.from({ length: count }, (_, at) => line.slice(at * longestLine, (at + 1) * longestLine));
}
