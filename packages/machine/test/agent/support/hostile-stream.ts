/** Streams of a fake guest that keep to their credit, and messages of a fake kernel. */
import { frameType } from "../../../src/agent/wire/frames.ts";
import { KernelClient } from "../../../src/agent/kernel/client.ts";
import { defaultWindowBytes } from "../../../src/agent/process/process.ts";
import { u32, u8, type FakeGuest } from "./fake-guest.ts";

const pieceBytes = 32 * 1024;

/** Sends bytes on one stream, as fast as the host grants credit. */
export class GuestStream {
  readonly #guest: FakeGuest;
  readonly #id: number;
  readonly #stream: number;
  #offset = 0;
  #credit = defaultWindowBytes;

  constructor(guest: FakeGuest, id: number, stream: number) {
    this.#guest = guest;
    this.#id = id;
    this.#stream = stream;
  }

  /** Bytes that were sent so far. */
  get sent(): number {
    return this.#offset;
  }

  async send(bytes: Buffer, size = pieceBytes): Promise<void> {
    for (let at = 0; at < bytes.length; at += size) {
      const piece = bytes.subarray(at, at + size);
      while (this.#credit < piece.length) await this.#wait();
      this.#guest.output(this.#id, this.#stream, this.#offset, piece);
      this.#offset += piece.length;
      this.#credit -= piece.length;
    }
  }

  async #wait(): Promise<void> {
    const { payload } = await this.#guest.take(frameType.credit);
    if (payload.readUInt8(0) === this.#stream) this.#credit += payload.readUInt32LE(1);
  }
}

export function kernelMessage(type: string, ...parts: Buffer[]): Buffer {
  const payload = Buffer.concat(parts);
  return Buffer.concat([Buffer.from(type), u32(payload.length), payload]);
}

export function kernelValue(
  id: number,
  status: number,
  text: Buffer | string,
  json: Buffer | string,
): Buffer {
  const [first, second] = [Buffer.from(text), Buffer.from(json)];
  return kernelMessage("V", u32(id), u8(status), u32(first.length), first, u32(second.length), second);
}

/** A kernel that is ready and answers what the test sends on its control stream. */
export class FakeKernel {
  readonly client: KernelClient;
  readonly control: GuestStream;
  readonly #guest: FakeGuest;

  static async start(guest: FakeGuest): Promise<FakeKernel> {
    const starting = KernelClient.start(guest.client, { language: "python", argv: ["python3"] });
    const control = new GuestStream(guest, await guest.acceptStart(), 3);
    await control.send(kernelMessage("Y", Buffer.from("python 3")));
    return new FakeKernel(guest, await starting, control);
  }

  private constructor(guest: FakeGuest, client: KernelClient, control: GuestStream) {
    this.#guest = guest;
    this.client = client;
    this.control = control;
  }

  /** The id of the next message from the host. */
  async asked(): Promise<number> {
    const { payload } = await this.#guest.take(frameType.input);
    // The stream is one byte, the type of the message another, and its length four.
    return payload.readUInt32LE(6);
  }
}
