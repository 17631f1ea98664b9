/** The frames that the host sends (docs/spec/agent-protocol.md). Pure. */
import { encodeField, encodeFrame, frameType, maxPayloadBytes } from "./frames.ts";

export type InputStreamNumber = 0 | 3;
export type OutputStreamNumber = 1 | 2 | 3;
/** One number for each of streams 1, 2 and 3. */
export type PerStream = readonly [number, number, number];

export const processKind = {
  command: 0,
  read: 1,
  write: 2,
  list: 3,
  stat: 4,
  mkdir: 5,
  move: 6,
  remove: 7,
  chmod: 8,
  connect: 9,
  watch: 10,
} as const;
export type ProcessKind = keyof typeof processKind;

export const startFlag = {
  stdin: 1,
  pty: 2,
  control: 4,
  recursive: 8,
  append: 16,
  detached: 32,
  follow: 64,
  exclusive: 128,
  entries: 256,
  inPlace: 512,
} as const;

/** A process to start in the guest; `kind` decides which members are used. */
export interface StartSpec {
  readonly kind?: ProcessKind;
  readonly argv?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  readonly user?: string;
  /** 0 = none */
  readonly timeoutMs?: number;
  readonly stdin?: boolean;
  readonly pty?: { readonly rows: number; readonly cols: number };
  readonly control?: boolean;
  readonly recursive?: boolean;
  readonly append?: boolean;
  readonly detached?: boolean;
  readonly follow?: boolean;
  readonly exclusive?: boolean;
  /** watch: describe changed files */
  readonly entries?: boolean;
  /** write: do not replace the file */
  readonly inPlace?: boolean;
  /** list: levels below the directory */
  readonly depth?: number;
  /** bytes of output that the agent keeps per stream */
  readonly keepBytes?: number;
  readonly path?: string;
  readonly secondPath?: string;
  readonly mode?: number;
  readonly offset?: number;
  readonly limit?: number;
  readonly port?: number;
  readonly label?: string;
}

/** Wall clock, ns since the epoch; a function is called when the frame is encoded. */
export type RealtimeNs = bigint | (() => bigint);

export interface AfterForkSpec {
  /** 32 to 512 bytes */
  readonly entropy: Uint8Array;
  readonly realtimeNs: RealtimeNs;
  readonly hostname?: string;
  /** 32 hex digits */
  readonly machineId?: string;
  /** 36 characters */
  readonly bootId?: string;
  /** absent: as it was saved */
  readonly network?: LinkState;
  /** Refuse if the guest cannot abort its connections, instead of reporting it. */
  readonly requireConnections?: boolean;
  /** Do not look for connections: the snapshot has none. Saves an emulated child some milliseconds. */
  readonly skipConnections?: boolean;
}

/** Whether the guest has a way to other machines. */
type LinkState = "up" | "down";

const u8 = (value: number): Buffer => Buffer.from([value]);
function u16(value: number): Buffer {
  const bytes = Buffer.allocUnsafe(2);
  bytes.writeUInt16LE(value);
  return bytes;
}
function u32(value: number): Buffer {
  const bytes = Buffer.allocUnsafe(4);
  bytes.writeUInt32LE(value);
  return bytes;
}
function u64(value: bigint | number): Buffer {
  const bytes = Buffer.allocUnsafe(8);
  bytes.writeBigUInt64LE(BigInt(value));
  return bytes;
}

export function encodeHello(nonce: Uint8Array): Buffer {
  return encodeFrame(frameType.hello, 0, encodeField(1, nonce));
}

/** Longest timeout that fits in a u32 of milliseconds (49 days); longer ones are reduced to it. */
const maxTimeoutMs = 0xffff_ffff;

/** Throws RangeError if the spec does not fit in one frame. */
export function encodeStart(id: number, spec: StartSpec, creditBytes: number): Buffer {
  const fields: Buffer[] = [];
  const text = (key: number, value: string | undefined): void => {
    if (value !== undefined) fields.push(encodeField(key, Buffer.from(value)));
  };
  const kind = processKind[spec.kind ?? "command"];
  fields.push(encodeField(1, u8(kind)));
  for (const argument of spec.argv ?? []) text(2, argument);
  for (const [name, value] of Object.entries(spec.env ?? {})) text(3, `${name}=${value}`);
  text(4, spec.cwd);
  text(5, spec.user);
  if (spec.timeoutMs) fields.push(encodeField(6, u32(Math.min(Math.ceil(spec.timeoutMs), maxTimeoutMs))));
  fields.push(encodeField(7, u32(startFlags(spec))));
  if (spec.pty) fields.push(encodeField(8, Buffer.concat([u16(spec.pty.rows), u16(spec.pty.cols)])));
  fields.push(encodeField(9, u32(creditBytes)));
  if (spec.keepBytes !== undefined) fields.push(encodeField(10, u32(spec.keepBytes)));
  if (spec.depth !== undefined) fields.push(encodeField(18, u32(spec.depth)));
  text(11, spec.path);
  text(12, spec.secondPath);
  if (spec.mode !== undefined) fields.push(encodeField(13, u32(spec.mode)));
  if (spec.offset !== undefined) fields.push(encodeField(14, u64(spec.offset)));
  if (spec.limit !== undefined) fields.push(encodeField(15, u64(spec.limit)));
  if (spec.port !== undefined) fields.push(encodeField(16, u16(spec.port)));
  text(17, spec.label);
  return encodeFrame(frameType.start, id, ...fields);
}

function startFlags(spec: StartSpec): number {
  let flags = spec.pty ? startFlag.pty : 0;
  for (const name of [
    "stdin",
    "control",
    "recursive",
    "append",
    "detached",
    "follow",
    "exclusive",
    "entries",
    "inPlace",
  ] as const) {
    if (spec[name]) flags |= startFlag[name];
  }
  return flags;
}

/** Maximum input bytes of one frame. */
export const maxInputBytes = maxPayloadBytes - 2;

/** Last byte of an INPUT payload. A truncated payload that was filled with zeros does not have it. */
const inputMark = 1;

export function encodeInput(id: number, stream: InputStreamNumber, bytes: Uint8Array): Buffer {
  return encodeFrame(frameType.input, id, u8(stream), bytes, u8(inputMark));
}

export function encodeInputEof(id: number, stream: InputStreamNumber): Buffer {
  return encodeFrame(frameType.inputEof, id, u8(stream));
}

export function encodeCredit(id: number, stream: OutputStreamNumber, bytes: number): Buffer {
  return encodeFrame(frameType.credit, id, u8(stream), u32(bytes));
}

export function encodeSignal(id: number, signal: number, scope: "group" | "leader"): Buffer {
  return encodeFrame(frameType.signal, id, Buffer.from([signal, scope === "leader" ? 1 : 0]));
}

export function encodeResize(id: number, rows: number, cols: number): Buffer {
  return encodeFrame(frameType.resize, id, u16(rows), u16(cols));
}

export function encodeAttach(id: number, offsets: PerStream, credits: PerStream): Buffer {
  const parts = [0, 1, 2].flatMap((index) => [u64(offsets[index] ?? 0), u32(credits[index] ?? 0)]);
  return encodeFrame(frameType.attach, id, ...parts);
}

function encodeRealtime(realtimeNs: RealtimeNs): Buffer {
  return u64(typeof realtimeNs === "bigint" ? realtimeNs : realtimeNs());
}

export function encodeClock(id: number, realtimeNs: RealtimeNs): Buffer {
  return encodeFrame(frameType.clock, id, encodeField(1, encodeRealtime(realtimeNs)));
}

export function encodeAfterFork(id: number, spec: AfterForkSpec): Buffer {
  const fields = [encodeField(1, spec.entropy), encodeField(2, encodeRealtime(spec.realtimeNs))];
  if (spec.hostname !== undefined) fields.push(encodeField(3, Buffer.from(spec.hostname)));
  if (spec.machineId !== undefined) fields.push(encodeField(4, Buffer.from(spec.machineId)));
  if (spec.bootId !== undefined) fields.push(encodeField(5, Buffer.from(spec.bootId)));
  if (spec.network !== undefined) fields.push(encodeField(6, encodeLink(spec.network)));
  if (spec.requireConnections) fields.push(encodeField(7, u8(connectionsBit)));
  if (spec.skipConnections) fields.push(encodeField(8, u8(connectionsBit)));
  return encodeFrame(frameType.afterFork, id, ...fields);
}

/** In the fields `require` and `skip` of AFTER_FORK. */
const connectionsBit = 1;

function encodeLink(state: LinkState): Buffer {
  return u8(state === "up" ? 1 : 0);
}

export function encodeNetwork(id: number, state: LinkState): Buffer {
  return encodeFrame(frameType.network, id, encodeField(1, encodeLink(state)));
}
