/** Writes results to stdout and everything else to stderr. */
import type { Writable } from "node:stream";
import { styleText } from "node:util";
import { cleanJson, cleanLines, renderTable, type Column } from "./table.ts";

export type OutputOptions = {
  readonly json: boolean;
  readonly quiet: boolean;
  readonly color: boolean;
  /** stdout is a terminal; default: no */
  readonly isTerminal?: boolean;
  readonly stdout: Writable;
  readonly stderr: Writable;
};

type Style = "red" | "green" | "yellow" | "dim" | "bold";

export class Output {
  readonly json: boolean;
  readonly quiet: boolean;
  readonly isTerminal: boolean;
  /** Lines of progress that may be visible where the next line is written. */
  readonly #progress = new Set<{ hide(): void }>();
  readonly #options: OutputOptions;

  constructor(options: OutputOptions) {
    this.json = options.json;
    this.quiet = options.quiet;
    this.isTerminal = options.isTerminal ?? false;
    this.#options = options;
  }

  /** Hides `progress` before every write. */
  hideBeforeWriting(progress: { hide(): void }): void {
    this.#progress.add(progress);
  }

  #write(stream: "stdout" | "stderr", data: string | Uint8Array): boolean {
    for (const progress of this.#progress) progress.hide();
    return this.#options[stream].write(data);
  }

  /** A line of the result. */
  line(text: string): void {
    this.#write("stdout", `${text}\n`);
  }

  /** One JSON document, indented. */
  document(value: unknown): void {
    this.line(cleanJson(JSON.stringify(value, null, 2)));
  }

  /** One event of a stream, on one line. Resolves when the stream accepts more. */
  async event(value: unknown): Promise<void> {
    await this.bytes(`${cleanJson(JSON.stringify(value))}\n`);
  }

  /** The document with --json, otherwise the table. */
  rows<Row>(columns: readonly Column<Row>[], rows: readonly Row[]): void {
    if (this.json) this.document(rows);
    else this.#write("stdout", renderTable(columns, rows));
  }

  /** Raw output. Resolves when the stream accepts more. */
  async bytes(data: string | Uint8Array, stream: "stdout" | "stderr" = "stdout"): Promise<void> {
    const target = this.#options[stream];
    if (this.#write(stream, data) || target.destroyed) return;
    // A stream whose reader has closed it emits "error" and "close", and never "drain".
    await new Promise<void>((resolve) => {
      const done = () => {
        for (const event of ["drain", "error", "close"]) target.off(event, done);
        resolve();
      };
      for (const event of ["drain", "error", "close"]) target.once(event, done);
    });
  }

  /** A note for the user, on stderr; nothing with --quiet. */
  note(text: string): void {
    if (!this.quiet) this.report(text);
  }

  /** A line on stderr, also with --quiet. */
  report(text: string): void {
    this.#write("stderr", `${cleanLines(text)}\n`);
  }

  /** Only `color` decides: Node must not look at the streams and the environment again. */
  style(style: Style, text: string): string {
    return this.#options.color ? styleText(style, text, { validateStream: false }) : text;
  }
}
