/** The answer to an execution: one JSON object per line, as things happen. */
import type { ServerResponse } from "node:http";
import { StringDecoder } from "node:string_decoder";
import { drained } from "@forkd/base";
import { asciiJson } from "./ascii-json.ts";

/** How long output waits for more, so that a print does not become several messages */
const joinMs = 15;
const maxJoinedChars = 64 * 1024;

type Stream = "stdout" | "stderr";

export class LineWriter implements Disposable {
  readonly #outgoing: ServerResponse;
  readonly #silence: NodeJS.Timeout;
  readonly #decoders = { stdout: new StringDecoder("utf8"), stderr: new StringDecoder("utf8") };
  #joined: { stream: Stream; text: string; at: number } | undefined;
  #flush: NodeJS.Timeout | undefined;

  constructor(outgoing: ServerResponse, keepaliveMs: number) {
    this.#outgoing = outgoing;
    this.#silence = setInterval(() => {
      if (!outgoing.writableNeedDrain) this.#write({ type: "keepalive" });
    }, keepaliveMs);
  }

  /** Bytes of a character may be in several pieces. Bytes that are not UTF-8 become U+FFFD. */
  async output(stream: Stream, bytes: Buffer): Promise<void> {
    await this.#text(stream, this.#decoders[stream].write(bytes));
  }

  /** Writes a line after the output before it. */
  async line(line: object): Promise<void> {
    this.#writeJoined();
    this.#write(line);
    await drained(this.#outgoing);
  }

  /** Writes what is left of the output. */
  async finish(): Promise<void> {
    for (const stream of ["stdout", "stderr"] as const)
      await this.#text(stream, this.#decoders[stream].end());
    this.#writeJoined();
  }

  async #text(stream: Stream, text: string): Promise<void> {
    if (text === "") return;
    if (this.#joined && (this.#joined.stream !== stream || this.#joined.text.length > maxJoinedChars))
      this.#writeJoined();
    if (this.#joined) this.#joined.text += text;
    else {
      this.#joined = { stream, text, at: Date.now() };
      this.#flush = setTimeout(() => this.#writeJoined(), joinMs);
    }
    await drained(this.#outgoing);
  }

  #writeJoined(): void {
    clearTimeout(this.#flush);
    const joined = this.#joined;
    this.#joined = undefined;
    // In ns, as the clients document it.
    if (joined) this.#write({ type: joined.stream, text: joined.text, timestamp: joined.at * 1_000_000 });
  }

  #write(line: object): void {
    this.#silence.refresh();
    if (!this.#outgoing.destroyed) this.#outgoing.write(`${asciiJson(line)}\n`);
  }

  [Symbol.dispose](): void {
    clearInterval(this.#silence);
    clearTimeout(this.#flush);
  }
}
