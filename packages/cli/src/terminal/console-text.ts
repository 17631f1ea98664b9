/** Output of a guest for a terminal: escape sequences removed, other control characters replaced. */
import { stripVTControlCharacters } from "node:util";
import { cleanLines } from "./table.ts";

/** The beginning of an escape sequence or of a line end, whose rest is in the next chunk. */
// oxlint-disable-next-line no-control-regex
const cutEnd = /(?:\r+|\u001b[[\]()#;?0-9]{0,63})$/;

export class ConsoleText {
  readonly #decoder = new TextDecoder();
  #rest = "";

  /** The text of the next chunk, as far as it is complete. */
  push(chunk: Uint8Array): string {
    const text = this.#rest + this.#decoder.decode(chunk, { stream: true });
    this.#rest = cutEnd.exec(text)?.[0] ?? "";
    return cleaned(text.slice(0, text.length - this.#rest.length));
  }

  /** What push() kept back. */
  end(): string {
    const text = this.#rest + this.#decoder.decode();
    this.#rest = "";
    return cleaned(text);
  }
}

function cleaned(text: string): string {
  return cleanLines(stripVTControlCharacters(text).replaceAll(/\r+\n/g, "\n"));
}
