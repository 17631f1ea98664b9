/** Bytes of `text/event-stream` → events. */
import type { ForkdEvent } from "@forkd/contract";
import { parseJson } from "./errors.ts";

export async function* parseEvents(body: AsyncIterable<Uint8Array>): AsyncGenerator<ForkdEvent> {
  for await (const data of parseFrames(body)) yield parseJson(data, "events") as ForkdEvent;
}

/** Yields the data of each frame. Skips comments, other fields and an incomplete last frame. */
export async function* parseFrames(body: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = "";
  let data: string[] = [];
  for await (const chunk of body) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
    rest = lines.pop() ?? "";
    for (const raw of lines) {
      const line = raw.endsWith("\r") ? raw.slice(0, -1) : raw;
      if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
      if (line !== "") continue;
      if (data.length > 0) yield data.join("\n");
      data = [];
    }
  }
}
