/** Frames of a Connect stream: one byte of flags, the length as u32 big-endian, JSON. Pure. */
import { AppError } from "@forkd/contract";

const headerBytes = 5;
const endFlag = 2;

export function messageFrame(message: object): Buffer {
  return frame(0, JSON.stringify(message));
}

/** The last frame. Clients take a stream without it for a broken one. */
export function endFrame(error?: { code: string; message: string }): Buffer {
  return frame(endFlag, error ? JSON.stringify({ error }) : "{}");
}

function frame(flags: number, json: string): Buffer {
  const length = Buffer.byteLength(json);
  const bytes = Buffer.allocUnsafe(headerBytes + length);
  bytes.writeUInt8(flags, 0);
  bytes.writeUInt32BE(length, 1);
  bytes.write(json, headerBytes);
  return bytes;
}

/** The JSON of the one message that the request of a server stream consists of. */
export function onlyMessage(body: Buffer): Buffer {
  if (body.length < headerBytes) throw badFrame("it has no message");
  const flags = body.readUInt8(0);
  if (flags !== 0) throw badFrame(`its message has the flags ${flags}; compression is not supported`);
  const length = body.readUInt32BE(1);
  const end = headerBytes + length;
  if (end > body.length) throw badFrame("its message is cut");
  if (end < body.length) throw badFrame("it has more than one message");
  return body.subarray(headerBytes, end);
}

function badFrame(why: string): AppError {
  return new AppError("invalid_request", `Cannot read the request: ${why}`);
}
