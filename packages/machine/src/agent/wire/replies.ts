/**
 * The payloads that the guest sends (docs/spec/agent-protocol.md). Pure.
 *
 * The guest is not trusted: a wrong length, a missing field or a number beyond 2^53 is a ProtocolError.
 */
import { frameBounds } from "../bounds.ts";
import { ProtocolError } from "../errors.ts";
import { decodeFields, type Fields } from "./frames.ts";
import {
  processKind,
  type InputStreamNumber,
  type OutputStreamNumber,
  type PerStream,
  type ProcessKind,
} from "./requests.ts";

/** Facts from HELLO_OK. */
export interface AgentHello {
  readonly version: string;
  readonly uptimeMs: number;
  readonly unfinished: number;
}

export interface AgentOutput {
  readonly stream: OutputStreamNumber;
  /** position of the first byte in its stream */
  readonly offset: number;
  readonly bytes: Buffer;
}

export interface AgentExit {
  readonly code?: number;
  readonly signal?: number;
  readonly timedOut: boolean;
  readonly userUs: number;
  readonly systemUs: number;
  readonly peakRssKib: number;
}

export interface AgentListing {
  readonly id: number;
  readonly pid: number;
  readonly finished: boolean;
  readonly label: string;
  readonly command: string;
  /** Program and arguments as far as the agent keeps them; undefined if it reports none. */
  readonly args?: readonly string[];
  /** Milliseconds since the start; undefined from an agent that does not report it. */
  readonly ageMs?: number;
  readonly kind: ProcessKind | undefined;
  readonly offsets: PerStream;
  readonly code?: number;
  readonly signal?: number;
  readonly flags: number;
}

function one(fields: Fields, key: number, length: number): Buffer {
  const value = fields.get(key)?.[0];
  if (value?.length !== length) throw new ProtocolError(`field ${key} is missing or not ${length} bytes`);
  return value;
}

function optional(fields: Fields, key: number, length: number): Buffer | undefined {
  return fields.has(key) ? one(fields, key, length) : undefined;
}

function textOf(fields: Fields, key: number): string {
  return (fields.get(key)?.[0] ?? Buffer.alloc(0)).toString("utf8", 0, frameBounds.textBytes);
}

function textsOf(fields: Fields, key: number): string[] {
  const values = fields.get(key) ?? [];
  return values.map((value) => value.toString("utf8", 0, frameBounds.textBytes));
}

function exactly(payload: Buffer, length: number): void {
  if (payload.length !== length) throw new ProtocolError(`payload of ${payload.length} bytes, not ${length}`);
}

function u64At(bytes: Buffer, at: number): number {
  const value = bytes.readBigUInt64LE(at);
  if (value > BigInt(Number.MAX_SAFE_INTEGER)) throw new ProtocolError("number beyond 2^53");
  return Number(value);
}

function outputStream(value: number): OutputStreamNumber {
  if (value !== 1 && value !== 2 && value !== 3) throw new ProtocolError(`output stream ${value}`);
  return value;
}

export function decodeHelloOk(payload: Buffer): AgentHello {
  const fields = decodeFields(payload);
  return {
    version: textOf(fields, 2),
    uptimeMs: u64At(one(fields, 3, 8), 0),
    unfinished: one(fields, 4, 4).readUInt32LE(),
  };
}

export function decodeError(payload: Buffer): { errno: number; text: string } {
  const fields = decodeFields(payload);
  return { errno: one(fields, 1, 4).readUInt32LE(), text: textOf(fields, 2) };
}

/** The guest's wall clock, ns since the epoch, before it was set. */
export function decodeClockOk(payload: Buffer): bigint {
  return one(decodeFields(payload), 1, 8).readBigUInt64LE();
}

/** What AFTER_FORK did about the network. */
export interface AfterForkReport {
  /** TCP connections to peers outside the machine, which the guest aborted */
  readonly destroyed: number;
  readonly missing: {
    /** The guest's kernel could not abort such connections, or not all of them. */
    readonly connections: boolean;
    /** The guest has no network device. */
    readonly device: boolean;
  };
}

const missingFlag = { connections: 1, device: 2 } as const;

export function decodeForked(payload: Buffer): AfterForkReport {
  const fields = decodeFields(payload);
  const missing = one(fields, 2, 1).readUInt8();
  return {
    destroyed: one(fields, 1, 4).readUInt32LE(),
    missing: {
      connections: (missing & missingFlag.connections) !== 0,
      device: (missing & missingFlag.device) !== 0,
    },
  };
}

export function decodeStarted(payload: Buffer): number {
  return one(decodeFields(payload), 1, 4).readUInt32LE();
}

export function decodeOutput(payload: Buffer): AgentOutput {
  if (payload.length < 10) throw new ProtocolError("OUTPUT without bytes");
  return {
    stream: outputStream(payload.readUInt8(0)),
    offset: u64At(payload, 1),
    bytes: payload.subarray(9),
  };
}

export function decodeOutputEof(payload: Buffer): { stream: OutputStreamNumber; offset: number } {
  exactly(payload, 9);
  return { stream: outputStream(payload.readUInt8(0)), offset: u64At(payload, 1) };
}

export function decodeInputCredit(payload: Buffer): { stream: InputStreamNumber; bytes: number } {
  exactly(payload, 5);
  const stream = payload.readUInt8(0);
  if (stream !== 0 && stream !== 3) throw new ProtocolError(`input stream ${stream}`);
  return { stream, bytes: payload.readUInt32LE(1) };
}

/** Only stdin is reported. */
export function decodeInputClosed(payload: Buffer): void {
  exactly(payload, 1);
  if (payload.readUInt8(0) !== 0) throw new ProtocolError(`closed input stream ${payload.readUInt8(0)}`);
}

export function decodeExit(payload: Buffer): AgentExit {
  exactly(payload, 28);
  const how = payload.readUInt8(0);
  if (how > 1) throw new ProtocolError(`EXIT of kind ${how}`);
  const value = payload.readUInt8(1);
  return {
    ...(how === 0 ? { code: value } : { signal: value }),
    timedOut: payload.readUInt8(2) !== 0,
    userUs: u64At(payload, 4),
    systemUs: u64At(payload, 12),
    peakRssKib: u64At(payload, 20),
  };
}

export function decodeListing(payload: Buffer): AgentListing {
  const fields = decodeFields(payload);
  const kind = one(fields, 6, 1).readUInt8();
  const offsets = one(fields, 7, 24);
  const code = optional(fields, 8, 1)?.readUInt8();
  const signal = optional(fields, 9, 1)?.readUInt8();
  const age = optional(fields, 12, 8);
  return {
    id: one(fields, 1, 4).readUInt32LE(),
    pid: one(fields, 2, 4).readUInt32LE(),
    finished: one(fields, 3, 1).readUInt8() !== 0,
    label: textOf(fields, 4),
    command: textOf(fields, 5),
    ...(fields.has(11) && { args: textsOf(fields, 11) }),
    ...(age && { ageMs: u64At(age, 0) }),
    kind: kindName(kind),
    offsets: [u64At(offsets, 0), u64At(offsets, 8), u64At(offsets, 16)],
    ...(signal ? { signal } : code !== undefined && { code }),
    flags: optional(fields, 10, 4)?.readUInt32LE() ?? 0,
  };
}

function kindName(kind: number): ProcessKind | undefined {
  for (const [name, value] of Object.entries(processKind)) {
    // Object.entries() loses the type of the keys.
    if (value === kind) return name as ProcessKind;
  }
  return undefined;
}
