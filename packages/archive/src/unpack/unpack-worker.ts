/** Worker thread that expands chunks. Requests are answered by their number, in any order. */
import { parentPort, workerData } from "node:worker_threads";
import { toErrorBody } from "@forkd/contract/wire";
import { Expander, type StagedFile, type Targets } from "./expand.ts";

export type UnpackWork = { dir: string; files: readonly StagedFile[] };
export type UnpackRequest =
  | {
      kind: "chunk";
      bytes: Uint8Array;
      expected: { sha256: string; bytes: number; name: string };
      targets: Targets;
    }
  | { kind: "copy"; from: string; targets: Targets };

export type UnpackMessage = { id: number; request: UnpackRequest } | "end";

const port = parentPort;
// From unpack-thread.ts, which starts this thread.
const { dir, files } = workerData as UnpackWork;
const expander = new Expander(dir, files);

async function answer(request: UnpackRequest): Promise<void> {
  if (request.kind === "copy") return expander.copy(request.from, request.targets);
  const { bytes, expected, targets } = request;
  const packed = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  await expander.expand(packed, expected, targets);
}

port?.on("message", (message: UnpackMessage) => {
  if (message === "end") {
    port.close();
    expander[Symbol.dispose]();
    return;
  }
  const { id, request } = message;
  answer(request).then(
    () => port.postMessage({ id }),
    (error: unknown) => port.postMessage({ id, error: toErrorBody(error) }),
  );
});
