/** The client against registries that break their protocol. */
import assert from "node:assert/strict";
import type http from "node:http";
import { test } from "node:test";
import { rejectsWith } from "@forkd/test-support";
import { digestOf } from "../src/digest.ts";
import { blobOf, openRepository, readAll, startLiar } from "./liar.ts";

const bytes = Buffer.from("the bytes of a blob");
const blob = { digest: digestOf(bytes), size: bytes.length };
const isBlob = (request: http.IncomingMessage): boolean => request.url === `/v2/x/blobs/${blob.digest}`;

/** Writes without end until the reader closes the connection. */
function writeForEver(response: http.ServerResponse): void {
  const piece = Buffer.alloc(65_536, "x");
  const more = (): void => {
    while (!response.destroyed && response.write(piece));
  };
  response.on("drain", more);
  more();
}

test("a blob with other bytes is refused at its end", async (t) => {
  const { address } = await startLiar(t, (_request, response) =>
    response.end(Buffer.alloc(bytes.length, "y")),
  );
  await rejectsWith(readAll(openRepository(t, address).readBlob(blob)), "artifact_corrupt", /another digest/);
});

test("a blob with another length is refused before its bytes are read", async (t) => {
  const { address } = await startLiar(t, (_request, response) =>
    response.end("much longer than the blob is"),
  );
  await rejectsWith(
    readAll(openRepository(t, address).readBlob(blob)),
    "registry_failed",
    /28 bytes of it, not 19/,
  );
});

test("a blob without an end is cut off", async (t) => {
  const { address } = await startLiar(t, (_request, response) => writeForEver(response));
  await rejectsWith(
    readAll(openRepository(t, address).readBlob(blob)),
    "registry_failed",
    /more than 19 bytes/,
  );
});

test("an answer whose head has no end is given up", { timeout: 60_000 }, async (t) => {
  let timer: NodeJS.Timeout | undefined;
  t.after(() => clearInterval(timer));
  const { address } = await startLiar(t, (_request, { socket }) => {
    socket?.write("HTTP/1.1 200 OK\r\nx: ");
    timer = setInterval(() => socket?.write("x"), 20);
  });
  const retries = { attempts: 1, firstMs: 1, maxMs: 1 };
  const repository = openRepository(t, address, { silenceMs: 300, retries });
  await rejectsWith(repository.tags(), "registry_unreachable", /no answer for 0.3 s/);
});

test("a host that does not exist is looked up once, and named", { timeout: 60_000 }, async (t) => {
  // No name server is asked for a label that is too long.
  const host = `${"a".repeat(64)}.invalid`;
  const hour = 3_600_000;
  const repository = openRepository(t, host, { retries: { attempts: 2, firstMs: hour, maxMs: hour } });
  await rejectsWith(repository.tags(), "registry_unreachable", new RegExp(`there is no host "${host}"`));
});

test("a page with too many names is refused", async (t) => {
  const page = `{"tags":[${'"",'.repeat(1_000_000)}"a"]}`;
  const { address } = await startLiar(t, (_request, response) => response.end(page));
  await rejectsWith(openRepository(t, address).tags(), "registry_failed", /more than 100000/);
});

test("a manifest without an end is cut off", async (t) => {
  const { address } = await startLiar(t, (_request, response) => writeForEver(response));
  await rejectsWith(openRepository(t, address).manifest("v1"), "registry_failed", /more than 4194304 bytes/);
});

test("a manifest is checked against its digest, asked for or named", async (t) => {
  const { address } = await startLiar(t, (request, response) => {
    if (request.url?.endsWith("/named")) response.setHeader("docker-content-digest", digestOf("other"));
    response.end("{}");
  });
  const repository = openRepository(t, address);
  await rejectsWith(repository.manifest(digestOf("other")), "artifact_corrupt");
  await rejectsWith(repository.manifest("named"), "artifact_corrupt");
  assert.equal((await repository.manifest("free")).digest, digestOf("{}"));
});

test("a blob that breaks off continues where it ended, also without ranges", async (t) => {
  for (const knowsRanges of [true, false]) {
    let asked = 0;
    const { address, headers } = await startLiar(t, (request, response) => {
      const from = knowsRanges ? Number(/bytes=(\d+)/.exec(request.headers.range ?? "")?.[1] ?? 0) : 0;
      const rest = bytes.subarray(from);
      const head = { "content-length": rest.length };
      if (from > 0)
        response.writeHead(206, {
          ...head,
          "content-range": `bytes ${from}-${bytes.length - 1}/${bytes.length}`,
        });
      else response.writeHead(200, head);
      if (++asked > 2) return response.end(rest);
      response.write(rest.subarray(0, 5), () => response.destroy());
      return undefined;
    });
    assert.ok((await readAll(openRepository(t, address).readBlob(blob))).equals(bytes));
    assert.deepEqual(
      headers.map(({ range }) => range),
      [undefined, "bytes=5-18", knowsRanges ? "bytes=10-18" : "bytes=5-18"],
    );
  }
});

test("a blob that always breaks off is given up after the last attempt", async (t) => {
  const { address, requests } = await startLiar(t, (_request, response) => {
    response.writeHead(200, { "content-length": bytes.length });
    response.flushHeaders();
    setImmediate(() => response.destroy());
  });
  await rejectsWith(readAll(openRepository(t, address).readBlob(blob)), "registry_unreachable");
  assert.equal(requests.length, 3);
});

test("a wrong range is refused", async (t) => {
  const { address } = await startLiar(t, (_request, response) => {
    response.writeHead(206, { "content-range": `bytes 0-4/${bytes.length}` });
    response.end(bytes.subarray(0, 5));
  });
  const reading = readAll(openRepository(t, address).readBlob(blob, { offset: 4, length: 5 }));
  await rejectsWith(reading, "registry_failed", /range/);
});

test("compressed answers are refused", async (t) => {
  const { address } = await startLiar(t, (_request, response) => {
    response.writeHead(200, { "content-encoding": "gzip" });
    response.end(bytes);
  });
  await rejectsWith(readAll(openRepository(t, address).readBlob(blob)), "registry_failed", /encoding "gzip"/);
});

test("redirects are followed five times, and only to HTTP", async (t) => {
  const { address, requests } = await startLiar(t, (request, response) => {
    const location = request.url?.includes("/files") ? "file:///etc/passwd" : request.url;
    response.writeHead(307, { location });
    response.end();
  });
  const repository = openRepository(t, address);
  await rejectsWith(repository.manifest("v1"), "registry_failed", /more than 5 times/);
  assert.equal(requests.length, 6);
  await rejectsWith(repository.manifest("files"), "registry_failed", /not HTTP/);
});

test("a redirect to another host gets no credentials", async (t) => {
  const store = await startLiar(t, (_request, response) => response.end(bytes));
  const { address, headers } = await startLiar(t, (request, response) => {
    if (request.headers.authorization === undefined) response.writeHead(401, { "www-authenticate": "Basic" });
    else response.writeHead(307, { location: `http://${store.address}/blob?signature=1` });
    response.end();
  });
  const credentials = async () => ({ username: "user", password: "s3cret" });
  assert.ok((await readAll(openRepository(t, address, { credentials }).readBlob(blob))).equals(bytes));
  assert.ok(headers.at(-1)?.authorization?.startsWith("Basic "));
  assert.deepEqual(store.requests, ["GET /blob?signature=1"]);
  assert.equal(store.headers[0]?.authorization, undefined);
});

test("an upload is not redirected, and its address on another host gets no credentials", async (t) => {
  const store = await startLiar(t, (request, response) => {
    request.resume();
    request.on("end", () => response.writeHead(201).end());
  });
  let isRedirect = true;
  const { address } = await startLiar(t, (request, response) => {
    if (request.headers.authorization === undefined) response.writeHead(401, { "www-authenticate": "Basic" });
    else response.writeHead(isRedirect ? 307 : 202, { location: `http://${store.address}/upload?a=b%20c` });
    response.end();
  });
  const credentials = async () => ({ username: "user", password: "s3cret" });
  const repository = openRepository(t, address, { credentials });
  await rejectsWith(repository.uploadBlob(blobOf(bytes, blob.digest)), "registry_failed", /not a read/);
  assert.deepEqual(store.requests, []);
  isRedirect = false;
  await repository.uploadBlob(blobOf(bytes, blob.digest));
  const [request] = store.requests;
  assert.match(request ?? "", /^PUT \/upload\?a=b(?:%20|\+)c&digest=sha256/);
  assert.equal(store.headers[0]?.authorization, undefined);
});

test("relative addresses of uploads with a query are kept", async (t) => {
  const { address, requests } = await startLiar(t, (request, response) => {
    request.resume();
    request.on("end", () => {
      if (request.method === "POST") response.writeHead(202, { location: "/elsewhere/1?state=x" });
      else response.writeHead(201);
      response.end();
    });
  });
  await openRepository(t, address).uploadBlob(blobOf(bytes, blob.digest));
  assert.equal(requests[1], `PUT /elsewhere/1?state=x&digest=${encodeURIComponent(blob.digest)}`);
});

test("a registry that refuses an upload early is heard", async (t) => {
  const large = Buffer.alloc(9 << 20);
  const { address } = await startLiar(t, (request, response) => {
    if (request.method === "POST") response.writeHead(202, { location: "/up" }).end();
    else response.writeHead(413).end('{"errors":[{"code":"SIZE_INVALID","message":"too large\\u001b[31m"}]}');
  });
  const upload = openRepository(t, address).uploadBlob(blobOf(large, digestOf(large)));
  await rejectsWith(upload, "registry_failed", /too large \[31m \(status 413\)/);
});

test("pages of HTML and odd JSON are errors that name the registry", async (t) => {
  let page = "";
  const { address } = await startLiar(t, (request, response) => {
    const status = request.url?.includes("tags") ? 200 : 503;
    response.writeHead(status, { "content-type": "text/html" }).end(page);
  });
  const repository = openRepository(t, address);
  page = "<html>Please log in</html>";
  await rejectsWith(repository.tags(), "registry_failed", /not JSON \(text\/html\)/);
  await rejectsWith(repository.manifest("v1"), "registry_unreachable", /status 503/);
  for (page of ["null", "[]", '{"tags":[1]}', '{"tags":"a"}', `{"tags":["${"a".repeat(600)}"]}`]) {
    if (page === "null" || page === "[]") assert.deepEqual(await repository.tags(), []);
    else await rejectsWith(repository.tags(), "registry_failed", /no list of tags/);
  }
});

test("endless pages of tags are an error, and pages of other hosts are not asked for", async (t) => {
  const { address, requests } = await startLiar(t, (request, response) => {
    const next = request.url?.includes("/x/") ? "/v2/x/tags/list?n=1&last=a" : "http://192.0.2.1/v2/";
    response.writeHead(200, { link: `<${next}>; rel="next"` }).end('{"tags":["a"]}');
  });
  await rejectsWith(openRepository(t, address).tags(), "registry_failed", /more than 1000 pages/);
  assert.equal(requests.length, 1000);
});

test("a registry that is busy is asked again, as late as it says", async (t) => {
  let left = 2;
  const { address, requests } = await startLiar(t, (_request, response) => {
    if (left-- > 0) response.writeHead(429, { "retry-after": "0" }).end("slow down");
    else response.end('{"tags":["a"]}');
  });
  assert.deepEqual(await openRepository(t, address).tags(), ["a"]);
  assert.equal(requests.length, 3);
});

test("a silent registry is given up", async (t) => {
  const { address, requests } = await startLiar(t, () => undefined);
  const repository = openRepository(t, address, { silenceMs: 50 });
  await rejectsWith(repository.manifest("v1"), "registry_unreachable", /no answer for 0.05 s/);
  assert.equal(requests.length, 3);
  const half = await startLiar(t, (request, response) => {
    assert.ok(isBlob(request));
    response.writeHead(200, { "content-length": bytes.length });
    response.write(bytes.subarray(0, 1));
  });
  const reading = readAll(openRepository(t, half.address, { silenceMs: 50 }).readBlob(blob));
  await rejectsWith(reading, "registry_unreachable");
});
