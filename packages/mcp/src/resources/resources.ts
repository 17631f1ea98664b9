/** Resources: snapshots, lineage, sandboxes, their files and consoles, and stored outputs. */
import {
  ProtocolError,
  ProtocolErrorCode,
  ResourceNotFoundError,
  ResourceTemplate,
  type ListResourcesResult,
  type McpServer,
  type ReadResourceResult,
  type ServerContext,
} from "@modelcontextprotocol/server";
import { sandboxIdPattern, tagPattern, toAppError } from "@forkd/contract/wire";
import type { Forkd } from "@forkd/sdk";
import type { Backend } from "../backend.ts";
import type { Guest } from "../tools/tool.ts";
import { Collector } from "../results/collector.ts";
import { outputUri } from "../results/output-store.ts";
import { outputIdOf } from "../results/partial.ts";
import { safeText, safeValue } from "../results/safe-text.ts";
import { consoleUri, lineageUri, sandboxesUri, sandboxUri, snapshotsUri, snapshotUri } from "./uris.ts";

/** Larger files are read in parts, with read_file. */
const largestFile = 4 * 1024 * 1024;
const consoleLines = 2000;
const consoleBytes = 256 * 1024;
/** Sandboxes and snapshots in a list of resources. */
const mostListed = 200;

type Content = ReadResourceResult["contents"][number];
type Use = { readonly forkd: Forkd; readonly guest: Guest; readonly signal: AbortSignal };
type Listed = ListResourcesResult["resources"][number];

export function registerResources(server: McpServer, backend: Backend, log: (text: string) => void): void {
  const use = async (context: ServerContext): Promise<Use> => ({
    forkd: await backend.forkd(),
    guest: await import("../guest.ts"),
    signal: context.mcpReq.signal,
  });
  const read =
    (make: (use: Use, uri: string) => Promise<Content[]>) =>
    async (uri: URL, context: ServerContext): Promise<ReadResourceResult> => ({
      contents: await worded(uri.href, async () => make(await use(context), uri.href)),
    });
  const template = (make: (use: Use, uri: string) => Promise<Content[]>) => {
    const reader = read(make);
    return (uri: URL, _variables: unknown, context: ServerContext) => reader(uri, context);
  };
  const list =
    (make: (use: Use) => Promise<Listed[]>) =>
    async (context: ServerContext): Promise<ListResourcesResult> => {
      try {
        return { resources: await make(await use(context)) };
      } catch (error) {
        // The other resources can still be listed.
        log(`Cannot list resources: ${toAppError(error).message}`);
        return { resources: [] };
      }
    };

  server.registerResource(
    "snapshots",
    snapshotsUri,
    {
      title: "Snapshots",
      description: "All snapshots that sandboxes can be forked from",
      mimeType: "application/json",
    },
    read(async ({ forkd, signal }, uri) => [
      json(uri, await forkd.call("listSnapshots", { limit: 1000 }, { signal })),
    ]),
  );
  server.registerResource(
    "lineage",
    lineageUri,
    {
      title: "Lineage",
      description: "Which snapshot and sandbox descends from which",
      mimeType: "text/plain",
    },
    read(async ({ forkd, signal }, uri) => {
      const { drawLineage } = await import("./lineage.ts");
      const tree = await forkd.call("tree", {}, { signal });
      return [{ uri, mimeType: "text/plain", text: safeText(drawLineage(tree)).text }, json(uri, tree)];
    }),
  );
  server.registerResource(
    "sandboxes",
    sandboxesUri,
    { title: "Sandboxes", description: "All sandboxes and their states", mimeType: "application/json" },
    read(async ({ forkd, signal }, uri) => [
      json(uri, await forkd.call("listSandboxes", { limit: 1000 }, { signal })),
    ]),
  );
  server.registerResource(
    "snapshot",
    new ResourceTemplate("forkd://snapshots/{tag}", {
      list: list(async ({ forkd, signal }) =>
        (await forkd.call("listSnapshots", { limit: mostListed }, { signal })).map(({ tag }) => ({
          uri: snapshotUri(tag),
          name: tag,
          mimeType: "application/json",
        })),
      ),
    }),
    { title: "Snapshot", description: "One snapshot by its tag", mimeType: "application/json" },
    template(async ({ forkd, signal }, uri) => {
      const tag = matched(uri, /^forkd:\/\/snapshots\/([^/]+)$/, tagPattern);
      return [json(uri, await forkd.call("snapshotInfo", { tag }, { signal }))];
    }),
  );
  server.registerResource(
    "sandbox",
    new ResourceTemplate("forkd://sandboxes/{id}", {
      list: list(async ({ forkd, signal }) =>
        (await forkd.call("listSandboxes", { limit: mostListed }, { signal })).flatMap(({ id, state }) => [
          { uri: sandboxUri(id), name: `${id} (${state})`, mimeType: "application/json" },
          { uri: consoleUri(id), name: `Console of ${id}`, mimeType: "text/plain" },
        ]),
      ),
    }),
    { title: "Sandbox", description: "One sandbox by its id", mimeType: "application/json" },
    template(async ({ forkd, signal }, uri) => [
      json(uri, await forkd.call("getSandbox", { id: sandboxOf(uri, "") }, { signal })),
    ]),
  );
  server.registerResource(
    "console",
    new ResourceTemplate("forkd://sandboxes/{id}/console", { list: undefined }),
    { title: "Console", description: "Last lines of the console of a guest", mimeType: "text/plain" },
    template(async ({ forkd, guest, signal }, uri) => {
      const id = sandboxOf(uri, "/console");
      const output = new Collector(consoleBytes);
      for await (const bytes of guest.readConsole(forkd, id, consoleLines, signal)) output.push(bytes);
      const { head, tail } = output.collected();
      const end = Buffer.concat([head, tail]).subarray(-consoleBytes);
      return [{ uri, mimeType: "text/plain", text: safeText(end).text }];
    }),
  );
  server.registerResource(
    "file",
    new ResourceTemplate("forkd://sandboxes/{id}/files{+path}", { list: undefined }),
    {
      title: "File of a sandbox",
      description: "A file by its absolute path in the guest, or the entries of a directory; at most 4 MiB",
    },
    template(async (use, uri) => [await fileContent(use, uri)]),
  );
  server.registerResource(
    "output",
    new ResourceTemplate("forkd://outputs/{id}", {
      list: () => ({
        resources: backend.outputs.list().map(({ id, name, output }) => ({
          uri: outputUri(id),
          name,
          mimeType: "text/plain",
          size: output.total - output.missing,
        })),
      }),
    }),
    {
      title: "Output",
      description: "The whole of an output that a result shows in part",
      mimeType: "text/plain",
    },
    (uri) => ({ contents: [storedOutput(backend, uri.href)] }),
  );
}

function json(uri: string, value: unknown): Content {
  return { uri, mimeType: "application/json", text: JSON.stringify(safeValue(value), undefined, 2) };
}

function storedOutput(backend: Backend, uri: string): Content {
  const id = outputIdOf(uri);
  const stored = id === undefined ? undefined : backend.outputs.get(id);
  if (stored === undefined)
    throw new ResourceNotFoundError(uri, `There is no output "${uri}". Outputs are kept for one hour.`);
  const { head, tail, missing } = stored.output;
  const gap = missing > 0 ? `\n[${missing} bytes are not kept]\n` : "";
  return { uri, mimeType: "text/plain", text: safeText(head).text + gap + safeText(tail).text };
}

async function fileContent({ forkd, guest, signal }: Use, uri: string): Promise<Content> {
  const [, id = "", encoded = ""] = /^forkd:\/\/sandboxes\/([^/]+)\/files(\/.*)$/.exec(uri) ?? [];
  const path = decodePath(uri, encoded);
  if (!sandboxIdPattern.test(id)) throw new ResourceNotFoundError(uri);
  const stat = await forkd.call("statFile", { id, path, follow: true }, { signal });
  if (stat.type === "directory") return json(uri, await forkd.call("listFiles", { id, path }, { signal }));
  if (stat.type !== "file") throw refused(`"${path}" is a ${stat.type}`);
  if (stat.size > largestFile)
    throw refused(`"${path}" has ${stat.size} bytes: read it in parts with the tool read_file`);
  const bytes = await guest.readFile(forkd, id, { path, limit: largestFile }, signal);
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    if (!text.includes("\0")) return { uri, mimeType: "text/plain", text: safeText(text).text };
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
  }
  return { uri, mimeType: "application/octet-stream", blob: Buffer.from(bytes).toString("base64") };
}

function decodePath(uri: string, encoded: string): string {
  try {
    return decodeURIComponent(encoded);
  } catch (error) {
    if (error instanceof URIError) throw refused(`the address "${uri}" is not valid percent-encoding`);
    throw error;
  }
}

function sandboxOf(uri: string, end: string): string {
  const prefix = sandboxUri("");
  const id =
    uri.startsWith(prefix) && uri.endsWith(end) ? uri.slice(prefix.length, uri.length - end.length) : "";
  if (!sandboxIdPattern.test(id)) throw new ResourceNotFoundError(uri);
  return id;
}

function matched(uri: string, form: RegExp, value: RegExp): string {
  const found = form.exec(uri)?.[1] ?? "";
  if (!value.test(found)) throw new ResourceNotFoundError(uri);
  return found;
}

function refused(why: string): ProtocolError {
  return new ProtocolError(
    ProtocolErrorCode.InvalidParams,
    safeText(`Cannot read the resource: ${why}`).text,
  );
}

/** Errors of the daemon as errors of the protocol, with their code and remedy as data. */
async function worded<T>(uri: string, make: () => Promise<T>): Promise<T> {
  try {
    return await make();
  } catch (error) {
    if (error instanceof ProtocolError) throw error;
    const app = toAppError(error);
    const { toolRemedy } = await import("../results/remedies.ts");
    const remedy = toolRemedy(app);
    const message = safeText([app.message, remedy].filter(Boolean).join(". ")).text;
    if (app.code.endsWith("not_found")) throw new ResourceNotFoundError(uri, message);
    throw new ProtocolError(ProtocolErrorCode.InternalError, message, { code: app.code, remedy });
  }
}
