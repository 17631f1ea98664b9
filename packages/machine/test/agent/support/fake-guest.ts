/** A guest on a real socket that sends the bytes that a test chooses. */
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { connect, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { withDeadline } from "@forkd/base";
import { AgentClient, type AgentClientOptions } from "../../../src/agent/client.ts";
import {
  decodeFields,
  encodeField,
  encodeFrame,
  FrameParser,
  frameType,
  type Frame,
} from "../../../src/agent/wire/frames.ts";

/** An event that takes longer is considered missing. */
const deadlineMs = 120_000;

export const u8 = (value: number): Buffer => Buffer.from([value]);
export function u32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
}
export function u64(value: number | bigint): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(value));
  return bytes;
}

/** Two ends of a unix socket. */
export async function socketPair(): Promise<[Socket, Socket]> {
  const directory = await mkdtemp(join(tmpdir(), "agent-test-"));
  const server = createServer();
  server.listen(join(directory, "socket"));
  await once(server, "listening");
  const accepted = once(server, "connection");
  const near = connect(join(directory, "socket"));
  const [far] = (await accepted) as [Socket];
  server.close();
  await rm(directory, { recursive: true });
  return [near, far];
}

export class FakeGuest implements AsyncDisposable {
  readonly socket: Socket;
  readonly client: AgentClient;
  readonly received: Frame[] = [];
  #arrived: (() => void)[] = [];
  #isOver = false;

  static async open(options: Partial<AgentClientOptions> = {}): Promise<FakeGuest> {
    const [near, far] = await socketPair();
    return new FakeGuest(far, AgentClient.open(near, { atBoundary: true, ...options }));
  }

  /** Opens a guest that has answered HELLO. */
  static async ready(options: Partial<AgentClientOptions> = {}): Promise<FakeGuest> {
    const guest = await FakeGuest.open(options);
    await guest.answerHello();
    await guest.client.ready;
    return guest;
  }

  private constructor(socket: Socket, client: AgentClient) {
    this.socket = socket;
    this.client = client;
    const parser = new FrameParser();
    socket.on("data", (chunk: Buffer) => {
      this.received.push(...parser.push(chunk));
      for (const wake of this.#arrived.splice(0)) wake();
    });
    // In most tests the client closes its end.
    socket.on("error", () => undefined);
    // No frame follows, so that nothing waits for one until its deadline.
    socket.on("close", () => {
      this.#isOver = true;
      for (const wake of this.#arrived.splice(0)) wake();
    });
  }

  /** Waits for the next frame of this type. */
  take(type: number): Promise<Frame> {
    return this.#takeWhere((frame) => frame.type === type, `of type ${type}`);
  }

  /** Waits for the next frame of any type. */
  next(): Promise<Frame> {
    return this.#takeWhere(() => true, "of any type");
  }

  async #takeWhere(matches: (frame: Frame) => boolean, which: string): Promise<Frame> {
    for (;;) {
      const index = this.received.findIndex(matches);
      if (index !== -1) return this.received.splice(index, 1)[0]!;
      if (this.#isOver) throw new Error(`No frame ${which} arrived before the connection ended`);
      const arrived = new Promise<void>((resolve) => this.#arrived.push(resolve));
      await withDeadline(arrived, deadlineMs, () => new Error(`No frame ${which} arrived`));
    }
  }

  /** Waits until the client has closed the connection; returns the reason. */
  dropped(): Promise<Error | undefined> {
    return withDeadline(this.client.closed, deadlineMs, () => new Error("The connection was not dropped"));
  }

  send(type: number, id: number, ...parts: Buffer[]): void {
    this.socket.write(encodeFrame(type, id, ...parts));
  }

  async helloOk(): Promise<Buffer> {
    const hello = await this.take(frameType.hello);
    const nonce = decodeFields(hello.payload).get(1)![0]!;
    return encodeFrame(
      frameType.helloOk,
      0,
      encodeField(1, nonce),
      encodeField(2, Buffer.from("fake 1")),
      encodeField(3, u64(12)),
      encodeField(4, u32(0)),
    );
  }

  async answerHello(): Promise<void> {
    this.socket.write(await this.helloOk());
  }

  /** Answers the next START; returns its id. */
  async acceptStart(pid = 7): Promise<number> {
    const { id } = await this.take(frameType.start);
    this.send(frameType.started, id, encodeField(1, u32(pid)));
    return id;
  }

  output(id: number, stream: number, offset: number, bytes: Buffer | string): void {
    this.send(frameType.output, id, u8(stream), u64(offset), Buffer.from(bytes));
  }

  exit(id: number, code = 0): void {
    this.send(frameType.exit, id, Buffer.from([0, code, 0, 0]), u64(1), u64(2), u64(3));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.client[Symbol.asyncDispose]();
    this.socket.destroy();
  }
}
