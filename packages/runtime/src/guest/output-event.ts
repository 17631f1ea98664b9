/** Output of a guest as an event: text where the bytes are UTF-8, otherwise base64. */
import { isUtf8 } from "node:buffer";

export type OutputEvent = {
  type: "stdout" | "stderr";
  offset: number;
  data: string;
  encoding: "utf8" | "base64";
};

/** `offset` counts the bytes of the stream before these. */
export function outputEvent(stream: number, offset: number, bytes: Uint8Array): OutputEvent {
  const encoding = isUtf8(bytes) ? "utf8" : "base64";
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return { type: stream === 1 ? "stdout" : "stderr", offset, data: buffer.toString(encoding), encoding };
}
