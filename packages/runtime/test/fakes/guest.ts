/** The agent's side of the protocol (docs/spec/agent-protocol.md), as far as making a child needs it. */
import type { Socket } from "node:net";

const type = {
  hello: 0x01,
  ping: 0x02,
  start: 0x10,
  attach: 0x16,
  detach: 0x17,
  list: 0x19,
  afterFork: 0x20,
  sync: 0x21,
  clock: 0x23,
  network: 0x24,
  helloOk: 0x81,
  ok: 0x82,
  error: 0x83,
  clockOk: 0x85,
  forked: 0x86,
  started: 0x90,
  output: 0x91,
  exit: 0x94,
  listing: 0x95,
} as const;

const headerBytes = 16;
const enoent = 2;
const eio = 5;
const detachedFlag = 32;
const esrch = 3;
const noFields = new Map<number, Buffer>();

export type GuestScript = {
  /** reads and answers nothing */
  silent?: boolean;
  /** answers HELLO and nothing after it */
  silentAfterHello?: boolean;
  /** answers AFTER_FORK with this error */
  refuseAfterFork?: string;
  /** exit code of everything that is started */
  exitCode?: number;
  /** what is started runs until exitAll() */
  keepsRunning?: boolean;
  /** what everything that is started writes, at most one frame */
  stdout?: Buffer;
  /** answers START with this error: there is no such program */
  refuseStart?: string;
  /** what one start does; undefined: as the rest of the script says */
  answer?: (start: FakeStart) => { stdout?: string; exitCode?: number; refuse?: string } | undefined;
  /** what runs in it, with the output that it keeps */
  processes?: readonly FakeProcess[];
};

/** What is started: a program, or an operation on a file. */
export type FakeStart = { argv: readonly string[]; path: string };

export type FakeProcess = {
  id: number;
  label: string;
  stdout: string;
  /** bytes of stdout that are no longer kept */
  dropped?: number;
  exitCode?: number;
};

export type Identity = { entropy: string; hostname: string; machineId: string };

function u32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
}

function u64(value: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(value));
  return bytes;
}

function field(key: number, value: Uint8Array): Buffer {
  return Buffer.concat([Buffer.from([key]), u32(value.length), value]);
}

function fieldsOf(payload: Buffer): Map<number, Buffer> {
  const fields = new Map<number, Buffer>();
  for (let at = 0; at < payload.length;) {
    const end = at + 5 + payload.readUInt32LE(at + 1);
    fields.set(payload.readUInt8(at), payload.subarray(at + 5, end));
    at = end;
  }
  return fields;
}

function argvOf(payload: Buffer): string[] {
  const found: string[] = [];
  for (let at = 0; at < payload.length;) {
    const end = at + 5 + payload.readUInt32LE(at + 1);
    if (payload.readUInt8(at) === 2) found.push(payload.subarray(at + 5, end).toString());
    at = end;
  }
  return found;
}

export class FakeGuest {
  readonly socket: Socket;
  /** types of the frames that came, by name */
  readonly heard: string[] = [];
  /** from the last AFTER_FORK */
  identity: Identity | undefined;
  /** called in place of an answer to CLOCK, or refuses it */
  onClock: (() => void) | "refuse" | undefined;
  readonly script: GuestScript;
  readonly #running = new Set<number>();
  /** ids of what was started detached */
  readonly #detached = new Set<number>();
  #buffer = Buffer.alloc(0);

  constructor(socket: Socket, script: GuestScript) {
    this.socket = socket;
    this.script = script;
    // The host drops its end when a child is given up.
    socket.on("error", () => undefined);
  }

  /** Begins to read: the guest's first instruction. */
  run(): void {
    this.socket.on("data", (chunk: Buffer) => {
      this.#buffer = Buffer.concat([this.#buffer, chunk]);
      while (this.#buffer.length >= headerBytes) {
        const end = headerBytes + this.#buffer.readUInt32LE(8);
        if (this.#buffer.length < end) return;
        const frame = this.#buffer.subarray(0, end);
        this.#buffer = this.#buffer.subarray(end);
        this.#hear(frame.readUInt8(3), frame.readUInt32LE(4), frame.subarray(headerBytes));
      }
    });
  }

  send(kind: number, id: number, ...parts: Buffer[]): void {
    const payload = Buffer.concat(parts);
    const header = Buffer.from([0xf0, 0x4b, 1, kind, ...u32(id), ...u32(payload.length), 0, 0, 0, 0]);
    const check = header.readUInt32LE(0) ^ header.readUInt32LE(4) ^ header.readUInt32LE(8) ^ 0x464b4431;
    header.writeUInt32LE(check >>> 0, 12);
    this.socket.write(Buffer.concat([header, payload]));
  }

  #hear(kind: number, id: number, payload: Buffer): void {
    this.heard.push(Object.entries(type).find(([, value]) => value === kind)?.[0] ?? `type ${kind}`);
    if (this.script.silent || (this.script.silentAfterHello && kind !== type.hello)) return;
    const hasFields = kind === type.hello || kind === type.afterFork || kind === type.start;
    const fields = hasFields ? fieldsOf(payload) : noFields;
    const value = (key: number): Buffer => fields.get(key) ?? Buffer.alloc(0);
    if (kind === type.hello) {
      const facts = [field(2, Buffer.from("fake 1")), field(3, Buffer.alloc(8)), field(4, u32(0))];
      this.send(type.helloOk, 0, field(1, value(1)), ...facts);
    } else if (kind === type.afterFork) {
      this.identity = {
        entropy: value(1).toString("hex"),
        hostname: value(3).toString(),
        machineId: value(4).toString(),
      };
      const refusal = this.script.refuseAfterFork;
      if (refusal === undefined) this.send(type.forked, id, field(1, u32(0)), field(2, Buffer.from([0])));
      else this.send(type.error, id, field(1, u32(eio)), field(2, Buffer.from(refusal)));
    } else if (kind === type.clock && this.onClock === "refuse") {
      this.send(type.error, id, field(1, u32(eio)), field(2, Buffer.from("no")));
    } else if (kind === type.clock && typeof this.onClock === "function") {
      this.onClock();
    } else if (kind === type.clock) {
      this.send(type.clockOk, id, field(1, Buffer.alloc(8)));
    } else if (kind === type.ping || kind === type.sync || kind === type.network) {
      this.send(type.ok, id);
    } else if (kind === type.list) {
      for (const process of this.script.processes ?? []) this.#list(id, process);
      this.send(type.ok, id);
    } else if (kind === type.attach) {
      this.#attach(id);
    } else if (kind === type.start) {
      const own = this.script.answer?.({ argv: argvOf(payload), path: value(11).toString() });
      const refuseStart = own?.refuse ?? this.script.refuseStart;
      if (refuseStart !== undefined)
        return this.send(type.error, id, field(1, u32(enoent)), field(2, Buffer.from(refuseStart)));
      this.send(type.started, id, field(1, u32(7)));
      const flags = fields.get(7)?.readUInt32LE() ?? 0;
      if ((flags & detachedFlag) !== 0) this.#detached.add(id);
      else if (this.script.keepsRunning) this.#running.add(id);
      else this.#end(id, own);
    }
  }

  exitAll(): void {
    for (const id of this.#running) this.#end(id);
    this.#running.clear();
  }

  #list(id: number, { id: processId, label, stdout, dropped = 0, exitCode }: FakeProcess): void {
    this.send(
      type.listing,
      id,
      field(1, u32(processId)),
      field(2, u32(40 + processId)),
      field(3, Buffer.from([exitCode === undefined ? 0 : 1])),
      field(4, Buffer.from(label)),
      field(5, Buffer.from("/usr/bin/program")),
      field(6, Buffer.from([0])),
      field(7, Buffer.concat([u64(dropped + stdout.length), u64(0), u64(0)])),
      ...(exitCode === undefined ? [] : [field(8, Buffer.from([exitCode]))]),
    );
  }

  #attach(id: number): void {
    if (this.#detached.has(id)) {
      this.send(type.ok, id);
      return this.#end(id);
    }
    const process = this.script.processes?.find((each) => each.id === id);
    if (!process) return this.send(type.error, id, field(1, u32(esrch)), field(2, Buffer.from("none")));
    const { stdout, dropped = 0, exitCode } = process;
    this.send(type.ok, id);
    if (stdout !== "") this.send(type.output, id, Buffer.from([1]), u64(dropped), Buffer.from(stdout));
    if (exitCode !== undefined) this.#exit(id, exitCode);
  }

  /** What was started writes and exits. */
  #end(id: number, own?: { stdout?: string; exitCode?: number }): void {
    const stdout = own?.stdout === undefined ? this.script.stdout : Buffer.from(own.stdout);
    const exitCode = own?.exitCode ?? this.script.exitCode ?? 0;
    if (stdout) this.send(type.output, id, Buffer.from([1]), Buffer.alloc(8), stdout);
    this.#exit(id, exitCode);
  }

  #exit(id: number, exitCode: number): void {
    this.send(type.exit, id, Buffer.from([0, exitCode, 0, 0]), Buffer.alloc(24));
  }
}
