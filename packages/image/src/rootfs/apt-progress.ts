/** What mmdebstrap, apt and dpkg print → steps and counts (pure). */
import { offeredLine } from "./offer-archives.ts";

type Progress = { step: string; message: string };

const units: Readonly<Record<string, number>> = { B: 1, kB: 1e3, MB: 1e6, GB: 1e9 };

export class AptProgress {
  #step = "prepare";
  #fetched = 0;
  #fetchedBytes = 0;
  #cached = 0;
  #unpacked = 0;
  #setUp = 0;

  /** The progress after a line, or undefined if the line changes nothing. */
  read(line: string): Progress | undefined {
    const message = /^I: (.*)$/.exec(line)?.[1];
    if (message !== undefined) return this.#begin(message);
    const offered = offeredLine.exec(line)?.[1];
    if (offered !== undefined) this.#cached = Number(offered);
    const fetched = /^Get:\d+ .* \[([\d.]+) (B|kB|MB|GB)\]$/.exec(line);
    if (fetched) {
      this.#fetched++;
      this.#fetchedBytes += Number(fetched[1]) * (units[fetched[2] ?? "B"] ?? 1);
    } else if (line.startsWith("Unpacking ")) this.#unpacked++;
    else if (line.startsWith("Setting up ")) this.#setUp++;
    else return undefined;
    return { step: this.#step, message: this.#counts() };
  }

  /** A line of mmdebstrap itself begins a step, or says more about it. */
  #begin(message: string): Progress {
    const before = this.#step;
    if (message.includes("apt-get update")) this.#step = "update";
    else if (message.includes("download")) this.#step = "download";
    else if (message.includes("extracting")) this.#step = "unpack";
    else if (message.includes("installing")) this.#step = "install";
    else if (message.includes("clean")) this.#step = "trim";
    if (this.#step !== before) {
      this.#fetched = 0;
      this.#fetchedBytes = 0;
    }
    return { step: this.#step, message };
  }

  #counts(): string {
    const megabytes = `${(this.#fetchedBytes / 1e6).toFixed(1)} MB`;
    if (this.#step === "update") return `read ${this.#fetched} parts of the package index (${megabytes})`;
    const cached = this.#cached > 0 ? `, ${this.#cached} in the cache` : "";
    if (this.#unpacked + this.#setUp === 0)
      return `downloaded ${this.#fetched} packages (${megabytes}${cached})`;
    return `unpacked ${this.#unpacked}, set up ${this.#setUp} packages (downloaded ${megabytes}${cached})`;
  }
}
