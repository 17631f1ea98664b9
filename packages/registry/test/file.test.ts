/** Single files behind a URL. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { rejectsWith } from "@forkd/test-support";
import { readFileAt, writeFileAt } from "../src/file.ts";
import { Registries } from "../src/registries.ts";
import { readAll, startLiar } from "./liar.ts";

const bytes = Buffer.from("the bytes of an archive");
const retries = { attempts: 3, firstMs: 1, maxMs: 10 };

test("a file that breaks off continues if the server says that it is the same", async (t) => {
  for (const etag of ['"v1"', undefined]) {
    let asked = 0;
    const { address, headers } = await startLiar(t, (request, response) => {
      const from = Number(/bytes=(\d+)-/.exec(request.headers.range ?? "")?.[1] ?? 0);
      const rest = bytes.subarray(from);
      const head = { "content-length": rest.length, ...(etag && { etag }) };
      response.writeHead(from > 0 ? 206 : 200, head);
      if (++asked > 1) return response.end(rest);
      response.write(rest.subarray(0, 5), () => response.destroy());
      return undefined;
    });
    using registries = new Registries({ retries });
    const reading = readAll(readFileAt(registries, new URL(`http://${address}/a.tar`)));
    if (etag === undefined) {
      await rejectsWith(reading, "registry_unreachable");
      continue;
    }
    assert.ok((await reading).equals(bytes));
    assert.deepEqual([headers[1]?.range, headers[1]?.["if-range"]], ["bytes=5-", etag]);
  }
});

test("a file that has changed meanwhile is not continued", async (t) => {
  let asked = 0;
  const { address } = await startLiar(t, (_request, response) => {
    response.writeHead(200, { "content-length": bytes.length, etag: `"v${++asked}"` });
    response.write(bytes.subarray(0, 5), () => response.destroy());
  });
  using registries = new Registries({ retries });
  const reading = readAll(readFileAt(registries, new URL(`http://${address}/a.tar`)));
  await rejectsWith(reading, "registry_failed", /status 200/);
});

test("a file is sent again from its beginning, and its query is not shown", async (t) => {
  let [asked, received] = [0, ""];
  const { address } = await startLiar(t, (request, response) => {
    const isBusy = ++asked === 1;
    received = "";
    request.on("data", (piece: Buffer) => (received += piece.toString()));
    request.on("end", () => response.writeHead(isBusy ? 503 : 200).end());
  });
  using registries = new Registries({ retries });
  let moved = 0;
  const file = {
    length: bytes.length,
    open: async function* () {
      yield bytes;
    },
    onBytes: (count: number) => (moved += count),
  };
  const url = new URL(`http://${address}/a.tar?signature=s3cret`);
  await writeFileAt(registries, url, file);
  assert.deepEqual([asked, received, moved], [2, bytes.toString(), bytes.length]);
  const refusing = await startLiar(t, (request, response) => {
    request.resume();
    response.writeHead(403).end("<Error>SignatureDoesNotMatch</Error>");
  });
  const error = await rejectsWith(
    writeFileAt(registries, new URL(url.href.replace(address, refusing.address)), file),
    "registry_denied",
    /status 403/,
  );
  assert.doesNotMatch(error.message, /s3cret/);
});
