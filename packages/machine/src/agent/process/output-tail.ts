/** The last bytes of a stream, for messages about the exit of a process. */
const keptBytes = 4096;

export class OutputTail {
  #kept: Buffer = Buffer.alloc(0);

  push(bytes: Buffer): void {
    this.#kept =
      bytes.length >= keptBytes
        ? Buffer.from(bytes.subarray(-keptBytes))
        : Buffer.concat([this.#kept.subarray(bytes.length - keptBytes), bytes]);
  }

  text(): string {
    return this.#kept.toString();
  }

  lines(): string[] {
    return this.text()
      .split("\n")
      .filter((line) => line.trim() !== "");
  }
}
