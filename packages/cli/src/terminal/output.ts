/** Writes results to stdout and everything else to stderr. */
import type { Writable } from "node:stream";
import { styleText } from "node:util";
import { shortId } from "./short-id.ts";
import { clean, cleanJson, cleanLines, renderTable, type Column } from "./table.ts";
import { terminalSize } from "./terminal.ts";

export type OutputOptions = {
  readonly json: boolean;
  readonly quiet: boolean;
  readonly color: boolean;
  /** stdout is a terminal; default: no */
  readonly isTerminal?: boolean;
  /** Print ids and tables in full on a terminal too. */
  readonly noTrunc?: boolean;
  readonly stdout: Writable;
  readonly stderr: Writable;
};

type TableOptions = {
  /** All columns, however wide they are. */
  readonly wide?: boolean | undefined;
};

type Listing<Row> = TableOptions & {
  readonly columns: readonly Column<Row>[];
  /** What --quiet prints. */
  readonly name: (row: Row) => string;
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
  rows<Row>(columns: readonly Column<Row>[], rows: readonly Row[], options?: TableOptions): void {
    if (this.json) this.document(rows);
    else this.#write("stdout", this.table(columns, rows, options));
  }

  /** The document with --json, one name per line with --quiet, otherwise the table. */
  list<Row>(rows: readonly Row[], how: Listing<Row>): void {
    if (this.json || !this.quiet) return this.rows(how.columns, rows, how);
    for (const row of rows) this.line(clean(how.name(row)));
  }

  /** The text of a table: on a terminal short ids and not wider than it, otherwise complete. */
  table<Row>(columns: readonly Column<Row>[], rows: readonly Row[], options: TableOptions = {}): string {
    if (!this.#isShort) return renderTable(columns, rows);
    const width = options.wide ? undefined : terminalSize().cols - 1;
    return renderTable(columns, rows, { width, shortIds: true });
  }

  /** The id of a sandbox outside a table. */
  id(id: string): string {
    return this.#isShort ? shortId(id) : id;
  }

  /** Where the width of a text matters; undefined if it does not. */
  get width(): number | undefined {
    return this.#isShort ? terminalSize().cols - 1 : undefined;
  }

  get #isShort(): boolean {
    return this.isTerminal && !this.#options.noTrunc;
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
